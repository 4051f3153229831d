package arrival

import (
	"fmt"
	"math"
	"sort"
	"time"
)

// Stage changes the arrival rate in a straight line, as a stage of k6's ramping-arrival-rate does.
type Stage struct {
	// Duration is how long the change takes. Zero is a jump: the rate is Target from that instant on.
	Duration time.Duration
	// Target is the rate at the end of the stage, in arrivals per second.
	Target float64
}

// Intensity is a piecewise linear arrival rate λ(t) with its integral Λ(t), the number of arrivals expected
// up to t, and the inverse of Λ. All three are closed forms on each segment; nothing is stepped or summed
// over time. The zero value has no arrivals. An Intensity is immutable and safe for concurrent use.
type Intensity struct {
	segments []segment
}

// segment is one straight piece of λ. Times are nanoseconds (float64 holds whole ones exactly up to
// MaxDuration), rates arrivals per second, masses expected arrivals.
type segment struct {
	start, length  float64
	rate0, rate1   float64
	before, within float64 // Λ at the start of the segment; arrivals expected inside it
}

// NewIntensity builds the rate that starts at rate arrivals per second and follows the stages. Without stages
// the rate is constant up to MaxDuration. Rates lie in [0, MaxRate], the stages' total duration is positive
// and at most MaxDuration; the error names the field that is not so.
func NewIntensity(rate float64, stages []Stage) (Intensity, error) {
	if err := checkRate("rate", rate); err != nil {
		return Intensity{}, err
	}
	if len(stages) == 0 {
		stages = []Stage{{Duration: MaxDuration, Target: rate}}
	}
	var (
		in    = Intensity{segments: make([]segment, 0, len(stages))}
		start time.Duration
		mass  float64
	)
	for i, stage := range stages {
		if stage.Duration < 0 {
			return Intensity{}, fieldError(fmt.Sprintf("stages[%d].duration", i), "zero or more", stage.Duration)
		}
		if err := checkRate(fmt.Sprintf("stages[%d].target", i), stage.Target); err != nil {
			return Intensity{}, err
		}
		if stage.Duration > MaxDuration-start {
			return Intensity{}, fieldError(fmt.Sprintf("stages[%d].duration", i),
				fmt.Sprintf("the stages to last at most %v together", MaxDuration), stage.Duration)
		}
		if stage.Duration > 0 {
			s := segment{
				start: float64(start), length: float64(stage.Duration),
				rate0: rate, rate1: stage.Target, before: mass,
			}
			s.within = s.massUntil(s.length)
			in.segments = append(in.segments, s)
			start += stage.Duration
			mass += s.within
		}
		rate = stage.Target
	}
	if len(in.segments) == 0 {
		return Intensity{}, fieldError("stages", "a total duration above zero", time.Duration(0))
	}
	return in, nil
}

// Duration is the end of the last stage; MaxDuration for a constant rate.
func (in Intensity) Duration() time.Duration {
	if len(in.segments) == 0 {
		return 0
	}
	last := in.segments[len(in.segments)-1]
	return time.Duration(last.start) + time.Duration(last.length)
}

// Total is the number of arrivals expected over the whole Duration.
func (in Intensity) Total() float64 {
	if len(in.segments) == 0 {
		return 0
	}
	return in.segments[len(in.segments)-1].after()
}

// Rate is λ(t) in arrivals per second: zero outside [0, Duration), and the later rate where it jumps.
func (in Intensity) Rate(t time.Duration) float64 {
	i := in.segmentAt(t)
	if i < 0 {
		return 0
	}
	s := in.segments[i]
	return s.rateAt(float64(t) - s.start)
}

// Cumulative is Λ(t), the number of arrivals expected in [0, t): zero before 0, Total after Duration.
func (in Intensity) Cumulative(t time.Duration) float64 {
	if t <= 0 {
		return 0
	}
	i := in.segmentAt(t)
	if i < 0 {
		return in.Total()
	}
	s := in.segments[i]
	return s.before + s.massUntil(float64(t)-s.start)
}

// Inverse is the time at which n arrivals are expected, to the nanosecond: Λ⁻¹(n). Where Λ is flat, that is
// where the rate is zero, it is the end of the flat piece, so that an arrival falls where the rate is
// positive. It is not ok when n is negative, not a number, or not reached: n ≥ Total.
func (in Intensity) Inverse(n float64) (t time.Duration, ok bool) {
	if !(n >= 0 && n < in.Total()) {
		return 0, false
	}
	return time.Duration(math.Round(in.inverse(n))), true
}

// inverse is Inverse in unrounded nanoseconds; n at or past the total gives the end of the last segment in
// which something arrives.
func (in Intensity) inverse(n float64) float64 {
	i := sort.Search(len(in.segments), func(i int) bool { return in.segments[i].after() > n })
	if i == len(in.segments) {
		return float64(in.Duration())
	}
	s := in.segments[i]
	return s.start + s.timeOf(n-s.before)
}

func (in Intensity) segmentAt(t time.Duration) int {
	if t < 0 || t >= in.Duration() {
		return -1
	}
	at := float64(t)
	return sort.Search(len(in.segments), func(i int) bool {
		return in.segments[i].start+in.segments[i].length > at
	})
}

func (s segment) after() float64 { return s.before + s.within }

// In the formulas below every product that is added to something stands in float64(…): the language then
// forbids the compiler to fuse the two into one rounding, which it does on arm64, ppc64, s390x, riscv64 and
// amd64 v3 but not elsewhere. Sums, products, quotients and math.Sqrt are correctly rounded everywhere, so
// the result has the same bits on every machine.

// rateAt is λ at passed nanoseconds into the segment.
func (s segment) rateAt(passed float64) float64 {
	return s.rate0 + float64((s.rate1-s.rate0)*(passed/s.length))
}

// massUntil is the integral of λ over the first passed nanoseconds: the area of a trapezium.
func (s segment) massUntil(passed float64) float64 {
	return (s.rate0 + s.rateAt(passed)) / 2 * passed / 1e9
}

// timeOf inverts massUntil: the nanoseconds into the segment after which mass arrivals are expected. With
// slope a it is the root of rate0·τ + a·τ²/2 = mass in the form 2·mass/(rate0 + √(rate0² + 2·a·mass)), which
// adds numbers of one sign and so does not cancel. A falling ramp is solved from its end for the same reason:
// there the radicand would be a difference. (Vegeta's LinearPacer and k6's ramping-arrival-rate solve the
// same quadratic in the cancelling form.)
func (s segment) timeOf(mass float64) float64 {
	slope := (s.rate1 - s.rate0) / s.length * 1e9
	switch {
	case slope == 0:
		return min(mass*1e9/s.rate0, s.length)
	case slope > 0:
		return min(climb(mass, s.rate0, slope), s.length)
	default:
		return max(s.length-climb(s.within-mass, s.rate1, -slope), 0)
	}
}

// climb is the time in nanoseconds that a rate needs to collect mass arrivals while it climbs from the given
// one with a positive slope.
func climb(mass, from, slope float64) float64 {
	if mass <= 0 {
		return 0
	}
	root := math.Sqrt(float64(from*from) + float64(2*slope*mass))
	return 2 * mass / (from + root) * 1e9
}
