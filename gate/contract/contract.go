package contract

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Contract is a checked SLO contract. It marshals to JSON and back without loss, so that it can be kept
// with the results of the run that it judged.
type Contract struct {
	// File is the path that was given to Load; it names the contract in errors and explanations.
	File string `json:"file"`
	// Gate holds the criteria of capacity_gate, those of by_class included, in the order of the file.
	Gate []Criterion `json:"capacity_gate"`
	// ClientHeadroom holds the criteria on the load generator, defaults included. A breach makes a run
	// invalid: it says nothing about the service.
	ClientHeadroom []Criterion `json:"client_headroom"`
	// Recovery holds the criteria on the recovery phase.
	Recovery []Criterion `json:"recovery,omitempty"`
	// Abort holds the rules that stop a run before its end.
	Abort []AbortRule `json:"abort,omitempty"`
	// RequestSLO is the limit of each single request, which goodput counts by. Nil when not given.
	RequestSLO *RequestSLO `json:"request_slo,omitempty"`
	// Phases are the lengths of the run's phases.
	Phases Phases `json:"phases"`
	// Confidence is the level at which the verdict's evidence tests decide; above 0.5, below 1.
	Confidence float64 `json:"confidence"`
	// Server says where the live monitor finds the service. Nil when not given.
	Server *Server `json:"server,omitempty"`
	// Baseline is the path of the stored run or verdict that relative limits refer to; "" when not given.
	// It is kept as written; a relative path is meant relative to the contract's file.
	Baseline string `json:"baseline,omitempty"`
	// Decision is the free-form mapping kept with the results: a JSON object with the file's key order.
	Decision json.RawMessage `json:"decision,omitempty"`
}

// Section names the part of the contract that a criterion or rule stands in.
type Section string

// The sections of a contract that hold criteria or rules.
const (
	SectionGate           Section = "capacity_gate"
	SectionClientHeadroom Section = "client_headroom"
	SectionRecovery       Section = "recovery"
	SectionAbort          Section = "abort"
)

// Phase names the part of a run whose samples a criterion judges: the value of the tag "phase".
type Phase string

// The phases that criteria judge. Warmup is shown and never judged.
const (
	PhaseSteady   Phase = "steady"
	PhaseRecovery Phase = "recovery"
)

// Pos is a place in the contract's file. Both numbers count from 1; columns count characters, not bytes.
// The zero Pos belongs to a default, which stands in no file.
type Pos struct {
	Line   int `json:"line"`
	Column int `json:"column"`
}

// Unit is the unit of a limit's numbers.
type Unit string

// The units that limits are kept in, whatever unit the file used.
const (
	UnitMilliseconds      Unit = "ms"
	UnitRatio             Unit = "ratio" // a share between 0 and 1
	UnitCount             Unit = "count"
	UnitTokensPerSecond   Unit = "tokens/s"
	UnitRequestsPerSecond Unit = "requests/s"
	UnitState             Unit = "state" // 0 is good, 1 is bad
)

// StatKind says how the samples of a metric become the one number that is compared with a limit.
type StatKind string

// The kinds of statistics.
const (
	StatQuantile   StatKind = "quantile"   // Stat.Quantile says which
	StatMean       StatKind = "avg"        // arithmetic mean
	StatMin        StatKind = "min"        // smallest sample
	StatMax        StatKind = "max"        // largest sample
	StatRate       StatKind = "rate"       // share of requests for which something holds
	StatThroughput StatKind = "throughput" // sum over the phase divided by the phase's length in seconds
	StatCount      StatKind = "count"      // sum over the phase
	StatValue      StatKind = "value"      // the value itself; for an abort rule, the latest one
	StatEnd        StatKind = "end"        // median of the samples in the last quarter of the phase
	StatState      StatKind = "state"      // 1 while the bad state holds, else 0
)

// Stat is the statistic that a criterion is about.
type Stat struct {
	Kind StatKind `json:"kind"`
	// Quantile is between 0 and 1, both excluded, for StatQuantile (0.95 for p95), and 0 for other kinds.
	Quantile float64 `json:"quantile,omitempty"`
}

// Op is the comparison of a measured value, on the left, with a limit, on the right.
type Op string

// The comparisons of a contract.
const (
	OpLess         Op = "<"
	OpLessEqual    Op = "<="
	OpGreater      Op = ">"
	OpGreaterEqual Op = ">="
	OpEqual        Op = "=="
)

