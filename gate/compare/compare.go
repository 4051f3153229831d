package compare

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// Schema is the version of a report.
const Schema = "safeqps-compare/1"

// Answer is what a comparison says of B against A.
type Answer string

// The answers.
const (
	Better Answer = "better"
	Worse  Answer = "worse"
	// Same: the difference lies within the margin, at the confidence.
	Same Answer = "same"
	// NotEnough evidence for any of the others.
	NotEnough Answer = "not enough evidence"
	// Mixed is an answer to the whole only: some metrics are better and some are worse.
	Mixed Answer = "mixed"
)

// Row is the answer for one statistic of one metric.
type Row struct {
	// Metric is ttft, tpot, itl_p99 (the 99th percentile of each request's gaps), e2e, requests_per_second,
	// output_tokens_per_second or error_share; Statistic p50, p95, p99, mean, or paired for the change of the same rows.
	Metric    string `json:"metric"`
	Statistic string `json:"statistic"`
	Unit      string `json:"unit"`
	// A and B are the two values; absent where a quantile falls among failed requests, and for paired changes.
	A *float64 `json:"a,omitempty"`
	B *float64 `json:"b,omitempty"`
	// Change is B/A, or B-A for error_share; Low and High are its interval at the confidence, not adjusted for the number of
	// rows. Absent where there is none.
	Change *float64 `json:"change,omitempty"`
	Low    *float64 `json:"low,omitempty"`
	High   *float64 `json:"high,omitempty"`
	// P is the two-sided p-value of no change, PAdjusted the same after Holm's adjustment for all rows.
	P         *float64 `json:"p,omitempty"`
	PAdjusted *float64 `json:"p_adjusted,omitempty"`
	NA        int64    `json:"n_a"`
	NB        int64    `json:"n_b"`
	Answer    Answer   `json:"answer"`
	Note      string   `json:"note,omitempty"`

	change change
	tested bool
}

// Latency reports that the row is of a latency, rather than of throughput or errors.
func (r *Row) Latency() bool {
	return slices.ContainsFunc(latencies, func(l latency) bool { return l.name == r.Metric })
}

// change is an estimate with its standard error, on the scale of the test: ln(B/A), or B-A.
type change struct {
	estimate, se, freedom float64
	p                     float64 // of no change
	margin                float64 // within which there is none that matters
	higherIsBetter        bool
	logarithmic           bool
}

// PooledITL is a quantile over all gaps between chunks, from the histograms. It has no interval: the histograms do not keep
// when the gaps were.
type PooledITL struct {
	Statistic string  `json:"statistic"`
	A         float64 `json:"a"`
	B         float64 `json:"b"`
	Ratio     float64 `json:"ratio"`
}

// InvalidSide is a run whose verdict is INVALID: its load generator was the bottleneck, so that it says nothing about the
// service.
type InvalidSide struct {
	Side string `json:"side"` // A or B
	Dir  string `json:"dir"`
	// Broken are the criteria on the load generator that were not kept, with what was measured and the limit.
	Broken string `json:"broken"`
}

// Report of a comparison.
type Report struct {
	Schema string `json:"schema"`
	A      string `json:"a"`
	B      string `json:"b"`
	Phase  string `json:"phase"`
	// Answer to the whole: Same only if every row is, Better or Worse if some row is and none is the opposite. NotEnough where a
	// side is INVALID; the rows then show what was measured, and answer as if it were the service's.
	Answer Answer `json:"answer"`
	// Invalid are the sides that no answer can stand on.
	Invalid []InvalidSide `json:"invalid,omitempty"`
	Rows    []Row         `json:"rows"`
	// PairedRows is how many rows of the trace both runs replayed at the same time; 0 where they did not.
	PairedRows int         `json:"paired_rows"`
	PooledITL  []PooledITL `json:"pooled_itl,omitempty"`

	Margin       float64      `json:"margin"`
	ErrorMargin  float64      `json:"error_margin"`
	Confidence   float64      `json:"confidence"`
	BlockSeconds float64      `json:"block_seconds"`
	Blocks       int          `json:"blocks"`
	Resamples    int          `json:"resamples"`
	Differences  []Difference `json:"differences,omitempty"`
	Labels       []string     `json:"labels,omitempty"`
	Warnings     []string     `json:"warnings,omitempty"`
}

