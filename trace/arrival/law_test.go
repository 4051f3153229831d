package arrival

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

var burstinesses = []float64{0.1, 0.25, 0.5, 1, 2, 4, 16, 100}

func schedule(t testing.TB, c Config) []time.Duration {
	t.Helper()
	due, err := Schedule(c)
	require.NoError(t, err)
	return due
}

// TestGapLaw: the distribution of the gaps, their variation and their independence, for both ways to treat
// the count. Each of the four requirePlausible calls per burstiness and mode errs at alpha; the closed
// process has its mean pinned, which can only make the Kolmogorov–Smirnov test milder.
func TestGapLaw(t *testing.T) {
	const rate, n, seeds = 50, 20_000, 8
	for _, k := range burstinesses {
		for _, free := range []bool{false, true} {
			var laws, variations, correlations []float64
			for seed := range uint64(seeds) {
				due := schedule(t, Config{Rate: rate, Burstiness: k, Count: n, FreeCount: free, Seed: seed})
				require.Len(t, due, n)
				gaps := unitGaps(due, atRate(rate))
				laws = append(laws, gapLaw(gaps, k))
				variations = append(variations, variation(gaps, k))
				correlations = append(correlations, ljungBox(gaps))
			}
			t.Logf("k=%v free=%v: p-values: law %.3f, variation %.3f, autocorrelation %.3f",
				k, free, laws, variations, correlations)
			requirePlausible(t, laws...)
			requirePlausible(t, variations...)
			requirePlausible(t, correlations...)
		}
	}
}

// TestDispersion: the index of dispersion of the counts in windows is 1/k; error rate alpha for each k. The
// windows hold a thousand arrivals, so that their counts are close enough to normal for χ² at small k.
func TestDispersion(t *testing.T) {
	const rate, n, windows, seeds = 100, 200_000, 200, 4
	end := n * time.Second / rate
	for _, k := range []float64{0.25, 0.5, 1, 2, 4} {
		var pvalues []float64
		for seed := range uint64(seeds) {
			due := schedule(t, Config{Rate: rate, Burstiness: k, Duration: end, Seed: seed})
			pvalues = append(pvalues, dispersion(due, end, windows, k))
		}
		t.Logf("k=%v: %.3f", k, pvalues)
		requirePlausible(t, pvalues...)
	}
}

// TestPoissonCountsInEverySecond: in windows as short as a second, where a generator that fills each second
// to the rate would show no variance at all. Error rate alpha.
func TestPoissonCountsInEverySecond(t *testing.T) {
	const rate, seconds = 200, 100
	var pvalues []float64
	for seed := range uint64(20) {
		due := schedule(t, Config{Rate: rate, Burstiness: 1, Duration: seconds * time.Second, Seed: seed})
		pvalues = append(pvalues, dispersion(due, seconds*time.Second, seconds, 1))
	}
	requirePlausible(t, pvalues...)
}

// TestFreeCountVaries: the number of arrivals of a free Poisson process is itself Poisson: mean and variance
// are both the expected 400, over 2,000 seeds. Error rate alpha.
func TestFreeCountVaries(t *testing.T) {
	const expected, seeds = 400, 2_000
	var squares, sum float64
	for seed := range uint64(seeds) {
		n := float64(len(schedule(t, Config{
			Rate: 40, Burstiness: 1, Duration: 10 * time.Second, FreeCount: true, Seed: seed,
		})))
		sum += n
		squares += (n - expected) * (n - expected)
	}
	law := distuv.ChiSquared{K: seeds}
	requirePlausible(t, twoSided((sum-expected*seeds)/math.Sqrt(expected*seeds)))
	requirePlausible(t, 2*min(law.CDF(squares/expected), law.Survival(squares/expected)))
}

