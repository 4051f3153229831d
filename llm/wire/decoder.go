package wire

import (
	"strings"

	"github.com/tidwall/gjson"
)

// Delta is what one event added to an answer.
type Delta struct {
	// Output says that the event carried text, reasoning, a refusal, or a part of a tool call: the tool's name or arguments.
	// It is a chunk. A role alone, an empty or null text, a name that was known, usage, a finish reason, a ping are none.
	Output bool
	// Text says that it carried output other than reasoning.
	Text bool
	// Answer is the number of the answer that the output belongs to: above 0 only where several were asked for (`n`). An
	// event with output of more than one counts for the first of them.
	Answer int
	// Done says that the event was a terminal marker ([DONE], message_stop, response.completed, …).
	Done bool
	// Tokens is how many tokens the chunk holds, where the server says so: by token ids, or by usage that has come with
	// every chunk so far. Otherwise it is 0.
	Tokens int
}

func (d *Delta) output(reasoning bool) {
	d.Output = true
	d.Text = d.Text || !reasoning
}

// Decoder assembles one answer, from the events of a stream ([Decoder.Event]) or from a whole body ([Decoder.Body]).
// It serves one request, and is not safe for concurrent use.
type Decoder struct {
	api     API
	secrets Secrets

	id, model, finish        string
	text, reasoning, refusal []byte
	calls                    []toolCall
	counts                   tokenCounts

	done   bool   // a terminal marker has come, or a whole answer
	marked bool   // a terminal marker has come, as an event of a stream
	err    *Error // the first error; whatever follows it is ignored
	chunks int    // events with output

	// Answers beside the first (`n` > 1), by index: whether each has a finish reason.
	others map[int]bool

	vectors, dimensions int // of an answer with embeddings
	inputs              int // of its request; 0: not known

	// For Delta.Tokens.
	tokenIDs      int  // token ids since the last chunk
	countedTokens int  // completion tokens that usage has reported up to the last chunk
	usageMissed   bool // a chunk came without usage: what later usage says is no chunk's own
}

// NewDecoder makes a decoder for the answers of an API.
func NewDecoder(api API) *Decoder {
	return &Decoder{api: api}
}

// Event takes one server-sent event: its name, "" without an `event:` line, and its data. An error is an [*Error]; it
// is the last word on the answer. What comes after an error or a terminal marker is ignored, except usage.
func (d *Decoder) Event(name, data string) (Delta, error) {
	if name != "" && isKeepalive(name) {
		return Delta{}, nil
	}
	data = strings.TrimSpace(data)
	switch {
	case data == "[DONE]":
		d.done, d.marked = true, true

		return Delta{Done: true}, nil
	case d.ended():
		d.lateUsage(data)

		return Delta{}, nil
	case name == "error":
		r, ok := parseReport(data)
		if !ok {
			r.message = data
		}

		return Delta{}, d.fail(streamError(r))
	case data == "":
		return Delta{}, nil
	}

	var delta Delta
	root, err := object(data)
	if err == nil {
		err = d.event(name, root, &delta)
	}
	if delta.Output {
		d.chunks++
	}
	if err != nil {
		return delta, d.fail(err)
	}
	if delta.Done {
		d.done, d.marked = true, true
	}

	return delta, nil
}

// Hide keeps secrets out of the errors of this decoder.
func (d *Decoder) Hide(secrets Secrets) { d.secrets = secrets }

// fail ends the answer with an error, and returns it as it may be shown.
func (d *Decoder) fail(err *Error) *Error {
	err.tidy(d.secrets)
	d.err = err

	return err
}

// Reject ends an answer that is none of the API's, and shows the beginning of it, if there is any. The error is an [*Error].
func (d *Decoder) Reject(problem, data string) error {
	if data == "" {
		return d.fail(&Error{Type: ErrDecode, Message: problem})
	}

	return d.fail(decodeError(problem, plainMessage(strings.TrimSpace(data))))
}

// ended says whether the answer has had its last word.
func (d *Decoder) ended() bool { return d.err != nil || d.done }

// isKeepalive tells the events that carry no data of the API's form.
func isKeepalive(name string) bool {
	switch name {
	case "ping", "heartbeat", "keepalive", "keep-alive":
		return true
	default:
		return false
	}
}

func (d *Decoder) event(name string, root gjson.Result, delta *Delta) *Error {
	switch d.api {
	case Chat, Completions:
		return d.openAIEvent(root, delta)
	case Responses:
		return d.responsesEvent(name, root, delta)
	case Messages:
		return d.messagesEvent(name, root, delta)
	case Embeddings:
		return decodeError("an embedding is no stream", root.Raw)
	default:
		return d.unknownAPI()
	}
}

