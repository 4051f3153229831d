package results

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var spanStart = time.Date(2026, 1, 2, 3, 4, 5, 400_000_000, time.UTC)

// second is the n-th second of the series, which begins with the one that the first arrival falls into.
func second(n int) time.Time {
	return spanStart.Truncate(time.Second).Add(time.Duration(n) * time.Second)
}

func sample(n int, phase string, completed, inFlight int64) Sample {
	return Sample{Time: second(n), Phase: phase, Offered: &completed, Completed: &completed, InFlight: &inFlight}
}

func completions(s *Sample) *int64 { return s.Completed }

// Twenty seconds of ten a second, then six in which the rest completes.
func TestTheDrainIsNotThePhase(t *testing.T) {
	var span ArrivalSpan
	for i := range 200 {
		span.See(spanStart.Add(time.Duration(199-i) * 100 * time.Millisecond)) // 05.4 to 25.3
	}
	require.Equal(t, spanStart, span.First)
	require.Equal(t, spanStart.Add(19900*time.Millisecond), span.Last)
	samples := []Sample{sample(-1, "warmup", 50, 3), sample(0, "steady", 40, 3)}
	for n := 1; n <= 26; n++ {
		samples = append(samples, sample(n, "steady", int64(n), 3))
	}
	got := Flow(span.WholeSeconds(samples, OfPhase("steady")), completions)
	require.Len(t, got, 19, "the seconds 1 to 19: of the ones at both ends a part is the phase's")
	require.InDelta(t, 1, got[0], 0)
	require.InDelta(t, 19, got[18], 0)
	require.Len(t, span.WholeSeconds(samples, nil), 19)
	require.Empty(t, span.WholeSeconds(samples, OfPhase("warmup")))
	require.Empty(t, ArrivalSpan{}.WholeSeconds(samples, OfPhase("steady")), "a phase without arrivals has no time of its own")
	span.SeeStarts(samples, "steady")
	require.Equal(t, second(26), span.Last, "a killed run has no lines of what was in flight")
}

func TestSecondsWithoutALineAreQuiet(t *testing.T) {
	span := ArrivalSpan{First: spanStart, Last: second(30)}
	samples := []Sample{
		sample(0, "steady", 9, 1), sample(1, "steady", 4, 2), sample(4, "", 2, 1), sample(5, "steady", 3, 0),
		sample(6, "recovery", 7, 5), sample(9, "steady", 1, 0),
		{Time: second(10), Phase: "steady", Completed: new(int64)},
	}
	got := span.WholeSeconds(samples, OfPhase("steady"))
	require.Equal(t, []float64{4, 0, 0, 2, 3, 1, 0}, Flow(got, completions), "seconds beside another phase may be that one's")
	require.Equal(t, second(2), got[1].Time)
	require.Equal(t, int64(2), *got[1].InFlight, "as many as before")
	require.Equal(t, int64(0), *got[6].InFlight)
	require.Nil(t, samples[6].InFlight, "the series itself stays as it is")
	far := []Sample{sample(1, "steady", 4, 2), sample(1000, "steady", 4, 2)}
	require.Len(t, ArrivalSpan{First: spanStart, Last: second(2000)}.WholeSeconds(far, nil), 2, "a machine that slept")
}

func TestNoTokensInASecondWithoutCompletions(t *testing.T) {
	tokens := func(s *Sample) *int64 { return s.CompletionTokens }
	counted := func(completed, n int64) Sample { return Sample{Completed: &completed, CompletionTokens: &n} }
	none := func(completed int64) Sample { return Sample{Completed: &completed} }
	require.Equal(t, []float64{10, 0, 20}, Flow([]Sample{counted(1, 10), none(0), counted(2, 20)}, tokens))
	require.Equal(t, []float64{10, 0}, Flow([]Sample{counted(1, 10), none(3), none(0)}, tokens), "three that nobody counted")
	require.Nil(t, Flow([]Sample{none(3), none(0)}, tokens), "nobody counts at all")
	require.Nil(t, Flow([]Sample{{}, {}}, completions))
}

// runOf is a results directory of these lines; ended says that the run came to its end.
func runOf(t *testing.T, requests []Request, samples []Sample, ended bool) *Run {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	w, err := Create(dir, Info{Started: spanStart}, Options{})
	require.NoError(t, err)
	for i := range requests {
		require.NoError(t, w.Request(&requests[i]))
	}
	for _, s := range samples {
		require.NoError(t, w.Sample(s))
	}
	if ended {
		require.NoError(t, w.Close(second(60), nil))
	} else {
		require.NoError(t, w.Flush(second(30)))
	}
	run, err := Open(dir)
	require.NoError(t, err)
	return run
}

// at is so many seconds after the run's start.
func at(seconds float64) time.Time {
	return spanStart.Add(time.Duration(seconds * float64(time.Second)))
}

