package workload

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/safeqps/xk6-safeqps/llm/tokens"
	"github.com/safeqps/xk6-safeqps/trace/arrival"
	"github.com/safeqps/xk6-safeqps/trace/format"
)

// Options say how rows become requests. The zero value makes text prompts that are exact by the tiktoken
// encodings, streamed, under seed 0.
type Options struct {
	// Seed decides every prompt.
	Seed uint64
	// Calibration is the served model's way of counting; the zero value is one token per word, without overhead.
	// With it, a prompt's length in the server's own count, chat template included, is the row's.
	Calibration tokens.Calibration
	// Builder has the vocabulary; nil for the embedded one. The calibration must have been made with it.
	Builder *tokens.Builder
	// IDs makes prompts of token ids instead of text, exact whatever the calibration; nil for text.
	IDs *tokens.IDRange
	// Pool has prompts to be taken instead of made; nil for none. A trace with hash ids then needs IgnoreHashIDs.
	Pool *Pool
	// Fit cuts or extends the pool's prompts to the row's length, by this encoding, less the calibration's overhead;
	// nil takes them as they are, and the row's input length says nothing then.
	Fit *tokens.Tokenizer
	// IgnoreHashIDs gives each row a prompt of its own even where the trace says what is shared: the workload of a
	// server whose prefix cache never hits.
	IgnoreHashIDs bool
	// UnstreamedShare is the part of the requests, from 0 to 1, that ask for the whole answer at once.
	UnstreamedShare float64
	// IgnoreEOS asks for answers of exactly the row's output length, from servers that can.
	IgnoreEOS bool
	// Loop continues after the last row with the first one; nil ends there.
	Loop *Loop
}

// Loop says how a trace is repeated.
type Loop struct {
	// Period is the length of one pass; the span of the trace at least.
	Period time.Duration
	// SamePrefixes replays each pass with the blocks of the first, so that a prefix cache may hit on all of them.
	// Without it each pass has text of its own, shared in the same way.
	SamePrefixes bool
}

// Plan gives the request of each row of a trace. It is safe for concurrent use. It keeps the trace, which must not be
// changed.
type Plan struct {
	trace   *format.Trace
	options Options
	builder *tokens.Builder
	fitter  *fitter
	// Streams of the seed, one for each use.
	promptSeed, blockSeed, streamSeed, poolSeed, fillSeed uint64
	tooShort                                              int
	// buffers holds *[]byte in which prompts are put together, so that a long prompt is allocated once and not twice.
	buffers sync.Pool
}

// NewPlan checks a trace and prepares its requests. These are errors: a row whose prompt's length is not known, or is
// zero, and that has no literal prompt either; hash ids of which there are more or fewer than blocks in the row's
// input length; and options that contradict the trace or each other. Errors about a row name it, counting from 0.
func NewPlan(t *format.Trace, o Options) (*Plan, error) {
	p := &Plan{
		trace: t, options: o, builder: o.Builder,
		promptSeed: arrival.Derive(o.Seed, "workload/prompt"),
		blockSeed:  arrival.Derive(o.Seed, "workload/block"),
		streamSeed: arrival.Derive(o.Seed, "workload/stream"),
		poolSeed:   arrival.Derive(o.Seed, "workload/pool"),
		fillSeed:   arrival.Derive(o.Seed, "workload/fill"),
	}
	if p.builder == nil {
		p.builder = tokens.NewBuilder()
	}
	if err := p.checkOptions(); err != nil {
		return nil, fmt.Errorf("workload: %w", err)
	}
	for i := range t.Rows {
		if err := p.checkRow(i); err != nil {
			return nil, fmt.Errorf("workload: trace %s: row %d: %w", t.Name, i, err)
		}
	}
	if o.Fit != nil {
		var err error
		if p.fitter, err = newFitter(o.Pool, o.Fit, p.builder); err != nil {
			return nil, fmt.Errorf("workload: %w", err)
		}
	}
	return p, nil
}

