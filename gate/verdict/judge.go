package verdict

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

// Judge judges a run by a contract. Limits against a baseline must be resolved (contract.Resolve with the Measured of
// the baseline's own Result); a criterion whose limit is not comes out INCONCLUSIVE, with what was measured.
//
// Overall, FAIL goes before INVALID, INVALID before INCONCLUSIVE, and PASS is what is left: a service that failed has
// failed whatever the load generator did, but no pass and no call for more requests stands on a generator that was the
// bottleneck.
//
// The error tells of a results directory that cannot be read. It takes about 100 bytes of memory for a request.
func Judge(run *results.Run, c *contract.Contract) (*Result, error) {
	j := &judge{run: run, contract: c, confidence: c.Confidence, table: &table{}}
	out := &Result{
		Schema: Schema, Confidence: c.Confidence, Labels: slices.Clone(run.Info.Labels), Aborted: run.Info.Aborted,
		Decision: run.Info.Decision, Workload: run.Info.Workload, Started: run.Info.Started, Ended: run.Info.Ended,
	}
	if err := j.read(out); err != nil {
		return nil, err
	}
	if err := j.fill(out); err != nil {
		return nil, err
	}
	return out, nil
}

// fill judges what was read.
func (j *judge) fill(out *Result) error {
	for _, criterion := range j.contract.Criteria() {
		judged, err := j.criterion(criterion)
		if err != nil {
			return err
		}
		out.Criteria = append(out.Criteria, judged)
	}
	j.tellInstances(out)
	if err := j.steps(out); err != nil {
		return err
	}
	j.abort(out)
	j.phases(out)
	j.prefixCache(out)
	j.checkWarmup(out)
	j.checkSteady(out)
	out.decide(out.unfinished())
	return nil
}

// lineCount estimates the number of lines of a file from those at its beginning, with a margin; it is only used to
// reserve memory.
func lineCount(path string) int {
	file, err := os.Open(path) // #nosec G304 -- the directory is the user's choice
	if err != nil {
		return 0 // reading it tells
	}
	defer file.Close() //nolint:errcheck // only read from
	info, err := file.Stat()
	if err != nil {
		return 0
	}
	head := make([]byte, 64<<10)
	n, _ := io.ReadFull(file, head) //nolint:errcheck // a short file is read as far as it goes
	lines := bytes.Count(head[:n], []byte{'\n'})
	if lines == 0 {
		return 0
	}
	const margin = 1.02
	return int(margin * float64(info.Size()) * float64(lines) / float64(n))
}

func (j *judge) read(out *Result) error {
	j.table.grow(lineCount(filepath.Join(j.run.Dir, results.RequestsFile)))
	torn, err := j.run.Requests(func(r *results.Request) error {
		j.table.add(r)
		return nil
	})
	if err != nil {
		return err
	}
	out.tornLine(results.RequestsFile, torn)
	if j.series, torn, err = readSeries(j.run); err != nil {
		return err
	}
	out.tornLine(results.SeriesFile, torn)
	out.Counts, out.DroppedBy = j.table.counts, j.table.dropped
	j.checkEnd(out)
	for _, phase := range []string{steady, recovery} {
		if span := j.span(phase); !span.Last.IsZero() {
			j.series.cutDrain(phase, span.Last)
		}
	}
	if err := out.Counts.Check(); err != nil {
		return err
	}
	events, torn, err := j.run.Events()
	if err != nil {
		return err
	}
	out.tornLine(results.EventsFile, torn)
	if err := j.run.CheckHistograms(); err != nil {
		return err
	}
	if !j.run.Info.Ended.IsZero() && !j.run.Recorded() {
		out.warn("%s", results.NotRecorded)
	}
	out.tellEvents(events)
	out.tellDrops()
	j.crossed(out, events)
	return nil
}

// dropUnknown stands for drops of executors that do not say why.
const dropUnknown = "unknown"

// dropAdvice says what to do about drops that a setting would have prevented, by the reasons of package trace.
var dropAdvice = [...]struct{ reason, text string }{
	{"no_vu", "because all VUs that maxVUs allows were at work: raise maxVUs, and preAllocatedVUs with it"},
	{"vu_starting", "because further VUs were still being made: raise preAllocatedVUs"},
	{"late", "because the load generator was behind its schedule: take a faster or less busy machine, or several"},
	{"no_request", "since their iterations ended without a request: they threw, or the script left rows out"},
	{dropUnknown, "and the executor does not say why; mostly no VU is free: raise preAllocatedVUs and maxVUs"},
}

