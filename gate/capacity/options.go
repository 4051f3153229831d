package capacity

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Options say where to search, how closely, and at what expense. Rates are requests per second.
type Options struct {
	// Min and Max bound the search: 0 < Min < Max.
	Min float64 `json:"min"`
	Max float64 `json:"max"`
	// Tolerance is the relative width of the bracket at which the search ends, such as 0.05; between 0.001 and 0.5.
	Tolerance float64 `json:"tolerance"`
	// Estimate is where to begin, for example L/W of a short closed loop, by Little's law. 0 means that
	// nothing is known: the search begins at the geometric mean of Min and Max.
	Estimate float64 `json:"estimate,omitempty"`

	// FullSeconds is the length of the contract's steady phase, on which a rate is confirmed.
	FullSeconds float64 `json:"full_seconds"`
	// OverheadSeconds is what a probe takes beside its steady phase: warmup, drain, return to idle.
	OverheadSeconds float64 `json:"overhead_seconds,omitempty"`
	// ScreenLength is the length of a probe far from the limit, as a share of FullSeconds; 0 means 0.15.
	ScreenLength float64 `json:"screen_length,omitempty"`
	// MaxLength bounds what an INCONCLUSIVE probe is extended to, in units of FullSeconds; 0 means 1.5. At least 1.
	MaxLength float64 `json:"max_length,omitempty"`
	// MinRequests is the fewest requests that can give PASS (verdict.RequestsNeeded of the sharpest quantile). Rates that
	// bring fewer within MaxLength are not tried, and probes are
	// made long enough for it at their rate, within MaxLength.
	MinRequests int64 `json:"min_requests,omitempty"`
	// FixedLengths makes every probe FullSeconds long and stops none early: the base that savings are measured against.
	FixedLengths bool `json:"fixed_lengths,omitempty"`

	// Seed is what the probes' own seeds are derived from.
	Seed uint64 `json:"seed,omitempty"`
	// Fingerprints identify script, contract and whatever else the answer holds for, each by what it is called: a search is
	// only resumed with the same ones.
	Fingerprints map[string]string `json:"fingerprints,omitempty"`

	// MaxProbes bounds the number of probes, extensions and confirmations included; 0 means 10.
	MaxProbes int `json:"max_probes,omitempty"`
	// MaxSeconds bounds the time of all probes; 0 means no bound. No probe is begun that would not end within it.
	MaxSeconds float64 `json:"max_seconds,omitempty"`
	// GPUHourPrice and GPUs give the cost of the search; 0 means that it is not known (1 GPU for GPUs).
	GPUHourPrice float64 `json:"gpu_hour_price,omitempty"`
	GPUs         float64 `json:"gpus,omitempty"`
	// MaxCost bounds the cost, in the price's currency; 0 means no bound. It needs GPUHourPrice.
	MaxCost float64 `json:"max_cost,omitempty"`

	// Names of the fields, by their JSON names, as the user of a program knows them: errors name them so.
	Names map[string]string `json:"-"`

	// cut are attempts at probes that were cut: their time was spent, too.
	cut []Cut
	// resumedAfter is the number of the probe that a resumed search begins after; 0 for a new one.
	resumedAfter int
}

// DefaultMaxLength is what an INCONCLUSIVE probe is extended to at most, in units of the full length.
const DefaultMaxLength = 1.5

// DefaultScreenLength is the length of a probe far from the limit, as a share of the full length.
const DefaultScreenLength = 0.15

const defaultMaxProbes = 10

// highestRate is the most requests per second that a search is for.
const highestRate = 1e6

// withDefaults fills in what was left at zero.
func (o Options) withDefaults() Options {
	if o.ScreenLength == 0 {
		o.ScreenLength = DefaultScreenLength
	}
	if o.MaxLength == 0 {
		o.MaxLength = DefaultMaxLength
	}
	if o.MaxProbes == 0 {
		o.MaxProbes = defaultMaxProbes
	}
	if o.GPUs == 0 {
		o.GPUs = 1
	}
	return o
}

