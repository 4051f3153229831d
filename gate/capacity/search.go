package capacity

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// Progress is what a search knows before and after each probe.
type Progress struct {
	// Next is the probe that is about to run; nil when one has just ended.
	Next *ProbeRequest
	// Last is the probe that has just ended; nil when one is about to run.
	Last *Record
	// State is the search so far. It is what has to be stored each time.
	State *State
	// Low has passed, High has not; 0 where no probe says so.
	Low, High float64
	// ElapsedSeconds of all probes, and how much the budget leaves at most; negative where nothing bounds it.
	ElapsedSeconds, LeftSeconds float64
	// ProbesLeft of the budget.
	ProbesLeft int
	// AboutSeconds is a guess at what is left, for a progress display, and no bound: bisection's rates, the nearest two of
	// them at the full length, each with what probes have taken beside their steady phase so far, within the budget. Probes
	// that are stopped early take less; what is extended, and rates that turn out not to pass at full length, take more.
	AboutSeconds float64
}

// Search looks for the Safe QPS. state holds the probes of an earlier, interrupted search, or nothing, and is brought up
// to date; its finished probes are not run again. onProgress may be nil; an error of it ends the search.
//
// The result is valid with an error too: it holds what was found until then, with the status Interrupted.
func Search(
	ctx context.Context, options Options, probe Probe, state *State, onProgress func(Progress) error,
) (Result, error) {
	if err := options.Validate(); err != nil {
		return Result{}, err
	}
	options = options.withDefaults()
	if state == nil {
		state = &State{}
	}
	if err := state.adopt(options); err != nil {
		return Result{}, err
	}
	options.resumedAfter, options.cut = len(state.Probes), state.Cut
	if onProgress == nil {
		onProgress = func(Progress) error { return nil }
	}
	interrupted := func(err error) (Result, error) { return newResult(options, state.Probes, Interrupted), err }
	for {
		p := newPlanner(options, state.Probes)
		request, status := p.next()
		if status != "" {
			return newResult(options, state.Probes, status), nil
		}
		state.begin(&request)
		if err := onProgress(p.progress(state, &request, nil)); err != nil {
			return interrupted(err)
		}
		if err := ctx.Err(); err != nil {
			return interrupted(err)
		}
		found, err := probe(ctx, request)
		if err == nil {
			err = found.check()
		}
		if err != nil {
			return interrupted(fmt.Errorf("capacity: probe %d at %.4g requests per second: %w", request.N, request.Rate, err))
		}
		state.Probes = append(state.Probes, Record{ProbeRequest: request, ProbeResult: found})
		p = newPlanner(options, state.Probes)
		if err := onProgress(p.progress(state, nil, &state.Probes[len(state.Probes)-1])); err != nil {
			return interrupted(err)
		}
	}
}

func (p *planner) progress(state *State, next *ProbeRequest, last *Record) Progress {
	out := Progress{
		Next: next, Last: last, State: state,
		ElapsedSeconds: p.spent(), LeftSeconds: -1, ProbesLeft: max(p.o.MaxProbes-len(p.probes), 0),
	}
	if next != nil {
		out.AboutSeconds = p.aboutSeconds(*next)
	}
	if left := p.o.budgetSeconds() - out.ElapsedSeconds; finite(left) {
		out.LeftSeconds = max(left, 0)
		out.AboutSeconds = min(out.AboutSeconds, out.LeftSeconds)
	}
	if p.low != nil {
		out.Low = p.low.rate
	}
	if p.high != nil {
		out.High = p.high.rate
	}
	return out
}

func (r *ProbeResult) check() error {
	known := []verdict.Status{verdict.Pass, verdict.Fail, verdict.Inconclusive, verdict.Invalid}
	if !slices.Contains(known, r.Verdict) {
		return fmt.Errorf("verdict is %q, expected one of %v", r.Verdict, known)
	}
	if !(r.Seconds >= 0) || !finite(r.Seconds) {
		return fmt.Errorf("seconds is %v, expected 0 or more", r.Seconds)
	}
	if r.Requests < 0 {
		return errors.New("requests is negative")
	}
	return nil
}

// ratesLeft is how many rates bisection of the present bracket takes, one at least.
func (p *planner) ratesLeft() int {
	low, high := p.from, p.o.Max
	if p.low != nil {
		low = p.low.rate
	}
	if p.high != nil {
		high = p.high.rate
	}
	return max(1, int(math.Ceil(math.Log2(math.Log(high/low)/math.Log1p(p.o.Tolerance)))))
}

// aboutSeconds is what the next probe and those after it are likely to take. The last two rates of a bisection have the full
// length: one that fails, and one that passes and is the answer.
func (p *planner) aboutSeconds(next ProbeRequest) float64 {
	const full = 2
	beside, _ := p.overhead()
	steady := func(length float64) float64 { return length*p.o.FullSeconds + beside }
	after := p.ratesLeft() - 1
	switch {
	case next.Length >= 1 && (next.Purpose == PurposeConfirm || next.Purpose == PurposeStepDown):
		after = 0
	case !p.low.confirmed():
		after = max(after, 1)
	}
	after = min(after, p.o.MaxProbes-len(p.probes)-1)
	near := min(after, full)
	if next.Length >= 1 {
		near = min(after, full-1)
	}
	return steady(next.Length) + float64(near)*steady(p.fullLength(next.Rate)) + float64(after-near)*steady(p.screenLength(next.Rate))
}
