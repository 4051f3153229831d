package results

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func histogramOf(t *testing.T, key HistogramKey, values ...float64) *Histogram {
	t.Helper()
	h := newHistogram(key)
	for _, v := range values {
		require.NoError(t, h.record(v))
	}
	return h
}

func TestHistogramQuantiles(t *testing.T) {
	h := newHistogram(HistogramKey{Metric: MetricTTFT})
	require.Equal(t, Number{}, h.Quantile(0.5), "absent, not zero")
	require.Equal(t, Number{}, h.Mean())
	require.Equal(t, Number{}, h.Max())
	for i := 1; i <= 1000; i++ {
		require.NoError(t, h.record(float64(i)))
	}
	require.InEpsilon(t, 500, h.Quantile(0.5).Value, 0.001)
	require.InEpsilon(t, 990, h.Quantile(0.99).Value, 0.001)
	require.InEpsilon(t, 1000, h.Max().Value, 0.001)
	require.InEpsilon(t, 500.5, h.Mean().Value, 0.001)
	require.Equal(t, int64(100), h.Above(900))
	require.Equal(t, int64(1000), h.Above(0))
	require.Equal(t, int64(0), h.Above(1000))
	require.Equal(t, int64(1), histogramOf(t, HistogramKey{}, 1.5, 1.501).Above(1.5), "the limit itself is not above it")
}

func TestHistogramEdges(t *testing.T) {
	h := histogramOf(t, HistogramKey{}, -1, 0.0004, 4e6)
	require.Equal(t, int64(3), h.Count())
	require.Equal(t, int64(1), h.AboveRange)
	require.InEpsilon(t, 3.6e6, h.Max().Value, 0.001)
	require.Error(t, h.record(math.NaN()))
	require.Equal(t, int64(3), h.Count())
}

func TestMergedHistogramsAreTheHistogramOfAll(t *testing.T) {
	a := histogramOf(t, HistogramKey{MetricTTFT, "steady", "5", "short"}, 1, 2, 3)
	b := histogramOf(t, HistogramKey{MetricTTFT, "steady", "5", "long"}, 100, 4e6)
	c := histogramOf(t, HistogramKey{MetricTTFT, "warmup", "5", "long"}, 9999)
	merged, err := MergeHistograms([]*Histogram{a, b, c}, func(k HistogramKey) bool { return k.Phase == "steady" })
	require.NoError(t, err)
	require.Equal(t, HistogramKey{MetricTTFT, "steady", "5", ""}, merged.HistogramKey)
	require.Equal(t, int64(5), merged.Count())
	require.Equal(t, int64(1), merged.AboveRange)
	require.Equal(t, int64(3), a.Count(), "the parts stay as they are")
	require.Equal(t, histogramOf(t, HistogramKey{}, 1, 2, 3, 100, 4e6).Bars(), merged.Bars())

	none, err := MergeHistograms([]*Histogram{a}, func(HistogramKey) bool { return false })
	require.NoError(t, err)
	require.Nil(t, none)
}

func TestHistogramFilesKeepEveryValue(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir, Info{Started: noon}, Options{})
	require.NoError(t, err)
	gaps := []float64{0.5, 10, 10, 81.3, 5e6}
	require.NoError(t, w.RecordITL("steady", "", "b", gaps))
	require.NoError(t, w.RecordITL("steady", "", "a", gaps[:2]))
	require.NoError(t, w.RecordITL("steady", "", "never", nil))
	require.NoError(t, w.Close(noon, nil))
	run, err := Open(dir)
	require.NoError(t, err)
	read, err := run.Histograms(MetricITL)
	require.NoError(t, err)
	require.Len(t, read, 2)
	require.Equal(t, "a", read[0].Class)
	require.Equal(t, int64(1), read[1].AboveRange)
	require.Equal(t, histogramOf(t, HistogramKey{}, gaps...).Bars(), read[1].Bars())
}

func TestHistogramsAreCapped(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir, Info{}, Options{})
	require.NoError(t, err)
	for i := range int64(maxHistograms + 5) {
		r := numbered(i)
		r.E2E = Number{}
		r.Class = fmt.Sprint("class", i)
		require.NoError(t, w.Request(r))
	}
	require.Equal(t, maxHistograms, w.histogramCount)
	require.LessOrEqual(t, len(w.groups), maxHistograms+1)
	require.NoError(t, w.Close(time.Now(), nil))
	run, err := Open(dir)
	require.NoError(t, err)
	events, _, err := run.Events()
	require.NoError(t, err)
	require.Len(t, events, 1)
	require.Equal(t, EventHistogramCap, events[0].Kind)
	require.Contains(t, events[0].Message, "class768")
}