// TestMeanRateIsKept is exact and needs no error rate: over 20,000 arrivals the mean rate, measured from the
// first to the last of them, is within 0.5 % at every burstiness, whatever bounds the run.
func TestMeanRateIsKept(t *testing.T) {
	const rate, n = 200, 20_000
	for _, k := range []float64{0.25, 0.5, 1, 2, 4, 16, 100, math.Inf(1)} {
		for seed := range uint64(20) {
			byCount := schedule(t, Config{Rate: rate, Burstiness: k, Count: n, Seed: seed})
			byTime := schedule(t, Config{Rate: rate, Burstiness: k, Duration: 100 * time.Second, Seed: seed})
			require.Equal(t, byCount, byTime, "k=%v seed=%d", k, seed)
			require.Len(t, byCount, n)
			measured := float64(n-1) / (byCount[n-1] - byCount[0]).Seconds()
			require.InEpsilon(t, rate, measured, 0.005, "k=%v seed=%d", k, seed)
		}
	}
}

// TestFractionOfAnArrival: where the expected number is not whole, the mean over seeds still is. 0.4 arrivals
// are expected; over 10,000 seeds their number is binomial. Error rate alpha.
func TestFractionOfAnArrival(t *testing.T) {
	const seeds, expected = 10_000, 0.4
	var total float64
	for seed := range uint64(seeds) {
		total += float64(len(schedule(t, Config{Rate: 0.1, Burstiness: 1, Duration: 4 * time.Second, Seed: seed})))
	}
	requirePlausible(t, twoSided((total-seeds*expected)/math.Sqrt(seeds*expected*(1-expected))))
}

// TestStationary: as many arrivals are expected in the first and in the last tenth of a run as in any other;
// error rate alpha for each burstiness. A process begun at an arrival has (1/k − 1)/2 too many at first.
func TestStationary(t *testing.T) {
	const n, seeds = 100, 3_000
	for _, k := range []float64{0.25, 1, 4} {
		for _, free := range []bool{false, true} {
			var first, last []float64
			for seed := range uint64(seeds) {
				head, tail := 0.0, 0.0
				for _, at := range schedule(t, Config{
					Rate: 10, Burstiness: k, Duration: 10 * time.Second, FreeCount: free, Seed: seed,
				}) {
					switch {
					case at < time.Second:
						head++
					case at >= 9*time.Second:
						tail++
					}
				}
				first, last = append(first, head), append(last, tail)
			}
			for _, counts := range [][]float64{first, last} {
				mean, deviation := stat.MeanStdDev(counts, nil)
				requirePlausible(t, twoSided((mean-n/10)/(deviation/math.Sqrt(seeds))))
			}
		}
	}
}

// TestFirstArrival: the time to the first arrival has the law of the time that is left of a gap seen at an
// arbitrary instant, ∫₀ˣ (1 − F), which for a Gamma distribution with mean 1 is x·(1 − F_k(x)) + F_{k+1}(x).
// Error rate alpha for each burstiness.
func TestFirstArrival(t *testing.T) {
	for _, k := range []float64{0.25, 1, 4} {
		gap, biased := distuv.Gamma{Alpha: k, Beta: k}, distuv.Gamma{Alpha: k + 1, Beta: k}
		var transformed []float64
		for seed := range uint64(5_000) {
			due := schedule(t, Config{Rate: 1, Burstiness: k, Count: 1, FreeCount: true, Seed: seed})
			x := due[0].Seconds()
			transformed = append(transformed, x*gap.Survival(x)+biased.CDF(x))
		}
		requirePlausible(t, ksUniform(transformed))
	}
}

// TestNothingHappensOnTheSecond: error rate alpha. A Poisson process with its count given is a set of
// independent uniform times, so that the Kolmogorov–Smirnov test applies to the positions within a second.
func TestNothingHappensOnTheSecond(t *testing.T) {
	for name, c := range map[string]Config{
		"constant rate": {Rate: 200, Duration: 100 * time.Second},
		"equal steps": {Rate: 100, Stages: []Stage{
			{50 * time.Second, 100}, {0, 300}, {50 * time.Second, 300},
		}},
	} {
		var uniform, near []float64
		for seed := range uint64(20) {
			c.Burstiness, c.Seed = 1, seed
			due := schedule(t, c)
			require.Len(t, due, 20_000, name)
			uniform = append(uniform, fractions(due))
			near = append(near, onTheSecond(due))
		}
		requirePlausible(t, uniform...)
		requirePlausible(t, near...)
	}
}

