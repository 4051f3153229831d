package llmtest

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// vocabulary are the words of all answers. Each is one token, with or without a space before it, and needs no escape in JSON.
var vocabulary = [64]string{
	"the", "of", "and", "to", "in", "is", "that", "it", "was", "for", "on", "are", "with", "as", "at", "be",
	"this", "have", "from", "or", "one", "had", "by", "word", "but", "not", "what", "all", "were", "we", "when", "your",
	"can", "said", "there", "use", "an", "each", "which", "she", "do", "how", "their", "if", "will", "up", "other", "about",
	"out", "many", "then", "them", "these", "so", "some", "her", "would", "make", "like", "him", "into", "time", "has", "look",
}

// word is the text of token i of an answer.
func (j *job) word(i int) string {
	w := vocabulary[mix64(j.words+uint64(i))%uint64(len(vocabulary))] // #nosec G115 -- i is not negative
	if i == 0 {
		return w
	}
	return " " + w
}

// argument is the piece of a tool call's arguments that token i carries. The first token is the tool's name; all together
// the pieces are a JSON object.
func (j *job) argument(i int) string {
	first := j.reasoning()
	n := j.tokens - first
	switch {
	case n == 1, n == 2 && i == first+1:
		return "{}"
	case i == first:
		return ""
	case i == first+1:
		return `{"query":"`
	case i == j.tokens-1:
		return `"}`
	}
	return j.word(i)
}

// text joins tokens from to to.
func (j *job) text(from, to int, piece func(int) string) string {
	if to-from == 1 {
		return piece(from)
	}
	var b strings.Builder
	for i := from; i < to; i++ {
		b.WriteString(piece(i))
	}
	return b.String()
}

// reasoning is how many of the answer's tokens are reasoning.
func (j *job) reasoning() int {
	if j.api == completionsAPI {
		return 0
	}
	return min(j.fault.ReasoningTokens, j.tokens)
}

// sequenceBlocks identifies the blocks of prompt and answer, so that a conversation that goes on finds both in the cache.
func (j *job) sequenceBlocks(blockSize int) []uint64 {
	all := make([]uint32, 0, len(j.prompt)+j.tokens)
	all = append(all, j.prompt...)
	for i := range j.tokens {
		all = append(all, tokenID(j.word(i)))
	}
	blocks := blockContents(all, blockSize)
	if len(blocks) > 0 && j.adapter != "" {
		// An adapter computes other keys and values, so each has a prefix cache of its own, as in vLLM.
		blocks[0] = mix64(blocks[0] ^ uint64(tokenID(j.adapter)))
	}
	return blocks
}

// dialect writes an answer in the form of one API.
type dialect interface {
	// begin writes the events that come with the headers, before there is any token.
	begin() error
	// first writes the events that come right before the first token.
	first() error
	// chunk writes the event that carries tokens from to to: all of them reasoning, or none, or a tool's name alone.
	chunk(from, to int) error
	// finish writes the events that end the output, and usage where it comes apart from the terminal event.
	finish() error
	// last writes the terminal event.
	last() error
	// failure is an error event.
	failure(status int, message string) string
	// whole is the answer in one piece.
	whole() map[string]any
}

func newDialect(x *exchange) dialect {
	switch x.j.api {
	case responsesAPI:
		return &responsesDialect{x: x}
	case messagesAPI:
		return &messagesDialect{x: x}
	default:
		return &openAIDialect{x: x}
	}
}

// exchange is one request under way: it waits for tokens and writes them.
type exchange struct {
	s   *Server
	r   *http.Request
	j   *job
	out *eventWriter
	dialect

	// Where the tokens come from: the engine, or the clock at a fixed gap.
	tokens *delivery
	fixed  *fixedSource

	silence *time.Timer // fires when a heartbeat is due; nil without heartbeats
}

var errClientLeft = errors.New("the client has left")

// run serves a prepared request. An error is an answer still to be written; nothing was written so far.
func (s *Server) run(w http.ResponseWriter, r *http.Request, j *job, received time.Time) *apiError {
	x := &exchange{s: s, r: r, j: j, tokens: newDelivery()}
	if s.cfg.FixedGap > 0 {
		x.fixed = newFixedSource(s, j)
		defer x.fixed.end()
	} else {
		j.blocks = j.sequenceBlocks(s.cfg.Engine.BlockSize)
		tag, err := s.loop.submit(Request{
			PromptTokens: len(j.prompt), MaxTokens: j.tokens, Blocks: j.blocks,
		}, x.tokens, finishedReason(j.reason))
		if err != nil {
			return s.refusal(err)
		}
		defer func() {
			if !x.tokens.finished.Load() {
				s.loop.cancel(tag)
			}
		}()
	}
	x.out = newEventWriter(w, j)
	x.dialect = newDialect(x)
	x.out.sleep = func(d time.Duration) bool { return s.sleep(r, d) }
	if j.stream {
		s.truths.begin(Truth{ID: j.id, ReceivedNS: received.UnixNano(), PromptTokens: len(j.prompt)})
		x.stream()
		s.truths.update(j.id, func(t *Truth) { t.Ended = true })
		return nil
	}
	return x.unary(w)
}

