package llmtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// FaultHeader is the request header that carries a Fault as JSON; the body field "sim_fault" does the same and wins.
const FaultHeader = "X-Sim-Fault"

// Duration is a time.Duration that is written as Go writes it, "250ms", in JSON.
type Duration time.Duration

// UnmarshalJSON reads a string such as "250ms".
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("duration %s: expected a string such as \"250ms\"", b)
	}
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 {
		return fmt.Errorf("duration %q: expected 0 or more, such as \"250ms\"", s)
	}
	*d = Duration(v)
	return nil
}

// MarshalJSON writes a string such as "250ms".
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// Fault says how the server shall misbehave for one request. The zero value is a healthy answer.
//
// The fields that end in After count streamed chunks that carry output: 0 strikes before the first (and before the
// role-only delta), N right after the N-th. A stream that is shorter than that is not disturbed. Of an answer that is not
// streamed only Status, RetryAfter, HeaderDelay, NoUsage, ReasoningTokens, ToolCall and ToolRounds change, and ResetAfter, DropAfter and
// MalformedAfter whatever their count: the connection is closed before or within the answer, or its JSON is broken.
type Fault struct {
	// Status answers with this HTTP status, 400 to 599, and an error object, and RetryAfter (whole seconds) in the header
	// of that name.
	Status     int  `json:"status,omitempty"`
	RetryAfter *int `json:"retry_after,omitempty"`
	// HeaderDelay holds everything back, the status line too, before the request reaches the engine.
	HeaderDelay Duration `json:"header_delay,omitzero"`

	// TruncateAfter ends the answer properly as HTTP, but without finish reason, usage or [DONE].
	TruncateAfter *int `json:"truncate_after,omitempty"`
	// DropAfter closes the connection (FIN) in the middle of the answer.
	DropAfter *int `json:"drop_after,omitempty"`
	// ResetAfter resets the connection (RST).
	ResetAfter *int `json:"reset_after,omitempty"`
	// ErrorAfter ends the stream with an error event, followed by [DONE] where ErrorDone is set (chat and completions).
	ErrorAfter *int `json:"error_after,omitempty"`
	ErrorDone  bool `json:"error_done,omitempty"`
	// StallAfter stops sending for StallFor, or until the client leaves where StallFor is 0.
	StallAfter *int     `json:"stall_after,omitempty"`
	StallFor   Duration `json:"stall_for,omitzero"`
	// MalformedAfter makes the next chunk invalid JSON.
	MalformedAfter *int `json:"malformed_after,omitempty"`

	// Heartbeat sends an SSE comment whenever the stream was silent for so long, also before the first token.
	Heartbeat Duration `json:"heartbeat,omitzero"`
	// TokensPerChunk puts this many tokens into each chunk (the last may hold fewer).
	TokensPerChunk int `json:"tokens_per_chunk,omitempty"`
	// NoUsage leaves usage out even where it was asked for, NoDone the terminal event: [DONE], response.completed or
	// message_stop.
	NoUsage bool `json:"no_usage,omitempty"`
	NoDone  bool `json:"no_done,omitempty"`
	// SplitAt sends each event in two writes, cut at this byte, SplitDelay apart. sim_sent_ns is stamped before the first.
	SplitAt    int      `json:"split_at,omitempty"`
	SplitDelay Duration `json:"split_delay,omitzero"`
	// DoneDelay holds the terminal event back, EOFDelay the end of the HTTP body after it.
	DoneDelay Duration `json:"done_delay,omitzero"`
	EOFDelay  Duration `json:"eof_delay,omitzero"`

	// ReasoningTokens sends the first so many tokens as reasoning: in chat in the field ReasoningField, "reasoning_content"
	// (the default) or "reasoning"; in the other APIs in their own form.
	ReasoningTokens int    `json:"reasoning_tokens,omitempty"`
	ReasoningField  string `json:"reasoning_field,omitempty"`
	// ToolCall answers with a tool call instead of text, in every API but completions. ToolRounds does so as long as fewer
	// results of tools than this have followed the user's last words: a loop of tools that ends.
	ToolCall   bool `json:"tool_call,omitempty"`
	ToolRounds int  `json:"tool_rounds,omitempty"`
}

// RandomFault is a fault that strikes a share of all requests, chosen by the engine's seed and the request's number.
type RandomFault struct {
	// Probability is between 0 and 1; the probabilities of all random faults add up to at most 1.
	Probability float64
	Fault       Fault
}

// Validate reports every wrong field at once.
func (f Fault) Validate() error {
	var errs []error
	if f.Status != 0 && (f.Status < 400 || f.Status > 599) {
		errs = append(errs, fmt.Errorf("status is %d, expected 400 to 599", f.Status))
	}
	counts := []struct {
		name  string
		value *int
	}{
		{"retry_after", f.RetryAfter},
		{"truncate_after", f.TruncateAfter},
		{"drop_after", f.DropAfter},
		{"reset_after", f.ResetAfter},
		{"error_after", f.ErrorAfter},
		{"stall_after", f.StallAfter},
		{"malformed_after", f.MalformedAfter},
		{"tokens_per_chunk", &f.TokensPerChunk},
		{"split_at", &f.SplitAt},
		{"reasoning_tokens", &f.ReasoningTokens},
		{"tool_rounds", &f.ToolRounds},
	}
	for _, c := range counts {
		if c.value != nil && *c.value < 0 {
			errs = append(errs, fmt.Errorf("%s is %d, expected 0 or more", c.name, *c.value))
		}
	}
	switch f.ReasoningField {
	case "", "reasoning_content", "reasoning":
	default:
		errs = append(errs, fmt.Errorf("reasoning_field is %q, expected \"reasoning_content\" or \"reasoning\"", f.ReasoningField))
	}
	return errors.Join(errs...)
}

// parseFault reads a fault from JSON; an unknown field is an error, so that a misspelt fault does not go unnoticed.
func parseFault(raw []byte) (Fault, error) {
	var f Fault
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return Fault{}, fmt.Errorf("sim_fault: %w", err)
	}
	if err := f.Validate(); err != nil {
		return Fault{}, fmt.Errorf("sim_fault: %w", err)
	}
	return f, nil
}

// drawFault picks the random fault of request number n, if any.
func drawFault(faults []RandomFault, seed, n uint64) Fault {
	if len(faults) == 0 {
		return Fault{}
	}
	u := rand.New(rand.NewPCG(seed^0xfa017, n)).Float64() // #nosec G404 -- a simulation must repeat
	for _, f := range faults {
		if u < f.Probability {
			return f.Fault
		}
		u -= f.Probability
	}
	return Fault{}
}

func isAt(after *int, n int) bool { return after != nil && *after == n }
