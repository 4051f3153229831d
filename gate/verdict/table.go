package verdict

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// The columns of a table: measurements of requests by the names that contracts use. itl is the request's own p99 gap:
// the single gaps are in the histograms.
const (
	columnTTFT = iota
	columnTTFTText
	columnTPOT
	columnE2E
	columnScheduleDelay
	columnOutputTPS
	columnITL
	columns
)

var columnNames = [columns]string{
	columnTTFT: "ttft", columnTTFTText: "ttft_text", columnTPOT: "tpot", columnE2E: "e2e",
	columnScheduleDelay: "schedule_delay", columnOutputTPS: "output_tps", columnITL: "itl",
}

func columnOf(metric string) (int, bool) {
	column := slices.Index(columnNames[:], metric)
	return column, column >= 0
}

// table holds what the verdict needs of each first attempt, in columns: about 90 bytes for one request.
type table struct {
	arrival []int64 // unix nanoseconds; order is by it
	start   []int64 // unix nanoseconds, 0 for a dropped arrival
	outcome []results.Outcome
	phase   []uint8
	class   []uint16
	step    []uint16
	status  []uint16
	goodput []results.Flag
	// tokenless requests have no TTFT, TPOT or ITL by their nature.
	tokenless []bool
	single    []bool    // asked for at most one token: a time per further token is not to be expected
	tokens    []int32   // completion tokens; -1 where unknown
	elapsed   []float64 // ms; NaN where unknown
	values    [columns][]float64

	phases  names
	classes names
	steps   names

	counts  results.Counts
	dropped map[string]int64      // by reason
	sorted  map[selection][]int32 // see rows
	prefix  PrefixTally
}

// names numbers a few distinct names in the order in which they come.
type names struct {
	list   []string
	number map[string]int
}

func (n *names) index(name string) int {
	if i, ok := n.number[name]; ok {
		return i
	}
	if n.number == nil {
		n.number = make(map[string]int)
	}
	n.number[name] = len(n.list)
	n.list = append(n.list, name)
	return len(n.list) - 1
}

func (n *names) find(name string) int {
	if i, ok := n.number[name]; ok {
		return i
	}
	return -1
}

// The most phases, classes and steps that are told apart; further ones are put with the last.
const (
	maxPhases  = math.MaxUint8
	maxClasses = 4096
	maxSteps   = 4096
)

func orNaN(n results.Number) float64 {
	if !n.Known {
		return math.NaN()
	}
	return n.Value
}

func tokensOf(r *results.Request) int32 {
	if !r.Completion.Known {
		return -1
	}
	return int32(min(max(r.Completion.Value, 0), math.MaxInt32)) // #nosec G115 -- bounded by min and max
}

func unixNano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func (t *table) add(r *results.Request) {
	t.counts.Add(r.Outcome, r.Attempt)
	if r.Attempt > 1 {
		return
	}
	if r.Outcome == results.Dropped {
		t.drop(r.ErrorType)
	}
	t.arrival = append(t.arrival, unixNano(r.Arrival()))
	t.start = append(t.start, unixNano(r.Start))
	t.outcome = append(t.outcome, r.Outcome)
	t.phase = append(t.phase, uint8(min(t.phases.index(r.Phase), maxPhases)))    // #nosec G115 -- bounded by min
	t.class = append(t.class, uint16(min(t.classes.index(r.Class), maxClasses))) // #nosec G115 -- bounded by min
	t.step = append(t.step, uint16(min(t.steps.index(r.Step), maxSteps)))        // #nosec G115 -- bounded by min
	t.status = append(t.status, uint16(min(max(r.Status, 0), math.MaxUint16)))   //nolint:gosec // bounded by min and max
	t.goodput = append(t.goodput, r.Goodput)
	t.single = append(t.single, r.CompletionAsked.Known && r.CompletionAsked.Value <= 1)
	t.tokenless = append(t.tokenless, r.Tokenless())
	t.tokens = append(t.tokens, tokensOf(r))
	t.elapsed = append(t.elapsed, orNaN(r.Elapsed))
	for column, value := range [columns]results.Number{
		columnTTFT: r.TTFT, columnTTFTText: r.TTFTText, columnTPOT: r.TPOT, columnE2E: r.E2E,
		columnScheduleDelay: r.ScheduleDelay, columnOutputTPS: r.OutputTPS, columnITL: r.ITLP99,
	} {
		t.values[column] = append(t.values[column], orNaN(value))
	}
	if r.Phase == steady {
		t.prefix.Add(r)
	}
}

func (t *table) drop(reason string) {
	if reason == "" {
		reason = dropUnknown
	}
	if t.dropped == nil {
		t.dropped = make(map[string]int64)
	}
	t.dropped[reason]++
}

// The phases that criteria are about.
const (
	steady   = "steady"
	recovery = "recovery"
)

// grow makes room for n requests, so that the columns are not copied while they grow.
func (t *table) grow(n int) {
	t.arrival = slices.Grow(t.arrival, n)
	t.start = slices.Grow(t.start, n)
	t.outcome = slices.Grow(t.outcome, n)
	t.phase = slices.Grow(t.phase, n)
	t.class = slices.Grow(t.class, n)
	t.step = slices.Grow(t.step, n)
	t.status = slices.Grow(t.status, n)
	t.goodput = slices.Grow(t.goodput, n)
	t.single = slices.Grow(t.single, n)
	t.tokenless = slices.Grow(t.tokenless, n)
	t.tokens = slices.Grow(t.tokens, n)
	t.elapsed = slices.Grow(t.elapsed, n)
	for column := range t.values {
		t.values[column] = slices.Grow(t.values[column], n)
	}
}

// selection says which requests; a class or step of "" means all.
type selection struct{ phase, class, step string }

// rows returns the indices of the selected requests, in the order of their arrival. Callers do not change them, and add no
// request after the first call.
func (t *table) rows(of selection) []int32 {
	if rows, ok := t.sorted[of]; ok {
		return rows
	}
	if t.sorted == nil {
		t.sorted = make(map[selection][]int32)
	}
	t.sorted[of] = t.sort(of)
	return t.sorted[of]
}

func (t *table) sort(of selection) []int32 {
	p, c, s := t.phases.find(of.phase), t.classes.find(of.class), t.steps.find(of.step)
	var rows []int32
	for i := range t.arrival {
		if int(t.phase[i]) == p && (of.class == "" || int(t.class[i]) == c) && (of.step == "" || int(t.step[i]) == s) {
			rows = append(rows, int32(i)) //nolint:gosec // two billion requests do not fit into memory
		}
	}
	slices.SortStableFunc(rows, func(a, b int32) int { return cmp.Compare(t.arrival[a], t.arrival[b]) })
	return rows
}
