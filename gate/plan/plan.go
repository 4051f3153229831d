package plan

import (
	"errors"
	"fmt"
	"math"
)

// Schema is the version of a plan.
const Schema = "safeqps-plan/1"

// Demand is what has to be carried, and on what terms.
type Demand struct {
	// PeakRate in requests per second, of the same workload that the capacity was measured with.
	PeakRate float64 `json:"peak_rate"`
	// MeanRate over a day, for the cost per token; 0 means the peak rate, which makes tokens look cheap.
	MeanRate float64 `json:"mean_rate,omitempty"`
	// Headroom is the share of Safe QPS that is left unused: 0.2 plans replicas at 80 % of it. From 0 to below 1.
	Headroom float64 `json:"headroom,omitempty"`
	// Growth of the demand per month, as a share: 0.1 is 10 % a month. Above -1.
	Growth float64 `json:"growth,omitempty"`
	// Months that the plan has to last.
	Months float64 `json:"months,omitempty"`
	// Spares are the replicas that may fail at the peak: 1 is N-1 redundancy.
	Spares int `json:"spares,omitempty"`
	// GPUHourPrice in any currency, for one GPU; 0 means that no cost is known.
	GPUHourPrice float64 `json:"gpu_hour_price,omitempty"`
	// GPUsPerReplica; 0 means 1, as the zero value of a Go struct.
	GPUsPerReplica float64 `json:"gpus_per_replica,omitempty"`
}

// maxReplicas is where a plan stops being one.
const maxReplicas = 1_000_000

// Plan is the outcome. Replicas are whole numbers.
type Plan struct {
	Schema   string   `json:"schema"`
	Capacity Capacity `json:"capacity"`
	Demand   Demand   `json:"demand"`
	// PlannedRate is the highest peak of the period: after growth, or today's where the demand shrinks.
	PlannedRate float64 `json:"planned_rate"`
	// UsableQPS of one replica is its Safe QPS less the headroom.
	UsableQPS float64 `json:"usable_qps"`
	// BySafeQPS replicas carry the planned rate; ByLittle do by concurrency, absent where it was not measured.
	BySafeQPS int  `json:"replicas_by_safe_qps"`
	ByLittle  *int `json:"replicas_by_little,omitempty"`
	// InFlight requests at the planned rate by Little's law, L = λ·W; absent without a mean E2E.
	InFlight *float64 `json:"in_flight,omitempty"`
	// Disagreement between MeanInFlight and SafeQPS × mean E2E, as a share of the latter. By Little's law it is 0
	// where the three are of the same requests: one in flight counts however it ended, and E2E is of whole answers.
	Disagreement *float64 `json:"disagreement,omitempty"`
	// Replicas is the greater of the two, and the spares.
	Replicas int `json:"replicas"`
	// LoadAtPeak is the share of the Safe QPS that each replica uses at the planned rate, LoadDegraded after the spares have
	// failed.
	LoadAtPeak   float64 `json:"load_at_peak"`
	LoadDegraded float64 `json:"load_degraded"`
	// MonthsLeft until growth has used the headroom up: the time from today until all replicas but the spares run at their
	// Safe QPS. Absent without growth.
	MonthsLeft *float64 `json:"months_left,omitempty"`

	GPUs       float64  `json:"gpus"`
	CostPerDay *float64 `json:"cost_per_day,omitempty"`
	// CostPerMillionOutputTokens and CostPerMillionTokens, prompt and output, at today's mean rate; absent where the price or
	// the tokens are not known.
	CostPerMillionOutputTokens *float64 `json:"cost_per_million_output_tokens,omitempty"`
	CostPerMillionTokens       *float64 `json:"cost_per_million_tokens,omitempty"`
	Notes                      []string `json:"notes,omitempty"`
}

// Validate reports every wrong field at once.
func (c Capacity) Validate() error {
	var errs []error
	positive := func(name string, v *float64) {
		if v != nil && (!(*v > 0) || !finite(*v)) {
			errs = append(errs, fmt.Errorf("plan: %s is %v, expected more than 0, or none", name, *v))
		}
	}
	if !(c.SafeQPS > 0) || !finite(c.SafeQPS) {
		errs = append(errs, fmt.Errorf("plan: safe_qps is %v, expected more than 0", c.SafeQPS))
	}
	positive("completed_rate", c.CompletedRate)
	positive("output_tokens_per_second", c.OutputTokensPerSecond)
	positive("prompt_tokens_per_second", c.PromptTokensPerSecond)
	positive("mean_in_flight", c.MeanInFlight)
	positive("mean_e2e_seconds", c.MeanE2ESeconds)
	return errors.Join(errs...)
}

