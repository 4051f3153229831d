package contract

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// condition is a parsed value such as "<= 800ms", "<= baseline + 10%" or "> 20% for 10s after 1m".
type condition struct {
	op           Op
	limit        Limit
	unit         Unit
	holds, after time.Duration
}

var (
	operatorForm = regexp.MustCompile(`^[^\p{L}\p{N}\s.+-]+`)
	timingForm   = regexp.MustCompile(`^(.*?)(?:\s+for\s+(\S+))?(?:\s+after\s+(\S+))?$`)
	baselineForm = regexp.MustCompile(`^baseline(?:\s*(\S)\s*(.*))?$`)
	quantityForm = regexp.MustCompile(`^([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*(\S*)$`)

	operatorSlips = map[string]string{"=<": "<=", "=>": ">=", "≤": "<=", "≥": ">=", "=": "==", "===": "=="}
)

// parseCondition parses a value of a criterion (bad false) or of an abort rule (bad true: the condition
// describes the bad state, and may end in "for <duration>" and "after <duration>").
func parseCondition(spec metricSpec, text string, bad bool) (condition, *fault) {
	var c condition
	symbol := operatorForm.FindString(text)
	rest := strings.TrimSpace(text[len(symbol):])
	switch op := Op(symbol); op {
	case OpLess, OpLessEqual, OpGreater, OpGreaterEqual, OpEqual:
		c.op = op
	default:
		if slip, known := operatorSlips[symbol]; known {
			return c, &fault{"the operator " + quote(symbol), fmt.Sprintf("one of <, <=, >, >=, ==; did you mean %s?", slip)}
		}
		return c, &fault{quote(text), "a comparison and a limit, as in " + quote(spec.exampleText(bad))}
	}
	if problem := c.parseTiming(&rest, bad); problem != nil {
		return c, problem
	}
	if problem := c.checkDirection(spec, text, bad); problem != nil {
		return c, problem
	}
	var problem *fault
	if c.limit, c.unit, problem = parseLimit(spec, c.op, rest, bad); problem != nil {
		return c, problem
	}
	return c, c.checkReachable(spec, text, bad)
}

func (c *condition) parseTiming(rest *string, bad bool) *fault {
	parts := timingForm.FindStringSubmatch(*rest)
	if parts == nil {
		return &fault{quote(*rest), "a limit on one line"}
	}
	if parts[2] == "" && parts[3] == "" {
		return nil
	}
	if !bad {
		return &fault{quote(*rest), `a limit alone: "for" and "after" belong to the rules of abort`}
	}
	for i, into := range []*time.Duration{&c.holds, &c.after} {
		if parts[i+2] == "" {
			continue
		}
		d, problem := parseDuration(parts[i+2])
		if problem != nil {
			return problem
		}
		if d == 0 {
			return &fault{quote(*rest), `a duration above 0 after "for" and "after"`}
		}
		*into = d
	}
	*rest = parts[1]
	return nil
}

func (c *condition) checkDirection(spec metricSpec, text string, bad bool) *fault {
	upper := c.op == OpLess || c.op == OpLessEqual
	wantUpper := (spec.better == lower) != bad
	if c.op != OpEqual && upper == wantUpper {
		return nil
	}
	if c.op == OpEqual && !bad && (spec.unit == UnitCount || spec.unit == UnitRatio) {
		return nil // checkReachable allows it at the metric's best value only
	}
	operators := "> or >="
	if wantUpper {
		operators = "< or <="
	}
	good := map[direction]string{lower: "lower", higher: "higher"}[spec.better]
	if bad {
		return &fault{quote(text), fmt.Sprintf(
			"%s: a rule of abort describes the bad state, and %s is better when it is %s", operators, spec.name, good)}
	}
	return &fault{quote(text), fmt.Sprintf("%s: %s is better when it is %s", operators, spec.name, good)}
}