// Validate reports every wrong field at once.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	need := func(ok bool, field string, got any, expected string) {
		if !ok {
			errs = append(errs, fmt.Errorf("capacity: %s is %v, expected %s", o.name(field), got, expected))
		}
	}
	need(o.Min > 0 && finite(o.Min), "min", o.Min, "a rate above 0")
	need(o.Max > o.Min && o.Max <= highestRate, "max", o.Max, fmt.Sprintf("a rate above %s (%v), up to %.0f", o.name("min"), o.Min, highestRate))
	need(o.Tolerance >= 0.001 && o.Tolerance <= 0.5, "tolerance", o.Tolerance, "0.001 to 0.5")
	need(o.Estimate >= 0 && finite(o.Estimate), "estimate", o.Estimate, "a rate, or 0 for none")
	need(o.FullSeconds > 0 && finite(o.FullSeconds), "full_seconds", o.FullSeconds, "more than 0")
	need(o.OverheadSeconds >= 0 && finite(o.OverheadSeconds), "overhead_seconds", o.OverheadSeconds, "0 or more")
	need(o.ScreenLength > 0 && o.ScreenLength <= 1, "screen_length", o.ScreenLength, "above 0, up to 1")
	need(o.MaxLength >= 1 && finite(o.MaxLength), "max_length", o.MaxLength, "1 or more")
	need(o.MinRequests >= 0, "min_requests", o.MinRequests, "0 or more")
	if longest := o.FullSeconds * o.longest(); o.MinRequests > 0 && o.Max > o.Min && o.Max*longest < float64(o.MinRequests) {
		errs = append(errs, fmt.Errorf("capacity: at %s (%v) a probe brings %.0f requests at most, and the contract needs %d to pass: "+
			"lengthen the steady phase to %.0f seconds or more", o.name("max"), o.Max, o.Max*longest, o.MinRequests,
			math.Ceil(float64(o.MinRequests)/o.Max/o.longest())))
	}
	need(o.MaxProbes >= 1, "max_probes", o.MaxProbes, "1 or more")
	need(o.MaxSeconds >= 0 && finite(o.MaxSeconds), "max_seconds", o.MaxSeconds, "0 or more")
	need(o.GPUHourPrice >= 0 && finite(o.GPUHourPrice), "gpu_hour_price", o.GPUHourPrice, "0 or more")
	need(o.GPUs > 0 && finite(o.GPUs), "gpus", o.GPUs, "more than 0")
	need(o.MaxCost >= 0 && finite(o.MaxCost), "max_cost", o.MaxCost, "0 or more")
	if o.MaxCost > 0 && o.GPUHourPrice == 0 {
		errs = append(errs, fmt.Errorf("capacity: %s is set, and needs %s", o.name("max_cost"), o.name("gpu_hour_price")))
	}
	return errors.Join(errs...)
}

// name of a field, for errors.
func (o Options) name(field string) string { return cmp.Or(o.Names[field], field) }

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// longest is the length that a probe can have, in units of FullSeconds.
func (o Options) longest() float64 {
	if o.FixedLengths {
		return 1
	}
	return o.MaxLength
}

// LowestRate is the lowest rate of the range that brings MinRequests within the longest probe: below it nothing can pass.
func (o Options) LowestRate() float64 {
	o = o.withDefaults()
	return math.Max(o.Min, float64(o.MinRequests)/(o.FullSeconds*o.longest()))
}

// budgetSeconds is the time that all probes may take; +Inf where nothing bounds it.
func (o Options) budgetSeconds() float64 {
	seconds := math.Inf(1)
	if o.MaxSeconds > 0 {
		seconds = o.MaxSeconds
	}
	if o.MaxCost > 0 {
		seconds = math.Min(seconds, o.MaxCost/(o.GPUHourPrice*o.GPUs)*secondsPerHour)
	}
	return seconds
}

const secondsPerHour = 3600

// cost of so many seconds; nil where no price is known.
func (o Options) cost(seconds float64) *float64 {
	if o.GPUHourPrice == 0 {
		return nil
	}
	cost := seconds / secondsPerHour * o.GPUHourPrice * o.GPUs
	return &cost
}

// differs names what two searches do not have in common, apart from their budgets, which a resumed search may change.
func (o Options) differs(p Options) error {
	var names []string
	for _, field := range []struct {
		name string
		same bool
	}{
		{"min", o.Min == p.Min},
		{"max", o.Max == p.Max},
		{"tolerance", o.Tolerance == p.Tolerance},
		{"estimate", o.Estimate == p.Estimate},
		{"full_seconds", o.FullSeconds == p.FullSeconds},
		{"overhead_seconds", o.OverheadSeconds == p.OverheadSeconds},
		{"screen_length", o.ScreenLength == p.ScreenLength},
		{"max_length", o.MaxLength == p.MaxLength},
		{"min_requests", o.MinRequests == p.MinRequests},
		{"fixed_lengths", o.FixedLengths == p.FixedLengths},
		{"seed", o.Seed == p.Seed},
	} {
		if !field.same {
			names = append(names, o.name(field.name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Fingerprints)) {
		if o.Fingerprints[name] != p.Fingerprints[name] {
			names = append(names, name)
		}
	}
	if names == nil {
		return nil
	}
	return fmt.Errorf("capacity: the stored search is another one: it differs in %s; put that back, or begin in another directory",
		strings.Join(names, ", "))
}
