package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// The names of arrival processes. The bounds are those between which the coefficient of variation of a few hundred
// gaps of a Poisson process (1) stays in nearly all runs.
const (
	arrivalConstant = "constant"
	arrivalSmooth   = "smooth"
	arrivalPoisson  = "Poisson"
	arrivalBursty   = "bursty"
	arrivalClosed   = "closed loop"
	arrivalUnknown  = "unknown"

	constantBelow = 0.1
	poissonFrom   = 0.8
	poissonTo     = 1.25
	fewestGaps    = 20
)

// arrivals names the arrival process. k6's own executors say it; a replayed trace is told by its gaps.
func (c *collector) arrivals() {
	c.run.Arrival = arrivalUnknown
	if cv, ok := c.gapVariation(); ok {
		c.run.GapCV = &cv
		switch {
		case cv < constantBelow:
			c.run.Arrival = arrivalConstant
		case cv < poissonFrom:
			c.run.Arrival = arrivalSmooth
		case cv <= poissonTo:
			c.run.Arrival = arrivalPoisson
		default:
			c.run.Arrival = arrivalBursty
		}
	}
	// Measured gaps of a constant rate hold the load generator's own jitter, so the executor's word goes first.
	if known := arrivalOfExecutors(c.run.Info.Options); known != "" {
		c.run.Arrival = known
	}
}

// arrivalOfExecutors reads k6's options; "" where they do not say it.
func arrivalOfExecutors(options json.RawMessage) string {
	var k6 struct {
		Scenarios map[string]struct {
			Executor string `json:"executor"`
		} `json:"scenarios"`
	}
	if len(options) == 0 || json.Unmarshal(options, &k6) != nil {
		return "" // options of another k6 than this one are no reason to give no report
	}
	kinds := make(map[string]bool)
	for _, scenario := range k6.Scenarios {
		switch scenario.Executor {
		case "constant-arrival-rate", "ramping-arrival-rate":
			kinds[arrivalConstant] = true
		case "constant-vus", "ramping-vus", "shared-iterations", "per-vu-iterations", "externally-controlled":
			kinds[arrivalClosed] = true
		case "trace-arrival-rate":
			kinds[""] = true
		}
	}
	if len(kinds) != 1 {
		return ""
	}
	for kind := range kinds {
		return kind
	}
	return ""
}

// gapVariation is the coefficient of variation of the gaps between arrivals, within the step with the most of them.
func (c *collector) gapVariation() (float64, bool) {
	_, byStep := c.bySteps()
	var most []int
	for _, rows := range byStep {
		if len(rows) > len(most) {
			most = rows
		}
	}
	if len(most) <= fewestGaps {
		return 0, false
	}
	n, mean, squares := 0.0, 0.0, 0.0 // Welford's algorithm
	for i := 1; i < len(most); i++ {
		gap := float64(c.rows[most[i]].arrival - c.rows[most[i-1]].arrival)
		n++
		delta := gap - mean
		mean += delta / n
		squares += delta * (gap - mean)
	}
	if mean <= 0 {
		return 0, false
	}
	return math.Sqrt(squares/(n-1)) / mean, true
}

// bySteps splits the part's rows by their step, in the order of the steps' first arrivals.
func (c *collector) bySteps() (order []string, rows map[string][]int) {
	rows = make(map[string][]int)
	for _, i := range c.inPart {
		step := c.steps.list[c.rows[i].step]
		if _, seen := rows[step]; !seen {
			order = append(order, step)
		}
		rows[step] = append(rows[step], i)
	}
	return order, rows
}

// points makes one point per step.
func (c *collector) points() error {
	gaps, err := c.source.Histograms(results.MetricITL)
	if err != nil {
		return err
	}
	order, byStep := c.bySteps()
	for _, step := range order {
		p := c.point(byStep[step])
		p.Step = step
		merged, err := results.MergeHistograms(gaps, func(key results.HistogramKey) bool {
			return (c.run.Part == "" || key.Phase == c.run.Part) && key.Step == step
		})
		if err != nil {
			return err
		}
		p.ITL = histogramQuantiles(merged)
		c.run.Points = append(c.run.Points, p)
	}
	return nil
}

func histogramQuantiles(h *results.Histogram) *verdict.Quantiles {
	if h == nil || h.Count() == 0 {
		return nil
	}
	return &verdict.Quantiles{
		N: h.Count(), P50: h.Quantile(0.5).Value, P95: h.Quantile(0.95).Value, P99: h.Quantile(0.99).Value,
		Mean: h.Mean().Value, Max: h.Max().Value,
	}
}

