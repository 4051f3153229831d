package contract

import (
	"fmt"
	"slices"
)

// Threshold is one k6 threshold, in the words of k6's options.
type Threshold struct {
	// Metric is the k6 metric with its tag filter: "llm_ttft{phase:steady,class:long}".
	Metric string `json:"metric"`
	// Expression is what k6 evaluates: "p(95)<=800". Times are milliseconds.
	Expression string `json:"threshold"`
	// AbortOnFail and DelayAbortEval are k6's options of the same name; DelayAbortEval is "" for none.
	AbortOnFail    bool   `json:"abortOnFail"`
	DelayAbortEval string `json:"delayAbortEval,omitempty"`
	// Guard is true for a threshold that only asks for data to have been seen: k6 lets a metric without
	// samples pass.
	Guard bool `json:"guard,omitempty"`
	// Sources are the names of the criteria and abort rules that the threshold comes from.
	Sources []string `json:"sources"`
	// Comment says in words what the threshold asks for.
	Comment string `json:"comment"`
}

// String is the threshold in one line: "llm_ttft{phase:steady} p(95)<=800".
func (t Threshold) String() string { return t.Metric + " " + t.Expression }

// Thresholds returns the k6 thresholds of a contract, in the order of its lines, each once. A line without
// an exact translation has none; Explanation says why and what judges it instead. A relative limit has
// none until Resolve gave it its value: see Contract.BaselineNames.
func Thresholds(c *Contract) []Threshold {
	var all []Threshold
	for _, criterion := range c.Criteria() {
		own, _ := criterionThresholds(criterion)
		for _, t := range own {
			all = addThreshold(all, t)
		}
	}
	for _, rule := range c.Abort {
		if t, reason := ruleThreshold(rule); reason == "" {
			all = addThreshold(all, t)
		}
	}
	return all
}

// addThreshold merges a threshold into those that exist: the same expression on the same metric is stated
// once, and aborts if any of its sources says so.
func addThreshold(all []Threshold, t Threshold) []Threshold {
	for i := range all {
		same := &all[i]
		if same.Metric != t.Metric || same.Expression != t.Expression {
			continue
		}
		if t.AbortOnFail {
			same.AbortOnFail, same.DelayAbortEval = true, t.DelayAbortEval
		}
		for _, source := range t.Sources {
			if !slices.Contains(same.Sources, source) {
				same.Sources = append(same.Sources, source)
			}
		}
		return all
	}
	return append(all, t)
}

// criterionThresholds returns the thresholds of one criterion, guards first. reason says why the criterion
// itself has none; guards may stand all the same.
func criterionThresholds(c Criterion) (thresholds []Threshold, reason string) {
	spec, _ := specOf(c.Metric)
	filter := tagFilter(c.Phase, c.Class)
	if c.Section != SectionClientHeadroom && spec.shape != shapeLevel {
		// A level can be judged without requests: a queue drains after the last one.
		thresholds = append(thresholds, Threshold{
			Metric: "llm_requests" + filter, Expression: "count>0", Guard: true, Sources: []string{c.Name},
			Comment: fmt.Sprintf("requests were seen in the %s", where(c.Phase, c.Class)),
		})
	}
	if reason = noThreshold(c, spec); reason != "" && reason != needsBaseline {
		return thresholds, reason
	}
	metric := spec.k6 + filter
	if spec.shape == shapeState {
		metric = spec.k6
	}
	if spec.shape == shapeTrend && spec.better == lower {
		thresholds = append(thresholds, Threshold{
			Metric: metric, Expression: "max>0", Guard: true, Sources: []string{c.Name},
			Comment: fmt.Sprintf("%s was measured in the %s", spec.name, where(c.Phase, c.Class)),
		})
	}
	if reason != "" {
		return thresholds, reason // that something was measured is asked for all the same
	}
	limit, _ := c.Limit.Value()
	return append(thresholds, Threshold{
		Metric: metric, Expression: expression(spec, c.Stat, c.Op, limit), Sources: []string{c.Name},
		Comment: c.Stat.of(spec) + " " + c.LimitText(),
	}), ""
}