// checkReachable refuses limits that no measurement can keep, or, for an abort rule, can reach.
func (c *condition) checkReachable(spec metricSpec, text string, bad bool) *fault {
	limit, known := c.limit.Value()
	if c.op == OpEqual {
		best := 0.0
		if spec.better == higher {
			best = 1
		}
		if !known || limit != best {
			return &fault{quote(text), fmt.Sprintf("== only at the best value of %s, %s", spec.name, FormatQuantity(best, c.unit))}
		}
		return nil
	}
	if !known {
		return nil
	}
	never := c.op == OpLess && limit <= 0 || c.op == OpGreater && c.unit == UnitRatio && limit >= 1 ||
		c.op == OpLessEqual && c.unit == UnitMilliseconds && limit <= 0
	always := c.op == OpGreaterEqual && limit <= 0 || c.op == OpLessEqual && c.unit == UnitRatio && limit >= 1
	switch {
	case never && bad:
		return &fault{quote(text), "a limit that can be crossed"}
	case never:
		return &fault{quote(text), "a limit that can be kept"}
	case always && bad:
		return &fault{quote(text), "a limit that is not crossed from the start"}
	default:
		return nil
	}
}

func parseLimit(spec metricSpec, op Op, text string, bad bool) (Limit, Unit, *fault) {
	parts := baselineForm.FindStringSubmatch(text)
	if parts == nil {
		value, unit, problem := parseQuantity(spec, text, bad)
		if problem != nil {
			return Limit{}, "", problem
		}
		return Limit{Absolute: &value}, unit, nil
	}
	relative := Relative{Factor: 1}
	sign, amount := parts[1], strings.TrimSpace(parts[2])
	if sign == "" {
		return Limit{Relative: &relative}, spec.unit, nil
	}
	expected := fmt.Sprintf(`"baseline", "baseline + 10%%" or "baseline + %s"`, spec.offsetExample())
	if sign == "±" && amount != "" {
		if op == OpEqual {
			return Limit{}, "", &fault{quote(string(op) + " " + text), fmt.Sprintf(
				"%s: %s is the room on the limit's side of the baseline, and == leaves none", spec.operators(), quote("± "+amount))}
		}
		sign = spec.worse()
	}
	if sign != "+" && sign != "-" || strings.HasPrefix(amount, "-") || strings.HasPrefix(amount, "+") {
		return Limit{}, "", &fault{quote(text), expected}
	}
	if percent, is := strings.CutSuffix(amount, "%"); is {
		share, err := strconv.ParseFloat(strings.TrimSpace(percent), 64)
		if err != nil || math.IsInf(share, 0) || math.IsNaN(share) {
			return Limit{}, "", &fault{quote(text), expected}
		}
		if sign == "-" && share >= 100 {
			return Limit{}, "", &fault{quote(text), "less than 100% to be taken off the baseline"}
		}
		relative.Factor = roundDecimal(1 + signed(sign, share)/100)
		return Limit{Relative: &relative}, spec.unit, nil
	}
	offset, unit, problem := parseQuantity(spec, amount, bad)
	if problem != nil {
		return Limit{}, "", &fault{quote(text), expected}
	}
	relative.Offset = signed(sign, offset)
	return Limit{Relative: &relative}, unit, nil
}

// worse is the sign of what makes a value of the metric worse.
func (s metricSpec) worse() string {
	if s.better == lower {
		return "+"
	}
	return "-"
}

// operators are those of a limit on the metric.
func (s metricSpec) operators() string {
	if s.better == lower {
		return "<= or <"
	}
	return ">= or >"
}

func signed(sign string, amount float64) float64 {
	if sign == "-" {
		return -amount
	}
	return amount
}

