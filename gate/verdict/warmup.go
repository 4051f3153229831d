package verdict

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// The comparison of the steady phase's beginning with its end, after Geweke, "Evaluating the accuracy of sampling-based
// approaches to the calculation of posterior moments" (Bayesian Statistics 4, 1992): the means of the first part and of
// the last half must agree. It is done on the logarithms of the medians of blocks, which neither a few slow requests
// nor skewness disturb, with Welch's t-test; the block medians are nearly independent of each other.
const (
	warmupBlocks = 40
	warmupFirst  = warmupBlocks / 5
	warmupLast   = warmupBlocks / 2
	// warmupLevel is the two-sided level of the test, warmupChange the smallest change that is worth a warning.
	warmupLevel  = 0.01
	warmupChange = 0.10
	// warmupLength is the fewest requests in a block.
	warmupLength = 5
)

// trend compares the first fifth of time-ordered values with their last half. change is the relative difference of the
// first from the last; remaining says that it is both significant and large enough to matter.
func trend(values []float64) (change float64, remaining bool) {
	length := len(values) / warmupBlocks
	if length < warmupLength {
		return 0, false
	}
	medians := make([]float64, warmupBlocks)
	for i := range medians {
		block := slices.Clone(values[i*length : (i+1)*length])
		medians[i] = math.Log(math.Max(sampleQuantile(block, 0.5), 1e-3)) // a microsecond: the clock's resolution
	}
	first, last := medians[:warmupFirst], medians[warmupBlocks-warmupLast:]
	difference := mean(first) - mean(last)
	change = math.Exp(difference) - 1
	a, b := variance(first)/warmupFirst, variance(last)/warmupLast
	if math.Abs(change) < warmupChange {
		return change, false
	}
	if a+b == 0 {
		return change, true
	}
	freedom := (a + b) * (a + b) / (a*a/(warmupFirst-1) + b*b/(warmupLast-1))
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}
	return change, math.Abs(difference)/math.Sqrt(a+b) > t.Quantile(1-warmupLevel/2)
}

// checkWarmup warns if the steady phase still begins differently than it goes on.
func (j *judge) checkWarmup(out *Result) {
	for _, c := range out.Criteria {
		if c.Name == "queue_growth" && c.Verdict == Fail {
			return // then it is the backlog that moves the latencies
		}
	}
	for _, part := range j.parts() {
		if part.tellTrend(out) {
			return
		}
	}
}

// tellTrend warns of a trend in the steady phase, or in one step of it. Where latencies rise with a queue that grows, it is the
// load that moves them: no longer warmup would have changed that.
func (j *judge) tellTrend(out *Result) bool {
	of := "the steady phase"
	if j.step != "" {
		of = "step " + j.step
	}
	for _, column := range []int{columnTTFT, columnE2E} {
		var values []float64
		for _, i := range j.rows(steady, "") {
			if v := j.table.values[column][i]; !math.IsNaN(v) {
				values = append(values, v)
			}
		}
		change, remaining := trend(values)
		if !remaining {
			continue
		}
		direction := "above"
		if change < 0 {
			direction = "below"
		}
		seen := fmt.Sprintf("in the first fifth of %s the median %s is %.0f%% %s that of its last half",
			of, columnNames[column], 100*math.Abs(change), direction)
		q := j.backlog()
		switch {
		case change > 0 || !q.grew: // a queue that grows makes the end the slower part, not the beginning
			out.warn("the declared warmup was too short: %s", seen)
		case q.signal == SignalWaiting:
			out.warn("%s, while the queue grew from %.0f to %.0f requests: the service fell behind", seen, q.from, q.to)
		default:
			out.warn("%s, while the requests in flight grew from %.0f to %.0f: the service fell behind, or it had not filled yet, and the "+
				"declared warmup was too short", seen, q.from, q.to)
		}
		return true
	}
	return false
}

// backlog is how many requests waited, or where the server does not say were in flight, in the same parts of the steady phase
// that trend compares: the medians, which a burst that drains does not move.
type backlog struct {
	signal   QueueSignal
	from, to float64
	// grew: by more than may wait in a queue that counts as empty.
	grew bool
}

func (j *judge) backlog() backlog {
	samples := j.series.of(steady)
	b, depths := backlog{signal: SignalWaiting}, level(samples, "queue_depth")
	if len(depths) == 0 {
		b.signal, depths = SignalInFlight, level(samples, "in_flight")
	}
	first, last := len(depths)*warmupFirst/warmupBlocks, len(depths)*warmupLast/warmupBlocks
	if first == 0 {
		return b
	}
	arrived := 0.0
	for i := range samples {
		if n := samples[i].Offered; n != nil {
			arrived += float64(*n)
		}
	}
	b.from = sampleQuantile(slices.Clone(depths[:first]), 0.5)
	b.to = sampleQuantile(slices.Clone(depths[len(depths)-last:]), 0.5)
	b.grew = b.to-b.from > math.Max(2, lowSeconds*arrived/float64(len(samples)))
	return b
}
