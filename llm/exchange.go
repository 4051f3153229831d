package llm

import (
	"time"

	"go.k6.io/k6/metrics"

	"github.com/safeqps/xk6-safeqps/llm/stream"
	"github.com/safeqps/xk6-safeqps/llm/wire"
)

// Outcome says how a request ended.
type Outcome string

// The outcomes of a request that was started.
const (
	OutcomeOK        Outcome = "ok"
	OutcomeFailed    Outcome = "failed"
	OutcomeCancelled Outcome = "cancelled" // the modelled user left
)

// CancelPhase says what a cancelled or interrupted request was waiting for, as far as a client can see.
type CancelPhase string

// The phases in which a request can be cancelled.
const (
	PhaseQueued  CancelPhase = "queued"  // no response header had come
	PhasePrefill CancelPhase = "prefill" // the header had come, no chunk yet
	PhaseDecode  CancelPhase = "decode"  // chunks were coming
)

// TokenSource says who counted tokens.
type TokenSource string

// The sources of token counts, from the best to the last resort.
const (
	SourceServer    TokenSource = "server"    // the usage that the server reported
	SourceTokenizer TokenSource = "tokenizer" // the client's tokenizer, over the text that came
	SourceChunks    TokenSource = "chunks"    // the number of chunks: a lower bound, never used for TPOT
)

// Started is a request that has just been sent. It reaches outputs before the request's [Exchange] does, so that they
// know what is in flight.
type Started struct {
	Seq     uint64 // the same as in the exchange; unique in this process
	Attempt int
	Sent    time.Time
	Due     time.Time // zero: no due time
	Row     int64     // -1: not a row of a trace
	Class   string
	Tags    *metrics.TagSet
	// Live shows what has come of the answer, up to now.
	Live   *stream.Live
	sample metrics.Sample
}

// GetSamples implements metrics.SampleContainer: the llm_in_flight gauge.
func (s *Started) GetSamples() []metrics.Sample { return []metrics.Sample{s.sample} }

// Exchange is one request and its answer: everything that was measured of it. As a metrics.SampleContainer it carries
// the request's samples to k6, and itself to outputs that want the whole record.
type Exchange struct {
	Seq     uint64 // unique in this process
	Attempt int    // 1; more for a retry, which is counted apart
	API     wire.API
	Model   string // as asked for
	Row     int64  // of the trace, -1 where there is none
	Class   string
	Tags    *metrics.TagSet // of every sample

	Due      time.Time // zero: no due time
	Timeline stream.Timeline
	End      time.Time // when the client was done with it
	HeaderAt time.Time // when the answer's header had come; zero: none came
	Date     string    // the answer's Date header, by the server's clock; "" where there was none
	Streamed bool      // a stream was asked for

	Outcome     Outcome
	ErrorType   wire.ErrorType // "" unless failed
	ErrorText   string
	CancelPhase CancelPhase // "" unless cancelled or interrupted
	Status      int         // HTTP status, 0 where none came
	Message     *wire.Message

	PromptTokensAsked     int // 0: not stated
	CompletionTokensAsked int // max_tokens, 0: not stated

	// ForcedLength: the body forced the answer to its asked length, by ignore_eos or what does the same. Such requests
	// compare configurations, and claim no capacity.
	ForcedLength bool

	PromptTokens     *int // nil: nobody counted
	CompletionTokens *int // nil: nobody counted
	TokenSource      TokenSource

	InFlight int64 // requests of this process still being served when this one ended

	Goodput *bool // nil: it cannot be judged
	Cost    *float64

	retryAfter time.Duration // what the server asked for
	runTags    *metrics.TagSet
	samples    []metrics.Sample
}

// GetSamples implements metrics.SampleContainer.
func (e *Exchange) GetSamples() []metrics.Sample { return e.samples }

// TPOT is the exchange's time per output token, by tokens that were counted by the server or a tokenizer. Like E2E it is known
// only of a whole answer.
func (e *Exchange) TPOT() (time.Duration, bool) {
	if e.Outcome != OutcomeOK || e.CompletionTokens == nil {
		return 0, false
	}

	return e.Timeline.TPOT(*e.CompletionTokens)
}

// E2E is the last byte of the answer minus send. What did not come whole has none, however long it took to fail.
func (e *Exchange) E2E() (time.Duration, bool) {
	if e.Outcome != OutcomeOK {
		return 0, false
	}

	return e.Timeline.E2E()
}

// ScheduleDelay is the actual send minus the due time.
func (e *Exchange) ScheduleDelay() (time.Duration, bool) {
	if e.Due.IsZero() {
		return 0, false
	}

	return e.Timeline.Sent.Sub(e.Due), true
}

// TokensPerChunk is how many completion tokens a chunk held on average.
func (e *Exchange) TokensPerChunk() (float64, bool) {
	if e.CompletionTokens == nil || e.Timeline.Chunks() == 0 {
		return 0, false
	}

	return float64(*e.CompletionTokens) / float64(e.Timeline.Chunks()), true
}

