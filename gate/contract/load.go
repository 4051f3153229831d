package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Defaults that stand in for keys a contract leaves out.
const (
	DefaultConfidence     = 0.95
	DefaultWarmup         = 2 * time.Minute
	DefaultSteady         = 10 * time.Minute
	DefaultRecovery       = 2 * time.Minute
	DefaultScrapeInterval = time.Second
)

// minScrapeInterval keeps the monitor from loading the server that it watches.
const minScrapeInterval = 100 * time.Millisecond

// headroomDefaults hold wherever client_headroom does not say otherwise. Above four fifths of its CPU,
// memory or file descriptors a load generator has no room left for a burst, and 10 ms is the size of one
// inter-token gap of a fast engine: timers that late blur what is measured.
var headroomDefaults = []struct{ key, value string }{
	{"cpu", "<= 80%"},
	{"memory", "<= 80%"},
	{"open_files", "<= 80%"},
	{"timer_delay_p99", "<= 10ms"},
	{"schedule_error", "<= 2%"},
	{"dropped", "== 0"},
}

// Load parses and checks a contract. path names the file in errors; data is its content; env looks up the
// variables of ${NAME} and ${NAME:-default} in values, and may be nil when there are none. The error, if
// any, is an Errors with every problem of the file.
func Load(path string, data []byte, env func(name string) (string, bool)) (*Contract, error) {
	l := &loader{file: path, lookup: env, anchors: map[string]*node{}}
	root := l.parseTree(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))) // without the byte order mark that some editors write
	if root == nil && len(l.problems) == 0 {
		l.report(Pos{1, 1}, "capacity_gate", "an empty file", "a mapping with capacity_gate")
	}
	var loaded *Contract
	if root != nil && !root.faulty {
		loaded = l.contract(root)
	}
	if len(l.problems) > 0 {
		l.problems.sortByPosition()
		return nil, l.problems
	}
	return loaded, nil
}

type loader struct {
	file     string
	lookup   func(string) (string, bool)
	anchors  map[string]*node
	problems Errors
}

func (l *loader) report(pos Pos, key, found, expected string) {
	l.problems = append(l.problems, Problem{File: l.file, Pos: pos, Key: key, Found: found, Expected: expected})
}

func (l *loader) reportFault(pos Pos, key string, f *fault) { l.report(pos, key, f.found, f.expected) }

func (l *loader) contract(root *node) *Contract {
	c := &Contract{
		File: l.file, Confidence: DefaultConfidence,
		Phases: Phases{
			Warmup: Duration(DefaultWarmup), Steady: Duration(DefaultSteady),
			Recovery: Duration(DefaultRecovery), Default: true,
		},
	}
	if !l.expectMapping(root, "", "capacity_gate and other sections") {
		return nil
	}
	var recovery *entry
	phasesSound := true
	sections := map[string]func(n *node){
		"capacity_gate":   func(n *node) { c.Gate = l.gate(n) },
		"client_headroom": func(n *node) { c.ClientHeadroom = l.criteria(n, SectionClientHeadroom, "") },
		"recovery":        func(n *node) { c.Recovery = l.criteria(n, SectionRecovery, "") },
		"abort":           func(n *node) { c.Abort = l.abort(n) },
		"request_slo":     func(n *node) { c.RequestSLO = l.requestSLO(n) },
		"phases": func(n *node) {
			before := len(l.problems)
			c.Phases = l.phases(n)
			phasesSound = len(l.problems) == before
		},
		"confidence": func(n *node) { c.Confidence = l.confidence(n) },
		"server":     func(n *node) { c.Server = l.server(n) },
		"baseline":   func(n *node) { c.Baseline = l.text(n, "baseline", "the path of a stored run or verdict") },
		"decision":   func(n *node) { c.Decision = l.decision(n) },
	}
	gateSeen := false
	for i, e := range root.entries {
		read, known := sections[e.key]
		if !known {
			l.unknown(e, e.key, "a contract", keysOf(sections))
			continue
		}
		gateSeen = gateSeen || e.key == "capacity_gate"
		if e.key == "recovery" {
			recovery = &root.entries[i]
		}
		if !e.value.faulty {
			read(e.value)
		}
	}
	if !gateSeen {
		l.report(root.pos, "capacity_gate", "a contract without it", "capacity_gate with at least one criterion")
	}
	if recovery != nil && phasesSound && len(c.Recovery) > 0 && c.Phases.Recovery == 0 {
		l.report(recovery.pos, "recovery", "criteria for a phase that phases does not have", "phases.recovery above 0")
	}
	c.ClientHeadroom = withHeadroomDefaults(c)
	return c
}

