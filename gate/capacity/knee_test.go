package capacity

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

func TestKneeOfAQueue(t *testing.T) {
	// Latency of a single queue, 1/(1 - load): on a logarithmic scale -ln(1 - x), furthest below its chord where the
	// slope 1/(1 - x) is that of the chord.
	var points []Point
	for load := 0.05; load < 0.96; load += 0.05 {
		points = append(points, Point{Rate: 100 * load, Latency: 10 / (1 - load)})
	}
	chord := math.Log(0.95/0.05) / 0.90
	knee, ok := FindKnee(points)
	require.True(t, ok)
	require.InDelta(t, 100*(1-1/chord), knee.Rate, 2.5)
	require.InDelta(t, knee.Rate-5, knee.Between[0], 1e-9)
	require.InDelta(t, knee.Rate+5, knee.Between[1], 1e-9)
	require.Greater(t, knee.Strength, 0.2)
}

func TestKneeNeedsATurn(t *testing.T) {
	straight := []Point{{1, 10}, {2, 20}, {3, 40}, {4, 80}, {5, 160}}
	_, ok := FindKnee(straight)
	require.False(t, ok)
	_, ok = FindKnee([]Point{{1, 10}, {2, 11}, {3, 500}})
	require.False(t, ok, "three points")
	_, ok = FindKnee([]Point{{1, 50}, {2, 40}, {3, 30}, {4, 20}})
	require.False(t, ok, "falling")
	_, ok = FindKnee([]Point{{1, 10}, {2, 0}, {3, math.NaN()}, {4, 11}, {5, 900}})
	require.False(t, ok, "only three points have a latency")
	knee, ok := FindKnee([]Point{{4, 900}, {1, 10}, {3, 9}, {3, 16}, {2, 11}})
	require.True(t, ok)
	require.InDelta(t, 3.0, knee.Rate, 0)
	require.InDelta(t, 12.0, knee.Points[2].Latency, 1e-9, "points at one rate are averaged")
}

func TestKneeAndMarginOfAResult(t *testing.T) {
	var probes []Record
	add := func(rate, p99, completed float64, status verdict.Status) {
		probes = append(probes, Record{
			ProbeRequest{N: len(probes) + 1, Rate: rate, Length: 1},
			ProbeResult{
				Verdict: status, CompletedRate: &completed,
				Latencies: map[string]verdict.Quantiles{"ttft": {N: 100, P99: p99}},
			},
		})
	}
	add(100, 90_000, 30, verdict.Fail) // beyond the first saturated rate: no latency of its own
	add(50, 20_000, 30, verdict.Fail)
	add(5, 50, 5, verdict.Pass)
	add(16, 60, 16, verdict.Pass)
	add(20, 80, 20, verdict.Pass)
	add(28, 2000, 28, verdict.Fail)
	r := newResult(wide().withDefaults(), probes, BudgetSpent)
	require.InDelta(t, 20, r.Knee.Rate, 0)
	require.Len(t, r.Knee.Points, 5)
	require.InDelta(t, 50, r.Knee.Points[4].Rate, 0)
	require.InDelta(t, 0, *r.Margin, 1e-12)
}