// Holds reports whether measured stands in this relation to limit.
func (o Op) Holds(measured, limit float64) bool {
	switch o {
	case OpLess:
		return measured < limit
	case OpLessEqual:
		return measured <= limit
	case OpGreater:
		return measured > limit
	case OpGreaterEqual:
		return measured >= limit
	case OpEqual:
		return measured == limit
	default:
		return false
	}
}

// negated returns the comparison that holds exactly when o does not.
func (o Op) negated() Op {
	switch o {
	case OpLess:
		return OpGreaterEqual
	case OpLessEqual:
		return OpGreater
	case OpGreater:
		return OpLessEqual
	default:
		return OpLess
	}
}

// Relative is a limit that refers to a baseline: Factor × baseline + Offset.
type Relative struct {
	Factor float64 `json:"factor"`
	// Offset is in the unit of the criterion.
	Offset float64 `json:"offset"`
}

// Limit is a number to compare with. Absolute is nil for a relative limit that was not resolved yet.
type Limit struct {
	Absolute *float64 `json:"absolute,omitempty"`
	// Relative is set for a limit written against a baseline, and stays set after Resolve.
	Relative *Relative `json:"relative,omitempty"`
	// Baseline is the measured value that Resolve used.
	Baseline *float64 `json:"baseline,omitempty"`
}

// Value returns the limit in the unit of its criterion; ok is false for an unresolved relative limit.
func (l Limit) Value() (value float64, ok bool) {
	if l.Absolute == nil {
		return 0, false
	}
	return *l.Absolute, true
}

// Criterion is one line of a contract that the service, or the load generator, has to keep.
type Criterion struct {
	// Name is unique in the contract: "ttft_p95", "long/ttft_p95" for class long, "recovery.queue_depth",
	// "client_headroom.cpu". Quantiles are written with a point: "ttft_p99.9".
	Name    string  `json:"name"`
	Section Section `json:"section"`
	// Class is the workload class that the criterion is restricted to; "" means all requests.
	Class string `json:"class,omitempty"`
	// Phase is the phase whose samples are judged.
	Phase Phase `json:"phase"`
	// Metric is the contract's word for the metric, such as "ttft" or "error_rate".
	Metric string `json:"metric"`
	Stat   Stat   `json:"stat"`
	Op     Op     `json:"op"`
	Limit  Limit  `json:"limit"`
	// Unit is the unit of the limit and of the measured value. For "dropped" it says which was asked for:
	// UnitCount, or UnitRatio for a share of the offered arrivals.
	Unit Unit `json:"unit"`
	// Default is true for a criterion that the file did not state.
	Default bool `json:"default,omitempty"`
	// Raw is the value as it stands in the file; Text is Raw after the expansion of variables.
	Raw  string `json:"raw"`
	Text string `json:"text"`
	// Pos is the place of the value in the file; zero for a default.
	Pos Pos `json:"pos"`
}

// LimitText returns the condition for people, such as "<= 800ms" or, after Resolve,
// "<= 88ms (baseline + 10%, baseline 80ms)".
func (c Criterion) LimitText() string { return limitText(c.Text, c.Op, c.Limit, c.Unit) }

// Met reports whether a measured value, in the criterion's unit, keeps the limit. ok is false when the
// limit is relative and was not resolved.
func (c Criterion) Met(measured float64) (met, ok bool) {
	limit, ok := c.Limit.Value()
	if !ok {
		return false, false
	}
	return c.Op.Holds(measured, limit), true
}

// EvidenceQuantile returns the share of good requests (or samples) that the criterion demands, for a
// binomial test: 0.95 for ttft_p95, and for output_tps_p5, whose bad side is the low one; 0.995 for
// success_rate >= 99.5% and for error_rate <= 0.5%. ok is false where the criterion is not about a share
// of requests, where its limit is not resolved, and for "==", which is about what was observed in the run
// and not about what the service would do.
func (c Criterion) EvidenceQuantile() (q float64, ok bool) {
	spec, known := specOf(c.Metric)
	if !known || c.Op == OpEqual {
		return 0, false
	}
	switch c.Stat.Kind {
	case StatQuantile:
		if spec.better == higher {
			return roundDecimal(1 - c.Stat.Quantile), true
		}
		return c.Stat.Quantile, true
	case StatRate:
		limit, ok := c.Limit.Value()
		if !ok {
			return 0, false
		}
		if spec.better == higher {
			return limit, true
		}
		return roundDecimal(1 - limit), true
	default:
		return 0, false
	}
}

