package results

import (
	"encoding/json"
	"time"
)

// Request is one line of requests.jsonl: an arrival and what became of it, or a retry of one. Durations are
// milliseconds. A field whose zero value means "absent" is left out of the line.
type Request struct {
	// Row is the row of the trace, or -1 where the arrival is not a row.
	Row int64
	// Attempt is 1 (or 0) for the first attempt, 2 for the first retry.
	Attempt int

	Scenario string
	Phase    string // warmup, steady, recovery
	Step     string // the rate of a staircase
	Class    string
	Model    string
	API      string // chat, completions, responses, messages, embeddings
	// Turn of a session, and Round of a tool loop within the turn, both from 1; 0 where there is none.
	Turn, Round int64

	// Due is the instant at which the schedule said that the request starts; zero where there is no schedule.
	Due time.Time
	// Start is when it was sent; zero for a dropped arrival.
	Start time.Time

	Outcome Outcome
	// ErrorType is one of the types of llm_errors; "interrupted" goes with InFlight.
	ErrorType string
	// CancelPhase says what a cancelled or interrupted request was waiting for: queued, prefill, decode.
	CancelPhase string
	// Status is the HTTP status, 0 where none came.
	Status int

	TTFT     Number // first chunk minus send
	TTFTText Number // first non-reasoning chunk minus send
	TPOT     Number // (last chunk - first chunk) / (completion tokens - 1)
	E2E      Number // last byte of a whole answer minus send
	// Elapsed is the time from send to the end of what is known of a request that has no E2E.
	Elapsed       Number
	ScheduleDelay Number // send minus due time
	OutputTPS     Number // completion tokens per second, first chunk to last

	// The gaps between the chunks of this request.
	ITLP50   Number
	ITLP99   Number
	ITLMax   Number
	ITLCount int64

	Chunks int64

	PromptAsked     Int
	Prompt          Int
	CompletionAsked Int // max_tokens
	Completion      Int
	Cached          Int
	Reasoning       Int
	// TokenSource says who counted: server, tokenizer or chunks.
	TokenSource string

	// Goodput says whether every per-request SLO was met; absent where there is none or it cannot be judged.
	Goodput Flag
	Cost    Number
	// RequestID is the server's name for the request.
	RequestID string
}

// Arrival is the instant that orders requests in time: the due time, or the start where there is none.
func (r *Request) Arrival() time.Time {
	if !r.Due.IsZero() {
		return r.Due
	}
	return r.Start
}

// APIEmbeddings is the API whose answers are not made of tokens.
const APIEmbeddings = "embeddings"

// Tokenless reports a request that has no TTFT, TPOT or ITL by its nature: nothing follows about them from it, neither
// where it completes nor where it fails.
func (r *Request) Tokenless() bool { return r.API == APIEmbeddings }

// Sample is one line of series.jsonl: one second of the run. Flow counts and tokens are what happened in that
// second; a nil one was not measured. Gauges are the last values seen in it.
type Sample struct {
	Time  time.Time `json:"t"`
	Phase string    `json:"phase,omitempty"`
	Step  string    `json:"step,omitempty"`

	Offered   *int64 `json:"offered,omitempty"`
	Started   *int64 `json:"started,omitempty"`
	Dropped   *int64 `json:"dropped,omitempty"`
	Completed *int64 `json:"completed,omitempty"`
	Failed    *int64 `json:"failed,omitempty"`
	Cancelled *int64 `json:"cancelled,omitempty"`
	// InFlight is a gauge: requests being served at the end of the second, as the client sees. It is known from the first start
	// on, in every second.
	InFlight *int64 `json:"in_flight,omitempty"`

	PromptTokens     *int64 `json:"prompt_tokens,omitempty"`
	CompletionTokens *int64 `json:"completion_tokens,omitempty"`

	// Server holds what the service's own metrics say, by the name after "llm_server_": queue_depth, running,
	// kv_cache_usage, prefix_hit_ratio, preemptions.
	Server map[string]float64 `json:"server,omitempty"`
	// Client holds the load generator's own state, by the name after "llm_client_": cpu, memory, open_files,
	// timer_delay.
	Client map[string]float64 `json:"client,omitempty"`

	// Clock is what was learnt in this second of how this host's clock stands to the service's.
	Clock []ClockReading `json:"clock,omitempty"`
}

// The kinds of events that this module writes.
const (
	EventAbort        = "abort"         // Rule and Saw say why the run was stopped
	EventScrapeGap    = "scrape_gap"    // the server's metrics could not be read
	EventGPUGap       = "gpu_gap"       // the GPU exporter could not be read
	EventHealthGap    = "health_gap"    // a health endpoint that the contract does not name has never answered well
	EventUnhealthy    = "unhealthy"     // the server's health endpoint said no
	EventClientLimit  = "client_limit"  // the load generator reached a limit of its own
	EventHistogramCap = "histogram_cap" // more phase, step and class combinations than are kept
)

