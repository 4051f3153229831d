package trace

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"go.k6.io/k6/lib"
	"go.k6.io/k6/lib/executor"
	"go.k6.io/k6/metrics"
)

// The clock starts this long after everything is ready, so that the first row is waited for like every other.
const clockLead = 5 * time.Millisecond

// Executor starts each row of a trace at its due time, whatever became of the rows before: an open loop. Due times are
// absolute, so nothing adds up. A row for which no VU is free is dropped, counted and recorded; none is sent late.
type Executor struct {
	*executor.BaseExecutor
	config *Config
	state  *lib.ExecutionState
	window *window
	tuple  *lib.ExecutionTuple
}

var _ lib.Executor = &Executor{}

// Init implements lib.Executor. The script's init code has run by then, so the trace is open.
func (e *Executor) Init(context.Context) error {
	var err error
	if e.window, err = e.config.window(); err != nil {
		return err
	}
	// By the VUs rather than by the rows: an instance that gets no VU then gets no row either.
	if e.tuple, err = e.state.ExecutionTuple.GetNewExecutionTupleFromValue(e.config.maxVUs()); err != nil {
		return fmt.Errorf("dividing %d VUs among the execution segments: %w", e.config.maxVUs(), err)
	}

	return nil
}

// run is one call of Run.
type run struct {
	config    *Config
	state     *lib.ExecutionState
	logger    *logrus.Entry
	window    *window
	tolerance time.Duration
	scaledMax int64 // VUs of this instance
	tuple     *lib.ExecutionTuple

	ctx    context.Context //nolint:containedctx // the VUs' own: its end interrupts what is running
	cancel context.CancelFunc
	begin  time.Time // the scenario's time zero

	idle      idleWorkers
	workers   []*worker // owned by whoever adds VUs: Run before the clock starts, then grow, then Run again
	running   sync.WaitGroup
	activated sync.WaitGroup
	more      chan struct{} // one token for each further VU that is wanted
	asked     int           // tokens given out; the dispatcher's
	warned    bool          // the dispatcher's

	drops    *dropQueue
	dropTags *metrics.TagSet

	vus, busy, started atomic.Int64
	dropped            dropCounts

	abortOnce sync.Once
	abortErr  error
}

// Run implements lib.Executor. It returns when every iteration has ended, or has been interrupted gracefulStop after the
// scenario's duration.
func (e *Executor) Run(parent context.Context, out chan<- metrics.SampleContainer) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()

	duration, _ := e.config.duration()
	scenario := &lib.ScenarioState{Name: e.config.Name, Executor: ExecutorType}
	r := &run{
		config: e.config, state: e.state, logger: e.GetLogger(), window: e.window,
		tolerance: e.config.Tolerance.TimeDuration(), scaledMax: e.state.ExecutionTuple.ScaleInt64(e.config.maxVUs()),
		tuple: e.tuple,
		ctx:   lib.WithScenarioState(ctx, scenario), cancel: cancel,
		drops: newDropQueue(out), dropTags: e.tagsOfDrops(),
	}
	defer r.drops.close()

	planned := e.state.ExecutionTuple.ScaleInt64(e.config.PreAllocatedVUs.Int64)
	err := r.activatePlanned(planned)
	if err != nil {
		r.stop()

		return err
	}
	r.collectGarbage()
	r.begin = time.Now().Add(clockLead)
	progress := r.progress(duration)
	scenario.StartTime, scenario.ProgressFn = r.begin, progress
	if !showProgress(e.GetProgress(), e.GetProgress().Modify, 0, progress) {
		r.logger.Warn("this version of k6 shows no progress for " + ExecutorType)
	}

	r.more = make(chan struct{}, max(0, r.scaledMax-planned))
	growCtx, stopGrowing := context.WithCancel(r.ctx)
	var growing, dispatching sync.WaitGroup
	growing.Go(func() { r.grow(growCtx) })
	dispatching.Go(func() { r.dispatch(duration) }) // on a goroutine of its own, since it ends with its thread
	dispatching.Wait()
	stopGrowing() // a VU that is still being made would come too late

	// Iterations in flight have gracefulStop from the scenario's end.
	if ctx.Err() == nil && e.config.GetGracefulStop() > 0 {
		showProgress(e.GetProgress(), e.GetProgress().Modify, statusStopping, progress)
	}
	deadline := time.AfterFunc(time.Until(r.begin.Add(duration+e.config.GetGracefulStop())), cancel)
	growing.Wait()
	r.stop()
	deadline.Stop()

	if advice := r.dropped.advice(); advice != "" {
		r.logger.Warnf("%d of %d rows were dropped: %s", r.dropped.total(), r.started.Load()+r.dropped.total(), advice)
	}
	status := statusDone
	if r.abortErr != nil || parent.Err() != nil {
		status = statusInterrupted
	}
	share, columns := progress()
	showProgress(e.GetProgress(), e.GetProgress().Modify, status, func() (float64, []string) { return share, columns })

	return r.abortErr
}

func (r *run) activatePlanned(count int64) error {
	for range count {
		vu, err := r.state.GetPlannedVU(r.logger, false)
		if err != nil {
			return fmt.Errorf("scenario %s: %w", r.config.Name, err)
		}
		r.addVU(vu)
	}

	return nil
}