func (p *Plan) checkOptions() error {
	o := p.options
	switch {
	case len(p.trace.Rows) == 0:
		return fmt.Errorf("trace %s has no rows", p.trace.Name)
	case !(o.UnstreamedShare >= 0 && o.UnstreamedShare <= 1):
		return fmt.Errorf("share of requests that are not streamed: expected 0 to 1, got %g", o.UnstreamedShare)
	case o.Fit != nil && o.Pool == nil:
		return errors.New("prompts can be fitted to a length only where they come from a pool")
	case o.IDs != nil && o.Pool != nil:
		return errors.New("expected token ids or a prompt pool, got both")
	case o.Loop != nil && o.Loop.Period < p.trace.Rows[len(p.trace.Rows)-1].Due:
		return fmt.Errorf("loop: expected a period of at least %s, the trace's last arrival, got %s",
			p.trace.Rows[len(p.trace.Rows)-1].Due, o.Loop.Period)
	}
	if c := o.Calibration; !(c.PerWord >= 0) || math.IsInf(c.PerWord, 0) || math.IsNaN(c.Overhead) || math.IsInf(c.Overhead, 0) {
		return fmt.Errorf("calibration: expected a positive number of tokens per word and an overhead, got %g and %g", c.PerWord, c.Overhead)
	}
	if o.IDs != nil {
		return o.IDs.Validate()
	}
	return nil
}

func (p *Plan) checkRow(i int) error {
	r := &p.trace.Rows[i]
	if r.IsLiteral() {
		return nil
	}
	if p.options.Pool != nil && p.options.Fit == nil {
		return p.checkIDs(r)
	}
	switch {
	case r.InputTokens == format.Unknown:
		return errors.New("expected an input length, or a literal prompt, got neither")
	case r.InputTokens < 1:
		return fmt.Errorf("expected a prompt of at least one token, got an input length of %d", r.InputTokens)
	}
	if p.options.IDs == nil && int(r.InputTokens) < p.options.Calibration.Min() {
		p.tooShort++
	}
	return p.checkIDs(r)
}

func (p *Plan) checkIDs(r *format.Row) error {
	if len(r.HashIDs) == 0 || p.options.IgnoreHashIDs {
		return nil
	}
	size := p.trace.BlockSize
	switch {
	case p.options.Pool != nil:
		return errors.New("hash ids say what the prompt shares, and a prompt pool says what it is: leave one out")
	case size < 1:
		return fmt.Errorf("%d hash ids, but the trace has no block size", len(r.HashIDs))
	case r.InputTokens < 1:
		return fmt.Errorf("%d hash ids, but no input length", len(r.HashIDs))
	}
	if want := blocksOf(int(r.InputTokens), size); want != len(r.HashIDs) {
		return fmt.Errorf("an input length of %d tokens in blocks of %d needs %d hash ids, got %d", r.InputTokens, size, want, len(r.HashIDs))
	}
	return nil
}

// Len is the number of rows of the trace.
func (p *Plan) Len() int { return len(p.trace.Rows) }

// TooShort is the number of rows that ask for a prompt shorter than the chat template itself: those get one word, and
// are longer than asked.
func (p *Plan) TooShort() int { return p.tooShort }

// At is the request of a row: a pure function of the trace, the options and the row. A row outside the trace is
// an error unless Options.Loop is set.
func (p *Plan) At(row int) (Request, error) {
	n := len(p.trace.Rows)
	if row < 0 || (row >= n && p.options.Loop == nil) {
		return Request{}, fmt.Errorf("workload: row %d: the trace %s has rows 0 to %d", row, p.trace.Name, n-1)
	}
	r := &p.trace.Rows[row%n]
	request := Request{
		Row: row, Class: r.Class, Due: r.Due,
		InputTokens: max(int(r.InputTokens), 0), // format.Unknown is negative
		MaxTokens:   maxTokens(r.OutputTokens),
		Stream:      uniform(p.streamSeed, row) >= p.options.UnstreamedShare,
		IgnoreEOS:   p.options.IgnoreEOS && r.OutputTokens > 0,
	}
	if p.options.Loop != nil {
		request.Due += time.Duration(row/n) * p.options.Loop.Period
	}
	if r.Extra != nil {
		request.Session, request.Turn, request.Delay = r.Extra.Session, r.Extra.Turn, r.Extra.Delay
	}
	p.setPrompt(&request, r, row)
	return request, nil
}