// wave has every kind of piece: a ramp from zero, a plateau, jumps down and up, silence, a ramp to zero.
var wave = []Stage{
	{40 * time.Second, 100},
	{40 * time.Second, 100},
	{0, 20},
	{50 * time.Second, 20},
	{0, 0},
	{10 * time.Second, 0},
	{0, 300},
	{10 * time.Second, 300},
	{40 * time.Second, 50},
	{60 * time.Second, 0},
}

// waveTotal is the area under wave, by hand.
const waveTotal = 2_000 + 4_000 + 1_000 + 3_000 + 7_000 + 1_500

// waveCumulative is the integral of wave, written out apart from the code under test.
func waveCumulative(at time.Duration) float64 {
	t, sum := at.Seconds(), 0.0
	for _, piece := range [][3]float64{ // seconds, rate at the start, rate at the end
		{40, 0, 100},
		{40, 100, 100},
		{50, 20, 20},
		{10, 0, 0},
		{10, 300, 300},
		{40, 300, 50},
		{60, 50, 0},
	} {
		inside := min(max(t, 0), piece[0])
		sum += piece[1]*inside + (piece[2]-piece[1])/piece[0]*inside*inside/2
		t -= piece[0]
	}
	return sum
}

// TestRampsFollowTheirIntegral: Poisson counts in one-second bins against the area under the rate; error rate
// alpha.
func TestRampsFollowTheirIntegral(t *testing.T) {
	const bins = 250
	var pvalues []float64
	for seed := range uint64(10) {
		due := schedule(t, Config{Stages: wave, Burstiness: 1, Seed: seed})
		require.Len(t, due, waveTotal)
		pvalues = append(pvalues, binned(due, bins))
	}
	t.Logf("%.3f", pvalues)
	requirePlausible(t, pvalues...)
}

// binned is the χ² test of arrivals in one-second bins against waveCumulative. Bins in which fewer than five
// arrivals are expected are joined to the next.
func binned(due []time.Duration, bins int) float64 {
	var observed, expected []float64
	next, count, from := 0, 0.0, 0.0
	for bin := range bins {
		edge := time.Duration(bin+1) * time.Second
		for next < len(due) && due[next] < edge {
			count++
			next++
		}
		if area := waveCumulative(edge) - from; area >= 5 || bin == bins-1 && area > 0 {
			observed, expected = append(observed, count), append(expected, area)
			from += area
			count = 0
		}
	}
	return chiSquared(observed, expected, len(observed)-1)
}

// TestTimeRescaling: by the time-rescaling theorem (Brown et al. 2002) the arrivals of a ramp, put through the
// integral of its rate, are again the unit-rate renewal process. Error rate alpha for each statistic and
// burstiness.
func TestTimeRescaling(t *testing.T) {
	for _, k := range []float64{0.25, 1, 4} {
		var laws, variations, correlations []float64
		for seed := range uint64(8) {
			gaps := unitGaps(schedule(t, Config{Stages: wave, Burstiness: k, Seed: seed}), waveCumulative)
			laws = append(laws, gapLaw(gaps, k))
			variations = append(variations, variation(gaps, k))
			correlations = append(correlations, ljungBox(gaps))
		}
		requirePlausible(t, laws...)
		requirePlausible(t, variations...)
		requirePlausible(t, correlations...)
	}
}

// TestSilenceIsSilent: nothing arrives while the rate is zero.
func TestSilenceIsSilent(t *testing.T) {
	for _, k := range []float64{0.1, 1, 10, math.Inf(1)} {
		for _, at := range schedule(t, Config{Stages: wave, Burstiness: k}) {
			require.False(t, at >= 130*time.Second && at < 140*time.Second, "k=%v: arrival at %v", k, at)
		}
	}
}

