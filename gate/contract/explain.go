package contract

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Judge is who decides on a line of the contract.
type Judge string

// The judges of a contract's lines.
const (
	JudgeThreshold Judge = "k6 threshold"
	JudgeMonitor   Judge = "live monitor"
	JudgeVerdict   Judge = "verdict"
	// JudgeOutput is --out llm=DIR, which sees every request.
	JudgeOutput Judge = "output llm"
	// JudgeNobody is for an abort rule that nothing can watch.
	JudgeNobody Judge = "nobody"
)

// Explanation is what a contract means, line by line.
type Explanation struct {
	File       string  `json:"file"`
	Confidence float64 `json:"confidence"`
	Phases     Phases  `json:"phases"`
	Baseline   string  `json:"baseline,omitempty"`
	// BaselineNames are the values that the baseline has to supply before the contract is complete.
	BaselineNames []string `json:"baseline_names,omitempty"`
	Lines         []Line   `json:"lines"`
	// RequestsNeeded is the largest number that a criterion on all requests of the steady phase needs to
	// be able to pass; 0 when none needs a number.
	RequestsNeeded int `json:"requests_needed,omitempty"`
}

// Line is one criterion or abort rule, explained.
type Line struct {
	Section   Section `json:"section"`
	Name      string  `json:"name"`
	Condition string  `json:"condition"`
	Meaning   string  `json:"meaning"`
	Default   bool    `json:"default,omitempty"`
	Pos       Pos     `json:"pos"`
	// Thresholds are the k6 thresholds of the line, guards included.
	Thresholds []Threshold `json:"thresholds,omitempty"`
	JudgedBy   []Judge     `json:"judged_by"`
	// Note says why there is no threshold, or what else a reader must know.
	Note string `json:"note,omitempty"`
	// Evidence is set where the verdict tests a share of requests or samples.
	Evidence *Evidence `json:"evidence,omitempty"`
}

// Evidence is the least that a line needs to be able to pass.
type Evidence struct {
	// Share is the share of good ones that has to be shown.
	Share float64 `json:"share"`
	// Needed is how many are needed if not one is bad (see RequestsNeeded); 0 when no number suffices.
	Needed int `json:"needed"`
	// Of is what is counted: "requests", "token gaps", "arrivals".
	Of string `json:"of"`
}

// Describe explains a contract.
func Describe(c *Contract) Explanation {
	e := Explanation{
		File: c.File, Confidence: c.Confidence, Phases: c.Phases, Baseline: c.Baseline,
		BaselineNames: c.BaselineNames(),
	}
	merged := Thresholds(c)
	for _, criterion := range c.Criteria() {
		line := describeCriterion(criterion, c, thresholdsOf(merged, criterion.Name))
		e.Lines = append(e.Lines, line)
		if criterion.Section == SectionGate && criterion.Class == "" && line.Evidence != nil && line.Evidence.Of == ofRequests {
			e.RequestsNeeded = max(e.RequestsNeeded, line.Evidence.Needed)
		}
	}
	for _, rule := range c.Abort {
		e.Lines = append(e.Lines, describeRule(rule, c, thresholdsOf(merged, rule.Name)))
	}
	for _, u := range c.Unwatched() {
		for i := range e.Lines {
			if e.Lines[i].Name == u.Rule.Name {
				e.Lines[i].JudgedBy, e.Lines[i].Note = []Judge{JudgeNobody}, u.Why
			}
		}
	}
	if health, derived := c.Health(); derived {
		for i := range e.Lines {
			if e.Lines[i].Name == "abort.unhealthy" {
				e.Lines[i].Note = joinNotes(e.Lines[i].Note, "without server.health_url it asks "+strings.Join(health, ", ")+
					", and watches from the first good answer on")
			}
		}
	}
	return e
}

const (
	ofRequests = "requests"
	ofGaps     = "token gaps"
	ofArrivals = "arrivals"
)

func thresholdsOf(all []Threshold, name string) []Threshold {
	var own []Threshold
	for _, t := range all {
		if slices.Contains(t.Sources, name) {
			own = append(own, t)
		}
	}
	return own
}

func describeCriterion(c Criterion, in *Contract, thresholds []Threshold) Line {
	spec, _ := specOf(c.Metric)
	line := Line{
		Section: c.Section, Name: c.Name, Condition: c.LimitText(), Meaning: c.Stat.of(spec),
		Default: c.Default, Pos: c.Pos, Thresholds: thresholds,
	}
	_, reason := criterionThresholds(c)
	if reason == "" {
		line.JudgedBy = append(line.JudgedBy, JudgeThreshold)
	} else {
		line.Note = "no k6 threshold: " + reason
	}
	if spec.shape == shapeState {
		line.JudgedBy = append(line.JudgedBy, JudgeMonitor)
		line.Note = "without a monitor nothing is seen, and k6 passes; the verdict does not"
	}
	line.JudgedBy = append(line.JudgedBy, JudgeVerdict)
	if c.Metric == "goodput" && in.RequestSLO == nil {
		line.Note = joinNotes(line.Note, "the contract has no request_slo: without one in the script, nothing is counted, and k6 passes; the verdict does not")
	}
	if q, ok := c.EvidenceQuantile(); ok {
		needed, _ := RequestsNeeded(q, in.Confidence)
		line.Evidence = &Evidence{Share: q, Needed: needed, Of: ofRequests}
		switch c.Metric {
		case "itl":
			line.Evidence.Of = ofGaps
		case "schedule_delay":
			line.Evidence.Of = ofArrivals
		case "cpu", "memory", "open_files", "timer_delay", "queue_depth", "running", "in_flight", "kv_cache_usage":
			line.Evidence = nil // samples in time are no independent trials
		}
	}
	return line
}