// maxTokens bounds an answer. One of no tokens, which a trace may hold but servers refuse to make, is one token.
func maxTokens(output int32) int {
	if output == format.Unknown {
		return 0
	}
	return max(int(output), 1)
}

func (p *Plan) setPrompt(request *Request, r *format.Row, row int) {
	switch {
	case r.IsLiteral() && r.Extra.Payload != nil:
		request.Payload = r.Extra.Payload
	case r.IsLiteral() && r.Extra.Messages != nil:
		request.Messages = r.Extra.Messages
	case r.IsLiteral():
		request.Prompt = r.Extra.Text
	case p.options.Pool != nil:
		p.setPooled(request, r, row)
	case p.options.IDs != nil:
		request.PromptIDs = p.tokenIDs(r, row)
	default:
		request.Prompt = p.text(r, row)
	}
}

func (p *Plan) setPooled(request *Request, r *format.Row, row int) {
	i := p.options.Pool.index(p.poolSeed, row)
	entry := p.options.Pool.entries[i]
	switch {
	case p.fitter != nil:
		overhead := int(math.Round(p.options.Calibration.Overhead))
		request.Prompt = p.fitter.fit(i, max(1, int(r.InputTokens)-overhead), p.fillSeed, row)
	case entry.messages != nil:
		request.Messages, request.InputTokens = entry.messages, 0
	default:
		request.Prompt, request.InputTokens = entry.text, 0
	}
}

// text makes the prompt of a row out of words.
func (p *Plan) text(r *format.Row, row int) string {
	buffer, ok := p.buffers.Get().(*[]byte)
	if !ok {
		buffer = new([]byte)
	}
	*buffer = p.appendText((*buffer)[:0], r, row)
	text := string(*buffer)
	p.buffers.Put(buffer)
	return text
}

func (p *Plan) appendText(out []byte, r *format.Row, row int) []byte {
	c := p.options.Calibration
	words := c.Words(int(r.InputTokens))
	out = slices.Grow(out, p.builder.Size(words))
	if len(r.HashIDs) == 0 || p.options.IgnoreHashIDs {
		return p.builder.Append(out, p.promptSeed, uint64(row), words) // #nosec G115 -- At: not negative
	}
	// Block i ends where (i+1)·size tokens of content do. The chat template's overhead is taken off the end, so the
	// last block, or the last few of them, are cut short, and rows that share blocks still share their text.
	seed, start := p.passSeed(row), 0
	for i, id := range r.HashIDs {
		end := words
		if i+1 < len(r.HashIDs) {
			end = min(words, c.Boundary((i+1)*p.trace.BlockSize))
		}
		out = p.builder.Append(out, seed, id, end-start)
		start = end
	}
	return out
}

// tokenIDs makes the prompt of a row out of token ids.
func (p *Plan) tokenIDs(r *format.Row, row int) []int {
	n := int(r.InputTokens)
	out := make([]int, 0, n)
	if len(r.HashIDs) == 0 || p.options.IgnoreHashIDs {
		return p.options.IDs.Append(out, p.promptSeed, uint64(row), n) // #nosec G115 -- At: not negative
	}
	seed := p.passSeed(row)
	for _, id := range r.HashIDs {
		out = p.options.IDs.Append(out, seed, id, min(p.trace.BlockSize, n-len(out)))
	}
	return out
}

// passSeed is the seed of the blocks: one for each pass through the trace, unless passes share their prefixes.
func (p *Plan) passSeed(row int) uint64 {
	pass := row / len(p.trace.Rows)
	if pass == 0 || p.options.Loop.SamePrefixes {
		return p.blockSeed
	}
	return arrival.DeriveIndex(p.blockSeed, uint64(pass)) // #nosec G115 -- not negative
}
