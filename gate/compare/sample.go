package compare

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// latencies are the metrics that are compared request by request. ITL has one value per request here, the 99th percentile
// of its gaps.
var latencies = []latency{
	{"ttft", func(r *results.Request) results.Number { return r.TTFT }},
	{"tpot", func(r *results.Request) results.Number { return r.TPOT }},
	{"itl_p99", func(r *results.Request) results.Number { return r.ITLP99 }},
	{"e2e", func(r *results.Request) results.Number { return r.E2E }},
}

type latency struct {
	name string
	of   func(*results.Request) results.Number
}

const latencyCount = 4

// request is what a comparison needs of one. Values are milliseconds: NaN where there is none, +Inf for a failed one.
type request struct {
	row    int64
	at     float64 // seconds since the phase's first arrival
	failed bool
	values [latencyCount]float64
}

// sample is a run's phase.
type sample struct {
	requests []request // by time
	seconds  float64
	// completed requests and output tokens in each second; nil where the series does not have them.
	completed, tokens []float64
	// prefix is what came from the service's prefix cache; nil where nobody said.
	prefix *verdict.PrefixCache
	// offered is what was asked.
	offered *offered
}

func read(run *results.Run, phase string) (*sample, []string, error) {
	s := &sample{offered: newOffered()}
	var warnings []string
	if run.Info.Ended.IsZero() {
		warnings = append(warnings, run.Dir+": the run did not come to its end")
	}
	if run.Info.Aborted != nil {
		warnings = append(warnings, run.Dir+": the run was aborted: "+run.Info.Aborted.Rule)
	}
	var span results.ArrivalSpan
	var times []time.Time
	var tally verdict.PrefixTally
	dropped := 0
	_, err := run.Requests(func(r *results.Request) error {
		if r.Phase != phase || r.Attempt > 1 {
			return nil
		}
		at := r.Arrival()
		span.See(at)
		s.offered.see(r)
		if r.Outcome == results.Dropped {
			dropped++
			return nil
		}
		tally.Add(r)
		q := request{row: r.Row, failed: r.Outcome == results.Failed}
		for i, metric := range latencies {
			q.values[i] = math.NaN()
			if q.failed {
				q.values[i] = math.Inf(1)
			} else if v := metric.of(r); v.Known {
				q.values[i] = v.Value
			}
		}
		s.requests = append(s.requests, q)
		times = append(times, at)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if dropped > 0 {
		warnings = append(warnings, fmt.Sprintf("%s: %d arrivals were dropped by the load generator", run.Dir, dropped))
	}
	for i, at := range times {
		s.requests[i].at = at.Sub(span.First).Seconds()
		s.seconds = math.Max(s.seconds, s.requests[i].at)
	}
	slices.SortStableFunc(s.requests, func(a, b request) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
	if err := s.readSeries(run, phase, span, &tally); err != nil {
		return nil, nil, err
	}
	return s, warnings, nil
}

// readSeries keeps a flow only where it is known of every second of the phase's own time.
func (s *sample) readSeries(run *results.Run, phase string, span results.ArrivalSpan, tally *verdict.PrefixTally) error {
	var samples []results.Sample
	if _, err := run.Series(func(x *results.Sample) error {
		samples = append(samples, *x)
		return nil
	}); err != nil {
		return err
	}
	slices.SortStableFunc(samples, func(a, b results.Sample) int { return a.Time.Compare(b.Time) })
	if run.Info.Ended.IsZero() {
		span.SeeStarts(samples, phase)
	}
	var tagged []results.Sample
	for i := range samples {
		if samples[i].Phase == phase && !samples[i].Time.After(span.Last) {
			tagged = append(tagged, samples[i])
		}
	}
	s.prefix = tally.Cache(tagged, run.Info.IdealPrefixHitRatio)
	seconds := span.WholeSeconds(samples, results.OfPhase(phase))
	whole := func(of func(*results.Sample) *int64) []float64 {
		if flow := results.Flow(seconds, of); len(flow) == len(seconds) {
			return flow
		}
		return nil
	}
	s.completed = whole(func(x *results.Sample) *int64 { return x.Completed })
	s.tokens = whole(func(x *results.Sample) *int64 { return x.CompletionTokens })
	return nil
}

func (s *sample) failures() int64 {
	n := int64(0)
	for i := range s.requests {
		if s.requests[i].failed {
			n++
		}
	}
	return n
}

// pair is one row that both runs replayed.
type pair struct {
	at   float64
	a, b [latencyCount]float64
}

// match pairs requests by their row; it is nil unless almost every row of the smaller run is in the other, at about the same
// time. Rows that occur twice are left out.
func match(a, b *sample) []pair {
	byRow := make(map[int64]int, len(a.requests))
	const twice = -1
	for i := range a.requests {
		row := a.requests[i].row
		if _, seen := byRow[row]; seen || row < 0 {
			byRow[row] = twice
		} else {
			byRow[row] = i
		}
	}
	seen := make(map[int64]int, len(b.requests))
	for i := range b.requests {
		seen[b.requests[i].row]++
	}
	var pairs []pair
	for i := range b.requests {
		q := &b.requests[i]
		j, ok := byRow[q.row]
		if !ok || j == twice || seen[q.row] > 1 || math.Abs(a.requests[j].at-q.at) > sameTime {
			continue
		}
		pairs = append(pairs, pair{at: a.requests[j].at, a: a.requests[j].values, b: q.values})
	}
	if float64(len(pairs)) < leastMatched*float64(max(len(a.requests), len(b.requests))) {
		return nil
	}
	return pairs
}

const (
	// sameTime is how many seconds apart two replays of a row may start, for dispatch is not exact.
	sameTime = 1
	// leastMatched is the share of the requests that has to have a partner: the rest are the dropped ones.
	leastMatched = 0.9
)
