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

// startSkew is how far apart the instances certainly began one schedule, the worst of the scenarios; nil where no two of them
// had rows of one.
func startSkew(all [][]results.Request) *float64 {
	var worst *float64
	first := schedules(all[0])
	low, high := map[string]float64{}, map[string]float64{}
	for _, requests := range all[1:] {
		for scenario, rows := range schedules(requests) {
			ms, ok := leastSkew(first[scenario], rows)
			if !ok {
				continue
			}
			low[scenario], high[scenario] = math.Min(low[scenario], ms), math.Max(high[scenario], ms)
			if apart := high[scenario] - low[scenario]; worst == nil || apart > *worst {
				worst = &apart
			}
		}
	}

	return worst
}
