package verdict

import (
	"math"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// observations are the requests that a criterion on a metric of single requests is about, in the order of arrival.
type observations struct {
	// values has one entry per request that counts; +Inf (or -Inf where higher is better) for one that failed, or that
	// has no value where it should have one.
	values []float64
	// failed counts the infinite ones.
	failed int64
	// waited counts those that were over the limit when the run ended or their user left: their value is the time they had
	// waited by then, and the true one is larger.
	waited    int64
	undecided int64
	cancelled int64 // left before the value was there, and before it was over the limit
}

// observe collects the values of a metric. Every request that was offered is in exactly one of the four:
//
//   - a request that failed is infinitely bad, whatever it had shown before;
//   - one that completed counts with its value, and as infinitely bad if it has none although it should: the objective
//     that needs it is not met. A time per output token is not expected of an answer that was limited to one token;
//   - one that was cancelled by its user, or cut short by the run's end, counts with the value it had shown; without
//     one it counts with the time it had waited if that is over the limit. Else a cancelled one is left out, since the user's
//     patience is the workload's own, and one that was cut short is undecided;
//   - a dropped arrival is undecided.
func (j *judge) observe(metric int, phase, class string, over func(float64) bool) observations {
	t := j.table
	worst := math.Inf(1)
	if metric == columnOutputTPS {
		worst = math.Inf(-1)
	}
	var o observations
	for _, i := range j.rows(phase, class) {
		if t.tokenless[i] && ofTokens(metric) {
			continue
		}
		value := t.values[metric][i]
		known := !math.IsNaN(value)
		switch t.outcome[i] {
		case results.Dropped:
			o.undecided++
		case results.Failed:
			o.values = append(o.values, worst)
			o.failed++
		case results.OK:
			switch {
			case known:
				o.values = append(o.values, value)
			case t.single[i] && (metric == columnTPOT || metric == columnITL || metric == columnOutputTPS):
			default:
				o.values = append(o.values, worst)
				o.failed++
			}
		default:
			switch {
			case known && partial(metric):
				o.values = append(o.values, value)
			case waits(metric) && over(t.elapsed[i]):
				o.values = append(o.values, t.elapsed[i])
				o.waited++
			case t.outcome[i] == results.Cancelled:
				o.cancelled++
			default:
				o.undecided++
			}
		}
	}
	o.undecided += j.unseenOf(phase, class)
	return o
}

// ofTokens says that a metric times tokens, which an embedding has none of.
func ofTokens(metric int) bool {
	return metric != columnE2E && metric != columnScheduleDelay
}

// partial says that a metric is final as soon as it is there, even if the answer was not whole.
func partial(metric int) bool {
	return metric == columnTTFT || metric == columnTTFTText || metric == columnScheduleDelay
}

// waits says that a request which has waited for longer than the limit will be over it.
func waits(metric int) bool {
	return metric == columnTTFT || metric == columnTTFTText || metric == columnE2E
}

func (o observations) explain(out *Criterion) {
	if o.failed > 0 {
		out.note("%d of %d requests failed, or lack the measurement, and count as over the limit", o.failed, len(o.values))
	}
	if o.waited > 0 {
		out.note("%d had waited longer than the limit when the run ended or their user left, and count with that time", o.waited)
	}
	if o.cancelled > 0 {
		out.note("%d requests whose users left in time are not counted", o.cancelled)
	}
}
