package llmtest

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Never stands in a time field for something that has not happened.
const Never time.Duration = -1

// ErrQueueFull is returned by Submit when the waiting queue is at Config.MaxWaiting.
var ErrQueueFull = errors.New("the waiting queue is full")

// ContextLengthError is returned by Submit when prompt and output cannot fit into the model's context.
type ContextLengthError struct {
	MaxModelLen  int
	PromptTokens int
	MaxTokens    int
}

// Error says it in vLLM's words, which clients match on.
func (e *ContextLengthError) Error() string {
	if e.PromptTokens >= e.MaxModelLen {
		return fmt.Sprintf("This model's maximum context length is %d tokens. However, your request has %d input tokens. "+
			"Please reduce the length of the input messages.", e.MaxModelLen, e.PromptTokens)
	}
	total := e.PromptTokens + e.MaxTokens
	return fmt.Sprintf("This model's maximum context length is %d tokens. However, you requested %d output tokens and "+
		"your prompt contains %d input tokens, for a total of %d tokens (%d + %d = %d > %d). Please reduce the length of "+
		"the input prompt or the number of requested output tokens.",
		e.MaxModelLen, e.MaxTokens, e.PromptTokens, total, e.PromptTokens, e.MaxTokens, total, e.MaxModelLen)
}

// Status is where a request stands.
type Status uint8

// The states of a request. Rejected and Unfinished occur only in results: a rejected request never enters the engine, and an
// unfinished one was still in it when the simulation was stopped.
const (
	Waiting Status = iota
	Running
	Completed
	Cancelled
	Rejected
	Unfinished
)

// String names the status.
func (s Status) String() string {
	names := [...]string{"waiting", "running", "completed", "cancelled", "rejected", "unfinished"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("Status(%d)", uint8(s))
}

// Request is what the engine needs to know of a request.
type Request struct {
	// Tag is the caller's own mark; it comes back in Sequence.Tag.
	Tag int64
	// PromptTokens and MaxTokens are at least 1. The request ends after exactly MaxTokens tokens.
	PromptTokens int
	MaxTokens    int
	// Blocks identifies the content of the sequence block by block, BlockSize tokens each: first the prompt's full
	// blocks, and then, where the caller knows it, blocks that hold generated tokens. Two sequences share a block of the KV
	// cache where this block's id and all ids before it are equal. Blocks without an id are unique to the sequence.
	Blocks []uint64
	// Pooling asks for the prompt's embedding and for no text: the request ends with its prefill, and no generated token is
	// counted. MaxTokens is then 1.
	Pooling bool
}

// Sequence is a request inside the engine. The engine owns it; callers read it.
type Sequence struct {
	Tag          int64
	PromptTokens int
	MaxTokens    int
	Status       Status
	// Arrived, Scheduled (for the first time), FirstToken, LastToken and Ended are engine times, or Never.
	Arrived    time.Duration
	Scheduled  time.Duration
	FirstToken time.Duration
	LastToken  time.Duration
	Ended      time.Duration
	// CachedTokens is how many prompt tokens were found in the prefix cache when first scheduled.
	CachedTokens int
	// OutputTokens is how many tokens were generated so far.
	OutputTokens int
	// Preemptions is how often the sequence was thrown out of the batch for want of blocks.
	Preemptions int

	gap        time.Duration
	pooling    bool
	serial     uint64
	contents   []uint64
	blocks     []int32
	computed   int    // tokens whose KV is in the cache
	stepTokens int    // tokens this sequence computes in the current step
	chain      uint64 // chained hash of the first hashedN blocks
	hashedN    int
}

// Gap is the time between the last two tokens; it is false where there are fewer than two.
func (s *Sequence) Gap() (time.Duration, bool) { return s.gap, s.OutputTokens > 1 }

// numTokens is the length of the sequence: what must be computed before the next token can be sampled.
func (s *Sequence) numTokens() int { return s.PromptTokens + s.OutputTokens }

// content identifies block i: the caller's id, or one that no other sequence has.
func (s *Sequence) content(i int) uint64 {
	if i < len(s.contents) {
		return s.contents[i]
	}
	return mix64(mix64(s.serial) + uint64(i)) // #nosec G115 -- a block index is not negative
}

// Stats are the engine's counters and gauges, in vLLM's meaning.
type Stats struct {
	Waiting, Running int
	UsedBlocks       int
	// KVUsage is the share of blocks in use by sequences, 0 to 1; cached but unused blocks are free.
	KVUsage float64
	// PrefixQueries counts the prompt tokens looked up in the prefix cache by requests scheduled for the first time,
	// PrefixHits those found.
	PrefixQueries, PrefixHits int64
	Preemptions               int64
	// PromptTokens counts the prompt tokens of requests whose first token was generated.
	PromptTokens, GenerationTokens int64
	Completed, Cancelled, Rejected int64
	Steps                          int64
	// Busy is the time spent in steps, stalls included.
	Busy time.Duration
}

// Engine is the scheduler and its KV cache. It is driven by calls with explicit times, which must not decrease:
// Submit and Cancel at any time, BeginStep when no step runs, FinishStep at the time that BeginStep gave. It is not safe
// for concurrent use.
type Engine struct {
	cfg     Config
	pool    *blockPool
	waiting sequenceQueue
	running []*Sequence
	rng     *rand.Rand
	serial  uint64
	stats   Stats
	spare   [][]int32 // block lists of ended sequences, for reuse

	inStep    bool
	batch     []*Sequence
	produced  []*Sequence
	stepStart time.Duration
	stepWork  time.Duration
	stepEnd   time.Duration
	stalls    []Stall
}

// NewEngine makes an idle engine, or says what is wrong with the configuration.
func NewEngine(cfg Config) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("engine configuration: %w", err)
	}
	e := &Engine{
		cfg:  cfg,
		pool: newBlockPool(cfg.NumBlocks),
		rng:  rand.New(rand.NewPCG(cfg.Seed, 0x5afe)), // #nosec G404 -- a simulation must repeat
	}
	e.stalls = slices.Clone(cfg.Stalls)
	e.sortStalls()
	return e, nil
}

