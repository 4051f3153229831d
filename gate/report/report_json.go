package report

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// ReportSchema is the version of report.json. A new key does not change it, a changed meaning does.
const ReportSchema = "safeqps-report/1"

// ReportFile is the name of report.json in a results directory.
const ReportFile = results.ReportFile

// Input is what a report shows: one run, or the runs of a capacity search. Collect fills it from results directories;
// the one who searched adds Capacity.
type Input struct {
	// Title heads the report; "" gives a title from the runs.
	Title string `json:"title,omitempty"`
	// Generated is when the report was made; zero leaves it out.
	Generated time.Time `json:"generated,omitzero"`
	// Capacity is what a search found, one entry per workload and arrival process. Empty for plain runs.
	Capacity []Capacity `json:"capacity,omitempty"`
	Runs     []Run      `json:"runs"`
}

// Capacity is one row of a capacity envelope: what a service can take of one workload and arrival process.
type Capacity struct {
	Workload string `json:"workload,omitempty"`
	Arrival  string `json:"arrival,omitempty"`
	// SafeQPS is the highest rate, in requests per second, that held every criterion; absent where none did.
	SafeQPS *float64 `json:"safe_qps,omitempty"`
	// Confirmed says that SafeQPS was run at the contract's full length.
	Confirmed bool `json:"confirmed"`
	// CompletedRate is how many arrivals per second completed at SafeQPS, RequestsPerArrival how many requests each of them
	// sent, absent where that is one. OutputTokensPerSecond is what the service delivered meanwhile, PromptTokensPerSecond
	// what it read.
	CompletedRate         *float64 `json:"completed_rate,omitempty"`
	RequestsPerArrival    *float64 `json:"requests_per_arrival,omitempty"`
	OutputTokensPerSecond *float64 `json:"output_tokens_per_second,omitempty"`
	PromptTokensPerSecond *float64 `json:"prompt_tokens_per_second,omitempty"`
	// LimitingCriterion broke first above SafeQPS.
	LimitingCriterion string `json:"limiting_criterion,omitempty"`
	// Knee is the rate in requests per second at which the tail latency starts to rise steeply.
	Knee *float64 `json:"knee,omitempty"`
	// Margin is how far SafeQPS lies below the knee, as a share of the knee; negative where the knee comes first.
	Margin *float64 `json:"margin,omitempty"`
	// Note is what a reader has to know beside the numbers.
	Note string `json:"note,omitempty"`
	// Created and Configuration are when it was found, and of which configuration of the service: it holds for no other.
	Created       time.Time         `json:"created,omitzero"`
	Configuration map[string]string `json:"configuration,omitempty"`
}

// Run is one results directory, aggregated: its size does not grow with the number of requests.
type Run struct {
	// Dir is the directory as it was given, Name the part of it that tells it from the others.
	Dir  string `json:"dir"`
	Name string `json:"name"`
	// Workload and Process are the workload and the arrival process of the capacity search that the run is a probe of, as it
	// was asked for them; "" where it was not, or where the run is of no search. NameSearches fills them.
	Workload string `json:"workload,omitempty"`
	Process  string `json:"process,omitempty"`
	// Info is run.json.
	Info results.Info `json:"run"`
	// Verdict is verdict.json; nil where the run was never judged and carries no contract to judge it by.
	Verdict *verdict.Result `json:"verdict,omitempty"`
	// Arrival names the arrival process: "constant", "smooth", "Poisson", "bursty", "closed loop" or "unknown".
	// GapCV is what it rests on where the executor does not say: the coefficient of variation of the gaps between
	// arrivals, 0 for constant ones and 1 for Poisson.
	Arrival string   `json:"arrival"`
	GapCV   *float64 `json:"gap_cv,omitempty"`
	// Part is what points, groups and histograms are about: "steady", or "" for the whole run where no arrival
	// carries that phase.
	Part string `json:"part"`
	// Counts is the ledger of Part's arrivals.
	Counts results.Counts `json:"counts"`
	// DroppedBy splits Counts.Dropped by reason, as verdict.Result has it.
	DroppedBy map[string]int64 `json:"dropped_by_reason,omitempty"`
	// Points has one entry per rate: per step of a staircase, or a single one.
	Points []Point `json:"points,omitempty"`
	// Classes and InputLengths split Part by workload class and by prompt tokens.
	Classes      []Group `json:"classes,omitempty"`
	InputLengths []Group `json:"input_lengths,omitempty"`
	// PromptTokens and OutputTokens are the histograms of lengths, asked for and achieved; nil where neither is known.
	PromptTokens *TokenHistogram `json:"prompt_token_histogram,omitempty"`
	OutputTokens *TokenHistogram `json:"output_token_histogram,omitempty"`
	// ErrorTypes counts Part's failed requests by the types of llm_errors.
	ErrorTypes map[string]int64 `json:"error_types,omitempty"`
	Series     Series           `json:"series"`
	// Events are the first of events.jsonl, EventsTotal the number of its lines.
	Events      []results.Event `json:"events,omitempty"`
	EventsTotal int             `json:"events_total"`
	// Notes are faults of the files that the reader has to know of.
	Notes []string `json:"notes,omitempty"`
}

