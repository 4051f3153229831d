package llmtest

import (
	"sync/atomic"
	"time"
)

// maxLag is how far the wall clock may run ahead of the engine before the engine gives up the difference. Below it, late
// timers do not add up: a step begins when the step before should have ended. Above it the host was too busy to simulate,
// and a burst of steps in no time would be no engine's behaviour.
const maxLag = 50 * time.Millisecond

// delivery is where the engine leaves a request's tokens for the goroutine that writes them. The engine only ever counts up
// and pokes, so that a slow reader cannot hold it.
type delivery struct {
	produced atomic.Int64
	cached   atomic.Int64
	finished atomic.Bool
	poke     chan struct{}
}

func newDelivery() *delivery { return &delivery{poke: make(chan struct{}, 1)} }

// loop runs an engine on the wall clock. One goroutine owns the engine; others hand it functions to call.
type loop struct {
	engine  *Engine
	speed   float64
	start   time.Time
	metrics *serverMetrics

	requests chan func(now time.Duration)
	quit     chan struct{}
	done     chan struct{}

	// Owned by the goroutine:
	deliveries map[int64]*liveRequest
	nextTag    int64
}

type liveRequest struct {
	seq    *Sequence
	to     *delivery
	reason string
}

func startLoop(engine *Engine, speed float64, metrics *serverMetrics) *loop {
	l := &loop{
		engine: engine, speed: speed, start: time.Now(), metrics: metrics,
		requests:   make(chan func(time.Duration)),
		quit:       make(chan struct{}),
		done:       make(chan struct{}),
		deliveries: make(map[int64]*liveRequest),
	}
	go l.run()
	return l
}

// stop ends the goroutine and waits for it.
func (l *loop) stop() {
	close(l.quit)
	<-l.done
}

// call runs f in the goroutine that owns the engine and waits for it. It is false where the loop has ended.
func (l *loop) call(f func(now time.Duration)) bool {
	ran := make(chan struct{})
	select {
	case l.requests <- func(now time.Duration) { f(now); close(ran) }:
		<-ran
		return true
	case <-l.done:
		return false
	}
}

// submit queues a request whose tokens go to d; reason is how it finishes unless cancelled.
func (l *loop) submit(r Request, d *delivery, reason string) (tag int64, err error) {
	ok := l.call(func(now time.Duration) {
		l.nextTag++
		r.Tag = l.nextTag
		tag = r.Tag
		var seq *Sequence
		if seq, err = l.engine.Submit(now, r); err == nil {
			l.deliveries[tag] = &liveRequest{seq: seq, to: d, reason: reason}
		}
	})
	if !ok {
		return 0, errClosed
	}
	return tag, err
}

// cancel takes a request out, unless it has ended.
func (l *loop) cancel(tag int64) {
	l.call(func(now time.Duration) {
		live := l.deliveries[tag]
		if live == nil {
			return
		}
		delete(l.deliveries, tag)
		l.engine.Cancel(now, live.seq)
		l.metrics.mu.Lock()
		l.metrics.finished["abort"]++
		l.metrics.mu.Unlock()
	})
}

func (l *loop) run() {
	defer close(l.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		l.catchUp(l.now())
		var stepEnds <-chan time.Time
		if end, ok := l.engine.StepEnd(); ok {
			timer.Reset(time.Until(l.wall(end)))
			stepEnds = timer.C
		}
		select {
		case <-l.quit:
			return
		case f := <-l.requests:
			now := l.now()
			l.catchUp(now)
			f(now)
			l.catchUp(now) // an idle engine takes a request up at the instant of its arrival
		case <-stepEnds:
		}
	}
}

// now is the engine's time: wall-clock time since the start, times the speed.
func (l *loop) now() time.Duration { return time.Duration(float64(time.Since(l.start)) * l.speed) }

func (l *loop) wall(engineTime time.Duration) time.Time {
	return l.start.Add(time.Duration(float64(engineTime) / l.speed))
}

// catchUp ends all steps that are due and keeps the engine busy.
func (l *loop) catchUp(now time.Duration) {
	for {
		end, inStep := l.engine.StepEnd()
		if !inStep {
			if _, began := l.engine.BeginStep(now); !began {
				return
			}
			continue
		}
		if end > now {
			return
		}
		l.deliver(l.engine.FinishStep())
		begin := end
		if float64(now-end)/l.speed > float64(maxLag) {
			begin = now
		}
		l.engine.BeginStep(begin)
	}
}

func (l *loop) deliver(produced []*Sequence) {
	m := l.metrics
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, seq := range produced {
		live := l.deliveries[seq.Tag]
		if live == nil {
			continue
		}
		if seq.OutputTokens == 1 {
			live.to.cached.Store(int64(seq.CachedTokens))
			if !seq.pooling {
				m.ttft.observe(l.seconds(seq.FirstToken - seq.Arrived))
			}
			m.queueTime.observe(l.seconds(seq.Scheduled - seq.Arrived))
		}
		if gap, ok := seq.Gap(); ok {
			m.itl.observe(l.seconds(gap))
		}
		live.to.produced.Store(int64(seq.OutputTokens))
		if seq.Status == Completed {
			live.to.finished.Store(true)
			delete(l.deliveries, seq.Tag)
			m.e2e.observe(l.seconds(seq.Ended - seq.Arrived))
			m.finished[live.reason]++
		}
		select {
		case live.to.poke <- struct{}{}:
		default:
		}
	}
}

// seconds turns engine time into the wall-clock seconds that a client sees.
func (l *loop) seconds(d time.Duration) float64 { return d.Seconds() / l.speed }
