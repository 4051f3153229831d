package report

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

//go:embed html_assets
var assets embed.FS

// HTML writes the report as one page that needs nothing else: it holds its styles, its scripts, uPlot and its data, and
// its content security policy forbids it to load anything or to run any other script.
func HTML(w io.Writer, in Input) error {
	page, err := newPage(in)
	if err != nil {
		return err
	}
	var b bytes.Buffer // so that an error leaves no half of a page
	if err := pageTemplate.Execute(&b, page); err != nil {
		return fmt.Errorf("report: html: %w", err)
	}
	if _, err := b.WriteTo(w); err != nil {
		return fmt.Errorf("report: html: %w", err)
	}
	return nil
}

var pageTemplate = template.Must(template.New("report.html.tmpl").Funcs(template.FuncMap{
	"count": grouped, "quantity": quantityOf, "quantiles": quantile,
	"percent": func(v *float64) string { return quantityOf(v, string(contract.UnitRatio)) },
	"rate":    func(v *float64) string { return quantityOf(v, "") },
	"group":   func(title, key string, groups []Group) groupTable { return groupTable{title, key, groups} },
	"metrics": metricsOf, "breakable": breakable,
	"when": when, "named": func(name string) string { return cmp.Or(name, scriptsOwn) },
}).ParseFS(assets, "html_assets/report.html.tmpl"))

// breakable cuts a name where a line may break.
func breakable(name string) []string {
	var parts []string
	for name != "" {
		at := strings.IndexAny(name, "._/-") + 1
		if at == 0 {
			at = len(name)
		}
		parts, name = append(parts, name[:at]), name[at:]
	}
	return parts
}

// groupTable is a table of groups with its headings.
type groupTable struct {
	Title, Key string
	Groups     []Group
}

type namedQuantiles struct {
	Name string
	Q    *verdict.Quantiles
}

// metricsOf are a phase's latencies in the order in which they are shown; a phase without any still has its line.
func metricsOf(p verdict.Phase) []namedQuantiles {
	var out []namedQuantiles
	for _, name := range shownMetrics {
		if q, ok := p.Metrics[name]; ok {
			out = append(out, namedQuantiles{name, &q})
		}
	}
	if len(out) == 0 {
		out = []namedQuantiles{{notMeasured, nil}}
	}
	return out
}

const notMeasured = "not measured"

func quantityOf(v *float64, unit string) string {
	if v == nil {
		return notMeasured
	}
	return brief(*v, unit)
}

// brief writes three significant digits, and the unit after a space. Criteria have four, as everywhere else.
func brief(v float64, unit string) string {
	switch contract.Unit(unit) {
	case contract.UnitMilliseconds:
		if math.Abs(v) >= 1000 {
			return threeDigits(v/1000) + " s"
		}
		return threeDigits(v) + " ms"
	case contract.UnitRatio:
		return threeDigits(100*v) + "%"
	default:
		return threeDigits(v)
	}
}

// beyondDigits says that a number is so large or so small that it is legible with an exponent only. A whole one up to the
// bound is exact, and fits into an int64.
func beyondDigits(v float64) bool {
	const large, small = 1e15, 1e-9
	return v != 0 && !(math.Abs(v) < large && math.Abs(v) >= small)
}

