package merge

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// The rows of one schedule, as two instances had them: what is told of their beginnings is never more than the truth, and
// misses it by no more than the largest gap between rows.
func TestTheLeastSkewIsCertain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		truth := time.Duration(rapid.Int64Range(-5000, 5000).Draw(t, "skew")) * time.Millisecond
		var a, b []due
		at, largest := time.Unix(1000, 0), time.Duration(0)
		for row := range int64(rapid.IntRange(20, 200).Draw(t, "rows")) {
			gap := time.Duration(rng.ExpFloat64() * float64(50*time.Millisecond))
			at, largest = at.Add(gap), max(largest, gap)
			if row%2 == 0 {
				a = append(a, due{row, at})
			} else {
				b = append(b, due{row, at.Add(truth)})
			}
		}
		got, ok := leastSkew(a, b)
		require.True(t, ok)
		want := milliseconds(truth)
		if want >= 0 {
			require.LessOrEqual(t, got, want)
			require.GreaterOrEqual(t, got, max(0, want-milliseconds(largest)))
		} else {
			require.GreaterOrEqual(t, got, want)
			require.LessOrEqual(t, got, min(0, want+milliseconds(largest)))
		}
		back, ok := leastSkew(b, a)
		require.True(t, ok)
		require.InDelta(t, -got, back, 1e-9)
	})
}

func TestTheWorstScenarioCounts(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	instance := func(number int64, late map[string]time.Duration) []results.Request {
		var all []results.Request
		for scenario, by := range late {
			for row := number; row < 300; row += 3 {
				all = append(all, results.Request{Scenario: scenario, Row: row, Due: begin.Add(time.Duration(row)*10*time.Millisecond + by)})
			}
		}

		return append(all, results.Request{Scenario: "other", Row: -1, Due: begin})
	}
	skew := startSkew([][]results.Request{
		instance(0, map[string]time.Duration{"warmup": 0, "steady": 0}),
		instance(1, map[string]time.Duration{"warmup": -800 * time.Millisecond, "steady": time.Second}),
		instance(2, map[string]time.Duration{"warmup": 700 * time.Millisecond, "steady": 0}),
	})
	require.NotNil(t, skew)
	require.InDelta(t, 1500, *skew, 30, "from the earliest to the latest, in the warmup")
	require.Nil(t, startSkew([][]results.Request{instance(0, nil), instance(1, nil)}), "not by a schedule")
	require.Nil(t, startSkew([][]results.Request{instance(0, nil), nil}))
}
