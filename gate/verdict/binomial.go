package verdict

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// atMost is P(X <= k) for X ~ Bin(n, p), by the regularized incomplete beta function, DLMF 8.17.5:
// P(X <= k) = I_{1-p}(n-k, k+1). It continues to real n and k, which the effective sample sizes of correlated
// requests need, and decreases in p and n and increases in k there too.
func atMost(k, n, p float64) float64 {
	switch {
	case k < 0:
		return 0
	case k >= n || p <= 0:
		return 1
	case p >= 1:
		return 0
	}
	return mathext.RegIncBeta(n-k, k+1, 1-p)
}

// atLeast is P(X >= k) for X ~ Bin(n, p): I_p(k, n-k+1).
func atLeast(k, n, p float64) float64 {
	switch {
	case k <= 0:
		return 1
	case k > n || p <= 0:
		return 0
	case p >= 1:
		return 1
	}
	return mathext.RegIncBeta(k, n-k+1, p)
}

// slack keeps an exactly met level from being missed by the last bit of the beta function.
const slack = 1e-12

func rejected(probability, level float64) bool { return probability <= level*(1+slack) }

// Sample is what a criterion on a share of requests has seen.
type Sample struct {
	// N is the number of requests that count, Over those of them that are over the limit (failures included).
	N, Over int64
	// Undecided requests are not in N: dropped arrivals, and requests that the run's end cut short before they were
	// over the limit. A pass must hold if all of them are over it, a fail if none is.
	Undecided int64
	// Inflation is the factor, 1 or more, by which correlation between requests inflates the variance of their
	// share over the limit; see VarianceInflation. 0 means 1.
	Inflation float64
}

func (s Sample) inflation() float64 { return math.Max(s.Inflation, 1) }

// Evidence is the outcome of the test of one share.
type Evidence struct {
	Status Status
	// PassP is the probability of so few requests over the limit if the tolerated share or more of all requests were
	// over it, FailP the probability of so many if no more than the tolerated share were. PASS needs the first,
	// FAIL the second to be at most 1 - confidence.
	PassP, FailP float64
	// Low and High bound the true share over the limit: each is a one-sided Clopper-Pearson bound at the confidence.
	Low, High float64
	// Needed is how many further requests would give PASS if none of them was over the limit: MLPerf's early
	// stopping. It is absent when the test is decided, and where no number suffices.
	Needed *int64
	// NeededAtShare is how many further requests would decide the test, one way or the other, if the share over the
	// limit stayed as it is. Absent when decided, and beyond a billion.
	NeededAtShare *int64
}

const maxNeeded = 1_000_000_000

// TestShare tests whether at most the share tolerated of all requests is over the limit, at a confidence between 0 and
// 1: an exact binomial test on either side, as in MLPerf's early stopping (mlcommons/inference, loadgen/
// early_stopping.cc, with its tolerance d = 0), which has the passing side only.
//
// A tolerated share of 0 (such as "== 0") cannot be shown by any number of requests. It is taken as a demand on what
// was seen: PASS if nothing was over the limit, FAIL otherwise.
func TestShare(s Sample, tolerated, confidence float64) Evidence {
	level := 1 - confidence
	if tolerated <= 0 {
		return testNone(s, level)
	}
	f := s.inflation()
	worstN, worstOver := float64(s.N+s.Undecided), float64(s.Over+s.Undecided)
	bestN, bestOver := worstN, float64(s.Over)
	e := Evidence{
		PassP: atMost(worstOver/f, worstN/f, tolerated),
		FailP: atLeast(bestOver/f, bestN/f, tolerated),
		Low:   shareBelow(bestOver/f, bestN/f, level),
		High:  shareAbove(worstOver/f, worstN/f, level),
	}
	switch {
	case tolerated >= 1 && s.N+s.Undecided > 0:
		e.Status = Pass
	case rejected(e.PassP, level):
		e.Status = Pass
	case rejected(e.FailP, level):
		e.Status = Fail
	default:
		e.Status = Inconclusive
		e.Needed = further(s, func(n float64) bool {
			return rejected(atMost(worstOver/f, n/f, tolerated), level)
		})
		e.NeededAtShare = further(s, func(n float64) bool {
			more := n - worstN
			share := 0.0
			if s.N > 0 {
				share = float64(s.Over) / float64(s.N)
			}
			over := worstOver + more*share
			return rejected(atMost(over/f, n/f, tolerated), level) ||
				rejected(atLeast((bestOver+more*share)/f, n/f, tolerated), level)
		})
	}
	return e
}

func testNone(s Sample, level float64) Evidence {
	n, f := float64(s.N+s.Undecided), s.inflation()
	e := Evidence{
		PassP: 1, FailP: 1,
		Low:  shareBelow(float64(s.Over)/f, n/f, level),
		High: shareAbove(float64(s.Over+s.Undecided)/f, n/f, level),
	}
	switch {
	case s.Over > 0:
		e.Status, e.FailP = Fail, 0
	case s.N > 0 && s.Undecided == 0:
		e.Status, e.PassP = Pass, 0
	default:
		e.Status = Inconclusive
	}
	return e
}

// further is the smallest number of requests beyond those of s from which decided holds; nil beyond maxNeeded.
func further(s Sample, decided func(n float64) bool) *int64 {
	have := s.N + s.Undecided
	step := int64(1)
	for !decided(float64(have + step)) {
		if step *= 2; step > maxNeeded {
			return nil
		}
	}
	low, high := step/2, step // not decided at low, decided at high
	for high-low > 1 {
		if middle := low + (high-low)/2; decided(float64(have + middle)) {
			high = middle
		} else {
			low = middle
		}
	}
	return &high
}

// RequestsNeeded is the smallest number of requests that give PASS with over of them over the limit, where the share
// quantile must be within it; false where no number does. It is MLPerf's early-stopping table: p99 at 99 % confidence
// needs 459, 662, 838, 2010 requests for 0, 1, 2, 10 over the limit.
func RequestsNeeded(over int64, quantile, confidence float64) (int64, bool) {
	if !(quantile > 0 && quantile < 1 && confidence > 0 && confidence < 1) || over < 0 {
		return 0, false
	}
	n := further(Sample{N: over}, func(n float64) bool {
		return rejected(atMost(float64(over), n, 1-quantile), 1-confidence)
	})
	if n == nil {
		return 0, false
	}
	return over + *n, true
}

// shareBelow is the lower, shareAbove the upper one-sided Clopper-Pearson bound (Biometrika 26, 1934) of a share.
func shareBelow(over, n, level float64) float64 {
	if over <= 0 || n <= 0 {
		return 0
	}
	return mathext.InvRegIncBeta(over, n-over+1, level)
}

func shareAbove(over, n, level float64) float64 {
	if over >= n {
		return 1
	}
	return mathext.InvRegIncBeta(over+1, n-over, 1-level)
}