// meets reports whether the exchange, which completed, keeps the limits. A limit on something that was not measured is not met.
func (e *Exchange) meets(s slo) bool {
	within := func(limit *time.Duration, measured time.Duration, ok bool) bool {
		return limit == nil || (ok && measured <= *limit)
	}
	ttft, okTTFT := e.Timeline.TTFT()
	tpot, okTPOT := e.TPOT()
	e2e, okE2E := e.E2E()
	gap, okGap := e.Timeline.MaxGap()

	return within(s.ttft, ttft, okTTFT) && within(s.tpot, tpot, okTPOT) &&
		within(s.e2e, e2e, okE2E) && within(s.itl, gap, okGap)
}

// cutShort says whether the request ended by no doing of the service's: its user left, or the run was over before it was.
// What would have become of it, nobody knows.
func (e *Exchange) cutShort() bool {
	return e.Outcome == OutcomeCancelled || e.ErrorType == errorInterrupted
}

// judge sets Goodput. A failed request did not meet its objectives. One that was cut short says nothing, unless it had broken
// one of them by then.
func (e *Exchange) judge(s slo) {
	if s.empty() || (e.cutShort() && !e.hadBroken(s)) {
		return
	}
	good := e.Outcome == OutcomeOK && e.meets(s)
	e.Goodput = &good
}

// hadBroken says whether a limit had been broken by the time at which the request was cut short, whatever would have come. Silence counts as
// far as it had gone. TPOT is a mean, that the rest of the answer could have mended: it breaks at the end alone.
func (e *Exchange) hadBroken(s slo) bool {
	over := func(limit *time.Duration, reached time.Duration) bool { return limit != nil && reached > *limit }
	waited := e.End.Sub(e.Timeline.Sent)
	ttft, gap, silence := waited, time.Duration(0), time.Duration(0)
	if first, answered := e.Timeline.TTFT(); answered {
		ttft = first
		gap, _ = e.Timeline.MaxGap()
		last, _ := e.Timeline.LastChunk()
		silence = waited - last
	}

	return over(s.ttft, ttft) || over(s.e2e, waited) || over(s.itl, max(gap, silence))
}

// countTokens settles how many tokens came, and who says so.
func (e *Exchange) countTokens(count func(string) int, prompt func() (int, bool)) {
	usage := e.Message.Usage
	e.PromptTokens = usage.PromptTokens
	if e.PromptTokens == nil && count != nil {
		if n, ok := prompt(); ok {
			e.PromptTokens = &n
		}
	}
	if e.API == wire.Embeddings {
		e.countEmbedded()

		return
	}
	if usage.CompletionTokens != nil {
		e.CompletionTokens, e.TokenSource = usage.CompletionTokens, SourceServer

		return
	}
	if n := e.Timeline.Tokens(); n > 0 {
		// Interrupted before its usage came, but the server had counted chunk by chunk.
		e.CompletionTokens, e.TokenSource = &n, SourceServer

		return
	}
	e.TokenSource = SourceChunks
	if count == nil {
		return
	}
	e.TokenSource = SourceTokenizer
	n := count(e.Message.Reasoning) + count(e.Message.Text) + count(e.Message.Refusal)
	for _, call := range e.Message.ToolCalls {
		n += count(call.Name) + count(call.Arguments)
	}
	e.CompletionTokens = &n
}

// price sets Cost from the tokens that were counted.
func (e *Exchange) price(p *price) {
	if p == nil || e.PromptTokens == nil || (e.CompletionTokens == nil && e.API != wire.Embeddings) {
		return
	}
	completion := 0
	if e.CompletionTokens != nil {
		completion = *e.CompletionTokens
	}
	cached := 0
	if c := e.Message.Usage.CachedTokens; c != nil {
		cached = min(*c, *e.PromptTokens)
	}
	const perMillion = 1e-6
	cost := perMillion * (p.prompt*float64(*e.PromptTokens-cached) + p.cached*float64(cached) +
		p.completion*float64(completion))
	e.Cost = &cost
}

// sampler collects the samples of one exchange.
type sampler struct {
	tags     *metrics.TagSet
	metadata map[string]string
	samples  []metrics.Sample
}

func (s *sampler) addTagged(m *metrics.Metric, tags *metrics.TagSet, at time.Time, value float64) {
	s.samples = append(s.samples, metrics.Sample{
		TimeSeries: metrics.TimeSeries{Metric: m, Tags: tags},
		Time:       at, Value: value, Metadata: s.metadata,
	})
}

func (s *sampler) add(m *metrics.Metric, at time.Time, value float64) {
	s.addTagged(m, s.tags, at, value)
}

