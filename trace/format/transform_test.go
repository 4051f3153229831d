package format

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func sample() *Trace {
	return &Trace{
		BlockSize: 4,
		Rows: []Row{
			{Due: 0, InputTokens: 5, OutputTokens: 1, HashIDs: []uint64{1, 2}},
			{Due: 10 * ms, InputTokens: 5, OutputTokens: 2, HashIDs: []uint64{1, 3}, Extra: &Extra{Session: "a", Delay: 8 * ms}},
			{Due: 30 * ms, InputTokens: 5, OutputTokens: 3},
			{Due: 40 * ms, InputTokens: 5, OutputTokens: 4},
		},
	}
}

func TestTimeWindowIsInclusive(t *testing.T) {
	in := sample()
	out, err := TimeWindow(in, Window{From: 10 * ms, To: 30 * ms}, false)
	require.NoError(t, err)
	require.Equal(t, []time.Duration{0, 20 * ms}, dues(out))
	require.Equal(t, []Label{{Kind: "window", Detail: "10ms to 30ms: 2 of 4 rows"}}, out.Labels)
	require.Equal(t, sample(), in, "the input is not changed")

	out, err = TimeWindow(in, Window{From: 11 * ms, To: 29 * ms}, false)
	require.Nil(t, out)
	require.ErrorIs(t, err, ErrEmptyWindow)
	_, err = TimeWindow(in, Window{From: 41 * ms, To: -1}, false)
	require.ErrorIs(t, err, ErrEmptyWindow)
	_, err = TimeWindow(in, Window{From: 5, To: 4}, false)
	require.EqualError(t, err, "window 5ns to 4ns: the end is before the start")
	_, err = TimeWindow(in, Window{From: -5, To: 4}, false)
	require.EqualError(t, err, "window -5ns to 4ns: the start is negative")

	in.Origin = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	out, err = TimeWindow(in, Window{From: 10 * ms, To: -1}, false)
	require.NoError(t, err)
	require.Equal(t, in.Origin.Add(10*ms), out.Origin)
	out, err = TimeWindow(in, Window{From: 10 * ms, To: -1}, true)
	require.NoError(t, err)
	require.Equal(t, in.Origin, out.Origin)
	require.Equal(t, 10*ms, out.Rows[0].Due)
}

func TestLimit(t *testing.T) {
	in := sample()
	require.Same(t, in, Limit(in, 0))
	require.Same(t, in, Limit(in, 4))
	out := Limit(in, 3)
	require.Equal(t, in.Rows[:3], out.Rows)
	require.Equal(t, []Label{{Kind: "limit", Detail: "truncated to the first 3 of 4 rows"}}, out.Labels)
	out.Rows[0].Due = 7
	require.Zero(t, in.Rows[0].Due)
}

func TestSpeedAndRate(t *testing.T) {
	in := sample()
	out, err := Speed(in, 2)
	require.NoError(t, err)
	require.Equal(t, []time.Duration{0, 5 * ms, 15 * ms, 20 * ms}, dues(out))
	require.Equal(t, 4*ms, out.Rows[1].Extra.Delay)
	require.Equal(t, []Label{{Kind: "speed", Detail: "replayed at 2 times the recorded speed"}}, out.Labels)
	require.Equal(t, sample(), in)

	mean, ok := in.MeanRate()
	require.True(t, ok)
	require.InDelta(t, 75, mean, 1e-9) // 3 gaps in 40 ms
	out, err = Rate(in, 150)
	require.NoError(t, err)
	require.Equal(t, []time.Duration{0, 5 * ms, 15 * ms, 20 * ms}, dues(out))
	require.Equal(t, "rescaled from 75 to 150 requests/s", out.Labels[0].Detail)

	same, err := Speed(in, 1)
	require.NoError(t, err)
	require.Same(t, in, same)
	for _, bad := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		_, err = Speed(in, bad)
		require.Error(t, err)
		_, err = Rate(in, bad)
		require.Error(t, err)
	}
	_, err = Speed(in, 1e-15)
	require.ErrorContains(t, err, "290 years")
	_, err = Rate(Limit(in, 1), 5)
	require.EqualError(t, err, "a trace of one row, or of one instant, has no mean rate to rescale")
}

func TestLoop(t *testing.T) {
	in := Limit(sample(), 2) // gap 10 ms: a lap is 20 ms
	out, err := Loop(in, LoopOptions{Laps: 3})
	require.NoError(t, err)
	require.Equal(t, []time.Duration{0, 10 * ms, 20 * ms, 30 * ms, 40 * ms, 50 * ms}, dues(out))
	want, _ := in.MeanRate()
	got, _ := out.MeanRate()
	require.InDelta(t, want, got, 1e-9)
	require.Equal(t, []uint64{1, 2}, out.Rows[0].HashIDs)
	require.NotContains(t, []uint64{1, 2, 3}, out.Rows[2].HashIDs[0])
	require.Equal(t, out.Rows[2].HashIDs[0], out.Rows[3].HashIDs[0], "sharing within the lap is kept")
	require.NotEqual(t, out.Rows[2].HashIDs[1], out.Rows[3].HashIDs[1])
	require.NotEqual(t, out.Rows[2].HashIDs[0], out.Rows[4].HashIDs[0])
	require.Equal(t, uint64(1), in.Rows[0].HashIDs[0])
	require.Equal(t, "loop", out.Labels[1].Kind)

	out, err = Loop(in, LoopOptions{Until: 30 * ms, SamePrefixes: true})
	require.NoError(t, err)
	require.Equal(t, []time.Duration{0, 10 * ms, 20 * ms, 30 * ms}, dues(out))
	require.Equal(t, []uint64{1, 3}, out.Rows[3].HashIDs)

	for _, o := range []LoopOptions{{}, {Laps: 1, Until: 1}, {Laps: -1}, {Laps: math.MaxInt}, {Until: math.MaxInt64}} {
		_, err = Loop(in, o)
		require.Error(t, err, "%+v", o)
	}
	_, err = Loop(Limit(in, 1), LoopOptions{Laps: 2})
	require.Error(t, err)
}

func TestLengthsOnly(t *testing.T) {
	in := sample()
	out := LengthsOnly(in)
	require.False(t, out.HasHashIDs())
	require.Nil(t, out.Rows[1].Extra)
	require.Zero(t, out.BlockSize)
	require.Equal(t, sample(), in)
}

// Rescaling keeps the order and lands on the rate that was asked for.
func TestRateProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gaps := rapid.SliceOfN(rapid.Int64Range(0, int64(time.Hour)), 2, 50).Draw(t, "gaps")
		rate := rapid.Float64Range(0.01, 1000).Draw(t, "rate")
		trace, due := &Trace{}, time.Duration(0)
		for _, g := range gaps {
			due += time.Duration(g)
			trace.Rows = append(trace.Rows, Row{Due: due})
		}
		if trace.Span() < time.Second {
			t.Skip("rounding to nanoseconds would show")
		}
		out, err := Rate(trace, rate)
		require.NoError(t, err)
		got, ok := out.MeanRate()
		require.True(t, ok)
		require.InEpsilon(t, rate, got, 1e-4)
		for i := 1; i < len(out.Rows); i++ {
			require.LessOrEqual(t, out.Rows[i-1].Due, out.Rows[i].Due)
		}
	})
}