// point sums up rows, which are in the order of their arrivals.
func (c *collector) point(rows []int) Point {
	var (
		p Point
		s = shares{hasGoodput: c.hasGoodput}
		q latencies
	)
	for _, i := range rows {
		r := &c.rows[i]
		p.Counts.Add(r.outcome, 1)
		s.add(r)
		q.add(r)
	}
	p.Goodput, p.ErrorShare = s.goodput(), s.errorShare()
	p.TTFT, p.TPOT, p.E2E = quantilesOf(q.ttft), quantilesOf(q.tpot), quantilesOf(q.e2e)
	first, last := c.rows[rows[0]].arrival, c.rows[rows[len(rows)-1]].arrival
	if last > first {
		rate := float64(len(rows)-1) / (float64(last-first) / float64(time.Second))
		p.OfferedPerSecond = &rate
	}
	span := results.ArrivalSpan{First: time.Unix(0, first), Last: time.Unix(0, last)}
	p.AchievedPerSecond = c.meanFlow(span, func(s *results.Sample) *int64 { return s.Completed })
	p.OutputTokensPerSecond = c.meanFlow(span, func(s *results.Sample) *int64 { return s.CompletionTokens })
	return p
}

// meanFlow is a flow per second over the time of a part's own arrivals, as in gate/verdict.
func (c *collector) meanFlow(span results.ArrivalSpan, of func(*results.Sample) *int64) *float64 {
	var in func(*results.Sample) bool
	if c.run.Part != "" {
		in = results.OfPhase(c.run.Part)
	}
	values := results.Flow(span.WholeSeconds(c.samples, in), of)
	if len(values) == 0 {
		return nil
	}
	total := 0.0
	for _, v := range values {
		total += v
	}
	total /= float64(len(values))
	return &total
}

// shares counts what goodput and error share are made of.
type shares struct {
	hasGoodput                  bool // the run has per-request SLOs: only then is a failed request one that missed them
	good, judged, failed, start int64
}

func (s *shares) add(r *row) {
	if r.outcome == results.Dropped {
		return
	}
	s.start++
	if r.outcome == results.Failed {
		s.failed++
	}
	switch {
	case r.goodput == results.FlagYes:
		s.good++
		s.judged++
	case r.goodput == results.FlagNo || r.outcome == results.Failed:
		s.judged++
	}
}

func (s *shares) goodput() *float64 {
	if !s.hasGoodput {
		return nil
	}
	return share(s.good, s.judged)
}

func (s *shares) errorShare() *float64 { return share(s.failed, s.start) }

func share(part, whole int64) *float64 {
	if whole == 0 {
		return nil
	}
	v := float64(part) / float64(whole)
	return &v
}

type latencies struct{ ttft, tpot, e2e []float64 }

func (l *latencies) add(r *row) {
	l.ttft = appendKnown(l.ttft, r.ttft)
	l.tpot = appendKnown(l.tpot, r.tpot)
	l.e2e = appendKnown(l.e2e, r.e2e)
}

func appendKnown(values []float64, n results.Number) []float64 {
	if !n.Known {
		return values
	}
	return append(values, n.Value)
}

// quantilesOf sorts values; nil where there are none.
func quantilesOf(values []float64) *verdict.Quantiles {
	if len(values) == 0 {
		return nil
	}
	slices.Sort(values)
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return &verdict.Quantiles{
		N: int64(len(values)), P50: rank(values, 0.5), P95: rank(values, 0.95), P99: rank(values, 0.99),
		Mean: sum / float64(len(values)), Max: values[len(values)-1],
	}
}

// rank is the smallest of the sorted values that at least the share q of them do not exceed, as in gate/verdict.
func rank(sorted []float64, q float64) float64 {
	n := int(math.Ceil(q*float64(len(sorted)) - 1e-9))
	return sorted[min(max(n, 1), len(sorted))-1]
}

// maxGroups bounds the rows of the table by class; the classes with the fewest requests are put together.
const maxGroups = 40

// grouping collects the latencies of one group.
type grouping struct {
	Group
	latencies
}

func (g *grouping) add(r *row) {
	g.N++
	if r.outcome == results.Failed {
		g.Failed++
	}
	g.latencies.add(r)
}

func (g *grouping) sum() Group {
	g.TTFT, g.TPOT, g.E2E = quantilesOf(g.ttft), quantilesOf(g.tpot), quantilesOf(g.e2e)
	return g.Group
}

