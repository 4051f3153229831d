package capacity

import (
	"context"

	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// Purpose says why a probe is run.
type Purpose string

// The purposes of probes.
const (
	// PurposeBracket looks for a rate that passes and one that does not.
	PurposeBracket Purpose = "bracket"
	// PurposeBisect narrows the bracket.
	PurposeBisect Purpose = "bisect"
	// PurposeExtend repeats a rate whose probe was INCONCLUSIVE, for longer.
	PurposeExtend Purpose = "extend"
	// PurposeConfirm runs a rate at full length, to stand as the answer.
	PurposeConfirm Purpose = "confirm"
	// PurposeStepDown runs a lower rate at full length, after the one to be confirmed did not pass.
	PurposeStepDown Purpose = "step_down"
)

// ProbeRequest asks for one probe.
type ProbeRequest struct {
	// N counts from 1. A probe that was interrupted is asked for again with the same N, and with the number of the attempt.
	N       int `json:"n"`
	Attempt int `json:"attempt,omitempty"`
	// Rate is in requests per second.
	Rate    float64 `json:"rate"`
	Purpose Purpose `json:"purpose"`
	// Length of the steady phase, in units of Options.FullSeconds. The other phases have their usual length.
	Length float64 `json:"length"`
	// StopEarly asks for the probe to end once it has certainly failed; see EarlyFail.
	StopEarly bool `json:"stop_early"`
	// Extends is the number of the INCONCLUSIVE probe that this one repeats for longer; 0 for none.
	Extends int `json:"extends,omitempty"`
	// Repeats is the number of the INVALID probe that this one repeats; 0 for none.
	Repeats int `json:"repeats,omitempty"`
	// Seed is a function of Options.Seed, N and Attempt. LLMSeed is what the script is handed of it, for arrivals and prompts: the
	// 53 bits that a number of JavaScript holds.
	Seed    uint64 `json:"seed"`
	LLMSeed uint64 `json:"llm_seed,omitempty"`
	// Dir is the name of the probe's directory within that of the search, such as "probe-03".
	Dir string `json:"dir"`
}

// ProbeResult is what a probe found.
type ProbeResult struct {
	Verdict verdict.Status `json:"verdict"`
	// LimitingCriterion is the one that failed, or else came nearest to its limit; "" where none says.
	LimitingCriterion string `json:"limiting_criterion,omitempty"`
	// Pressure is how much of its limit the limiting criterion used: 1 is at the limit, 2 twice over it. It only places
	// the next probe. Absent where the criterion is not a number.
	Pressure *float64 `json:"pressure,omitempty"`
	// Needed is how many further requests would decide an INCONCLUSIVE verdict if things stay as they are; absent where
	// no number is known to suffice.
	Needed *int64 `json:"needed,omitempty"`

	// Requests offered in the steady phase.
	Requests int64 `json:"requests"`
	// OfferedRate is the rate of arrivals in the steady phase, per second; absent where they were too few to tell. A trace is
	// not even: its part that falls into the phase can be busier or quieter than the rate that was asked for.
	OfferedRate *float64 `json:"offered_rate,omitempty"`
	// RequestsPerArrival, where an arrival sends several, as sessions and RAG scripts do; absent where it sends one.
	RequestsPerArrival *float64 `json:"requests_per_arrival,omitempty"`
	// CompletedRate is the rate at which arrivals completed in the steady phase, per second: what an overloaded service
	// can serve.
	CompletedRate         *float64 `json:"completed_rate,omitempty"`
	OutputTokensPerSecond *float64 `json:"output_tokens_per_second,omitempty"`
	PromptTokensPerSecond *float64 `json:"prompt_tokens_per_second,omitempty"`
	// MeanInFlight requests over the steady phase: the time that requests spent in it over its length. InFlightSampled says
	// that it is the mean of one reading a second instead, since the ends of some requests are not known.
	MeanInFlight    *float64 `json:"mean_in_flight,omitempty"`
	InFlightSampled bool     `json:"in_flight_sampled,omitempty"`
	// Latencies in milliseconds by metric (ttft, tpot, itl, e2e).
	Latencies map[string]verdict.Quantiles `json:"latencies,omitempty"`

	// Seconds that the whole probe took, of the service's time.
	Seconds float64 `json:"seconds"`
	// StoppedEarly says why the probe ended before its planned length; "" where it did not.
	StoppedEarly string `json:"stopped_early,omitempty"`
	// WarmCache: the service's prefix cache held prompts of this probe from before it began, so its latencies are too good.
	WarmCache bool `json:"warm_cache,omitempty"`
	// Warnings and labels of the verdict.
	Warnings []string `json:"warnings,omitempty"`
	Labels   []string `json:"labels,omitempty"`
	// Recovered says whether the service came back to its idle state afterwards; absent where it cannot be seen.
	Recovered *bool `json:"recovered,omitempty"`
	// OwnArrivals: a recorded trace brought its arrivals, whatever process was asked for.
	OwnArrivals bool `json:"own_arrivals,omitempty"`
	// Note is for people.
	Note string `json:"note,omitempty"`
}

// Record is a probe that has ended.
type Record struct {
	ProbeRequest
	ProbeResult
}

// Probe runs one probe. An error ends the search; it can be resumed, and asks for the same probe again.
type Probe func(ctx context.Context, request ProbeRequest) (ProbeResult, error)

// saturated reports that the service could not serve the rate it was offered, so that what it did serve is its capacity.
func (r *Record) saturated() bool {
	return r.Verdict == verdict.Fail && r.CompletedRate != nil && *r.CompletedRate > 0 &&
		*r.CompletedRate < saturatedBelow*r.Rate
}

// saturatedBelow is the completed share of the offered rate below which a service counts as saturated. It is low enough
// for the requests that are in flight at the end of a short probe.
const saturatedBelow = 0.85