// Event is one line of events.jsonl.
type Event struct {
	Time    time.Time `json:"t"`
	Kind    string    `json:"kind"`
	Message string    `json:"message"`
	// Rule names the criterion or abort rule that the event is about.
	Rule string `json:"rule,omitempty"`
	// Saw is the value that the rule saw.
	Saw *float64 `json:"saw,omitempty"`
	// Count is how many things the event stands for; 0 means one.
	Count int64 `json:"count,omitempty"`
}

// Span is a stretch of wall-clock time with a name. End is zero while it lasts.
type Span struct {
	Name  string    `json:"name"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end,omitzero"`
}

// Host describes the machine of the load generator.
type Host struct {
	Name     string `json:"name,omitempty"`
	OS       string `json:"os,omitempty"`
	Arch     string `json:"arch,omitempty"`
	CPUs     int    `json:"cpus,omitempty"`
	MemoryMB int64  `json:"memory_mb,omitempty"`
}

// RuleInterrupted is the Rule of a run that k6 or its user ended for a reason outside of the contract.
const RuleInterrupted = "k6"

// Aborted says which rule stopped a run, and what it saw. Rule is the name of an abort rule of the contract, or
// RuleInterrupted.
type Aborted struct {
	Rule string    `json:"rule"`
	Saw  string    `json:"saw"`
	At   time.Time `json:"at"`
}

// DigestOfScript is the key of the script's digest in Info.Digests: of the script itself, or of the archive that was run.
const DigestOfScript = "script"

// Info is run.json: what was run, as far as it is known before and after.
type Info struct {
	Schema string `json:"schema"`
	// Started and Ended are wall-clock times. Ended is zero if the run did not come to its own end: it was
	// killed, or is still going on.
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
	Aborted *Aborted  `json:"aborted,omitempty"`

	// Contract is the checked contract as JSON.
	Contract json.RawMessage `json:"contract,omitempty"`
	// Decision is the contract's free-form decision: what this run is to decide.
	Decision json.RawMessage `json:"decision,omitempty"`
	// Options are k6's options as JSON.
	Options json.RawMessage `json:"options,omitempty"`

	Versions map[string]string `json:"versions,omitempty"` // k6, this module, Go
	Seeds    map[string]uint64 `json:"seeds,omitempty"`
	// Rates are the mean rates of whole traces, in requests per second, as they were to be replayed.
	Rates map[string]float64 `json:"rates,omitempty"`
	// Digests are "sha256:…" of the traces' files, by the traces' ids, and of the script (DigestOfScript).
	Digests map[string]string `json:"digests,omitempty"`
	// Segment is the execution segment of this instance, such as "0:1/3"; "" for the whole.
	Segment string `json:"segment,omitempty"`
	Host    Host   `json:"host,omitzero"`

	Phases []Span `json:"phases,omitempty"`
	Steps  []Span `json:"steps,omitempty"`

	// Labels are the conditions that every use of the result must repeat; see the Label constants.
	Labels []string `json:"labels,omitempty"`
	// Merged is set where the directory was joined of those of several instances.
	Merged *Merged `json:"merged,omitempty"`
	// IdealPrefixHitRatio is the share of prompt tokens that the workload's own reuse could serve from a
	// prefix cache that forgets nothing, between 0 and 1; nil where it is not known.
	IdealPrefixHitRatio *float64 `json:"ideal_prefix_hit_ratio,omitempty"`
	// Workload names the trace or generator, for people.
	Workload string `json:"workload,omitempty"`

	// Files are what the files held when the run ended, by their names in the directory. Close fills it in.
	Files map[string]FileRecord `json:"files,omitempty"`
}

// Labels that qualify a result. They are free text; these are the ones that this module sets itself.
const (
	// LabelSegment: one instance of several; the merged verdict is the test's.
	LabelSegment = "one instance of several, segment"
	// LabelIgnoreEOS: answers were forced to their asked length. Such runs compare configurations.
	LabelIgnoreEOS = "ignore_eos: compares configurations, claims no capacity"
	// LabelClosedLoop: a new request of the steady phase (of any, where there is none) waits for an answer, so the service sets
	// its own load.
	LabelClosedLoop = "closed-loop: the service sets its own arrival rate"
	// LabelRescaledTrace: the trace was replayed at another speed or rate than it was recorded at.
	LabelRescaledTrace = "trace rescaled in time"
	// LabelTruncatedTrace: only a part of the trace was replayed.
	LabelTruncatedTrace = "trace truncated"
	// LabelRepeatedTrace: rows of the trace were replayed more than once.
	LabelRepeatedTrace = "trace repeated"
	// LabelOtherArrivals: the trace said what was asked, and not when.
	LabelOtherArrivals = "arrivals not the trace's"
	// LabelSyntheticPrompts: the prompts' text is generated.
	LabelSyntheticPrompts = "synthetic prompts"
	// LabelCalibratedLengths: prompt lengths were calibrated against the served model's own count.
	LabelCalibratedLengths = "calibrated lengths"
	// LabelUnwatched: an abort rule of the contract could not be watched, so that it did not stop the run.
	LabelUnwatched = "abort rule not watched"
)
