package gate

import (
	"math"
	"slices"
	"time"

	"go.k6.io/k6/metrics"

	"github.com/safeqps/xk6-safeqps/gate/abort"
	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/llm"
)

// What the output tells the watch of the contract's abort rules: arrivals as they come, each request once a second while it is
// in flight, and once when it has ended. Retries are the client's own, and tell nothing.

// labelUnwatched says with the result which abort rules nothing watched. The contract is nil where the script has none.
func labelUnwatched(info *results.Info, c *contract.Contract) {
	if c == nil {
		return
	}
	for _, u := range c.Unwatched() {
		addLabel(info, results.LabelUnwatched+": "+u.Rule.Name+", "+u.Why)
	}
}

func (o *Output) watchStart(s *llm.Started) {
	if o.watch == nil || s.Attempt > 1 {
		return
	}
	o.watch.Arrival(abort.Arrival{Steady: judged(tag(s.Tags, "phase")), Due: s.Due, Sent: s.Sent})
}

func (o *Output) watchDrop(phase string, due time.Time) {
	if o.watch != nil {
		o.watch.Arrival(abort.Arrival{Steady: judged(phase), Due: due})
	}
}

// watchOpen reports the requests in flight: whoever waits has waited for a while.
func (o *Output) watchOpen(now time.Time) {
	for _, s := range o.open {
		if s.Attempt == 1 {
			o.watch.Request(watchedOpen(s, now))
		}
	}
}

// judged says that abort rules are about a phase. A test without phases is steady throughout.
func judged(phase string) bool { return phase == "" || phase == string(contract.PhaseSteady) }

func watchedOpen(s *llm.Started, now time.Time) abort.Request {
	r, tl := startedRequest(s), s.Live.Timeline()
	r.TTFT, r.TTFTText = duration(tl.TTFT()), duration(tl.TTFTText())
	if !s.Due.IsZero() {
		r.ScheduleDelay = duration(s.Sent.Sub(s.Due), true)
	}
	out := watched(s.Seq, &r)
	out.Waited = metrics.D(now.Sub(s.Sent))
	if last, ok := tl.LastChunk(); ok {
		out.Silence = metrics.D(now.Sub(tl.Sent.Add(last)))
	}
	out.ITL = func(yield func(float64) bool) {
		for _, gap := range tl.Gaps {
			if !yield(metrics.D(gap)) {
				return
			}
		}
	}

	return out
}

func watchedEnd(e *llm.Exchange, r *results.Request, gaps []float64) abort.Request {
	out := watched(e.Seq, r)
	out.Ended, out.OK, out.Failed = true, r.Outcome == results.OK, r.Outcome == results.Failed
	out.Waited = metrics.D(e.End.Sub(e.Timeline.Sent))
	out.ITL = slices.Values(gaps)

	return out
}

func watched(seq uint64, r *results.Request) abort.Request {
	number := func(n results.Number) float64 {
		if !n.Known {
			return math.NaN()
		}

		return n.Value
	}
	completion := math.NaN()
	if r.Completion.Known {
		completion = float64(r.Completion.Value)
	}

	return abort.Request{
		Seq: seq, Steady: judged(r.Phase), Status: r.Status, Tokenless: r.Tokenless(),
		Good: r.Goodput == results.FlagYes, Judged: r.Goodput != results.FlagAbsent,
		Waited: math.NaN(), Silence: math.NaN(),
		TTFT: number(r.TTFT), TTFTText: number(r.TTFTText), TPOT: number(r.TPOT), E2E: number(r.E2E),
		ScheduleDelay: number(r.ScheduleDelay), OutputTPS: number(r.OutputTPS), CompletionTokens: completion,
	}
}