// Config is the configuration the engine was made with.
func (e *Engine) Config() Config { return e.cfg }

// Stats is a snapshot of counters and gauges.
func (e *Engine) Stats() Stats {
	st := e.stats
	st.Waiting = e.waiting.len()
	st.Running = len(e.running)
	st.UsedBlocks = e.pool.used()
	st.KVUsage = float64(st.UsedBlocks) / float64(e.cfg.NumBlocks)
	return st
}

// HasWork tells whether any request is waiting or running.
func (e *Engine) HasWork() bool { return e.waiting.len() > 0 || len(e.running) > 0 }

// StepEnd is when the current step ends; it is false where no step runs.
func (e *Engine) StepEnd() (time.Duration, bool) { return e.stepEnd, e.inStep }

// Submit queues a request. The errors are ErrQueueFull, *ContextLengthError, or one that names a wrong length.
func (e *Engine) Submit(now time.Duration, r Request) (*Sequence, error) {
	switch {
	case r.PromptTokens < 1:
		return nil, fmt.Errorf("request has %d prompt tokens, expected at least 1", r.PromptTokens)
	case r.MaxTokens < 1:
		return nil, fmt.Errorf("request asks for %d tokens, expected at least 1", r.MaxTokens)
	case r.Pooling && r.MaxTokens != 1:
		return nil, fmt.Errorf("request for an embedding asks for %d tokens, expected 1", r.MaxTokens)
	case r.PromptTokens >= e.cfg.MaxModelLen, r.MaxTokens > e.cfg.MaxModelLen-r.PromptTokens:
		e.stats.Rejected++
		return nil, &ContextLengthError{e.cfg.MaxModelLen, r.PromptTokens, r.MaxTokens}
	case e.cfg.MaxWaiting > 0 && e.waiting.len() >= e.cfg.MaxWaiting:
		e.stats.Rejected++
		return nil, ErrQueueFull
	}
	e.serial++
	s := &Sequence{
		Tag: r.Tag, PromptTokens: r.PromptTokens, MaxTokens: r.MaxTokens,
		Arrived: now, Scheduled: Never, FirstToken: Never, LastToken: Never, Ended: Never,
		serial: e.serial, contents: r.Blocks, pooling: r.Pooling,
	}
	e.waiting.pushBack(s)
	return s, nil
}

// Cancel takes a request out. Its slot and its blocks are free at once; what the current step computes for it is lost.
// It is false where the request had ended before.
func (e *Engine) Cancel(now time.Duration, s *Sequence) bool {
	switch s.Status {
	case Waiting:
		s.Status = Cancelled
		e.waiting.drop()
	case Running:
		s.Status = Cancelled
		e.running = slices.DeleteFunc(e.running, func(r *Sequence) bool { return r == s })
		e.freeBlocks(s)
	default:
		return false
	}
	s.Ended = now
	e.stats.Cancelled++
	return true
}

