package capacity

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// EnvelopeSchema is the version of an envelope.
const EnvelopeSchema = "safeqps-envelope/1"

// Envelope is the Capacity Envelope of a service: its Safe QPS for each workload and arrival process, and the
// configuration and date that it holds for.
type Envelope struct {
	Schema  string    `json:"schema"`
	Created time.Time `json:"created"`
	// Configuration of the service: model, engine, GPU, replicas and whatever else was decided on.
	Configuration map[string]string `json:"configuration,omitempty"`
	// Labels qualify every number, such as those of a results directory.
	Labels  []string        `json:"labels,omitempty"`
	Entries []EnvelopeEntry `json:"entries"`
}

// EnvelopeEntry is the result for one workload and arrival process.
type EnvelopeEntry struct {
	Workload string `json:"workload"`
	// Arrivals names the arrival process for people: constant, Poisson, a trace.
	Arrivals string `json:"arrivals"`
	// Burstiness is the Gamma shape of the gaps; absent for a trace, and for constant gaps, whose shape is infinite.
	Burstiness *float64 `json:"burstiness,omitempty"`
	Result     Result   `json:"result"`
}

// Arrivals names an arrival process by its burstiness: constant for +Inf, Poisson for 1.
func Arrivals(burstiness float64) string {
	switch {
	case math.IsInf(burstiness, 1):
		return "constant"
	case burstiness == 1:
		return "Poisson"
	case burstiness < 1:
		return fmt.Sprintf("bursty (k = %.3g)", burstiness)
	}
	return fmt.Sprintf("smooth (k = %.3g)", burstiness)
}

// NewEnvelope is an envelope without entries.
func NewEnvelope(created time.Time, configuration map[string]string) *Envelope {
	return &Envelope{Schema: EnvelopeSchema, Created: created.UTC(), Configuration: configuration, Entries: []EnvelopeEntry{}}
}

// JSON is the envelope with indentation, and a newline at its end.
func (e *Envelope) JSON() ([]byte, error) {
	content, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("capacity: %w", err)
	}
	return append(content, '\n'), nil
}

// ReadEnvelope reads an envelope from its JSON.
func ReadEnvelope(content []byte) (*Envelope, error) {
	var e Envelope
	if err := json.Unmarshal(content, &e); err != nil {
		return nil, fmt.Errorf("capacity: envelope: %w", err)
	}
	if e.Schema != EnvelopeSchema {
		return nil, fmt.Errorf("capacity: envelope: schema is %q, this version reads %q", e.Schema, EnvelopeSchema)
	}
	if len(e.Entries) == 0 {
		return nil, errors.New("capacity: envelope: it has no entries")
	}
	return &e, nil
}

var envelopeHeader = []string{
	"workload", "arrivals", "Safe QPS", "output tok/s", "broke first", "knee", "margin", "probes", "status",
}

func (e *Envelope) rows() [][]string {
	rows := make([][]string, 0, len(e.Entries))
	for i := range e.Entries {
		entry := &e.Entries[i]
		r := &entry.Result
		safe := number(r.SafeQPS, "%.4g")
		if r.SafeQPS != nil && !r.Confirmed {
			safe += " (not confirmed)"
		}
		if r.Status == AboveRange {
			safe = "≥ " + safe
		}
		knee, margin := "-", "-"
		if r.Knee != nil {
			knee = number(&r.Knee.Rate, "%.4g")
		}
		if r.Margin != nil {
			margin = percent(*r.Margin)
		}
		limiting := r.LimitingCriterion
		if limiting == "" || r.Bracket.High == nil {
			limiting = "-"
		}
		rows = append(rows, []string{
			entry.Workload, entry.Arrivals, safe, number(r.OutputTokensPerSecond, "%.4g"), limiting, knee, margin,
			fmt.Sprint(len(r.Probes)), strings.ReplaceAll(string(r.Status), "_", " "),
		})
	}
	return rows
}

func number(v *float64, format string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v)
}

// conditions are the lines under a table: what it holds for.
func (e *Envelope) conditions() []string {
	lines := []string{"measured " + e.Created.Format(time.RFC3339)}
	keys := make([]string, 0, len(e.Configuration))
	for key := range e.Configuration {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		lines = append(lines, key+": "+e.Configuration[key])
	}
	return append(lines, e.Labels...)
}

// Text is a table for a terminal.
func (e *Envelope) Text() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, strings.Join(envelopeHeader, "\t")) //nolint:errcheck // a strings.Builder does not fail
	for _, row := range e.rows() {
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t")) //nolint:errcheck // a strings.Builder does not fail
	}
	_ = w.Flush() //nolint:errcheck // a strings.Builder does not fail
	for _, line := range e.conditions() {
		b.WriteString(line + "\n")
	}
	return b.String()
}

// Markdown is a table for a report.
func (e *Envelope) Markdown() string {
	var b strings.Builder
	write := func(cells []string) {
		escaped := make([]string, len(cells))
		for i, cell := range cells {
			escaped[i] = strings.ReplaceAll(strings.ReplaceAll(cell, "|", "\\|"), "\n", " ")
		}
		b.WriteString("| " + strings.Join(escaped, " | ") + " |\n")
	}
	write(envelopeHeader)
	b.WriteString(strings.Repeat("| --- ", len(envelopeHeader)) + "|\n")
	for _, row := range e.rows() {
		write(row)
	}
	b.WriteString("\n")
	for _, line := range e.conditions() {
		b.WriteString("- " + strings.ReplaceAll(line, "\n", " ") + "\n")
	}
	return b.String()
}