func threeDigits(v float64) string {
	switch {
	case v == 0:
		return "0"
	case beyondDigits(v):
		return strconv.FormatFloat(v, 'g', 3, 64)
	case math.Abs(v) >= 1000:
		return grouped(int64(math.Round(v)))
	}
	decimals := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

func quantile(q *verdict.Quantiles, p string) string {
	if q == nil {
		return notMeasured
	}
	value := map[string]float64{"p50": q.P50, "p95": q.P95, "p99": q.P99, "mean": q.Mean, "max": q.Max}[p]
	return brief(value, string(contract.UnitMilliseconds))
}

// grouped writes a count with commas between the thousands.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// badge is a verdict for the eye: never by colour alone.
type badge struct{ Word, Symbol, Class string }

const notJudged = "NOT JUDGED"

func statusView(s verdict.Status) badge {
	switch s {
	case verdict.Pass:
		return badge{string(s), "✓", "pass"}
	case verdict.Fail:
		return badge{string(s), "✕", "fail"}
	case verdict.Inconclusive:
		return badge{string(s), "?", "inconclusive"}
	case verdict.Invalid:
		return badge{string(s), "!", "invalid"}
	default:
		return badge{notJudged, "–", "none"}
	}
}

// page is what the template shows.
type page struct {
	Title     string
	Generated time.Time
	Policy    string
	UPlotCSS  template.CSS
	CSS       template.CSS
	UPlot     template.JS
	Script    template.JS
	Licence   string
	Data      json.RawMessage
	Capacity  []Capacity
	Holds     []holds // what Capacity holds for
	Runs      []runView
	Curves    []curve
	Findings  []finding
	Single    bool // one run
	// What holds for all of several runs: when, in which configuration, on which conditions.
	First, Last time.Time
	Decision    []keyValue
	Labels      []string
	Rates       *ratesView
}

// ratesView is the part about rates: nil where there is only one.
type ratesView struct {
	Runs   []runView
	Single bool
	Safe   bool // a search found a safe rate: it is in the charts
	Judged bool // some point has a verdict
	Cut    bool // some point is of survivors
}

// runView is one run for the template.
type runView struct {
	*Run
	ID       string
	Only     bool       // there is no other run
	Rates    *ratesView // of the only run
	Badge    badge
	Lead     string
	Part     string
	Criteria []criterionView
	// Confidence is that of the verdict.
	Confidence *float64
	Tiles      []tile
	Labels     []string
	Warnings   []string
	Points     []pointView
	Decision   []keyValue
	Facts      []keyValue
	Contract   string
	Options    string
	Errors     []keyValue
	Elapsed    string
	Ledger     []keyValue
}

type criterionView struct {
	Name, Limit, Measured, Evidence, Note string
	Badge                                 badge
	// Used is how much of the limit was used, for limits that bound from above.
	Used    string
	UsedBar float64 // 0 to 100, in the bar's own units
	HasUsed bool
	Missing bool
}

type tile struct {
	Name, Value, Note string
	Missing           bool
}

type keyValue struct{ Key, Value string }

type pointView struct {
	Point
	Run     string
	RunID   string
	Arrival string
	Badge   badge
	Because string   // of the verdict on a step
	Asked   *float64 // the mean rate of the trace, where it is the only one
}

// curve is one arrival process (of one workload): the points of all its runs by rate.
type curve struct {
	Label  string      `json:"label"`
	Points []curveView `json:"points"`

	workload, arrival string
	search            [2]string // workload and arrival process that it was asked for
}

type curveView struct {
	Run     string `json:"run"`
	Verdict string `json:"verdict,omitempty"`
	Point

	breaks string // the criteria that failed
}

// finding sums up a curve in words.
type finding struct {
	Curve   string
	Passed  *float64 // the highest rate that passed
	Failed  *float64 // the lowest one that failed
	Open    int      // runs that were neither
	Breaks  string   // criteria that failed at Failed
	Swapped bool     // some rate passed above one that failed
}

func newPage(in Input) (*page, error) {
	if len(in.Runs) == 0 {
		return nil, fmt.Errorf("report: there is no run to show")
	}
	p := &page{Title: in.Title, Generated: in.Generated, Capacity: in.Capacity, Holds: holdsFor(in.Capacity), Single: len(in.Runs) == 1}
	for i := range in.Runs {
		p.Runs = append(p.Runs, viewOf(&in.Runs[i], i))
		p.Runs[i].Only = p.Single
	}
	p.Curves = curvesOf(in.Runs)
	p.rates()
	if !p.Single {
		p.Findings = findingsOf(p.Curves)
		p.common(in.Runs)
	}
	if p.Title == "" {
		p.Title = titleOf(in)
	}
	if err := p.load(in); err != nil {
		return nil, err
	}
	return p, nil
}

// common gathers what holds for all runs: the decision only where it is the same, the labels of any.
func (p *page) common(runs []Run) {
	same := true
	for i := range runs {
		started := runs[i].Info.Started
		if p.First.IsZero() || started.Before(p.First) {
			p.First = started
		}
		if started.After(p.Last) {
			p.Last = started
		}
		same = same && slices.Equal(p.Runs[i].Decision, p.Runs[0].Decision)
		p.Labels = append(p.Labels, p.Runs[i].Labels...)
	}
	p.Labels = JoinLabels(p.Labels)
	p.Decision = p.Runs[0].Decision
	if !same {
		p.Decision = []keyValue{{"", "differs from run to run"}}
	}
}

// rates puts the part about rates where it belongs: before the runs, or after the verdict of the only one.
func (p *page) rates() {
	points := 0
	for _, c := range p.Curves {
		points += len(c.Points)
	}
	if points < 2 {
		return
	}
	view := &ratesView{Runs: p.Runs, Single: p.Single}
	view.Judged = slices.ContainsFunc(p.Curves, func(c curve) bool {
		return slices.ContainsFunc(c.Points, func(v curveView) bool { return v.Verdict != "" })
	})
	view.Safe = slices.ContainsFunc(p.Capacity, func(c Capacity) bool { return c.SafeQPS != nil })
	for i := range p.Runs {
		view.Cut = view.Cut || slices.ContainsFunc(p.Runs[i].Points, func(v pointView) bool { return v.Survivors() })
	}
	if !p.Single {
		p.Rates = view
		return
	}
	// A copy, so that the view of the run does not hold itself.
	view.Runs = slices.Clone(p.Runs)
	p.Runs[0].Rates = view
}

func titleOf(in Input) string {
	workloads := make(map[string]bool)
	for i := range in.Runs {
		workloads[in.Runs[i].Info.Workload] = true
	}
	if first := in.Runs[0].Info.Workload; len(workloads) == 1 && first != "" {
		return first
	}
	if len(in.Runs) == 1 {
		return in.Runs[0].Name
	}
	return fmt.Sprintf("%d runs", len(in.Runs))
}

// load adds the scripts, the styles, the data and the policy that fits them.
func (p *page) load(in Input) error {
	read := func(name string) string {
		content, readErr := assets.ReadFile("html_assets/" + name)
		if readErr != nil {
			panic(readErr) // the files are embedded: this cannot happen in a program that was built
		}
		return string(content)
	}
	// These come from the binary, not from the run.
	p.UPlotCSS = template.CSS(read("uPlot.min.css")) // #nosec G203 -- see above
	p.CSS = template.CSS(read("report.css"))         // #nosec G203 -- see above
	p.UPlot = template.JS(read("uPlot.iife.min.js")) // #nosec G203 -- see above
	p.Script = template.JS(read("report.js"))        // #nosec G203 -- see above
	p.Licence = "uPlot\n\n" + read("uPlot.LICENSE")
	p.Policy = "default-src 'none'; base-uri 'none'; form-action 'none'; " +
		"script-src " + source(string(p.UPlot)) + " " + source(string(p.Script)) + "; " +
		"style-src " + source(string(p.UPlotCSS)) + " " + source(string(p.CSS))
	data, err := json.Marshal(chartData(in, p.Curves))
	if err != nil {
		return fmt.Errorf("report: html: %w", err)
	}
	p.Data = data
	return nil
}

// source is a source expression of a content security policy that allows this text alone.
func source(text string) string {
	digest := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) + "'"
}

