package verdict

import (
	"math"
	"strings"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

// Headroom is what one instance of a distributed test measured of itself: the values of the contract's criteria on the
// load generator, by their names. What was not measured is not in it.
func Headroom(run *results.Run, c *contract.Contract) (map[string]float64, error) {
	j := &judge{run: run, contract: c, confidence: c.Confidence, table: &table{}}
	var told Result // the same is told of the whole
	if err := j.read(&told); err != nil {
		return nil, err
	}
	measured := map[string]float64{}
	for _, criterion := range c.ClientHeadroom {
		judged, err := j.criterion(criterion)
		if err != nil {
			return nil, err
		}
		if judged.Measured != nil {
			measured[criterion.Name] = *judged.Measured
		}
	}

	return measured, nil
}

// eachInstance judges a criterion on the load generator by the worst instance: one that is at its limit spoils the
// measurements of its own requests, however idle the others are. Arrivals that were dropped are missing from the load, so
// that those of all instances count together as well.
func (j *judge) eachInstance(c contract.Criterion, out *Criterion) {
	if j.run.Info.Merged == nil || c.Section != contract.SectionClientHeadroom {
		return
	}
	instances := j.run.Info.Merged.Instances
	var worst *results.Instance
	var missing, over []string
	for i := range instances {
		instance := &instances[i]
		value, ok := instance.Headroom[c.Name]
		if !ok {
			missing = append(missing, instance.Name())

			continue
		}
		if met, known := c.Met(value); known && !met {
			over = append(over, instance.Name())
		}
		if worst == nil || value > worst.Headroom[c.Name] { // lower is better in all of them
			worst = instance
		}
	}
	if worst == nil {
		if out.Measured != nil {
			out.note("over all instances at once: none was measured by itself for this criterion")
		}

		return
	}
	if c.Stat.Kind != contract.StatCount || (len(over) > 0 && out.Verdict == Pass) {
		out.Ignored = false
		out.exact(c, worst.Headroom[c.Name])
		out.note("the worst of %d instances, %s", len(instances), worst.Name())
	}
	if len(over) > 0 {
		out.note("over the limit in %s", strings.Join(over, ", "))
	}
	if len(missing) > 0 {
		out.note("not measured in %s", strings.Join(missing, ", "))
		if out.Verdict == Pass && !c.Default {
			out.Verdict = Inconclusive
		}
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