// Compare compares two runs of the same workload. Where the workloads differ it returns a *DifferentWorkloadsError, unless
// Options.Force is set; then the report says what differs.
func Compare(a, b *results.Run, o Options) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	differences := Differences(a.Info, b.Info)
	if different := workloadDifferences(differences); len(different) > 0 && !o.Force {
		return nil, &DifferentWorkloadsError{Differences: different}
	}
	sa, warnings, err := read(a, o.Phase)
	if err != nil {
		return nil, err
	}
	sb, more, err := read(b, o.Phase)
	if err != nil {
		return nil, err
	}
	warnings = append(warnings, more...)
	if len(sa.requests) == 0 || len(sb.requests) == 0 {
		return nil, fmt.Errorf("compare: no requests of the phase %q: A (%s) has %d, B (%s) has %d",
			o.Phase, a.Dir, len(sa.requests), b.Dir, len(sb.requests))
	}
	seen := offeredDifferences(o.Phase, a.Info, b.Info, sa.offered, sb.offered)
	prefix, told := prefixDifference(sa.prefix, sb.prefix)
	seen = append(seen, prefix...)
	if different := workloadDifferences(seen); len(different) > 0 && !o.Force {
		return nil, &DifferentWorkloadsError{Differences: different}
	}
	differences = append(differences, seen...)
	warnings = append(warnings, told...)
	sa.offered, sb.offered = nil, nil // as large as the requests
	r, err := compareSamples(sa, sb, o)
	if err != nil {
		return nil, err
	}
	r.A, r.B, r.Differences, r.Labels = a.Dir, b.Dir, differences, a.Info.Labels
	r.Warnings = append(warnings, r.Warnings...)
	if err := r.checkGenerators(a, b); err != nil {
		return nil, err
	}
	if len(workloadDifferences(differences)) > 0 {
		r.Warnings = append(r.Warnings, "the workloads differ: a change may be the workload's, not the service's")
	}
	r.PooledITL, err = pooledITL(a, b, o.Phase)
	return r, err
}

// minBlocks is the fewest blocks that an interval rests on, maxBlocks the most: blocks have to outlast an overload, and
// memory is needed for each.
const (
	minBlocks = 8
	maxBlocks = 100_000
)

// defaultBlocks is few, so that each is long against an overload: Schmeiser (Operations Research 30, 1982) finds 10 to 30
// to be enough for an interval.
const defaultBlocks = 15

// comparison holds what the rows have in common.
type comparison struct {
	o       Options
	a, b    *sample
	pairs   []pair
	seconds float64
	block   float64 // seconds
	blocks  int
}

func compareSamples(a, b *sample, o Options) (*Report, error) {
	c := comparison{o: o, a: a, b: b, pairs: match(a, b), seconds: math.Max(a.seconds, b.seconds), block: o.BlockSeconds}
	shorter := math.Min(a.seconds, b.seconds)
	if !(shorter > 0) {
		return nil, errors.New("compare: a phase of a single instant cannot be compared")
	}
	if c.block == 0 {
		c.block = shorter / defaultBlocks
	}
	blocks := math.Floor(shorter / c.block * (1 + 1e-9))
	if !(blocks >= minBlocks && blocks <= maxBlocks) {
		return nil, fmt.Errorf("compare: blocks of %.3g s in a phase of %.3g s are %.6g, expected %d to %d",
			c.block, shorter, blocks, minBlocks, maxBlocks)
	}
	c.blocks = int(blocks)
	var rows []Row
	for metric := range latencies {
		rows = append(rows, c.quantileRows(metric)...)
		if c.pairs != nil {
			rows = append(rows, c.pairedRow(metric))
		}
	}
	rows = append(rows,
		c.flowRow("requests_per_second", "requests/s", a.completed, b.completed, flowStream),
		c.flowRow("output_tokens_per_second", "tokens/s", a.tokens, b.tokens, flowStream+1),
		c.errorRow())
	c.decide(rows)
	return &Report{
		Schema: Schema, Phase: o.Phase, Answer: overall(rows), Rows: rows, PairedRows: len(c.pairs),
		Margin: o.Margin, ErrorMargin: o.ErrorMargin, Confidence: o.Confidence, BlockSeconds: c.block, Blocks: c.blocks,
		Resamples: o.Resamples,
	}, nil
}

var (
	quantileShares = []float64{0.5, 0.95, 0.99}
	quantileNames  = []string{"p50", "p95", "p99"}
)

// The streams of random numbers: one per metric and run.
const (
	flowStream  = 100
	errorStream = 200
	sideB       = 1000
)

