package verdict

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

// judge judges the criteria of one contract by one run.
type judge struct {
	run        *results.Run
	contract   *contract.Contract
	confidence float64
	table      *table
	series     series
	// step limits what is looked at to one rate of a staircase; "" means all.
	step string
	// unseen is the number of requests that were in flight when the run was killed: they have no line.
	unseen                  int64
	unseenPhase, unseenStep string
}

// higherIsBetter says which side of a metric is the bad one.
func higherIsBetter(metric string) bool { return metric == "output_tps" }

func pointer(v float64) *float64 { return &v }

// rows are the requests of a phase and class, in the step that is looked at.
func (j *judge) rows(phase, class string) []int32 {
	return j.table.rows(selection{phase: phase, class: class, step: j.step})
}

func (j *judge) inStep(step string) bool { return j.step == "" || step == j.step }

// unseenOf is the number of requests in flight at a killed run's end that belong to a phase, class and step.
func (j *judge) unseenOf(phase, class string) int64 {
	if phase != j.unseenPhase || class != "" || !j.inStep(j.unseenStep) {
		return 0
	}
	return j.unseen
}

func (j *judge) criterion(c contract.Criterion) (Criterion, error) {
	out := Criterion{
		Name: c.Name, Section: string(c.Section), Class: c.Class, Phase: string(c.Phase),
		Limit: c.LimitText(), Unit: string(c.Unit), Verdict: Inconclusive,
	}
	limit, known := c.Limit.Value()
	if known {
		out.LimitValue = &limit
	}
	var err error
	switch c.Stat.Kind {
	case contract.StatQuantile, contract.StatMin, contract.StatMax, contract.StatMean:
		err = j.distribution(c, &out)
	case contract.StatRate:
		j.rate(c, &out)
	case contract.StatThroughput:
		j.throughput(c, &out)
	case contract.StatCount:
		j.dropped(c, &out)
	case contract.StatValue:
		j.scheduleError(c, &out)
	case contract.StatEnd:
		j.level(c, &out)
	case contract.StatState:
		j.queueGrowth(&out)
	default:
		out.note("the statistic %q is not known", c.Stat.Kind)
	}
	j.countFailures(c, &out)
	j.eachInstance(c, &out)
	if !known && c.Stat.Kind != contract.StatState {
		out.Verdict = Inconclusive
		out.forgetLimit()
		out.note("the limit waits for a baseline")
	}
	if c.Class != "" && j.table.classes.find(c.Class) < 0 {
		seen := slices.DeleteFunc(slices.Sorted(slices.Values(j.table.classes.list)), func(name string) bool { return name == "" })
		out.note("no request has the class %q; classes seen: %s", c.Class, cmp.Or(strings.Join(seen, ", "), "none"))
	}
	return out, err
}

func (c *Criterion) note(format string, args ...any) {
	if c.Note != "" {
		c.Note += "; "
	}
	c.Note += fmt.Sprintf(format, args...)
}

// forgetLimit takes out what would be said about a limit that has no number.
func (c *Criterion) forgetLimit() {
	c.Over, c.OverLow, c.OverHigh, c.Needed, c.NeededAtShare = 0, nil, nil, nil, nil
	c.Note = strings.Join(slices.DeleteFunc(strings.Split(c.Note, "; "), func(note string) bool {
		return note == "" || strings.Contains(note, "the limit")
	}), "; ")
}

// exact compares a number that is not a sample of anything.
func (c *Criterion) exact(criterion contract.Criterion, measured float64) {
	c.Measured = &measured
	met, ok := criterion.Met(measured)
	switch {
	case !ok:
	case met:
		c.Verdict = Pass
	default:
		c.Verdict = Fail
	}
}

// settle puts the outcome of a test into the result.
func (c *Criterion) settle(s Sample, e Evidence) {
	c.N, c.Over, c.Undecided, c.Inflation = s.N, s.Over, s.Undecided, s.inflation()
	c.Verdict, c.Needed, c.NeededAtShare = e.Status, e.Needed, e.NeededAtShare
	c.OverLow, c.OverHigh = pointer(e.Low), pointer(e.High)
	if s.N == 0 {
		c.note("nothing was measured")
	}
}

func (j *judge) distribution(c contract.Criterion, out *Criterion) error {
	if c.Metric == "timer_delay" {
		return j.timerDelay(c, out)
	}
	if c.Section == contract.SectionClientHeadroom {
		j.headroom(c, out)
		return nil
	}
	if c.Metric == "itl" {
		return j.interToken(c, out)
	}
	column, ok := columnOf(c.Metric)
	if !ok {
		j.level(c, out)
		return nil
	}
	over := func(v float64) bool {
		met, known := c.Met(v)
		return known && !math.IsNaN(v) && !met
	}
	o := j.observe(column, string(c.Phase), c.Class, over)
	out.N, out.Undecided = int64(len(o.values)), o.undecided
	switch {
	case c.Stat.Kind == contract.StatMean:
		j.mean(c, o, out)
	case len(o.values) == 0:
		out.settle(Sample{Undecided: o.undecided}, TestShare(Sample{Undecided: o.undecided}, j.tolerated(c), j.confidence))
	case isBest(c):
		best := slices.Min(o.values)
		if higherIsBetter(c.Metric) {
			best = slices.Max(o.values)
		}
		if math.IsInf(best, 0) {
			out.Verdict = Fail
			break
		}
		out.exact(c, best)
	default:
		j.share(c, o, over, out)
	}
	o.explain(out)
	return nil
}

