// Package abort watches a run and says when one of the contract's abort rules is met.
//
// Rules whose exact meaning a k6 threshold can carry are left to k6 (see contract.Thresholds); this package has the
// others: those with a holding time, on throughput, and on levels and states that are read about once a second.
package abort

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/contract"
)

// Tripped is a rule that is met: the run has to stop.
type Tripped struct {
	Rule string // "abort.error_rate"
	// Saw is what was seen, for people: "error_rate 43% for 10s, the rule stops at > 20% for 10s".
	Saw string
	At  time.Time
}

func (t *Tripped) Error() string {
	return fmt.Sprintf("the contract's rule %s stops the run: %s", t.Rule, t.Saw)
}

// Request is what a rule needs to know of a request that has ended. NaN is absent.
type Request struct {
	Steady bool // it belongs to the steady phase
	OK     bool
	Failed bool
	Status int
	// Good says whether the request met its own objectives; Judged, whether that is known.
	Good, Judged bool

	TTFT, TTFTText, TPOT, E2E, ScheduleDelay, OutputTPS float64 // milliseconds; tokens per second
	ITL                                                 []float64
	CompletionTokens                                    float64
}

// Watch evaluates rules once a second. It is not for concurrent use.
type Watch struct {
	started time.Time
	rules   []*rule
	second  window // requests since the last tick
	since   time.Time
}

type rule struct {
	contract.AbortRule
	badSince time.Time // zero while the state is good
	lastBad  float64
}

// window is what came to an end in a stretch of time.
type window struct {
	requests []Request
	dropped  float64
	offered  float64
}

// NewWatch watches those of the rules that want a watch. A rule whose limit refers to a baseline that was not read is left
// out: it has no number.
func NewWatch(rules []contract.AbortRule, started time.Time) *Watch {
	w := &Watch{started: started}
	for _, r := range rules {
		if _, ok := r.Limit.Value(); !ok && r.Stat.Kind != contract.StatState {
			continue
		}
		w.rules = append(w.rules, &rule{AbortRule: r})
	}

	return w
}

// Request adds a request that has ended.
func (w *Watch) Request(r Request) {
	w.second.requests = append(w.second.requests, r)
}

// Arrivals adds arrivals that were offered, and how many of them were dropped.
func (w *Watch) Arrivals(offered, dropped int) {
	w.second.offered += float64(offered)
	w.second.dropped += float64(dropped)
}

// Tick is called about once a second with the levels and states that are known by then, by the contract's names
// ("queue_depth", "unhealthy": 1 while bad). It returns the first rule that is met.
func (w *Watch) Tick(now time.Time, levels map[string]float64) *Tripped {
	elapsed := now.Sub(w.since).Seconds()
	if w.since.IsZero() {
		elapsed = now.Sub(w.started).Seconds()
	}
	w.since = now
	for _, r := range w.rules {
		value, known := w.value(r, levels, elapsed)
		if t := r.update(now, now.Sub(w.started), value, known); t != nil {
			return t
		}
	}
	w.second = window{}

	return nil
}

// update keeps a rule's state. A second without data neither starts a bad state nor ends one.
func (r *rule) update(now time.Time, sinceStart time.Duration, value float64, known bool) *Tripped {
	if known {
		bad := r.Stat.Kind == contract.StatState && value > 0
		if limit, ok := r.Limit.Value(); ok {
			bad = r.Op.Holds(value, limit)
		}
		switch {
		case !bad:
			r.badSince = time.Time{}
		case r.badSince.IsZero():
			r.badSince = now
			fallthrough
		default:
			r.lastBad = value
		}
	}
	if r.badSince.IsZero() || now.Sub(r.badSince) < time.Duration(r.For) || sinceStart < time.Duration(r.After) {
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
		return r.Metric + held
	}

	return fmt.Sprintf("%s was %s%s, the rule stops at %s", r.Metric, quantity(r.lastBad, r.Unit), held, r.LimitText())
}

func (w *Watch) value(r *rule, levels map[string]float64, elapsed float64) (float64, bool) {
	if v, ok := levels[r.Metric]; ok {
		return v, true
	}
	switch r.Stat.Kind {
	case contract.StatQuantile, contract.StatMean, contract.StatMin, contract.StatMax:
		return w.distribution(r)
	case contract.StatRate:
		return w.rate(r.Metric)
	case contract.StatThroughput:
		return w.throughput(r.Metric, elapsed)
	case contract.StatCount:
		if r.Unit == contract.UnitRatio {
			return w.second.dropped / w.second.offered, w.second.offered > 0
		}

		return w.second.dropped, true
	default:
		return 0, false
	}
}

func (w *Watch) distribution(r *rule) (float64, bool) {
	var values []float64
	for _, req := range w.second.requests {
		switch {
		case !req.Steady:
		case r.Metric == "itl":
			values = append(values, req.ITL...)
		default:
			values = append(values, of(req, r.Metric))
		}
	}
	values = slices.DeleteFunc(values, math.IsNaN)
	if len(values) == 0 {
		return 0, false
	}
	slices.Sort(values)
	switch r.Stat.Kind {
	case contract.StatMin:
		return values[0], true
	case contract.StatMax:
		return values[len(values)-1], true
	case contract.StatMean:
		total := 0.0
		for _, v := range values {
			total += v
		}

		return total / float64(len(values)), true
	default:
		return values[min(int(math.Ceil(r.Stat.Quantile*float64(len(values))))-1, len(values)-1)], true
	}
}

func of(r Request, metric string) float64 {
	switch metric {
	case "ttft":
		return r.TTFT
	case "ttft_text":
		return r.TTFTText
	case "tpot":
		return r.TPOT
	case "e2e":
		return r.E2E
	case "schedule_delay":
		return r.ScheduleDelay
	case "output_tps":
		return r.OutputTPS
	default:
		return math.NaN()
	}
}

func (w *Watch) rate(metric string) (float64, bool) {
	met, all := 0.0, 0.0
	for _, r := range w.second.requests {
		if !r.Steady {
			continue
		}
		var hit, counts bool
		switch metric {
		case "success_rate":
			hit, counts = r.OK, r.OK || r.Failed
		case "error_rate":
			hit, counts = r.Failed, r.OK || r.Failed
		case "http_5xx":
			hit, counts = r.Status >= 500, true
		case "goodput":
			hit, counts = r.Good, r.Judged
		}
		if counts {
			all++
		}
		if hit && counts {
			met++
		}
	}

	return met / max(all, 1), all > 0
}

func (w *Watch) throughput(metric string, elapsed float64) (float64, bool) {
	if elapsed <= 0 {
		return 0, false
	}
	total, seen := 0.0, false
	for _, r := range w.second.requests {
		if !r.Steady {
			continue
		}
		seen = true
		switch {
		case metric == "requests_per_second":
			total++
		case !math.IsNaN(r.CompletionTokens):
			total += r.CompletionTokens
		}
	}

	return total / elapsed, seen
}

// quantity writes a value with its unit, to three significant digits.
func quantity(v float64, unit contract.Unit) string {
	switch unit {
	case contract.UnitRatio:
		return fmt.Sprintf("%.3g%%", 100*v)
	case contract.UnitMilliseconds:
		return fmt.Sprintf("%.3gms", v)
	case contract.UnitTokensPerSecond, contract.UnitRequestsPerSecond:
		return fmt.Sprintf("%.3g %s", v, unit)
	default:
		return fmt.Sprintf("%.3g", v)
	}
}
