package verdict

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

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

// observations are the requests that a criterion on a metric of single requests is about, in the order of arrival.
type observations struct {
	// values has one entry per request that counts; +Inf (or -Inf where higher is better) for one that failed, or that
	// has no value where it should have one.
	values []float64
	// failed counts the infinite ones.
	failed int64
	// waited counts those that were over the limit when the run ended or their user left: their value is the time they had
	// waited by then, and the true one is larger.
	waited    int64
	undecided int64
	cancelled int64 // left before the value was there, and before it was over the limit
}

// observe collects the values of a metric. Every request that was offered is in exactly one of the four:
//
//   - a request that failed is infinitely bad, whatever it had shown before;
//   - one that completed counts with its value, and as infinitely bad if it has none although it should: the objective
//     that needs it is not met. A time per output token is not expected of an answer that was limited to one token;
//   - one that was cancelled by its user, or cut short by the run's end, counts with the value it had shown; without
//     one it counts with the time it had waited if that is over the limit. Else a cancelled one is left out, since the user's
//     patience is the workload's own, and one that was cut short is undecided;
//   - a dropped arrival is undecided.
func (j *judge) observe(metric int, phase, class string, over func(float64) bool) observations {
	t := j.table
	worst := math.Inf(1)
	if metric == columnOutputTPS {
		worst = math.Inf(-1)
	}
	var o observations
	for _, i := range j.rows(phase, class) {
		if t.tokenless[i] && ofTokens(metric) {
			continue
		}
		value := t.values[metric][i]
		known := !math.IsNaN(value)
		switch t.outcome[i] {
		case results.Dropped:
			o.undecided++
		case results.Failed:
			o.values = append(o.values, worst)
			o.failed++
		case results.OK:
			switch {
			case known:
				o.values = append(o.values, value)
			case t.single[i] && (metric == columnTPOT || metric == columnITL || metric == columnOutputTPS):
			default:
				o.values = append(o.values, worst)
				o.failed++
			}
		default:
			switch {
			case known && partial(metric):
				o.values = append(o.values, value)
			case waits(metric) && over(t.elapsed[i]):
				o.values = append(o.values, t.elapsed[i])
				o.waited++
			case t.outcome[i] == results.Cancelled:
				o.cancelled++
			default:
				o.undecided++
			}
		}
	}
	o.undecided += j.unseenOf(phase, class)
	return o
}

// ofTokens says that a metric times tokens, which an embedding has none of.
func ofTokens(metric int) bool {
	return metric != columnE2E && metric != columnScheduleDelay
}

// partial says that a metric is final as soon as it is there, even if the answer was not whole.
func partial(metric int) bool {
	return metric == columnTTFT || metric == columnTTFTText || metric == columnScheduleDelay
}

