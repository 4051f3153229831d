package capacity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// ideal is a service without chance: it passes below its limit, and completes no more than its capacity.
type ideal struct {
	limit, capacity float64
	// slope of the pressure on logarithmic scales; 0 hides pressure and throughput.
	slope float64
	// gray is the relative distance from the limit within which a probe of length 1 stays INCONCLUSIVE; it shrinks with the
	// square root of the length.
	gray float64
}

func (s ideal) probe(_ context.Context, r ProbeRequest) (ProbeResult, error) {
	out := ProbeResult{
		Verdict: verdict.Pass, LimitingCriterion: "ttft_p95", Requests: int64(r.Rate * r.Length * 600),
		Seconds: 600*r.Length + 60,
	}
	distance := math.Abs(math.Log(r.Rate / s.limit))
	switch gray := s.gray / math.Sqrt(r.Length); {
	case distance < gray:
		out.Verdict = verdict.Inconclusive
		share := math.Pow(s.gray/math.Max(distance, 1e-3), 2) / r.Length // of the present length that decides
		needed := int64(float64(out.Requests) * (share - 1))
		out.Needed = &needed
	case r.Rate > s.limit:
		out.Verdict = verdict.Fail
		out.Seconds, out.StoppedEarly = 660, "certain"
		if !r.StopEarly {
			out.Seconds, out.StoppedEarly = 600*r.Length+60, ""
		}
	}
	if s.slope > 0 {
		pressure := math.Pow(r.Rate/s.limit, s.slope)
		completed := math.Min(r.Rate, s.capacity)
		out.Pressure, out.CompletedRate = &pressure, &completed
	}
	return out, nil
}

func wide() Options {
	return Options{Min: 1, Max: 1000, Tolerance: 0.05, FullSeconds: 600, OverheadSeconds: 60}
}

func search(t require.TestingT, o Options, probe Probe) Result {
	r, err := Search(context.Background(), o, probe, nil, nil)
	require.NoError(t, err)
	return r
}

func TestFindsAnyLimitInTenProbes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := math.Exp(rapid.Float64Range(math.Log(1.1), math.Log(940)).Draw(t, "log limit"))
		s := ideal{
			limit: limit, capacity: limit * rapid.Float64Range(1, 1.5).Draw(t, "capacity"),
			slope: rapid.SampledFrom([]float64{0, 1, 3, 10, 40}).Draw(t, "slope"),
		}
		r := search(t, wide(), s.probe)
		require.LessOrEqual(t, len(r.Probes), 10)
		require.NotNil(t, r.SafeQPS)
		require.LessOrEqual(t, *r.SafeQPS, limit)
		require.True(t, r.Confirmed, "%v", r.Notes)
		if r.Status == Found {
			require.GreaterOrEqual(t, *r.SafeQPS*1.05, limit*(1-1e-9))
			require.True(t, r.ToleranceMet)
		} else {
			require.Equal(t, BudgetSpent, r.Status)
			require.False(t, r.ToleranceMet)
		}
	})
}

// Pressures that always point at the lower end of the bracket would move it by a tolerance a probe.
func TestMisleadingPressuresCostFewProbes(t *testing.T) {
	for _, limit := range []float64{30, 200, 900} {
		probe := func(ctx context.Context, r ProbeRequest) (ProbeResult, error) {
			out, err := ideal{limit: limit}.probe(ctx, r)
			pressure := 0.9999
			if out.Verdict == verdict.Fail {
				pressure = 1e9
			}
			out.Pressure = &pressure
			return out, err
		}
		o := wide()
		o.MaxProbes = 13
		r := search(t, o, probe)
		require.Equal(t, Found, r.Status, "limit %v: %v", limit, r.Notes)
	}
}

func TestTypicalServicesNeedFewProbes(t *testing.T) {
	for _, limit := range []float64{2, 7, 18, 40, 111, 333, 800} {
		for _, slope := range []float64{3, 10, 40} {
			r := search(t, wide(), ideal{limit: limit, capacity: 1.1 * limit, slope: slope}.probe)
			require.Equal(t, Found, r.Status, "limit %v, slope %v", limit, slope)
			require.LessOrEqual(t, len(r.Probes), 9, "limit %v, slope %v", limit, slope)
			require.InDelta(t, 1, *r.SafeQPS/limit, 0.05)
		}
	}
}

func TestInconclusiveIsExtendedOnceAndThenBoundsTheAnswer(t *testing.T) {
	s := ideal{limit: 20, capacity: 22, slope: 10, gray: 0.02}
	r := search(t, wide(), s.probe)
	require.Equal(t, Found, r.Status)
	require.InDelta(t, 1, *r.SafeQPS/20, 0.05)
	extended := 0
	for i, p := range r.Probes {
		if p.Purpose != PurposeExtend {
			continue
		}
		extended++
		before := r.Probes[i-1]
		require.Equal(t, verdict.Inconclusive, before.Verdict)
		require.Equal(t, before.N, p.Extends)
		require.InDelta(t, before.Rate, p.Rate, 0)
		require.Greater(t, p.Length, before.Length)
		require.LessOrEqual(t, p.Length, 1.5)
		require.GreaterOrEqual(t, p.Length, 1.0)
	}
	require.Positive(t, extended)
	for _, p := range r.Probes {
		require.LessOrEqual(t, countRate(r.Probes, p.Rate), 2, "each rate is extended once")
	}
	if r.Bracket.High.Verdict == verdict.Inconclusive {
		require.LessOrEqual(t, *r.Bracket.Width, 0.0251, "an undecided end does not bound the limit from above")
	}
}

