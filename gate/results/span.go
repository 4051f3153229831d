package results

import "time"

// ArrivalSpan is a phase's own time: from its first arrival to its last. Rates of the phase are over the whole seconds of
// the series within it. A second that the phase shares with another one, or with the time before or after it, tells of
// both; and what completes after the last arrival is no rate of the phase, since an overloaded service completes everything
// in the end.
type ArrivalSpan struct{ First, Last time.Time }

// See extends the span to an arrival. Dropped ones count: they are the schedule's.
func (s *ArrivalSpan) See(at time.Time) {
	if s.First.IsZero() || at.Before(s.First) {
		s.First = at
	}
	if at.After(s.Last) {
		s.Last = at
	}
}

// SeeStarts extends the span to the seconds in which something arrived, for a run that was killed: of the requests that were
// in flight then there are no lines.
func (s *ArrivalSpan) SeeStarts(samples []Sample, phase string) {
	for i := range samples {
		x := &samples[i]
		if x.Phase == phase && x.Offered != nil && *x.Offered > 0 && x.Time.After(s.Last) {
			s.See(x.Time)
		}
	}
}

// holds reports that a second lies within the span. That of a phase without arrivals holds none.
func (s ArrivalSpan) holds(second time.Time) bool {
	return !s.First.IsZero() && !second.Before(s.First) && !second.Add(time.Second).After(s.Last)
}

// OfPhase selects the seconds of a phase, and with them those that say nothing of a phase: where nothing arrived, and no
// gauge was read, there is nothing that could have carried its name.
func OfPhase(phase string) func(*Sample) bool {
	return func(s *Sample) bool { return s.Phase == phase || s.Phase == "" }
}

// LongestQuiet is the longest time without a line that is taken for one in which nothing happened. In a longer one the machine
// slept.
const LongestQuiet = 10 * time.Minute

// WholeSeconds are the seconds of a series, in the order of their time, that lie within the span as a whole and that of
// selects (OfPhase, or nil for all). A second without a line, between two that are selected, is one in which nothing
// started and nothing ended, and in which as many requests are in flight as before. (--out llm=DIR fills both in by itself, since
// it knows; other evidence has such gaps.)
func (s ArrivalSpan) WholeSeconds(samples []Sample, of func(*Sample) bool) []Sample {
	var out []Sample
	var previous *Sample
	for i := range samples {
		second := samples[i]
		if second.InFlight == nil && previous != nil {
			second.InFlight = previous.InFlight
		}
		selected := of == nil || of(&second)
		if previous != nil && selected && (of == nil || of(previous)) {
			out = s.quiet(out, previous, second.Time)
		}
		if selected && s.holds(second.Time) {
			out = append(out, second)
		}
		previous = &second
	}
	return out
}

// quiet adds the seconds without a line between one that has a line and the time of the next.
func (s ArrivalSpan) quiet(out []Sample, previous *Sample, next time.Time) []Sample {
	if previous.Completed == nil || next.Sub(previous.Time) > LongestQuiet {
		return out
	}
	for at := previous.Time.Add(time.Second); next.Sub(at) > time.Second/2; at = at.Add(time.Second) {
		if s.holds(at) {
			out = append(out, Sample{
				Time: at, Phase: previous.Phase, Step: previous.Step, InFlight: previous.InFlight, Offered: new(int64),
				Started: new(int64), Dropped: new(int64), Completed: new(int64), Failed: new(int64), Cancelled: new(int64),
			})
		}
	}
	return out
}

// Flow has a value for each second of which a flow is known. In a second in which no request completed, nobody had tokens to
// count: their flow was zero. Where no second has any, nobody counted at all, and the result is nil.
func Flow(seconds []Sample, of func(*Sample) *int64) []float64 {
	values := make([]float64, 0, len(seconds))
	counted := false
	for i := range seconds {
		s := &seconds[i]
		switch v := of(s); {
		case v != nil:
			counted = true
			values = append(values, float64(*v))
		case s.Completed != nil && *s.Completed == 0:
			values = append(values, 0)
		}
	}
	if !counted {
		return nil
	}
	return values
}