// collectGarbage clears up after the start of the VUs. Thousands of them leave enough behind that the collector is at work
// when the clock starts, and the first rows are then tens of milliseconds late. Where another scenario is under way, its
// requests would suffer instead, and the VUs were made long ago.
func (r *run) collectGarbage() {
	if r.state.GetCurrentlyActiveVUsCount() == 0 && r.state.GetFullIterationCount() == 0 {
		runtime.GC()
	}
}

// stop waits for the iterations in flight, or for the end of the context, and gives the VUs back.
func (r *run) stop() {
	for _, w := range r.workers {
		close(w.jobs)
	}
	r.running.Wait()
	r.cancel()
	r.activated.Wait()
}

// abort ends the whole test, since the script has called test.abort(). k6 keeps the function for that internal; an
// executor that returns an error ends the test too, with the same exit code.
func (r *run) abort(err error) {
	r.abortOnce.Do(func() {
		r.abortErr = err
		r.cancel()
	})
}

// grow makes further VUs, one at a time, while the dispatcher goes on.
func (r *run) grow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.more:
		}
		vu, err := r.state.GetUnplannedVU(ctx, r.logger)
		switch {
		case err == nil:
			r.addVU(vu)
		case ctx.Err() == nil:
			r.logger.WithError(err).Error("a further VU could not be initialized")
		}
	}
}

// dispatch hands each row of this instance to a VU at its due time, and then waits for the scenario's end.
func (r *run) dispatch(duration time.Duration) {
	alarm := newAlarm()
	limit := r.config.MaxDuration.TimeDuration()
	local := 0
	first, strides, _ := r.tuple.GetStripedOffsets()
	for i := first; i < int64(r.window.length()); i += strides[(local-1)%len(strides)] {
		row, offset := r.window.from+int(i), r.window.due(int(i))
		due := r.begin.Add(offset)
		local++
		tooLong := limit > 0 && offset > limit
		if !alarm.until(r.ctx, r.begin.Add(min(offset, duration))) {
			return
		}
		switch {
		case tooLong:
			r.drop(row, due, DropMaxDuration)
		case time.Since(due) > r.tolerance:
			r.drop(row, due, DropLate)
		default:
			r.handOver(job{row: row, local: uint64(local - 1), due: due}) //nolint:gosec // not negative
		}
	}
	alarm.until(r.ctx, r.begin.Add(duration))
}

// handOver gives a row to an idle VU, or drops it where there is none. Where no VU is left for the next row, one more is
// asked for.
func (r *run) handOver(j job) {
	w := r.idle.pop()
	if w != nil {
		w.jobs <- j
	} else {
		reason := DropNoVU
		if r.vus.Load() < r.scaledMax {
			reason = DropVUStarting
		}
		r.drop(j.row, j.due, reason)
	}
	if w != nil && !r.idle.empty() {
		return
	}
	switch {
	case r.asked < cap(r.more):
		r.asked++
		r.more <- struct{}{} // has room for all that may be asked for
	case w == nil && !r.warned:
		r.warned = true
		r.logger.Warnf("%d VUs are all at work and maxVUs allows no more: rows are dropped", r.scaledMax)
	}
}

// silent tells of a row whose iteration sent nothing. k6 counts it as an iteration, so it is no dropped one of k6's; but a
// service that was never asked has not answered.
func (r *run) silent(row int, due time.Time, reason DropReason) {
	r.started.Add(-1)
	d := r.dropOf(row, due, reason)
	d.Sample.Metric = nil
	r.drops.add(d)
}

func (r *run) drop(row int, due time.Time, reason DropReason) {
	r.drops.add(r.dropOf(row, due, reason))
}

func (r *run) dropOf(row int, due time.Time, reason DropReason) *Dropped {
	r.dropped.add(reason)
	class, tags := r.window.classOf(row), r.dropTags
	if class != "" {
		tags = tags.With("class", class)
	}

	return &Dropped{
		Row: row, Due: due, Scenario: r.config.Name, Class: class, Reason: reason, Tags: tags,
		Sample: metrics.Sample{
			TimeSeries: metrics.TimeSeries{Metric: r.state.Test.BuiltinMetrics.DroppedIterations, Tags: tags},
			Time:       time.Now(), Value: 1,
		},
	}
}

func (e *Executor) tagsOfDrops() *metrics.TagSet {
	tags := e.state.Test.RunTags.WithTagsFromMap(e.config.GetTags())
	if e.state.Test.Options.SystemTags.Has(metrics.TagScenario) {
		tags = tags.With(metrics.TagScenario.String(), e.config.Name)
	}

	return tags
}

// progress tells how far the scenario is, in time; and the VUs, the time, and the rows of this instance.
func (r *run) progress(duration time.Duration) progressFunc {
	total := r.tuple.ScaleInt64(int64(r.window.length()))

	return func() (float64, []string) {
		spent := min(max(0, time.Since(r.begin)), duration)
		columns := []string{
			fmt.Sprintf("%d/%d VUs", r.busy.Load(), r.vus.Load()),
			fmt.Sprintf("%s/%s", spent.Truncate(100*time.Millisecond), duration.Round(100*time.Millisecond)),
			fmt.Sprintf("%d/%d rows, %s", r.started.Load()+r.dropped.total(), total, r.dropped.String()),
		}
		if duration == 0 {
			return 1, columns
		}

		return float64(spent) / float64(duration), columns
	}
}