// AbortRule is a condition that stops the run. Its comparison describes the bad state.
type AbortRule struct {
	// Name is the section's name and the key: "abort.error_rate".
	Name   string `json:"name"`
	Metric string `json:"metric"`
	Stat   Stat   `json:"stat"`
	Op     Op     `json:"op"`
	Limit  Limit  `json:"limit"`
	Unit   Unit   `json:"unit"`
	// For is how long the bad state must hold without a break. 0: the run stops as soon as it is seen, and
	// a statistic is taken over everything measured so far in the steady phase.
	For Duration `json:"for,omitempty"`
	// After is the time from the start of the test before which the rule does not stop the run.
	After Duration `json:"after,omitempty"`
	Raw   string   `json:"raw"`
	Text  string   `json:"text"`
	Pos   Pos      `json:"pos"`
}

// LimitText returns the condition for people, such as "> 20% for 10s".
func (r AbortRule) LimitText() string { return limitText(r.Text, r.Op, r.Limit, r.Unit) }

// Phases are the lengths of a run's phases.
type Phases struct {
	Warmup   Duration `json:"warmup"`
	Steady   Duration `json:"steady"`
	Recovery Duration `json:"recovery"`
	// Default is true when the file has no phases and these are the package's defaults.
	Default bool `json:"default,omitempty"`
}

// RequestSLO is what a single request must keep to count as goodput; milliseconds, nil where no limit is set.
type RequestSLO struct {
	TTFT *float64 `json:"ttft,omitempty"`
	TPOT *float64 `json:"tpot,omitempty"`
	ITL  *float64 `json:"itl,omitempty"`
	E2E  *float64 `json:"e2e,omitempty"`
}

// Server tells the live monitor where the service's own numbers are. Several addresses are replicas.
type Server struct {
	MetricsURLs []string `json:"metrics_url,omitempty"`
	HealthURLs  []string `json:"health_url,omitempty"`
	// GPUURLs are DCGM exporters, recorded to explain a result and never judged.
	GPUURLs []string `json:"gpu_url,omitempty"`
	// Interval is the time between two scrapes.
	Interval Duration `json:"interval"`
	// Engine is one of the names in Engines; "auto" recognises the engine by its metric names.
	Engine string `json:"engine"`
}

// Engines returns the values of server.engine.
func Engines() []string {
	return []string{"auto", "vllm", "sglang", "tgi", "llamacpp", "tensorrt-llm", "triton", "dynamo"}
}

// Duration is a time.Duration that is a string such as "2m" or "1m30s" in JSON.
type Duration time.Duration

// String returns the duration without trailing zero units: "2m", not "2m0s".
func (d Duration) String() string {
	text := time.Duration(d).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("duration: %w", err)
	}
	*d = Duration(parsed)
	return nil
}

// Criteria returns all criteria: the gate's, then the recovery's, then the client headroom's.
func (c *Contract) Criteria() []Criterion {
	return slices.Concat(c.Gate, c.Recovery, c.ClientHeadroom)
}

// Classes returns the workload classes that by_class names, in the order of the file.
func (c *Contract) Classes() []string {
	var classes []string
	for _, criterion := range c.Gate {
		if criterion.Class != "" && !slices.Contains(classes, criterion.Class) {
			classes = append(classes, criterion.Class)
		}
	}
	return classes
}

// roundDecimal removes the noise that binary arithmetic adds to decimal input: 1 - 0.07 is 0.93 and not
// 0.9299999999999999. Twelve significant digits are far below what any measurement here resolves.
func roundDecimal(x float64) float64 {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 12, 64), 64)
	if err != nil {
		return x
	}
	return rounded
}

// formatNumber writes a number in k6's threshold grammar and for people: digits, a point, no exponent.
func formatNumber(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// FormatQuantity writes a value with its unit for people.
func FormatQuantity(value float64, unit Unit) string {
	switch unit {
	case UnitMilliseconds:
		if math.Abs(value) >= 1000 {
			return formatNumber(roundDecimal(value/1000)) + "s"
		}
		return formatNumber(value) + "ms"
	case UnitRatio:
		return formatNumber(roundDecimal(value*100)) + "%"
	case UnitTokensPerSecond, UnitRequestsPerSecond:
		return formatNumber(value) + " " + string(unit)
	default:
		return formatNumber(value)
	}
}

func limitText(text string, op Op, limit Limit, unit Unit) string {
	if limit.Relative == nil || limit.Absolute == nil || limit.Baseline == nil {
		return text
	}
	_, written, _ := strings.Cut(text, string(op))
	return fmt.Sprintf("%s %s (%s, baseline %s)", op, FormatQuantity(*limit.Absolute, unit),
		strings.TrimSpace(written), FormatQuantity(*limit.Baseline, unit))
}
