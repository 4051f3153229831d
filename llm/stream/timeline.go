package stream

import (
	"time"

	"github.com/safeqps/xk6-safeqps/llm/wire"
)

// Timeline is what the client saw of one answer, and when. Quantities that are not defined for an answer are absent:
// the accessors then return false.
type Timeline struct {
	// Sent is when the request was handed to the transport. It comes before a connection is made, if one is needed, so
	// that TTFT is what a caller waits; k6's http_req_connecting and http_req_tls_handshaking show that part apart.
	Sent time.Time
	// Live, where set, shows each chunk to whoever watches the answer while it comes.
	Live *Live

	chunks    []time.Duration // since Sent
	answers   []int           // the answer that each chunk belongs to; nil as long as there is one
	firstText time.Duration   // since Sent; meaningful if hasText
	hasText   bool
	tokens    int // tokens that the server counted chunk by chunk
	lastByte  time.Time
	bytes     int64
}

func (t *Timeline) chunk(d wire.Delta) {
	at := t.lastByte.Sub(t.Sent)
	if t.chunks == nil {
		t.chunks = make([]time.Duration, 0, 64)
	}
	if d.Answer != 0 && t.answers == nil {
		t.answers = make([]int, len(t.chunks), cap(t.chunks))
	}
	if t.answers != nil {
		t.answers = append(t.answers, d.Answer)
	}
	t.chunks = append(t.chunks, at)
	t.tokens += d.Tokens
	if d.Text && !t.hasText {
		t.hasText, t.firstText = true, at
	}
	if t.Live != nil {
		t.Live.show(t)
	}
}

// Finished notes the arrival of the last byte of an answer that was read elsewhere (a body that was not streamed).
func (t *Timeline) Finished(at time.Time, bytes int64) {
	t.lastByte = at
	t.bytes = bytes
}

// Chunks is the number of events that carried output.
func (t *Timeline) Chunks() int { return len(t.chunks) }

// Tokens is the number of tokens that the server counted chunk by chunk, 0 where it did not.
func (t *Timeline) Tokens() int { return t.tokens }

// Bytes is the size of the answer's body, as far as it was read.
func (t *Timeline) Bytes() int64 { return t.bytes }

// TTFT is the time to first token: first chunk minus send.
func (t *Timeline) TTFT() (time.Duration, bool) {
	if len(t.chunks) == 0 {
		return 0, false
	}

	return t.chunks[0], true
}

// TTFTText is the time to the first chunk that is not reasoning, minus send.
func (t *Timeline) TTFTText() (time.Duration, bool) {
	return t.firstText, t.hasText
}

// LastChunk is the time of the last chunk, minus send.
func (t *Timeline) LastChunk() (time.Duration, bool) {
	if len(t.chunks) == 0 {
		return 0, false
	}

	return t.chunks[len(t.chunks)-1], true
}

// E2E is the last byte of the answer minus send.
func (t *Timeline) E2E() (time.Duration, bool) {
	if t.lastByte.IsZero() {
		return 0, false
	}

	return t.lastByte.Sub(t.Sent), true
}

// TPOT is the time per output token after the first: (last chunk − first chunk) / (completion tokens − 1). It is
// undefined for fewer than 2 tokens, and for an answer whose tokens all came in one chunk, since then nothing of their
// spacing was seen. Of several answers side by side (`n`), whose tokens the server counts together, it is the mean: their
// times from first chunk to last, added up, over their tokens without the first of each.
func (t *Timeline) TPOT(completionTokens int) (time.Duration, bool) {
	span, tokens, ok := t.decode(completionTokens)
	if !ok {
		return 0, false
	}

	return span / time.Duration(tokens), true
}

// OutputRate is the speed of one stream in tokens per second, from first chunk to last: the reciprocal of TPOT. The
// first token opens the span and so is not divided by it.
func (t *Timeline) OutputRate(completionTokens int) (float64, bool) {
	span, tokens, ok := t.decode(completionTokens)
	if !ok || span <= 0 {
		return 0, false
	}

	return float64(tokens) / span.Seconds(), true
}

// decode is the time from first chunk to last, and the tokens that it was spent on: added up over the answers.
func (t *Timeline) decode(completionTokens int) (span time.Duration, tokens int, ok bool) {
	gaps := 0
	for _, gap := range t.Gaps {
		span += gap
		gaps++
	}
	tokens = completionTokens - (len(t.chunks) - gaps) // each answer has one chunk without a gap before it

	return span, tokens, gaps > 0 && tokens > 0
}

// Gaps calls yield with the inter-token latency before each chunk but the first of its answer, and the time of that
// chunk since send. Chunks that arrived in one read have a gap of zero: that is how they arrived.
func (t *Timeline) Gaps(yield func(at, gap time.Duration) bool) {
	if t.answers != nil {
		t.gapsOfEach(yield)

		return
	}
	for i := 1; i < len(t.chunks); i++ {
		if !yield(t.chunks[i], t.chunks[i]-t.chunks[i-1]) {
			return
		}
	}
}

// gapsOfEach keeps apart the rhythms of answers that are written side by side.
func (t *Timeline) gapsOfEach(yield func(at, gap time.Duration) bool) {
	last := make(map[int]time.Duration)
	for i, at := range t.chunks {
		before, begun := last[t.answers[i]]
		last[t.answers[i]] = at
		if begun && !yield(at, at-before) {
			return
		}
	}
}

// Offsets are the times of all chunks since send. The slice belongs to the timeline.
func (t *Timeline) Offsets() []time.Duration { return t.chunks }

// MaxGap is the longest inter-token latency.
func (t *Timeline) MaxGap() (time.Duration, bool) {
	var longest time.Duration
	gaps := 0
	for _, gap := range t.Gaps {
		longest = max(longest, gap)
		gaps++
	}

	return longest, gaps > 0
}
