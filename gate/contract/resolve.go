package contract

import (
	"fmt"
	"math"
	"slices"
)

// BaselineNames returns the names of the criteria and abort rules whose limits refer to a baseline and were
// not resolved yet, in the order of the contract. Each is a key that Resolve needs; none means that the
// contract is complete as it stands.
func (c *Contract) BaselineNames() []string {
	var names []string
	add := func(name string, limit Limit) {
		if limit.Absolute == nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, criterion := range c.Criteria() {
		add(criterion.Name, criterion.Limit)
	}
	for _, rule := range c.Abort {
		add(rule.baselineName(), rule.Limit)
	}
	return names
}

// baselineName is the gate criterion whose measured value an abort rule refers to: nothing was measured
// for the rule itself.
func (r AbortRule) baselineName() string {
	return r.Name[len(SectionAbort)+1:]
}

// Resolve returns a copy of the contract in which every relative limit has its absolute value: factor ×
// baseline + offset. baseline holds the measured values of the baseline run, by criterion name
// ("tpot_p95", "long/tpot_p95", "recovery.ttft_p95"), in the unit of the criterion; an abort rule refers
// to the gate's name ("ttft_p99" for abort.ttft_p99). The error is an Errors with every value that is
// missing or that gives an impossible limit. Limits that are absolute already stay as they are.
func (c *Contract) Resolve(baseline map[string]float64) (*Contract, error) {
	resolved := *c
	var problems Errors
	resolve := func(name, label string, op Op, limit *Limit, unit Unit, text string, pos Pos) {
		if limit.Absolute != nil {
			return
		}
		value, known := baseline[name]
		problem := Problem{File: c.File, Pos: pos, Key: label, Found: quote(text)}
		if !known {
			problem.Expected = fmt.Sprintf("the baseline to have a measured value for %s", name)
			problems = append(problems, problem)
			return
		}
		absolute := roundDecimal(limit.Relative.Factor*value + limit.Relative.Offset)
		if flaw := impossible(op, absolute, unit); flaw != "" {
			problem.Expected = fmt.Sprintf("a limit %s, which it is not with a baseline of %s", flaw, FormatQuantity(value, unit))
			problems = append(problems, problem)
			return
		}
		*limit = Limit{Absolute: &absolute, Relative: limit.Relative, Baseline: &value}
	}
	for _, part := range []*[]Criterion{&resolved.Gate, &resolved.Recovery, &resolved.ClientHeadroom} {
		*part = slices.Clone(*part)
		for i := range *part {
			criterion := &(*part)[i]
			resolve(criterion.Name, criterion.Name, criterion.Op, &criterion.Limit, criterion.Unit, criterion.Text, criterion.Pos)
		}
	}
	resolved.Abort = slices.Clone(c.Abort)
	for i := range resolved.Abort {
		rule := &resolved.Abort[i]
		resolve(rule.baselineName(), rule.Name, rule.Op, &rule.Limit, rule.Unit, rule.Text, rule.Pos)
	}
	if len(problems) > 0 {
		problems.sortByPosition()
		return nil, problems
	}
	return &resolved, nil
}

// Unresolved returns a copy of the contract in which the criteria with relative limits wait for a baseline again, so that
// Resolve can give them another one. Abort rules keep their values: a run was watched by them, and may have been stopped.
func (c *Contract) Unresolved() *Contract {
	open := *c
	for _, part := range []*[]Criterion{&open.Gate, &open.Recovery, &open.ClientHeadroom} {
		*part = slices.Clone(*part)
		for i := range *part {
			if limit := &(*part)[i].Limit; limit.Relative != nil {
				*limit = Limit{Relative: limit.Relative}
			}
		}
	}
	return &open
}

// impossible says what is wrong with a computed limit, "" when nothing is.
func impossible(op Op, limit float64, unit Unit) string {
	switch {
	case math.IsNaN(limit) || math.IsInf(limit, 0):
		return "that is a finite number"
	case limit < 0 || op == OpLess && limit == 0:
		return "that is not below what can be measured"
	case unit == UnitRatio && (limit > 1 || op == OpGreater && limit == 1):
		return "that is not above 100%"
	case unit == UnitMilliseconds && limit == 0:
		return "above 0"
	default:
		return ""
	}
}
