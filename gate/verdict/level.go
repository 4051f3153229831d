package verdict

import (
	"slices"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

func (j *judge) level(c contract.Criterion, out *Criterion) {
	seconds := j.series.of(string(c.Phase))
	if c.Stat.Kind == contract.StatEnd && len(seconds) > 0 { // the last quarter
		begin, end := seconds[0].Time, seconds[len(seconds)-1].Time
		from := end.Add(-end.Sub(begin) / 4)
		seconds = slices.DeleteFunc(seconds, func(s results.Sample) bool { return s.Time.Before(from) })
	}
	j.seen(c, level(seconds, c.Metric), out)
	if gap := j.series.unseen(seconds, c.Metric); out.N > 0 && gap > 0 && out.Verdict == Pass {
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
		c.note("no queue depth was recorded in the steady phase")
		return
	}
	switch {
	case f.signal == SignalInFlight && f.unseen > 0:
		c.note("judged by the requests in flight, since the server's queue was not seen for %.0f s: growth is found later", f.unseen.Seconds())
	case f.signal == SignalInFlight && f.rare:
		c.note("judged by the requests in flight, since the server's queue was not seen often enough: growth is found later")
	case f.signal == SignalInFlight:
		c.note("judged by the requests in flight, since the server's queue was not seen: growth is found later")
	}
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
		c.Measured = pointer(0)
		c.Verdict = Pass
	}
}
