package merge

import (
	"math/big"
	"slices"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/clock"
	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// part is the evidence of one instance.
type part struct {
	*results.Run
	instance *results.Instance
}

// corrected is a time of the instance by the first instance's clock.
func (p part) corrected(t time.Time) time.Time {
	if t.IsZero() || p.instance.CorrectedMS == 0 {
		return t
	}

	return t.Add(-time.Duration(p.instance.CorrectedMS * float64(time.Millisecond)))
}

// correctInfo corrects the times in what the run says of itself.
func (p part) correctInfo() {
	info := &p.Info
	info.Started, info.Ended = p.corrected(info.Started), p.corrected(info.Ended)
	for _, spans := range []*[]results.Span{&info.Phases, &info.Steps} {
		*spans = slices.Clone(*spans)
		for i := range *spans {
			span := &(*spans)[i]
			span.Start, span.End = p.corrected(span.Start), p.corrected(span.End)
		}
	}
	if info.Aborted != nil {
		aborted := *info.Aborted
		aborted.At = p.corrected(aborted.At)
		info.Aborted = &aborted
	}
}

// describe tells what each instance is: its clock against the first one's, and what it measured of itself.
func describe(runs []*results.Run, agreed *contract.Contract) ([]results.Instance, error) {
	instances := make([]results.Instance, len(runs))
	var reference []results.ClockReading
	for i, run := range runs {
		of := &instances[i]
		of.Segment, of.Host, of.Started, of.Ended = run.Info.Segment, run.Info.Host, run.Info.Started, run.Info.Ended
		readings, err := clockReadings(run)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			reference = readings
		} else {
			compareClocks(of, readings, reference)
		}
		if agreed == nil {
			continue
		}
		if of.InstanceHeadroom, of.Steps, err = verdict.Headroom(run, agreed); err != nil {
			return nil, err //nolint:wrapcheck // names the file
		}
	}

	return instances, nil
}

func clockReadings(run *results.Run) ([]results.ClockReading, error) {
	var all []results.ClockReading
	_, err := run.Series(func(s *results.Sample) error {
		all = append(all, s.Clock...)

		return nil
	})

	return all, err //nolint:wrapcheck // names the file
}

func compareClocks(of *results.Instance, readings, reference []results.ClockReading) {
	offset, err := clock.Offset(readings, reference)
	if err != nil {
		of.ClockUnknown = err.Error()

		return
	}
	of.ClockOffset = &offset
	if offset.Certain() {
		of.CorrectedMS = offset.Middle()
	}
}

// covered is the sum of the instances' execution segments, such as "1/3:2/3"; nil where one names none, as a run of the
// whole does.
func covered(instances []results.Instance) *float64 {
	total := new(big.Rat)
	for _, instance := range instances {
		begin, end, ok := span(instance.Segment)
		if !ok {
			return nil
		}
		total.Add(total, end.Sub(end, begin))
	}
	share, _ := total.Float64()

	return &share
}