// parseQuantity parses a number with its unit and returns it in the unit that limits are kept in.
func parseQuantity(spec metricSpec, text string, bad bool) (float64, Unit, *fault) {
	expected := func(what string) *fault {
		return &fault{quote(text), what + ", as in " + quote(spec.exampleText(bad))}
	}
	parts := quantityForm.FindStringSubmatch(text)
	if parts == nil {
		return 0, "", expected("a number" + spec.unitHint())
	}
	number, err := strconv.ParseFloat(parts[1], 64)
	if err != nil || math.IsInf(number, 0) {
		return 0, "", expected("a number that is not out of range")
	}
	if number < 0 {
		return 0, "", expected("a number that is not negative")
	}
	suffix := parts[2]
	switch {
	case spec.unit == UnitMilliseconds:
		return parseTime(spec, text, number, suffix, expected)
	case spec.unit == UnitRatio || spec.name == "dropped" && suffix == "%":
		if suffix == "%" {
			number = roundDecimal(number / 100)
		} else if suffix != "" {
			return 0, "", expected("a share: a number from 0 to 1, or a percentage")
		}
		if number > 1 {
			return 0, "", expected("a share from 0 to 1, or from 0% to 100%")
		}
		return number, UnitRatio, nil
	case spec.unit == UnitTokensPerSecond && (suffix == "" || suffix == "tokens/s" || suffix == "tok/s"),
		spec.unit == UnitRequestsPerSecond && (suffix == "" || suffix == "requests/s" || suffix == "req/s"),
		spec.unit == UnitCount && suffix == "":
		return number, spec.unit, nil
	default:
		return 0, "", expected("a number" + spec.unitHint())
	}
}

func parseTime(spec metricSpec, text string, number float64, suffix string, expected func(string) *fault) (float64, Unit, *fault) {
	milliseconds, known := map[string]float64{"us": 1e-3, "µs": 1e-3, "μs": 1e-3, "ms": 1, "s": 1e3, "m": 60e3, "h": 3600e3}[suffix]
	if known {
		if value := number * milliseconds; !math.IsInf(value, 0) {
			return roundDecimal(value), UnitMilliseconds, nil
		}
		return 0, "", expected("a number that is not out of range")
	}
	if suffix == "" {
		return 0, "", expected("a time" + spec.unitHint())
	}
	whole, err := time.ParseDuration(strings.ReplaceAll(text, " ", "")) // 1m30s
	if err != nil {
		return 0, "", expected("a time" + spec.unitHint())
	}
	return roundDecimal(float64(whole) / float64(time.Millisecond)), UnitMilliseconds, nil
}

func (s metricSpec) unitHint() string {
	switch s.unit {
	case UnitMilliseconds:
		return " with a unit (us, ms, s, m, h)"
	case UnitRatio:
		return " from 0 to 1, or a percentage"
	case UnitTokensPerSecond:
		return ", alone or with tokens/s"
	case UnitRequestsPerSecond:
		return ", alone or with requests/s"
	default:
		if s.name == "dropped" {
			return " without a unit, or a percentage of the offered arrivals"
		}
		return " without a unit"
	}
}

// exampleText is a value that would be right for the metric.
func (s metricSpec) exampleText(bad bool) string {
	if upper := (s.better == lower) != bad; upper {
		return "<= " + s.example
	}
	return ">= " + s.example
}

func (s metricSpec) offsetExample() string {
	switch s.unit {
	case UnitMilliseconds:
		return "50ms"
	case UnitRatio:
		return "0.01"
	default:
		return "1"
	}
}

// parseDuration parses a length of time that is not negative: 10s, 2m, 1h30m.
func parseDuration(text string) (time.Duration, *fault) {
	d, err := time.ParseDuration(strings.TrimSpace(text))
	if err != nil || d < 0 {
		return 0, &fault{quote(text), "a duration such as 500ms, 10s, 2m or 1h30m"}
	}
	return d, nil
}

// parseConfidence parses a probability above one half and below one: 0.95 or 95%.
func parseConfidence(text string) (float64, *fault) {
	number, isPercent := strings.CutSuffix(strings.TrimSpace(text), "%")
	value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err == nil && isPercent {
		value = roundDecimal(value / 100)
	}
	if errors.Is(err, strconv.ErrSyntax) || math.IsNaN(value) || value <= 0.5 || value >= 1 {
		return 0, &fault{quote(text), "a number above 0.5 and below 1, as in 0.95"}
	}
	return value, nil
}
