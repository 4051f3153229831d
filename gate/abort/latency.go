package abort

import (
	"math"
	"slices"

	"github.com/safeqps/xk6-safeqps/gate/contract"
)

// observe takes a value of a request as soon as it is known, or known to be over the limit, and each request once: were slow
// ones counted while they wait and quick ones at their end, slow ones would be all that the first seconds see.
//
// A request that fails after a first chunk in time has been a quick one then, and is a slow one now.
func (r *rule) observe(q *Request) {
	if q.Tokenless && ofTokens(r.Metric) {
		return
	}
	if r.counted[q.Seq] {
		if !q.Ended {
			return
		}
		delete(r.counted, q.Seq)
		before := of(q, r.Metric)
		wasSlow := math.IsNaN(before) || r.holds(before) // without a value, it was its waiting that was counted
		if !q.Failed || r.Metric == "schedule_delay" || wasSlow {
			return
		}
	}
	value, known := r.value(q)
	if !known {
		return
	}
	if !q.Ended {
		r.counted[q.Seq] = true
	}
	r.second = append(r.second, value)
}

// value is what a request shows of the rule's metric. As in the verdict, one that failed is infinitely slow, and so is one that
// went well and lacks what it should have.
func (r *rule) value(q *Request) (value float64, known bool) {
	value = of(q, r.Metric)
	known = !math.IsNaN(value)
	switch {
	case r.Metric == "schedule_delay":
		return value, known // the load generator's own
	case q.Failed:
		return r.worst(), true
	case known:
		return value, q.OK || final(r.Metric)
	case q.OK:
		return r.worst(), waits(r.Metric) // an answer of one token has no time between tokens
	default:
		return q.Waited, waits(r.Metric) && r.holds(q.Waited)
	}
}

func (r *rule) worst() float64 {
	if r.Metric == "output_tps" {
		return 0
	}

	return math.Inf(1)
}

// final says that a metric is final as soon as it is there, whatever becomes of the answer.
func final(metric string) bool { return metric == "ttft" || metric == "ttft_text" }

// waits says that a request which has waited for longer than the limit is over it.
func waits(metric string) bool { return final(metric) || metric == "e2e" }

// ofTokens says that a metric times tokens.
func ofTokens(metric string) bool { return metric != "e2e" && metric != "schedule_delay" }

// stalled is the silence, in milliseconds, from which on a stream is taken to be between two chunks, and not behind its last: a
// server may hold an answer's end back a little.
const stalled = 1000

// gaps takes the new gaps of an answer, and the one that it is in.
func (r *rule) gaps(q *Request, fresh []float64) {
	if q.Tokenless {
		return
	}
	if len(fresh) > 0 || q.Failed {
		r.answers++
	}
	if len(fresh) > 0 && r.counted[q.Seq] {
		fresh = fresh[1:] // the silence that was counted has ended
		delete(r.counted, q.Seq)
	}
	r.second = append(r.second, fresh...)
	if q.Failed {
		r.failed++
	}
	switch {
	case q.Ended:
		delete(r.counted, q.Seq)
	case q.Silence > stalled && r.holds(q.Silence) && !r.counted[q.Seq]:
		r.counted[q.Seq] = true
		r.answers++
		r.second = append(r.second, q.Silence)
	}
}

// distribution judges a statistic: of the values since the tick before, and without a holding time of all of them.
func (r *rule) distribution() (finding, bool) {
	if r.failed > 0 {
		// As in the verdict, an answer is one observation: one that failed weighs as much as the others' gaps do.
		gaps := math.Ceil(float64(len(r.second)) / float64(max(r.answers-r.failed, 1)))
		for range r.failed * max(int(gaps), 1) {
			r.second = append(r.second, math.Inf(1))
		}
	}
	limit, _ := r.Limit.Value()
	if r.For == 0 {
		for _, v := range r.second {
			r.total.add(v, r.holds(v))
		}

		return r.soFar(limit)
	}
	if len(r.second) == 0 {
		return finding{}, false
	}
	slices.Sort(r.second)
	last := len(r.second) - 1
	switch r.Stat.Kind {
	case contract.StatMin:
		return r.judge(r.second[0]), true
	case contract.StatMax:
		return r.judge(r.second[last]), true
	case contract.StatMean:
		var all running
		for _, v := range r.second {
			all.add(v, false)
		}

		return r.judge(all.mean(limit)), true
	default:
		return r.judge(r.second[rank(r.Stat.Quantile, len(r.second))-1]), true
	}
}

// soFar judges the steady phase up to now.
func (r *rule) soFar(limit float64) (finding, bool) {
	t := &r.total
	switch {
	case t.n == 0:
		return finding{}, false
	case r.Stat.Kind == contract.StatMin:
		return r.judge(t.least), true
	case r.Stat.Kind == contract.StatMax:
		return r.judge(t.most), true
	case r.Stat.Kind == contract.StatMean:
		return r.judge(t.mean(limit)), true
	}
	k := rank(r.Stat.Quantile, t.n)
	bad := t.n-t.hits < k // fewer than k are on the good, lower side
	if r.Op == contract.OpLess || r.Op == contract.OpLessEqual {
		bad = t.hits >= k
	}

	return finding{bad: bad, seen: "was over the limit for " + share(t.hits, t.n)}, true
}

// rank is the place of a quantile among n ordered values (nearest rank), from 1 on.
func rank(quantile float64, n int) int {
	return min(max(int(math.Ceil(quantile*float64(n))), 1), n)
}

func of(q *Request, metric string) float64 {
	switch metric {
	case "ttft":
		return q.TTFT
	case "ttft_text":
		return q.TTFTText
	case "tpot":
		return q.TPOT
	case "e2e":
		return q.E2E
	case "schedule_delay":
		return q.ScheduleDelay
	case "output_tps":
		return q.OutputTPS
	default:
		return math.NaN()
	}
}
