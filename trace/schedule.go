package trace

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/safeqps/xk6-safeqps/trace/format"
)

// schedule is what the executor needs to know of a trace: when each row is due, and its class. Rows beyond the last one
// are the trace once more, `period` later.
type schedule struct {
	rows   []format.Row
	period time.Duration // of one pass through the trace; 0: it cannot be repeated
	info   func() Info   // for those who ask what was replayed; nil where nobody published it

	// ideal is the share of prompt tokens that a prefix cache would serve of rows in this order; nil where that is not known.
	ideal func([]replay) *float64
	// shares: prompts of different rows may begin alike, since the trace says so.
	shares bool

	recorded bool         // it comes from a file
	asked    atomic.Bool  // an iteration took a request from it
	taken    takenRows    // by scenarios of k6's own executors
	bin      atomic.Int64 // the width of a bin that stages() gave a stock executor, in nanoseconds; 0: none
}

// offset is the time of a row after the trace's time zero. A row past the end needs a period.
func (s *schedule) offset(row int) time.Duration {
	n := len(s.rows)

	return s.rows[row%n].Due + time.Duration(row/n)*s.period
}

func (s *schedule) classOf(row int) string { return s.rows[row%len(s.rows)].Class }

// window is the part of a trace that one scenario replays: rows from (inclusive) to (exclusive), where `origin` of the
// trace's time is the scenario's time zero, at `speed` times the trace's own pace.
type window struct {
	*schedule
	from, to int
	origin   time.Duration
	speed    float64
	ends     time.Duration // of the scenario, after its time zero
}

func (w *window) length() int { return w.to - w.from }

// due is the time of the window's i-th row after the scenario's time zero.
func (w *window) due(i int) time.Duration {
	d := w.offset(w.from+i) - w.origin
	if w.speed == 1 {
		return d
	}

	return time.Duration(math.Round(float64(d) / w.speed))
}

func (w *window) lastDue() time.Duration {
	if w.length() <= 0 {
		return 0
	}

	return w.due(w.length() - 1)
}

func (w *window) check() error {
	n := len(w.rows)
	switch {
	case w.from < 0 || w.to < w.from:
		return fmt.Errorf("rows from %d to %d: expected 0 <= from <= to", w.from, w.to)
	case w.to > n && (w.period <= 0 || n == 0):
		return fmt.Errorf("rows from %d to %d: the trace has %d rows and cannot be repeated, since it has no length in time",
			w.from, w.to, n)
	case w.length() > 0 && w.due(0) < 0:
		return fmt.Errorf("row %d is due %s before the scenario's time zero (origin %s)", w.from, -w.due(0), w.origin)
	}

	return nil
}

// schedules holds the schedule of every trace that this process has opened, by the trace's id. It is global because k6
// gives an executor's configuration nothing but JSON: between the script's init code, which opens a trace, and the
// executor, which replays it, an id is all that can pass.
var schedules sync.Map //nolint:gochecknoglobals // see above

func publish(id string, s *schedule) { schedules.Store(id, s) }

func lookUp(id string) (*schedule, bool) {
	s, ok := schedules.Load(id)
	if !ok {
		return nil, false
	}

	return s.(*schedule), true //nolint:forcetypeassert // publish stores nothing else
}