// chartData is what the page's script draws. Tables are in the page itself.
func chartData(in Input, curves []curve) any {
	type run struct {
		Name         string             `json:"name"`
		Limits       map[string]float64 `json:"limits"`
		Classes      []Group            `json:"classes,omitempty"`
		InputLengths []Group            `json:"input_lengths,omitempty"`
		PromptTokens *TokenHistogram    `json:"prompt_token_histogram,omitempty"`
		OutputTokens *TokenHistogram    `json:"output_token_histogram,omitempty"`
		Series       Series             `json:"series"`
	}
	data := struct {
		Curves []curve            `json:"curves"`
		Limits map[string]float64 `json:"limits"`
		Safe   []safeLine         `json:"safe,omitempty"`
		Runs   []run              `json:"runs"`
	}{Curves: curves, Safe: safeLines(in.Capacity, curves), Limits: limitsOf(in.Runs[0].Verdict)}
	for i := range in.Runs {
		r := &in.Runs[i]
		data.Runs = append(data.Runs, run{
			r.Name, limitsOf(r.Verdict), r.Classes, r.InputLengths, r.PromptTokens, r.OutputTokens, r.Series,
		})
		for name, value := range data.Limits {
			if data.Runs[i].Limits[name] != value {
				delete(data.Limits, name) // a line across all rates must hold for all of them
			}
		}
	}
	return data
}