func (r *Result) tellDrops() {
	for _, d := range dropAdvice {
		switch n := r.DroppedBy[d.reason]; {
		case n == 0:
		case d.reason == dropUnknown:
			r.warn("%d arrivals were dropped, %s", n, d.text)
		default:
			r.warn("%d arrivals were dropped %s", n, d.text)
		}
	}
}

func (r *Result) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

func (r *Result) tornLine(file string, torn results.Torn) {
	if torn > 0 {
		r.warn("the last line of %s is torn and was left out", file)
	}
}

// tellEvents sums up, one line per kind, what else happened.
func (r *Result) tellEvents(events []results.Event) {
	counts := make(map[string]int64)
	first := make(map[string]results.Event)
	var kinds []string
	for _, e := range events {
		if e.Kind == results.EventAbort || e.Kind == EventThreshold {
			continue // told by the criterion, and by crossed
		}
		if counts[e.Kind] == 0 {
			kinds = append(kinds, e.Kind)
			first[e.Kind] = e
		}
		counts[e.Kind] += max(e.Count, 1)
	}
	for _, kind := range kinds {
		r.warn("%s: %d times, first: %s", kind, counts[kind], first[kind].Message)
	}
}

// checkEnd accounts for the requests that were in flight when a run was killed: they have no line, but the series
// counted their start.
func (j *judge) checkEnd(out *Result) {
	if !j.run.Info.Ended.IsZero() {
		return
	}
	seen, ok := j.series.sum(started)
	if !ok {
		out.warn("the run did not come to its end; how many requests were in flight then is not known")
		return
	}
	// The series ends before the lines do: what has a line and began after the last second is not in its sum.
	last := j.series.samples[len(j.series.samples)-1].Time.Add(time.Second).UnixNano()
	known := int64(0)
	for _, start := range j.table.start {
		if start != 0 && start < last {
			known++
		}
	}
	j.unseen = max(0, seen-known)
	out.Counts = out.Counts.Plus(results.Counts{Offered: j.unseen, Started: j.unseen, InFlight: j.unseen})
	if n := len(j.series.samples); n > 0 {
		j.unseenPhase, j.unseenStep = j.series.samples[n-1].Phase, j.series.samples[n-1].Step
	}
	out.warn("the run did not come to its end; %d requests were in flight then", out.Counts.InFlight)
}

func (j *judge) steadyLength() time.Duration {
	if j.contract.Phases.Default {
		return 0
	}
	return time.Duration(j.contract.Phases.Steady)
}

const sectionAbort = string(contract.SectionAbort)

// abort turns the rule that stopped the run into a criterion: it was a limit of the contract, and it was not kept. A run
// that was stopped for another reason is not finished, which decide sees to.
func (j *judge) abort(out *Result) {
	aborted := j.run.Info.Aborted
	if aborted == nil {
		return
	}
	if aborted.Rule == results.RuleInterrupted {
		out.warn("the run was stopped: %s", aborted.Saw)
		return
	}
	c := Criterion{Name: aborted.Rule, Section: sectionAbort, Verdict: Fail, Note: "stopped the run: " + aborted.Saw}
	if ended := j.run.Info.Ended; !ended.IsZero() && !aborted.At.IsZero() {
		c.note("it ended %.1f s later", ended.Sub(aborted.At).Seconds())
	}
	for _, rule := range j.contract.Abort {
		if rule.Name != aborted.Rule {
			continue
		}
		c.Limit, c.Unit = "not "+rule.LimitText(), string(rule.Unit)
		if rule.Metric == string(contract.SectionClientHeadroom) {
			c.Section, c.Verdict = string(contract.SectionClientHeadroom), Invalid
		}
	}
	out.Criteria = append(out.Criteria, c)
}

func (j *judge) phases(out *Result) {
	t := j.table
	for p, name := range t.phases.list {
		phase := Phase{Name: name, Metrics: make(map[string]Quantiles)}
		rows := j.rows(name, "")
		for _, i := range rows {
			if int(t.phase[i]) == p {
				phase.Counts.Add(t.outcome[i], 1)
			}
		}
		if len(rows) > 0 {
			phase.Seconds = float64(t.arrival[rows[len(rows)-1]]-t.arrival[rows[0]]) / 1e9
		}
		phase.OfferedPerSecond = j.offered(name)
		values := make([]float64, 0, len(rows))
		for column, metric := range columnNames {
			if column == columnITL {
				continue // these are quantiles already
			}
			values = values[:0]
			for _, i := range rows {
				if v := t.values[column][i]; !math.IsNaN(v) {
					values = append(values, v)
				}
			}
			if len(values) > 0 {
				phase.Metrics[metric] = quantiles(values)
			}
		}
		samples := j.wholeSeconds(name)
		phase.RequestsPerSecond = meanFlow(samples, completed)
		phase.PromptTokensPerSecond = meanFlow(samples, promptTokens)
		phase.OutputTokensPerSecond = meanFlow(samples, completionTokens)
		out.Phases = append(out.Phases, phase)
	}
	order := []string{"warmup", steady, recovery}
	slices.SortStableFunc(out.Phases, func(a, b Phase) int {
		return slices.Index(order, a.Name) - slices.Index(order, b.Name)
	})
}

