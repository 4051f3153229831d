package verdict

import (
	"errors"
	"fmt"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// maxNumber is the largest number that a verdict may hold; see the bounds of package results.
const maxNumber = 1e15

// problems collects what is wrong with the numbers of a verdict.json.
type problems []error

func (p *problems) number(key string, v, low, high float64) {
	if v >= low && v <= high {
		return
	}
	*p = append(*p, fmt.Errorf("%s: found %v, expected a number from %v to %v", key, v, low, high))
}

func (p *problems) optional(key string, v *float64, low, high float64) {
	if v != nil {
		p.number(key, *v, low, high)
	}
}

func (p *problems) count(key string, n int64) {
	if n < 0 {
		*p = append(*p, fmt.Errorf("%s: found %d, expected a count, 0 or more", key, n))
	}
}

func (p *problems) counts(key string, c results.Counts) {
	p.count(key+".offered", c.Offered)
	p.count(key+".started", c.Started)
	p.count(key+".dropped", c.Dropped)
	p.count(key+".completed", c.Completed)
	p.count(key+".failed", c.Failed)
	p.count(key+".cancelled", c.Cancelled)
	p.count(key+".in_flight", c.InFlight)
	p.count(key+".retries", c.Retries)
}

// check refuses numbers that no judgement gives: a baseline made of them would decide about another run.
func (r *Result) check() error {
	var p problems
	p.number("confidence", r.Confidence, 0, 1)
	p.counts("counts", r.Counts)
	for reason, n := range r.DroppedBy {
		p.count("dropped_by_reason."+reason, n)
	}
	for i := range r.Criteria {
		p.criterion(fmt.Sprintf("criteria[%d].", i), &r.Criteria[i])
	}
	for i := range r.Phases {
		p.phase(fmt.Sprintf("phases[%d].", i), &r.Phases[i])
	}
	for i := range r.Steps {
		step, at := &r.Steps[i], fmt.Sprintf("steps[%d].", i)
		p.counts(at+"counts", step.Counts)
		p.optional(at+"offered_per_second", step.OfferedPerSecond, 0, maxNumber)
		for k := range step.Criteria {
			p.criterion(fmt.Sprintf("%scriteria[%d].", at, k), &step.Criteria[k])
		}
	}
	if r.Prefix != nil {
		p.number("prefix_cache.measured", r.Prefix.Measured, 0, 1)
		p.optional("prefix_cache.ideal", r.Prefix.Ideal, 0, 1)
	}
	return errors.Join(p...)
}

func (p *problems) criterion(at string, c *Criterion) {
	p.count(at+"n", c.N)
	p.count(at+"over", c.Over)
	if c.N >= 0 && c.Over > c.N {
		*p = append(*p, fmt.Errorf("%sover: found %d, expected a count from 0 to n = %d", at, c.Over, c.N))
	}
	p.count(at+"undecided", c.Undecided)
	for key, n := range map[string]*int64{"needed": c.Needed, "needed_at_share": c.NeededAtShare} {
		if n != nil {
			p.count(at+key, *n)
		}
	}
	p.optional(at+"measured", c.Measured, -maxNumber, maxNumber)
	p.optional(at+"limit_value", c.LimitValue, -maxNumber, maxNumber)
	p.optional(at+"over_low", c.OverLow, 0, 1)
	p.optional(at+"over_high", c.OverHigh, 0, 1)
	p.optional(at+"mean_low", c.MeanLow, -maxNumber, maxNumber)
	p.optional(at+"mean_high", c.MeanHigh, -maxNumber, maxNumber)
	p.number(at+"inflation", c.Inflation, 0, maxNumber)
}

func (p *problems) phase(at string, phase *Phase) {
	p.counts(at+"counts", phase.Counts)
	p.number(at+"seconds", phase.Seconds, 0, maxNumber)
	for metric, q := range phase.Metrics {
		low := 0.0
		if metric == columnNames[columnScheduleDelay] {
			low = -maxNumber // some requests are sent before their due time
		}
		key := at + "metrics." + metric
		p.count(key+".n", q.N)
		for name, v := range map[string]float64{".p50": q.P50, ".p95": q.P95, ".p99": q.P99, ".mean": q.Mean, ".max": q.Max} {
			p.number(key+name, v, low, maxNumber)
		}
	}
	p.optional(at+"offered_per_second", phase.OfferedPerSecond, 0, maxNumber)
	p.optional(at+"requests_per_second", phase.RequestsPerSecond, 0, maxNumber)
	p.optional(at+"prompt_tokens_per_second", phase.PromptTokensPerSecond, 0, maxNumber)
	p.optional(at+"output_tokens_per_second", phase.OutputTokensPerSecond, 0, maxNumber)
}