// An upper end that stayed INCONCLUSIVE says that the limit is about there: the answer has to come within half the tolerance.
func TestAnUndecidedEndNeedsANarrowerBracket(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		status    verdict.Status
		end       Status
	}{
		{19.2, 20, verdict.Fail, Found},
		{19.2, 20, verdict.Inconclusive, ""},
		{19.6, 20, verdict.Inconclusive, Found},
		{19, 20, verdict.Fail, ""},
	} {
		p := newPlanner(wide().withDefaults(), []Record{
			{ProbeRequest{N: 1, Rate: c.high, Length: 1.5, Extends: 7}, ProbeResult{Verdict: c.status}},
			{ProbeRequest{N: 2, Rate: c.low, Length: 1}, ProbeResult{Verdict: verdict.Pass}},
		})
		request, end := p.next()
		require.Equal(t, c.end, end, "%+v", c)
		notes := strings.Join(newResult(wide().withDefaults(), p.probes, BudgetSpent).Notes, "\n")
		require.Equal(t, c.end == "", strings.Contains(notes, "the tolerance of 5.0 % is not met"), notes)
		require.Equal(t, c.end == "" && c.status == verdict.Inconclusive, strings.Contains(notes, "(half of it, since the upper end did not fail)"), notes)
		if end == "" {
			require.Greater(t, request.Rate, c.low)
			require.Less(t, request.Rate, c.high)
		}
	}
}

func TestWhatIsExtended(t *testing.T) {
	next := func(r Record) ProbeRequest {
		r.N, r.Rate, r.Verdict, r.Requests = 1, 20, verdict.Inconclusive, 1000
		request, end := newPlanner(wide().withDefaults(), []Record{r}).next()
		require.Empty(t, end)
		return request
	}
	few, many := int64(250), int64(100_000)
	r := next(Record{ProbeRequest{Length: 0.15}, ProbeResult{Needed: &few}})
	require.Equal(t, PurposeExtend, r.Purpose)
	require.InDelta(t, 1, r.Length, 0, "at least the full length, so that a pass is an answer")
	r = next(Record{ProbeRequest{Length: 1}, ProbeResult{Needed: &few}})
	require.InDelta(t, 1.3, r.Length, 1e-9, "what is needed, and a fifth of it more")
	require.Equal(t, 1, r.Extends)
	for name, record := range map[string]Record{
		"extended already":             {ProbeRequest{Length: 1, Extends: 3}, ProbeResult{Needed: &few}},
		"beyond the longest":           {ProbeRequest{Length: 1}, ProbeResult{Needed: &many}},
		"no number is known to decide": {ProbeRequest{Length: 1}, ProbeResult{}},
	} {
		require.NotEqual(t, PurposeExtend, next(record).Purpose, name)
	}
}

func countRate(probes []Record, rate float64) int {
	n := 0
	for i := range probes {
		if probes[i].Rate == rate {
			n++
		}
	}
	return n
}

func TestEndsOfTheRange(t *testing.T) {
	r := search(t, wide(), ideal{limit: 5000, capacity: 5000, slope: 3}.probe)
	require.Equal(t, AboveRange, r.Status)
	require.InDelta(t, 1000, *r.SafeQPS, 0)
	require.True(t, r.Confirmed)
	require.Nil(t, r.Bracket.High)
	require.Contains(t, r.Notes[0], "or more")
	require.Empty(t, r.LimitingCriterion, "nothing broke")

	r = search(t, wide(), ideal{limit: 0.5, capacity: 0.6, slope: 3}.probe)
	require.Equal(t, BelowRange, r.Status)
	require.Nil(t, r.SafeQPS)
	require.False(t, r.Confirmed)
	require.InDelta(t, 1, r.Bracket.High.Rate, 0)
	content, err := r.JSON()
	require.NoError(t, err)
	require.Contains(t, string(content), `"safe_qps": null`)
}

func TestEstimateIsTheFirstProbe(t *testing.T) {
	o := wide()
	o.Estimate = 20
	r := search(t, o, ideal{limit: 19, capacity: 25, slope: 10}.probe)
	require.InDelta(t, 20, r.Probes[0].Rate, 0)
	require.LessOrEqual(t, len(r.Probes), 5)
	// One that is too low is doubled, then quadrupled.
	o.Estimate = 5
	r = search(t, o, ideal{limit: 100, capacity: 120}.probe)
	require.InDeltaSlice(t, []float64{5, 10, 40, 640}, []float64{
		r.Probes[0].Rate, r.Probes[1].Rate, r.Probes[2].Rate, r.Probes[3].Rate,
	}, 1e-9)
}

func TestConfirmationFailsAndStepsDown(t *testing.T) {
	// Short probes pass up to 20, full ones only up to 19.3.
	probe := func(ctx context.Context, r ProbeRequest) (ProbeResult, error) {
		limit := 20.0
		if r.Length >= 1 {
			limit = 19.3
		}
		return ideal{limit: limit, capacity: 23}.probe(ctx, r)
	}
	o := wide()
	o.MaxProbes = 14
	r := search(t, o, probe)
	require.Equal(t, Found, r.Status)
	require.LessOrEqual(t, *r.SafeQPS, 19.3)
	require.GreaterOrEqual(t, *r.SafeQPS, 19.3/1.05)
	require.True(t, r.Confirmed)
	steps := 0
	for i, p := range r.Probes {
		if p.Purpose == PurposeStepDown {
			steps++
			require.Less(t, p.Rate, r.Probes[i-1].Rate)
			require.InDelta(t, 1.0, p.Length, 0)
		}
	}
	require.Positive(t, steps)
}

