package arrival

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Each statistical test states its error rate alpha: the probability that a correct generator would fail it,
// taken over the choice of the fixed seeds. Once the seeds are fixed the tests are deterministic.
const alpha = 1e-3

// requirePlausible fails when the p-values, of which a correct generator's are uniform (or larger), are too
// small to believe: the smallest one by Bonferroni, or all of them together by Fisher's method (−2·Σ ln p is
// χ² with 2m degrees of freedom), each at alpha/2. Fisher's part needs independent tests.
func requirePlausible(t *testing.T, pvalues ...float64) {
	t.Helper()
	require.NotEmpty(t, pvalues)
	smallest := slices.Min(pvalues)
	require.Greater(t, smallest, alpha/2/float64(len(pvalues)), "smallest of %d p-values", len(pvalues))
	require.Greater(t, fisher(pvalues), alpha/2, "combined p-value of %v", pvalues)
}

func fisher(pvalues []float64) float64 {
	var sum float64
	for _, p := range pvalues {
		sum -= 2 * math.Log(max(p, math.SmallestNonzeroFloat64))
	}
	return distuv.ChiSquared{K: 2 * float64(len(pvalues))}.Survival(sum)
}

// ksUniform is the p-value of the Kolmogorov–Smirnov test that the values are uniform on [0, 1]. The
// distribution is Kolmogorov's, Q(λ) = 2·Σ (−1)^(j−1)·exp(−2j²λ²), with the finite-sample λ of M. Stephens,
// "Use of the Kolmogorov–Smirnov, Cramér–von Mises and related statistics without extensive tables",
// J. R. Stat. Soc. B 32 (1970).
func ksUniform(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := float64(len(sorted))
	var distance float64
	for i, v := range sorted {
		distance = max(distance, v-float64(i)/n, float64(i+1)/n-v)
	}
	lambda := (math.Sqrt(n) + 0.12 + 0.11/math.Sqrt(n)) * distance
	if lambda < 0.2 {
		return 1 // the series converges slowly there; Q(0.2) is 1 to fifteen digits
	}
	var p float64
	for j := 1.0; j <= 100; j++ {
		p += 2 * math.Pow(-1, j-1) * math.Exp(-2*j*j*lambda*lambda)
	}
	return min(max(p, 0), 1)
}

func chiSquared(observed, expected []float64, degrees int) float64 {
	var sum float64
	for i := range observed {
		sum += (observed[i] - expected[i]) * (observed[i] - expected[i]) / expected[i]
	}
	return distuv.ChiSquared{K: float64(degrees)}.Survival(sum)
}

// twoSided is the p-value of a standard normal statistic.
func twoSided(z float64) float64 { return math.Erfc(math.Abs(z) / math.Sqrt2) }

// unitGaps are the gaps in operational time, given the expected number of arrivals up to each time. The first
// one, from the start to the first arrival, has another law and is left out.
func unitGaps(due []time.Duration, cumulative func(time.Duration) float64) []float64 {
	gaps := make([]float64, 0, len(due))
	for i := 1; i < len(due); i++ {
		gaps = append(gaps, cumulative(due[i])-cumulative(due[i-1]))
	}
	return gaps
}

func atRate(rate float64) func(time.Duration) float64 {
	return func(t time.Duration) float64 { return rate * t.Seconds() }
}

// gapLaw tests unit gaps against the Gamma distribution with shape k and mean 1. A gap on the grid of
// operational time stands for the interval that was rounded to it; the probability transform is drawn
// uniformly inside that interval, which makes it exactly uniform (A. Brockwell, "Universal residuals: a
// multivariate transformation", Stat. Prob. Lett. 77 (2007)).
func gapLaw(gaps []float64, k float64) float64 {
	const half = 0x1p-21 // of the documented grid
	law := distuv.Gamma{Alpha: k, Beta: k}
	dither := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a fixed stream for a test statistic
	transformed := make([]float64, len(gaps))
	for i, g := range gaps {
		low, high := law.CDF(g-half), law.CDF(g+half)
		transformed[i] = low + dither.Float64()*(high-low)
	}
	return ksUniform(transformed)
}