// Stall makes the engine stand still for d from now on; a running step ends later.
func (e *Engine) Stall(now, d time.Duration) {
	if d <= 0 {
		return
	}
	e.stalls = append(e.stalls, Stall{At: now, For: d})
	e.sortStalls()
	if e.inStep {
		e.stepEnd = e.workEnd(e.stepStart, e.stepWork)
	}
}

func (e *Engine) sortStalls() {
	slices.SortStableFunc(e.stalls, func(a, b Stall) int { return cmp.Compare(a.At, b.At) })
}

// workEnd is when work begun at start is done, given that nothing happens during stalls.
func (e *Engine) workEnd(start, work time.Duration) time.Duration {
	for _, st := range e.stalls {
		until := st.At + st.For
		switch {
		case until <= start:
		case st.At <= start:
			start = until
		case st.At < start+work:
			work -= st.At - start
			start = until
		}
	}
	return start + work
}

// BeginStep forms the next batch and gives the time at which it will be done. It is false where there is nothing to
// do or a step runs already.
func (e *Engine) BeginStep(now time.Duration) (end time.Duration, ok bool) {
	if e.inStep || !e.HasWork() {
		return 0, false
	}
	e.batch = e.batch[:0]
	budget, preempted := e.scheduleRunning(e.cfg.MaxNumBatchedTokens)
	if !preempted {
		// vLLM admits nothing in a step that had to preempt.
		e.scheduleWaiting(now, budget)
	}
	prefill, decode := 0, 0
	for _, s := range e.batch {
		if s.OutputTokens > 0 && s.computed == s.numTokens()-1 {
			decode++
		} else {
			prefill += s.stepTokens
		}
	}
	work := e.cfg.StepTime(prefill, decode)
	if sigma := e.cfg.StepJitter; sigma > 0 {
		factor := math.Exp(sigma*e.rng.NormFloat64() - sigma*sigma/2)
		work = max(time.Duration(float64(work)*factor), 1)
	}
	e.stalls = slices.DeleteFunc(e.stalls, func(s Stall) bool { return s.At+s.For <= now })
	e.stepStart, e.stepWork = now, work
	e.stepEnd = e.workEnd(now, work)
	e.inStep = true
	return e.stepEnd, true
}

// scheduleRunning gives tokens to running sequences, oldest first, and preempts from the end when blocks run out.
func (e *Engine) scheduleRunning(budget int) (left int, preempted bool) {
	for i := 0; i < len(e.running) && budget > 0; i++ {
		s := e.running[i]
		n := min(e.wanted(s.numTokens()-s.computed), budget)
		for !e.grow(s, s.computed+n) {
			last := e.running[len(e.running)-1]
			e.running = e.running[:len(e.running)-1]
			e.preempt(last)
			preempted = true
			if last == s {
				return budget, true
			}
		}
		e.addToBatch(s, n)
		budget -= n
	}
	return budget, preempted
}

// scheduleWaiting admits waiting sequences in order until a slot, the budget or the blocks run out. The first that
// does not fit holds back all behind it.
func (e *Engine) scheduleWaiting(now time.Duration, budget int) {
	for e.waiting.len() > 0 && budget > 0 && len(e.running) < e.cfg.MaxNumSeqs && e.pool.free > 0 {
		s := e.waiting.front()
		e.findPrefix(s)
		cached := len(s.blocks) * e.cfg.BlockSize
		n := e.wanted(s.numTokens() - cached)
		tooLong := e.cfg.DisableChunkedPrefill && n > budget
		n = min(n, budget)
		if tooLong || !e.admissible(s, cached+n) {
			s.blocks, s.chain, s.hashedN = s.blocks[:0], 0, 0
			return
		}
		for _, id := range s.blocks {
			e.pool.share(id)
		}
		e.grow(s, cached+n)
		e.waiting.popFront()
		e.running = append(e.running, s)
		s.Status = Running
		s.computed = cached
		if s.Scheduled == Never {
			s.Scheduled = now
			s.CachedTokens = cached
			if !e.cfg.DisablePrefixCaching {
				e.stats.PrefixQueries += int64(s.PromptTokens)
				e.stats.PrefixHits += int64(cached)
			}
		}
		e.addToBatch(s, n)
		budget -= n
	}
}

func (e *Engine) wanted(n int) int {
	if t := e.cfg.LongPrefillTokenThreshold; t > 0 {
		return min(n, t)
	}
	return n
}

