package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Decode reads a contract that Marshal wrote, as run.json holds it, and checks it: a file can have been changed since, and
// what is no contract of Load's must not be judged by. The error names the first place that is wrong.
func Decode(data []byte) (*Contract, error) {
	var c Contract
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, err //nolint:wrapcheck // the caller names the file
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	return &c, nil
}

func (c *Contract) check() error {
	if !(c.Confidence > 0.5 && c.Confidence < 1) {
		return fmt.Errorf("confidence: got %v, expected a number above 0.5 and below 1", c.Confidence)
	}
	if len(c.Gate) == 0 {
		return errors.New("capacity_gate: got no criterion, expected at least one")
	}
	seen := map[string]bool{}
	once := func(name string) error {
		if name == "" {
			return errors.New("name: got nothing, expected a name")
		}
		if seen[name] {
			return errors.New("name: got it a second time, expected each once")
		}
		seen[name] = true
		return nil
	}
	for _, part := range []struct {
		section  Section
		criteria []Criterion
	}{{SectionGate, c.Gate}, {SectionRecovery, c.Recovery}, {SectionClientHeadroom, c.ClientHeadroom}} {
		for i := range part.criteria {
			criterion := &part.criteria[i]
			err := once(criterion.Name)
			if err == nil {
				err = criterion.check(part.section)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", placeOf(part.section, i, criterion.Name), err)
			}
		}
	}
	for i := range c.Abort {
		rule := &c.Abort[i]
		err := once(rule.Name)
		if err == nil {
			err = rule.check()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", placeOf(SectionAbort, i, rule.Name), err)
		}
	}
	return errors.Join(c.checkTimes(), c.RequestSLO.check())
}

func placeOf(section Section, i int, name string) string {
	if name == "" {
		return fmt.Sprintf("%s[%d]", section, i)
	}
	return fmt.Sprintf("%s[%d] (%s)", section, i, name)
}

func (c *Contract) checkTimes() error {
	times := []namedTime{
		{"phases: warmup", c.Phases.Warmup}, {"phases: steady", c.Phases.Steady}, {"phases: recovery", c.Phases.Recovery},
	}
	if c.Server != nil {
		times = append(times, namedTime{"server: interval", c.Server.Interval})
	}
	return notNegative(times...)
}

type namedTime struct {
	name  string
	value Duration
}

func notNegative(times ...namedTime) error {
	for _, t := range times {
		if t.value < 0 {
			return fmt.Errorf("%s: got %s, expected a time that is not negative", t.name, t.value)
		}
	}
	return nil
}

func (s *RequestSLO) check() error {
	if s == nil {
		return nil
	}
	for _, limit := range []struct {
		name  string
		value *float64
	}{{"ttft", s.TTFT}, {"tpot", s.TPOT}, {"itl", s.ITL}, {"e2e", s.E2E}} {
		if limit.value != nil && *limit.value <= 0 {
			return fmt.Errorf("request_slo: %s: got %v, expected a time above 0", limit.name, *limit.value)
		}
	}
	return nil
}

// check holds a criterion to what its name says, which is the key that it had in the file.
func (c *Criterion) check(section Section) error {
	phase := PhaseSteady
	if section == SectionRecovery {
		phase = PhaseRecovery
	}
	switch {
	case c.Section != section:
		return fmt.Errorf("section: got %q, expected %s", c.Section, section)
	case c.Phase != phase:
		return fmt.Errorf("phase: got %q, expected %s", c.Phase, phase)
	case c.Class != "" && (section != SectionGate || strings.ContainsFunc(c.Class, breaksTagFilter)):
		return fmt.Errorf("class: got %q, expected one that k6 can filter by, in capacity_gate", c.Class)
	}
	spec, err := specOfName(section, c.Class, c.Name, c.Metric, c.Stat)
	if err != nil {
		return err
	}
	if spec.shape == shapeState {
		return checkState(c.Op, c.Limit, c.Unit, 0)
	}
	return spec.checkLimit(c.Op, c.Limit, c.Unit, false)
}

