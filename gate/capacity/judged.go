package capacity

import (
	"math"
	"strings"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// FromVerdict takes what a search needs from the verdict on a probe. The caller adds what a verdict does not know:
// Seconds, StoppedEarly, Recovered, MeanInFlight, InFlightSampled.
func FromVerdict(v *verdict.Result) ProbeResult {
	r := ProbeResult{Verdict: v.Verdict, Warnings: v.Warnings, Labels: v.Labels, WarmCache: v.Prefix != nil && v.Prefix.Warm}
	r.LimitingCriterion, r.Pressure = limiting(v)
	r.Needed = needed(v)
	for i := range v.Phases {
		phase := &v.Phases[i]
		if phase.Name != steadyPhase {
			continue
		}
		r.Requests = phase.Counts.Offered
		r.CompletedRate = phase.RequestsPerSecond
		r.OutputTokensPerSecond, r.PromptTokensPerSecond = phase.OutputTokensPerSecond, phase.PromptTokensPerSecond
		r.Latencies = phase.Metrics
	}
	return r
}

const steadyPhase = "steady"

// limiting is the criterion that a verdict hangs on: of those with the overall verdict, the one that used the largest
// part of its limit, or the first that has no number. Criteria on the load generator count only when it is INVALID, or
// where nothing else is open.
func limiting(v *verdict.Result) (string, *float64) {
	name, worst := limitingOf(v, v.Verdict == verdict.Invalid)
	if name == "" && v.Verdict == verdict.Inconclusive {
		return limitingOf(v, true)
	}
	return name, worst
}

func limitingOf(v *verdict.Result, generator bool) (string, *float64) {
	name, worst := "", (*float64)(nil)
	for i := range v.Criteria {
		c := &v.Criteria[i]
		if c.Ignored || (c.Section == string(contract.SectionClientHeadroom)) != generator {
			continue
		}
		bad := c.Verdict == verdict.Fail || c.Verdict == verdict.Invalid
		switch v.Verdict {
		case verdict.Fail, verdict.Invalid:
			if !bad {
				continue
			}
		case verdict.Inconclusive:
			if c.Verdict != verdict.Inconclusive {
				continue
			}
		case verdict.Pass:
		}
		p := pressure(c)
		if name == "" || (p != nil && (worst == nil || *p > *worst)) {
			name, worst = c.Name, p
		}
	}
	if name == StoppedEarlyRule && v.Aborted != nil { // the rule saw a criterion that had certainly failed
		saw, _, _ := strings.Cut(v.Aborted.Saw, ": ")
		for i := range v.Criteria {
			if v.Criteria[i].Name == saw {
				return saw, pressure(&v.Criteria[i])
			}
		}
	}
	return name, worst
}

// pressure is the part of its limit that a criterion used; absent where it has no numbers to tell. For a lower limit on a
// share, such as a success rate of 0.995, it is the share that is missing from 1; for any other lower limit it is the
// limit over what was measured.
func pressure(c *verdict.Criterion) *float64 {
	if c.Measured == nil || c.LimitValue == nil {
		return nil
	}
	measured, limit := *c.Measured, *c.LimitValue
	var used float64
	switch {
	case !strings.HasPrefix(strings.TrimSpace(c.Limit), ">"):
		used = measured / limit
	case c.Unit == string(contract.UnitRatio):
		used = (1 - measured) / (1 - limit)
	default:
		used = limit / measured
	}
	if !(used > 0) || math.IsInf(used, 0) {
		return nil
	}
	return &used
}

// needed is how many further requests decide every open criterion; absent where one of them cannot say.
func needed(v *verdict.Result) *int64 {
	if v.Verdict != verdict.Inconclusive {
		return nil
	}
	most := int64(0)
	for i := range v.Criteria {
		c := &v.Criteria[i]
		if c.Ignored || c.Verdict != verdict.Inconclusive {
			continue
		}
		n := c.NeededAtShare
		if n == nil {
			n = c.Needed
		}
		if n == nil {
			return nil
		}
		most = max(most, *n)
	}
	if most == 0 {
		return nil
	}
	return &most
}
