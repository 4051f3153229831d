// Package abort watches a run and says when one of the contract's abort rules is met.
//
// k6 judges those rules whose meaning a threshold can carry (see contract.Thresholds), by the requests that have come to
// their end well. This package judges every rule, also by what k6 does not see: requests that are still waiting, requests
// that failed, holding times, throughput, and levels and states that are read about once a second.
package abort

import (
	"fmt"
	"iter"
	"math"
	"strings"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/contract"
)

// Tripped is a rule that is met: the run has to stop.
type Tripped struct {
	Rule string // "abort.error_rate"
	// Saw is what was seen, for people: "error_rate was 43% for 10s, the rule stops at > 20% for 10s".
	Saw string
	At  time.Time
}

func (t *Tripped) Error() string {
	return fmt.Sprintf("the contract's rule %s stops the run: %s", t.Rule, t.Saw)
}

// Request is what a rule needs to know of a request: once a second while it is in flight, and once when it has ended. NaN is
// absent.
type Request struct {
	Seq    uint64 // the same in each report on this request, and in no other
	Steady bool   // it belongs to the steady phase
	Ended  bool   // false: it is in flight
	OK     bool
	Failed bool
	Status int
	// Tokenless says that nothing times its tokens: an embedding.
	Tokenless bool
	// Good says whether the request met its own objectives; Judged, whether that is known.
	Good, Judged bool

	// Waited is the time from its send until it ended, or until now.
	Waited float64
	// Silence is the time since the last chunk of a request in flight.
	Silence float64

	TTFT, TTFTText, TPOT, E2E, ScheduleDelay, OutputTPS float64 // milliseconds; tokens per second
	// ITL are the gaps between its chunks so far, each report's beginning with those of the report before. Nil: none.
	ITL              iter.Seq[float64]
	CompletionTokens float64
}

// Arrival is a request that the schedule asked for.
type Arrival struct {
	Steady bool
	Due    time.Time // zero: it had none
	Sent   time.Time // zero: it was dropped
}

// Watch evaluates rules once a second. It is not for concurrent use.
type Watch struct {
	started  time.Time
	rules    []*rule
	headroom *headroom      // nil unless a rule asks for it
	gaps     map[uint64]int // how many of the gaps of a request in flight were taken; nil unless a rule asks for them
	since    time.Time      // the tick before

	second, steady counts // since the tick before, and since the begin of the steady phase
	steadySince    time.Time
}

// counts are the flows that rates and throughputs are made of.
type counts struct {
	met, all         map[string]float64 // by metric
	requests, tokens float64
	ended            bool
	offered, dropped float64
}

func newCounts() counts { return counts{met: map[string]float64{}, all: map[string]float64{}} }

// rule is a rule and its state.
type rule struct {
	contract.AbortRule
	badSince time.Time // zero while the state is good
	seen     string    // what was seen when it was bad last

	second  []float64       // values since the tick before
	total   running         // all values of the steady phase
	counted map[uint64]bool // requests in flight whose value, or whose present silence, has been counted
	answers int             // answers that gave gaps since the tick before
	failed  int             // and those that failed, without gaps of their own that would say so
}

// finding is what a rule sees at a tick.
type finding struct {
	bad  bool
	seen string // "was 43%"
}

// NewWatch watches the abort rules of a contract. Those that nothing can be known of are left out: see
// contract.Unwatched, which says so.
func NewWatch(c *contract.Contract, started time.Time) *Watch {
	w := &Watch{started: started, since: started, second: newCounts(), steady: newCounts()}
	for _, r := range c.Abort {
		if _, ok := r.Limit.Value(); !ok {
			continue
		}
		w.rules = append(w.rules, &rule{AbortRule: r, counted: map[uint64]bool{}})
		switch r.Metric {
		case "itl":
			w.gaps = map[uint64]int{}
		case string(contract.SectionClientHeadroom):
			w.headroom = newHeadroom(c.ClientHeadroom, r.For > 0)
		}
	}

	return w
}

// Request adds a request, or what is new of it.
func (w *Watch) Request(r Request) {
	gaps := w.newGaps(&r)
	if !r.Steady {
		return
	}
	w.begin()
	for _, rule := range w.rules {
		switch rule.Stat.Kind {
		case contract.StatQuantile, contract.StatMean, contract.StatMin, contract.StatMax:
			if rule.Metric == "itl" {
				rule.gaps(&r, gaps)
			} else {
				rule.observe(&r)
			}
		}
	}
	if r.Ended {
		w.second.add(&r)
		w.steady.add(&r)
	}
}

// begin notes when the steady phase began to be seen.
func (w *Watch) begin() {
	if w.steadySince.IsZero() {
		w.steadySince = w.since
	}
}

// newGaps are the gaps that were not reported before.
func (w *Watch) newGaps(r *Request) []float64 {
	if w.gaps == nil || r.ITL == nil {
		return nil
	}
	var fresh []float64
	n, taken := 0, w.gaps[r.Seq]
	for gap := range r.ITL {
		if n++; n > taken {
			fresh = append(fresh, gap)
		}
	}
	if r.Ended {
		delete(w.gaps, r.Seq)
	} else {
		w.gaps[r.Seq] = n
	}

	return fresh
}