// sample turns the exchange into k6 samples, each stamped at the time at which the thing happened. What is absent has no
// sample. keepITL says whether this exchange's ITL samples are published (see the option itlSampling).
func (e *Exchange) sample(m *instruments, metadata map[string]string, keepITL bool) {
	tl := &e.Timeline
	s := &sampler{tags: e.Tags, metadata: metadata, samples: make([]metrics.Sample, 0, 20+tl.Chunks())}
	defer func() { e.samples = s.samples }()

	if e.Attempt > 1 {
		// Not an arrival: its latency and its outcome are the retry's own, and change nothing in what is judged.
		tags := e.Tags.With("outcome", string(e.Outcome)).With("attempt", attemptTag(e.Attempt))
		s.addTagged(m.retries, tags, e.End, 1)
		s.addTagged(m.inFlight, e.runTags, e.End, float64(e.InFlight))
		e.sampleTokens(m, s)

		return
	}
	if delay, ok := e.ScheduleDelay(); ok {
		s.add(m.scheduleDelay, tl.Sent, metrics.D(delay))
	}
	if ttft, ok := tl.TTFT(); ok {
		s.add(m.ttft, tl.Sent.Add(ttft), metrics.D(ttft))
	}
	if ttft, ok := tl.TTFTText(); ok {
		s.add(m.ttftText, tl.Sent.Add(ttft), metrics.D(ttft))
	}
	if keepITL {
		for at, gap := range tl.Gaps {
			s.add(m.itl, tl.Sent.Add(at), metrics.D(gap))
		}
	}
	e.sampleTokens(m, s)
	if e.Outcome == OutcomeOK {
		// The decode speed and the length of an answer are known only of a whole one.
		if tpot, ok := e.TPOT(); ok {
			last, _ := tl.LastChunk()
			s.add(m.tpot, tl.Sent.Add(last), metrics.D(tpot))
		}
		if rate, ok := outputRate(e); ok {
			last, _ := tl.LastChunk()
			s.add(m.outputTPS, tl.Sent.Add(last), rate)
		}
		if e2e, ok := e.E2E(); ok {
			s.add(m.e2e, tl.Sent.Add(e2e), metrics.D(e2e))
		}
	}
	e.sampleOutcome(m, s)
}

func outputRate(e *Exchange) (float64, bool) {
	if e.CompletionTokens == nil {
		return 0, false
	}

	return e.Timeline.OutputRate(*e.CompletionTokens)
}

func (e *Exchange) sampleTokens(m *instruments, s *sampler) {
	if e.PromptTokens != nil {
		source := SourceServer
		if e.Message.Usage.PromptTokens == nil {
			source = SourceTokenizer
		}
		s.addTagged(m.promptTokens, e.Tags.With("source", string(source)), e.End, float64(*e.PromptTokens))
		if e.PromptTokensAsked > 0 && source == SourceServer {
			s.add(m.promptTokensError, e.End, float64(*e.PromptTokens-e.PromptTokensAsked))
		}
	}
	switch {
	case e.CompletionTokens != nil:
		s.addTagged(m.completionTokens, e.Tags.With("source", string(e.TokenSource)), e.End, float64(*e.CompletionTokens))
	case e.Timeline.Chunks() > 0:
		s.addTagged(m.completionTokens, e.Tags.With("source", string(SourceChunks)), e.End, float64(e.Timeline.Chunks()))
	}
	if n, ok := e.TokensPerChunk(); ok {
		s.add(m.chunkTokens, e.End, n)
	}
	if n := e.Message.Usage.CachedTokens; n != nil {
		s.addTagged(m.cachedTokens, e.Tags.With("source", string(SourceServer)), e.End, float64(*n))
	}
	if n := e.Message.Usage.ReasoningTokens; n != nil {
		s.addTagged(m.reasoningTokens, e.Tags.With("source", string(SourceServer)), e.End, float64(*n))
	}
	if e.Cost != nil {
		s.add(m.cost, e.End, *e.Cost)
	}
}

func (e *Exchange) sampleOutcome(m *instruments, s *sampler) {
	tags := e.Tags.With("outcome", string(e.Outcome))
	if e.CancelPhase != "" {
		tags = tags.With("cancel_phase", string(e.CancelPhase))
	}
	s.addTagged(m.requests, tags, e.End, 1)

	if !e.cutShort() {
		// A user who leaves, or a run that ends, is neither a success nor a failure of the service.
		s.add(m.success, e.End, indicator(e.Outcome == OutcomeOK))
	}
	s.add(m.http5xx, e.End, indicator(e.Status >= 500))
	if e.ErrorType != "" {
		s.addTagged(m.errors, e.Tags.With("error_type", string(e.ErrorType)), e.End, 1)
	}
	s.addTagged(m.inFlight, e.runTags, e.End, float64(e.InFlight))
	if e.Goodput != nil {
		s.add(m.goodput, e.End, indicator(*e.Goodput))
	}
}

func indicator(b bool) float64 {
	if b {
		return 1
	}

	return 0
}