const (
	// binsPerBlock is how finely time is cut for the bootstrap.
	binsPerBlock = 10
	// minBeyond is the fewest requests beyond a quantile that it is compared with.
	minBeyond = 10
)

// quantileRows resamples blocks of time; where both runs replayed the same rows at the same times, the same blocks of both,
// so that what the workload itself does to both cancels out.
func (c *comparison) quantileRows(metric int) []Row {
	width := c.block / binsPerBlock
	bins := int(c.seconds/width) + 1
	binOf := func(at float64) int { return min(int(at/width), bins-1) }
	a, b := newBinned(c.a, metric, binOf), newBinned(c.b, metric, binOf)
	rows := make([]Row, len(quantileShares))
	for i, name := range quantileNames {
		rows[i] = Row{
			Metric: latencies[metric].name, Statistic: name, Unit: "ms", NA: int64(len(a.values)), NB: int64(len(b.values)),
		}
	}
	if len(a.values) == 0 || len(b.values) == 0 {
		for i := range rows {
			rows[i].Note = "not measured"
		}
		return rows
	}
	qa, qb := make([]float64, len(rows)), make([]float64, len(rows))
	a.quantiles(nil, quantileShares, qa)
	b.quantiles(nil, quantileShares, qb)
	resampled := c.resampleQuantiles(metric, bins, &a, &b)
	fewer := min(len(a.values), len(b.values))
	for i := range rows {
		row := &rows[i]
		row.A, row.B = finitePointer(qa[i]), finitePointer(qb[i])
		if beyond := float64(fewer) * (1 - quantileShares[i]); beyond < minBeyond*(1-1e-9) {
			row.Note = fmt.Sprintf("needs %.0f requests in each run", math.Ceil(minBeyond/(1-quantileShares[i])-1e-9))
			continue
		}
		row.set(change{
			estimate: logRatio(qa[i], qb[i]), se: c.unbias(spread(resampled[i])), freedom: float64(c.blocks - 1),
			margin: math.Log1p(c.o.Margin), logarithmic: true,
		})
		if row.A == nil || row.B == nil {
			row.Note = "the quantile falls among failed requests"
		}
	}
	return rows
}

func (c *comparison) resampleQuantiles(metric, bins int, a, b *binned) [][]float64 {
	stream := uint64(metric) // #nosec G115 -- an index
	drawA := newResampler(c.o.Seed, stream, bins, binsPerBlock)
	drawB := newResampler(c.o.Seed, stream+sideB, bins, binsPerBlock)
	weightsA, weightsB := make([]float64, bins), make([]float64, bins)
	qa, qb := make([]float64, len(quantileShares)), make([]float64, len(quantileShares))
	out := make([][]float64, len(quantileShares))
	for range c.o.Resamples {
		drawA.draw(weightsA)
		a.quantiles(weightsA, quantileShares, qa)
		if c.pairs != nil {
			b.quantiles(weightsA, quantileShares, qb)
		} else {
			drawB.draw(weightsB)
			b.quantiles(weightsB, quantileShares, qb)
		}
		for i := range out {
			out[i] = append(out[i], logRatio(qa[i], qb[i]))
		}
	}
	return out
}

// pairedRow tests the changes of the same rows: Wilcoxon's signed-rank test on the means over blocks of time, since
// requests in flight together share their fate and are not independent (a cluster's mean in place of its members: Rosner,
// Glynn, Lee, Biometrics 62, 2006).
func (c *comparison) pairedRow(metric int) Row {
	row := Row{Metric: latencies[metric].name, Statistic: "paired", Unit: "ratio"}
	sums, counts := make([]float64, c.blocks), make([]float64, c.blocks)
	for i := range c.pairs {
		p := &c.pairs[i]
		d := math.Log(p.b[metric] / p.a[metric])
		if math.IsNaN(d) || math.IsInf(d, 0) {
			continue // failed in one of the runs, or not measured
		}
		block := min(int(p.at/c.block), c.blocks-1)
		sums[block] += d
		counts[block]++
		row.NA++
	}
	row.NB = row.NA
	var means []float64
	for i, n := range counts {
		if n > 0 {
			means = append(means, sums[i]/n)
		}
	}
	if len(means) < minBlocks {
		row.Note = "too few blocks have pairs"
		if row.NA == 0 {
			row.Note = "not measured"
		}
		return row
	}
	mean, n := 0.0, float64(len(means))
	for _, m := range means {
		mean += m / n
	}
	row.set(change{
		estimate: mean, se: spread(means) / math.Sqrt(n), freedom: n - 1, margin: math.Log1p(c.o.Margin), logarithmic: true,
	})
	row.change.p = signedRank(means)
	return row
}