// finishedReason is the engine's name for a finish reason: a tool call is text to it.
func finishedReason(reason string) string {
	if reason == "tool_calls" {
		return "stop"
	}
	return reason
}

func (s *Server) refusal(err error) *apiError {
	var tooLong *ContextLengthError
	switch {
	case errors.As(err, &tooLong):
		return contextError(tooLong)
	case errors.Is(err, ErrQueueFull):
		return &apiError{
			status: s.cfg.QueueFullStatus, message: ErrQueueFull.Error(), retry: s.cfg.RetryAfter, inStream: true,
		}
	case errors.Is(err, errClosed):
		return &apiError{status: http.StatusServiceUnavailable, message: err.Error()}
	}
	return badRequest("%v", err)
}

// wait blocks until at least want tokens exist, or all of them.
func (x *exchange) wait(want int) (produced int, err error) {
	if x.silence != nil {
		x.silence.Reset(time.Duration(x.j.fault.Heartbeat))
	}
	for {
		if x.fixed != nil {
			produced = x.fixed.produced()
		} else {
			produced = int(x.tokens.produced.Load())
		}
		if produced >= min(want, x.j.tokens) {
			return produced, nil
		}
		if err := x.waitOnce(x.fixed.next(), nil); err != nil {
			return 0, err
		}
	}
}

// waitOnce blocks until something happens: a token, the given timers, the client's or the server's end. It sends heartbeats.
func (x *exchange) waitOnce(due, timer <-chan time.Time) error {
	var silent <-chan time.Time
	if x.silence != nil {
		silent = x.silence.C
	}
	for {
		select {
		case <-x.tokens.poke:
			if timer != nil {
				continue // a pause is not ended by tokens; wait counts them anew
			}
			return nil
		case <-due:
			return nil
		case <-timer:
			return nil
		case <-x.r.Context().Done():
			return errClientLeft
		case <-x.s.closing:
			return errClosed
		case <-silent:
			x.silence.Reset(time.Duration(x.j.fault.Heartbeat))
			if err := x.out.raw(": heartbeat\n\n"); err != nil {
				return err
			}
		}
	}
}

// pause is silence on purpose; 0 means until the client leaves.
func (x *exchange) pause(d time.Duration) error {
	if x.silence != nil {
		x.silence.Reset(time.Duration(x.j.fault.Heartbeat))
	}
	over := make(<-chan time.Time)
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	return x.waitOnce(nil, over)
}

// sleep waits before anything was answered; it is false where client or server left meanwhile.
func (s *Server) sleep(r *http.Request, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
	case <-s.closing:
	}
	return false
}

// stream writes the answer as server-sent events. An error means that the connection is gone, or goes: there is nobody to
// tell.
func (x *exchange) stream() {
	if x.j.fault.Heartbeat > 0 {
		x.silence = time.NewTimer(time.Duration(x.j.fault.Heartbeat))
		defer x.silence.Stop()
	}
	x.out.begin()
	if err := x.begin(); err != nil {
		return
	}
	if err := x.chunks(); err != nil {
		return
	}
	_ = x.ending()
}

// errCut ends a stream on purpose.
var errCut = errors.New("stream cut by a fault")

func (x *exchange) chunks() error {
	j := x.j
	if err := x.disturb(0); err != nil {
		return err
	}
	sent, chunks := 0, 0
	for sent < j.tokens {
		produced, err := x.wait(sent + j.fault.TokensPerChunk)
		if err != nil {
			return err
		}
		if sent == 0 {
			if err := x.first(); err != nil {
				return err
			}
		}
		for sent < produced && (produced-sent >= j.fault.TokensPerChunk || produced == j.tokens) {
			n := min(j.fault.TokensPerChunk, produced-sent)
			switch r := j.reasoning(); {
			case sent < r:
				n = min(n, r-sent) // a chunk is either reasoning or text
			case sent == r && j.tool != "":
				n = 1 // a tool's name comes before its arguments, in an event of its own
			}
			x.out.malformed = isAt(j.fault.MalformedAfter, chunks)
			if err := x.chunk(sent, sent+n); err != nil {
				return err
			}
			x.out.malformed = false
			sent += n
			chunks++
			if err := x.disturb(chunks); err != nil {
				return err
			}
		}
	}
	return nil
}