const needsBaseline = "the limit needs a baseline"

// noThreshold says why a criterion cannot be a k6 threshold; "" when it can.
func noThreshold(c Criterion, spec metricSpec) string {
	switch {
	case spec.shape == shapeThroughput:
		return "k6 divides a counter by the length of the whole test, not of the phase"
	case spec.shape == shapeCount && c.Unit == UnitRatio:
		return "k6 cannot divide one counter by another"
	case spec.shape == shapeCount && c.Class != "":
		return "k6's own executors do not say which class a dropped arrival was of, and no data passes in k6"
	case spec.shape == shapeLevel:
		return "k6 judges a gauge by its last sample only"
	case spec.shape == shapeSingle:
		return "it is computed from the whole schedule after the run"
	case spec.name == "timer_delay":
		return "the monitor measures it beside the load, without a phase"
	case c.Limit.Absolute == nil:
		return needsBaseline
	default:
		return ""
	}
}

// ruleThreshold translates an abort rule; reason says why only the live monitor can keep it.
func ruleThreshold(r AbortRule) (t Threshold, reason string) {
	spec, _ := specOf(r.Metric)
	limit, known := r.Limit.Value()
	switch {
	case spec.shape == shapeThroughput:
		return t, "k6 divides a counter by the length of the whole test, not of the phase"
	case spec.shape == shapeCount && r.Unit == UnitRatio:
		return t, "k6 cannot divide one counter by another"
	case spec.shape == shapeLevel:
		return t, "the monitor reads the value and sees every sample"
	case spec.shape == shapeState && spec.k6 == "":
		return t, "no k6 metric carries it"
	case r.For > 0:
		return t, "k6 judges all data so far and knows no holding time"
	case !known:
		return t, needsBaseline
	}
	t = Threshold{AbortOnFail: true, Sources: []string{r.Name}}
	if r.After > 0 {
		t.DelayAbortEval = r.After.String()
	}
	if spec.shape == shapeState {
		t.Metric, t.Expression, t.Comment = spec.k6, stateExpression, "stop on "+spec.about
		return t, ""
	}
	t.Metric = spec.k6 + tagFilter(PhaseSteady, "")
	t.Expression = expression(spec, r.Stat, r.Op.negated(), limit)
	t.Comment = "stop on " + r.Stat.of(spec) + " " + r.LimitText()
	return t, ""
}

// stateExpression holds while a gauge of 0 and 1 is 0.
const stateExpression = "value<1"

// expression writes k6's "method op number" for the condition that must hold.
func expression(spec metricSpec, stat Stat, op Op, limit float64) string {
	var method string
	switch stat.Kind {
	case StatQuantile:
		method = "p(" + stat.percent() + ")"
	case StatMean, StatMin, StatMax:
		method = string(stat.Kind)
	case StatRate:
		method = "rate"
	case StatCount:
		method = "count"
	default:
		return stateExpression
	}
	if spec.name == "error_rate" { // k6 has the share of successes
		mirrored := map[Op]Op{OpLess: OpGreater, OpLessEqual: OpGreaterEqual, OpGreater: OpLess, OpGreaterEqual: OpLessEqual}
		if m, has := mirrored[op]; has {
			op = m
		}
		limit = roundDecimal(1 - limit)
	}
	return method + string(op) + formatNumber(limit)
}

func tagFilter(phase Phase, class string) string {
	filter := "phase:" + string(phase)
	if class != "" {
		filter += ",class:" + class
	}
	return "{" + filter + "}"
}

func where(phase Phase, class string) string {
	if class != "" {
		return fmt.Sprintf("%s phase, class %s", phase, class)
	}
	return string(phase) + " phase"
}

// of names the statistic of a metric in words.
func (s Stat) of(spec metricSpec) string {
	switch s.Kind {
	case StatQuantile:
		return spec.about + ", p" + s.percent()
	case StatMean, StatMin, StatMax:
		return spec.about + ", " + string(s.Kind)
	case StatEnd:
		return spec.about + ", at the end of the phase"
	default:
		return spec.about
	}
}
