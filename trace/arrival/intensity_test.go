package arrival

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func intensity(t testing.TB, rate float64, stages ...Stage) Intensity {
	t.Helper()
	in, err := NewIntensity(rate, stages)
	require.NoError(t, err)
	return in
}

// TestIntensityClosedForms compares with values worked out by hand.
func TestIntensityClosedForms(t *testing.T) {
	up := intensity(t, 0, Stage{10 * time.Second, 10})   // Λ = t²/2
	down := intensity(t, 10, Stage{10 * time.Second, 0}) // Λ = 10t − t²/2
	jump := intensity(t, 2, Stage{5 * time.Second, 2}, Stage{0, 8}, Stage{5 * time.Second, 8})
	gap := intensity(t, 1, Stage{4 * time.Second, 1}, Stage{0, 0}, Stage{6 * time.Second, 0}, Stage{0, 1}, Stage{2 * time.Second, 1})
	late := intensity(t, 0, Stage{3 * time.Second, 0}, Stage{0, 1}, Stage{2 * time.Second, 1})
	for name, c := range map[string]struct {
		in   Intensity
		mass float64
		at   time.Duration
	}{
		"rising, start":            {up, 0, 0},
		"rising":                   {up, 8, 4 * time.Second},
		"rising, near the start":   {up, 0x1p-21, 976563},
		"falling, start":           {down, 0, 0},
		"falling":                  {down, 48, 8 * time.Second},
		"falling, near the end":    {down, 50 - 0x1p-21, 9999023438},
		"before a jump":            {jump, 9, 4500 * time.Millisecond},
		"at a jump":                {jump, 10, 5 * time.Second},
		"after a jump":             {jump, 14, 5500 * time.Millisecond},
		"before silence":           {gap, 3.5, 3500 * time.Millisecond},
		"silence is skipped":       {gap, 4, 10 * time.Second},
		"after silence":            {gap, 5, 11 * time.Second},
		"silence at the beginning": {late, 0, 3 * time.Second},
	} {
		at, ok := c.in.Inverse(c.mass)
		require.True(t, ok, name)
		require.Equal(t, c.at, at, name)
		require.InDelta(t, c.mass, c.in.Cumulative(c.at), 1e-8, name)
	}
	require.InDelta(t, 50, up.Total(), 0)
	require.InDelta(t, 50, down.Total(), 0)
	require.InDelta(t, 50, jump.Total(), 0)
	require.InDelta(t, 6, gap.Total(), 0)
	require.Equal(t, 12*time.Second, gap.Duration())
	require.InDelta(t, waveTotal, intensity(t, 0, wave...).Total(), 1e-9)

	require.InDelta(t, 4, up.Rate(4*time.Second), 1e-12)
	require.InDelta(t, 2, down.Rate(8*time.Second), 1e-12)
	require.InDelta(t, 2, jump.Rate(5*time.Second-1), 0)
	require.InDelta(t, 8, jump.Rate(5*time.Second), 0)
	require.InDelta(t, 0, gap.Rate(4*time.Second), 0)
	require.InDelta(t, 0, up.Rate(-1), 0)
	require.InDelta(t, 0, up.Rate(10*time.Second), 0)
	require.InDelta(t, 0, up.Cumulative(-1), 0)
	require.InDelta(t, 50, up.Cumulative(time.Minute), 0)

	for _, outside := range []float64{-1e-9, 50, 51, math.NaN(), math.Inf(1)} {
		_, ok := up.Inverse(outside)
		require.False(t, ok, "Inverse(%v)", outside)
	}
}

func TestIntensityZeroValue(t *testing.T) {
	var in Intensity
	require.Zero(t, in.Total())
	require.Zero(t, in.Duration())
	require.Zero(t, in.Rate(0))
	require.Zero(t, in.Cumulative(time.Second))
	_, ok := in.Inverse(0)
	require.False(t, ok)
}

// TestLongRampDownKeepsItsEnd: the last second of an hour's ramp from 1,000/s holds 0.139 arrivals at a rate of
// 0.278/s; the textbook root loses its digits there, the one taken from the end does not.
func TestLongRampDownKeepsItsEnd(t *testing.T) {
	in := intensity(t, 1_000, Stage{time.Hour, 0})
	for _, left := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		mass := 1_000 / 3_600.0 * left.Seconds() * left.Seconds() / 2
		at, ok := in.Inverse(in.Total() - mass)
		if left == time.Microsecond { // 1.4e-13 arrivals: less than a bit of 1.8 million
			require.False(t, ok)
			continue
		}
		require.True(t, ok)
		// The mass itself is known to 2⁻³³, one bit of 1.8 million, which is this much time at that rate.
		bit := 0x1p-33 / (1_000 / 3_600.0 * left.Seconds()) * 1e9
		require.InDelta(t, float64(time.Hour-left), float64(at), bit+1, "%v before the end", left)
	}
}

func drawStages(t *rapid.T) (start float64, stages []Stage) {
	rate := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, 2), rapid.Float64Range(0, 500))
	length := rapid.OneOf(rapid.Just(time.Duration(0)), rapid.Just(time.Nanosecond),
		rapid.Map(rapid.Int64Range(1, int64(3*time.Second)), func(n int64) time.Duration { return time.Duration(n) }))
	stages = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Stage {
		return Stage{Duration: length.Draw(t, "duration"), Target: rate.Draw(t, "target")}
	}), 1, 8).Draw(t, "stages")
	return rate.Draw(t, "start"), stages
}

// TestIntensityProperties: Λ grows from zero to its total, and Λ⁻¹ undoes it to the nanosecond.
func TestIntensityProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start, stages := drawStages(t)
		in, err := NewIntensity(start, stages)
		if err != nil {
			require.ErrorContains(t, err, "arrival: stages: expected a total duration above zero, got 0s")
			return
		}
		a := time.Duration(rapid.Int64Range(0, int64(in.Duration())).Draw(t, "a"))
		b := time.Duration(rapid.Int64Range(int64(a), int64(in.Duration())).Draw(t, "b"))
		require.LessOrEqual(t, in.Cumulative(a), in.Cumulative(b)+1e-12)
		require.LessOrEqual(t, in.Cumulative(b), in.Total()+1e-9)

		mass := rapid.Float64Range(0, 1).Draw(t, "share") * in.Total()
		at, ok := in.Inverse(mass)
		if !ok {
			require.GreaterOrEqual(t, mass, in.Total())
			return
		}
		require.GreaterOrEqual(t, at, time.Duration(0))
		require.LessOrEqual(t, at, in.Duration())
		// One nanosecond at the highest rate, 500/s, is 5e-7 arrivals.
		require.InDelta(t, mass, in.Cumulative(at), 5e-7)
	})
}