func (d *Decoder) unknownAPI() *Error {
	_, err := ParseAPI(string(d.api))

	return &Error{Type: ErrDecode, Message: err.Error()}
}

// lateUsage takes usage from an event that follows the end.
func (d *Decoder) lateUsage(data string) {
	root, err := object(data)
	if err != nil {
		return
	}
	switch d.api {
	case Chat, Completions:
		d.counts.openAI(root.Get("usage"))
	case Responses:
		d.counts.openAI(root.Get("response.usage"))
	case Messages:
		d.counts.anthropic(root.Get("usage"))
	}
}

// Body takes an answer with status 200 that was not streamed: because it was not asked to be, or because the server does
// not stream. An error is an [*Error].
func (d *Decoder) Body(data []byte) error {
	if d.err != nil {
		return d.err
	}
	if err := d.body(strings.TrimPrefix(string(data), "\uFEFF")); err != nil {
		return d.fail(err)
	}
	d.done = true

	return nil
}

func (d *Decoder) body(data string) *Error {
	root, err := object(data)
	if err != nil {
		return err
	}
	if r, failed := reportIn(root); failed {
		return streamError(r)
	}
	switch d.api {
	case Chat, Completions:
		return d.openAIBody(root)
	case Responses:
		return d.responsesBody(root)
	case Messages:
		return d.messagesBody(root)
	case Embeddings:
		return d.embeddingsBody(root)
	default:
		return d.unknownAPI()
	}
}

// reportIn finds the error in an answer with status 200: in an `error` field, or, in the older form of vLLM and SGLang,
// in an object that calls itself an error.
func reportIn(root gjson.Result) (report, bool) {
	if inner := root.Get("error"); isError(inner) {
		return reportOf(inner, root), true
	}
	if root.Get("object").Str == "error" || root.Get("type").Str == "error" {
		return reportOf(root, root), true
	}

	return report{}, false
}

// Message is what has been assembled so far; it is valid after an error too. Each call copies the texts.
func (d *Decoder) Message() *Message {
	m := &Message{
		ID: d.id, Model: d.model, FinishReason: d.finish,
		Text: textFrom(d.text), Reasoning: textFrom(d.reasoning), Refusal: textFrom(d.refusal),
		Usage: d.counts.usage(d.saidSomething()), Vectors: d.vectors, Dimensions: d.dimensions,
	}
	for i := range d.calls {
		if !d.calls[i].served {
			m.ToolCalls = append(m.ToolCalls, d.calls[i].assembled())
		}
	}

	return m
}

// saidSomething is true once there was output, of whichever answer and channel.
func (d *Decoder) saidSomething() bool {
	return d.chunks > 0 || len(d.text) > 0 || len(d.reasoning) > 0 || len(d.refusal) > 0 || len(d.calls) > 0
}

func textFrom(b []byte) string {
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// Finish is to be asked at the end of a stream. It returns the error that Event or Body had returned, or an [*Error] of
// type ErrTruncated if the answer has neither a finish reason nor a terminal marker, and one of type ErrDecode if it has
// the marker and nothing else. Where several answers were asked
// for, each that began needs its reason. Finish changes nothing.
func (d *Decoder) Finish() error {
	switch {
	case d.err != nil:
		return d.err
	case d.saidNothing():
		return &Error{Type: ErrDecode, Message: "the stream held nothing but its end marker: no output, no finish reason, no usage"}
	case d.done || d.finished():
		return nil
	case d.chunks == 0:
		return &Error{Type: ErrTruncated, Message: "the stream ended before any output, without a finish reason"}
	default:
		return &Error{Type: ErrTruncated, Message: "the stream ended in the middle of the answer, without a finish reason"}
	}
}

// saidNothing is true for a stream that was ended in form and held no answer. A model that has nothing to say gives its
// reason to stop, or counts no tokens.
func (d *Decoder) saidNothing() bool {
	return d.marked && d.chunks == 0 && d.finish == "" && len(d.others) == 0 && len(d.calls) == 0 && d.counts == (tokenCounts{})
}

func (d *Decoder) finished() bool {
	if d.finish == "" {
		return false
	}
	for _, finished := range d.others {
		if !finished {
			return false
		}
	}

	return true
}

// identify notes the answer's own id and model. The strings are copied, so as not to keep the event alive.
func (d *Decoder) identify(id, model string) {
	if d.id == "" && id != "" {
		d.id = strings.Clone(id)
	}
	if d.model == "" && model != "" {
		d.model = strings.Clone(model)
	}
}
