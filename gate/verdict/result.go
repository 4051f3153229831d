package verdict

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// Schema is the version of verdict.json.
const Schema = "safeqps-verdict/1"

// Criterion is the verdict on one line of the contract.
type Criterion struct {
	Name    string `json:"name"`
	Section string `json:"section"`
	Class   string `json:"class,omitempty"`
	Phase   string `json:"phase,omitempty"`
	// Limit is the condition for people; LimitValue its number in Unit, absent while it waits for a baseline.
	Limit      string   `json:"limit"`
	LimitValue *float64 `json:"limit_value,omitempty"`
	Unit       string   `json:"unit"`
	// Measured is the statistic that the limit is about, in Unit. A quantile counts a failed request as infinitely
	// slow; where it falls among those, Measured is absent and Note says so.
	Measured *float64 `json:"measured,omitempty"`
	// N is how many requests (or samples) the verdict rests on, Over how many of them were over the limit.
	N    int64 `json:"n"`
	Over int64 `json:"over"`
	// Undecided arrivals are not in N: dropped ones, and those cut short by the run's end. A pass holds even if all of
	// them are over the limit.
	Undecided int64 `json:"undecided,omitempty"`
	// OverLow and OverHigh bound the true share over the limit, each at the confidence.
	OverLow  *float64 `json:"over_low,omitempty"`
	OverHigh *float64 `json:"over_high,omitempty"`
	// MeanLow and MeanHigh bound the true mean, each at the confidence.
	MeanLow  *float64 `json:"mean_low,omitempty"`
	MeanHigh *float64 `json:"mean_high,omitempty"`
	// Inflation is how many requests hold the evidence of one independent one.
	Inflation float64 `json:"inflation,omitempty"`
	Verdict   Status  `json:"verdict"`
	// Needed is how many further requests would give PASS if none of them was over the limit, NeededAtShare how many
	// would decide it at the present share.
	Needed        *int64 `json:"needed,omitempty"`
	NeededAtShare *int64 `json:"needed_at_share,omitempty"`
	// Note says what a reader has to know beside the numbers.
	Note string `json:"note,omitempty"`
	// Ignored is true for a default criterion on the load generator that nothing was measured for, and in a step for one that
	// has nothing to decide there: it does not count.
	Ignored bool `json:"ignored,omitempty"`
}

// Quantiles of a metric in one phase, over the requests that have the metric; failed ones are not in them.
type Quantiles struct {
	N    int64   `json:"n"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Mean float64 `json:"mean"`
	Max  float64 `json:"max"`
}

// Phase is what happened in one phase. Warmup is shown here and counts nowhere else.
type Phase struct {
	Name   string         `json:"name"`
	Counts results.Counts `json:"counts"`
	// Seconds is the time from the phase's first to its last arrival.
	Seconds float64              `json:"seconds"`
	Metrics map[string]Quantiles `json:"metrics,omitempty"`
	// OfferedPerSecond is the rate of the phase's arrivals, (n-1)/Seconds; in a staircase the time is that of the steps
	// alone. It is absent for fewer than two.
	OfferedPerSecond *float64 `json:"offered_per_second,omitempty"`
	// Rates per second of what was completed in the whole seconds from the phase's first arrival to its last, absent where
	// the series does not have them. In a short phase they lie below the offered rate, since the answers to its last arrivals
	// come after it.
	RequestsPerSecond     *float64 `json:"requests_per_second,omitempty"`
	PromptTokensPerSecond *float64 `json:"prompt_tokens_per_second,omitempty"`
	OutputTokensPerSecond *float64 `json:"output_tokens_per_second,omitempty"`
}

// PrefixCache compares the measured prefix-cache hits with what the workload explains; shares of prompt tokens.
type PrefixCache struct {
	Measured float64  `json:"measured"`
	Ideal    *float64 `json:"ideal,omitempty"`
	// Source is "usage" for the tokens that answers reported as cached, "server" for the server's own ratio.
	Source string `json:"source"`
	// Warm is true when the measured ratio is above the ideal one: the cache held what this run did not put there.
	Warm bool `json:"warm,omitempty"`
}

// Result is verdict.json.
type Result struct {
	Schema     string         `json:"schema"`
	Verdict    Status         `json:"verdict"`
	Confidence float64        `json:"confidence"`
	Criteria   []Criterion    `json:"criteria"`
	Counts     results.Counts `json:"counts"`
	// DroppedBy splits Counts.Dropped by reason: no_vu, vu_starting, late, max_duration, stopped, or unknown where the
	// executor does not say.
	DroppedBy map[string]int64 `json:"dropped_by_reason,omitempty"`
	Phases    []Phase          `json:"phases,omitempty"`
	// Steps has the rates of a staircase by themselves, where the steady phase has more than one.
	Steps    []Step   `json:"steps,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// Crossed has the thresholds of k6 that were crossed, for the exit code of `k6 run`: no criterion is among them.
	Crossed  []CrossedThreshold `json:"crossed_thresholds,omitempty"`
	Labels   []string           `json:"labels,omitempty"`
	Prefix   *PrefixCache       `json:"prefix_cache,omitempty"`
	Aborted  *results.Aborted   `json:"aborted,omitempty"`
	Decision json.RawMessage    `json:"decision,omitempty"`
	Workload string             `json:"workload,omitempty"`
	Started  time.Time          `json:"started,omitzero"`
	Ended    time.Time          `json:"ended,omitzero"`

	// partial is true where evidence of instances is missing, or where they did not run at one time.
	partial bool
}

// Measured returns what a run measured for each criterion, as a baseline for another run's contract.
func (r *Result) Measured() map[string]float64 {
	values := make(map[string]float64, len(r.Criteria))
	for _, c := range r.Criteria {
		if c.Measured != nil {
			values[c.Name] = *c.Measured
		}
	}
	return values
}

// Write puts verdict.json into a results directory.
func (r *Result) Write(dir string) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("verdict: %w", err)
	}
	return results.WriteFile(filepath.Join(dir, results.VerdictFile), append(content, '\n'))
}

// Read reads a verdict.json; path is the file, or the results directory that holds it.
func Read(path string) (*Result, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, results.VerdictFile)
	}
	content, err := os.ReadFile(path) // #nosec G304 -- the user's choice
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("verdict: there is no %s", path)
	}
	if err != nil {
		return nil, fmt.Errorf("verdict: %w", err)
	}
	return Parse(path, content)
}

// Parse is the content of a verdict.json; path names it in errors.
func Parse(path string, content []byte) (*Result, error) {
	var r Result
	if err := results.DecodeJSON(content, &r); err != nil {
		return nil, fmt.Errorf("verdict: %s: %w", path, err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("verdict: %s: schema is %q, this version reads %q", path, r.Schema, Schema)
	}
	all := append([]Status{r.Verdict}, statuses(r.Criteria)...)
	for _, step := range r.Steps {
		all = append(append(all, step.Verdict), statuses(step.Criteria)...)
	}
	for _, status := range all {
		if err := status.check(); err != nil {
			return nil, fmt.Errorf("%w in %s", err, path)
		}
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("verdict: %s: %w", path, err)
	}
	return &r, nil
}

func statuses(criteria []Criterion) []Status {
	all := make([]Status, len(criteria))
	for i, c := range criteria {
		all[i] = c.Verdict
	}
	return all
}
