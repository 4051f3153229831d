package results

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The geometry of the histograms: microseconds up to one hour, three significant digits, so that a quantile read
// from a histogram is within 0.1 % of the recorded value. A value above the range is kept as an hour and counted.
const (
	histogramUnit   = "us"
	histogramMax    = 3_600_000_000
	histogramDigits = 3
	microsPerMilli  = 1000
)

// maxHistograms bounds the memory of a writer: a histogram takes about 190 kB, and classes come from the user's
// trace.
const maxHistograms = 768

// The metrics that have histograms, by the name after "llm_".
const (
	MetricTTFT          = "ttft"
	MetricTTFTText      = "ttft_text"
	MetricTPOT          = "tpot"
	MetricITL           = "itl"
	MetricE2E           = "e2e"
	MetricScheduleDelay = "schedule_delay"
	// MetricTimerDelay is the lateness of the load generator's own timers. It belongs to no request and has no class.
	MetricTimerDelay = "timer_delay"
)

// HistogramKey says what a histogram is about.
type HistogramKey struct {
	Metric string
	Phase  string
	Step   string
	Class  string
}

// Histogram is the distribution of one metric over the requests of one phase, step and class.
type Histogram struct {
	HistogramKey
	hdr *hdrhistogram.Histogram
	// AboveRange counts values of more than an hour, which are kept as an hour.
	AboveRange int64
	changed    bool
}

func newHistogram(key HistogramKey) *Histogram {
	return &Histogram{HistogramKey: key, hdr: hdrhistogram.New(1, histogramMax, histogramDigits)}
}

// record adds one duration in milliseconds. A negative one, as of a request that was sent before its due time,
// counts as 0: a histogram has no negative side.
func (h *Histogram) record(ms float64) error {
	if math.IsNaN(ms) {
		return errors.New("results: a duration that is not a number cannot be recorded")
	}
	h.changed = true
	us := math.Round(ms * microsPerMilli)
	switch {
	case us > histogramMax:
		h.AboveRange++
		us = histogramMax
	case us < 0:
		us = 0
	}
	return h.hdr.RecordValue(int64(us))
}

// Count is the number of recorded values.
func (h *Histogram) Count() int64 { return h.hdr.TotalCount() }

// Quantile is the smallest recorded value, in milliseconds and to the histogram's resolution, that at least the
// share q of the values do not exceed. It is absent for an empty histogram.
func (h *Histogram) Quantile(q float64) Number {
	if h.Count() == 0 {
		return Number{}
	}
	return Num(float64(h.hdr.ValueAtPercentile(100*q)) / microsPerMilli)
}

// Mean is the mean of the recorded values in milliseconds; absent for an empty histogram.
func (h *Histogram) Mean() Number {
	if h.Count() == 0 {
		return Number{}
	}
	return Num(h.hdr.Mean() / microsPerMilli)
}

// Max is the largest recorded value in milliseconds; absent for an empty histogram.
func (h *Histogram) Max() Number {
	if h.Count() == 0 {
		return Number{}
	}
	return Num(float64(h.hdr.Max()) / microsPerMilli)
}

// Above counts the values above a limit in milliseconds, to the histogram's resolution: values in the same bucket
// as the limit are not above it.
func (h *Histogram) Above(ms float64) int64 {
	limit := int64(math.Round(ms * microsPerMilli))
	var above int64
	for _, bar := range h.hdr.Distribution() {
		if bar.From > limit {
			above += bar.Count
		}
	}
	return above
}

// Bar is a bucket of a histogram: Count values between From and To milliseconds.
type Bar struct {
	From, To float64
	Count    int64
}

// Bars returns the buckets that hold values, in order.
func (h *Histogram) Bars() []Bar {
	var bars []Bar
	for _, bar := range h.hdr.Distribution() {
		if bar.Count > 0 {
			bars = append(bars, Bar{float64(bar.From) / microsPerMilli, float64(bar.To) / microsPerMilli, bar.Count})
		}
	}
	return bars
}

// Merge adds the values of other to h.
func (h *Histogram) Merge(other *Histogram) error {
	if dropped := h.hdr.Merge(other.hdr); dropped > 0 {
		return fmt.Errorf("results: %d values of a histogram of %s are outside the range of another", dropped, other.Metric)
	}
	h.AboveRange += other.AboveRange
	h.changed = true
	return nil
}

// MergeHistograms adds up the histograms that match, and returns nil where none does. The key of the result has ""
// wherever its parts differ.
func MergeHistograms(all []*Histogram, match func(HistogramKey) bool) (*Histogram, error) {
	var merged *Histogram
	for _, h := range all {
		if !match(h.HistogramKey) {
			continue
		}
		if merged == nil {
			merged = newHistogram(h.HistogramKey)
		}
		if err := merged.Merge(h); err != nil {
			return nil, err
		}
		merged.keepCommon(h.HistogramKey)
	}
	return merged, nil
}

