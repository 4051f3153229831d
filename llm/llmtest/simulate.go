package llmtest

import (
	"container/heap"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Arrival is one request of a simulated workload.
type Arrival struct {
	// At is when the request reaches the engine, from the start of the simulation.
	At           time.Duration
	PromptTokens int
	MaxTokens    int
	// Blocks identifies the content of the prompt, one id per full block of Config.BlockSize tokens (see ExpandBlocks);
	// ids beyond the prompt's full blocks are ignored. Without ids the prompt is unlike any other.
	Blocks []uint64
	// CancelAt is when the client leaves, from the start of the simulation; 0 means that it stays. It must not lie
	// before At.
	CancelAt time.Duration
}

// RequestResult is what became of one arrival. Times are from the start of the simulation, or Never.
type RequestResult struct {
	Status Status
	// Err is why the request was rejected: ErrQueueFull, *ContextLengthError or wrong lengths.
	Err          error
	Arrived      time.Duration
	Scheduled    time.Duration
	FirstToken   time.Duration
	LastToken    time.Duration
	Ended        time.Duration
	PromptTokens int
	OutputTokens int
	CachedTokens int
	Preemptions  int
	// MaxGap is the longest time between two tokens, or Never for fewer than two.
	MaxGap time.Duration
	// TokenTimes has one time per token where SimOptions.KeepTokenTimes is set.
	TokenTimes []time.Duration
}

// TTFT is the time from arrival to the first token; it is false where there was none.
func (r *RequestResult) TTFT() (time.Duration, bool) {
	return r.FirstToken - r.Arrived, r.FirstToken != Never
}

// QueueTime is the time from arrival to the first step; it is false where there was none.
func (r *RequestResult) QueueTime() (time.Duration, bool) {
	return r.Scheduled - r.Arrived, r.Scheduled != Never
}

// TPOT is the mean time per token after the first; it is false for fewer than two tokens.
func (r *RequestResult) TPOT() (time.Duration, bool) {
	if r.OutputTokens < 2 {
		return 0, false
	}
	return (r.LastToken - r.FirstToken) / time.Duration(r.OutputTokens-1), true
}

// E2E is the time from arrival to the end; it is false unless the request completed.
func (r *RequestResult) E2E() (time.Duration, bool) {
	return r.Ended - r.Arrived, r.Status == Completed
}

// ITLs are the times between consecutive tokens; nil unless SimOptions.KeepTokenTimes was set.
func (r *RequestResult) ITLs() []time.Duration {
	if len(r.TokenTimes) < 2 {
		return nil
	}
	out := make([]time.Duration, 0, len(r.TokenTimes)-1)
	for i, t := range r.TokenTimes[1:] {
		out = append(out, t-r.TokenTimes[i])
	}
	return out
}

// Sample is the engine's state at one instant, after everything that happened up to and at it.
type Sample struct {
	At      time.Duration
	Waiting int
	Running int
	KVUsage float64
}

// Result is the outcome of a simulation; Requests[i] belongs to arrival i.
type Result struct {
	Requests []RequestResult
	Series   []Sample
	Stats    Stats
	// End is when the last thing happened.
	End time.Duration
}

// SimOptions choose what a simulation keeps, and when it stops.
type SimOptions struct {
	// KeepTokenTimes keeps the time of every token: 8 bytes each.
	KeepTokenTimes bool
	// SampleEvery is the distance of the samples in Result.Series, the first at 0; 0 means none.
	SampleEvery time.Duration
	// Until stops the simulation at this time, with requests Unfinished; 0 means that it runs until all have ended.
	Until time.Duration
	// OnToken, where set, is called for each token with the arrival's index and the time since its token before, or
	// Never for its first.
	OnToken func(index int, at, gap time.Duration)
	// OnEnd, where set, is called when a request has completed, was cancelled or was rejected. It may call Sim.Add, which
	// makes a closed loop.
	OnEnd func(index int, r *RequestResult)
}

// Simulate runs the engine over the arrivals, in any order, on a virtual clock. Equal inputs give equal results. Arrivals
// are read, not changed.
func Simulate(cfg Config, arrivals []Arrival, opts SimOptions) (Result, error) {
	s, err := NewSim(cfg, opts)
	if err != nil {
		return Result{}, err
	}
	s.arrivals = slices.Grow(s.arrivals, len(arrivals))
	s.results = slices.Grow(s.results, len(arrivals))
	s.live = slices.Grow(s.live, len(arrivals))
	s.events = slices.Grow(s.events, len(arrivals))
	for i := range arrivals {
		if _, err := s.Add(arrivals[i]); err != nil {
			return Result{}, fmt.Errorf("arrival %d: %w", i, err)
		}
	}
	if opts.Until > 0 {
		s.AdvanceTo(opts.Until)
	} else {
		s.Run()
	}
	return s.Result(), nil
}

// Sim is the engine on a virtual clock, driven by its caller: add arrivals, advance, look, add more. It is not safe for
// concurrent use.
type Sim struct {
	engine     *Engine
	opts       SimOptions
	now        time.Duration
	events     eventHeap
	order      int
	arrivals   []Arrival
	results    []RequestResult
	live       []*Sequence // by index; nil where not in the engine
	series     []Sample
	nextSample time.Duration
}

// NewSim makes a simulation at time 0 with nothing in it.
func NewSim(cfg Config, opts SimOptions) (*Sim, error) {
	if opts.SampleEvery < 0 || opts.Until < 0 {
		return nil, errors.New("simulation options: SampleEvery and Until must be 0 or more")
	}
	engine, err := NewEngine(cfg)
	if err != nil {
		return nil, err
	}
	return &Sim{engine: engine, opts: opts}, nil
}

// Now is the virtual time.
func (s *Sim) Now() time.Duration { return s.now }

// Stats are the engine's counters and gauges at this time.
func (s *Sim) Stats() Stats { return s.engine.Stats() }

// Add schedules an arrival at or after Now and gives its index. A cancellation is scheduled with it where CancelAt is set.
func (s *Sim) Add(a Arrival) (int, error) {
	if a.At < s.now {
		return 0, fmt.Errorf("arrival at %v lies before the simulated time %v", a.At, s.now)
	}
	if a.CancelAt != 0 && a.CancelAt < a.At {
		return 0, fmt.Errorf("cancellation at %v lies before the arrival at %v", a.CancelAt, a.At)
	}
	index := len(s.arrivals)
	s.arrivals = append(s.arrivals, a)
	s.results = append(s.results, RequestResult{
		Status: Unfinished, Arrived: a.At, Scheduled: Never, FirstToken: Never, LastToken: Never, Ended: Never,
		PromptTokens: a.PromptTokens, MaxGap: Never,
	})
	s.live = append(s.live, nil)
	s.schedule(event{at: a.At, kind: arrivalEvent, index: index})
	if a.CancelAt != 0 {
		s.schedule(event{at: a.CancelAt, kind: cancelEvent, index: index})
	}
	return index, nil
}

// Cancel schedules that the client of an arrival leaves at the given time, at or after Now.
func (s *Sim) Cancel(index int, at time.Duration) error {
	if index < 0 || index >= len(s.arrivals) {
		return fmt.Errorf("there is no arrival %d", index)
	}
	if at < s.now || at < s.arrivals[index].At {
		return fmt.Errorf("cancellation at %v lies before the simulated time %v or the arrival at %v",
			at, s.now, s.arrivals[index].At)
	}
	s.schedule(event{at: at, kind: cancelEvent, index: index})
	return nil
}

// Stall makes the engine stand still for d from now on.
func (s *Sim) Stall(d time.Duration) { s.engine.Stall(s.now, d) }

// Next is the time of the next event; it is false where nothing is left to happen. Like Step, it lets a step begin at
// Now where the engine is free: an arrival added afterwards for this very instant waits for the step after.
func (s *Sim) Next() (time.Duration, bool) {
	s.beginStep()
	end, inStep := s.engine.StepEnd()
	switch {
	case len(s.events) > 0 && (!inStep || s.events[0].at < end):
		return s.events[0].at, true
	case inStep:
		return end, true
	}
	return 0, false
}

// Step lets the next event happen: an arrival, a cancellation or the end of an engine step. A step that ends and
// something that arrives at the same instant happen in this order, and the step after takes the arrival in. It is
// false where nothing is left to happen.
func (s *Sim) Step() bool {
	at, ok := s.Next()
	if !ok {
		return false
	}
	s.moveTo(at)
	if end, inStep := s.engine.StepEnd(); inStep && end == at {
		s.finishStep()
		return true
	}
	ev, _ := heap.Pop(&s.events).(event)
	if ev.kind == arrivalEvent {
		s.arrive(ev.index)
	} else if seq := s.live[ev.index]; seq != nil && s.engine.Cancel(s.now, seq) {
		s.end(seq)
	}
	return true
}

// AdvanceTo lets everything happen up to and at the given time, and sets the clock to it. The engine takes up no new
// batch at that time before the next call, so that an arrival added for it is in time.
func (s *Sim) AdvanceTo(t time.Duration) {
	for s.now < t || s.pendingAt(t) {
		at, ok := s.Next()
		if !ok || at > t {
			break
		}
		s.Step()
	}
	if t > s.now {
		s.moveTo(t)
	}
}

func (s *Sim) pendingAt(t time.Duration) bool {
	end, inStep := s.engine.StepEnd()
	return (inStep && end <= t) || (len(s.events) > 0 && s.events[0].at <= t)
}

// Run lets everything happen.
func (s *Sim) Run() {
	for more := true; more; {
		more = s.Step()
	}
}

// Request is what became of an arrival so far.
func (s *Sim) Request(index int) RequestResult {
	r := s.results[index]
	if seq := s.live[index]; seq != nil {
		r.update(seq)
		r.Status = Unfinished
	}
	return r
}

// Result is the outcome so far. It shares memory with the simulation: take it when done.
func (s *Sim) Result() Result {
	for i, seq := range s.live {
		if seq != nil {
			s.results[i].update(seq)
			s.results[i].Status = Unfinished
		}
	}
	series := s.series
	if s.opts.SampleEvery > 0 && s.nextSample == s.now {
		series = append(series, s.sample(s.now))
	}
	return Result{Requests: s.results, Series: series, Stats: s.engine.Stats(), End: s.now}
}

// beginStep starts an engine step once everything that happens now has happened.
func (s *Sim) beginStep() {
	if len(s.events) > 0 && s.events[0].at == s.now {
		return
	}
	s.engine.BeginStep(s.now)
}

func (s *Sim) moveTo(t time.Duration) {
	if every := s.opts.SampleEvery; every > 0 {
		for ; s.nextSample < t; s.nextSample += every {
			s.series = append(s.series, s.sample(s.nextSample))
		}
	}
	s.now = t
}

func (s *Sim) sample(at time.Duration) Sample {
	return Sample{
		At:      at,
		Waiting: s.engine.waiting.len(),
		Running: len(s.engine.running),
		KVUsage: float64(s.engine.pool.used()) / float64(s.engine.cfg.NumBlocks),
	}
}

func (s *Sim) arrive(index int) {
	a := &s.arrivals[index]
	blocks := a.Blocks
	if full := max(a.PromptTokens, 0) / s.engine.cfg.BlockSize; len(blocks) > full {
		blocks = blocks[:full]
	}
	seq, err := s.engine.Submit(s.now, Request{
		Tag: int64(index), PromptTokens: a.PromptTokens, MaxTokens: a.MaxTokens, Blocks: blocks,
	})
	if err != nil {
		r := &s.results[index]
		r.Status, r.Err, r.Ended = Rejected, err, s.now
		if s.opts.OnEnd != nil {
			s.opts.OnEnd(index, r)
		}
		return
	}
	s.live[index] = seq
}

func (s *Sim) finishStep() {
	for _, seq := range s.engine.FinishStep() {
		index := int(seq.Tag)
		r := &s.results[index]
		gap, ok := seq.Gap()
		if !ok {
			gap = Never
		}
		r.MaxGap = max(r.MaxGap, gap)
		if s.opts.KeepTokenTimes {
			if r.TokenTimes == nil {
				r.TokenTimes = make([]time.Duration, 0, seq.MaxTokens)
			}
			r.TokenTimes = append(r.TokenTimes, s.now)
		}
		if s.opts.OnToken != nil {
			s.opts.OnToken(index, s.now, gap)
		}
		if seq.Status == Completed {
			s.end(seq)
		}
	}
}

func (s *Sim) end(seq *Sequence) {
	index := int(seq.Tag)
	s.results[index].update(seq)
	s.live[index] = nil
	if s.opts.OnEnd != nil {
		s.opts.OnEnd(index, &s.results[index])
	}
}

func (r *RequestResult) update(seq *Sequence) {
	r.Status = seq.Status
	r.Scheduled, r.FirstToken, r.LastToken, r.Ended = seq.Scheduled, seq.FirstToken, seq.LastToken, seq.Ended
	r.OutputTokens, r.CachedTokens, r.Preemptions = seq.OutputTokens, seq.CachedTokens, seq.Preemptions
}

func (s *Sim) schedule(ev event) {
	ev.order = s.order
	s.order++
	heap.Push(&s.events, ev)
}

type eventKind uint8

const (
	arrivalEvent eventKind = iota
	cancelEvent
)

type event struct {
	at    time.Duration
	order int // among events at the same time, the first scheduled is the first to happen
	index int
	kind  eventKind
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].order < h[j].order
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *eventHeap) Push(x any) {
	if ev, ok := x.(event); ok {
		*h = append(*h, ev)
	}
}

func (h *eventHeap) Pop() any {
	old := *h
	ev := old[len(old)-1]
	*h = old[:len(old)-1]
	return ev
}
