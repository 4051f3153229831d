package capacity

import (
	"math"
	"slices"
)

// Offered is the rate of arrivals that a probe saw against the one it was asked for.
type Offered struct {
	// Rate of the arrivals, per second, and Noise: its standard deviation as a share of it, that the arrivals' own
	// irregularity explains. A renewal process of N arrivals whose gaps have the coefficient of variation c has a count
	// with a standard deviation of c·√N (Cox, Renewal Theory, 1962, section 3.3).
	Rate, Noise float64
}

// fewestArrivals is what a rate is read off from.
const fewestArrivals = 20

// OfferedRate reads the rate off arrivals in seconds, in any order, over a phase of so many seconds; false where they are
// too few.
func OfferedRate(arrivals []float64, seconds float64) (Offered, bool) {
	n := len(arrivals)
	if n < fewestArrivals || !(seconds > 0) {
		return Offered{}, false
	}
	sorted := slices.Clone(arrivals)
	slices.Sort(sorted)
	mean := (sorted[n-1] - sorted[0]) / float64(n-1)
	if !(mean > 0) {
		return Offered{}, false
	}
	squares := 0.0
	for i := 1; i < n; i++ {
		d := sorted[i] - sorted[i-1] - mean
		squares += d * d
	}
	cv := math.Sqrt(squares/float64(n-2)) / mean
	return Offered{Rate: float64(n) / seconds, Noise: cv / math.Sqrt(float64(n))}, true
}

// Differs reports that the rate is off the asked one by more than a share, and by more than four standard deviations of
// the arrivals' own noise beside it.
func (o Offered) Differs(asked, share float64) bool {
	const deviations = 4
	return math.Abs(math.Log(o.Rate/asked)) > math.Log1p(share)+math.Log1p(deviations*o.Noise)
}