// scripted answers by rate and call, for what chance may do.
func TestContradictionsAreReportedAndTheLowerRateDecides(t *testing.T) {
	probes := []Record{
		{ProbeRequest{N: 1, Rate: 10, Length: 0.15}, ProbeResult{Verdict: verdict.Pass}},
		{ProbeRequest{N: 2, Rate: 20, Length: 0.15}, ProbeResult{Verdict: verdict.Pass}},
		{ProbeRequest{N: 3, Rate: 15, Length: 1}, ProbeResult{Verdict: verdict.Fail, LimitingCriterion: "e2e_p99"}},
		{ProbeRequest{N: 4, Rate: 10, Length: 1}, ProbeResult{Verdict: verdict.Pass}},
		{ProbeRequest{N: 5, Rate: 30, Length: 1}, ProbeResult{Verdict: verdict.Pass}},
		{ProbeRequest{N: 6, Rate: 30, Length: 1}, ProbeResult{Verdict: verdict.Inconclusive}},
	}
	r := newResult(wide().withDefaults(), probes, BudgetSpent)
	require.InDelta(t, 10, *r.SafeQPS, 0)
	require.InDelta(t, 15, r.Bracket.High.Rate, 0)
	require.Equal(t, "e2e_p99", r.LimitingCriterion)
	require.InDelta(t, 0.5, *r.Bracket.Width, 1e-12)
	require.False(t, r.ToleranceMet)
	require.Equal(t, []Violation{{FailedRate: 15, FailedProbe: 3, PassedRate: 20, PassedProbe: 2}}, r.Violations)
	require.Contains(t, r.Notes, "15 req/s failed (probe 3), although 20 req/s passed (probe 2): the lower rate decides")
	require.Contains(t, r.Notes,
		"30 req/s passed probe 5 (100 % of the full length) and was INCONCLUSIVE in probe 6 (100 %): the later one decides")
}

func TestAGeneratorWithoutCapacityEndsTheSearch(t *testing.T) {
	limit := 100.0
	probe := func(ctx context.Context, r ProbeRequest) (ProbeResult, error) {
		if r.Rate > limit {
			return ProbeResult{Verdict: verdict.Invalid, Seconds: 60}, nil
		}
		return ideal{limit: 500, capacity: 500, slope: 3}.probe(ctx, r)
	}
	state := &State{}
	r, err := Search(context.Background(), wide(), probe, state, nil)
	require.NoError(t, err)
	require.Equal(t, GeneratorLimited, r.Status)
	n := len(r.Probes)
	first, second := r.Probes[n-2], r.Probes[n-1]
	require.Equal(t, verdict.Invalid, first.Verdict)
	require.Equal(t, verdict.Invalid, second.Verdict)
	require.Equal(t, first.N, second.Repeats)
	require.InDelta(t, first.Rate, second.Rate, 0)
	require.InDelta(t, first.Length, second.Length, 0)
	require.Equal(t, first.Purpose, second.Purpose)
	require.InDelta(t, 31.62, *r.SafeQPS, 0.01)
	require.False(t, r.Confirmed)
	require.Nil(t, r.Bracket.High, "nothing follows about the service at that rate")
	require.Contains(t, r.Notes[0], "load generator was the bottleneck")

	again, err := Search(context.Background(), wide(), probe, state, nil)
	require.NoError(t, err)
	require.Equal(t, GeneratorLimited, again.Status)
	require.Len(t, again.Probes, n+1, "resumed, it looks once whether the generator has room now")
	limit = 1000
	mended, err := Search(context.Background(), wide(), probe, state, nil)
	require.NoError(t, err)
	require.Greater(t, *mended.SafeQPS, 100.0)
}

func TestAMomentOfNoiseCostsOneProbe(t *testing.T) {
	for noisy := 1; noisy <= 6; noisy++ {
		s := ideal{limit: 40, capacity: 45, slope: 8}
		r := search(t, wide(), func(ctx context.Context, r ProbeRequest) (ProbeResult, error) {
			if r.N == noisy {
				return ProbeResult{Verdict: verdict.Invalid, Seconds: 60}, nil
			}
			return s.probe(ctx, r)
		})
		clean := search(t, wide(), s.probe)
		require.Equal(t, Found, r.Status, noisy)
		require.InDelta(t, *clean.SafeQPS, *r.SafeQPS, 0, noisy)
		require.Len(t, r.Probes, len(clean.Probes)+1)
		require.Equal(t, noisy, r.Probes[noisy].Repeats)
	}
}

func TestAServiceThatDoesNotRecoverEndsTheSearch(t *testing.T) {
	probe := func(ctx context.Context, r ProbeRequest) (ProbeResult, error) {
		out, err := ideal{limit: 50, capacity: 60, slope: 3}.probe(ctx, r)
		recovered := out.Verdict == verdict.Pass
		out.Recovered = &recovered
		return out, err
	}
	r := search(t, wide(), probe)
	require.Equal(t, NotRecovered, r.Status)
	require.Len(t, r.Probes, 2)
	require.Contains(t, r.Notes[0], "does not recover")
	require.InDelta(t, 31.62, *r.SafeQPS, 0.01)
	require.False(t, r.Confirmed)

	state := &State{Schema: StateSchema, Options: wide(), Probes: r.Probes}
	again, err := Search(context.Background(), wide(), ideal{limit: 50, capacity: 60, slope: 3}.probe, state, nil)
	require.NoError(t, err)
	require.Equal(t, Found, again.Status, "resumed, after somebody has seen to the service, it goes on")
}