// flowRow compares the mean of a flow per second.
func (c *comparison) flowRow(name, unit string, a, b []float64, stream uint64) Row {
	row := Row{Metric: name, Statistic: "mean", Unit: unit, NA: int64(len(a)), NB: int64(len(b))}
	if len(a) == 0 || len(b) == 0 {
		row.Note = "not measured"
		return row
	}
	ma, mb := mean(a, nil), mean(b, nil)
	row.A, row.B = &ma, &mb
	if !(ma > 0 && mb > 0) {
		row.Note = "nothing flowed in one of the runs"
		return row
	}
	// Of two runs at the same times, one may hold a whole second more: it is in the means, and not in what is resampled.
	together := c.pairs != nil && max(len(a), len(b))-min(len(a), len(b)) <= 1
	if together {
		a, b = a[:min(len(a), len(b))], b[:min(len(a), len(b))]
	}
	drawA := newResampler(c.o.Seed, stream, len(a), c.block)
	drawB := newResampler(c.o.Seed, stream+sideB, len(b), c.block)
	weightsA, weightsB := make([]float64, len(a)), make([]float64, len(b))
	resampled := make([]float64, c.o.Resamples)
	for i := range resampled {
		drawA.draw(weightsA)
		if together {
			copy(weightsB, weightsA)
		} else {
			drawB.draw(weightsB)
		}
		resampled[i] = math.Log(mean(b, weightsB) / mean(a, weightsA))
	}
	row.set(change{
		estimate: math.Log(mb / ma), se: c.unbias(spread(resampled)), freedom: float64(c.blocks - 1), margin: math.Log1p(c.o.Margin),
		higherIsBetter: true, logarithmic: true,
	})
	return row
}

// mean of x; weights, where given, are as many in sum as x has elements.
func mean(x, weights []float64) float64 {
	sum := 0.0
	for i, v := range x {
		if weights != nil {
			v *= weights[i]
		}
		sum += v
	}
	return sum / float64(len(x))
}

// errorRow compares the shares of failed requests. The standard error is that of Agresti and Caffo (The American
// Statistician 54, 2000), which adds a success and a failure to each side and so is not 0 where nothing failed, times what
// the block bootstrap finds correlation to add.
func (c *comparison) errorRow() Row {
	na, nb := float64(len(c.a.requests)), float64(len(c.b.requests))
	fa, fb := float64(c.a.failures()), float64(c.b.failures())
	a, b := fa/na, fb/nb
	row := Row{Metric: errorMetric, Statistic: "mean", Unit: "share", A: &a, B: &b, NA: int64(na), NB: int64(nb)}
	const added = 1
	pa, pb := (fa+added)/(na+2*added), (fb+added)/(nb+2*added)
	variance := pa*(1-pa)/(na+2*added) + pb*(1-pb)/(nb+2*added)
	if independent := a*(1-a)/na + b*(1-b)/nb; independent > 0 {
		se := c.unbias(spread(c.resampleErrors()))
		variance *= math.Max(1, se*se/independent)
	}
	row.set(change{estimate: b - a, se: math.Sqrt(variance), freedom: float64(c.blocks - 1), margin: c.o.ErrorMargin})
	return row
}

func (c *comparison) resampleErrors() []float64 {
	width := c.block / binsPerBlock
	bins := int(c.seconds/width) + 1
	count := func(s *sample) (failed, all []float64) {
		failed, all = make([]float64, bins), make([]float64, bins)
		for i := range s.requests {
			bin := min(int(s.requests[i].at/width), bins-1)
			all[bin]++
			if s.requests[i].failed {
				failed[bin]++
			}
		}
		return failed, all
	}
	failedA, allA := count(c.a)
	failedB, allB := count(c.b)
	drawA := newResampler(c.o.Seed, errorStream, bins, binsPerBlock)
	drawB := newResampler(c.o.Seed, errorStream+sideB, bins, binsPerBlock)
	weights := make([]float64, bins)
	out := make([]float64, c.o.Resamples)
	for i := range out {
		drawA.draw(weights)
		shareA := mean(failedA, weights) / mean(allA, weights)
		drawB.draw(weights)
		out[i] = mean(failedB, weights)/mean(allB, weights) - shareA
	}
	return out
}

