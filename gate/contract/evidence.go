package contract

import "math"

// RequestsNeeded returns the smallest number of requests from which a share of good ones of at least
// quantile can be shown at the given confidence, when not a single request is bad: the smallest n with
// quantile^n <= 1 − confidence. It is the first line of MLPerf's early-stopping table: 459 for p99 at a
// confidence of 99 % (MLPerf Inference policies, "early stopping criterion"). ok is false where no number
// suffices: a share of 1 can be refuted but never be shown, and arguments outside (0, 1) mean nothing.
func RequestsNeeded(quantile, confidence float64) (n int, ok bool) {
	if !(quantile > 0 && quantile < 1 && confidence > 0 && confidence < 1) {
		return 0, false
	}
	exact := math.Log1p(-confidence) / math.Log(quantile)
	// The margin keeps 2.0000000000000004 from becoming 3 where the answer is exactly 2.
	rounded := math.Ceil(exact * (1 - 1e-12))
	if rounded > math.MaxInt32 {
		return 0, false
	}
	return max(1, int(rounded)), true
}
