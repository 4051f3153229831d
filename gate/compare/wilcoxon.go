package compare

import (
	"math"
	"slices"
)

// signedRank is the two-sided p-value of Wilcoxon's signed-rank test (Biometrics Bulletin 1, 1945) that x is symmetric
// around 0: exact, by the distribution of the rank sum over all signs given the ranks, ties sharing the mean of theirs.
// Zeros are left out, as Wilcoxon did. It is 1 where nothing is left.
func signedRank(x []float64) float64 {
	values := slices.DeleteFunc(slices.Clone(x), func(v float64) bool { return v == 0 })
	slices.SortFunc(values, func(a, b float64) int {
		switch {
		case math.Abs(a) < math.Abs(b):
			return -1
		case math.Abs(a) > math.Abs(b):
			return 1
		}
		return 0
	})
	n := len(values)
	doubled := make([]int, n) // twice the rank: whole numbers with ties, too
	for i := 0; i < n; {
		j := i
		for j < n && math.Abs(values[j]) == math.Abs(values[i]) {
			j++
		}
		for k := i; k < j; k++ {
			doubled[k] = i + 1 + j
		}
		i = j
	}
	total, positive := 0, 0
	for i, v := range values {
		total += doubled[i]
		if v > 0 {
			positive += doubled[i]
		}
	}
	odds := make([]float64, total+1) // of each sum of the positive ranks
	odds[0] = 1
	reached := 0
	for _, rank := range doubled {
		reached += rank
		for sum := reached; sum >= 0; sum-- {
			odds[sum] /= 2
			if sum >= rank {
				odds[sum] += odds[sum-rank] / 2
			}
		}
	}
	tail := 0.0
	for sum := 0; sum <= min(positive, total-positive); sum++ {
		tail += odds[sum]
	}
	return math.Min(1, 2*tail)
}

// holm adjusts p-values for the number of tests (Holm, Scandinavian Journal of Statistics 6, 1979): with them, the chance of
// one or more false alarms among all tests is at most the level, whatever their dependence.
func holm(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		switch {
		case p[i] < p[j]:
			return -1
		case p[i] > p[j]:
			return 1
		}
		return 0
	})
	out := make([]float64, len(p))
	highest := 0.0
	for rank, i := range order {
		highest = math.Max(highest, math.Min(1, p[i]*float64(len(p)-rank)))
		out[i] = highest
	}
	return out
}
