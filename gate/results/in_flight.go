package results

import (
	"slices"
	"time"
)

// MeanInFlight is how many requests were in flight in a phase, on average over its own time: the time that requests spent in
// it, over its length. Requests of other phases that were in flight then count, and so do retries, and those that failed,
// were cancelled or cut. It is nil where the phase has no length, or where nothing was measured.
//
// exact is false where the ends of requests are not known: in a run that was killed, or of a request that did not end well
// and has no elapsed time. Then it is the mean of the readings in the series, one a second: with few requests in flight, or
// arrivals that keep in step with the seconds, it can be far off.
//
// It reads the requests twice and keeps none of them.
func (run *Run) MeanInFlight(phase string) (mean *float64, exact bool, err error) {
	var span ArrivalSpan
	if _, err := run.Requests(func(r *Request) error {
		if r.Phase == phase && r.Attempt <= 1 {
			span.See(r.Arrival())
		}
		return nil
	}); err != nil {
		return nil, false, err
	}
	if run.Info.Ended.IsZero() { // of what was in flight then there are no lines
		mean, err = run.meanOfReadings(phase, span)
		return mean, false, err
	}
	total, known := 0.0, true
	if _, err := run.Requests(func(r *Request) error {
		if r.Start.IsZero() || !r.Start.Before(span.Last) {
			return nil
		}
		end, ok := r.end(span.Last)
		known = known && ok
		total += span.overlap(r.Start, end).Seconds()
		return nil
	}); err != nil {
		return nil, false, err
	}
	if !known {
		mean, err = run.meanOfReadings(phase, span)
		return mean, false, err
	}
	if length := span.Last.Sub(span.First); length > 0 {
		over := total / length.Seconds()
		mean = &over
	}
	return mean, true, nil
}

// end is when a request that was sent ended. One that was in flight at the run's end, and does not say for how long, outlived
// everything.
func (r *Request) end(ofAll time.Time) (end time.Time, known bool) {
	for _, length := range []Number{r.E2E, r.Elapsed} {
		if length.Known {
			return r.Start.Add(time.Duration(length.Value * float64(time.Millisecond))), true
		}
	}
	return ofAll, r.Outcome == InFlight
}

// overlap is the time from start to end that lies within the span.
func (s ArrivalSpan) overlap(start, end time.Time) time.Duration {
	if start.Before(s.First) {
		start = s.First
	}
	if end.After(s.Last) {
		end = s.Last
	}
	return max(0, end.Sub(start))
}

// meanOfReadings is the mean of the series' gauge over the whole seconds of a phase.
func (run *Run) meanOfReadings(phase string, span ArrivalSpan) (*float64, error) {
	var samples []Sample
	if _, err := run.Series(func(s *Sample) error {
		samples = append(samples, *s)
		return nil
	}); err != nil {
		return nil, err
	}
	slices.SortStableFunc(samples, func(a, b Sample) int { return a.Time.Compare(b.Time) })
	if run.Info.Ended.IsZero() {
		span.SeeStarts(samples, phase)
	}
	total, n := 0.0, 0.0
	for _, s := range span.WholeSeconds(samples, OfPhase(phase)) {
		if s.InFlight != nil {
			total += float64(*s.InFlight)
			n++
		}
	}
	if n == 0 {
		return nil, nil //nolint:nilnil // it was not measured
	}
	mean := total / n
	return &mean, nil
}
