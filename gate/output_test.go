package gate

import (
	"math"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.k6.io/k6/metrics"

	"github.com/safeqps/xk6-safeqps/gate/clock"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/llm"
	"github.com/safeqps/xk6-safeqps/llm/wire"
)

// TestAGaugeThatIsNoMeasurementIsAGap: one broken exporter neither ends a run nor makes its evidence unreadable.
func TestAGaugeThatIsNoMeasurementIsAGap(t *testing.T) {
	t.Parallel()
	dir, begin := t.TempDir(), time.Now().Truncate(time.Second)
	w, err := results.Create(dir, results.Info{Started: begin}, results.Options{})
	require.NoError(t, err)
	o := &Output{dir: dir, logger: logrus.New(), writer: w, seconds: newSeconds()}
	registry := metrics.NewRegistry()
	push := func(name string, value float64) {
		metric, err := registry.NewMetric(name, metrics.Gauge)
		require.NoError(t, err)
		o.sample(metrics.Sample{TimeSeries: metrics.TimeSeries{Metric: metric, Tags: registry.RootTagSet()}, Time: begin, Value: value})
	}
	push("llm_server_queue_depth", 3)
	push("llm_server_queue_depth", math.Inf(1))
	push("llm_server_running", math.NaN())
	push("llm_server_kv_cache_usage", -0.5)
	push("llm_server_gpu_memory", 1e308)
	push("llm_client_memory", -1)
	for _, s := range o.seconds.all() {
		require.NoError(t, w.Sample(s))
	}
	require.NoError(t, w.Close(begin.Add(time.Second), nil))
	require.False(t, o.broken)

	run, err := results.Open(dir)
	require.NoError(t, err)
	var samples []results.Sample
	_, err = run.Series(func(s *results.Sample) error {
		samples = append(samples, *s)

		return nil
	})
	require.NoError(t, err)
	require.Len(t, samples, 1)
	require.Equal(t, map[string]float64{"queue_depth": 3}, samples[0].Server)
	require.Nil(t, samples[0].Client)
	events, _, err := run.Events()
	require.NoError(t, err)
	messages := make([]string, 0, len(events))
	for _, e := range events {
		require.Equal(t, results.EventScrapeGap, e.Kind)
		messages = append(messages, e.Message)
	}
	require.Equal(t, []string{
		"llm_server_queue_depth was +Inf, which is no measurement", "llm_server_running was NaN, which is no measurement",
		"llm_server_kv_cache_usage was -0.5, which is no measurement", "llm_server_gpu_memory was 1e+308, which is no measurement",
		"llm_client_memory was -1, which is no measurement",
	}, messages)
}

// TestAForcedLengthIsALabel: a request that forces the length of its answer does so whether or not a trace says it, and
// the label is there even where the run is killed.
func TestAForcedLengthIsALabel(t *testing.T) {
	t.Parallel()
	dir, begin := t.TempDir(), time.Now().Truncate(time.Second)
	w, err := results.Create(dir, results.Info{Started: begin, Labels: []string{"mine"}}, results.Options{})
	require.NoError(t, err)
	o := &Output{dir: dir, logger: logrus.New(), writer: w, seconds: newSeconds(), clock: clock.NewWatch()}
	exchange := func(forced bool) {
		e := &llm.Exchange{
			Attempt: 1, Row: -1, Tags: metrics.NewRegistry().RootTagSet(), Outcome: llm.OutcomeOK, Message: &wire.Message{},
			ForcedLength: forced, End: begin,
		}
		e.Timeline.Sent = begin
		o.exchange(e)
	}
	labels := func() []string {
		run, err := results.Open(dir)
		require.NoError(t, err)

		return run.Info.Labels
	}
	exchange(false)
	require.Equal(t, []string{"mine"}, labels())
	exchange(true)
	require.Equal(t, []string{"mine", results.LabelIgnoreEOS}, labels(), "before the end of the run")
	exchange(true)
	exchange(false)
	require.NoError(t, w.Close(begin.Add(time.Second), nil))
	require.Equal(t, []string{"mine", results.LabelIgnoreEOS}, labels())
	require.False(t, o.broken)
}