func (r *AbortRule) check() error {
	spec, err := specOfName(SectionAbort, "", r.Name, r.Metric, r.Stat)
	if err != nil {
		return err
	}
	if err := notNegative(namedTime{"for", r.For}, namedTime{"after", r.After}); err != nil {
		return err
	}
	if spec.shape == shapeState {
		return checkState(r.Op, r.Limit, r.Unit, 1)
	}
	return spec.checkLimit(r.Op, r.Limit, r.Unit, true)
}

// specOfName is the metric that a name is about, which has to be the one that is stated beside it, with its statistic.
func specOfName(section Section, class, name, metric string, stat Stat) (metricSpec, error) {
	prefix := criterionName(section, class, "")
	key, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return metricSpec{}, fmt.Errorf("name: got %q, expected one that begins with %q", name, prefix)
	}
	spec, named, canonical, problem := parseKey(section, key)
	switch {
	case problem != nil:
		return spec, fmt.Errorf("name: got %s, expected %s", problem.found, problem.expected)
	case key != canonical:
		return spec, fmt.Errorf("name: got %q, expected %q", name, prefix+canonical)
	case metric != spec.name:
		return spec, fmt.Errorf("metric: got %q, expected %s, as its name says", metric, spec.name)
	case stat != named:
		return spec, fmt.Errorf("stat: got %s, expected %s, as its name says", stat.words(), named.words())
	}
	return spec, nil
}

func (s Stat) words() string {
	if s.Kind == StatQuantile || s.Quantile != 0 {
		return fmt.Sprintf("%s %v", s.Kind, s.Quantile)
	}
	return string(s.Kind)
}

func checkState(op Op, limit Limit, unit Unit, want float64) error {
	value, known := limit.Value()
	if op != OpEqual || unit != UnitState || !known || value != want || limit.Relative != nil {
		return fmt.Errorf("limit: got %s %s (%s), expected == %v (%s)", op, limit.number(), unit, want, UnitState)
	}
	return nil
}

func (l Limit) number() string {
	if l.Absolute == nil {
		return "none"
	}
	return formatNumber(*l.Absolute)
}

// checkLimit holds a limit to what Load lets through.
func (s metricSpec) checkLimit(op Op, limit Limit, unit Unit, bad bool) error {
	if unit != s.unit && (s.name != "dropped" || unit != UnitRatio) {
		return fmt.Errorf("unit: got %q, expected %s", unit, s.unit)
	}
	stated := condition{op: op, limit: limit, unit: unit}
	switch op {
	case OpLess, OpLessEqual, OpGreater, OpGreaterEqual, OpEqual:
	default:
		return fmt.Errorf("op: got %q, expected %s", op, s.operatorsWhere(bad))
	}
	if problem := stated.checkDirection(s, string(op), bad); problem != nil {
		return fmt.Errorf("op: got %q, expected %s", op, s.operatorsWhere(bad))
	}
	if r := limit.Relative; r != nil && (!finite(r.Factor) || !finite(r.Offset) || r.Factor <= 0) {
		return fmt.Errorf("limit: got %v times the baseline, expected a factor above 0", r.Factor)
	}
	switch {
	case limit.Absolute == nil && limit.Relative == nil:
		return errors.New("limit: got none, expected a number, or one against a baseline")
	case limit.Absolute == nil:
		return nil
	}
	absolute := *limit.Absolute
	if !finite(absolute) || absolute < 0 || unit == UnitRatio && absolute > 1 {
		return fmt.Errorf("limit: got %v, expected a number that is not negative, and of a share at most 1", absolute)
	}
	if limit.Relative != nil { // Resolve has its own bounds
		if flaw := impossible(op, absolute, unit); flaw != "" {
			return fmt.Errorf("limit: got %v, expected one %s", absolute, flaw)
		}
		return nil
	}
	if problem := stated.checkReachable(s, string(op)+" "+FormatQuantity(absolute, unit), bad); problem != nil {
		return fmt.Errorf("limit: got %s, expected %s", problem.found, problem.expected)
	}
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// operatorsWhere are those of a limit, or of the rule of a bad state.
func (s metricSpec) operatorsWhere(bad bool) string {
	if (s.better == lower) != bad {
		return "< or <="
	}
	return "> or >="
}
