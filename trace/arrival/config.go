package arrival

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Limits of a schedule. They are where the arithmetic stops being exact, not where it becomes slow.
const (
	// MaxDuration is the longest run, 104 days: the whole nanoseconds that a float64 holds exactly.
	MaxDuration time.Duration = 1 << 53
	// MaxRate is one arrival per nanosecond, in arrivals per second.
	MaxRate = 1e9
	// MaxArrivals is the most arrivals, expected or asked for, of one schedule. Schedule needs eight bytes
	// for each; Stream needs none.
	MaxArrivals = 1_000_000_000
	// MinBurstiness is the smallest accepted k. There the coefficient of variation is 10 and five of six gaps
	// are shorter than a millionth of the mean: below it, a schedule is batches at one instant.
	MinBurstiness = 0.01
)

// countTolerance absorbs the rounding of Λ: an expected number of arrivals this close to a whole number is
// that number. At MaxArrivals the rounding is still ten times smaller.
const countTolerance = 1e-6

// Config says how requests arrive. Exactly one thing ends the run: Duration, Count, or the stages' total
// duration; Duration or Count may also end the stages early.
type Config struct {
	// Rate is the rate at time zero in arrivals per second, in [0, MaxRate]. Without Stages it stays so and
	// must be positive; with Stages it is where the first stage starts (k6: startRate).
	Rate float64
	// Stages change the rate, one after the other.
	Stages []Stage
	// Burstiness is k, the shape of the Gamma distribution of the gaps between arrivals, in
	// [MinBurstiness, +Inf]: 1 is a Poisson process, less is bursty, more is smooth, math.Inf(1) is constant
	// spacing. The coefficient of variation of the gaps is 1/√k. Zero is an error, not a default.
	Burstiness float64
	// Duration ends the run; every arrival is before it. Zero: not set.
	Duration time.Duration
	// Count is the number of arrivals. Zero: not set.
	Count int
	// FreeCount leaves the number of arrivals (or, with Count, the time they take) to chance, as in nature:
	// the mean rate is then kept in expectation, with a relative standard error of 1/√(k·n) over n arrivals.
	// The default is to keep it exactly: see the package comment. With Count and Stages the stages may
	// end before Count arrivals came. It makes no difference to constant spacing.
	FreeCount bool
	// Seed decides everything random. Every value is valid, zero too.
	Seed uint64
}

// Validate reports everything that is wrong with the configuration; each error names the field, what was
// expected and what was there.
func (c Config) Validate() error {
	_, err := c.plan()
	return err
}

// Intensity is the rate that the configuration asks for.
func (c Config) Intensity() (Intensity, error) {
	return NewIntensity(c.Rate, c.Stages)
}

// Length is how long the run lasts, which is past its last arrival: the duration, the stages, or for a number of arrivals the
// time in which the rate gives them. It is 0 where that is left to chance: with Count and FreeCount. The error is that of
// Validate.
func (c Config) Length() (time.Duration, error) {
	p, err := c.plan()
	if err != nil || (c.Count > 0 && p.free) {
		return 0, err
	}
	return p.end, nil
}

// plan is a checked Config with its bounds worked out.
type plan struct {
	intensity  Intensity
	burstiness float64
	seed       uint64
	// horizon is the run's length in operational time, in which one arrival is expected per unit: Λ(end).
	horizon float64
	// end is past every arrival.
	end time.Duration
	// count is the number of arrivals; with free set, their upper bound.
	count int
	free  bool
}

func (c Config) plan() (plan, error) {
	intensity, err := c.Intensity()
	if err := errors.Join(err, c.checkShape()); err != nil {
		return plan{}, err
	}
	p := plan{intensity: intensity, burstiness: c.Burstiness, seed: c.Seed}
	switch {
	case c.Count > 0:
		err = p.boundByCount(c)
	case c.Duration > 0:
		err = p.boundByTime(c, c.Duration)
	default:
		err = p.boundByTime(c, intensity.Duration())
	}
	return p, err
}

