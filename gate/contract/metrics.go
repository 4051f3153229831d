package contract

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// direction says which side of a metric is the good one.
type direction int

const (
	lower direction = iota
	higher
)

// shape says how a metric is measured, and with it which statistics it has and what k6 can judge.
type shape int

const (
	shapeTrend      shape = iota // one sample per request, token gap or arrival; needs a statistic
	shapeRate                    // share of requests
	shapeThroughput              // sum per second of the phase
	shapeCount                   // sum over the phase
	shapeLevel                   // sampled about once a second
	shapeSingle                  // one number for the phase
	shapeState                   // a condition that holds or does not
)

// metricSpec is one metric that a contract may name.
type metricSpec struct {
	name     string
	k6       string // the k6 metric, "" where none carries it
	unit     Unit
	better   direction
	shape    shape
	sections []Section
	// level is the statistic of a shapeLevel metric that is named without one.
	level Stat
	// example is a limit that would be plausible, for error messages.
	example string
	about   string
}

var (
	latencySections = []Section{SectionGate, SectionRecovery, SectionAbort}
	delaySections   = []Section{SectionGate, SectionClientHeadroom, SectionAbort}
	clientSections  = []Section{SectionClientHeadroom}
	serverSections  = []Section{SectionRecovery, SectionAbort}
	droppedSections = []Section{SectionGate, SectionClientHeadroom, SectionAbort}
	loadSections    = []Section{SectionGate, SectionAbort}

	levelP95 = Stat{Kind: StatQuantile, Quantile: 0.95}
	levelMax = Stat{Kind: StatMax}
	levelEnd = Stat{Kind: StatEnd}
)

// catalogue is every metric of the contract; metric names and meanings follow the k6 metrics of this
// extension.
var catalogue = []metricSpec{
	{"ttft", "llm_ttft", UnitMilliseconds, lower, shapeTrend, latencySections, Stat{}, "800ms", "time to first token"},
	{"ttft_text", "llm_ttft_text", UnitMilliseconds, lower, shapeTrend, latencySections, Stat{}, "2s", "time to first token that is not reasoning"},
	{"tpot", "llm_tpot", UnitMilliseconds, lower, shapeTrend, latencySections, Stat{}, "50ms", "time per output token after the first"},
	{"itl", "llm_itl", UnitMilliseconds, lower, shapeTrend, latencySections, Stat{}, "80ms", "inter-token latency"},
	{"e2e", "llm_e2e", UnitMilliseconds, lower, shapeTrend, latencySections, Stat{}, "30s", "end-to-end latency"},
	{"schedule_delay", "llm_schedule_delay", UnitMilliseconds, lower, shapeTrend, delaySections, Stat{}, "5ms", "actual send minus due time"},
	{"output_tps", "llm_output_tps", UnitTokensPerSecond, higher, shapeTrend, latencySections, Stat{}, "20 tokens/s", "output tokens per second of one stream"},

	{"success_rate", "llm_success", UnitRatio, higher, shapeRate, latencySections, Stat{}, "99.5%", "share of started requests that completed well"},
	{"error_rate", "llm_success", UnitRatio, lower, shapeRate, latencySections, Stat{}, "1%", "1 − success_rate"},
	{"goodput", "llm_goodput", UnitRatio, higher, shapeRate, latencySections, Stat{}, "95%", "share of started requests that met every per-request SLO"},
	{"http_5xx", "llm_http_5xx", UnitRatio, lower, shapeRate, latencySections, Stat{}, "0.1%", "share of started requests answered 5xx"},

	{"output_tokens_per_second", "llm_completion_tokens", UnitTokensPerSecond, higher, shapeThroughput, loadSections, Stat{}, "700 tokens/s", "output tokens per second of the whole service"},
	{"requests_per_second", "llm_requests", UnitRequestsPerSecond, higher, shapeThroughput, loadSections, Stat{}, "5 requests/s", "requests completed well, per second"},
	{"dropped", "dropped_iterations", UnitCount, lower, shapeCount, droppedSections, Stat{}, "10", "arrivals that no free VU could start"},
	{"queue_growth", "llm_queue_growth", UnitState, lower, shapeState, loadSections, Stat{}, "", "sustained growth of the queue"},

	{"cpu", "llm_client_cpu", UnitRatio, lower, shapeLevel, clientSections, levelP95, "80%", "load generator's CPU, of the cores it may use"},
	{"memory", "llm_client_memory", UnitRatio, lower, shapeLevel, clientSections, levelMax, "80%", "load generator's memory, of what it may use"},
	{"open_files", "llm_client_open_files", UnitRatio, lower, shapeLevel, clientSections, levelMax, "80%", "load generator's open files, of its limit"},
	{"timer_delay", "llm_client_timer_delay", UnitMilliseconds, lower, shapeTrend, clientSections, Stat{}, "10ms", "lateness of the load generator's timers"},
	{"schedule_error", "", UnitRatio, lower, shapeSingle, clientSections, Stat{}, "2%", "|started rate ÷ scheduled rate − 1|"},

	{"queue_depth", "llm_server_queue_depth", UnitCount, lower, shapeLevel, serverSections, levelEnd, "10", "requests waiting in the server's queue"},
	{"running", "llm_server_running", UnitCount, lower, shapeLevel, serverSections, levelEnd, "48", "requests running in the server"},
	{"in_flight", "llm_in_flight", UnitCount, lower, shapeLevel, serverSections, levelEnd, "50", "requests in flight, as the client sees"},
	{"kv_cache_usage", "llm_server_kv_cache_usage", UnitRatio, lower, shapeLevel, serverSections, levelEnd, "95%", "share of the server's KV cache in use"},

	{"unhealthy", "", UnitState, lower, shapeState, []Section{SectionAbort}, Stat{}, "", "the server's health endpoint does not answer 2xx"},
	{"client_headroom", "", UnitState, lower, shapeState, []Section{SectionAbort}, Stat{}, "", "a client_headroom limit is exceeded"},
}