func TestBudgetIsKept(t *testing.T) {
	s := ideal{limit: 20, capacity: 22, slope: 10}
	free := search(t, wide(), s.probe)
	for _, budget := range []float64{100, 700, 1500, 2500, 4000, free.ElapsedSeconds} {
		o := wide()
		o.MaxSeconds = budget
		r := search(t, o, s.probe)
		require.LessOrEqual(t, r.ElapsedSeconds, budget)
		if r.SafeQPS != nil && r.Status == BudgetSpent && !r.Confirmed {
			require.Contains(t, r.Notes[1], "candidate")
		}
	}
	o := wide()
	o.GPUHourPrice, o.GPUs, o.MaxCost = 3, 2, 6 // an hour
	require.InDelta(t, 3600, o.budgetSeconds(), 1e-9)
	r := search(t, o, s.probe)
	require.LessOrEqual(t, r.ElapsedSeconds, 3600.0)
	require.InDelta(t, r.ElapsedSeconds/3600*6, *r.Cost, 1e-9)
	require.Nil(t, free.Cost)
	// With three probes left the best rate so far is confirmed rather than left a candidate.
	o = wide()
	o.MaxProbes = 4
	r = search(t, o, ideal{limit: 20, capacity: 22}.probe)
	require.Len(t, r.Probes, 4)
	require.Equal(t, BudgetSpent, r.Status)
	require.True(t, r.Confirmed)
	require.False(t, r.ToleranceMet)
	require.InDelta(t, 13.34, *r.SafeQPS, 0.01, "the last probe has the full length")
}

// A short pass above a confirmed rate does not make the answer worse.
func TestAConfirmedRateStandsBelowACandidate(t *testing.T) {
	probes := []Record{
		{ProbeRequest{N: 1, Rate: 10, Length: 1}, ProbeResult{Verdict: verdict.Pass}},
		{ProbeRequest{N: 2, Rate: 20, Length: 1}, ProbeResult{Verdict: verdict.Fail}},
		{ProbeRequest{N: 3, Rate: 14, Length: 0.15}, ProbeResult{Verdict: verdict.Pass}},
	}
	r := newResult(wide().withDefaults(), probes, BudgetSpent)
	require.InDelta(t, 10, *r.SafeQPS, 0)
	require.True(t, r.Confirmed)
	require.InDelta(t, 14, r.Bracket.Low.Rate, 0)
	require.False(t, r.ToleranceMet)
}

func TestMinRequestsLengthensProbesAtLowRates(t *testing.T) {
	o := wide()
	o.MinRequests = 1500
	r := search(t, o, ideal{limit: 8, capacity: 9, slope: 10}.probe)
	for _, p := range r.Probes { // to twice as many, so that one request over a limit does not leave them INCONCLUSIVE
		require.GreaterOrEqual(t, p.Length, math.Min(3000/(p.Rate*600), 1.5)*(1-1e-9), "at %v", p.Rate)
	}
}

// A rate that brings too few requests to pass is not tried, and no rate is called too high for it.
func TestRatesThatCannotPassAreNotTried(t *testing.T) {
	o := wide()
	o.MinRequests = 9000 // at 10 a second in 1.5 times 600 seconds
	r := search(t, o, ideal{limit: 3, capacity: 3.5, slope: 10}.probe)
	require.Equal(t, BelowRange, r.Status)
	for _, p := range r.Probes {
		require.GreaterOrEqual(t, p.Rate, 10*(1-1e-9))
	}
	require.Contains(t, r.Notes[0], "did not pass at 10 req/s, the lowest rate that brings the 9000 requests")
	r = search(t, o, ideal{limit: 30, capacity: 35, slope: 10}.probe)
	require.Equal(t, Found, r.Status)

	o.MinRequests = 1_000_000
	_, err := Search(context.Background(), o, ideal{limit: 3}.probe, nil, nil)
	require.ErrorContains(t, err, "at max (1000) a probe brings 900000 requests at most, and the contract needs 1000000 to pass: "+
		"lengthen the steady phase to 667 seconds or more")
}

// Evidence that is missing far from every limit says nothing against a rate: more requests come at a higher one.
func TestWhatIsOpenFarFromTheLimitIsNoUpperEnd(t *testing.T) {
	needed := 40.0 // a rate below which no probe is decided
	probe := func(ctx context.Context, r ProbeRequest) (ProbeResult, error) {
		out, err := ideal{limit: 200, capacity: 220, slope: 4}.probe(ctx, r)
		if r.Rate < needed {
			out.Verdict, out.Seconds, out.Needed = verdict.Inconclusive, 600*r.Length+60, nil
		}
		return out, err
	}
	r := search(t, wide(), probe)
	require.Equal(t, Found, r.Status)
	require.InDelta(t, 200, *r.SafeQPS, 12)
	require.True(t, r.Confirmed)

	needed = 10_000 // nothing is ever decided, up to the limit
	r = search(t, wide(), probe)
	require.Contains(t, []Status{Undecided, BudgetSpent}, r.Status)
	require.Nil(t, r.SafeQPS)
	require.Less(t, r.Bracket.High.Rate, 300.0)
}