// checkShape checks what does not need the rate's integral.
func (c Config) checkShape() error {
	var errs []error
	if !(c.Burstiness >= MinBurstiness) {
		errs = append(errs, fieldError("burstiness",
			fmt.Sprintf("at least %v (1 is Poisson, +Inf constant)", MinBurstiness), c.Burstiness))
	}
	if c.Duration < 0 || c.Duration > MaxDuration {
		errs = append(errs, fieldError("duration", fmt.Sprintf("0 to %v", MaxDuration), c.Duration))
	}
	if c.Count < 0 || c.Count > MaxArrivals {
		errs = append(errs, fieldError("count", fmt.Sprintf("0 to %d", MaxArrivals), c.Count))
	}
	if c.Count > 0 && c.Duration > 0 {
		errs = append(errs, fieldError("count and duration", "one of them",
			fmt.Sprintf("count %d and duration %v", c.Count, c.Duration)))
	}
	if len(c.Stages) == 0 {
		if c.Rate == 0 {
			errs = append(errs, fieldError("rate", "above zero where there are no stages", c.Rate))
		}
		if c.Count == 0 && c.Duration == 0 {
			errs = append(errs, fieldError("count or duration", "one of them where there are no stages", "neither"))
		}
	}
	return errors.Join(errs...)
}

func (p *plan) boundByCount(c Config) error {
	p.count, p.horizon, p.free = c.Count, float64(c.Count), c.FreeCount
	total := p.intensity.Total()
	if p.horizon > total+countTolerance {
		return fieldError("count", fmt.Sprintf(
			"at most %g, the arrivals that the rate gives within %v", math.Floor(total), p.intensity.Duration()), c.Count)
	}
	p.end = p.intensity.Duration()
	if p.free {
		p.horizon = total
		return nil
	}
	p.end = max(1, min(p.end, time.Duration(math.Ceil(p.intensity.inverse(p.horizon)))))
	return nil
}

func (p *plan) boundByTime(c Config, end time.Duration) error {
	if end > p.intensity.Duration() {
		return fieldError("duration", fmt.Sprintf("at most the stages' %v", p.intensity.Duration()), end)
	}
	p.end, p.free = end, c.FreeCount
	p.horizon = p.intensity.Cumulative(end)
	switch {
	case p.horizon == 0:
		return fieldError("stages", fmt.Sprintf("a rate above zero somewhere within %v", end), "zero throughout")
	case p.horizon > MaxArrivals:
		return fieldError("rate", fmt.Sprintf("at most %d arrivals within %v", MaxArrivals, end), p.horizon)
	case math.IsInf(p.burstiness, 1):
		p.count = countBelow(p.horizon)
	case p.free:
		p.count = math.MaxInt
	default:
		p.count = roundAtRandom(p.horizon, c.Seed)
	}
	return nil
}

// countBelow is how many of the numbers 0, 1, 2 … lie below the limit.
func countBelow(limit float64) int {
	return int(math.Ceil(limit - countTolerance))
}

// roundAtRandom rounds up as often as the fraction says, so that the mean over seeds is x itself. Rounding to
// the nearest instead would give a class of 0.4 expected arrivals none, ever.
func roundAtRandom(x float64, seed uint64) int {
	if whole := math.Round(x); math.Abs(x-whole) <= countTolerance {
		return int(whole)
	}
	whole, fraction := math.Modf(x)
	const unit = 1 << 53
	if float64(NewSource(seed, "arrival/count").Uint64()>>11)/unit < fraction {
		whole++
	}
	return int(whole)
}

func checkRate(field string, rate float64) error {
	if !(rate >= 0 && rate <= MaxRate) {
		return fieldError(field, fmt.Sprintf("0 to %g arrivals per second", float64(MaxRate)), rate)
	}
	return nil
}

func fieldError(field, expected string, got any) error {
	return fmt.Errorf("arrival: %s: expected %s, got %v", field, expected, got)
}