// groups splits the part's started requests by class and by prompt length.
func (c *collector) groups() {
	classes := make(map[string]*grouping)
	lengths := make(map[int64]*grouping)
	for _, i := range c.inPart {
		r := &c.rows[i]
		if r.outcome == results.Dropped {
			continue
		}
		if name := c.classes.list[r.class]; name != "" {
			if classes[name] == nil {
				classes[name] = &grouping{Group: Group{Name: name}}
			}
			classes[name].add(r)
		}
		tokens := r.prompt
		if tokens < 0 {
			tokens = r.promptAsked
		}
		if tokens < 0 {
			continue
		}
		from, to := octave(int64(tokens))
		if lengths[from] == nil {
			lengths[from] = &grouping{Group: Group{Name: fmt.Sprintf("%d–%d", from, to), From: from, To: to}}
		}
		lengths[from].add(r)
	}
	c.run.Classes = sumClasses(classes)
	for _, g := range lengths {
		c.run.InputLengths = append(c.run.InputLengths, g.sum())
	}
	slices.SortFunc(c.run.InputLengths, func(a, b Group) int { return cmp.Compare(a.From, b.From) })
}

// octave is the range of prompt lengths that n belongs to: 0–16, 17–32, 33–64, …
func octave(n int64) (from, to int64) {
	const first = 16
	to = first
	for n > to {
		from, to = to+1, 2*to
	}
	return from, to
}

// sumClasses orders classes by the well-known names' order, then by name.
func sumClasses(classes map[string]*grouping) []Group {
	all := make([]*grouping, 0, len(classes))
	for _, g := range classes {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b *grouping) int { return cmp.Or(cmp.Compare(b.N, a.N), strings.Compare(a.Name, b.Name)) })
	var rest *grouping
	if len(all) > maxGroups {
		rest = &grouping{Group: Group{Name: fmt.Sprintf("(%d further classes)", len(all)-maxGroups+1)}}
		for _, g := range all[maxGroups-1:] {
			rest.N += g.N
			rest.Failed += g.Failed
			rest.ttft, rest.tpot, rest.e2e = append(rest.ttft, g.ttft...), append(rest.tpot, g.tpot...), append(rest.e2e, g.e2e...)
		}
		all = all[:maxGroups-1]
	}
	slices.SortFunc(all, func(a, b *grouping) int {
		return cmp.Or(cmp.Compare(classOrder(a.Name), classOrder(b.Name)), strings.Compare(a.Name, b.Name))
	})
	if rest != nil {
		all = append(all, rest)
	}
	out := make([]Group, 0, len(all))
	for _, g := range all {
		out = append(out, g.sum())
	}
	return out
}

// classOrder puts the well-known classes first, by their length.
func classOrder(name string) int {
	known := []string{"short", "typical", "long", "extreme"}
	if i := slices.Index(known, name); i >= 0 {
		return i
	}
	return len(known)
}

// tokenEdges are the lower ends of the bins of token histograms: every number up to 8, then four to an octave.
var tokenEdges = func() []int64 {
	edges := []int64{0}
	const octaves, perOctave = 31, 4
	for i := range octaves * perOctave {
		edge := int64(math.Round(math.Exp2(float64(i) / perOctave)))
		if edge > edges[len(edges)-1] {
			edges = append(edges, edge)
		}
	}
	return edges
}()

// tokens makes the histograms of lengths over the part's started requests.
func (c *collector) tokens() {
	c.run.PromptTokens = c.tokenHistogram(func(r *row) (int32, int32) { return r.promptAsked, r.prompt })
	c.run.OutputTokens = c.tokenHistogram(func(r *row) (int32, int32) { return r.outputAsked, r.output })
}

func (c *collector) tokenHistogram(of func(*row) (asked, achieved int32)) *TokenHistogram {
	counts := [2][]int64{make([]int64, len(tokenEdges)), make([]int64, len(tokenEdges))}
	var seen [2]bool
	low, high := len(tokenEdges), -1
	for _, i := range c.inPart {
		r := &c.rows[i]
		if r.outcome == results.Dropped {
			continue
		}
		asked, achieved := of(r)
		for side, tokens := range [2]int32{asked, achieved} {
			if tokens < 0 {
				continue
			}
			bin := sort.Search(len(tokenEdges), func(e int) bool { return tokenEdges[e] > int64(tokens) }) - 1
			counts[side][bin]++
			seen[side] = true
			low, high = min(low, bin), max(high, bin)
		}
	}
	if high < 0 {
		return nil
	}
	h := &TokenHistogram{}
	for bin := low; bin <= high; bin++ {
		h.From = append(h.From, tokenEdges[bin])
		to := int64(math.MaxInt32)
		if bin+1 < len(tokenEdges) {
			to = tokenEdges[bin+1] - 1
		}
		h.To = append(h.To, to)
	}
	if seen[0] {
		h.Asked = counts[0][low : high+1]
	}
	if seen[1] {
		h.Achieved = counts[1][low : high+1]
	}
	return h
}
