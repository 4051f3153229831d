package clock

import (
	"math"
	"net/http"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

const (
	// kept is how long a turn can still be bracketed more closely, in seconds: an answer may be reported long after its
	// header came.
	kept = 900
	// reach is how far back an answer with an earlier second is looked for, in seconds.
	reach = 30
)

// Watch brackets the turns of the service's Date by this host's clock. It belongs to one goroutine.
type Watch struct {
	turns  map[int64]*turn // by the second that begins
	newest int64
}

// turn is the moment at which the service's Date reached a second.
type turn struct {
	after, before time.Time // by this host's clock; zero: not known
	news          bool
}

// NewWatch returns a Watch that has seen nothing.
func NewWatch() *Watch { return &Watch{turns: map[int64]*turn{}} }

// Answered takes the Date header of an answer, when its request was sent, and when the header came. What is no date says
// nothing.
func (w *Watch) Answered(date string, sent, header time.Time) {
	parsed, err := http.ParseTime(date)
	if err != nil || sent.IsZero() || header.IsZero() {
		return
	}
	second := parsed.Unix()
	if second > w.newest {
		w.newest = second
		for old := range w.turns {
			if old < second-kept {
				delete(w.turns, old)
			}
		}
	}
	if second < w.newest-kept {
		return
	}
	if t := w.turn(second); t.before.IsZero() || wallBefore(header, t.before) {
		t.before, t.news = header, true
	}
	if t := w.turn(second + 1); t.after.IsZero() || wallBefore(t.after, sent) {
		t.after, t.news = sent, true
	}
}

// wallBefore compares what the clock on the wall showed: it is what the merged evidence is aligned by.
func wallBefore(a, b time.Time) bool { return a.UnixNano() < b.UnixNano() }

func (w *Watch) turn(second int64) *turn {
	t := w.turns[second]
	if t == nil {
		t = &turn{}
		w.turns[second] = t
	}

	return t
}

// Take returns the brackets that are new or closer than what was returned before.
func (w *Watch) Take() []results.ClockReading {
	var all []results.ClockReading
	for second, t := range w.turns {
		if !t.news || t.before.IsZero() {
			continue
		}
		after, ok := w.lastBefore(second)
		if !ok {
			continue
		}
		t.news = false
		all = append(all, results.ClockReading{
			Date:  time.Unix(second, 0).UTC(),
			Lower: math.Floor(micros(after, second)) / microsPerMilli,
			Upper: math.Ceil(micros(t.before, second)) / microsPerMilli,
		})
	}

	return all
}

// lastBefore is when an answer with an earlier second was last sent for.
func (w *Watch) lastBefore(second int64) (time.Time, bool) {
	for s := second; s > second-reach; s-- {
		if t := w.turns[s]; t != nil && !t.after.IsZero() {
			return t.after, true
		}
	}

	return time.Time{}, false
}

const (
	microsPerMilli = 1e3
	nanosPerMicro  = 1e3
)

// micros is a moment by this host's clock, in microseconds after the second began by the same clock.
func micros(at time.Time, second int64) float64 {
	return float64(at.UnixNano()-second*int64(time.Second)) / nanosPerMicro
}