func limitsOf(v *verdict.Result) map[string]float64 {
	limits := make(map[string]float64)
	if v == nil {
		return limits
	}
	for i := range v.Criteria {
		if c := &v.Criteria[i]; c.LimitValue != nil && c.Class == "" {
			limits[c.Name] = *c.LimitValue
		}
	}
	return limits
}

// labels name the curve of each run. Where one workload was searched with several arrival processes that look alike, it takes
// what was asked for to tell them apart.
func labels(runs []Run) []string {
	workloads := make(map[string]bool)
	asked := make(map[[2]string][]string)
	for i := range runs {
		r := &runs[i]
		workloads[r.workload()] = true
		if alike := [2]string{r.workload(), r.Arrival}; !slices.Contains(asked[alike], r.Process) {
			asked[alike] = append(asked[alike], r.Process)
		}
	}
	out := make([]string, len(runs))
	for i := range runs {
		r := &runs[i]
		out[i] = r.Arrival
		if len(workloads) > 1 && r.workload() != "" {
			out[i] = r.workload() + " · " + r.Arrival
		}
		if r.Process != "" && len(asked[[2]string{r.workload(), r.Arrival}]) > 1 {
			out[i] += " (" + r.Process + ")"
		}
	}
	return out
}

func curvesOf(runs []Run) []curve {
	var curves []curve
	names := labels(runs)
	for i := range runs {
		r := &runs[i]
		at := slices.IndexFunc(curves, func(c curve) bool { return c.Label == names[i] })
		if at < 0 {
			at = len(curves)
			curves = append(curves, curve{
				Label: names[i], workload: r.workload(), arrival: r.Arrival, search: [2]string{r.Workload, r.Process},
			})
		}
		for _, p := range r.Points {
			if p.OfferedPerSecond == nil {
				continue // one arrival has no rate
			}
			v := curveView{Run: r.Name, Point: p}
			if v.Survivors() { // a curve through lower bounds would say that overload is fast
				v.TTFT, v.ITL, v.TPOT, v.E2E = nil, nil, nil, nil
			}
			switch step := stepOf(r.Verdict, p.Step); {
			case len(r.Points) > 1 && step != nil:
				v.Verdict, v.breaks = string(step.Verdict), strings.Join(failing(step.Criteria), ", ")
			case len(r.Points) == 1 && r.Verdict != nil:
				v.Verdict, v.breaks = string(r.Verdict.Verdict), strings.Join(failing(r.Verdict.Criteria), ", ")
			}
			curves[at].Points = append(curves[at].Points, v)
		}
	}
	slices.SortStableFunc(curves, func(a, b curve) int {
		return cmp.Or(strings.Compare(a.workload, b.workload), cmp.Compare(arrivalOrder(a.arrival), arrivalOrder(b.arrival)),
			strings.Compare(a.Label, b.Label))
	})
	curves = slices.DeleteFunc(curves, func(c curve) bool { return len(c.Points) == 0 })
	for _, c := range curves {
		slices.SortStableFunc(c.Points, func(a, b curveView) int {
			return cmp.Compare(*a.OfferedPerSecond, *b.OfferedPerSecond)
		})
	}
	return curves
}