// Validate reports every wrong field at once.
func (d Demand) Validate() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("plan: "+format, args...))
		}
	}
	need(d.PeakRate > 0 && finite(d.PeakRate), "peak rate is %v, expected more than 0", d.PeakRate)
	need(d.MeanRate >= 0 && finite(d.MeanRate), "mean rate is %v, expected more than 0, or 0 for the peak rate", d.MeanRate)
	need(d.MeanRate == 0 || !(d.MeanRate > d.PeakRate), "mean rate is %v, above the peak rate of %v", d.MeanRate, d.PeakRate)
	need(d.Headroom >= 0 && d.Headroom < 1, "headroom is %v, expected 0 up to below 1", d.Headroom)
	need(d.Growth > -1 && finite(d.Growth), "growth is %v a month, expected above -1", d.Growth)
	need(d.Months >= 0 && finite(d.Months), "months are %v, expected 0 or more", d.Months)
	need(d.Spares >= 0 && d.Spares <= maxReplicas, "spares are %d, expected 0 to %d", d.Spares, maxReplicas)
	need(d.GPUHourPrice >= 0 && finite(d.GPUHourPrice), "price is %v a GPU hour, expected 0 or more", d.GPUHourPrice)
	need(d.GPUsPerReplica >= 0 && finite(d.GPUsPerReplica), "GPUs per replica are %v, expected more than 0", d.GPUsPerReplica)
	return errors.Join(errs...)
}

// Make plans for a demand. The capacity and the demand must be of the same workload: a Safe QPS holds for nothing else.
func Make(c Capacity, d Demand) (*Plan, error) {
	if err := errors.Join(c.Validate(), d.Validate()); err != nil {
		return nil, err
	}
	if d.GPUsPerReplica == 0 {
		d.GPUsPerReplica = 1
	}
	p := &Plan{
		Schema: Schema, Capacity: c, Demand: d,
		PlannedRate: d.PeakRate * math.Max(1, math.Pow(1+d.Growth, d.Months)), UsableQPS: c.SafeQPS * (1 - d.Headroom),
	}
	var err error
	if p.BySafeQPS, err = whole(p.PlannedRate / p.UsableQPS); err != nil {
		return nil, fmt.Errorf("%w: a peak rate of %v with its growth, or safe_qps of %v, cannot be meant", err, d.PeakRate, c.SafeQPS)
	}
	if err := p.little(); err != nil {
		return nil, err
	}
	needed := p.BySafeQPS
	if p.ByLittle != nil {
		needed = max(needed, *p.ByLittle)
	}
	p.Replicas = needed + d.Spares
	p.LoadAtPeak = p.PlannedRate / (float64(p.Replicas) * c.SafeQPS)
	p.LoadDegraded = p.PlannedRate / (float64(needed) * c.SafeQPS)
	if d.Growth > 0 {
		months := math.Max(0, math.Log(float64(needed)*c.SafeQPS/d.PeakRate)/math.Log1p(d.Growth))
		if finite(months) { // a growth of next to nothing uses nothing up
			p.MonthsLeft = &months
		}
	}
	p.cost()
	p.notes()
	if err := p.checkFinite(); err != nil {
		return nil, err
	}
	return p, nil
}

// checkFinite names the inputs of a result that is no number: each input alone is one, together they are not.
func (p *Plan) checkFinite() error {
	var errs []error
	check := func(name string, v *float64, from string, args ...any) {
		if v != nil && !finite(*v) {
			errs = append(errs, fmt.Errorf("plan: %s is %v: "+from+" cannot be meant", append([]any{name, *v}, args...)...))
		}
	}
	c, d := p.Capacity, p.Demand
	check("the number of requests in flight", p.InFlight, "mean_e2e_seconds of %v at the planned rate of %v", show(c.MeanE2ESeconds), p.PlannedRate)
	check("the disagreement with Little's law", p.Disagreement, "mean_in_flight of %v with safe_qps of %v and mean_e2e_seconds of %v",
		show(c.MeanInFlight), c.SafeQPS, show(c.MeanE2ESeconds))
	check("the load at the peak", &p.LoadAtPeak, "safe_qps of %v for a peak rate of %v", c.SafeQPS, d.PeakRate)
	check("the load without the spares", &p.LoadDegraded, "safe_qps of %v for a peak rate of %v", c.SafeQPS, d.PeakRate)
	check("the number of GPUs", &p.GPUs, "GPUs per replica of %v", d.GPUsPerReplica)
	check("the cost per day", p.CostPerDay, "a price of %v a GPU hour for %v GPUs", d.GPUHourPrice, p.GPUs)
	const ofSales = "mean rate of %v, price of %v a GPU hour or output_tokens_per_second of %v"
	check("the cost per output token", p.CostPerMillionOutputTokens, ofSales, p.meanRate(), d.GPUHourPrice, show(c.OutputTokensPerSecond))
	check("the cost per token", p.CostPerMillionTokens, ofSales, p.meanRate(), d.GPUHourPrice, show(c.OutputTokensPerSecond))
	return errors.Join(errs...)
}

