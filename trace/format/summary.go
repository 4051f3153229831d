package format

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"gonum.org/v1/gonum/mathext"
	"gonum.org/v1/gonum/stat"
)

// Summary describes a trace in numbers. What is undefined is absent: a nil pointer or an empty list, which
// JSON leaves out.
type Summary struct {
	Name       string `json:"name,omitempty"`
	Digest     string `json:"digest,omitempty"`
	Format     Name   `json:"format,omitempty"`
	FormatWhy  string `json:"format_reason,omitempty"`
	Unit       Unit   `json:"unit,omitempty"`
	UnitWhy    string `json:"unit_reason,omitempty"`
	BlockSize  int    `json:"block_size,omitempty"`
	BlockWhy   string `json:"block_size_reason,omitempty"`
	StartClock string `json:"start_clock,omitempty"` // clock time of time zero, RFC 3339

	Rows  int     `json:"rows"`
	SpanS float64 `json:"span_s"`
	// LengthS is how long a generated trace was made to last; absent for a recording.
	LengthS float64 `json:"length_s,omitempty"`

	Rate        *Rates       `json:"rate,omitempty"`
	Gaps        *Gaps        `json:"gaps,omitempty"`
	Batches     *Batches     `json:"batches,omitempty"`
	Dispersion  []Dispersion `json:"dispersion,omitempty"`
	Timeline    *Timeline    `json:"timeline,omitempty"`
	Input       *TokenStats  `json:"input_tokens,omitempty"`
	Output      *TokenStats  `json:"output_tokens,omitempty"`
	Correlation *Correlation `json:"input_output_correlation,omitempty"`
	Prefix      *Prefix      `json:"prefix,omitempty"`
	Classes     []ClassShare `json:"classes,omitempty"`
	Sessions    int          `json:"sessions,omitempty"`

	Oddities []Oddity `json:"oddities,omitempty"`
	Labels   []Label  `json:"labels,omitempty"`
}

// Rates are arrival rates in requests per second. Peaks are the fullest of the bins that start at the
// first row; a peak whose bin is longer than the span is absent.
type Rates struct {
	// Mean is rows/length for a trace that was made for a length, and (n-1)/span, the reciprocal of the mean gap, else:
	// n rows have n-1 gaps between them.
	Mean    float64  `json:"mean_per_s"`
	Peak1s  *float64 `json:"peak_1s_per_s,omitempty"`
	Peak10s *float64 `json:"peak_10s_per_s,omitempty"`
}

// Gaps describe the times between arrivals. They are absent when the timestamps are batched (see Batches).
type Gaps struct {
	MeanMs float64 `json:"mean_ms"`
	// CV is the coefficient of variation, sample standard deviation over mean: 1 for Poisson arrivals.
	CV float64 `json:"cv"`
	// BurstinessMoment is 1/CV², the Gamma shape k by the method of moments; absent when CV is 0.
	BurstinessMoment *float64 `json:"burstiness_moment,omitempty"`
	// BurstinessMLE is the Gamma shape k of greatest likelihood; absent when a gap is 0 or all are equal.
	BurstinessMLE *float64 `json:"burstiness_mle,omitempty"`
}

// Batches say that many rows share few timestamps: the recorder wrote in batches, so that gaps between
// rows, their coefficient of variation and burstiness say nothing about how requests arrived.
type Batches struct {
	Timestamps       int     `json:"timestamps"` // distinct ones
	MeanRows         float64 `json:"mean_rows"`
	MaxRows          int     `json:"max_rows"`
	MedianIntervalMs float64 `json:"median_interval_ms"`
}

// Dispersion is the index of dispersion for counts: variance over mean of the number of arrivals in windows
// of one width. It is 1 for Poisson arrivals, larger for bursty ones.
type Dispersion struct {
	WindowS float64 `json:"window_s"`
	Windows int     `json:"windows"`
	Index   float64 `json:"index"`
}

// Timeline counts arrivals in equal bins from the first row to the last.
type Timeline struct {
	BinS   float64 `json:"bin_s"`
	Counts []int   `json:"counts"`
}

// TokenStats describe a column of token counts. Percentiles are nearest-rank: values that occur.
type TokenStats struct {
	N         int     `json:"n"`
	Mean      float64 `json:"mean"`
	P1        int32   `json:"p1"`
	P5        int32   `json:"p5"`
	P25       int32   `json:"p25"`
	P50       int32   `json:"p50"`
	P75       int32   `json:"p75"`
	P90       int32   `json:"p90"`
	P95       int32   `json:"p95"`
	P99       int32   `json:"p99"`
	Max       int32   `json:"max"`
	Total     int64   `json:"total"`
	Histogram []Bin   `json:"histogram"`
}