// The steady phase goes from 10 s, when its first request is due, to 20 s, when its last one is.
func TestMeanInFlightIsTheTimeOfRequestsOverThePhase(t *testing.T) {
	ended := []Request{
		{Phase: "warmup", Due: at(2), Start: at(2), Outcome: OK, E2E: Num(8000)},                            // ended as it began
		{Phase: "warmup", Due: at(8), Start: at(8), Outcome: OK, E2E: Num(4000)},                            // 2 s of it
		{Phase: "steady", Due: at(10), Start: at(10.5), Outcome: OK, E2E: Num(2500)},                        // 2.5 s, since it was sent
		{Phase: "steady", Start: at(12), Outcome: Failed, Elapsed: Num(500)},                                // 0.5 s
		{Phase: "steady", Start: at(12.5), Attempt: 2, Outcome: OK, E2E: Num(1500)},                         // 1.5 s: a retry is served, too
		{Phase: "steady", Start: at(13), Outcome: Cancelled, Elapsed: Num(1000)},                            // 1 s
		{Phase: "steady", Start: at(14), Outcome: OK, E2E: Num(20000)},                                      // 6 s of it
		{Phase: "steady", Start: at(15), Outcome: InFlight, ErrorType: "interrupted", Elapsed: Num(30000)},  // 5 s of it
		{Phase: "steady", Start: at(18), Outcome: InFlight, ErrorType: "interrupted"},                       // 2 s: it outlived the run
		{Phase: "steady", Due: at(20), Outcome: Dropped, ErrorType: "no_vu"},                                // an arrival, and no request
		{Phase: "recovery", Due: at(19), Start: at(19), Outcome: OK, E2E: Num(5000)},                        // 1 s of it
		{Phase: "recovery", Due: at(21), Start: at(21), Outcome: OK, E2E: Num(5000)},                        // none of it
		{Phase: "recovery", Due: at(22), Start: at(22), Attempt: 1, Outcome: Failed, ErrorType: "http_5xx"}, // when it ended does not matter
	}
	samples := []Sample{sample(11, "steady", 1, 8), sample(12, "steady", 1, 8)}
	mean, exact, err := runOf(t, ended, samples, true).MeanInFlight("steady")
	require.NoError(t, err)
	require.True(t, exact)
	require.InDelta(t, (2+2.5+0.5+1.5+1+6+5+2+1)/10, *mean, 1e-9)

	mean, exact, err = runOf(t, ended, samples, true).MeanInFlight("cooldown")
	require.NoError(t, err)
	require.True(t, exact)
	require.Nil(t, mean, "a phase without arrivals has no time of its own")
	mean, _, err = runOf(t, ended[2:3], samples, true).MeanInFlight("steady")
	require.NoError(t, err)
	require.Nil(t, mean, "nor has one of a single arrival")

	lost := append([]Request{{Phase: "warmup", Start: at(9), Outcome: Failed, ErrorType: "http_5xx"}}, ended...)
	mean, exact, err = runOf(t, lost, samples, true).MeanInFlight("steady")
	require.NoError(t, err)
	require.False(t, exact, "when the failed one ended is not known")
	require.InDelta(t, 8, *mean, 0)
	mean, exact, err = runOf(t, ended, samples, false).MeanInFlight("steady")
	require.NoError(t, err)
	require.False(t, exact, "what was in flight when the run was killed has no line")
	require.InDelta(t, 8, *mean, 0)
}

// Whatever the arrivals and the answers, the mean is what readings at every instant would give.
func TestMeanInFlightIsThatOfReadingsAtEveryInstant(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 8)) //nolint:gosec // a reproducible run
	var requests []Request
	starts, ends := []float64{}, []float64{}
	for i, now := 0, 0.0; i < 400; i++ {
		now += 0.05 * rng.ExpFloat64()
		phase := "warmup"
		if i >= 100 {
			phase = "steady"
		}
		if i >= 300 {
			phase = "recovery"
		}
		e2e := rng.ExpFloat64()
		requests = append(requests, Request{Phase: phase, Start: at(now), Outcome: OK, E2E: Num(1000 * e2e)})
		starts, ends = append(starts, now), append(ends, now+e2e)
	}
	const readings = 20_000
	first, last, seen := starts[100], starts[299], 0
	for k := range readings {
		instant := first + (float64(k)+0.5)/readings*(last-first)
		for i := range starts {
			if starts[i] <= instant && instant < ends[i] {
				seen++
			}
		}
	}
	mean, exact, err := runOf(t, requests, nil, true).MeanInFlight("steady")
	require.NoError(t, err)
	require.True(t, exact)
	require.InEpsilon(t, float64(seen)/readings, *mean, 1e-3)
}

// Where ends are not known, the series has a reading for each second of the phase.
func TestMeanInFlightBySeriesIsOfThePhaseAlone(t *testing.T) {
	var requests []Request
	for i := range 100 { // 05.4 to 15.3
		requests = append(requests, Request{Row: int64(i), Phase: "steady", Start: at(float64(i) / 10), Outcome: Failed, ErrorType: "http_5xx"})
	}
	var samples []Sample
	for n := range 20 {
		inFlight := int64(8)
		if n == 0 || n >= 10 {
			inFlight = 0 // it fills, and it drains
		}
		samples = append(samples, sample(n, "steady", 10, inFlight))
	}
	run := runOf(t, requests, samples, true)
	mean, exact, err := run.MeanInFlight("steady")
	require.NoError(t, err)
	require.False(t, exact)
	require.InDelta(t, 8, *mean, 0)
	mean, _, err = run.MeanInFlight("recovery")
	require.NoError(t, err)
	require.Nil(t, mean)
}
