package verdict

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/stat/distuv"
)

// correlatedLatencies are Gaussian with the correlation rho between neighbours: an autoregressive process of order 1.
func correlatedLatencies(n int, rho float64, rng *rand.Rand) []float64 {
	x := make([]float64, n)
	x[0] = rng.NormFloat64()
	for i := 1; i < n; i++ {
		x[i] = rho*x[i-1] + math.Sqrt(1-rho*rho)*rng.NormFloat64()
	}
	return x
}

// correlatedCase is a quantile criterion judged on correlated requests whose true share over the limit is known.
type correlatedCase struct {
	n                    int
	rho                  float64
	tolerated, trueShare float64
	corrected            bool
}

// decide returns how often the verdict was PASS and FAIL, at a confidence of 95 %.
func (c correlatedCase) decide(trials int, seed uint64) (pass, failed float64) {
	rng := rand.New(rand.NewPCG(seed, 0xc0ffee)) //nolint:gosec // a reproducible experiment
	limit := distuv.UnitNormal.Quantile(1 - c.trueShare)
	over := func(v float64) bool { return v > limit }
	for range trials {
		values := correlatedLatencies(c.n, c.rho, rng)
		s := Sample{N: int64(c.n)}
		for _, v := range values {
			if over(v) {
				s.Over++
			}
		}
		if c.corrected {
			s.Inflation = inflation(values, over, false)
		}
		switch TestShare(s, c.tolerated, 0.95).Status {
		case Pass:
			pass++
		case Fail:
			failed++
		}
	}
	return pass / float64(trials), failed / float64(trials)
}

func TestCorrelatedRequestsDoNotFoolTheTest(t *testing.T) {
	for _, tolerated := range []float64{0.05, 0.01} {
		for _, rho := range []float64{0, 0.5, 0.9} {
			// The true share is exactly the tolerated one: neither verdict is right, each may come up in 5 %.
			pass, failed := correlatedCase{3000, rho, tolerated, tolerated, true}.decide(400, 1)
			require.LessOrEqual(t, pass, 0.11, "false PASS, rho %v, tolerated %v", rho, tolerated)
			require.LessOrEqual(t, failed, 0.09, "false FAIL, rho %v, tolerated %v", rho, tolerated)
		}
		// Taken for independent, correlated requests give wrong verdicts by the dozen.
		pass, failed := correlatedCase{3000, 0.9, tolerated, tolerated, false}.decide(400, 1)
		require.Greater(t, pass, 0.2)
		require.Greater(t, failed, 0.15)
	}
	// The correction leaves independent evidence its power.
	pass, _ := correlatedCase{3000, 0, 0.01, 0.0025, true}.decide(200, 2)
	require.GreaterOrEqual(t, pass, 0.98)
	_, failed := correlatedCase{3000, 0, 0.01, 0.03, true}.decide(200, 2)
	require.GreaterOrEqual(t, failed, 0.98)
}

func TestVarianceInflation(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a reproducible experiment
	independent := make([]float64, 30_000)
	repeated := make([]float64, 30_000)
	for i := range independent {
		independent[i] = rng.Float64()
		repeated[i] = independent[i-i%10] // each observation ten times: ten hold the evidence of one
	}
	require.InDelta(t, 1, VarianceInflation(independent), 0.5)
	require.InDelta(t, 10, VarianceInflation(repeated), 4)

	alternating := make([]float64, 3000)
	for i := range alternating {
		alternating[i] = float64(i % 2)
	}
	require.InDelta(t, 1, VarianceInflation(alternating), 0, "no credit for negative correlation")
	require.InDelta(t, 1, VarianceInflation(make([]float64, 3000)), 0, "constant")
	require.InDelta(t, 1, VarianceInflation([]float64{1, 0, 1}), 0, "too short")

	// All that is over the limit is in one block of 30: 30 ones in 900. Block length 30; the means are 1 once and 0 else,
	// with a variance of 1/30; single observations have 1/30·29/30·900/899.
	burst := make([]float64, 900)
	for i := range 30 {
		burst[300+i] = 1
	}
	require.InDelta(t, 30*(1.0/30)/(1.0/30*29/30*900/899), VarianceInflation(burst), 1e-9)
}

func TestInflationSeesClustersBelowTheLimit(t *testing.T) {
	// None is over the limit, but the worst ones stand together.
	values := make([]float64, 3000)
	rng := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // a reproducible experiment
	for i := range values {
		values[i] = rng.Float64()
		if i >= 1000 && i < 1040 {
			values[i] += 5
		}
	}
	never := func(float64) bool { return false }
	require.Greater(t, inflation(values, never, false), 10.0)
	negative := make([]float64, len(values))
	for i, v := range values {
		negative[i] = -v
	}
	require.InDelta(t, inflation(values, never, false), inflation(negative, never, true), 1e-9)
}

func TestMeanInterval(t *testing.T) {
	// 30 blocks of one value each: the textbook interval. Values 1 to 30 have the mean 15.5 and the variance 77.5;
	// t(0.95, 29) = 1.699127.
	x := make([]float64, 60)
	for i := range x {
		x[i] = float64(i/2 + 1)
	}
	in, ok := meanInterval(x, 0.95)
	require.True(t, ok)
	require.Equal(t, 30, in.blocks)
	require.InDelta(t, 15.5, in.mean, 1e-12)
	require.InDelta(t, 15.5-1.699127*math.Sqrt(77.5/30), in.low, 1e-5)
	require.InDelta(t, 15.5+1.699127*math.Sqrt(77.5/30), in.high, 1e-5)
	_, ok = meanInterval(x[:9], 0.95)
	require.False(t, ok)
}
