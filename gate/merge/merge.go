// Package merge joins the evidence of the instances of one distributed test into one results directory, which is then
// judged as a whole: what one instance saw of a criterion is a part of the requests.
package merge

import (
	"container/heap"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

// Options say how directories are joined.
type Options struct {
	// Overwrite allows an output directory that is not empty.
	Overwrite bool
	// Contract names what is to be measured of each load generator; nil for nothing.
	Contract *contract.Contract
	// Warn is told where the output directory could not be locked; nil tells nobody.
	Warn func(error)
}

// Report says what was joined: what the joined run.json says of it, and the ledger of the whole.
type Report struct {
	results.Merged
	Counts results.Counts `json:"counts"`
}

// ErrDifferent is returned for directories that are not of one test.
var ErrDifferent = errors.New("the directories are not instances of one test")

// Merge writes the joined evidence to out. Requests are in the order of their arrival; seconds of the series are added up
// by the wall clock, gauges of the server are taken from the instance that asked it, and those of the load generators are
// the worst of all instances. Histograms are added.
//
// All times are by the first instance's clock, as far as the offsets of the others' were measured and are certainly not
// zero. A second of the series is moved by whole seconds: it counts for the second that it shares the most with.
//
// Runs that are not of one test are ErrDifferent, evidence that would count twice is ErrTwice, a directory that was itself joined is
// ErrJoined. After any error, and until the
// joined evidence is complete, out holds what it held before.
func Merge(dirs []string, out string, options Options) (Report, error) {
	if len(dirs) < 2 {
		return Report{}, fmt.Errorf("merge: got %d directory, expected two or more", len(dirs))
	}
	if err := distinctPlaces(dirs, out); err != nil {
		return Report{}, err
	}
	runs := make([]*results.Run, len(dirs))
	for i, dir := range dirs {
		run, err := results.Open(dir)
		if err != nil {
			return Report{}, fmt.Errorf("merge: %w", err)
		}
		if err := ownEvidence(run); err != nil {
			return Report{}, err
		}
		runs[i] = run
	}
	if err := check(runs); err != nil {
		return Report{}, err
	}
	instances, err := describe(runs, options.Contract)
	if err != nil {
		return Report{}, fmt.Errorf("merge: %w", err)
	}
	parts := make([]part, len(runs))
	for i, run := range runs {
		parts[i] = part{Run: run, instance: &instances[i]}
		parts[i].correctInfo()
	}
	all, err := arrivals(parts)
	if err != nil {
		return Report{}, fmt.Errorf("merge: %w", err)
	}
	skew, err := startSkew(parts, all)
	if err != nil {
		return Report{}, fmt.Errorf("merge: %w", err)
	}
	info := joinInfo(parts)
	w, err := results.Create(out, info, results.Options{Overwrite: options.Overwrite, Whole: true, Warn: options.Warn})
	if err != nil {
		return Report{}, fmt.Errorf("merge: %w", err)
	}
	report := Report{Merged: results.Merged{Instances: instances, StartSkewMS: skew, Covered: covered(instances)}}
	err = errors.Join(
		joinRequests(all, w),
		joinHistograms(parts, w),
		joinSeries(parts, w),
		joinEvents(parts, w),
	)
	if err != nil {
		return Report{}, fmt.Errorf("merge: %w", errors.Join(err, w.Discard()))
	}
	report.Counts = w.Counts()
	if err := w.Close(info.Ended, func(info *results.Info) { info.Merged = &report.Merged }); err != nil {
		return Report{}, fmt.Errorf("merge: %w", err)
	}

	return report, nil
}

// check is an error unless the runs are the instances of one test, each of them once.
func check(runs []*results.Run) error {
	if err := distinctRuns(runs); err != nil {
		return err
	}
	first := runs[0]
	for _, run := range runs[1:] {
		if err := sameTest(first, run); err != nil {
			return err
		}
	}
	twice, err := rowsTwice(runs)
	if err != nil {
		return fmt.Errorf("merge: %w", err)
	}
	if twice > 0 {
		return fmt.Errorf("merge: %w: %d rows were replayed by more than one instance; %s", ErrTwice, twice, segmentAdvice)
	}

	return nil
}

// joinInfo joins what the runs say of themselves.
func joinInfo(runs []part) results.Info {
	info := runs[0].Info
	var segments []string
	ended := true
	for _, run := range runs {
		if run.Info.Started.Before(info.Started) {
			info.Started = run.Info.Started
		}
		ended = ended && !run.Info.Ended.IsZero()
		if run.Info.Ended.After(info.Ended) {
			info.Ended = run.Info.Ended
		}
		if info.Aborted == nil {
			info.Aborted = run.Info.Aborted
		}
		for _, label := range run.Info.Labels {
			if !slices.Contains(info.Labels, label) {
				info.Labels = append(info.Labels, label)
			}
		}
		segments = append(segments, run.Info.Segment)
		info.Phases, info.Steps = joinSpans(info.Phases, run.Info.Phases), joinSpans(info.Steps, run.Info.Steps)
	}
	if !ended {
		info.Ended = time.Time{} // an instance was killed: the whole did not come to its end
	}
	info.Labels = slices.DeleteFunc(slices.Clone(info.Labels), func(l string) bool { return strings.HasPrefix(l, results.LabelSegment) })
	info.Segment = ""
	info.Host.Name = fmt.Sprintf("%d instances: %s", len(runs), strings.Join(segments, ", "))

	return info
}

func joinSpans(a, b []results.Span) []results.Span {
	out := slices.Clone(a)
	for _, span := range b {
		i := slices.IndexFunc(out, func(s results.Span) bool { return s.Name == span.Name })
		if i < 0 {
			out = append(out, span)

			continue
		}
		if span.Start.Before(out[i].Start) {
			out[i].Start = span.Start
		}
		if span.End.After(out[i].End) {
			out[i].End = span.End
		}
	}

	return out
}

// arrivals reads the requests of each run, and sorts them by arrival: lines are written when requests end.
func arrivals(runs []part) ([][]results.Request, error) {
	out := make([][]results.Request, len(runs))
	for i, run := range runs {
		if _, err := run.Requests(func(r *results.Request) error {
			r.Due, r.Start = run.corrected(r.Due), run.corrected(r.Start)
			run.instance.Counts.Add(r.Outcome, r.Attempt)
			out[i] = append(out[i], *r)

			return nil
		}); err != nil {
			return nil, err //nolint:wrapcheck // names the file
		}
		sort.SliceStable(out[i], func(a, b int) bool { return out[i][a].Arrival().Before(out[i][b].Arrival()) })
	}

	return out, nil
}

// joinRequests merges the requests of all runs by arrival.
func joinRequests(all [][]results.Request, w *results.Writer) error {
	queues := make(byArrival, 0, len(all))
	for i, requests := range all {
		if len(requests) > 0 {
			queues = append(queues, &queue{requests: requests, instance: i})
		}
	}
	heap.Init(&queues)
	for len(queues) > 0 {
		next := queues[0]
		r := next.requests[0]
		if err := w.RequestOnly(&r); err != nil {
			return err //nolint:wrapcheck // names the file
		}
		if next.requests = next.requests[1:]; len(next.requests) == 0 {
			heap.Pop(&queues)
		} else {
			heap.Fix(&queues, 0)
		}
	}

	return nil
}

type queue struct {
	requests []results.Request
	instance int
}

// byArrival is a heap of queues by the arrival of their first request; ties go by instance, so that a merge repeats.
type byArrival []*queue

func (q byArrival) Len() int { return len(q) }
func (q byArrival) Less(a, b int) bool {
	at, bt := q[a].requests[0].Arrival(), q[b].requests[0].Arrival()
	if !at.Equal(bt) {
		return at.Before(bt)
	}

	return q[a].instance < q[b].instance
}
func (q byArrival) Swap(a, b int) { q[a], q[b] = q[b], q[a] }

// Push implements heap.Interface.
func (q *byArrival) Push(x any) { *q = append(*q, x.(*queue)) } //nolint:forcetypeassert // nothing else is pushed

// Pop implements heap.Interface.
func (q *byArrival) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]

	return last
}