// Arrival adds an arrival, when it was started or dropped.
func (w *Watch) Arrival(a Arrival) {
	if !a.Steady {
		return
	}
	w.begin()
	for _, c := range []*counts{&w.second, &w.steady} {
		c.offered++
		if a.Sent.IsZero() {
			c.dropped++
		}
	}
	if w.headroom != nil {
		w.headroom.arrival(a)
	}
}

// Client adds what was seen of the load generator in the steady phase, by the names of client_headroom: "cpu", "memory",
// "open_files", "timer_delay".
func (w *Watch) Client(metric string, value float64) {
	if w.headroom != nil {
		w.headroom.add(metric, value)
	}
}

// Tick is called about once a second with the levels and states that are known by then, by the contract's names
// ("queue_depth", "unhealthy": 1 while bad). It returns the first rule that is met.
func (w *Watch) Tick(now time.Time, levels map[string]float64) *Tripped {
	elapsed := now.Sub(w.since).Seconds()
	w.since = now
	var tripped *Tripped
	for _, r := range w.rules {
		found, known := w.look(r, levels, elapsed, now)
		if t := r.update(now, now.Sub(w.started), found, known); t != nil && tripped == nil {
			tripped = t
		}
		r.second, r.answers, r.failed = r.second[:0], 0, 0
	}
	w.second = newCounts()
	if w.headroom != nil {
		w.headroom.next()
	}

	return tripped
}

// jitter is what ticks may be early: three of them are not always three seconds apart to the millisecond, and an abort must not
// wait for a fourth.
const jitter = 100 * time.Millisecond

// update keeps a rule's state. A second without data neither starts a bad state nor ends one.
func (r *rule) update(now time.Time, sinceStart time.Duration, found finding, known bool) *Tripped {
	if known {
		switch {
		case !found.bad:
			r.badSince = time.Time{}
		case r.badSince.IsZero():
			r.badSince = now
			fallthrough
		default:
			r.seen = found.seen
		}
	}
	if r.badSince.IsZero() || now.Sub(r.badSince) < time.Duration(r.For)-jitter || sinceStart < time.Duration(r.After) {
		return nil
	}

	return &Tripped{Rule: r.Name, At: now, Saw: r.saw()}
}

func (r *rule) saw() string {
	held := ""
	if r.For > 0 {
		held = " for " + r.For.String()
	}
	if r.Stat.Kind == contract.StatState {
		if r.seen != "" {
			return r.Metric + held + ": " + r.seen
		}

		return r.Metric + held
	}

	return fmt.Sprintf("%s %s%s, the rule stops at %s", r.key(), r.seen, held, r.LimitText())
}

// key is the rule as the contract's file has it: "ttft_p99".
func (r *rule) key() string { return strings.TrimPrefix(r.Name, string(contract.SectionAbort)+".") }

// holds says that a value is in the rule's bad state.
func (r *rule) holds(v float64) bool {
	limit, ok := r.Limit.Value()

	return ok && r.Op.Holds(v, limit)
}

// judge is the finding on one number.
func (r *rule) judge(v float64) finding {
	return finding{bad: r.holds(v), seen: "was " + quantity(v, r.Unit)}
}

func (w *Watch) look(r *rule, levels map[string]float64, elapsed float64, now time.Time) (finding, bool) {
	if v, ok := levels[r.Metric]; ok {
		if r.Stat.Kind == contract.StatState {
			return finding{bad: v > 0}, true
		}

		return r.judge(v), true
	}
	so := &w.second
	if r.For == 0 {
		so, elapsed = &w.steady, now.Sub(w.steadySince).Seconds()
	}
	switch r.Stat.Kind {
	case contract.StatQuantile, contract.StatMean, contract.StatMin, contract.StatMax:
		return r.distribution()
	case contract.StatRate:
		met, all := so.met[r.Metric], so.all[r.Metric]

		return r.judge(met / max(all, 1)), all > 0
	case contract.StatThroughput:
		if !so.ended || elapsed <= 0 {
			return finding{}, false
		}
		if r.Metric == "requests_per_second" {
			return r.judge(so.requests / elapsed), true
		}

		return r.judge(so.tokens / elapsed), true
	case contract.StatCount:
		if r.Unit == contract.UnitRatio {
			return r.judge(so.dropped / so.offered), so.offered > 0
		}

		return r.judge(so.dropped), true
	case contract.StatState:
		if w.headroom != nil && r.Metric == string(contract.SectionClientHeadroom) {
			return w.headroom.look()
		}
	}

	return finding{}, false
}

// add counts a request that has ended.
func (c *counts) add(r *Request) {
	c.ended = true
	c.share("success_rate", r.OK, r.OK || r.Failed)
	c.share("error_rate", r.Failed, r.OK || r.Failed)
	c.share("http_5xx", r.Status >= 500, true)
	c.share("goodput", r.Good, r.Judged)
	if r.OK {
		c.requests++
	}
	if !math.IsNaN(r.CompletionTokens) {
		c.tokens += r.CompletionTokens
	}
}

func (c *counts) share(metric string, hit, counts bool) {
	if counts {
		c.all[metric]++
	}
	if counts && hit {
		c.met[metric]++
	}
}