func finitePointer(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// unbias takes back what blocks of a finite share of the run lose of the variance: a run holds about one block fewer of
// independent information than blocks fit in it (the end effect of the block bootstrap: Künsch, Annals of Statistics 17,
// 1989).
func (c *comparison) unbias(se float64) float64 {
	return se * math.Sqrt(float64(c.blocks)/float64(c.blocks-1))
}

// set takes a change with its t-test.
func (r *Row) set(c change) {
	c.p = 1
	switch {
	case math.IsNaN(c.estimate) || math.IsInf(c.se, 0) || c.estimate == 0:
	case c.se == 0:
		c.p = 0
	default:
		c.p = 2 * tBelow(-math.Abs(c.estimate)/c.se, c.freedom)
	}
	r.change, r.tested = c, true
}

func tBelow(t, freedom float64) float64 {
	if math.IsInf(t, -1) {
		return 0
	}
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}.CDF(t)
}

// decide answers each row. A difference needs its p-value, adjusted for all rows, to be at most 1 - confidence. The same
// needs both one-sided tests against the margin to reject (Schuirmann's TOST, Journal of Pharmacokinetics and
// Biopharmaceutics 15, 1987); it is no claim of a difference, and goes before it: a difference within the margin does not
// matter.
func (c *comparison) decide(rows []Row) {
	level := 1 - c.o.Confidence
	var p []float64
	for i := range rows {
		if rows[i].tested {
			p = append(p, rows[i].change.p)
		}
	}
	adjusted := holm(p)
	for i, k := 0, 0; i < len(rows); i++ {
		row := &rows[i]
		row.Answer = NotEnough
		if !row.tested {
			continue
		}
		x := row.change
		row.P, row.PAdjusted = &p[k], &adjusted[k]
		k++
		row.interval(c.o.Confidence)
		switch {
		case x.within(level):
			row.Answer = Same
		case *row.PAdjusted > level:
		case (x.estimate > 0) == x.higherIsBetter:
			row.Answer = Better
		default:
			row.Answer = Worse
		}
	}
}

// within reports equivalence at the level.
func (x change) within(level float64) bool {
	if math.IsInf(x.se, 0) || math.IsNaN(x.estimate) || math.Abs(x.estimate) >= x.margin {
		return false
	}
	return x.se == 0 || tBelow((math.Abs(x.estimate)-x.margin)/x.se, x.freedom) <= level
}

func (r *Row) interval(confidence float64) {
	x := r.change
	show := func(v float64) *float64 {
		if x.logarithmic {
			v = math.Exp(v)
		}
		return finitePointer(v)
	}
	r.Change = show(x.estimate)
	if math.IsInf(x.se, 0) {
		return
	}
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: x.freedom}.Quantile((1 + confidence) / 2)
	r.Low, r.High = show(x.estimate-t*x.se), show(x.estimate+t*x.se)
}

func overall(rows []Row) Answer {
	count := make(map[Answer]int)
	for i := range rows {
		if rows[i].tested || rows[i].Note != "not measured" {
			count[rows[i].Answer]++
		}
	}
	switch {
	case count[Better] > 0 && count[Worse] > 0:
		return Mixed
	case count[Worse] > 0:
		return Worse
	case count[Better] > 0:
		return Better
	case count[NotEnough] > 0 || count[Same] == 0:
		return NotEnough
	}
	return Same
}

// pooledITL are quantiles over all gaps of the phase; nil where a run has none.
func pooledITL(a, b *results.Run, phase string) ([]PooledITL, error) {
	of := func(run *results.Run) (*results.Histogram, error) {
		all, err := run.Histograms(results.MetricITL)
		if err != nil {
			return nil, err
		}
		return results.MergeHistograms(all, func(key results.HistogramKey) bool { return key.Phase == phase })
	}
	ha, err := of(a)
	if err != nil {
		return nil, err
	}
	hb, err := of(b)
	if err != nil || ha == nil || hb == nil {
		return nil, err
	}
	var out []PooledITL
	for i, q := range quantileShares {
		x, y := ha.Quantile(q), hb.Quantile(q)
		if x.Known && y.Known && x.Value > 0 {
			out = append(out, PooledITL{Statistic: quantileNames[i], A: x.Value, B: y.Value, Ratio: y.Value / x.Value})
		}
	}
	return out, nil
}