// Point is what was seen at one rate.
type Point struct {
	// Step is the tag of the staircase; "" for a run of one rate.
	Step string `json:"step,omitempty"`
	// OfferedPerSecond is the rate of arrivals, AchievedPerSecond that of completions meanwhile, in requests per
	// second, OutputTokensPerSecond that of completion tokens.
	OfferedPerSecond      *float64       `json:"offered_per_second,omitempty"`
	AchievedPerSecond     *float64       `json:"achieved_per_second,omitempty"`
	OutputTokensPerSecond *float64       `json:"output_tokens_per_second,omitempty"`
	Counts                results.Counts `json:"counts"`
	// Goodput is the share of the judged requests that met every SLO of their own, failed ones did not. ErrorShare is
	// the share of the started requests that failed.
	Goodput    *float64 `json:"goodput,omitempty"`
	ErrorShare *float64 `json:"error_share,omitempty"`
	// The latencies in milliseconds, of the requests that have them.
	TTFT *verdict.Quantiles `json:"ttft,omitempty"`
	ITL  *verdict.Quantiles `json:"itl,omitempty"`
	TPOT *verdict.Quantiles `json:"tpot,omitempty"`
	E2E  *verdict.Quantiles `json:"e2e,omitempty"`
}

// Survivors reports that the run ended before a tenth or more of the started requests had. The latencies are then of those
// that came back soonest: lower bounds, which fall as the load rises.
func (p Point) Survivors() bool {
	const left = 0.1
	open := p.Counts.InFlight + p.Counts.Cancelled
	return float64(open) > left*float64(p.Counts.Started)
}

// Ended counts the requests that came to an end of their own.
func (p Point) Ended() int64 { return p.Counts.Completed + p.Counts.Failed }

// Group is a part of the requests: a class, or a range of prompt lengths.
type Group struct {
	Name string `json:"name"`
	// From and To bound the prompt tokens, both inclusive; both 0 for a class.
	From int64 `json:"from,omitempty"`
	To   int64 `json:"to,omitempty"`
	// N counts the started requests, Failed those of them that failed.
	N      int64              `json:"n"`
	Failed int64              `json:"failed"`
	TTFT   *verdict.Quantiles `json:"ttft,omitempty"`
	TPOT   *verdict.Quantiles `json:"tpot,omitempty"`
	E2E    *verdict.Quantiles `json:"e2e,omitempty"`
}

// TokenHistogram counts requests by a length in tokens. Bin i holds From[i] to To[i], both inclusive; bins are
// four to an octave. Asked or Achieved is nil where no request has it.
type TokenHistogram struct {
	From     []int64 `json:"from"`
	To       []int64 `json:"to"`
	Asked    []int64 `json:"asked,omitempty"`
	Achieved []int64 `json:"achieved,omitempty"`
}

// Series is the run over time, in bins of equal length. Columns holds what was measured, one value per bin, by name:
//
//	offered, started, dropped, completed, failed, cancelled     requests per second
//	prompt_tokens, completion_tokens                            tokens per second
//	ttft_p50, ttft_p95, ttft_p99, e2e_p99, schedule_delay_p99   ms, by the request's arrival
//	goodput, error_share                                        shares of the requests that arrived in the bin
//	in_flight, server_NAME, client_NAME                         gauges: the highest of the bin
//	in_flight_min, server_NAME_min, client_NAME_min             the lowest, where bins are longer than a second
//
// A bin without a value is null: nothing was measured in it.
type Series struct {
	BinSeconds float64           `json:"bin_seconds"`
	Seconds    []float64         `json:"seconds"` // where each bin begins, from Info.Started
	Phases     []Stretch         `json:"phases,omitempty"`
	Steps      []Stretch         `json:"steps,omitempty"`
	Columns    map[string]Column `json:"columns"`
}

// Stretch is a named part of a series, in seconds from Info.Started.
type Stretch struct {
	Name string  `json:"name"`
	From float64 `json:"from"`
	To   float64 `json:"to"`
}

// Column is a list of values of which some may be absent. In JSON they are numbers of four significant digits, or null.
type Column []results.Number

// MarshalJSON implements json.Marshaler.
func (c Column) MarshalJSON() ([]byte, error) {
	const bytesPerValue, significant = 6, 4
	b := make([]byte, 0, bytesPerValue*len(c)+2)
	b = append(b, '[')
	for i, n := range c {
		if i > 0 {
			b = append(b, ',')
		}
		switch {
		case !n.Known:
			b = append(b, "null"...)
		case math.IsNaN(n.Value) || math.IsInf(n.Value, 0):
			return nil, fmt.Errorf("report: value %d of a column is %v", i, n.Value)
		default:
			b = strconv.AppendFloat(b, n.Value, 'g', significant, 64)
		}
	}
	return append(b, ']'), nil
}

// JSON is report.json: everything that the HTML report shows, for programs.
func JSON(in Input) ([]byte, error) {
	content, err := json.Marshal(struct {
		Schema string `json:"schema"`
		Input
	}{ReportSchema, in})
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	return append(content, '\n'), nil
}