// isBest is true for the smallest latency or the largest rate: one good request meets it.
func isBest(c contract.Criterion) bool {
	if higherIsBetter(c.Metric) {
		return c.Stat.Kind == contract.StatMax
	}
	return c.Stat.Kind == contract.StatMin
}

// tolerated is the share of requests that may be over the limit: none for a limit on the worst one.
func (j *judge) tolerated(c contract.Criterion) float64 {
	if c.Stat.Kind != contract.StatQuantile && c.Stat.Kind != contract.StatRate {
		return 0
	}
	if q, ok := c.EvidenceQuantile(); ok {
		return 1 - q
	}
	return 0
}

func (j *judge) share(c contract.Criterion, o observations, over func(float64) bool, out *Criterion) {
	s := Sample{N: int64(len(o.values)), Undecided: o.undecided}
	for _, v := range o.values {
		if over(v) {
			s.Over++
		}
	}
	s.Inflation = inflation(o.values, over, higherIsBetter(c.Metric))
	out.settle(s, TestShare(s, j.tolerated(c), j.confidence))

	sorted := slices.Clone(o.values)
	slices.Sort(sorted)
	measured := sampleQuantile(sorted, quantileOf(c))
	if math.IsInf(measured, 0) {
		out.note("the quantile falls among the requests that failed")
		return
	}
	out.Measured = &measured
}

func quantileOf(c contract.Criterion) float64 {
	switch c.Stat.Kind {
	case contract.StatMax:
		return 1
	case contract.StatMin:
		return 0
	default:
		return c.Stat.Quantile
	}
}

// worstMarked is the number of the worst requests whose places in time are looked at. It bounds what they can say: 20
// requests in one cluster inflate by 20. More of them would make the test safer against long clusters, and would leave short
// runs of good services undecided; docs/statistics.md has the figures for 20.
const worstMarked = 20

// inflation estimates how far correlation between requests inflates the variance of their share over the limit: from
// those over the limit, and from the 20 worst ones; the larger estimate counts. The second does not depend on luck: slow
// requests come in clusters, and a limit that no cluster happened to exceed is not proven by as many independent requests
// as there were.
func inflation(values []float64, over func(float64) bool, higherBetter bool) float64 {
	marks := make([]float64, len(values))
	for i, v := range values {
		if over(v) {
			marks[i] = 1
		}
	}
	byLimit := VarianceInflation(marks)
	if len(values) < 2*worstMarked {
		return byLimit
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	for i, v := range values {
		marks[i] = 0
		if (higherBetter && v <= sorted[worstMarked-1]) || (!higherBetter && v >= sorted[len(sorted)-worstMarked]) {
			marks[i] = 1
		}
	}
	return math.Max(byLimit, VarianceInflation(marks))
}

// rate judges a share of requests.
func (j *judge) rate(c contract.Criterion, out *Criterion) {
	t := j.table
	s := Sample{}
	var marks []float64
	count := func(over bool) {
		s.N++
		mark := 0.0
		if over {
			s.Over++
			mark = 1
		}
		marks = append(marks, mark)
	}
	for _, i := range j.rows(string(c.Phase), c.Class) {
		outcome := t.outcome[i]
		switch {
		case outcome == results.Dropped:
			s.Undecided++
		case c.Metric == "http_5xx" && (outcome != results.InFlight || t.status[i] != 0):
			count(t.status[i] >= 500)
		case c.Metric == "http_5xx":
			s.Undecided++
		case c.Metric == "goodput" && outcome != results.Failed:
			switch {
			case t.goodput[i] != results.FlagAbsent:
				count(t.goodput[i] == results.FlagNo)
			case outcome == results.InFlight:
				s.Undecided++
			}
		case outcome == results.InFlight:
			s.Undecided++
		case outcome == results.Cancelled: // neither a success nor a failure of the service
		default:
			count(outcome == results.Failed)
		}
	}
	s.Undecided += j.unseenOf(string(c.Phase), c.Class)
	s.Inflation = VarianceInflation(marks)
	out.settle(s, TestShare(s, j.tolerated(c), j.confidence))
	if s.N == 0 {
		if c.Metric == "goodput" {
			out.note("no request was judged: the contract or the client needs per-request objectives")
		}
		return
	}
	share := float64(s.Over) / float64(s.N)
	if c.Metric == "success_rate" || c.Metric == "goodput" {
		share = 1 - share
	}
	out.Measured = &share
}
