package format

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// The functions here take a trace and give a new one; the old one is not changed. The new one shares
// hash ids and extras with the old, and carries a Label for what was done.

func derive(t *Trace, rows []Row, label Label) *Trace {
	out := *t
	out.Rows = rows
	out.Length = 0 // of the old trace
	out.Labels = append(slices.Clone(t.Labels), label)
	return &out
}

// TimeWindow keeps the rows that are due within w, both ends included. Unless keepZero, the first row
// that is kept becomes time zero. A window without rows is an error that wraps ErrEmptyWindow.
func TimeWindow(t *Trace, w Window, keepZero bool) (*Trace, error) {
	if w.From < 0 {
		return nil, fmt.Errorf("window %s: the start is negative", w)
	}
	if w.To >= 0 && w.To < w.From {
		return nil, fmt.Errorf("window %s: the end is before the start", w)
	}
	var rows []Row
	for _, r := range t.Rows {
		if r.Due >= w.From && (w.To < 0 || r.Due <= w.To) {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		last := time.Duration(0)
		if len(t.Rows) > 0 {
			last = t.Rows[len(t.Rows)-1].Due
		}
		return nil, fmt.Errorf("window %s of a trace that ends at %s: %w", w, last, ErrEmptyWindow)
	}
	out := derive(t, rows, Label{Kind: "window", Detail: fmt.Sprintf("%s: %d of %d rows", w, len(rows), len(t.Rows))})
	if !keepZero {
		first := rows[0].Due
		for i := range rows {
			rows[i].Due -= first
		}
		if !out.Origin.IsZero() {
			out.Origin = out.Origin.Add(first)
		}
	}
	return out, nil
}

// Limit keeps the first n rows in order of arrival. n <= 0 and n >= the number of rows keep all, without
// a label.
func Limit(t *Trace, n int) *Trace {
	if n <= 0 || n >= len(t.Rows) {
		return t
	}
	return derive(t, slices.Clone(t.Rows[:n]), Label{Kind: "limit", Detail: fmt.Sprintf("truncated to the first %d of %d rows", n, len(t.Rows))})
}

// Speed replays the trace speed times as fast: due times, delays and recorded durations of thinking are
// divided by it. It must be positive and finite. A speed of 1 changes nothing and sets no label.
func Speed(t *Trace, speed float64) (*Trace, error) {
	if !(speed > 0) || math.IsInf(speed, 0) {
		return nil, fmt.Errorf("speed %v: expected a positive number", speed)
	}
	if speed == 1 {
		return t, nil
	}
	return scale(t, speed, Label{Kind: "speed", Detail: fmt.Sprintf("replayed at %g times the recorded speed", speed)})
}

// Rate rescales time so that the mean rate ((n-1)/span, see Trace.MeanRate) is perSecond. The shape of the
// arrivals, and so their coefficient of variation, stays.
func Rate(t *Trace, perSecond float64) (*Trace, error) {
	if !(perSecond > 0) || math.IsInf(perSecond, 0) {
		return nil, fmt.Errorf("rate %v: expected a positive number of requests per second", perSecond)
	}
	mean, ok := t.MeanRate()
	if !ok {
		return nil, errors.New("a trace of one row, or of one instant, has no mean rate to rescale")
	}
	return scale(t, perSecond/mean, Label{Kind: "rate", Detail: fmt.Sprintf("rescaled from %.4g to %.4g requests/s", mean, perSecond)})
}

func scale(t *Trace, speed float64, label Label) (*Trace, error) {
	rows := slices.Clone(t.Rows)
	for i := range rows {
		due := math.Round(float64(rows[i].Due) / speed)
		if due >= math.MaxInt64 {
			return nil, fmt.Errorf("speed %g: row %d would be due after more than 290 years", speed, i)
		}
		rows[i].Due = time.Duration(due)
		if e := rows[i].Extra; e != nil && e.Delay > 0 {
			delay := math.Round(float64(e.Delay) / speed)
			if delay >= math.MaxInt64 {
				return nil, fmt.Errorf("speed %g: the delay of row %d would be more than 290 years", speed, i)
			}
			scaled := *e
			scaled.Delay = time.Duration(delay)
			rows[i].Extra = &scaled
		}
	}
	out := derive(t, rows, label)
	if length := math.Round(float64(t.Length) / speed); length < math.MaxInt64 {
		out.Length = time.Duration(length)
	}
	return out, nil
}

// LoopOptions say how Loop repeats a trace. Exactly one of Laps and Until is set.
type LoopOptions struct {
	// Laps is how often the trace is played in all.
	Laps int
	// Until repeats the trace for this long: rows due after it are left out.
	Until time.Duration
	// SamePrefixes replays each lap with the hash ids of the first, so that a prefix cache may hit on all
	// of them. Without it, each lap has ids of its own, with the same sharing among them.
	SamePrefixes bool
}

// maxLoopRows bounds a looped trace: 64 bytes each, 6.4 GB.
const maxLoopRows = 100_000_000

// Loop repeats a trace. One lap lasts the span plus one mean gap, so the mean rate holds across the seam.
func Loop(t *Trace, o LoopOptions) (*Trace, error) {
	if (o.Laps > 0) == (o.Until > 0) || o.Laps < 0 || o.Until < 0 {
		return nil, errors.New("loop: expected either a number of laps or a duration")
	}
	mean, ok := t.MeanRate()
	if !ok {
		return nil, errors.New("loop: a trace of one row, or of one instant, has no length to repeat")
	}
	start := t.Rows[0].Due
	lap := t.Span() + time.Duration(math.Round(1e9/mean))
	laps := o.Laps
	if laps == 0 {
		if o.Until < start {
			return nil, fmt.Errorf("loop: nothing arrives before %s", o.Until)
		}
		laps = int((o.Until-start)/lap) + 1
	}
	if laps > maxLoopRows/len(t.Rows) {
		return nil, fmt.Errorf("loop: %d laps of %d rows are more than %d rows", laps, len(t.Rows), maxLoopRows)
	}
	if int64(laps) > math.MaxInt64/2/int64(lap) {
		return nil, fmt.Errorf("loop: %d laps of %s are too long", laps, lap)
	}
	rows := make([]Row, 0, laps*len(t.Rows))
	var ids arena
	for n := range laps {
		for _, r := range t.Rows {
			r.Due += time.Duration(n) * lap
			if o.Laps == 0 && r.Due > o.Until {
				break
			}
			if n > 0 && !o.SamePrefixes && len(r.HashIDs) > 0 {
				r.HashIDs = ids.keep(r.HashIDs)
				for i := range r.HashIDs {
					r.HashIDs[i] ^= lapMask(n)
				}
			}
			rows = append(rows, r)
		}
	}
	return derive(t, rows, Label{Kind: "loop", Detail: fmt.Sprintf("%d rows repeated over %d laps of %s", len(t.Rows), laps, lap)}), nil
}

// lapMask is SplitMix64 (Steele, Lea, Flood 2014) of the lap: an exclusive or with it keeps the ids of one
// lap apart from each other, and in practice from those of every other lap.
func lapMask(lap int) uint64 {
	return mix(uint64(lap) * 0x9e3779b97f4a7c15) // #nosec G115 -- a lap number is not negative
}

// LengthsOnly drops hash ids and extras: what is left fits a CSV file.
func LengthsOnly(t *Trace) *Trace {
	rows := slices.Clone(t.Rows)
	for i := range rows {
		rows[i].HashIDs, rows[i].Extra = nil, nil
	}
	out := derive(t, rows, Label{Kind: "lengths_only", Detail: "hash ids, sessions and prompts left out"})
	out.BlockSize, out.BlockSizeReason, out.Length = 0, "", t.Length
	return out
}