func (h *Histogram) keepCommon(key HistogramKey) {
	if h.Phase != key.Phase {
		h.Phase = ""
	}
	if h.Step != key.Step {
		h.Step = ""
	}
	if h.Class != key.Class {
		h.Class = ""
	}
}

// histogramFile is the content of one file under histograms/.
type histogramFile struct {
	Schema     string           `json:"schema"`
	Metric     string           `json:"metric"`
	Unit       string           `json:"unit"`
	Histograms []histogramEntry `json:"histograms"`
}

// histogramEntry has a few numbers for people and programs that read no HDR, and the histogram itself.
type histogramEntry struct {
	Phase      string  `json:"phase,omitempty"`
	Step       string  `json:"step,omitempty"`
	Class      string  `json:"class,omitempty"`
	Count      int64   `json:"count"`
	AboveRange int64   `json:"above_range,omitempty"`
	Min        int64   `json:"min"`
	Mean       float64 `json:"mean"`
	P50        int64   `json:"p50"`
	P95        int64   `json:"p95"`
	P99        int64   `json:"p99"`
	Max        int64   `json:"max"`
	// HDR is HdrHistogram's own V2 compressed encoding in base64, which its libraries in any language read.
	HDR string `json:"hdr"`
}

func writeHistograms(dir, metric string, histograms []*Histogram) (FileRecord, error) {
	file := histogramFile{Schema: Schema, Metric: metric, Unit: histogramUnit}
	slices.SortFunc(histograms, func(a, b *Histogram) int {
		return cmp.Or(cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Step, b.Step), cmp.Compare(a.Class, b.Class))
	})
	for _, h := range histograms {
		encoded, err := h.hdr.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
		if err != nil {
			return FileRecord{}, fmt.Errorf("results: histogram of %s: %w", metric, err)
		}
		file.Histograms = append(file.Histograms, histogramEntry{
			Phase: h.Phase, Step: h.Step, Class: h.Class, Count: h.Count(), AboveRange: h.AboveRange,
			Min: h.hdr.Min(), Mean: math.Round(h.hdr.Mean()*1000) / 1000, P50: h.hdr.ValueAtPercentile(50),
			P95: h.hdr.ValueAtPercentile(95), P99: h.hdr.ValueAtPercentile(99), Max: h.hdr.Max(), HDR: string(encoded),
		})
	}
	var content bytes.Buffer
	encoder := json.NewEncoder(&content)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(file); err != nil {
		return FileRecord{}, fmt.Errorf("results: histogram of %s: %w", metric, err)
	}
	return recordOf(content.Bytes()), WriteFile(filepath.Join(dir, HistogramDir, metric+".json"), content.Bytes())
}

// readHistograms returns nil where there is no file: the metric was never measured.
func (run *Run) readHistograms(metric string) ([]*Histogram, error) {
	path := filepath.Join(run.Dir, HistogramDir, metric+".json")
	content, err := run.histogramFile(metric)
	if content == nil || err != nil {
		return nil, err
	}
	var file histogramFile
	if err := DecodeJSON(content, &file); err != nil {
		return nil, fmt.Errorf("results: %s: %w", path, err)
	}
	if err := checkSchema(path, file.Schema); err != nil {
		return nil, err
	}
	if file.Unit != histogramUnit {
		return nil, fmt.Errorf("results: %s: unit is %q, expected %q", path, file.Unit, histogramUnit)
	}
	histograms := make([]*Histogram, 0, len(file.Histograms))
	seen := make(map[HistogramKey]bool)
	for i, entry := range file.Histograms {
		key := HistogramKey{file.Metric, entry.Phase, entry.Step, entry.Class}
		if err := entry.check(key, seen); err != nil {
			return nil, fmt.Errorf("results: %s: histogram %d: %w", path, i+1, err)
		}
		seen[key] = true
		decoded, err := hdrhistogram.Decode([]byte(entry.HDR))
		if err != nil {
			return nil, fmt.Errorf("results: %s: histogram %d: %w", path, i+1, err)
		}
		if decoded.TotalCount() != entry.Count {
			return nil, fmt.Errorf("results: %s: histogram %d holds %d values, its count says %d",
				path, i+1, decoded.TotalCount(), entry.Count)
		}
		histograms = append(histograms, &Histogram{
			HistogramKey: key, hdr: decoded, AboveRange: entry.AboveRange,
		})
	}
	return histograms, nil
}

// check looks at what stands beside the histogram itself.
func (e *histogramEntry) check(key HistogramKey, seen map[HistogramKey]bool) error {
	if seen[key] {
		return fmt.Errorf("it is the second of phase %q, step %q, class %q, expected one", key.Phase, key.Step, key.Class)
	}
	if err := keyed("count", countBetween(e.Count, maxCount)); err != nil {
		return err
	}
	return keyed("above_range", countBetween(e.AboveRange, e.Count))
}