// Whoever goes up from an open rate comes back to it, at full length, before giving up.
func TestAnOpenRateIsRunAtFullLength(t *testing.T) {
	var full bool
	r := search(t, wide(), func(ctx context.Context, r ProbeRequest) (ProbeResult, error) {
		out, err := ideal{limit: 40, capacity: 42, slope: 8}.probe(ctx, r)
		if r.Length < 1 && out.Verdict == verdict.Pass {
			out.Verdict, out.Seconds = verdict.Inconclusive, 600*r.Length+60
		}
		full = full || r.Length >= 1
		return out, err
	})
	require.True(t, full)
	require.Equal(t, Found, r.Status)
	require.InDelta(t, 40, *r.SafeQPS, 2.5)
}

// Where going up from an open rate came to nothing, lower rates are tried as ever.
func TestBelowAnOpenRateIsSearchedToo(t *testing.T) {
	r := search(t, wide(), func(ctx context.Context, r ProbeRequest) (ProbeResult, error) {
		out, err := ideal{limit: 34, capacity: 36, slope: 4}.probe(ctx, r)
		if r.Rate > 25 && r.Rate <= 34 {
			pressure := 0.3
			out.Verdict, out.Pressure, out.Seconds = verdict.Inconclusive, &pressure, 600*r.Length+60
		}
		return out, err
	})
	require.NotNil(t, r.SafeQPS, "%v", r.Notes)
	require.Greater(t, *r.SafeQPS, 15.0)
	require.LessOrEqual(t, *r.SafeQPS, 25.0)
	require.True(t, r.Confirmed)
}

func TestAnOpenRateBelowAFailureEndsUndecided(t *testing.T) {
	r := search(t, wide(), func(ctx context.Context, r ProbeRequest) (ProbeResult, error) {
		out, err := ideal{limit: 50, capacity: 55, slope: 4}.probe(ctx, r)
		if out.Verdict == verdict.Pass {
			out.Verdict, out.Seconds = verdict.Inconclusive, 600*r.Length+60
		}
		return out, err
	})
	require.Contains(t, []Status{Undecided, BudgetSpent}, r.Status)
	require.Nil(t, r.SafeQPS)
	require.Less(t, r.Bracket.High.Rate, 75.0)
}

func TestInconclusiveAtTheLowestRateIsNotAFailure(t *testing.T) {
	r := search(t, wide(), func(context.Context, ProbeRequest) (ProbeResult, error) {
		pressure := 0.9
		return ProbeResult{Verdict: verdict.Inconclusive, Pressure: &pressure, Seconds: 60}, nil
	})
	require.Equal(t, BudgetSpent, r.Status)
	o := wide()
	o.MaxProbes = 40
	r = search(t, o, func(context.Context, ProbeRequest) (ProbeResult, error) {
		return ProbeResult{Verdict: verdict.Inconclusive, Seconds: 60}, nil
	})
	require.Equal(t, Undecided, r.Status)
	require.InDelta(t, 1, r.Bracket.High.Rate, 0)
	require.Contains(t, r.Notes[0], "no rate was decided")
	require.Contains(t, r.Notes[0], "/verdict.json says why")
}

func TestFixedLengths(t *testing.T) {
	o := wide()
	o.FixedLengths = true
	r := search(t, o, ideal{limit: 20, capacity: 22, slope: 10, gray: 0.02}.probe)
	for _, p := range r.Probes {
		require.InDelta(t, 1.0, p.Length, 0)
		require.False(t, p.StopEarly)
	}
	require.InDelta(t, r.ElapsedSeconds, r.FixedLengthSeconds, 1e-9)
}

// A search that is cut at any point, inside a probe or between two, ends with the same answer when it is resumed.
func TestResumesWithTheSameAnswer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := ideal{
			limit: math.Exp(rapid.Float64Range(0.2, 6.5).Draw(t, "log limit")), slope: rapid.SampledFrom([]float64{0, 4, 20}).Draw(t, "slope"),
			gray: rapid.SampledFrom([]float64{0, 0.02}).Draw(t, "gray"),
		}
		s.capacity = 1.2 * s.limit
		o := wide()
		o.Seed = rapid.Uint64().Draw(t, "seed")
		want := search(t, o, s.probe)
		for cut := range want.Probes {
			state := cutAfter(t, o, s, cut)
			got, err := Search(context.Background(), o, s.probe, state, nil)
			require.NoError(t, err)
			again := &got.Probes[cut] // the one that was cut
			require.Equal(t, 2, again.Attempt)
			require.NotEqual(t, want.Probes[cut].Seed, again.Seed, "its prompts are in the prefix cache")
			require.NotEqual(t, want.Probes[cut].LLMSeed, again.LLMSeed)
			again.Attempt, again.Seed, again.LLMSeed = 0, want.Probes[cut].Seed, want.Probes[cut].LLMSeed
			require.Equal(t, want, got)
		}
	})
}

// cutAfter runs a search that is killed in the probe after the given number of them, and hands its state over as JSON.
func cutAfter(t require.TestingT, o Options, s ideal, probes int) *State {
	killed := errors.New("killed")
	var stored []byte
	store := func(p Progress) error {
		content, err := json.Marshal(p.State)
		stored = content
		return err
	}
	r, err := Search(context.Background(), o, func(ctx context.Context, r ProbeRequest) (ProbeResult, error) {
		if r.N > probes {
			return ProbeResult{}, killed
		}
		return s.probe(ctx, r)
	}, nil, store)
	require.ErrorIs(t, err, killed)
	require.Equal(t, Interrupted, r.Status)
	require.Len(t, r.Probes, probes)
	var state State
	require.NoError(t, json.Unmarshal(stored, &state))
	return &state
}

