package verdict

import (
	"fmt"
	"math"
	"strings"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

// Headroom is what one instance of a distributed test measured of itself by the contract's criteria on the load generator, in the
// whole run and in each step of a staircase by its name. What was not measured is not in it.
func Headroom(run *results.Run, c *contract.Contract) (whole results.InstanceHeadroom, steps map[string]results.InstanceHeadroom, err error) {
	j := &judge{run: run, contract: c, confidence: c.Confidence, table: &table{}}
	var told Result // the same is told of the whole
	if err = j.read(&told); err != nil {
		return whole, nil, err
	}
	if whole, err = j.ownHeadroom(); err != nil {
		return whole, nil, err
	}
	steps = map[string]results.InstanceHeadroom{}
	for _, name := range j.table.steps.list {
		if name == "" {
			continue
		}
		// One that was stopped in its first step has that one alone, so that the staircase of the whole does not count.
		if steps[name], err = j.of(name).ownHeadroom(); err != nil {
			return whole, nil, fmt.Errorf("step %s: %w", name, err)
		}
	}

	return whole, steps, nil
}

// ownHeadroom measures what the criteria on the load generator are about.
func (j *judge) ownHeadroom() (results.InstanceHeadroom, error) {
	own := results.InstanceHeadroom{Headroom: map[string]float64{}, Undecided: map[string]string{}}
	for _, criterion := range j.contract.ClientHeadroom {
		// Whether enough was seen is not to depend on the limit: a reader may judge the joined evidence by another one. So the
		// limit is one that every value keeps; lower is better in all of them.
		criterion.Op, criterion.Limit = contract.OpLessEqual, contract.Limit{Absolute: pointer(math.Inf(1))}
		judged, err := j.criterion(criterion)
		if err != nil {
			return own, err
		}
		if judged.Measured == nil {
			continue
		}
		own.Headroom[criterion.Name] = *judged.Measured
		if judged.Verdict == Inconclusive {
			own.Undecided[criterion.Name] = judged.Note
		}
	}

	return own, nil
}

// ownOf is what an instance measured of itself in the time that is looked at. In a step, that of its whole run tells nothing.
func (j *judge) ownOf(instance *results.Instance) results.InstanceHeadroom {
	if j.step != "" {
		return instance.Steps[j.step]
	}

	return instance.InstanceHeadroom
}

// instancesFound is what the instances measured for one criterion on their load generators.
type instancesFound struct {
	// measured is true where one has a value; worst is the name of the one with the largest.
	measured bool
	worst    string
	value    float64
	// over have a value over the limit, missing have none.
	over, missing []string
	// undecided have values that are not enough for a pass, by the reasons, which are in the order of the instances.
	undecided map[string][]string
	reasons   []string
}

// ofInstances collects what the instances measured for a criterion.
func (j *judge) ofInstances(c contract.Criterion) instancesFound {
	f := instancesFound{undecided: map[string][]string{}}
	for i := range j.run.Info.Merged.Instances {
		instance := &j.run.Info.Merged.Instances[i]
		own, name := j.ownOf(instance), instance.Name()
		value, ok := own.Headroom[c.Name]
		if !ok {
			f.missing = append(f.missing, name)

			continue
		}
		if met, known := c.Met(value); known && !met {
			f.over = append(f.over, name)
		}
		if why, open := own.Undecided[c.Name]; open {
			if f.undecided[why] == nil {
				f.reasons = append(f.reasons, why)
			}
			f.undecided[why] = append(f.undecided[why], name)
		}
		if !f.measured || value > f.value { // lower is better in all of them
			f.measured, f.worst, f.value = true, name, value
		}
	}

	return f
}

// eachInstance judges a criterion on the load generator by the worst instance: one that is at its limit spoils the
// measurements of its own requests, however idle the others are. Arrivals that were dropped are missing from the load, so
// that those of all instances count together as well.
func (j *judge) eachInstance(c contract.Criterion, out *Criterion) {
	if j.run.Info.Merged == nil || c.Section != contract.SectionClientHeadroom {
		return
	}
	found := j.ofInstances(c)
	if !found.measured {
		if out.Measured != nil {
			out.note("over all instances at once: none was measured by itself for this criterion")
		}

		return
	}
	// What no instance saw is missing from the joined evidence as well.
	open := out.Measured != nil && out.Verdict == Inconclusive
	if c.Stat.Kind != contract.StatCount || (len(found.over) > 0 && out.Verdict == Pass) {
		out.Ignored = false
		out.exact(c, found.value)
		out.note("the worst of %d instances, %s", len(j.run.Info.Merged.Instances), found.worst)
	}
	if len(found.over) > 0 {
		out.note("over the limit in %s", strings.Join(found.over, ", "))
	}
	for _, why := range found.reasons {
		open = true
		out.note("not decided in %s: %s", strings.Join(found.undecided[why], ", "), why)
	}
	if len(found.missing) > 0 {
		out.note("not measured in %s", strings.Join(found.missing, ", "))
		open = open || !c.Default
	}
	if open && out.Verdict == Pass {
		out.Verdict = Inconclusive
	}
}

const (
	// apartMS is how far apart clocks or starts may be before it is called out, in milliseconds: the series counts in
	// seconds.
	apartMS = 1000
	// mostApartMS and mostApartShare bound how far apart the instances may have begun, in milliseconds and as a share of the
	// time that is judged. At its ends the service has a part of the load only. Within 2 % of the time that cannot move a
	// share of requests by more than 2 % of itself; and two seconds are what starting instances one after the other takes.
	mostApartMS    = 2000
	mostApartShare = 0.02
	// roundOff is how far the sum of segments may lie from the whole.
	roundOff = 1e-9
)

// tellInstances says what a reader has to know of a joined run.
func (j *judge) tellInstances(out *Result) {
	merged := j.run.Info.Merged
	if merged == nil {
		return
	}
	if merged.DuplicateRows > 0 {
		out.warn("%d rows were replayed by more than one instance: give every instance the same --execution-segment-sequence",
			merged.DuplicateRows)
	}
	if merged.Covered != nil && *merged.Covered < 1-roundOff {
		out.warn("the instances' segments make %.3g%% of the test: directories are missing, and what is in them may have failed",
			100**merged.Covered)
		out.partial = true
	}
	if skew := merged.StartSkewMS; skew != nil && *skew > apartMS {
		j.tellApart(*skew, out)
	}
	for i := range merged.Instances {
		instance := &merged.Instances[i]
		switch offset := instance.ClockOffset; {
		case offset == nil && instance.ClockUnknown != "":
			out.warn("the clock of %s could not be compared with the first instance's (%s): its times stand as its own clock "+
				"showed them", instance.Name(), instance.ClockUnknown)
		case offset == nil:
		case offset.Lower > apartMS:
			out.warn("the clock of %s is %.0f ms to %.0f ms ahead of the first instance's: its times were corrected by %.0f ms",
				instance.Name(), offset.Lower, offset.Upper, math.Abs(instance.CorrectedMS))
		case offset.Upper < -apartMS:
			out.warn("the clock of %s is %.0f ms to %.0f ms behind the first instance's: its times were corrected by %.0f ms",
				instance.Name(), -offset.Upper, -offset.Lower, math.Abs(instance.CorrectedMS))
		}
	}
}

// tellApart says that the instances began apart. Too far apart they were no one test: the verdict on the load of the schedule
// is then open.
func (j *judge) tellApart(ms float64, out *Result) {
	seconds, of := j.shortest(ms / 1000)
	if ms <= mostApartMS || ms/1000 <= mostApartShare*seconds {
		out.warn("the instances began at least %.0f ms apart: the load was not the schedule's", ms)

		return
	}
	out.warn("the instances began at least %.0f ms apart: the load was not the schedule's, and nothing passes by it (that is more than "+
		"%d s, and more than %g%% of the %.0f s of the %s)", ms, mostApartMS/1000, 100*mostApartShare, seconds, of)
	out.partial = true
}

// shortest is the length of the steady phase, or of the shortest step of a staircase, as each instance had it: the joined
// arrivals last longer by as much as the instances began apart.
func (j *judge) shortest(apart float64) (seconds float64, of string) {
	of = "steady phase"
	seconds = math.Inf(1)
	parts := j.parts()
	if len(parts) > 1 {
		of = "shortest step"
	}
	for _, part := range parts {
		span := part.span(steady)
		seconds = min(seconds, max(0, span.Last.Sub(span.First).Seconds()-apart))
	}

	return seconds, of
}