func quantiles(values []float64) Quantiles {
	q := Quantiles{N: int64(len(values)), Mean: mean(values)}
	slices.Sort(values)
	q.P50, q.P95, q.P99 = sampleQuantile(values, 0.5), sampleQuantile(values, 0.95), sampleQuantile(values, 0.99)
	q.Max = values[len(values)-1]
	return q
}

// wholeSeconds are those of a phase's own time, which its rates are over.
func (j *judge) wholeSeconds(phase string) []results.Sample {
	return j.span(phase).WholeSeconds(j.series.samples, results.OfPhase(phase))
}

func (j *judge) span(phase string) results.ArrivalSpan {
	var span results.ArrivalSpan
	if rows := j.rows(phase, ""); len(rows) > 0 {
		span.See(time.Unix(0, j.table.arrival[rows[0]]))
		span.See(time.Unix(0, j.table.arrival[rows[len(rows)-1]]))
	}
	if j.run.Info.Ended.IsZero() {
		span.SeeStarts(j.series.samples, phase)
	}
	return span
}

func meanFlow(samples []results.Sample, of func(*results.Sample) *int64) *float64 {
	values := results.Flow(samples, of)
	if len(values) == 0 {
		return nil
	}
	return pointer(mean(values))
}

// prefixCache tells what came from the prefix cache, and warns where that was there before the run.
func (j *judge) prefixCache(out *Result) {
	cache := j.table.prefix.Cache(j.series.of(steady), j.run.Info.IdealPrefixHitRatio)
	out.Prefix = cache
	if n := j.table.prefix.impossible; n > 0 {
		out.warn("%d requests say that more prompt tokens were cached than there were: that is no number of cached tokens, and is not counted", n)
	}
	if cache == nil || !cache.Warm {
		return
	}
	out.warn("warm cache: %.1f%% of the prompt tokens came from the prefix cache, the workload's own reuse explains at "+
		"most %.1f%%: the cache held prompts from before this run, or the script sent some of them twice, and latencies are too good by that",
		100*cache.Measured, 100**cache.Ideal)
}

// checkSteady warns where the contract is about a phase in which nothing was seen.
func (j *judge) checkSteady(out *Result) {
	if len(j.rows(steady, "")) == 0 {
		out.warn("no arrival carries the tag phase: steady, which the contract is judged on")
		return
	}
	// A staircase has times of its own. The last arrival is before the phase's end: by a gap, which can be several mean ones.
	planned, span := j.steadyLength(), j.span(steady)
	arrivals := len(j.rows(steady, ""))
	if planned == 0 || len(out.Steps) > 0 || arrivals < 2 || out.unfinished() {
		return
	}
	lasted := span.Last.Sub(span.First)
	if gap := lasted / time.Duration(arrivals-1); lasted+10*gap < planned*9/10 {
		out.warn("the steady phase had arrivals for %.3g s, and the contract asks for %s: what it was judged on is shorter than what was decided",
			lasted.Seconds(), contract.Duration(planned))
	}
}

// unfinished says that the run did not come to its own end, or that evidence of it is missing.
func (r *Result) unfinished() bool { return r.Ended.IsZero() || r.Aborted != nil || r.partial }

// decide derives the overall verdict; what is unfinished does not pass.
func (r *Result) decide(unfinished bool) {
	var failed, invalid, open bool
	for _, c := range r.Criteria {
		switch {
		case c.Ignored:
		case c.Section == string(contract.SectionClientHeadroom):
			invalid = invalid || c.Verdict == Fail || c.Verdict == Invalid
			open = open || c.Verdict == Inconclusive
		default:
			failed = failed || c.Verdict == Fail
			open = open || c.Verdict == Inconclusive
		}
	}
	switch {
	case failed:
		r.Verdict = Fail
	case invalid:
		r.Verdict = Invalid
	case open || unfinished || len(r.Criteria) == 0:
		r.Verdict = Inconclusive
	default:
		r.Verdict = Pass
	}
	if !invalid {
		return
	}
	for i := range r.Criteria {
		c := &r.Criteria[i]
		if c.Verdict == Pass && c.Section != string(contract.SectionClientHeadroom) {
			c.Verdict = Invalid
			c.note("it would pass, but the load generator was the bottleneck")
		}
	}
	r.warn("the load generator was the bottleneck: nothing good about the service follows from this run")
}