// Bin is one bar of a histogram: rows with From <= tokens <= To. Bars are powers of two.
type Bin struct {
	From int32 `json:"from"`
	To   int32 `json:"to"`
	Rows int   `json:"rows"`
}

// Correlation is that between input and output tokens of a row, over rows that give both.
type Correlation struct {
	Pearson  float64 `json:"pearson"`
	Spearman float64 `json:"spearman"`
}

// ClassShare is one class's part of the rows.
type ClassShare struct {
	Class string  `json:"class"` // "" for rows without one
	Rows  int     `json:"rows"`
	Share float64 `json:"share"`
}

// minWindows is how many whole windows an index of dispersion needs to be worth printing.
const minWindows = 10

// Summarize computes a trace's summary. It reads the trace only.
func Summarize(t *Trace) Summary {
	s := Summary{
		Name: t.Name, Digest: t.Digest, Format: t.Format, FormatWhy: t.FormatReason, Unit: t.Unit, UnitWhy: t.UnitReason,
		BlockSize: t.BlockSize, BlockWhy: t.BlockSizeReason, Rows: len(t.Rows), SpanS: t.Span().Seconds(), LengthS: t.Length.Seconds(),
		Labels: slices.Clone(t.Labels),
	}
	if !t.Origin.IsZero() {
		s.StartClock = t.Origin.Format(time.RFC3339Nano)
	}
	notes := t.Notes
	notes.SharedTimestamps, notes.MaxPerTimestamp, notes.DuplicateRows = duplicates(t.Rows)
	s.Oddities = notes.Oddities()
	if len(t.Rows) == 0 {
		return s
	}
	s.arrivals(t, notes)
	s.Input, s.Output = tokenStats(t.Rows, inputOf), tokenStats(t.Rows, outputOf)
	s.Correlation = correlation(t.Rows)
	s.Prefix = prefix(t)
	if p := s.Prefix; p != nil && p.BlocksHit < p.BlocksSeen {
		s.Oddities = append(s.Oddities, Oddity{Kind: "unchained_hash_ids", Detail: fmt.Sprintf(
			"blocks repeat after different prefixes: a prefix cache can use %.1f %% of the blocks, not %.1f %%",
			100*p.HitRatio, 100*float64(p.BlocksSeen)/float64(p.Blocks))})
	}
	s.Classes = classes(t.Rows)
	s.Sessions = sessions(t.Rows)
	return s
}

func inputOf(r *Row) int32  { return r.InputTokens }
func outputOf(r *Row) int32 { return r.OutputTokens }

func (s *Summary) arrivals(t *Trace, notes Notes) {
	rows := t.Rows
	if mean, ok := t.OfferedRate(); ok {
		s.Rate = &Rates{Mean: mean, Peak1s: peak(rows, time.Second), Peak10s: peak(rows, 10*time.Second)}
	}
	for _, w := range []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute} {
		if d, ok := dispersion(rows, w); ok {
			s.Dispersion = append(s.Dispersion, d)
		}
	}
	s.Timeline = timeline(rows)
	if len(rows) < 3 || t.Span() == 0 {
		return
	}
	if b := batches(rows, notes); b != nil {
		s.Batches = b
		s.Oddities = append(s.Oddities, Oddity{Kind: "batched_timestamps", Count: len(rows), Detail: fmt.Sprintf(
			"rows stand on %d timestamps, about %.0f ms apart and up to %d rows on one: the recorder batched them, so gaps, burstiness, and peaks and dispersion in windows of less than two batches are not given",
			b.Timestamps, b.MedianIntervalMs, b.MaxRows)})
		s.dropBelow(2 * b.MedianIntervalMs / 1e3)
		return
	}
	s.Gaps = gaps(rows)
	meanGap := t.Span() / time.Duration(len(rows)-1)
	if step := resolution(rows); step >= time.Millisecond && step*10 >= meanGap {
		s.Oddities = append(s.Oddities, Oddity{Kind: "coarse_timestamps", Detail: fmt.Sprintf(
			"timestamps are whole multiples of %s while the mean gap is %s: statistics of the gaps are rough", step, meanGap)})
	}
}

