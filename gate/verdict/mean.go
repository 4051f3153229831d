package verdict

import (
	"math"
	"slices"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

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
	if len(j.rows(string(c.Phase), c.Class)) == 0 {
		return nil
	}
	values := make([]float64, len(seconds))
	ended, counted := 0, 0
	for i := range t.arrival {
		e2e := t.values[columnE2E][i]
		if int(t.class[i]) != class || t.outcome[i] != results.OK || math.IsNaN(e2e) {
			continue
		}
		ended++
		amount := 1.0
		if tokens {
			amount = max(0, float64(t.tokens[i]))
		}
		if !tokens || t.tokens[i] >= 0 {
			counted++
		}
		if n, ok := at[time.Unix(0, t.start[i]+int64(e2e*1e6)).Unix()]; ok {
			values[n] += amount
		}
	}
	if ended > 0 && counted == 0 {
		return nil
	}
	return values // of a class of which nothing came to its end zeros
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
	switch dropped {
	case 0:
		return
	case len(rows):
		out.Verdict = Inconclusive
		out.note("all arrivals were dropped: the service was asked for nothing")
		return
	}
	served := float64(len(rows)) / float64(len(rows)-dropped)
	pass := out.Verdict == Pass
	if c.Op.Holds(*out.MeanLow*served, limit) != pass || c.Op.Holds(*out.MeanHigh*served, limit) != pass {
		out.Verdict = Inconclusive
		out.note("%d of %d arrivals were dropped: served like the others, they would have made it another answer", dropped, len(rows))
	}
}
