package trace

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.k6.io/k6/errext"
	"go.k6.io/k6/lib"

	"github.com/safeqps/xk6-safeqps/llm"
)

// job is a row that a VU is to start.
type job struct {
	row   int    // of the trace
	local uint64 // how many rows this instance had come to before
	due   time.Time
}

// worker is one VU of a scenario and the goroutine that runs its iterations, one after the other.
type worker struct {
	vu lib.ActiveVU
	// jobs has room for one: it is filled only when the worker is idle, so that handing over never blocks. It is the
	// worker's own, so that no lock is shared with other VUs.
	jobs chan job
	next *worker // below this one in the stack of idle workers

	iteration Iteration    // what FromContext finds
	sends     atomic.Int64 // requests of the iteration
	local     uint64
	begun     bool
}

// counters tells k6 which iteration this is. k6 asks once for each, as it begins, so `scenario.iterationInTest` is the
// row of the trace, in whichever instance it runs.
func (w *worker) counters() (local, global uint64) {
	w.begun = true

	return w.local, uint64(w.iteration.Row) // #nosec G115 -- rows are not negative
}

// idleWorkers is a stack of the workers that wait. Every worker pushes; only the dispatcher pops, so what it has seen on
// top cannot be popped and pushed again meanwhile (no ABA), and a compare-and-swap is enough. The worker that was last at
// work starts first: its connection is warm.
type idleWorkers struct {
	top atomic.Pointer[worker]
}

func (s *idleWorkers) push(w *worker) {
	for {
		w.next = s.top.Load()
		if s.top.CompareAndSwap(w.next, w) {
			return
		}
	}
}

func (s *idleWorkers) pop() *worker {
	for {
		w := s.top.Load()
		if w == nil || s.top.CompareAndSwap(w, w.next) {
			return w
		}
	}
}

func (s *idleWorkers) empty() bool { return s.top.Load() == nil }

// addVU activates a VU and starts its worker. It returns when the worker waits for its first row.
func (r *run) addVU(vu lib.InitializedVU) {
	w := &worker{jobs: make(chan job, 1)}
	r.activated.Add(1)
	w.vu = vu.Activate(&lib.VUActivationParams{
		RunContext: llm.WithSends(context.WithValue(r.ctx, iterationKey{}, &w.iteration), &w.sends),
		Scenario:   r.config.Name,
		Exec:       r.config.GetExec(),
		Env:        r.config.GetEnv(),
		Tags:       r.config.GetTags(),
		DeactivateCallback: func(u lib.InitializedVU) {
			r.state.ReturnVU(u, false)
			r.activated.Done()
		},
		GetNextIterationCounters: w.counters,
	})
	r.workers = append(r.workers, w)
	r.vus.Add(1)

	waiting := make(chan struct{})
	r.running.Go(func() {
		close(waiting)
		for j := range w.jobs {
			r.start(w, j)
			r.idle.push(w)
		}
	})
	<-waiting
	r.idle.push(w)
}

// start runs one iteration.
func (r *run) start(w *worker, j job) {
	switch {
	case r.ctx.Err() != nil:
		r.drop(j.row, j.due, DropStopped)

		return
	case time.Since(j.due) > r.tolerance:
		r.drop(j.row, j.due, DropLate)

		return
	}
	w.iteration = Iteration{Trace: r.config.Trace, Row: j.row, Due: j.due}
	w.local, w.begun = j.local, false
	w.sends.Store(0)

	r.started.Add(1)
	r.busy.Add(1)
	r.state.ModCurrentlyActiveVUsCount(+1)
	err := w.vu.RunOnce()
	r.state.ModCurrentlyActiveVUsCount(-1)
	r.busy.Add(-1)

	silent := w.sends.Load() == 0 // a request that was sent is told by the client, one that was cut short too
	switch {
	case !w.begun: // the VU's context ended on the way
		r.started.Add(-1)
		r.drop(j.row, j.due, DropStopped)
	case r.ctx.Err() != nil, errext.IsInterruptError(err): // its error says no more than that it was cut short
		r.state.AddInterruptedIterations(1)
		if silent {
			r.silent(j.row, j.due, DropStopped)
		}
		if r.ctx.Err() == nil { // test.abort()
			r.abort(err)
		}
	default:
		if err != nil {
			r.logScriptError(err)
		}
		if silent {
			r.silent(j.row, j.due, DropNoRequest)
		}
		r.state.AddFullIterations(1)
	}
}

func (r *run) logScriptError(err error) {
	var exception errext.Exception
	if errors.As(err, &exception) {
		r.logger.WithField("source", "stacktrace").Error(exception.StackTrace())

		return
	}
	r.logger.Error(err.Error())
}