// waits says that a request which has waited for longer than the limit will be over it.
func waits(metric int) bool {
	return metric == columnTTFT || metric == columnTTFTText || metric == columnE2E
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

func (o observations) explain(out *Criterion) {
	if o.failed > 0 {
		out.note("%d of %d requests failed, or lack the measurement, and count as over the limit", o.failed, len(o.values))
	}
	if o.waited > 0 {
		out.note("%d had waited longer than the limit when the run ended or their user left, and count with that time", o.waited)
	}
	if o.cancelled > 0 {
		out.note("%d requests whose users left in time are not counted", o.cancelled)
	}
}

// mean judges a mean by the t-interval of its batch means. A failed request counts with the limit or with the worst
// value measured, whichever is worse: failing can never improve the mean. Neither answer stands on requests that were not
// seen to their end: a pass has none of them, and a fail holds however good they would have been.
func (j *judge) mean(c contract.Criterion, o observations, out *Criterion) {
	if len(o.values) == 0 {
		out.note("nothing was measured")
		return
	}
	limit, known := c.Limit.Value()
	worst := limit
	for _, v := range o.values {
		if math.IsInf(v, 0) {
			continue
		}
		if higherIsBetter(c.Metric) {
			worst = math.Min(worst, v)
		} else {
			worst = math.Max(worst, v)
		}
	}
	values := slices.Clone(o.values)
	for i, v := range values {
		if math.IsInf(v, 0) {
			values[i] = worst
		}
	}
	out.Measured = pointer(mean(values))
	out.settleMean(values, c, limit, known, j.confidence)
	switch {
	case out.Verdict == Pass && o.undecided > 0, out.Verdict == Fail && o.undecided > 0 && j.kept(c, o, values, out):
		out.Verdict = Inconclusive
		out.note("%d requests are undecided: dropped, or cut short", o.undecided)
	case out.Verdict == Pass && o.waited > 0:
		out.Verdict = Inconclusive
		out.note("a mean is not known where waits are known to be longer than they were seen; a limit on a quantile is")
	}
}

// kept says that the undecided requests would have kept the mean within its limit at their best: at once, or as fast as the
// fastest.
func (j *judge) kept(c contract.Criterion, o observations, values []float64, out *Criterion) bool {
	n, u := float64(len(values)), float64(o.undecided)
	best := *out.MeanLow * n / (n + u)
	if higherIsBetter(c.Metric) {
		best = (*out.MeanHigh*n + slices.Max(values)*u) / (n + u)
	}
	met, ok := c.Met(best)
	return ok && met
}

// settleMean judges the mean of time-ordered values.
func (c *Criterion) settleMean(values []float64, criterion contract.Criterion, limit float64, known bool, confidence float64) {
	in, ok := meanInterval(values, confidence)
	if !ok {
		c.Verdict = Inconclusive
		c.note("too few values for an interval")
		return
	}
	c.MeanLow, c.MeanHigh = pointer(in.low), pointer(in.high)
	if !known {
		return
	}
	low, high := criterion.Op.Holds(in.low, limit), criterion.Op.Holds(in.high, limit)
	switch {
	case low && high:
		c.Verdict = Pass
	case !low && !high && criterion.Op != contract.OpEqual:
		c.Verdict = Fail
	default:
		c.Verdict = Inconclusive
		// The interval shrinks with the square root of the number of values.
		if distance := math.Abs(in.mean - limit); distance > 0 {
			ratio := (in.high - in.mean) / distance
			further := math.Ceil(float64(len(values)) * (ratio*ratio - 1))
			if further > 0 && further <= maxNeeded {
				n := int64(further)
				c.NeededAtShare = &n
			}
		}
	}
}

// timerDelay judges how late the load generator's timers fired, by all of them. The series has only the worst of each
// second; it stands in where the histogram is missing.
func (j *judge) timerDelay(c contract.Criterion, out *Criterion) error {
	all, err := j.run.Histograms(results.MetricTimerDelay)
	if err != nil {
		return err
	}
	merged, err := results.MergeHistograms(all, func(key results.HistogramKey) bool {
		return key.Phase == string(c.Phase) && j.inStep(key.Step)
	})
	if err != nil {
		return err
	}
	if merged == nil || merged.Count() == 0 {
		j.level(c, out)
		if out.N > 0 {
			out.note("by the worst of each second")
		}
		return nil
	}
	out.N = merged.Count()
	if limit, known := c.Limit.Value(); known {
		out.Over = merged.Above(limit)
	}
	measured := merged.Quantile(c.Stat.Quantile)
	switch c.Stat.Kind {
	case contract.StatMean:
		measured = merged.Mean()
	case contract.StatMax:
		measured = merged.Max()
	case contract.StatMin:
		measured = merged.Quantile(0)
	}
	out.exact(c, measured.Value)
	return nil
}

// interToken judges the gaps between chunks. They are in histograms only, and those of one answer depend on each other:
// one answer counts as one observation of the share of gaps over the limit, and a failed request as one with all its
// gaps over it.
func (j *judge) interToken(c contract.Criterion, out *Criterion) error {
	all, err := j.run.Histograms(results.MetricITL)
	if err != nil {
		return err
	}
	merged, err := results.MergeHistograms(all, func(key results.HistogramKey) bool {
		return key.Phase == string(c.Phase) && (c.Class == "" || key.Class == c.Class) && j.inStep(key.Step)
	})
	if err != nil {
		return err
	}
	if merged == nil || merged.Count() == 0 {
		out.note("no gap between chunks was recorded")
		return nil
	}
	limit, _ := c.Limit.Value()
	o, s := j.answers(c)
	gapsOver := merged.Above(limit)
	share := float64(gapsOver) / float64(merged.Count())
	overOK := share * float64(s.N-s.Over)
	whole := math.Floor(overOK)
	s.Over += int64(whole)
	if overOK > whole { // a part of an observation is over the limit: a pass counts it as one, a fail as none
		s.Undecided++
		s.N--
	}
	switch c.Stat.Kind {
	case contract.StatMean:
		out.note("the mean of all gaps has no interval: they depend on each other")
		out.exact(c, merged.Mean().Value)
		out.N = merged.Count()
	case contract.StatMin:
		out.exact(c, merged.Quantile(0).Value)
		out.N = merged.Count()
	case contract.StatMax:
		if gapsOver > 0 && s.Over == 0 {
			s.Over, s.Undecided = 1, s.Undecided-1
			s.N++
		}
		out.settle(s, TestShare(s, 0, j.confidence))
		out.Measured = pointer(merged.Max().Value)
	default:
		out.settle(s, TestShare(s, j.tolerated(c), j.confidence))
		j.gapQuantile(c, merged, o, out)
	}
	out.note("%d gaps, %d of them over the limit; an answer counts as one observation", merged.Count(), gapsOver)
	o.explain(out)
	return nil
}

// answers counts the answers that have gaps, and the failed requests as over the limit.
func (j *judge) answers(c contract.Criterion) (observations, Sample) {
	over := func(v float64) bool {
		met, known := c.Met(v)
		return known && !met
	}
	var (
		o observations
		s Sample
	)
	t := j.table
	for _, i := range j.rows(string(c.Phase), c.Class) {
		if t.tokenless[i] {
			continue
		}
		value := t.values[columnITL][i]
		switch {
		case t.outcome[i] == results.Dropped:
			s.Undecided++
		case t.outcome[i] == results.Failed:
			s.N++
			s.Over++
			o.failed++
			o.values = append(o.values, math.Inf(1))
		case !math.IsNaN(value):
			s.N++
			o.values = append(o.values, value)
		case t.outcome[i] == results.InFlight:
			s.Undecided++
		}
	}
	s.Undecided += j.unseenOf(string(c.Phase), c.Class)
	s.Inflation = inflation(o.values, over, false)
	return o, s
}

// gapQuantile is the quantile of all gaps if each failed request had as many, all infinite.
func (j *judge) gapQuantile(c contract.Criterion, merged *results.Histogram, o observations, out *Criterion) {
	served := 1.0
	if len(o.values) > 0 {
		served = 1 - float64(o.failed)/float64(len(o.values))
	}
	if q := c.Stat.Quantile; q <= served {
		out.Measured = pointer(merged.Quantile(q / served).Value)
		return
	}
	out.note("the quantile falls among the requests that failed")
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

func completionTokens(s *results.Sample) *int64 { return s.CompletionTokens }
func completed(s *results.Sample) *int64        { return s.Completed }
func promptTokens(s *results.Sample) *int64     { return s.PromptTokens }
func started(s *results.Sample) *int64          { return s.Started }

// throughput judges what was completed in each second of the phase.
func (j *judge) throughput(c contract.Criterion, out *Criterion) {
	tokens := c.Metric == "output_tokens_per_second"
	var values []float64
	switch {
	case c.Class != "":
		values = j.flowOfClass(c, tokens)
	case tokens:
		values = results.Flow(j.wholeSeconds(string(c.Phase)), completionTokens)
	default:
		values = results.Flow(j.wholeSeconds(string(c.Phase)), completed)
	}
	out.N = int64(len(values))
	if len(values) == 0 {
		out.note("nothing was measured")
		return
	}
	out.Measured = pointer(mean(values))
	limit, known := c.Limit.Value()
	out.settleMean(values, c, limit, known, j.confidence)
	out.note("n counts seconds")
	j.withoutDrops(c, out)
}

// flowOfClass is throughput of a class, whose requests are counted by the second of their end: the series does not tell
// classes apart. It is nil where no request has the class, or none has tokens.
func (j *judge) flowOfClass(c contract.Criterion, tokens bool) []float64 {
	t := j.table
	class := t.classes.find(c.Class)
	seconds := j.wholeSeconds(string(c.Phase))
	if class < 0 || len(seconds) == 0 {
		return nil
	}
	at := make(map[int64]int, len(seconds))
	for i := range seconds {
		at[seconds[i].Time.Unix()] = i
	}
	values, counted := make([]float64, len(seconds)), false
	for i := range t.arrival {
		e2e := t.values[columnE2E][i]
		if int(t.class[i]) != class || t.outcome[i] != results.OK || math.IsNaN(e2e) {
			continue
		}
		amount := 1.0
		if tokens {
			amount = max(0, float64(t.tokens[i]))
		}
		counted = counted || !tokens || t.tokens[i] >= 0
		if n, ok := at[time.Unix(0, t.start[i]+int64(e2e*1e6)).Unix()]; ok {
			values[n] += amount
		}
	}
	if !counted {
		return nil
	}
	return values
}

// withoutDrops takes an answer back that would be another one if the service had been sent, and had served, the arrivals that
// the load generator dropped.
func (j *judge) withoutDrops(c contract.Criterion, out *Criterion) {
	limit, known := c.Limit.Value()
	if !known || out.MeanLow == nil || out.Verdict == Inconclusive {
		return
	}
	rows := j.rows(string(c.Phase), c.Class)
	dropped := 0
	for _, i := range rows {
		if j.table.outcome[i] == results.Dropped {
			dropped++
		}
	}
	if dropped == 0 || dropped == len(rows) {
		return
	}
	served := float64(len(rows)) / float64(len(rows)-dropped)
	pass := out.Verdict == Pass
	if c.Op.Holds(*out.MeanLow*served, limit) != pass || c.Op.Holds(*out.MeanHigh*served, limit) != pass {
		out.Verdict = Inconclusive
		out.note("%d of %d arrivals were dropped: served like the others, they would have made it another answer", dropped, len(rows))
	}
}

func (j *judge) dropped(c contract.Criterion, out *Criterion) {
	t := j.table
	rows := j.rows(string(c.Phase), c.Class)
	for _, i := range rows {
		if t.outcome[i] == results.Dropped {
			out.Over++
		}
	}
	out.N = int64(len(rows))
	if out.N == 0 {
		out.note("no arrival was seen")
		return
	}
	measured := float64(out.Over)
	if c.Unit == contract.UnitRatio {
		measured /= float64(out.N)
	}
	out.exact(c, measured)
}

// scheduleError is |started rate / scheduled rate - 1|. The schedule has its arrivals in the time from the first due one to
// the last; for the started ones it is the time from the first start to the last, in which one that was never started stands
// for itself with its due time: what is missing at the end of a schedule is missing.
func (j *judge) scheduleError(c contract.Criterion, out *Criterion) {
	t := j.table
	rows := j.rows(string(c.Phase), c.Class)
	due, took := make([]int64, 0, len(rows)), make([]int64, 0, len(rows))
	started := 0
	for _, i := range rows {
		due = append(due, t.arrival[i])
		if t.start[i] == 0 {
			took = append(took, t.arrival[i])
			continue
		}
		took = append(took, t.start[i])
		started++
	}
	out.N = int64(len(rows))
	scheduled, ok1 := rateOf(due)
	achieved, ok2 := rateOf(took)
	if !ok1 || !ok2 {
		out.note("too few arrivals for a rate")
		return
	}
	share := float64(started) / float64(len(rows))
	out.exact(c, math.Abs(share*achieved/scheduled-1))
}

// rateOf is the rate per second of at least two instants.
func rateOf(nanos []int64) (float64, bool) {
	if len(nanos) < 2 {
		return 0, false
	}
	span := float64(slices.Max(nanos)-slices.Min(nanos)) / 1e9
	if span <= 0 {
		return 0, false
	}
	return float64(len(nanos)-1) / span, true
}

// headroom judges the load generator by what was seen of it: nothing is inferred beyond the run.
func (j *judge) headroom(c contract.Criterion, out *Criterion) {
	column, ok := columnOf(c.Metric)
	if !ok {
		j.level(c, out)
		return
	}
	var values []float64
	for _, i := range j.rows(string(c.Phase), c.Class) {
		if v := j.table.values[column][i]; !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	j.seen(c, values, out)
}

func (j *judge) level(c contract.Criterion, out *Criterion) {
	seconds := j.series.of(string(c.Phase))
	if c.Stat.Kind == contract.StatEnd && len(seconds) > 0 { // the last quarter
		begin, end := seconds[0].Time, seconds[len(seconds)-1].Time
		from := end.Add(-end.Sub(begin) / 4)
		seconds = slices.DeleteFunc(seconds, func(s results.Sample) bool { return s.Time.Before(from) })
	}
	j.seen(c, level(seconds, c.Metric), out)
	if gap := unseen(seconds, c.Metric); out.N > 0 && gap > 0 && out.Verdict == Pass {
		out.Verdict = Inconclusive
		out.note("it was not seen for %.0f s", gap.Seconds())
	}
}

// seen compares a statistic of recorded values with its limit.
func (j *judge) seen(c contract.Criterion, values []float64, out *Criterion) {
	out.N = int64(len(values))
	if len(values) == 0 {
		out.note("it was not measured")
		out.Ignored = c.Default
		return
	}
	for _, v := range values {
		if met, ok := c.Met(v); ok && !met {
			out.Over++
		}
	}
	switch c.Stat.Kind {
	case contract.StatMean:
		out.exact(c, mean(values))
	case contract.StatMin:
		out.exact(c, slices.Min(values))
	case contract.StatMax:
		out.exact(c, slices.Max(values))
	case contract.StatEnd:
		out.exact(c, sampleQuantile(values, 0.5))
	default:
		out.exact(c, sampleQuantile(values, c.Stat.Quantile))
	}
}

// queueGrowth judges the queue by the whole steady phase. In a staircase it judges each step, since a busier step has a
// longer queue without any growth; and the whole as well where the steps are too short and the server's own queue was seen,
// which comes back to about zero at every rate that the service can carry.
func (j *judge) queueGrowth(out *Criterion) {
	parts := j.parts()
	if len(parts) == 1 {
		planned := j.steadyLength()
		if j.step != "" {
			planned = 0
		}
		out.tellGrowth(j.series.growth(planned))
		return
	}
	whole := j.series.growth(j.steadyLength())
	short, worst := true, growthFinding{}
	at := ""
	var samples int64
	for _, part := range parts {
		f := part.series.growth(0)
		samples += f.samples
		short = short && f.short
		if at == "" || f.badness() > worst.badness() {
			worst, at = f, part.step
		}
	}
	if short && whole.signal == SignalWaiting {
		out.tellGrowth(whole)
		return
	}
	out.tellGrowth(worst)
	out.N = samples
	if worst.badness() > 0 {
		out.note("at step %s", at)
	}
}

func (c *Criterion) tellGrowth(f growthFinding) {
	c.N = f.samples
	if f.samples == 0 {
		c.note("no queue depth was recorded")
		return
	}
	switch {
	case f.signal == SignalInFlight && f.unseen > 0:
		c.note("judged by the requests in flight, since the server's queue was not seen for %.0f s: growth is found later", f.unseen.Seconds())
	case f.signal == SignalInFlight:
		c.note("judged by the requests in flight, since the server's queue was not seen: growth is found later")
	}
	c.Measured = pointer(0)
	switch {
	case f.found != nil:
		c.Measured = pointer(1)
		c.Verdict = Fail
		c.note("the queue grew by %.0f requests in %.0f s, and kept growing", f.found.Rise, f.found.Rise/f.found.Rate)
	case f.last.Undecided():
		c.Verdict = Inconclusive
		c.note("the queue rises at the end: %.1f of the %.1f that sustained growth needs", f.last.Evidence, growthThreshold)
	case f.short:
		c.Verdict = Inconclusive
		c.note("the steady phase is too short for sustained growth to be found")
	case f.signal == SignalWaiting && f.unseen > 0:
		c.Verdict = Inconclusive
		c.note("the server's queue was not seen for %.0f s", f.unseen.Seconds())
	default:
		c.Verdict = Pass
	}
}
