package verdict

import (
	"math"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

// failuresAllowed is the share of failed requests that the contract lets pass in a phase: the least that a line about a share
// of requests tolerates, since failed ones are over each of these limits. Where none is about the phase, those about the steady
// phase hold; it is 0 where there is no line at all.
func (j *judge) failuresAllowed(phase contract.Phase, class string) float64 {
	allowed := math.Inf(1)
	for _, c := range j.contract.Criteria() {
		if c.Phase != phase || (c.Class != "" && c.Class != class) || c.Section == contract.SectionClientHeadroom || c.Metric == "http_5xx" {
			continue
		}
		if q, ok := c.EvidenceQuantile(); ok {
			allowed = math.Min(allowed, 1-q)
		}
	}
	switch {
	case !math.IsInf(allowed, 0):
		return allowed
	case phase != contract.PhaseSteady:
		return j.failuresAllowed(contract.PhaseSteady, class)
	default:
		return 0
	}
}

// failures are the requests that ended well or failed, the failed ones over the limit.
func (j *judge) failures(phase contract.Phase, class string) Sample {
	var s Sample
	var marks []float64
	for _, i := range j.rows(string(phase), class) {
		switch j.table.outcome[i] {
		case results.OK:
			marks = append(marks, 0)
		case results.Failed:
			marks = append(marks, 1)
			s.Over++
		case results.Dropped, results.InFlight:
			s.Undecided++
		}
	}
	s.N = int64(len(marks))
	s.Inflation = VarianceInflation(marks)
	return s
}

// countFailures keeps failing from improving what is not about a share of requests. A failed request has no latency that a
// mean could hold, and a service that turns requests away has a short queue: where more requests fail than the contract's
// other lines allow, a mean fails, and a level of the service or the growth of its queue does not pass. It fails where more are
// turned away than the overload that the growth test looks for.
func (j *judge) countFailures(c contract.Criterion, out *Criterion) {
	_, ofRequests := columnOf(c.Metric)
	ofRequests = (ofRequests || c.Metric == "itl") && c.Metric != "schedule_delay"
	mean := ofRequests && c.Stat.Kind == contract.StatMean
	level := c.Stat.Kind == contract.StatState || c.Stat.Kind == contract.StatEnd
	if c.Section == contract.SectionClientHeadroom || (!mean && !level) || out.Verdict == Fail || out.N == 0 {
		return
	}
	s := j.failures(c.Phase, c.Class)
	if s.Over == 0 {
		return
	}
	allowed := j.failuresAllowed(c.Phase, c.Class)
	evidence := TestShare(s, allowed, j.confidence)
	if evidence.Status == Pass {
		return
	}
	why := "which a mean does not hold"
	if level {
		why = "and a queue stays short where requests are turned away"
		if TestShare(s, math.Max(allowed, growingShare), j.confidence).Status != Fail {
			evidence.Status = Inconclusive
		}
	}
	out.note("%d of %d requests failed, %s; the contract's other lines allow %.3g%%", s.Over, s.N, why, 100*allowed)
	if evidence.Status == Fail || out.Verdict == Pass {
		out.Verdict = evidence.Status
		out.Needed, out.NeededAtShare = nil, nil
	}
}
