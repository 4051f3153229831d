package capacity

import (
	"math"

	"gonum.org/v1/gonum/mathext"

	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// EarlySample is what a running probe has seen of one criterion on a share of requests.
type EarlySample struct {
	// Over is how many requests are over the limit so far, failures included; N how many are decided.
	Over, N int64
	// Planned is how many requests the probe will have seen at its planned end.
	Planned int64
	// Inflation is the factor by which correlation between requests inflates the variance of their share over the limit
	// (verdict.VarianceInflation): so many requests hold the evidence of one. Below 1 counts as 1.
	Inflation float64
}

// Early is why a probe has certainly failed.
type Early string

const (
	// NotYet means that nothing is certain.
	NotYet Early = ""
	// EarlyPlanned means that even if every further request is within the limit, the verdict at the planned end is FAIL.
	EarlyPlanned Early = "fails at the planned end even if every further request passes"
	// EarlySequential means that the evidence so far suffices, however often it was looked at.
	EarlySequential Early = "fails at the confidence by the requests so far"
)

// EarlyFail decides whether a probe has certainly failed a criterion that allows the share allowed of its requests to be
// over the limit. There are two ways.
//
// Curtailment: the verdict at the planned end would be FAIL even if all the rest passed. This is the fixed-length test
// itself, read as soon as its outcome is known (deterministic curtailment: Lan, Simon, Halperin, "Stochastically
// curtailed tests in long-term clinical trials", Sequential Analysis 1, 1982): it adds no error.
//
// A sequential test that may be looked at after every request: the likelihood ratio of the shares above allowed, mixed
// uniformly, against allowed,
//
//	E = ∫ (p/a)^over ((1-p)/(1-a))^(n-over) dp / (1-a),  p from a to 1.
//
// Under any share up to allowed E is a non-negative supermartingale that begins at 1, so by Ville's inequality it ever
// reaches 1/(1-confidence) with a probability of at most 1-confidence (Robbins, Annals of Mathematical Statistics 41,
// 1970; Howard, Ramdas, McAuliffe, Sekhon, Annals of Statistics 49, 2021). This holds for independent requests. Both
// counts are divided by Inflation, which is an approximation: overloads come in episodes, and an episode at the start of
// a run looks like a failing service. Take Inflation from EarlyInflation, and look for the first time after a twentieth of
// the probe, or use EarlyPlanned alone: so docs/capacity-search.md shows how often it errs.
//
// allowed must lie between 0 and 1, exclusively, or the answer is NotYet; so it is for counts that make no sense.
func EarlyFail(s EarlySample, allowed, confidence float64) Early {
	if !(allowed > 0 && allowed < 1 && confidence > 0 && confidence < 1) || s.Over < 0 || s.N < s.Over || s.N == 0 {
		return NotYet
	}
	planned := max(s.Planned, s.N)
	end := verdict.TestShare(verdict.Sample{N: planned, Over: s.Over, Inflation: s.Inflation}, allowed, confidence)
	if end.Status == verdict.Fail {
		return EarlyPlanned
	}
	f := math.Max(s.Inflation, 1)
	if logMixture(float64(s.Over)/f, float64(s.N)/f, allowed) >= -math.Log1p(-confidence) {
		return EarlySequential
	}
	return NotYet
}

// logMixture is ln E of EarlyFail. The integral is an incomplete beta function: B(k+1, m+1)·(1 - I_a(k+1, m+1)).
func logMixture(over, n, allowed float64) float64 {
	within := n - over
	above := mathext.RegIncBeta(within+1, over+1, 1-allowed)
	if above <= 0 {
		return math.Inf(-1)
	}
	a, _ := math.Lgamma(over + 1)
	b, _ := math.Lgamma(within + 1)
	c, _ := math.Lgamma(n + 2)
	return a + b - c + math.Log(above) -
		over*math.Log(allowed) - within*math.Log1p(-allowed) - math.Log1p(-allowed)
}

// pieces is the most independent pieces that an early decision credits a run with.
const pieces = 20

// EarlyInflation is the Inflation for EarlyFail: verdict.VarianceInflation of the requests in time order, 1 for each one
// over the limit and 0 for each within, but never so little that the run would count for more than 20 independent pieces.
// So early in a run, episodes that outlast the blocks of VarianceInflation cannot be told from independent requests.
func EarlyInflation(over []float64) float64 {
	return math.Max(verdict.VarianceInflation(over), float64(len(over))/pieces)
}
