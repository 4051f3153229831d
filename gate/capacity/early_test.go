package capacity

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

func TestEarlyFailDecides(t *testing.T) {
	for _, c := range []struct {
		name    string
		sample  EarlySample
		allowed float64
		want    Early
	}{
		{"nothing seen", EarlySample{Planned: 1000}, 0.05, NotYet},
		{"within the limit", EarlySample{Over: 2, N: 100, Planned: 1000}, 0.05, NotYet},
		{"overloaded", EarlySample{Over: 30, N: 100, Planned: 10_000}, 0.05, EarlySequential},
		{"the same, correlated", EarlySample{Over: 30, N: 100, Planned: 10_000, Inflation: 20}, 0.05, NotYet},
		{"certain at the end", EarlySample{Over: 63, N: 500, Planned: 1000}, 0.05, EarlyPlanned},
		{"one fewer", EarlySample{Over: 62, N: 1000, Planned: 1000}, 0.05, NotYet},
		{"p99", EarlySample{Over: 5, N: 30, Planned: 5000}, 0.01, EarlySequential},
		{"impossible counts", EarlySample{Over: 5, N: 3, Planned: 10}, 0.01, NotYet},
		{"nothing allowed", EarlySample{Over: 5, N: 30, Planned: 50}, 0, NotYet},
	} {
		require.Equal(t, c.want, EarlyFail(c.sample, c.allowed, 0.95), c.name)
	}
}

// A probe that is stopped for its planned end fails there too, whatever the rest brings.
func TestCurtailmentAgreesWithTheFixedTest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, 3000).Draw(t, "n")
		s := EarlySample{
			N: n, Over: rapid.Int64Range(0, n).Draw(t, "over"), Planned: rapid.Int64Range(n, 6000).Draw(t, "planned"),
			Inflation: rapid.Float64Range(1, 30).Draw(t, "inflation"),
		}
		allowed := rapid.Float64Range(0.001, 0.2).Draw(t, "allowed")
		end := verdict.TestShare(verdict.Sample{N: s.Planned, Over: s.Over, Inflation: s.Inflation}, allowed, 0.95)
		require.Equal(t, end.Status == verdict.Fail, EarlyFail(s, allowed, 0.95) == EarlyPlanned)
	})
}

// logMixture against the integral that it stands for, by the midpoint rule.
func TestMixtureIsTheIntegral(t *testing.T) {
	for _, c := range []struct{ over, n, allowed float64 }{{0, 10, 0.05}, {3, 30, 0.05}, {12.5, 40, 0.1}, {5, 20, 0.01}} {
		const steps = 200_000
		integral := 0.0
		for i := range steps {
			p := c.allowed + (1-c.allowed)*(float64(i)+0.5)/steps
			integral += math.Pow(p/c.allowed, c.over) * math.Pow((1-p)/(1-c.allowed), c.n-c.over) / steps
		}
		require.InEpsilon(t, integral, math.Exp(logMixture(c.over, c.n, c.allowed)), 1e-5)
	}
}

// Ville's inequality: a service exactly at its limit, looked at after every request, is stopped in at most 5 % of runs.
func TestSequentialErrorIsControlled(t *testing.T) {
	const runs, length, allowed = 1000, 2000, 0.05
	rng := rand.New(rand.NewPCG(1, 2))
	stopped := 0
	for range runs {
		over := 0.0
		for n := 1; n <= length; n++ {
			if rng.Float64() < allowed {
				over++
				if logMixture(over, float64(n), allowed) >= math.Log(20) {
					stopped++
					break
				}
			}
		}
	}
	require.LessOrEqual(t, stopped, runs*5/100)
	require.Positive(t, stopped, "the test must be able to stop at all")
}

func TestSequentialFindsAnOverloadSoon(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	over, n := 0.0, 0.0
	for logMixture(over, n, 0.05) < math.Log(20) {
		n++
		if rng.Float64() < 0.5 {
			over++
		}
	}
	require.LessOrEqual(t, n, 15.0)
}

func TestEarlyInflationBoundsTheEvidence(t *testing.T) {
	x := make([]float64, 400)
	require.InDelta(t, 20, EarlyInflation(x), 0)
	for i := range 40 { // one episode at the start: 40 requests that are hardly more than one piece
		x[i] = 1
	}
	require.InDelta(t, 20, EarlyInflation(x), 0)
	require.InDelta(t, 1, EarlyInflation(x[:5]), 0)
	s := EarlySample{Over: 40, N: 400, Planned: 20_000, Inflation: EarlyInflation(x)}
	require.Equal(t, NotYet, EarlyFail(s, 0.05, 0.95))
	s.Inflation = verdict.VarianceInflation(x)
	t.Logf("variance inflation alone is %.1f: %q", s.Inflation, EarlyFail(s, 0.05, 0.95))
	for i := range x {
		x[i] = 1
	}
	s = EarlySample{Over: 400, N: 400, Planned: 20_000, Inflation: EarlyInflation(x)}
	require.Equal(t, EarlySequential, EarlyFail(s, 0.05, 0.95), "an overload is still found")
}
