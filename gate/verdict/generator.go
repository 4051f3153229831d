package verdict

import (
	"math"
	"slices"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

// timerDelay judges how late the load generator's timers fired, by all of them. The series has only the worst of each
// second; it stands in where the histogram is missing.
func (j *judge) timerDelay(c contract.Criterion, out *Criterion) error {
	all, err := j.run.Histograms(results.MetricTimerDelay)
	if err != nil {
		return err
	}
	merged, err := results.MergeHistograms(all, func(key results.HistogramKey) bool {
		return key.Phase == string(c.Phase) && j.inStep(key.Step)
	})
	if err != nil {
		return err
	}
	if merged == nil || merged.Count() == 0 {
		j.level(c, out)
		if out.N > 0 {
			out.note("by the worst of each second")
		}
		return nil
	}
	out.N = merged.Count()
	if limit, known := c.Limit.Value(); known {
		out.Over = merged.Above(limit)
	}
	measured := merged.Quantile(c.Stat.Quantile)
	switch c.Stat.Kind {
	case contract.StatMean:
		measured = merged.Mean()
	case contract.StatMax:
		measured = merged.Max()
	case contract.StatMin:
		measured = merged.Quantile(0)
	}
	out.exact(c, measured.Value)
	return nil
}

func (j *judge) dropped(c contract.Criterion, out *Criterion) {
	t := j.table
	rows := j.rows(string(c.Phase), c.Class)
	for _, i := range rows {
		if t.outcome[i] == results.Dropped {
			out.Over++
		}
	}
	out.N = int64(len(rows))
	if out.N == 0 {
		out.note("no arrival was seen")
		return
	}
	measured := float64(out.Over)
	if c.Unit == contract.UnitRatio {
		measured /= float64(out.N)
	}
	out.exact(c, measured)
}

// scheduleError is |started rate / scheduled rate - 1|. The schedule has its arrivals in the time from the first due one to
// the last; for the started ones it is the time from the first start to the last, in which one that was never started stands
// for itself with its due time: what is missing at the end of a schedule is missing.
func (j *judge) scheduleError(c contract.Criterion, out *Criterion) {
	t := j.table
	rows := j.rows(string(c.Phase), c.Class)
	due, took := make([]int64, 0, len(rows)), make([]int64, 0, len(rows))
	started := 0
	for _, i := range rows {
		due = append(due, t.arrival[i])
		if t.start[i] == 0 {
			took = append(took, t.arrival[i])
			continue
		}
		took = append(took, t.start[i])
		started++
	}
	out.N = int64(len(rows))
	if len(rows) < 2 {
		out.note("too few arrivals for a rate")
		out.Ignored = c.Default
		return
	}
	share := float64(started) / float64(len(rows))
	scheduled, achieved := span(due), span(took)
	if difference := achieved - scheduled; difference > punctual || difference < -punctual {
		share *= float64(scheduled) / float64(achieved)
	}
	out.exact(c, math.Abs(share-1))
}

// punctual is by how much the first and the last start may be off together: it is no other rate, however short the schedule is.
const punctual = 50 * time.Millisecond

// span is the time between the first and the last instant.
func span(nanos []int64) time.Duration {
	return time.Duration(slices.Max(nanos) - slices.Min(nanos))
}

// headroom judges the load generator by what was seen of it: nothing is inferred beyond the run.
func (j *judge) headroom(c contract.Criterion, out *Criterion) {
	column, ok := columnOf(c.Metric)
	if !ok {
		j.level(c, out)
		return
	}
	var values []float64
	for _, i := range j.rows(string(c.Phase), c.Class) {
		if v := j.table.values[column][i]; !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	j.seen(c, values, out)
}