func keysOf[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func (l *loader) unknown(e entry, path, where string, known []string) {
	expected := fmt.Sprintf("a key of %s: %s", where, strings.Join(known, ", "))
	if nearest, ok := didYouMean(e.key, known); ok {
		expected = fmt.Sprintf("a key of %s; did you mean %q?", where, nearest)
	}
	l.report(e.pos, path, "the unknown key "+quote(e.key), expected)
}

func (l *loader) expectMapping(n *node, path, of string) bool {
	if n.kind == kindMap {
		return true
	}
	if !n.faulty {
		l.report(n.pos, path, n.describe(), "a mapping with "+of)
	}
	return false
}

// text reads a scalar that must not be empty.
func (l *loader) text(n *node, path, what string) string {
	if n.faulty {
		return ""
	}
	if n.kind != kindScalar || strings.TrimSpace(n.text) == "" {
		l.report(n.pos, path, n.describe(), what)
		return ""
	}
	return strings.TrimSpace(n.text)
}

const noCriterion = "at least one criterion, as in ttft_p95: \"<= 800ms\""

func (l *loader) gate(n *node) []Criterion {
	if !l.expectMapping(n, "capacity_gate", "criteria") {
		return nil
	}
	if len(n.entries) == 0 {
		l.report(n.pos, "capacity_gate", "no criterion", noCriterion)
		return nil
	}
	criteria := l.criteria(n, SectionGate, "")
	for _, e := range n.entries {
		if e.key == "by_class" {
			criteria = append(criteria, l.byClass(e.value)...)
		}
	}
	if len(criteria) == 0 && len(l.problems) == 0 { // else what is wrong with them has been said
		l.report(n.pos, "capacity_gate", "classes without a criterion", noCriterion)
	}
	return criteria
}

func (l *loader) byClass(n *node) []Criterion {
	const path = "capacity_gate.by_class"
	if !l.expectMapping(n, path, "workload classes") {
		return nil
	}
	var criteria []Criterion
	for _, e := range n.entries {
		if e.key == "" || strings.TrimSpace(e.key) != e.key || strings.ContainsFunc(e.key, breaksTagFilter) {
			l.report(e.pos, path, "the class "+quote(e.key),
				"a class name that k6 can filter by: not empty, without , { } \" ' or spaces around it")
			continue
		}
		if l.expectMapping(e.value, join(path, e.key), "criteria of this class") {
			criteria = append(criteria, l.criteria(e.value, SectionGate, e.key)...)
		}
	}
	return criteria
}

// breaksTagFilter reports the characters that k6's "metric{tag:value,…}" cannot carry in a value.
func breaksTagFilter(r rune) bool {
	return strings.ContainsRune(`,{}"'`, r) || unicode.IsControl(r) || r == unicode.ReplacementChar
}

// criteria reads the criteria of a section, or of one class of the gate.
func (l *loader) criteria(n *node, section Section, class string) []Criterion {
	path := string(section)
	if class != "" {
		path = join(join(path, "by_class"), class)
	}
	if !l.expectMapping(n, path, "criteria") {
		return nil
	}
	var criteria []Criterion
	lines := map[string]int{}
	for _, e := range n.entries {
		if section == SectionGate && class == "" && e.key == "by_class" {
			continue
		}
		criterion, ok := l.criterion(e, section, class, join(path, e.key))
		if !ok {
			continue
		}
		if line, twice := lines[criterion.Name]; twice {
			l.report(e.pos, join(path, e.key), "a second "+quote(criterion.Name),
				fmt.Sprintf("each criterion once (it stands on line %d already)", line))
			continue
		}
		lines[criterion.Name] = e.pos.Line
		criteria = append(criteria, criterion)
	}
	return criteria
}

func (l *loader) criterion(e entry, section Section, class, path string) (Criterion, bool) {
	spec, stat, canonical, problem := parseKey(section, e.key)
	if problem == nil && class != "" && spec.shape == shapeState {
		problem = &fault{"the key " + quote(e.key), "it in capacity_gate itself: the queue is one for all classes"}
	}
	if problem != nil {
		l.reportFault(e.pos, path, problem)
		return Criterion{}, false
	}
	if e.value.faulty {
		return Criterion{}, false
	}
	c := Criterion{
		Name: criterionName(section, class, canonical), Section: section, Class: class, Phase: PhaseSteady,
		Metric: spec.name, Stat: stat, Raw: e.value.raw, Text: strings.TrimSpace(e.value.text), Pos: e.value.pos,
	}
	if section == SectionRecovery {
		c.Phase = PhaseRecovery
	}
	expected := "a condition such as " + quote(spec.exampleText(false))
	if spec.shape == shapeState {
		expected = "no_sustained_growth"
	}
	if e.value.kind != kindScalar || c.Text == "" {
		l.report(e.value.pos, path, e.value.describe(), expected)
		return Criterion{}, false
	}
	if spec.shape == shapeState {
		if c.Text != expected {
			l.report(e.value.pos, path, e.value.describe(), expected)
			return Criterion{}, false
		}
		c.Op, c.Limit, c.Unit = OpEqual, Limit{Absolute: new(0.0)}, UnitState
		return c, true
	}
	if section == SectionClientHeadroom && c.Text == "off" {
		return c, true // kept without an operator until withHeadroomDefaults takes it out
	}
	parsed, problem := parseCondition(spec, c.Text, false)
	if problem != nil {
		l.reportFault(e.value.pos, path, l.withOrigin(problem, e.value))
		return Criterion{}, false
	}
	c.Op, c.Limit, c.Unit = parsed.op, parsed.limit, parsed.unit
	return c, true
}

// withOrigin adds the text of the file to a problem with a value that came from variables.
func (l *loader) withOrigin(problem *fault, n *node) *fault {
	if n.raw == n.text {
		return problem
	}
	return &fault{fmt.Sprintf("%s (from %s)", problem.found, quote(n.raw)), problem.expected}
}

func criterionName(section Section, class, key string) string {
	switch {
	case class != "":
		return class + "/" + key
	case section == SectionGate:
		return key
	default:
		return string(section) + "." + key
	}
}

// withHeadroomDefaults adds the defaults whose metric the contract does not name, and removes what it
// switched off. A limit on dropped arrivals in capacity_gate replaces the default one.
func withHeadroomDefaults(c *Contract) []Criterion {
	names := func(criteria []Criterion, metric string) bool {
		return slices.ContainsFunc(criteria, func(c Criterion) bool { return c.Metric == metric && c.Class == "" })
	}
	var criteria []Criterion
	for _, criterion := range c.ClientHeadroom {
		if criterion.Op != "" {
			criteria = append(criteria, criterion)
		}
	}
	for _, d := range headroomDefaults {
		spec, stat, canonical, keyProblem := parseKey(SectionClientHeadroom, d.key)
		parsed, valueProblem := parseCondition(spec, d.value, false)
		if keyProblem != nil || valueProblem != nil {
			continue // a test reads the whole table
		}
		if names(c.ClientHeadroom, spec.name) || spec.name == "dropped" && names(c.Gate, spec.name) {
			continue
		}
		criteria = append(criteria, Criterion{
			Name: criterionName(SectionClientHeadroom, "", canonical), Section: SectionClientHeadroom,
			Phase: PhaseSteady, Metric: spec.name, Stat: stat,
			Op: parsed.op, Limit: parsed.limit, Unit: parsed.unit, Default: true, Raw: d.value, Text: d.value,
		})
	}
	return criteria
}

func (l *loader) abort(n *node) []AbortRule {
	if !l.expectMapping(n, "abort", "rules") {
		return nil
	}
	var rules []AbortRule
	lines := map[string]int{}
	for _, e := range n.entries {
		path := join("abort", e.key)
		spec, stat, canonical, problem := parseKey(SectionAbort, e.key)
		if problem != nil {
			l.reportFault(e.pos, path, problem)
			continue
		}
		if e.value.faulty {
			continue
		}
		name := criterionName(SectionAbort, "", canonical)
		if line, twice := lines[name]; twice {
			l.report(e.pos, path, "a second "+quote(name), fmt.Sprintf("each rule once (it stands on line %d already)", line))
			continue
		}
		lines[name] = e.pos.Line
		rule := AbortRule{
			Name: name, Metric: spec.name, Stat: stat, Raw: e.value.raw, Text: strings.TrimSpace(e.value.text), Pos: e.value.pos,
		}
		var ok bool
		if spec.shape == shapeState {
			ok = l.stateRule(&rule, e.value, path)
		} else {
			ok = l.valueRule(&rule, spec, e.value, path)
		}
		if ok {
			rules = append(rules, rule)
		}
	}
	return rules
}

func (l *loader) valueRule(rule *AbortRule, spec metricSpec, n *node, path string) bool {
	if n.kind != kindScalar || rule.Text == "" {
		l.report(n.pos, path, n.describe(), "a condition such as "+quote(spec.exampleText(true)+" for 10s"))
		return false
	}
	parsed, problem := parseCondition(spec, rule.Text, true)
	if problem != nil {
		l.reportFault(n.pos, path, l.withOrigin(problem, n))
		return false
	}
	rule.Op, rule.Limit, rule.Unit = parsed.op, parsed.limit, parsed.unit
	rule.For, rule.After = Duration(parsed.holds), Duration(parsed.after)
	return true
}

// stateRule reads a rule about a state: its word ("sustained" for queue_growth, true for the others),
// optionally with times, or a mapping of the times alone. false switches the rule off.
func (l *loader) stateRule(rule *AbortRule, n *node, path string) bool {
	word := "true"
	if rule.Metric == "queue_growth" {
		word = "sustained"
	}
	rule.Op, rule.Limit, rule.Unit = OpEqual, Limit{Absolute: new(1.0)}, UnitState
	expected := fmt.Sprintf(`%s, "%s for 10s", or {for: 10s, after: 1m}`, word, word)
	switch n.kind {
	case kindMap:
		return l.stateTimes(rule, n, path, word)
	case kindScalar:
		if rule.Text == "false" {
			return false
		}
		timing := condition{}
		rest := rule.Text
		if problem := timing.parseTiming(&rest, true); problem != nil {
			l.reportFault(n.pos, path, l.withOrigin(problem, n))
			return false
		}
		if rest != word {
			l.report(n.pos, path, n.describe(), expected)
			return false
		}
		rule.For, rule.After = Duration(timing.holds), Duration(timing.after)
		return true
	default:
		l.report(n.pos, path, n.describe(), expected)
		return false
	}
}

func (l *loader) stateTimes(rule *AbortRule, n *node, path, word string) bool {
	times := map[string]*Duration{"for": &rule.For, "after": &rule.After}
	before := len(l.problems)
	rule.Text = word
	for _, e := range n.entries {
		into, known := times[e.key]
		if !known {
			l.unknown(e, join(path, e.key), "this rule", keysOf(times))
			continue
		}
		*into = l.duration(e.value, join(path, e.key))
	}
	if rule.For > 0 {
		rule.Text += " for " + rule.For.String()
	}
	if rule.After > 0 {
		rule.Text += " after " + rule.After.String()
	}
	rule.Raw = rule.Text
	return len(l.problems) == before
}

// duration reads a scalar that is a length of time; 0 needs no unit.
func (l *loader) duration(n *node, path string) Duration {
	text := l.text(n, path, "a duration such as 10s or 2m")
	if text == "" {
		return 0
	}
	d, problem := parseDuration(text)
	if problem != nil {
		l.reportFault(n.pos, path, l.withOrigin(problem, n))
		return 0
	}
	return Duration(d)
}

func (l *loader) phases(n *node) Phases {
	var phases Phases
	if !l.expectMapping(n, "phases", "warmup, steady and recovery") {
		return phases
	}
	into := map[string]*Duration{"warmup": &phases.Warmup, "steady": &phases.Steady, "recovery": &phases.Recovery}
	steadyPos, before := n.pos, len(l.problems)
	faulty := false
	for _, e := range n.entries {
		target, known := into[e.key]
		if !known {
			l.unknown(e, join("phases", e.key), "phases", keysOf(into))
			continue
		}
		if e.key == "steady" {
			steadyPos, faulty = e.value.pos, e.value.faulty
		}
		*target = l.duration(e.value, join("phases", e.key))
	}
	if phases.Steady == 0 && !faulty && len(l.problems) == before {
		l.report(steadyPos, "phases.steady", "no steady phase", "a duration above 0: the steady phase is what the gate judges")
	}
	return phases
}

func (l *loader) confidence(n *node) float64 {
	const path = "confidence"
	text := l.text(n, path, "a number above 0.5 and below 1, as in 0.95")
	if text == "" {
		return DefaultConfidence
	}
	value, problem := parseConfidence(text)
	if problem != nil {
		l.reportFault(n.pos, path, l.withOrigin(problem, n))
	}
	return value
}

func (l *loader) requestSLO(n *node) *RequestSLO {
	var slo RequestSLO
	if !l.expectMapping(n, "request_slo", "ttft, tpot, itl or e2e") {
		return nil
	}
	into := map[string]**float64{"ttft": &slo.TTFT, "tpot": &slo.TPOT, "itl": &slo.ITL, "e2e": &slo.E2E}
	for _, e := range n.entries {
		path := join("request_slo", e.key)
		target, known := into[e.key]
		if !known {
			l.unknown(e, path, "request_slo", keysOf(into))
			continue
		}
		text := l.text(e.value, path, `a time such as 800ms`)
		if text == "" {
			continue
		}
		spec, _ := specOf(e.key)
		parsed, problem := parseCondition(spec, "<= "+strings.TrimSpace(strings.TrimPrefix(text, "<=")), false)
		if problem == nil && parsed.limit.Absolute == nil {
			problem = &fault{quote(text), "a time such as 800ms: the limit of one request has no baseline"}
		}
		if problem != nil {
			l.reportFault(e.value.pos, path, l.withOrigin(problem, e.value))
			continue
		}
		*target = parsed.limit.Absolute
	}
	if len(n.entries) == 0 {
		l.report(n.pos, "request_slo", "no limit", "at least one of ttft, tpot, itl, e2e")
	}
	return &slo
}

func (l *loader) server(n *node) *Server {
	s := &Server{Interval: Duration(DefaultScrapeInterval), Engine: "auto"}
	if !l.expectMapping(n, "server", "metrics_url, health_url, gpu_url, interval or engine") {
		return nil
	}
	urls := map[string]*[]string{"metrics_url": &s.MetricsURLs, "health_url": &s.HealthURLs, "gpu_url": &s.GPUURLs}
	for _, e := range n.entries {
		path := join("server", e.key)
		if into, is := urls[e.key]; is {
			*into = l.urls(e.value, path)
			continue
		}
		switch e.key {
		case "interval":
			before := len(l.problems)
			s.Interval = l.duration(e.value, path)
			if !e.value.faulty && len(l.problems) == before && s.Interval < Duration(minScrapeInterval) {
				l.report(e.value.pos, path, e.value.describe(), "an interval of at least 100ms")
			}
		case "engine":
			s.Engine = l.text(e.value, path, "an engine's name: "+strings.Join(Engines(), ", "))
			if s.Engine != "" && !slices.Contains(Engines(), s.Engine) {
				l.report(e.value.pos, path, e.value.describe(), "one of "+strings.Join(Engines(), ", "))
			}
		default:
			l.unknown(e, path, "server", append(keysOf(urls), "interval", "engine"))
		}
	}
	return s
}

// urls reads one address or a list of them, one for each replica.
func (l *loader) urls(n *node, path string) []string {
	items, paths := []*node{n}, []string{path}
	if n.kind == kindList {
		items, paths = n.items, make([]string, 0, len(n.items))
		for i := range items {
			paths = append(paths, fmt.Sprintf("%s[%d]", path, i))
		}
		if len(items) == 0 {
			l.report(n.pos, path, "an empty list", "at least one address")
		}
	}
	var addresses []string
	for i, item := range items {
		text := l.text(item, paths[i], "an address such as http://127.0.0.1:8000/metrics")
		if text == "" {
			continue
		}
		switch problem := checkAddress(text); {
		case problem != nil:
			l.reportFault(item.pos, paths[i], l.withOrigin(problem, item))
		case slices.Contains(addresses, text):
			l.report(item.pos, paths[i], item.describe()+" again", "each replica once")
		default:
			addresses = append(addresses, text)
		}
	}
	return addresses
}

func (l *loader) decision(n *node) json.RawMessage {
	if !l.expectMapping(n, "decision", "whatever describes the decision") {
		return nil
	}
	out := n.appendJSON(nil)
	if len(out) > maxFileBytes {
		l.report(n.pos, "decision", fmt.Sprintf("more than %d bytes once its aliases are followed", maxFileBytes), "a smaller mapping")
		return nil
	}
	return out
}