// dropBelow removes what was counted in windows of less than the given seconds.
func (s *Summary) dropBelow(seconds float64) {
	s.Dispersion = slices.DeleteFunc(s.Dispersion, func(d Dispersion) bool { return d.WindowS < seconds })
	if s.Rate != nil && seconds > 1 {
		s.Rate.Peak1s = nil
	}
	if s.Rate != nil && seconds > 10 {
		s.Rate.Peak10s = nil
	}
}

// peak is the largest number of arrivals in a bin of the given width, per second.
func peak(rows []Row, width time.Duration) *float64 {
	if rows[len(rows)-1].Due-rows[0].Due < width {
		return nil
	}
	most := 0
	eachBin(rows, width, func(_ int64, count int) { most = max(most, count) })
	rate := float64(most) / width.Seconds()
	return &rate
}

// eachBin calls f for every bin that is not empty, in order. Bins start at the first row.
func eachBin(rows []Row, width time.Duration, f func(bin int64, count int)) {
	start := rows[0].Due
	for i := 0; i < len(rows); {
		bin := int64((rows[i].Due - start) / width)
		j := i + 1
		for j < len(rows) && int64((rows[j].Due-start)/width) == bin {
			j++
		}
		f(bin, j-i)
		i = j
	}
}

// dispersion is the index of dispersion over the whole windows of the span. The last, cut window is left
// out: it would look quiet.
func dispersion(rows []Row, width time.Duration) (Dispersion, bool) {
	windows := int64((rows[len(rows)-1].Due - rows[0].Due) / width)
	if windows < minWindows {
		return Dispersion{}, false
	}
	sum, squares := 0.0, 0.0
	eachBin(rows, width, func(bin int64, count int) {
		if bin < windows {
			sum += float64(count)
			squares += float64(count) * float64(count)
		}
	})
	n := float64(windows)
	mean := sum / n
	variance := (squares - n*mean*mean) / (n - 1)
	return Dispersion{WindowS: width.Seconds(), Windows: int(windows), Index: variance / mean}, true
}

const timelineBins = 60

func timeline(rows []Row) *Timeline {
	start, span := rows[0].Due, rows[len(rows)-1].Due-rows[0].Due
	if span < timelineBins {
		return nil
	}
	counts := make([]int, timelineBins)
	width := float64(span) / timelineBins
	for i := range rows {
		bin := int(float64(rows[i].Due-start) / width)
		counts[min(bin, timelineBins-1)]++ // the last row ends the last bin
	}
	return &Timeline{BinS: width / 1e9, Counts: counts}
}

// batches recognises timestamps that hold two rows or more on average. One row each on most timestamps
// and a few shared ones is what true arrivals on a coarse clock look like; this is not.
func batches(rows []Row, notes Notes) *Batches {
	distinct := len(rows) - notes.SharedTimestamps
	if distinct < 2 || distinct*2 > len(rows) {
		return nil
	}
	var intervals []time.Duration
	for i := 1; i < len(rows); i++ {
		if d := rows[i].Due - rows[i-1].Due; d > 0 {
			intervals = append(intervals, d)
		}
	}
	slices.Sort(intervals)
	return &Batches{
		Timestamps: distinct, MeanRows: float64(len(rows)) / float64(distinct), MaxRows: notes.MaxPerTimestamp,
		MedianIntervalMs: intervals[(len(intervals)-1)/2].Seconds() * 1e3,
	}
}

// resolution is the greatest common divisor of the times since the first row.
func resolution(rows []Row) time.Duration {
	step := time.Duration(0)
	for i := 1; i < len(rows); i++ {
		a, b := rows[i].Due-rows[0].Due, step
		for b != 0 {
			a, b = b, a%b
		}
		if step = a; step == 1 {
			break
		}
	}
	return step
}

func gaps(rows []Row) *Gaps {
	x := make([]float64, len(rows)-1)
	for i := range x {
		x[i] = (rows[i+1].Due - rows[i].Due).Seconds()
	}
	mean, std := stat.MeanStdDev(x, nil)
	g := &Gaps{MeanMs: mean * 1e3, CV: std / mean}
	if k := 1 / (g.CV * g.CV); !math.IsInf(k, 0) {
		g.BurstinessMoment = &k
	}
	if k, ok := gammaShape(x, mean); ok {
		g.BurstinessMLE = &k
	}
	return g
}