// disturb strikes with the faults that are due after n chunks.
func (x *exchange) disturb(n int) error {
	f := x.j.fault
	if isAt(f.StallAfter, n) {
		if err := x.pause(time.Duration(f.StallFor)); err != nil {
			return err
		}
	}
	switch {
	case isAt(f.ErrorAfter, n):
		event := x.failure(http.StatusInternalServerError, "simulated failure in the stream")
		if err := x.out.raw(event); err != nil {
			return err
		}
		x.note("error", 0, time.Now().UnixNano())
		if f.ErrorDone && x.j.usesDone() {
			if err := x.out.raw("data: [DONE]\n\n"); err != nil {
				return err
			}
		}
		return errCut
	case isAt(f.TruncateAfter, n):
		return errCut
	case isAt(f.DropAfter, n):
		x.out.disconnect(false)
		return errCut
	case isAt(f.ResetAfter, n):
		x.out.disconnect(true)
		return errCut
	}
	return nil
}

// ending writes what comes after the last token.
func (x *exchange) ending() error {
	j := x.j
	if err := x.finish(); err != nil {
		return err
	}
	if j.fault.DoneDelay > 0 {
		if err := x.pause(time.Duration(j.fault.DoneDelay)); err != nil {
			return err
		}
	}
	if !j.fault.NoDone {
		if err := x.last(); err != nil {
			return err
		}
	}
	if j.fault.EOFDelay > 0 {
		return x.pause(time.Duration(j.fault.EOFDelay))
	}
	return nil
}

// finished notes in the truth with which reason the answer ended.
func (x *exchange) finished(reason string) {
	x.s.truths.update(x.j.id, func(t *Truth) { t.FinishReason = reason })
}

// callID names the tool call of an answer.
func (j *job) callID() string {
	prefix := "call_"
	switch j.api {
	case chatAPI:
		prefix = "chatcmpl-tool-"
	case messagesAPI:
		prefix = "toolu_"
	default:
	}
	return prefix + j.id[len(j.id)-16:]
}

// kind is what token i is: reasoning, a tool's call, or text.
func (j *job) kind(i int) string {
	switch {
	case i < j.reasoning():
		return "reasoning"
	case j.tool != "":
		return "tool_call"
	}
	return "text"
}

// said is the text of tokens from to to, which are all of one kind.
func (j *job) said(from, to int) string {
	if j.kind(from) == "tool_call" {
		return j.text(from, to, j.argument)
	}
	return j.text(from, to, j.word)
}

// rawJSON is a text that is JSON already.
func rawJSON(s string) json.RawMessage { return json.RawMessage(s) }

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil { // a string can always be marshalled
		return `""`
	}
	return string(b)
}

// note adds an event to the truth.
func (x *exchange) note(kind string, tokens int, sentNS int64) {
	if x.s.cfg.KeepTruth == 0 {
		return
	}
	cached := int(x.tokens.cached.Load())
	x.s.truths.update(x.j.id, func(t *Truth) {
		t.Chunks = append(t.Chunks, ChunkTruth{SentNS: sentNS, Kind: kind, Tokens: tokens})
		t.OutputTokens += tokens
		t.CachedTokens = cached
	})
}

// unary answers with one JSON object when all tokens are there.
func (x *exchange) unary(w http.ResponseWriter) *apiError {
	j := x.j
	if _, err := x.wait(j.tokens); err != nil {
		if errors.Is(err, errClosed) {
			return x.s.refusal(err)
		}
		return nil // the client has left
	}
	return x.out.whole(w, x.whole())
}

// whole writes an answer that is one JSON object.
func (e *eventWriter) whole(w http.ResponseWriter, answer map[string]any) *apiError {
	answer["sim_sent_ns"] = time.Now().UnixNano()
	body, err := json.Marshal(answer)
	if err != nil {
		return &apiError{status: http.StatusInternalServerError, message: err.Error()}
	}
	fault := e.j.fault
	if fault.ResetAfter != nil {
		e.disconnect(true)
		return nil
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Request-Id", e.j.id)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	switch {
	case fault.DropAfter != nil:
		writeBody(w, body[:len(body)/2])
		e.flush()
		e.disconnect(false)
	case fault.MalformedAfter != nil:
		body[len(body)-1] = ' '
		writeBody(w, body)
	default:
		writeBody(w, body)
	}
	return nil
}
