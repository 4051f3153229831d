package plan

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/capacity"
)

// Capacity is what one replica carries, measured at its Safe QPS.
type Capacity struct {
	// SafeQPS of one replica, in requests per second.
	SafeQPS float64 `json:"safe_qps"`
	// Confirmed says that SafeQPS passed at the contract's full length; a plan on one that did not says so.
	Confirmed bool `json:"confirmed"`
	// Workload and Arrivals of the envelope's entry that was taken; "" for the result of one search.
	Workload string `json:"workload,omitempty"`
	Arrivals string `json:"arrivals,omitempty"`
	// CompletedRate is how many requests per second completed in the phase that the tokens were counted in; absent where it
	// was not measured.
	CompletedRate *float64 `json:"completed_rate,omitempty"`
	// OutputTokensPerSecond and PromptTokensPerSecond at SafeQPS; absent where not measured.
	OutputTokensPerSecond *float64 `json:"output_tokens_per_second,omitempty"`
	PromptTokensPerSecond *float64 `json:"prompt_tokens_per_second,omitempty"`
	// MeanInFlight requests at SafeQPS and their mean E2E in seconds. Both make Little's law a check.
	MeanInFlight   *float64 `json:"mean_in_flight,omitempty"`
	MeanE2ESeconds *float64 `json:"mean_e2e_seconds,omitempty"`
	// Doubts are the notes of the search: a plan is as good as what it rests on.
	Doubts []string `json:"doubts,omitempty"`
}

// FromResult takes the capacity of a replica from the result of a search on one replica. It is an error where no rate
// passed.
func FromResult(r *capacity.Result) (Capacity, error) {
	if r.SafeQPS == nil {
		return Capacity{}, fmt.Errorf("plan: the search found no Safe QPS (%s)", readable(r.Status))
	}
	c := Capacity{
		SafeQPS: *r.SafeQPS, Confirmed: r.Confirmed, CompletedRate: r.CompletedRate, OutputTokensPerSecond: r.OutputTokensPerSecond,
		PromptTokensPerSecond: r.PromptTokensPerSecond, MeanInFlight: r.MeanInFlight, Doubts: r.Notes,
	}
	const milliseconds = 1000 // in a second
	if q, ok := r.Latencies["e2e"]; ok && q.N > 0 && q.Mean > 0 {
		seconds := q.Mean / milliseconds
		if r.RequestsPerArrival != nil { // the Safe QPS counts arrivals, and each is in service for all of its requests
			seconds *= *r.RequestsPerArrival
		}
		c.MeanE2ESeconds = &seconds
	}
	return c, nil
}

// FromEnvelope takes the capacity from the entry of a workload and an arrival process; arrivals "" means the entry with
// the lowest Safe QPS, which is the safe choice.
func FromEnvelope(e *capacity.Envelope, workload, arrivals string) (Capacity, error) {
	var found *capacity.EnvelopeEntry
	for i := range e.Entries {
		entry := &e.Entries[i]
		if (workload != "" && entry.Workload != workload) || (arrivals != "" && entry.Arrivals != arrivals) {
			continue
		}
		if entry.Result.SafeQPS == nil {
			return Capacity{}, fmt.Errorf("plan: the search%s found no Safe QPS (%s)", ofEntry(entry), readable(entry.Result.Status))
		}
		if found == nil || *entry.Result.SafeQPS < *found.Result.SafeQPS {
			found = entry
		}
	}
	if found == nil {
		return Capacity{}, fmt.Errorf("plan: the envelope has no entry for workload %q, arrivals %q", workload, arrivals)
	}
	c, err := FromResult(&found.Result)
	c.Workload, c.Arrivals = found.Workload, found.Arrivals
	return c, err
}

// ofEntry says which search of an envelope an entry is of; "" where it has no name.
func ofEntry(e *capacity.EnvelopeEntry) string {
	var parts []string
	if e.Workload != "" {
		parts = append(parts, "workload "+e.Workload)
	}
	if e.Arrivals != "" {
		parts = append(parts, e.Arrivals+" arrivals")
	}
	if parts == nil {
		return ""
	}
	return " of " + strings.Join(parts, ", ")
}

func readable(s capacity.Status) string { return strings.ReplaceAll(string(s), "_", " ") }

// PeakRate is the highest mean rate of arrivals, per second, over any window of the given length; due are their times from
// the start of the trace, in order. Where the window is longer than the trace it is an error: such a rate was never seen.
func PeakRate(due []time.Duration, window time.Duration) (float64, error) {
	if window <= 0 {
		return 0, fmt.Errorf("plan: window is %v, expected more than 0", window)
	}
	if len(due) == 0 {
		return 0, errors.New("plan: the trace has no arrivals")
	}
	if span := due[len(due)-1] - due[0]; span < window {
		return 0, fmt.Errorf("plan: the trace spans %v, shorter than the window of %v", span, window)
	}
	most, first, before := 0, 0, due[0]
	for i, at := range due {
		if at < before {
			return 0, fmt.Errorf("plan: arrival %d of the trace is before the one before it", i)
		}
		before = at
		for at-due[first] >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return float64(most) / window.Seconds(), nil
}

// MeanRate is the mean rate of arrivals, per second: the gaps between them over the time from the first to the last. A
// trace has one gap fewer than arrivals. It is 0 for fewer than two arrivals, and for arrivals at one instant.
func MeanRate(due []time.Duration) float64 {
	if len(due) < 2 || due[len(due)-1] <= due[0] {
		return 0
	}
	return float64(len(due)-1) / (due[len(due)-1] - due[0]).Seconds()
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
