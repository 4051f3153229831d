package abort

import (
	"math"
	"strings"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/contract"
)

// headroom is the state client_headroom: whether the load generator exceeds one of its limits. Each of the two who watch a
// run knows some of them: the monitor what it measures of the process, the output what became of the arrivals.
type headroom struct {
	limits []*clientLimit
	held   bool // the rule has a holding time: each second is judged by itself

	due, sent span
	arrivals  counts
}

type clientLimit struct {
	contract.Criterion
	seen running
}

// span is a number of instants, and the first and the last of them.
type span struct {
	n           int
	first, last time.Time
}

func (s *span) add(t time.Time) {
	if s.n == 0 || t.Before(s.first) {
		s.first = t
	}
	if s.n == 0 || t.After(s.last) {
		s.last = t
	}
	s.n++
}

// rate is per second; of one instant, or of several at once, there is none.
func (s *span) rate() (float64, bool) {
	seconds := s.last.Sub(s.first).Seconds()

	return float64(s.n-1) / seconds, s.n > 1 && seconds > 0
}

func newHeadroom(limits []contract.Criterion, held bool) *headroom {
	h := &headroom{held: held}
	for _, c := range limits {
		if _, ok := c.Limit.Value(); ok {
			h.limits = append(h.limits, &clientLimit{Criterion: c})
		}
	}

	return h
}

func (h *headroom) add(metric string, value float64) {
	if math.IsNaN(value) {
		return
	}
	for _, l := range h.limits {
		if l.Metric == metric {
			met, _ := l.Met(value)
			l.seen.add(value, !met)
		}
	}
}

func (h *headroom) arrival(a Arrival) {
	h.arrivals.offered++
	switch {
	case a.Sent.IsZero():
		h.arrivals.dropped++
		h.due.add(a.Due)
	case a.Due.IsZero():
		h.due.add(a.Sent)
		h.sent.add(a.Sent)
	default:
		h.due.add(a.Due)
		h.sent.add(a.Sent)
		h.add("schedule_delay", float64(a.Sent.Sub(a.Due))/float64(time.Millisecond))
	}
}

// next begins a second.
func (h *headroom) next() {
	if !h.held {
		return
	}
	for _, l := range h.limits {
		l.seen = running{}
	}
	h.arrivals = counts{}
}

// look is known as soon as one of the limits can be judged.
func (h *headroom) look() (finding, bool) {
	judged := false
	for _, l := range h.limits {
		found, known := h.exceeded(l)
		if found.bad {
			return found, true
		}
		judged = judged || known
	}

	return finding{}, judged
}

const (
	// fewestTimers is how many timers have to be seen, two seconds of them: one that was late in the first second is not yet
	// the p99.
	fewestTimers = 100
	// settled is the time that a rate is measured over at least: within it, a first request that starts some milliseconds late
	// weighs little.
	settled = 10 * time.Second
)

func (h *headroom) exceeded(l *clientLimit) (finding, bool) {
	var value float64
	switch l.Metric {
	case "dropped":
		value = h.arrivals.dropped
		if h.arrivals.offered == 0 {
			return finding{}, false
		}
		if l.Unit == contract.UnitRatio {
			value /= h.arrivals.offered
		}
	case "schedule_error":
		scheduled, ok1 := h.due.rate()
		achieved, ok2 := h.sent.rate()
		if !ok1 || !ok2 || h.due.last.Sub(h.due.first) < settled {
			return finding{}, false
		}
		value = math.Abs(achieved/scheduled - 1)
	case "timer_delay":
		if !h.held && l.seen.n < fewestTimers {
			return finding{}, false
		}

		return l.statistic()
	default:
		return l.statistic()
	}
	met, _ := l.Met(value)

	return finding{bad: !met, seen: l.text("was " + quantity(value, l.Unit))}, true
}

// statistic judges a limit on values that are many in a phase.
func (l *clientLimit) statistic() (finding, bool) {
	t := &l.seen
	limit, _ := l.Limit.Value()
	var value float64
	switch {
	case t.n == 0:
		return finding{}, false
	case l.Stat.Kind == contract.StatMin:
		value = t.least
	case l.Stat.Kind == contract.StatMax:
		value = t.most
	case l.Stat.Kind == contract.StatMean:
		value = t.mean(limit)
	case t.n == 1:
		value = t.most
	default:
		return finding{
			bad:  t.n-t.hits < rank(l.Stat.Quantile, t.n),
			seen: l.text("was over the limit in " + share(t.hits, t.n) + " samples, up to " + quantity(t.most, l.Unit)),
		}, true
	}
	met, _ := l.Met(value)

	return finding{bad: !met, seen: l.text("was " + quantity(value, l.Unit))}, true
}

func (l *clientLimit) text(seen string) string {
	return strings.TrimPrefix(l.Name, string(contract.SectionClientHeadroom)+".") + " " + seen + ", its limit is " + l.LimitText()
}