// TestStatisticsRejectWrongGenerators shows that the tests above have teeth: each generator here makes a
// mistake that load generators in use make, and the statistic named beside it must reject it by far more than
// any error rate above.
func TestStatisticsRejectWrongGenerators(t *testing.T) {
	const rate, n, rejected = 200, 20_000, 1e-9
	source := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // a fixed stream for a test
	accumulate := func(gap func() float64) []time.Duration {
		due, at := make([]time.Duration, n), 0.0
		for i := range due {
			at += gap()
			due[i] = time.Duration(at * 1e9)
		}
		return due
	}
	unit := func(due []time.Duration) []float64 { return unitGaps(due, atRate(rate)) }

	t.Run("gaps rescaled to fill each second", func(t *testing.T) {
		var due []time.Duration
		for second := range n / rate {
			var gaps [rate]float64
			sum, at := 0.0, 0.0
			for i := range gaps {
				gaps[i] = source.ExpFloat64()
				sum += gaps[i]
			}
			for _, g := range gaps {
				at += g / sum
				due = append(due, time.Duration(second)*time.Second+time.Duration(math.Round(at*1e9)))
			}
		}
		require.Less(t, dispersion(due[:n-1], n*time.Second/rate, n/rate, 1), rejected)
		require.Less(t, onTheSecond(due), rejected)
	})
	t.Run("k and 1/k exchanged", func(t *testing.T) {
		for _, k := range []float64{0.5, 4} {
			due := schedule(t, Config{Rate: rate, Burstiness: 1 / k, Count: n})
			require.Less(t, gapLaw(unit(due), k), rejected)
			require.Less(t, variation(unit(due), k), rejected)
			require.Less(t, dispersion(due, n*time.Second/rate, 50, k), rejected)
		}
	})
	t.Run("ten percent wrong k", func(t *testing.T) {
		due := schedule(t, Config{Rate: rate, Burstiness: 1.1, Count: n})
		require.Less(t, variation(unit(due), 1), 1e-6)
	})
	t.Run("k not undone in the scale", func(t *testing.T) {
		due := accumulate(func() float64 { return distuv.Gamma{Alpha: 4, Beta: rate, Src: source}.Rand() })
		require.Less(t, gapLaw(unit(due), 4), rejected)
	})
	t.Run("each gap depends on the last", func(t *testing.T) {
		last := 1.0
		due := accumulate(func() float64 {
			last = 0.1*last + 0.9*source.ExpFloat64()
			return last / rate
		})
		require.Less(t, ljungBox(unit(due)), rejected)
	})
	t.Run("whole milliseconds", func(t *testing.T) {
		due := schedule(t, Config{Rate: rate, Burstiness: 1, Count: n})
		for i := range due {
			due[i] = due[i].Truncate(time.Millisecond)
		}
		require.Less(t, gapLaw(unit(due), 1), rejected)
	})
	t.Run("normal gaps", func(t *testing.T) {
		due := accumulate(func() float64 { return max(0, 1+source.NormFloat64()/2) / rate })
		require.Less(t, gapLaw(unit(due), 4), rejected)
	})
	t.Run("ramp by request index", func(t *testing.T) { // 0 to 300/s over the run, as if n were time
		var due []time.Duration
		for i, at := 1, 0.0; at < 250; i++ {
			at += source.ExpFloat64() / (300 * float64(i) / waveTotal)
			due = append(due, time.Duration(at*1e9))
		}
		require.Less(t, binned(due, 250), rejected)
	})
	t.Run("gap divided by the rate at its start", func(t *testing.T) {
		in, err := NewIntensity(0, wave)
		require.NoError(t, err)
		var due []time.Duration
		for at := time.Millisecond; at < in.Duration(); {
			at += time.Duration(source.ExpFloat64() / max(in.Rate(at), 0.1) * 1e9)
			due = append(due, at)
		}
		require.Less(t, binned(due, 250), rejected)
	})
	t.Run("ramps as steps of their mean", func(t *testing.T) {
		steps := []Stage{}
		for i, stage := range wave {
			from := 0.0
			if i > 0 {
				from = wave[i-1].Target
			}
			if stage.Duration > 0 {
				steps = append(steps, Stage{0, (from + stage.Target) / 2}, Stage{stage.Duration, (from + stage.Target) / 2})
			}
		}
		due := schedule(t, Config{Stages: steps, Burstiness: 1})
		require.Less(t, binned(due, 250), rejected)
		require.Less(t, gapLaw(unitGaps(due, waveCumulative), 1), rejected)
	})
}
