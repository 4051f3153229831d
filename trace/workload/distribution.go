package workload

import (
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"
)

// MaxTokens is the largest token count of a distribution: ten times the largest context in use today.
const MaxTokens = 16_777_216

// Kind names a family of distributions.
type Kind string

// The families. Means, medians and deviations are those of the whole distribution, before Min and Max cut it.
const (
	// Fixed is always Value.
	Fixed Kind = "fixed"
	// Uniform is each whole number from Min to Max, equally likely.
	Uniform Kind = "uniform"
	// Normal has Mean and StdDev.
	Normal Kind = "normal"
	// Lognormal has Mean or Median, and Sigma, the standard deviation of the logarithm.
	Lognormal Kind = "lognormal"
	// Exponential has Mean.
	Exponential Kind = "exponential"
)

func kinds() []string {
	return []string{string(Fixed), string(Uniform), string(Normal), string(Lognormal), string(Exponential)}
}

// Distribution is a distribution of a number of tokens: whole numbers from Min to Max.
//
// Min and Max truncate; they do not clip. The distribution is cut to [Min-½, Max+½) and what is left of it scaled to
// one, so that no mass piles up at the ends, and values are rounded to the nearest whole number. Drawing inverts the
// distribution function, which is the limit of drawing again until a value fits, without its loop: one uniform
// number gives one value.
type Distribution struct {
	Kind                               Kind
	Value, Mean, Median, StdDev, Sigma float64
	// Min and Max are inclusive; 0 means 1 and MaxTokens.
	Min, Max int
}

// quantile is a distribution that is ready to draw from.
type quantile struct {
	low, high  int     // whole numbers, inclusive
	from, to   float64 // the distribution function at both ends
	value      int     // of a fixed one
	continuous interface {
		CDF(x float64) float64
		Quantile(p float64) float64
	}
	uniform bool
}

// leastMass is how much of a distribution must lie within Min and Max. Where it is less, the bounds contradict the
// rest of the distribution, and the inversion runs out of digits.
const leastMass = 1e-6

// prepare checks a distribution; path is its place in the configuration, for errors.
func (d Distribution) prepare(path string) (quantile, error) {
	q := quantile{low: max(d.Min, 1), high: d.Max}
	if d.Max == 0 {
		q.high = MaxTokens
	}
	if d.Min < 0 || d.Max < 0 || q.high > MaxTokens || q.low > q.high {
		return q, fmt.Errorf("%s: expected 1 ≤ min ≤ max ≤ %d, got min %d and max %d", path, MaxTokens, d.Min, d.Max)
	}
	switch d.Kind {
	case Fixed:
		return d.fixed(path, q)
	case Uniform:
		if d.Min == 0 || d.Max == 0 {
			return q, fmt.Errorf("%s: a uniform distribution needs min and max, got min %d and max %d", path, d.Min, d.Max)
		}
		q.uniform = true
		return q, nil
	case Normal:
		if err := d.need(path, "mean", d.Mean, "stddev", d.StdDev); err != nil {
			return q, err
		}
		q.continuous = distuv.Normal{Mu: d.Mean, Sigma: d.StdDev}
	case Lognormal:
		mu, err := d.logMedian(path)
		if err != nil {
			return q, err
		}
		q.continuous = distuv.LogNormal{Mu: mu, Sigma: d.Sigma}
	case Exponential:
		if err := d.need(path, "mean", d.Mean, "mean", d.Mean); err != nil {
			return q, err
		}
		q.continuous = distuv.Exponential{Rate: 1 / d.Mean}
	default:
		return q, fmt.Errorf("%s.dist: expected one of %s, got %q", path, strings.Join(kinds(), ", "), d.Kind)
	}
	q.from, q.to = q.continuous.CDF(float64(q.low)-0.5), q.continuous.CDF(float64(q.high)+0.5)
	if q.to-q.from < leastMass {
		return q, fmt.Errorf("%s: less than one in a million of the distribution lies from min %d to max %d", path, q.low, q.high)
	}
	return q, nil
}

func (d Distribution) fixed(path string, q quantile) (quantile, error) {
	if d.Value != math.Trunc(d.Value) || d.Value < float64(q.low) || d.Value > float64(q.high) {
		return q, fmt.Errorf("%s: expected a whole number from %d to %d, got %g", path, q.low, q.high, d.Value)
	}
	q.value = int(d.Value)
	return q, nil
}

func (d Distribution) need(path, key string, value float64, other string, second float64) error {
	for _, c := range []struct {
		key   string
		value float64
	}{{key, value}, {other, second}} {
		if !(c.value > 0) || math.IsInf(c.value, 0) {
			return fmt.Errorf("%s.%s: expected a number above zero for %s, got %g", path, c.key, d.Kind, c.value)
		}
	}
	return nil
}

// logMedian is μ of the lognormal distribution: the logarithm of its median, e^μ. Its mean is e^(μ+σ²/2).
func (d Distribution) logMedian(path string) (float64, error) {
	if d.Mean != 0 && d.Median != 0 {
		return 0, fmt.Errorf("%s: expected mean or median, got both", path)
	}
	if d.Median != 0 {
		return math.Log(d.Median), d.need(path, "median", d.Median, "sigma", d.Sigma)
	}
	return math.Log(d.Mean) - d.Sigma*d.Sigma/2, d.need(path, "mean", d.Mean, "sigma", d.Sigma)
}

// at is the value at a uniform number u in (0, 1).
func (q quantile) at(u float64) int {
	switch {
	case q.value > 0:
		return q.value
	case q.uniform:
		return min(q.high, q.low+int(u*float64(q.high-q.low+1)))
	}
	x := q.continuous.Quantile(q.from + u*(q.to-q.from))
	return int(min(max(math.Round(x), float64(q.low)), float64(q.high)))
}

// parseDistribution reads a number, which is a fixed length, or an object.
func parseDistribution(path string, value any) (Distribution, error) {
	if x, ok := toNumber(value); ok {
		d := Distribution{Kind: Fixed, Value: x}
		_, err := d.prepare(path)
		return d, err
	}
	f, err := newFields(path, value)
	if err != nil {
		return Distribution{}, expected(path, "a number of tokens or an object such as {dist: 'lognormal', median: 500, sigma: 0.8}", value)
	}
	kind, err := f.text("dist")
	if err != nil {
		return Distribution{}, err
	}
	d := Distribution{Kind: Kind(kind)}
	if d.Min, err = f.whole("min", 0); err != nil {
		return Distribution{}, err
	}
	if d.Max, err = f.whole("max", 0); err != nil {
		return Distribution{}, err
	}
	for _, p := range d.parameters() {
		if *p.value, err = f.number(p.key, 0); err != nil {
			return Distribution{}, err
		}
	}
	if _, err = d.prepare(path); err != nil {
		return Distribution{}, err
	}
	return d, f.done()
}

type parameter struct {
	key   string
	value *float64
}

// parameters lists the keys that the family has.
func (d *Distribution) parameters() []parameter {
	switch d.Kind {
	case Fixed:
		return []parameter{{"value", &d.Value}}
	case Normal:
		return []parameter{{"mean", &d.Mean}, {"stddev", &d.StdDev}}
	case Lognormal:
		return []parameter{{"mean", &d.Mean}, {"median", &d.Median}, {"sigma", &d.Sigma}}
	case Exponential:
		return []parameter{{"mean", &d.Mean}}
	case Uniform:
	}
	return nil
}