// variation tests the coefficient of variation against 1/√k. The delta method gives its standard error for
// any distribution as CV·√((CV² + (μ4/σ⁴ − 1)/4 − skewness·CV)/n); for a Gamma distribution with shape k that
// is CV·√((k+1)/(2kn)).
func variation(gaps []float64, k float64) float64 {
	mean, deviation := stat.MeanStdDev(gaps, nil)
	cv := 1 / math.Sqrt(k)
	return twoSided((deviation/mean - cv) / (cv * math.Sqrt((k+1)/(2*k*float64(len(gaps))))))
}

// ljungBox tests that there is no autocorrelation at lags 1 to 20. Source: G. Ljung, G. Box, "On a measure of
// lack of fit in time series models", Biometrika 65 (1978).
func ljungBox(gaps []float64) float64 {
	const lags = 20
	n := float64(len(gaps))
	mean, variance := stat.PopMeanVariance(gaps, nil)
	var q float64
	for lag := 1; lag <= lags; lag++ {
		var product float64
		for i := lag; i < len(gaps); i++ {
			product += (gaps[i] - mean) * (gaps[i-lag] - mean)
		}
		correlation := product / (n * variance)
		q += n * (n + 2) * correlation * correlation / (n - float64(lag))
	}
	return distuv.ChiSquared{K: lags}.Survival(q)
}

// dispersion tests the index of dispersion of the counts in equal windows. Over w expected arrivals the
// variance of a stationary Gamma renewal process is w/k + (1 − 1/k²)/6 (D. Cox, "Renewal theory", 1962,
// with the moments of the Gamma distribution), so that the index tends to CV² = 1/k; a Poisson process
// has exactly 1. With the total given, the sum of squares over that variance is χ² with one degree of freedom
// less than there are windows. The test is two-sided: too regular is as wrong as too bursty.
func dispersion(due []time.Duration, end time.Duration, windows int, k float64) float64 {
	counts := make([]float64, windows)
	for _, t := range due {
		counts[int(float64(t)/float64(end)*float64(windows))]++
	}
	mean, sum := float64(len(due))/float64(windows), 0.0
	for _, c := range counts {
		sum += (c - mean) * (c - mean)
	}
	law := distuv.ChiSquared{K: float64(windows - 1)}
	statistic := sum / (mean/k + (1-1/(k*k))/6)
	return 2 * min(law.CDF(statistic), law.Survival(statistic))
}

// fractions tests that the arrivals' positions within their second are uniform.
func fractions(due []time.Duration) float64 {
	parts := make([]float64, len(due))
	for i, t := range due {
		parts[i] = (t % time.Second).Seconds()
	}
	return ksUniform(parts)
}

// onTheSecond is the p-value of the number of arrivals within a microsecond of a whole second: Poisson with
// 2 µs/s times their number, a point process that knows nothing of seconds being given.
func onTheSecond(due []time.Duration) float64 {
	near := 0
	for _, t := range due {
		if part := t % time.Second; part < time.Microsecond || part > time.Second-time.Microsecond {
			near++
		}
	}
	law := distuv.Poisson{Lambda: 2e-6 * float64(len(due))}
	return law.Survival(float64(near) - 1)
}

// TestTestStatistics pins the statistics themselves: a wrong p-value would let a wrong generator pass.
func TestTestStatistics(t *testing.T) {
	// Kolmogorov's distribution has its 95th percentile at 1.3581 and its median at 0.82757.
	const n = 100_000
	for lambda, p := range map[float64]float64{1.3581: 0.05, 0.82757: 0.5, 1.6276: 0.01} {
		shift := lambda / math.Sqrt(n)
		values := make([]float64, n)
		for i := range values {
			values[i] = math.Min(float64(i)/n+shift, 1)
		}
		require.InDelta(t, p, ksUniform(values), 1e-3, "λ = %v", lambda)
	}
	require.InDelta(t, 0.05, twoSided(1.959964), 1e-6)
	require.InDelta(t, 0.05, chiSquared([]float64{10 + math.Sqrt(38.41459)}, []float64{10}, 1), 1e-6)
	require.InDelta(t, 0.01, fisher([]float64{0.01}), 1e-12)
	require.InDelta(t, 0.01*(1-math.Log(0.01)), fisher([]float64{0.1, 0.1}), 1e-12)
}
