package capacity

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// EnvelopeFile is the name of the envelope in the directory of its searches.
const EnvelopeFile = "envelope.json"

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
	// Arrivals is the arrival process as it was asked for: constant, poisson, bursty, a Gamma shape; "" is the script's own,
	// and "trace" that of a recorded trace, which has its own whatever was asked for.
	Arrivals string `json:"arrivals"`
	// Burstiness is the Gamma shape of the gaps; absent for a trace, and for constant gaps, whose shape is infinite.
	Burstiness *float64 `json:"burstiness,omitempty"`
	// Dir is the directory of the search, within that of the envelope; "" where it is the same.
	Dir    string `json:"dir,omitempty"`
	Result Result `json:"result"`
}

// TraceArrivals are the Arrivals of a recorded trace.
const TraceArrivals = "trace"

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
