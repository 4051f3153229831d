package merge

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// due is when a row of a scenario's trace was due, by the clock of the joined run.
type due struct {
	row int64
	at  time.Time
}

// schedules are the rows of each scenario, in the order of the rows.
func schedules(requests []results.Request) map[string][]due {
	out := map[string][]due{}
	for i := range requests {
		if r := &requests[i]; r.Row >= 0 && r.Attempt <= 1 && !r.Due.IsZero() {
			out[r.Scenario] = append(out[r.Scenario], due{r.Row, r.Due})
		}
	}
	for _, rows := range out {
		slices.SortFunc(rows, func(a, b due) int { return cmp.Compare(a.row, b.row) })
	}

	return out
}

// leastSkew is the least time, in milliseconds, by which b began the same schedule after a (before it, where it is below
// zero). Due times rise with the rows of the one trace: a row of b is not due before the row of a that precedes it, but for
// what b began earlier. So each pair of neighbours bounds the difference of the two beginnings from one side; of the values
// within the bounds the one next to zero is what is certain. ok is false where the rows do not bound it from both.
func leastSkew(a, b []due) (ms float64, ok bool) {
	lower, upper := math.Inf(-1), math.Inf(1)
	for i, j := 0, 0; i < len(a) || j < len(b); {
		if j == len(b) || (i < len(a) && a[i].row < b[j].row) {
			if j > 0 {
				lower = math.Max(lower, milliseconds(b[j-1].at.Sub(a[i].at)))
			}
			i++
		} else {
			if i > 0 {
				upper = math.Min(upper, milliseconds(b[j].at.Sub(a[i-1].at)))
			}
			j++
		}
	}

	return math.Max(lower, math.Min(0, upper)), !math.IsInf(lower, 0) && !math.IsInf(upper, 0)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// firstArrivals are the first arrivals of each scenario. Requests are in the order of their arrival.
func firstArrivals(requests []results.Request) map[string]time.Time {
	out := map[string]time.Time{}
	for i := range requests {
		if r := &requests[i]; r.Attempt <= 1 {
			if _, seen := out[r.Scenario]; !seen {
				out[r.Scenario] = r.Arrival()
			}
		}
	}

	return out
}

// leastApart is the least time, in milliseconds, by which b began after a, by their first arrivals, each of which came
// within a reach of the beginning.
func leastApart(a, b time.Time, reachA, reachB time.Duration) float64 {
	later := b.Sub(a)

	return milliseconds(max(later-reachB, min(0, later+reachA)))
}

// startSkew is how far apart the instances certainly began, the worst of the scenarios; nil where nothing bounds it. Rows of
// one trace do so closely. Of the load of k6's own executors no arrival has a number, so that only the first ones tell.
func startSkew(parts []part, all [][]results.Request) (*float64, error) {
	options, err := scenarios(parts[0].Run)
	if err != nil {
		return nil, err
	}
	reaches := func(name string, i int) (time.Duration, bool) {
		return options[name].reach(share(parts[i].Info.Segment))
	}
	rows, begun := schedules(all[0]), firstArrivals(all[0])
	var worst *float64
	low, high := map[string]float64{}, map[string]float64{}
	for i := 1; i < len(all); i++ {
		otherRows := schedules(all[i])
		for name, at := range firstArrivals(all[i]) {
			ms, ok := leastSkew(rows[name], otherRows[name])
			if first, both := begun[name]; !ok && both {
				reachFirst, known := reaches(name, 0)
				reach, knownToo := reaches(name, i)
				ms, ok = leastApart(first, at, reachFirst, reach), known && knownToo
			}
			if !ok {
				continue
			}
			low[name], high[name] = math.Min(low[name], ms), math.Max(high[name], ms)
			if apart := high[name] - low[name]; worst == nil || apart > *worst {
				worst = &apart
			}
		}
	}

	return worst, nil
}

// share is that of an execution segment, 1 for none.
func share(segment string) float64 {
	from, to, ok := span(segment)
	if !ok {
		return 1
	}
	size, _ := to.Sub(to, from).Float64()

	return size
}