func joinNotes(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

func describeRule(r AbortRule, in *Contract, thresholds []Threshold) Line {
	spec, _ := specOf(r.Metric)
	line := Line{
		Section: SectionAbort, Name: r.Name, Condition: r.LimitText(), Meaning: "stop on: " + r.Stat.of(spec),
		Pos: r.Pos, Thresholds: thresholds,
	}
	_, reason := ruleThreshold(r)
	switch {
	case r.Metric == string(SectionClientHeadroom):
		line.JudgedBy = []Judge{JudgeMonitor, JudgeOutput}
	case spec.shape == shapeState || spec.shape == shapeLevel:
		line.JudgedBy = []Judge{JudgeMonitor}
	default:
		line.JudgedBy = []Judge{JudgeOutput}
	}
	if reason == "" {
		line.JudgedBy = append(line.JudgedBy, JudgeThreshold)
	} else {
		line.Note = "no k6 threshold: " + reason
	}
	if r.Metric == "goodput" && in.RequestSLO == nil {
		line.Note = joinNotes(line.Note, "the contract has no request_slo: without one in the script, nothing is counted")
	}
	return line
}

// ExplainJSON writes the explanation of a contract as JSON.
func ExplainJSON(w io.Writer, c *Contract) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(Describe(c)); err != nil {
		return fmt.Errorf("write the explanation of %s: %w", c.File, err)
	}
	return nil
}

// Explain writes, for people, what each line of the contract becomes, who judges it, and how many requests
// it needs at least to be able to pass.
func Explain(w io.Writer, c *Contract) error {
	e := Describe(c)
	var out strings.Builder
	e.writeHead(&out)
	section, shown := Section(""), map[string]bool{}
	for _, line := range e.Lines {
		if line.Section != section {
			section = line.Section
			fmt.Fprintf(&out, "\n%s\n", section)
		}
		writeLine(&out, line, shown)
	}
	e.writeFoot(&out)
	if _, err := io.WriteString(w, out.String()); err != nil {
		return fmt.Errorf("write the explanation of %s: %w", c.File, err)
	}
	return nil
}

func (e Explanation) writeHead(out *strings.Builder) {
	note := ""
	if e.Phases.Default {
		note = " (defaults)"
	}
	fmt.Fprintf(out, "%s: confidence %s%%; warmup %s, steady %s, recovery %s%s\n", e.File,
		formatNumber(roundDecimal(e.Confidence*100)), e.Phases.Warmup, e.Phases.Steady, e.Phases.Recovery, note)
}

// writeLine writes one line of the contract. shown holds the guards that were written already: one guard
// serves many lines.
func writeLine(out *strings.Builder, line Line, shown map[string]bool) {
	place := "default"
	if !line.Default {
		place = fmt.Sprintf("line %d", line.Pos.Line)
	}
	fmt.Fprintf(out, "  %s  %s  (%s)\n", line.Name, line.Condition, place)
	fmt.Fprintf(out, "      meaning    %s\n", line.Meaning)
	for _, t := range line.Thresholds {
		word := "threshold"
		if t.Guard {
			if shown[t.Metric+t.Expression] {
				continue
			}
			word, shown[t.Metric+t.Expression] = "guard    ", true
		}
		fmt.Fprintf(out, "      %s  %s: %s%s\n", word, t.Metric, t.Expression, t.abortWords())
	}
	judges := make([]string, len(line.JudgedBy))
	for i, judge := range line.JudgedBy {
		judges[i] = string(judge)
	}
	fmt.Fprintf(out, "      judged by  %s\n", strings.Join(judges, ", "))
	if line.Evidence != nil {
		fmt.Fprintf(out, "      evidence   %s\n", line.Evidence.words())
	}
	if line.Note != "" {
		fmt.Fprintf(out, "      note       %s\n", line.Note)
	}
}

func (t Threshold) abortWords() string {
	switch {
	case !t.AbortOnFail:
		return ""
	case t.DelayAbortEval == "":
		return "  abortOnFail"
	default:
		return "  abortOnFail, delayAbortEval " + t.DelayAbortEval
	}
}

func (e Evidence) words() string {
	if e.Needed == 0 {
		return "no number of " + e.Of + " shows a share of 100%; == asks for what was observed instead"
	}
	return fmt.Sprintf("at least %d %s, not one of them bad", e.Needed, e.Of)
}

func (e Explanation) writeFoot(out *strings.Builder) {
	if e.RequestsNeeded > 0 && e.Phases.Steady > 0 {
		seconds := time.Duration(e.Phases.Steady).Seconds()
		fmt.Fprintf(out, "\nTo be able to pass, the steady phase needs at least %d requests: %.3g requests/s over %s.\n",
			e.RequestsNeeded, float64(e.RequestsNeeded)/seconds, e.Phases.Steady)
	}
	if len(e.BaselineNames) > 0 {
		source := "a baseline, which the contract does not name"
		if e.Baseline != "" {
			source = "the baseline " + e.Baseline
		}
		fmt.Fprintf(out, "\nNot complete: %s has to supply %s.\n", source, strings.Join(e.BaselineNames, ", "))
	}
}
