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
	// GapVariation is the coefficient of variation of the gaps between arrivals, and Gaps their number.
	GapVariation float64
	Gaps         int
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
	return Offered{Rate: float64(n) / seconds, Noise: cv / math.Sqrt(float64(n)), GapVariation: cv, Gaps: n - 1}, true
}

// Differs reports that the rate is off the asked one by more than a share, and by more than four standard deviations of
// the arrivals' own noise beside it.
func (o Offered) Differs(asked, share float64) bool {
	const deviations = 4
	return math.Abs(math.Log(o.Rate/asked)) > math.Log1p(share)+math.Log1p(deviations*o.Noise)
}

// unevenAtAll is a coefficient of variation of gaps that no constant process has, whatever its arrivals are rounded to.
const unevenAtAll = 0.25

// Contradicts reports that the gaps are clearly not those of a Gamma process with the shape that was asked for; a shape of
// +Inf is constant gaps. Gamma gaps of the shape k vary by c = 1/√k, and the logarithm of their sample's variation has the
// variance (1 + 1/k)/(2n), by the delta method from the moments of the Gamma distribution. Four of its standard deviations
// are allowed, and a quarter beside it: the sample's variation is biased downwards where gaps are bursty.
func (o Offered) Contradicts(shape float64) bool {
	if o.Gaps < fewestArrivals-1 || !(shape > 0) {
		return false
	}
	asked := 1 / math.Sqrt(shape)
	if asked < unevenAtAll {
		return o.GapVariation > 2*unevenAtAll
	}
	const deviations, bias = 4, 1.25
	allowed := deviations*math.Sqrt((1+1/shape)/(2*float64(o.Gaps))) + math.Log(bias)
	return math.Abs(math.Log(math.Max(o.GapVariation, 1e-9)/asked)) > allowed
}