func specOf(metric string) (metricSpec, bool) {
	for _, spec := range catalogue {
		if spec.name == metric {
			return spec, true
		}
	}
	return metricSpec{}, false
}

func (s metricSpec) allowedIn(section Section) bool { return slices.Contains(s.sections, section) }

// takesStat reports whether the metric's key may end in a statistic in this section. An abort rule on a
// level watches its latest value.
func (s metricSpec) takesStat(section Section) bool {
	return s.shape == shapeTrend || s.shape == shapeLevel && section != SectionAbort
}

const statExpected = "a statistic: pNN for any quantile (p50, p95, p99, p99.9), avg, min, max or med"

// parseKey resolves a key such as "ttft_p99.9" of a section. canonical is the key with the quantile
// written one way only, so that ttft_p99_9 and ttft_p99.9, or ttft_med and ttft_p50, are one criterion.
func parseKey(section Section, key string) (spec metricSpec, stat Stat, canonical string, problem *fault) {
	spec, suffix, found := splitKey(key)
	if !found || !spec.allowedIn(section) {
		return spec, stat, "", unknownKey(section, key, found, spec)
	}
	if suffix != "" && !spec.takesStat(section) {
		return spec, stat, "", unknownKey(section, key, false, spec)
	}
	if suffix == "" {
		stat, problem = spec.statWithoutSuffix(section)
		return spec, stat, key, problem
	}
	stat, problem = parseStat(suffix)
	if problem != nil {
		return spec, stat, "", problem
	}
	if spec.better == higher && stat.Kind == StatQuantile && stat.Quantile > 0.5 {
		mirror := formatNumber(roundDecimal((1 - stat.Quantile) * 100))
		return spec, stat, "", &fault{
			fmt.Sprintf("quantile %s of %s, whose high side is the good one", suffix, spec.name),
			fmt.Sprintf("a quantile of its slow side, such as %s_p%s (at most p50)", spec.name, mirror),
		}
	}
	return spec, stat, spec.name + "_" + stat.suffix(), nil
}

// splitKey finds the metric that a key begins with; the longest name wins (ttft_text_p95 is of ttft_text).
func splitKey(key string) (spec metricSpec, suffix string, found bool) {
	for _, candidate := range catalogue {
		if len(candidate.name) < len(spec.name) {
			continue
		}
		if key == candidate.name {
			spec, suffix, found = candidate, "", true
		} else if rest, is := strings.CutPrefix(key, candidate.name+"_"); is {
			spec, suffix, found = candidate, rest, true
		}
	}
	return spec, suffix, found
}