// arrivalOrder puts the smoothest first; a caller's own names follow.
func arrivalOrder(name string) int {
	known := []string{arrivalConstant, arrivalSmooth, arrivalPoisson, arrivalBursty}
	if i := slices.Index(known, name); i >= 0 {
		return i
	}
	return len(known)
}

func findingsOf(curves []curve) []finding {
	out := make([]finding, 0, len(curves))
	for _, c := range curves {
		f := finding{Curve: c.Label}
		for i := range c.Points {
			point := &c.Points[i]
			switch verdict.Status(point.Verdict) {
			case verdict.Pass:
				f.Passed = point.OfferedPerSecond
				f.Swapped = f.Failed != nil
			case verdict.Fail:
				if f.Failed == nil {
					f.Failed = point.OfferedPerSecond
					f.Breaks = point.breaks
				}
			default:
				f.Open++
			}
		}
		out = append(out, f)
	}
	return out
}

func failing(criteria []verdict.Criterion) []string {
	var names []string
	for i := range criteria {
		if c := &criteria[i]; c.Verdict == verdict.Fail && !c.Ignored {
			names = append(names, c.Name)
		}
	}
	return names
}

func viewOf(r *Run, i int) runView {
	v := runView{Run: r, ID: "run-" + strconv.Itoa(i+1), Badge: statusView(""), Warnings: slices.Clone(r.Notes), Labels: r.Info.Labels}
	v.Part = "the steady phase"
	if r.Part == "" {
		v.Part = "the whole run (no arrival carries the tag phase: steady)"
	}
	decision := r.Info.Decision
	if r.Verdict != nil {
		v.Badge = statusView(r.Verdict.Verdict)
		v.Warnings = append(slices.Clone(r.Verdict.Warnings), v.Warnings...)
		v.Labels, v.Confidence = r.Verdict.Labels, &r.Verdict.Confidence
		for k := range r.Verdict.Criteria {
			v.Criteria = append(v.Criteria, criterionOf(&r.Verdict.Criteria[k]))
		}
		if len(r.Verdict.Decision) > 0 {
			decision = r.Verdict.Decision
		}
	}
	v.Lead = lead(r)
	if r.Verdict != nil {
		v.Lead = stepsLead(r.Verdict) + v.Lead
	}
	v.Decision = flatten(decision)
	v.Tiles = tilesOf(r)
	v.Ledger = ledger(r.Counts, r.DroppedBy)
	v.Facts = facts(r)
	v.Contract, v.Options = pretty(r.Info.Contract), pretty(r.Info.Options)
	for _, p := range r.Points {
		point := pointView{Point: p, Run: r.Name, RunID: v.ID, Arrival: r.Arrival, Badge: v.Badge, Asked: asked(r)}
		if len(r.Points) > 1 {
			point.Badge = statusView("")
			if step := stepOf(r.Verdict, p.Step); step != nil {
				point.Badge, point.Because = statusView(step.Verdict), stepReason(step)
			}
		}
		v.Points = append(v.Points, point)
	}
	for _, kind := range sortedKeys(r.ErrorTypes) {
		v.Errors = append(v.Errors, keyValue{kind, grouped(r.ErrorTypes[kind])})
	}
	if !r.Info.Ended.IsZero() {
		v.Elapsed = r.Info.Ended.Sub(r.Info.Started).Round(time.Second).String()
	}
	return v
}

