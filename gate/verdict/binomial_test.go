package verdict

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/stat/distuv"
	"pgregory.net/rapid"
)

func TestMLPerfEarlyStoppingTable(t *testing.T) {
	for over, want := range map[int64]int64{0: 459, 1: 662, 2: 838, 5: 1307, 10: 2010, 100: 12571} {
		n, ok := RequestsNeeded(over, 0.99, 0.99)
		require.True(t, ok)
		require.Equal(t, want, n, "%d over", over)

		e := TestShare(Sample{N: want, Over: over}, 0.01, 0.99)
		require.Equal(t, Pass, e.Status, "%d over in %d", over, want)
		require.Nil(t, e.Needed)
		e = TestShare(Sample{N: want - 1, Over: over}, 0.01, 0.99)
		require.Equal(t, Inconclusive, e.Status, "%d over in %d", over, want-1)
		require.Equal(t, int64(1), *e.Needed)
	}
}

func TestShareVerdicts(t *testing.T) {
	for _, c := range []struct {
		name                  string
		n, over, undecided    int64
		tolerated, confidence float64
		want                  Status
		needed, atShare       int64 // -1: absent
	}{
		{"nothing seen", 0, 0, 0, 0.05, 0.95, Inconclusive, 59, 59},
		{"p95, enough without one over", 59, 0, 0, 0.05, 0.95, Pass, -1, -1},
		{"p95, one too few", 58, 0, 0, 0.05, 0.95, Inconclusive, 1, 1},
		{"p99 from 60 samples is not a fact", 60, 0, 0, 0.01, 0.95, Inconclusive, 239, 239},
		{"p99, two of 60 over", 60, 2, 0, 0.01, 0.95, Inconclusive, 568, 41},
		{"p99, three of 60 over", 60, 3, 0, 0.01, 0.95, Fail, -1, -1},
		{"success rate 99.5 %", 598, 0, 0, 0.005, 0.95, Pass, -1, -1},
		{"all over", 5, 5, 0, 0.05, 0.95, Fail, -1, -1},
		{"as tolerated", 1000, 50, 0, 0.05, 0.95, Inconclusive, 260, -1},
		{"dropped arrivals may all be over", 59, 0, 1, 0.05, 0.95, Inconclusive, 33, 33},
		{"dropped arrivals do not make it fail", 3, 1, 10, 0.05, 0.95, Inconclusive, -2, -2},
		{"none tolerated, none seen", 10, 0, 0, 0, 0.95, Pass, -1, -1},
		{"none tolerated, one seen", 1000, 1, 0, 0, 0.95, Fail, -1, -1},
		{"none tolerated, one dropped", 1000, 0, 1, 0, 0.95, Inconclusive, -1, -1},
		{"all tolerated", 3, 3, 0, 1, 0.95, Pass, -1, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := TestShare(Sample{N: c.n, Over: c.over, Undecided: c.undecided}, c.tolerated, c.confidence)
			require.Equal(t, c.want, e.Status, "%+v", e)
			for _, check := range []struct {
				want int64
				got  *int64
			}{{c.needed, e.Needed}, {c.atShare, e.NeededAtShare}} {
				switch check.want {
				case -2:
				case -1:
					require.Nil(t, check.got)
				default:
					require.NotNil(t, check.got)
					require.Equal(t, check.want, *check.got)
				}
			}
		})
	}
}

func TestNeededIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Sample{
			N:         rapid.Int64Range(0, 3000).Draw(t, "n"),
			Inflation: rapid.Float64Range(1, 10).Draw(t, "inflation"),
		}
		s.Over = rapid.Int64Range(0, s.N/20).Draw(t, "over")
		tolerated := rapid.Float64Range(0.001, 0.2).Draw(t, "tolerated")
		confidence := rapid.Float64Range(0.8, 0.99).Draw(t, "confidence")
		e := TestShare(s, tolerated, confidence)
		if e.Needed == nil {
			return
		}
		enough, short := s, s
		enough.N += *e.Needed
		short.N += *e.Needed - 1
		if TestShare(enough, tolerated, confidence).Status != Pass || TestShare(short, tolerated, confidence).Status == Pass {
			t.Fatalf("%+v needs %d", s, *e.Needed)
		}
	})
}

func TestBinomialTailsAgreeWithTheSum(t *testing.T) {
	for _, p := range []float64{0.001, 0.05, 0.5} {
		for _, n := range []float64{1, 20, 300} {
			b := distuv.Binomial{N: n, P: p}
			sum := 0.0
			for k := 0.0; k <= n; k++ {
				require.InDelta(t, 1-sum, atLeast(k, n, p), 1e-10, "P(X>=%v), n %v, p %v", k, n, p)
				sum += b.Prob(k)
				require.InDelta(t, sum, atMost(k, n, p), 1e-10, "P(X<=%v), n %v, p %v", k, n, p)
			}
		}
	}
}

func TestBoundsAreClopperPearson(t *testing.T) {
	// One-sided at 97.5 % each: the two-sided 95 % interval of 10 of 100, R: binom.test(10, 100).
	e := TestShare(Sample{N: 100, Over: 10}, 0.05, 0.975)
	require.InDelta(t, 0.04900469, e.Low, 1e-6)
	require.InDelta(t, 0.17622260, e.High, 1e-6)
	// None of n: the upper bound is 1 - level^(1/n).
	e = TestShare(Sample{N: 59, Over: 0}, 0.05, 0.95)
	require.InDelta(t, 1-math.Pow(0.05, 1.0/59), e.High, 1e-9)
	require.Zero(t, e.Low)
	require.InDelta(t, 1, TestShare(Sample{}, 0.05, 0.95).High, 0)
}

func TestInflationCostsEvidence(t *testing.T) {
	require.Equal(t, Pass, TestShare(Sample{N: 100}, 0.05, 0.95).Status)
	e := TestShare(Sample{N: 100, Inflation: 2}, 0.05, 0.95)
	require.Equal(t, Inconclusive, e.Status)
	require.Equal(t, int64(17), *e.Needed, "58.4 effective requests, of which two real ones make one")
	require.Equal(t, Fail, TestShare(Sample{N: 100, Over: 10}, 0.05, 0.95).Status)
	require.Equal(t, Inconclusive, TestShare(Sample{N: 100, Over: 10, Inflation: 4}, 0.05, 0.95).Status)
}