func (s metricSpec) statWithoutSuffix(section Section) (Stat, *fault) {
	switch s.shape {
	case shapeTrend:
		return Stat{}, &fault{
			quote(s.name) + " without a statistic",
			fmt.Sprintf("%s_<%s>, as in %s_p%s", s.name, "statistic", s.name, map[direction]string{lower: "95", higher: "5"}[s.better]),
		}
	case shapeRate:
		return Stat{Kind: StatRate}, nil
	case shapeThroughput:
		return Stat{Kind: StatThroughput}, nil
	case shapeCount:
		return Stat{Kind: StatCount}, nil
	case shapeLevel:
		if section == SectionAbort {
			return Stat{Kind: StatValue}, nil
		}
		return s.level, nil
	case shapeSingle:
		return Stat{Kind: StatValue}, nil
	default:
		return Stat{Kind: StatState}, nil
	}
}

func unknownKey(section Section, key string, known bool, spec metricSpec) *fault {
	if known && !spec.allowedIn(section) {
		names := make([]string, len(spec.sections))
		for i, s := range spec.sections {
			names[i] = string(s)
		}
		return &fault{"the key " + quote(key), fmt.Sprintf("it in %s, where %s belongs", strings.Join(names, ", "), spec.name)}
	}
	candidates := sectionKeys(section)
	expected := "a key of " + string(section)
	if nearest, ok := didYouMean(key, candidates); ok {
		expected += fmt.Sprintf("; did you mean %q?", nearest)
	} else {
		expected += ": " + strings.Join(candidates, ", ")
	}
	return &fault{"the unknown key " + quote(key), expected}
}

// sectionKeys lists a section's keys for suggestions, with the usual statistics spelled out.
func sectionKeys(section Section) []string {
	var keys []string
	for _, spec := range catalogue {
		if !spec.allowedIn(section) {
			continue
		}
		if spec.shape != shapeTrend {
			keys = append(keys, spec.name)
			continue
		}
		tail := []string{"p50", "p90", "p95", "p99", "p99.9"}
		if spec.better == higher {
			tail = []string{"p50", "p10", "p5", "p1"}
		}
		for _, stat := range append(tail, "avg", "min", "max", "med") {
			keys = append(keys, spec.name+"_"+stat)
		}
	}
	if section == SectionGate {
		keys = append(keys, "by_class")
	}
	return keys
}

var quantileForm = regexp.MustCompile(`^p(0|[1-9][0-9]*)(?:[._]([0-9]+))?$`)

func parseStat(text string) (Stat, *fault) {
	switch text {
	case "avg":
		return Stat{Kind: StatMean}, nil
	case "min":
		return Stat{Kind: StatMin}, nil
	case "max":
		return Stat{Kind: StatMax}, nil
	case "med":
		return Stat{Kind: StatQuantile, Quantile: 0.5}, nil
	case "mean":
		return Stat{}, &fault{"the statistic " + quote(text), statExpected + `; did you mean "avg"?`}
	case "median":
		return Stat{}, &fault{"the statistic " + quote(text), statExpected + `; did you mean "med"?`}
	}
	parts := quantileForm.FindStringSubmatch(text)
	if parts == nil {
		return Stat{}, &fault{"the statistic " + quote(text), statExpected}
	}
	whole, fraction := parts[1], parts[2]
	if fraction == "" && len(whole) > 2 && whole[0] == '9' {
		return Stat{}, &fault{"the quantile " + quote(text), fmt.Sprintf("p%s.%s: a quantile above p99 is written with a point", whole[:2], whole[2:])}
	}
	percent, err := strconv.ParseFloat(whole+"."+fraction+"0", 64)
	if err != nil || percent <= 0 || percent >= 100 {
		expected := "a quantile above p0 and below p100"
		if percent >= 100 {
			expected += " (the largest sample is max)"
		} else {
			expected += " (the smallest sample is min)"
		}
		return Stat{}, &fault{"the quantile " + quote(text), expected}
	}
	quantile := roundDecimal(percent / 100)
	if quantile <= 0 || quantile >= 1 || math.Abs(quantile-percent/100) > 1e-12 {
		return Stat{}, &fault{"the quantile " + quote(text), "a quantile of at most ten decimal places"}
	}
	return Stat{Kind: StatQuantile, Quantile: quantile}, nil
}

// suffix is the statistic's one spelling in names: p95, p99.9, avg, min, max.
func (s Stat) suffix() string {
	if s.Kind == StatQuantile {
		return "p" + s.percent()
	}
	return string(s.Kind)
}

// percent is the quantile as k6 writes it in p(…): 99.9.
func (s Stat) percent() string { return formatNumber(roundDecimal(s.Quantile * 100)) }