func show(v *float64) any {
	if v == nil {
		return "none"
	}
	return *v
}

func (p *Plan) meanRate() float64 {
	if p.Demand.MeanRate == 0 {
		return p.Demand.PeakRate
	}
	return p.Demand.MeanRate
}

// little sizes by concurrency: the planned rate puts L = λ·W requests in flight (Little, Operations Research 9, 1961), and
// a replica at its Safe QPS was seen to hold MeanInFlight of them.
func (p *Plan) little() error {
	c := p.Capacity
	if c.MeanE2ESeconds == nil {
		return nil
	}
	inFlight := p.PlannedRate * *c.MeanE2ESeconds
	p.InFlight = &inFlight
	if c.MeanInFlight == nil {
		return nil
	}
	replicas, err := whole(inFlight / (*c.MeanInFlight * (1 - p.Demand.Headroom)))
	if err != nil {
		return fmt.Errorf("%w by Little's law: mean_e2e_seconds of %v, or mean_in_flight of %v, cannot be meant", err, *c.MeanE2ESeconds,
			*c.MeanInFlight)
	}
	p.ByLittle = &replicas
	expected := c.SafeQPS * *c.MeanE2ESeconds
	disagreement := *c.MeanInFlight/expected - 1
	p.Disagreement = &disagreement
	return nil
}

// whole rounds up; a number that is whole but for the last bits stays as it is.
func whole(v float64) (int, error) {
	const rounding = 1e-9
	n := math.Max(1, math.Ceil(v*(1-rounding)))
	if !(n <= maxReplicas) {
		return 0, fmt.Errorf("plan: it takes %.3g replicas, more than %d", v, maxReplicas)
	}
	return int(n), nil
}

const (
	hoursPerDay   = 24
	secondsPerDay = 86_400
	million       = 1e6
)

func (p *Plan) cost() {
	p.GPUs = float64(p.Replicas) * p.Demand.GPUsPerReplica
	if p.Demand.GPUHourPrice == 0 {
		return
	}
	perDay := p.GPUs * p.Demand.GPUHourPrice * hoursPerDay
	p.CostPerDay = &perDay
	// Tokens per request are tokens over the requests that completed in the same phase: not over the rate that was asked
	// for, since in a short or an uneven phase another number of requests completes.
	requests := p.Capacity.SafeQPS
	if p.Capacity.CompletedRate != nil {
		requests = *p.Capacity.CompletedRate
	}
	perMillion := func(tokensPerSecond float64) *float64 {
		tokensPerDay := tokensPerSecond / requests * p.meanRate() * secondsPerDay
		cost := perDay / tokensPerDay * million
		return &cost
	}
	if output := p.Capacity.OutputTokensPerSecond; output != nil {
		p.CostPerMillionOutputTokens = perMillion(*output)
		if prompt := p.Capacity.PromptTokensPerSecond; prompt != nil {
			p.CostPerMillionTokens = perMillion(*output + *prompt)
		}
	}
}

// agreement is the disagreement with Little's law that measurement explains: requests in flight at the ends of the phase.
const agreement = 0.1

func (p *Plan) notes() {
	note := func(format string, args ...any) { p.Notes = append(p.Notes, fmt.Sprintf(format, args...)) }
	if !p.Capacity.Confirmed {
		note("the Safe QPS is a candidate that was not confirmed at the contract's full length")
	}
	for _, doubt := range p.Capacity.Doubts {
		note("the search says: %s", doubt)
	}
	switch {
	case p.ByLittle == nil:
		note("no check by Little's law: the mean E2E or the mean number in flight at the Safe QPS was not measured")
	case math.Abs(*p.Disagreement) > agreement:
		note("Little's law is off by %.0f %%: in flight at the Safe QPS was %.4g, rate times mean E2E is %.4g; they differ where "+
			"requests failed, were cut short or were tried again, where the phase is not many times as long as an answer, and where other "+
			"arrivals came than the rate says", 100**p.Disagreement, *p.Capacity.MeanInFlight,
			p.Capacity.SafeQPS**p.Capacity.MeanE2ESeconds)
	}
	if p.Demand.Spares == 0 {
		note("no spare: when a replica fails at the peak, the others run above what was planned for them")
	}
	if p.Demand.Growth < 0 && p.Demand.Months > 0 {
		note("the demand shrinks by %.3g %% a month: today's peak is the highest of the period, and is what was planned for",
			-100*p.Demand.Growth)
	}
	if p.CostPerMillionOutputTokens != nil && p.Capacity.CompletedRate == nil {
		note("the rate of completed requests at the Safe QPS was not measured: tokens per request are tokens per second over the " +
			"Safe QPS, which is off where the phase was short or uneven")
	}
	if p.Demand.GPUHourPrice > 0 && p.Demand.MeanRate == 0 {
		note("cost per token is at the peak rate around the clock; with the mean rate of a day it is higher")
	}
}