func TestStateIsStoredAndBelongsToOneSearch(t *testing.T) {
	dir := t.TempDir()
	empty, err := LoadState(dir)
	require.NoError(t, err)
	require.Empty(t, empty.Probes)
	s := ideal{limit: 20, capacity: 22, slope: 10}
	ctx, cancel := context.WithCancel(context.Background())
	o := wide()
	o.Fingerprints = map[string]string{"the script": "1", "the contract": "2"}
	_, err = Search(ctx, o, s.probe, nil, func(p Progress) error {
		if p.Last != nil && p.Last.N == 3 {
			cancel()
		}
		return p.State.Save(dir)
	})
	require.ErrorIs(t, err, context.Canceled)
	state, err := LoadState(dir)
	require.NoError(t, err)
	require.Len(t, state.Probes, 3)

	other := o
	other.Fingerprints, other.Tolerance = map[string]string{"the script": "1", "the contract": "3"}, 0.1
	_, err = Search(context.Background(), other, s.probe, state, nil)
	require.EqualError(t, err, "capacity: the stored search is another one: it differs in tolerance, the contract; "+
		"put that back, or begin in another directory")
	o.MaxProbes = 12 // a budget may change
	r, err := Search(context.Background(), o, s.probe, state, nil)
	require.NoError(t, err)
	require.Equal(t, Found, r.Status)
	require.Len(t, state.Probes, len(r.Probes))

	state.Probes[1].N = 7
	_, err = Search(context.Background(), o, s.probe, state, nil)
	require.EqualError(t, err, "capacity: probe 2 of the state has number 7")
}

func TestProbesAreNumberedAndSeededApart(t *testing.T) {
	o := wide()
	o.Seed = 7
	r := search(t, o, ideal{limit: 20, capacity: 22, slope: 10}.probe)
	var seeds []uint64
	for i, p := range r.Probes {
		require.Equal(t, i+1, p.N)
		seeds = append(seeds, p.LLMSeed)
		require.Equal(t, p.Seed>>11, p.LLMSeed, "a script's number holds it")
	}
	require.Equal(t, "probe-01", r.Probes[0].Dir)
	slices.Sort(seeds)
	require.Len(t, slices.Compact(seeds), len(r.Probes))
}

func TestAnUnevenWorkloadIsTold(t *testing.T) {
	for share, told := range map[float64]bool{1: false, 1.05: false, 0.8: true, 1.2: true} {
		r := search(t, wide(), func(ctx context.Context, q ProbeRequest) (ProbeResult, error) {
			found, err := ideal{limit: 20, capacity: 22, slope: 10}.probe(ctx, q)
			offered := q.Rate * share
			found.OfferedRate = &offered
			return found, err
		})
		answer, ok := r.Answer()
		require.True(t, ok)
		require.InDelta(t, answer.Rate, *r.AskedQPS, 0)
		require.InDelta(t, map[bool]float64{true: answer.Rate, false: answer.Rate * share}[share >= 0.9], *r.SafeQPS, 1e-9)
		require.GreaterOrEqual(t, answer.Length, 1.0)
		require.Equal(t, told, slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "are not even") }), share)
	}
}

// A rate that was found with answers forced to their length compares configurations; nobody may plan with it.
func TestForcedLengthsClaimNoCapacity(t *testing.T) {
	service, rescaled := ideal{limit: 30, capacity: 40, slope: 10}, "trace rescaled in time: to "
	labelled := func(more ...string) Probe {
		return func(ctx context.Context, r ProbeRequest) (ProbeResult, error) {
			found, err := service.probe(ctx, r)
			found.Labels = append([]string{rescaled + rate(r.Rate)}, more...)
			return found, err
		}
	}
	free := search(t, wide(), labelled("synthetic prompts"))
	require.True(t, free.Confirmed)
	require.Equal(t, []string{rescaled + rate(*free.AskedQPS), "synthetic prompts"}, free.Labels, "those of the probe that the answer rests on")

	forced := search(t, wide(), labelled(results.LabelIgnoreEOS))
	require.Equal(t, free.SafeQPS, forced.SafeQPS)
	require.False(t, forced.Confirmed)
	require.Equal(t, []string{rescaled + rate(*forced.AskedQPS), results.LabelIgnoreEOS}, forced.Labels)
	require.Contains(t, strings.Join(forced.Notes, "\n"), "answers were forced to their length (ignore_eos): the rate compares configurations")
}

func TestAnAnswerFromAWarmCacheIsNotConfirmed(t *testing.T) {
	r := search(t, wide(), func(ctx context.Context, q ProbeRequest) (ProbeResult, error) {
		found, err := ideal{limit: 20, capacity: 22, slope: 10}.probe(ctx, q)
		found.WarmCache, found.Warnings = true, []string{"warm cache: 97.5% of it"}
		return found, err
	})
	require.Equal(t, Found, r.Status)
	require.False(t, r.Confirmed)
	joined := strings.Join(r.Notes, "\n")
	require.Contains(t, joined, "warns: warm cache: 97.5% of it")
	require.Contains(t, joined, "has to take its seed from LLM_SEED")
}

// What a plan takes from the answer says what it rests on.
func TestReadingsOfTheNumberInFlightAreTold(t *testing.T) {
	sampled := func(yes bool) Result {
		return search(t, wide(), func(ctx context.Context, q ProbeRequest) (ProbeResult, error) {
			found, err := ideal{limit: 20, capacity: 22, slope: 10}.probe(ctx, q)
			found.MeanInFlight, found.InFlightSampled = ptr(q.Rate), yes
			return found, err
		})
	}
	exact := sampled(false)
	require.InDelta(t, *exact.AskedQPS, *exact.MeanInFlight, 0)
	require.NotContains(t, strings.Join(exact.Notes, "\n"), "in flight")
	r := sampled(true)
	require.InDelta(t, *r.AskedQPS, *r.MeanInFlight, 0)
	require.Contains(t, r.Notes, fmt.Sprintf("the ends of some requests of probe %d are not known: the number in flight is the mean of one "+
		"reading a second, which can be off", r.AnswerProbe))
}