func joinHistograms(runs []part, w *results.Writer) error {
	for _, run := range runs {
		for _, metric := range results.HistogramMetrics() {
			all, err := run.Histograms(metric)
			if err != nil {
				return err //nolint:wrapcheck // names the file
			}
			for _, h := range all {
				if err := w.AddHistogram(h); err != nil {
					return err //nolint:wrapcheck // names the metric
				}
			}
		}
	}

	return nil
}

func joinSeries(runs []part, w *results.Writer) error {
	seconds := map[int64]*results.Sample{}
	for _, run := range runs {
		var inFlight *int64 // evidence may leave it out of a second in which nothing started or ended
		if _, err := run.Series(func(s *results.Sample) error {
			if s.InFlight == nil {
				s.InFlight = inFlight
			}
			inFlight = s.InFlight
			s.Time, s.Clock = run.corrected(s.Time).Round(time.Second), nil // the clock was one instance's
			key := s.Time.Unix()
			if into := seconds[key]; into != nil {
				addSecond(into, s)
			} else {
				copied := *s
				seconds[key] = &copied
			}

			return nil
		}); err != nil {
			return err //nolint:wrapcheck // names the file
		}
	}
	keys := make([]int64, 0, len(seconds))
	for key := range seconds {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		if err := w.Sample(*seconds[key]); err != nil {
			return err //nolint:wrapcheck // names the file
		}
	}

	return nil
}

func addSecond(into, s *results.Sample) {
	for _, n := range []struct{ to, from **int64 }{
		{&into.Offered, &s.Offered},
		{&into.Started, &s.Started},
		{&into.Dropped, &s.Dropped},
		{&into.Completed, &s.Completed},
		{&into.Failed, &s.Failed},
		{&into.Cancelled, &s.Cancelled},
		{&into.InFlight, &s.InFlight},
		{&into.PromptTokens, &s.PromptTokens},
		{&into.CompletionTokens, &s.CompletionTokens},
	} {
		switch {
		case *n.from == nil:
		case *n.to == nil:
			*n.to = *n.from
		default:
			total := **n.to + **n.from
			*n.to = &total
		}
	}
	if into.Phase == "" {
		into.Phase = s.Phase
	}
	if into.Step == "" {
		into.Step = s.Step
	}
	into.Server = worst(into.Server, s.Server)
	into.Client = worst(into.Client, s.Client)
}

func worst(a, b map[string]float64) map[string]float64 {
	if a == nil && b == nil {
		return nil
	}
	out := map[string]float64{}
	for _, m := range []map[string]float64{a, b} {
		for name, value := range m {
			if old, ok := out[name]; ok {
				value = math.Max(old, value)
			}
			out[name] = value
		}
	}

	return out
}

func joinEvents(runs []part, w *results.Writer) error {
	var all []results.Event
	for _, run := range runs {
		events, _, err := run.Events()
		if err != nil {
			return err //nolint:wrapcheck // names the file
		}
		for i := range events {
			events[i].Time = run.corrected(events[i].Time)
		}
		all = append(all, events...)
	}
	slices.SortStableFunc(all, func(a, b results.Event) int { return a.Time.Compare(b.Time) })
	for _, e := range all {
		if err := w.Event(e); err != nil {
			return err //nolint:wrapcheck // names the file
		}
	}

	return nil
}
