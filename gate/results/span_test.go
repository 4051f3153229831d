package results

import (
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

func TestMeanInFlightIsOfThePhaseAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w, err := Create(dir, Info{Started: spanStart}, Options{})
	require.NoError(t, err)
	for i := range 100 {
		at := spanStart.Add(time.Duration(i) * 100 * time.Millisecond) // 05.4 to 15.3
		require.NoError(t, w.Request(&Request{Row: int64(i), Phase: "steady", Due: at, Start: at, Outcome: OK, E2E: Num(5)}))
	}
	for n := range 20 {
		inFlight := int64(8)
		if n == 0 || n >= 10 {
			inFlight = 0 // it fills, and it drains
		}
		require.NoError(t, w.Sample(sample(n, "steady", 10, inFlight)))
	}
	require.NoError(t, w.Close(second(21), nil))
	run, err := Open(dir)
	require.NoError(t, err)
	mean, err := run.MeanInFlight("steady")
	require.NoError(t, err)
	require.InDelta(t, 8, *mean, 0)
	mean, err = run.MeanInFlight("recovery")
	require.NoError(t, err)
	require.Nil(t, mean)
}