func TestProofOfTheClient(t *testing.T) {
	for name, c := range map[string]struct {
		proof ClientProof
		says  string
	}{
		"limited": {ClientProof{Verdict: verdict.Pass, Limited: ptr(true), Lower: []string{"ttft p95"}}, "ttft p95 came out lower"},
		"invalid": {ClientProof{Verdict: verdict.Invalid}, "proves nothing"},
		"proved":  {ClientProof{Verdict: verdict.Pass, Limited: ptr(false), Answer: "same"}, "no lower latencies than one (same, verdict PASS)"},
		"not known": {
			ClientProof{Verdict: verdict.Pass, Answer: "not enough evidence"},
			"whether the load generator had a part in the answer is not known: the comparison of two at 0 req/s with one says not enough evidence",
		},
	} {
		r := Result{ElapsedSeconds: 100, Cost: ptr(5.0)}
		c.proof.Seconds = 20
		r.Proved(&c.proof)
		require.InDelta(t, 120, r.ElapsedSeconds, 0)
		require.InDelta(t, 6, *r.Cost, 1e-9)
		require.Contains(t, r.Notes[0], c.says, name)
		require.Equal(t, &c.proof, r.ClientProof)
	}
	_, ok := (&Result{}).Answer()
	require.False(t, ok)
}

func TestProgress(t *testing.T) {
	o := wide()
	o.MaxSeconds = 50_000
	s := ideal{limit: 20, capacity: 22, slope: 10}
	var before, after int
	var last Progress
	var about []float64
	r, err := Search(context.Background(), o, s.probe, nil, func(p Progress) error {
		if p.Next != nil {
			about = append(about, p.AboutSeconds)
			before++
		}
		if p.Last != nil {
			after++
			require.Len(t, p.State.Probes, p.Last.N)
		}
		last = p
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, len(r.Probes), before)
	require.Equal(t, len(r.Probes), after)
	require.InDelta(t, *r.SafeQPS, last.Low, 0)
	require.InDelta(t, r.Bracket.High.Rate, last.High, 0)
	require.InDelta(t, 50_000-r.ElapsedSeconds, last.LeftSeconds, 1e-6)
	require.Equal(t, 10-len(r.Probes), last.ProbesLeft)
	require.InDelta(t, 6*150+2*660, about[0], 1e-9, "bisection from 1 to 1,000 at 5 % takes 8 rates, two of them at full length")
	require.InDelta(t, 660, about[len(about)-1], 1e-9)

	o.MaxSeconds = 1000
	_, err = Search(context.Background(), o, s.probe, nil, func(p Progress) error {
		require.LessOrEqual(t, p.AboutSeconds, 1000-p.ElapsedSeconds)
		return nil
	})
	require.NoError(t, err)
}

// What is told to be left is no bound, and near to what it was: within a factor of two in most searches, and with what probes
// take beside their phases once that was seen.
func TestTheTimeThatIsLeft(t *testing.T) {
	near, told := 0, 0
	for _, beside := range []float64{60, 200} { // of which the contract has 60
		for _, limit := range []float64{2, 7, 18, 40, 111, 333, 800} {
			for _, slope := range []float64{0, 3, 10, 40} {
				s := ideal{limit: limit, capacity: 1.1 * limit, slope: slope, gray: 0.01}
				var left, at []float64
				r, err := Search(context.Background(), wide(), func(ctx context.Context, q ProbeRequest) (ProbeResult, error) {
					out, err := s.probe(ctx, q)
					if out.StoppedEarly != "" {
						out.Seconds = 0.4 * q.Length * 600
					}
					out.Seconds += beside - 60
					return out, err
				}, nil, func(p Progress) error {
					if p.Next != nil {
						left, at = append(left, p.AboutSeconds), append(at, p.ElapsedSeconds)
					}
					return nil
				})
				require.NoError(t, err)
				for i := 1; i < len(left); i++ { // from the second on
					told++
					if ratio := (r.ElapsedSeconds - at[i]) / left[i]; ratio > 0.5 && ratio < 2 {
						near++
					}
				}
			}
		}
	}
	require.Greater(t, float64(near), 0.8*float64(told), "%d of %d", near, told)
}

// A service that cannot carry the lowest rate of the range is not searched above it.
func TestACapacityBelowTheRangeIsSettledAtOnce(t *testing.T) {
	o := wide()
	o.Min, o.Max = 40, 60
	r := search(t, o, ideal{limit: 13, capacity: 14, slope: 8}.probe)
	require.Equal(t, BelowRange, r.Status)
	require.Len(t, r.Probes, 2)
	require.InDelta(t, 40, r.Probes[1].Rate, 0)
	// What the overload completed was too little: the lowest rate passes, and the search goes on as ever.
	r = search(t, o, func(ctx context.Context, q ProbeRequest) (ProbeResult, error) {
		out, err := ideal{limit: 44, capacity: 46, slope: 8}.probe(ctx, q)
		if q.Rate > 46 {
			out.CompletedRate = ptr(14.0)
		}
		return out, err
	})
	require.Equal(t, Found, r.Status)
	require.InDelta(t, 44, *r.SafeQPS, 2.2)
	require.InDelta(t, 40, r.Probes[1].Rate, 0)
}

// The time of an attempt that was cut was spent: it counts in time, cost and budget.
func TestCutAttemptsCount(t *testing.T) {
	o := wide()
	o.GPUHourPrice = 3600
	s := ideal{limit: 20, capacity: 22, slope: 10}
	whole := search(t, o, s.probe)
	state := cutAfter(t, o, s, 2)
	dir, ok := state.Unfinished()
	require.True(t, ok)
	require.Equal(t, "probe-03", dir)
	state.AddCut(250)
	_, ok = state.Unfinished()
	require.False(t, ok, "it is counted once")
	r, err := Search(context.Background(), o, s.probe, state, nil)
	require.NoError(t, err)
	_, ok = state.Unfinished()
	require.False(t, ok)
	require.InDelta(t, 250, r.CutSeconds, 0)
	require.InDelta(t, whole.ElapsedSeconds+250, r.ElapsedSeconds, 1e-9)
	require.InDelta(t, r.ElapsedSeconds, *r.Cost, 1e-9)
	require.Contains(t, strings.Join(r.Notes, "\n"), "attempts at probes were cut, 1 of them: their 250 s of load count in time and cost")

	o.MaxSeconds = whole.ElapsedSeconds
	state = cutAfter(t, o, s, 2)
	state.AddCut(250)
	r, err = Search(context.Background(), o, s.probe, state, nil)
	require.NoError(t, err)
	require.LessOrEqual(t, r.ElapsedSeconds, o.MaxSeconds)
	require.Equal(t, BudgetSpent, r.Status)

	state.Cut[0].Seconds = -1
	_, err = Search(context.Background(), o, s.probe, state, nil)
	require.ErrorContains(t, err, "attempt 1 at probe 3 of the state took -1 seconds")
}

// A service that takes long to come back to idle takes that time from the budget, too.
func TestTheBudgetKnowsWhatProbesTakeBesideTheirPhases(t *testing.T) {
	for _, budget := range []float64{1500, 2500, 4000, 6000} {
		o := wide()
		o.MaxSeconds = budget
		r := search(t, o, func(ctx context.Context, q ProbeRequest) (ProbeResult, error) {
			out, err := ideal{limit: 20, capacity: 22}.probe(ctx, q)
			out.Seconds += 100
			return out, err
		})
		require.LessOrEqual(t, r.ElapsedSeconds, budget)
	}
}

func TestErrorsNameFieldsAsTheUserKnowsThem(t *testing.T) {
	o := wide()
	o.Names = map[string]string{"min": "--min", "max": "--max", "max_seconds": "--max-time", "max_cost": "--max-cost", "gpu_hour_price": "--gpu-hour-price"}
	o.Min, o.Max, o.MaxSeconds, o.MaxCost = 5, 5, -1, 3
	err := o.Validate()
	for _, text := range []string{"--max is 5, expected a rate above --min (5)", "--max-time is -1, expected 0 or more", "--max-cost is set, and needs --gpu-hour-price"} {
		require.ErrorContains(t, err, text)
	}
	a, b := wide(), wide()
	a.Names, a.Min = map[string]string{"min": "--min"}, 2
	require.ErrorContains(t, a.differs(b), "it differs in --min;")
}

func TestATornStateSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, StateFile), []byte(`{"schema": "safeqps`), 0o600))
	_, err := LoadState(dir)
	require.ErrorContains(t, err, "is not whole, or was edited")
	require.ErrorContains(t, err, "begin in another directory")
}

