package compare

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestSignedRank(t *testing.T) {
	require.InDelta(t, 2.0/32, signedRank([]float64{1, 2, 3, 4, 5}), 1e-12)
	require.InDelta(t, 4.0/32, signedRank([]float64{-1, 2, 3, 4, 5}), 1e-12)
	require.InDelta(t, 1.0, signedRank([]float64{-1, 1, -2, 2}), 1e-12)
	require.InDelta(t, 1.0, signedRank([]float64{0, 0}), 0)
	require.InDelta(t, 1.0, signedRank(nil), 0)
	// Ties: ranks 1.5, 1.5, 3; the smaller sum 1.5 is reached by 0, 1.5 and 1.5 of eight sums.
	require.InDelta(t, 6.0/8, signedRank([]float64{-1, 1, 2}), 1e-12)
	// The classical table: n = 10, a rank sum of 8 is the last with p <= 0.05 (P = 50/1024).
	require.InDelta(t, 50.0/1024, signedRank([]float64{-8, 1, 2, 3, 4, 5, 6, 7, 9, 10}), 1e-12)
	require.Less(t, signedRank([]float64{-8, 1, 2, 3, 4, 5, 6, 7, 9, 10}), 0.05)
	require.Greater(t, signedRank([]float64{-9, 1, 2, 3, 4, 5, 6, 7, 8, 10}), 0.05)
}

// Against all sign patterns.
func TestSignedRankIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.SliceOfN(rapid.Map(rapid.Float64Range(-3, 3), math.Round), 1, 9).Draw(t, "x")
		sum := func(signs int) float64 {
			total := 0.0
			for i, v := range x {
				rank := 0.0
				for _, w := range x {
					switch {
					case w != 0 && math.Abs(w) < math.Abs(v):
						rank++
					case w != 0 && math.Abs(w) == math.Abs(v):
						rank += 0.5
					}
				}
				if v != 0 && signs>>i&1 == 1 {
					total += rank + 0.5
				}
			}
			return total
		}
		observed, all := 0, 0
		for i, v := range x {
			if v > 0 {
				observed |= 1 << i
			}
			all |= 1 << i
		}
		extreme := math.Min(sum(observed), sum(all)-sum(observed))
		hits := 0
		for signs := range 1 << len(x) {
			if sum(signs) <= extreme+1e-9 {
				hits++
			}
		}
		require.InDelta(t, math.Min(1, 2*float64(hits)/float64(int(1)<<len(x))), signedRank(x), 1e-9)
	})
}

func TestHolm(t *testing.T) {
	require.InDeltaSlice(t, []float64{0.03, 0.06, 0.06, 0.02}, holm([]float64{0.01, 0.04, 0.03, 0.005}), 1e-12)
	require.InDeltaSlice(t, []float64{1, 1}, holm([]float64{0.6, 0.9}), 1e-12)
	require.Empty(t, holm(nil))
}

func TestWeightedQuantiles(t *testing.T) {
	b := binned{values: []float64{1, 2, 3, 4, math.Inf(1)}, bins: []int{0, 0, 1, 1, 2}}
	out := make([]float64, 3)
	b.quantiles(nil, []float64{0.2, 0.5, 0.99}, out)
	require.Equal(t, []float64{1, 3, math.Inf(1)}, out)
	b.quantiles([]float64{0, 3, 0}, []float64{0.2, 0.5, 0.99}, out)
	require.Equal(t, []float64{3, 3, 4}, out)
	b.quantiles([]float64{2, 1, 0}, []float64{0.2, 0.5, 0.99}, out)
	require.Equal(t, []float64{1, 2, 4}, out)
	b.quantiles([]float64{0, 0, 0}, []float64{0.2, 0.5, 0.99}, out)
	require.True(t, math.IsNaN(out[0]))
	require.InDelta(t, 0, logRatio(math.Inf(1), math.Inf(1)), 0)
	require.True(t, math.IsInf(logRatio(math.Inf(1), 3), -1))
	require.InDelta(t, math.Ln2, logRatio(2, 4), 1e-12)
}

// The stationary bootstrap of a mean: its standard error is right for correlated values, where an independent one is not.
func TestResamplerKeepsCorrelation(t *testing.T) {
	const n, rho = 4000, 0.9
	rng := rand.New(rand.NewPCG(1, 1))
	x := make([]float64, n)
	for i := 1; i < n; i++ {
		x[i] = rho*x[i-1] + rng.NormFloat64()
	}
	se := func(block float64) float64 {
		r := newResampler(1, 1, n, block)
		weights := make([]float64, n)
		means := make([]float64, 300)
		for i := range means {
			r.draw(weights)
			total := 0.0
			for _, w := range weights {
				total += w
			}
			require.InDelta(t, n, total, 0)
			means[i] = mean(x, weights)
		}
		return spread(means)
	}
	truth := 1 / (1 - rho) / math.Sqrt(n) // of the mean of an AR(1) process with unit noise
	require.InDelta(t, 1, se(100)/truth, 0.3)
	require.Less(t, se(1)/truth, 0.4)
	a, b := newResampler(5, 1, 50, 5), newResampler(5, 1, 50, 5)
	wa, wb := make([]float64, 50), make([]float64, 50)
	a.draw(wa)
	b.draw(wb)
	require.Equal(t, wa, wb)
	require.True(t, slices.Max(wa) > 1)
}

func TestSpread(t *testing.T) {
	require.InDelta(t, 1.0, spread([]float64{1, 2, 3}), 1e-12)
	require.True(t, math.IsInf(spread([]float64{1, 2, math.Inf(1)}), 1))
}