// asked is the rate that a run was to have, where one trace says so.
func asked(r *Run) *float64 {
	if len(r.Info.Rates) != 1 || len(r.Points) != 1 {
		return nil
	}
	for _, rate := range r.Info.Rates {
		return &rate
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// lead is the verdict in a sentence.
func lead(r *Run) string {
	if r.Verdict == nil {
		return "The run carries no contract, so there is nothing to judge it by."
	}
	var failed, open []string
	counted := 0
	for i := range r.Verdict.Criteria {
		c := &r.Verdict.Criteria[i]
		if c.Ignored {
			continue
		}
		counted++
		switch c.Verdict {
		case verdict.Fail:
			failed = append(failed, c.Name)
		case verdict.Inconclusive:
			open = append(open, c.Name)
		}
	}
	confidence := digits(100*r.Verdict.Confidence) + "% confidence"
	switch r.Verdict.Verdict {
	case verdict.Pass:
		at := ""
		if len(r.Points) == 1 && r.Points[0].OfferedPerSecond != nil {
			at = " at " + threeDigits(*r.Points[0].OfferedPerSecond) + " requests/s"
		}
		return fmt.Sprintf("All %d criteria hold%s, at %s.", counted, at, confidence)
	case verdict.Fail:
		return fmt.Sprintf("%d of %d criteria failed: %s.", len(failed), counted, strings.Join(failed, ", "))
	case verdict.Invalid:
		return "The load generator was the bottleneck (" + strings.Join(failed, ", ") +
			"): nothing good about the service follows from this run."
	default:
		if len(open) == 0 {
			return "The run did not come to its own end, so it proves nothing yet."
		}
		return fmt.Sprintf("%d of %d criteria lack evidence at %s: %s.", len(open), counted, confidence, strings.Join(open, ", "))
	}
}

func criterionOf(c *verdict.Criterion) criterionView {
	v := criterionView{
		Name: c.Name, Limit: c.Limit, Measured: measured(c), Evidence: evidence(c), Note: c.Note, Badge: statusView(c.Verdict),
	}
	v.Missing = c.Measured == nil
	switch {
	case c.Measured != nil:
	case c.N > 0:
		v.Measured = "no value" // as of a quantile that falls among the failed requests; the note says so
	default:
		v.Measured = notMeasured
	}
	if c.Ignored {
		v.Badge = badge{notMeasured, "–", "none"}
	}
	if c.Measured != nil && c.LimitValue != nil && *c.LimitValue > 0 && *c.Measured >= 0 && strings.HasPrefix(c.Limit, "<") {
		const whole, most = 100, 150
		used := whole * *c.Measured / *c.LimitValue
		v.HasUsed, v.UsedBar = true, min(used, most)
		v.Used = strconv.FormatFloat(used, 'f', 0, 64) + "%"
		if used > 0 && used < 1 {
			v.Used = "<1%"
		}
	}
	return v
}

// tilesOf are the few numbers that a reader looks for first.
func tilesOf(r *Run) []tile {
	var tiles []tile
	add := func(name string, value *float64, unit, note string) {
		t := tile{Name: name, Value: quantityOf(value, unit), Note: note, Missing: value == nil}
		if t.Missing {
			t.Note = ""
		}
		tiles = append(tiles, t)
	}
	if len(r.Points) == 0 {
		return nil
	}
	p := r.Points[0]
	if len(r.Points) > 1 {
		return nil // the table of steps has them
	}
	ratio, ms := string(contract.UnitRatio), string(contract.UnitMilliseconds)
	add("Offered", p.OfferedPerSecond, "", "requests/s, "+r.Arrival)
	add("Achieved", p.AchievedPerSecond, "", "requests/s completed")
	add("Goodput", p.Goodput, ratio, "met every SLO of their own")
	add("Errors", p.ErrorShare, ratio, "of started requests")
	for _, m := range []struct {
		name string
		q    *verdict.Quantiles
	}{{"TTFT p99", p.TTFT}, {"ITL p99", p.ITL}, {"TPOT p99", p.TPOT}, {"E2E p99", p.E2E}} {
		var value *float64
		note := ""
		if m.q != nil {
			value, note = &m.q.P99, "median "+brief(m.q.P50, ms)
		}
		add(m.name, value, ms, note)
	}
	add("Output", p.OutputTokensPerSecond, "", "tokens/s")
	return tiles
}

func ledger(c results.Counts, by map[string]int64) []keyValue {
	return []keyValue{
		{"offered", grouped(c.Offered)},
		{"started", grouped(c.Started)},
		{"dropped", grouped(c.Dropped) + droppedBy(by)},
		{"completed", grouped(c.Completed)},
		{"failed", grouped(c.Failed)},
		{"cancelled", grouped(c.Cancelled)},
		{"in flight", grouped(c.InFlight)},
	}
}

// facts are what a reader needs to run it again.
func facts(r *Run) []keyValue {
	info := &r.Info
	var out []keyValue
	add := func(key, value string) {
		if value != "" {
			out = append(out, keyValue{key, value})
		}
	}
	add("directory", r.Dir)
	add("workload", info.Workload)
	add("workload of the search", r.Workload)
	arrival := r.Arrival
	if r.GapCV != nil {
		arrival += " (coefficient of variation of the gaps " + digits(*r.GapCV) + ")"
	}
	add("arrivals", arrival)
	if info.IdealPrefixHitRatio != nil {
		add("ideal prefix hit ratio", quantity(*info.IdealPrefixHitRatio, string(contract.UnitRatio)))
	}
	if r.Verdict != nil && r.Verdict.Prefix != nil {
		add("measured prefix hit ratio", quantity(r.Verdict.Prefix.Measured, string(contract.UnitRatio))+" (by "+r.Verdict.Prefix.Source+")")
	}
	add("segment", info.Segment)
	h := info.Host
	var host []string
	for _, part := range []string{h.Name, strings.Trim(h.OS+"/"+h.Arch, "/")} {
		if part != "" {
			host = append(host, part)
		}
	}
	if h.CPUs > 0 {
		host = append(host, strconv.Itoa(h.CPUs)+" CPUs")
	}
	if h.MemoryMB > 0 {
		host = append(host, grouped(h.MemoryMB)+" MB")
	}
	add("load generator", strings.Join(host, ", "))
	for _, name := range sortedKeys(info.Versions) {
		add("version of "+name, info.Versions[name])
	}
	for _, name := range sortedKeys(info.Seeds) {
		add("seed of "+name, strconv.FormatUint(info.Seeds[name], 10))
	}
	for _, name := range sortedKeys(info.Digests) {
		add("digest of "+name, info.Digests[name])
	}
	return out
}

// flatten lists the values of a JSON object by their paths, such as limits.cpu; what is no object has one line.
func flatten(raw json.RawMessage) []keyValue {
	if len(raw) == 0 {
		return nil
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return []keyValue{{"", string(raw)}}
	}
	var out []keyValue
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, key := range sortedKeys(v) {
				walk(strings.TrimPrefix(path+"."+key, "."), v[key])
			}
		case []any:
			for i, element := range v {
				walk(path+"["+strconv.Itoa(i)+"]", element)
			}
		case nil:
			out = append(out, keyValue{path, "null"})
		default:
			out = append(out, keyValue{path, fmt.Sprint(v)})
		}
	}
	walk("", value)
	return out
}

// maxPretty bounds a block of JSON in the page: a script's options can hold a whole mix of workloads.
const maxPretty = 64 << 10

func pretty(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	if b.Len() > maxPretty {
		return fmt.Sprintf("%s\n… %d bytes more: see %s", strings.ToValidUTF8(b.String()[:maxPretty], ""), b.Len()-maxPretty, results.RunFile)
	}
	return b.String()
}