func (e *Engine) addToBatch(s *Sequence, n int) {
	s.stepTokens = n
	e.batch = append(e.batch, s)
	if e.cfg.DisablePrefixCaching {
		return
	}
	// As in vLLM, full blocks can be found from the moment they are scheduled, so that a request behind in the same
	// step shares them.
	for full := (s.computed + n) / e.cfg.BlockSize; s.hashedN < full; s.hashedN++ {
		s.chain = chainHash(s.chain, s.content(s.hashedN))
		e.pool.remember(s.blocks[s.hashedN], s.chain)
	}
}

// findPrefix lists the cached blocks with which the sequence begins, without taking a share in them. At least the last
// token is left to compute, so that there is something to sample from.
func (e *Engine) findPrefix(s *Sequence) {
	if s.blocks == nil {
		s.blocks = e.spareBlocks()
	}
	if e.cfg.DisablePrefixCaching {
		return
	}
	for most := (s.numTokens() - 1) / e.cfg.BlockSize; s.hashedN < most; s.hashedN++ {
		next := chainHash(s.chain, s.content(s.hashedN))
		id, found := e.pool.byHash[next]
		if !found {
			return
		}
		s.blocks = append(s.blocks, id)
		s.chain = next
	}
}

// admissible tells whether the pool can hold the given number of tokens of a sequence whose blocks so far were found by
// findPrefix: those of them that nobody uses are taken from the free blocks too.
func (e *Engine) admissible(s *Sequence, tokens int) bool {
	need := ceilDiv(tokens, e.cfg.BlockSize) - len(s.blocks)
	for _, id := range s.blocks {
		if e.pool.blocks[id].refs == 0 {
			need++
		}
	}
	return need <= e.pool.free
}

// grow makes sure that the sequence has blocks for the given number of tokens; where there are too few, it changes nothing.
func (e *Engine) grow(s *Sequence, tokens int) bool {
	need := ceilDiv(tokens, e.cfg.BlockSize) - len(s.blocks)
	if need > e.pool.free {
		return false
	}
	for range need {
		s.blocks = append(s.blocks, e.pool.take())
	}
	return true
}

func (e *Engine) preempt(s *Sequence) {
	e.freeBlocks(s)
	s.Status = Waiting
	s.Preemptions++
	e.stats.Preemptions++
	e.waiting.pushFront(s)
}

func (e *Engine) freeBlocks(s *Sequence) {
	e.pool.release(s.blocks)
	if s.blocks != nil {
		e.spare = append(e.spare, s.blocks[:0])
	}
	s.blocks, s.computed, s.chain, s.hashedN = nil, 0, 0, 0
}

func (e *Engine) spareBlocks() []int32 {
	if n := len(e.spare); n > 0 {
		b := e.spare[n-1]
		e.spare = e.spare[:n-1]
		return b
	}
	return make([]int32, 0, 32)
}

// FinishStep ends the current step and gives the sequences that got a token in it, in batch order; each whose Status is
// Completed has had its last. The slice is valid until the next call. The time is that of StepEnd.
func (e *Engine) FinishStep() []*Sequence {
	e.produced = e.produced[:0]
	if !e.inStep {
		return e.produced
	}
	e.inStep = false
	e.stats.Steps++
	e.stats.Busy += e.stepEnd - e.stepStart
	ended := false
	for _, s := range e.batch {
		if s.Status != Running {
			continue // cancelled during the step
		}
		s.computed += s.stepTokens
		if s.computed < s.numTokens() {
			continue // more of the prompt to come
		}
		e.sample(s)
		e.produced = append(e.produced, s)
		ended = ended || s.Status == Completed
	}
	if ended {
		e.running = slices.DeleteFunc(e.running, func(s *Sequence) bool { return s.Status == Completed })
	}
	return e.produced
}

// sample adds one token to the sequence, and ends it where that was the last.
func (e *Engine) sample(s *Sequence) {
	if s.OutputTokens == 0 {
		s.FirstToken = e.stepEnd
		e.stats.PromptTokens += int64(s.PromptTokens)
	} else {
		s.gap = e.stepEnd - s.LastToken
	}
	s.LastToken = e.stepEnd
	s.OutputTokens++
	if !s.pooling {
		e.stats.GenerationTokens++
	}
	if s.OutputTokens == s.MaxTokens {
		s.Status = Completed
		s.Ended = e.stepEnd
		e.stats.Completed++
		e.freeBlocks(s)
	}
}