// gammaShape is the maximum-likelihood shape of a Gamma distribution: the k that solves
// ln k - ψ(k) = ln(mean x) - mean(ln x), by the generalised Newton iteration of T. Minka, "Estimating a
// Gamma distribution" (2002), equations 8 and 10. ψ' (the trigamma function) is the Hurwitz zeta ζ(2, k).
// There is none when a gap is 0 (the likelihood has no maximum) or when all gaps are equal.
func gammaShape(x []float64, mean float64) (float64, bool) {
	meanLog := 0.0
	for _, v := range x {
		if v <= 0 {
			return 0, false
		}
		meanLog += math.Log(v)
	}
	meanLog /= float64(len(x))
	s := math.Log(mean) - meanLog
	if s <= 1e-9 { // gaps that differ by less than their rounding to nanoseconds
		return 0, false
	}
	k := (3 - s + math.Sqrt((s-3)*(s-3)+24*s)) / (12 * s)
	for range 100 {
		next := 1 / (1/k + (math.Log(k)-mathext.Digamma(k)-s)/(k*k*(1/k-mathext.Zeta(2, k))))
		if math.IsNaN(next) || next <= 0 {
			return 0, false
		}
		if math.Abs(next-k) <= 1e-10*k {
			return next, true
		}
		k = next
	}
	return 0, false
}

func tokenStats(rows []Row, of func(*Row) int32) *TokenStats {
	values := make([]int32, 0, len(rows))
	total := int64(0)
	for i := range rows {
		if v := of(&rows[i]); v != Unknown {
			values = append(values, v)
			total += int64(v)
		}
	}
	if len(values) == 0 {
		return nil
	}
	slices.Sort(values)
	n := len(values)
	rank := func(percent int) int32 { return values[max((percent*n+99)/100, 1)-1] }
	s := &TokenStats{
		N: n, Mean: float64(total) / float64(n), Total: total, Max: values[n-1],
		P1: rank(1), P5: rank(5), P25: rank(25), P50: rank(50), P75: rank(75), P90: rank(90), P95: rank(95), P99: rank(99),
	}
	for i := 0; i < n; {
		bin := binOf(values[i])
		first := i
		for i < n && values[i] <= bin.To {
			i++
		}
		bin.Rows = i - first
		if h := len(s.Histogram); h > 0 {
			for empty := binOf(s.Histogram[h-1].To + 1); empty.From < bin.From; empty = binOf(empty.To + 1) {
				s.Histogram = append(s.Histogram, empty)
			}
		}
		s.Histogram = append(s.Histogram, bin)
	}
	return s
}

// binOf is the histogram bar of a value: 0, then 1, 2-3, 4-7, 8-15 and so on.
func binOf(v int32) Bin {
	if v <= 0 {
		return Bin{}
	}
	from := int32(1)
	for from <= v/2 {
		from *= 2
	}
	return Bin{From: from, To: from - 1 + from}
}

func correlation(rows []Row) *Correlation {
	var in, out []float64
	for i := range rows {
		if r := &rows[i]; r.InputTokens != Unknown && r.OutputTokens != Unknown {
			in = append(in, float64(r.InputTokens))
			out = append(out, float64(r.OutputTokens))
		}
	}
	if len(in) < 2 || constant(in) || constant(out) {
		return nil
	}
	return &Correlation{
		Pearson:  stat.Correlation(in, out, nil),
		Spearman: stat.Correlation(ranks(in), ranks(out), nil),
	}
}

func constant(x []float64) bool {
	for _, v := range x {
		if v != x[0] {
			return false
		}
	}
	return true
}

// ranks gives each value its rank; equal values share the mean of theirs.
func ranks(x []float64) []float64 {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	sort.Slice(order, func(a, b int) bool { return x[order[a]] < x[order[b]] })
	r := make([]float64, len(x))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && x[order[j]] == x[order[i]] {
			j++
		}
		for _, at := range order[i:j] {
			r[at] = float64(i+j-1) / 2
		}
		i = j
	}
	return r
}

func classes(rows []Row) []ClassShare {
	counts := map[string]int{}
	for i := range rows {
		counts[rows[i].Class]++
	}
	if len(counts) == 1 && counts[""] > 0 {
		return nil
	}
	list := make([]ClassShare, 0, len(counts))
	for class, n := range counts {
		list = append(list, ClassShare{Class: class, Rows: n, Share: float64(n) / float64(len(rows))})
	}
	sort.Slice(list, func(i, j int) bool {
		if list[i].Rows != list[j].Rows {
			return list[i].Rows > list[j].Rows
		}
		return list[i].Class < list[j].Class
	})
	return list
}

func sessions(rows []Row) int {
	distinct := map[string]struct{}{}
	for i := range rows {
		if e := rows[i].Extra; e != nil && e.Session != "" {
			distinct[e.Session] = struct{}{}
		}
	}
	return len(distinct)
}