func TestWrongProbesAndOptionsAreErrors(t *testing.T) {
	_, err := Search(context.Background(), wide(), func(context.Context, ProbeRequest) (ProbeResult, error) {
		return ProbeResult{Verdict: "MAYBE"}, nil
	}, nil, nil)
	require.ErrorContains(t, err, `verdict is "MAYBE"`)
	err = Options{Min: 0, Max: -1, Tolerance: 2, FullSeconds: math.NaN(), MaxCost: 5, MaxLength: 0.5}.Validate()
	for _, text := range []string{
		"min is 0", "max is -1", "tolerance is 2", "full_seconds is NaN", "max_cost is set", "max_length is 0.5",
	} {
		require.ErrorContains(t, err, text)
	}
	require.NoError(t, wide().Validate())
}

// However often a probe is cut, no attempt at it sends the prompts of an earlier one.
func TestEachAttemptHasASeedOfItsOwn(t *testing.T) {
	var s State
	seeds := map[uint64]bool{}
	for attempt := range 5 {
		r := ProbeRequest{N: 3, Seed: 77}
		s.begin(&r)
		require.Equal(t, attempt+1, s.Attempt)
		seeds[r.LLMSeed] = true
	}
	require.Len(t, seeds, 5)
	r := ProbeRequest{N: 4, Seed: 77}
	s.begin(&r)
	require.Equal(t, 1, s.Attempt, "another probe")
	require.Zero(t, r.Attempt)
	require.Equal(t, uint64(77), r.Seed)
}

func TestOpenIsFarFromTheLimit(t *testing.T) {
	for pressure, open := range map[float64]bool{0.1: true, 0.49: true, 0.5: false, 0.9: false} {
		l := level{status: verdict.Inconclusive, probe: &Record{ProbeResult: ProbeResult{Pressure: &pressure}}}
		require.Equal(t, open, l.open(), pressure)
		l.status = verdict.Fail
		require.False(t, l.open())
	}
	require.False(t, (&level{status: verdict.Inconclusive, probe: &Record{}}).open(), "how far is not known")
}
