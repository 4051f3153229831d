package stream

import (
	"sync/atomic"
	"time"
)

// IdleWatch calls a function once no progress has been reported for a given time. Reporting progress is one atomic
// store: the timer is set again only when it fires, not for each token.
type IdleWatch struct {
	limit    time.Duration
	onIdle   func()
	started  time.Time
	progress atomic.Int64 // since started
	timer    atomic.Pointer[time.Timer]
	stopped  atomic.Bool
}

// WatchIdle starts a watch; onIdle is called at most once, on a goroutine of its own. The caller must Stop it.
func WatchIdle(limit time.Duration, onIdle func()) *IdleWatch {
	w := &IdleWatch{limit: limit, onIdle: onIdle, started: time.Now()}
	w.arm(limit)

	return w
}

// Progress reports a sign of life.
func (w *IdleWatch) Progress(at time.Time) {
	w.progress.Store(int64(at.Sub(w.started)))
}

// Stop ends the watch.
func (w *IdleWatch) Stop() {
	w.stopped.Store(true)
	if t := w.timer.Load(); t != nil {
		t.Stop()
	}
}

func (w *IdleWatch) arm(d time.Duration) {
	w.timer.Store(time.AfterFunc(d, w.fire))
}

func (w *IdleWatch) fire() {
	if w.stopped.Load() {
		return
	}
	idle := time.Since(w.started) - time.Duration(w.progress.Load())
	if idle < w.limit {
		w.arm(w.limit - idle)

		return
	}
	w.onIdle()
}
