package merge_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/merge"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const slo = `
capacity_gate:
  success_rate: ">= 0.9"
  ttft_p95: "<= 800ms"
  ttft_p99: "<= 2s"
  itl_p99: "<= 80ms"
  tpot_p95: "<= 40ms"
  e2e_p99: "<= 30s"
  output_tokens_per_second: ">= 10"
  requests_per_second: ">= 1"
  goodput: ">= 0.5"
  by_class: {long: {ttft_p95: "<= 6s"}}
phases: {warmup: 10s, steady: 60s, recovery: 10s}
recovery: {queue_depth: "<= 5"}
`

func load(t *testing.T, text string) *contract.Contract {
	t.Helper()
	c, err := contract.Load("slo.yaml", []byte(text), nil)
	require.NoError(t, err)

	return c
}

// easy is passed by what generate makes, as far as the service is concerned.
const easy = `
capacity_gate:
  success_rate: ">= 0.9"
  ttft_p50: "<= 800ms"
phases: {warmup: 10s, steady: 60s, recovery: 10s}
`

// arrival is a request with the gaps between its chunks.
type arrival struct {
	results.Request
	gaps []float64
}

// run is the evidence of a whole test, or of the part of one that an instance has.
type run struct {
	arrivals []arrival
	timers   []float64 // lateness of the generator's timers in the steady phase, ms
	cpu      float64   // in each second
	server   bool      // asks the service for its metrics
	clock    []results.ClockReading
	late     time.Duration // of the instance's start
	ahead    time.Duration // of its clock
	segment  string
	killed   bool
	edit     func(*results.Info)
	second   func(i int, s *results.Sample) // of the series
}

const (
	warmupEnd = 10 * time.Second
	steadyEnd = 70 * time.Second
	testEnd   = 80 * time.Second
)

func phaseAt(offset time.Duration) string {
	switch {
	case offset < warmupEnd:
		return "warmup"
	case offset < steadyEnd:
		return "steady"
	default:
		return "recovery"
	}
}

// generate makes a test in which all outcomes occur.
func generate(seed uint64) run {
	rng := rand.New(rand.NewPCG(seed, 1))
	whole := run{server: true}
	for offset, row := time.Duration(0), int64(0); offset < testEnd; row++ {
		due := epoch.Add(offset)
		a := arrival{Request: results.Request{
			Row: row, Scenario: phaseAt(offset), Phase: phaseAt(offset), Class: "short", Model: "m", Due: due,
			Start: due.Add(time.Duration(rng.ExpFloat64() * float64(300*time.Microsecond))),
		}}
		scale := 1.0
		if rng.IntN(5) == 0 {
			a.Class, scale = "long", 3
		}
		a.fill(rng, scale)
		whole.arrivals = append(whole.arrivals, a)
		if a.Outcome == results.Failed && rng.IntN(2) == 0 {
			again := a
			again.Attempt, again.Start, again.Due = 2, a.Start.Add(time.Second), time.Time{}
			whole.arrivals = append(whole.arrivals, again)
		}
		offset += time.Duration(rng.ExpFloat64() * float64(30*time.Millisecond))
	}
	for range 3000 {
		whole.timers = append(whole.timers, rng.ExpFloat64())
	}
	whole.cpu = 0.3

	return whole
}

func (a *arrival) fill(rng *rand.Rand, scale float64) {
	ttft := scale * 150 * math.Exp(0.5*rng.NormFloat64())
	switch rng.IntN(400) {
	case 0, 10, 20, 30, 40, 50:
		a.Outcome, a.ErrorType, a.Status, a.Elapsed, a.Goodput = results.Failed, "http_5xx", 503, results.Num(3), results.FlagNo
	case 1, 11, 21, 31:
		a.Outcome, a.CancelPhase, a.Elapsed, a.TTFT = results.Cancelled, "decode", results.Num(ttft+50), results.Num(ttft)
	case 2:
		a.Outcome, a.Start = results.Dropped, time.Time{}
	default:
		tokens := 2 + rng.IntN(60)
		total := 0.0
		for range tokens - 1 {
			gap := 12 * math.Exp(0.3*rng.NormFloat64())
			a.gaps = append(a.gaps, gap)
			total += gap
		}
		ordered := slices.Sorted(slices.Values(a.gaps))
		a.Outcome, a.Status, a.Goodput = results.OK, 200, results.FlagYes
		a.TTFT, a.TTFTText, a.E2E = results.Num(ttft), results.Num(ttft), results.Num(ttft+total)
		a.TPOT, a.OutputTPS = results.Num(total/float64(tokens-1)), results.Num(1000*float64(tokens-1)/total)
		a.ITLCount, a.Chunks = int64(len(ordered)), int64(tokens)
		a.ITLP50, a.ITLMax = results.Num(ordered[len(ordered)/2]), results.Num(ordered[len(ordered)-1])
		a.ITLP99 = a.ITLMax
		a.Prompt, a.Completion = results.IntOf(100), results.IntOf(int64(tokens))
		a.PromptAsked, a.CompletionAsked = results.IntOf(100), results.IntOf(int64(tokens))
		a.TokenSource = "server"
	}
	if a.Outcome != results.Dropped {
		a.ScheduleDelay = results.Num(float64(a.Start.Sub(a.Due)) / 1e6)
	}
}

// split gives each of n instances the rows that it would have: the first one asks the service.
func (r run) split(n int) []run {
	parts := make([]run, n)
	for i := range parts {
		parts[i] = run{server: i == 0, cpu: r.cpu, segment: fmt.Sprintf("%d/%d:%d/%d", i, n, i+1, n)}
	}
	for _, a := range r.arrivals {
		part := &parts[a.Row%int64(n)]
		part.arrivals = append(part.arrivals, a)
	}
	for i, late := range r.timers {
		parts[i%n].timers = append(parts[i%n].timers, late)
	}

	return parts
}

// write makes a results directory of it, as the instance's own clock showed the times.
func (r run) write(t *testing.T, slo string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	shown := func(at time.Time) time.Time {
		if at.IsZero() {
			return at
		}

		return at.Add(r.late + r.ahead)
	}
	text, err := json.Marshal(load(t, slo))
	require.NoError(t, err)
	info := results.Info{
		Started: shown(epoch), Segment: r.segment, Contract: text, Host: results.Host{Name: "host of " + r.segment},
		Digests: map[string]string{"trace": "sha256:1"}, Seeds: map[string]uint64{"trace": 7},
		Rates: map[string]float64{"trace": 5}, Workload: "chat", Labels: []string{results.LabelSyntheticPrompts},
		Phases: []results.Span{
			{Name: "warmup", Start: shown(epoch), End: shown(epoch.Add(warmupEnd))},
			{Name: "steady", Start: shown(epoch.Add(warmupEnd)), End: shown(epoch.Add(steadyEnd))},
			{Name: "recovery", Start: shown(epoch.Add(steadyEnd)), End: shown(epoch.Add(testEnd))},
		},
	}
	if r.segment != "" {
		info.Labels = append(info.Labels, results.LabelSegment+" "+r.segment)
	}
	if r.edit != nil {
		r.edit(&info)
	}
	w, err := results.Create(dir, info, results.Options{})
	require.NoError(t, err)
	for _, a := range r.arrivals {
		q := a.Request
		q.Due, q.Start = shown(q.Due), shown(q.Start)
		require.NoError(t, w.Request(&q))
		require.NoError(t, w.RecordITL(a.Phase, a.Step, a.Class, a.gaps))
	}
	for _, late := range r.timers {
		require.NoError(t, w.RecordTimerDelay("steady", "", late))
	}
	for _, s := range r.seconds() {
		s.Time = shown(s.Time).Truncate(time.Second)
		require.NoError(t, w.Sample(s))
	}
	require.NoError(t, w.Event(results.Event{Time: shown(epoch.Add(time.Second)), Kind: results.EventScrapeGap, Message: "of " + r.segment}))
	if !r.killed {
		require.NoError(t, w.Close(shown(epoch.Add(testEnd)), nil))
	} else {
		require.NoError(t, w.Flush(shown(epoch.Add(testEnd))))
	}

	return dir
}

// seconds are the series that belong to the arrivals.
func (r run) seconds() []results.Sample {
	all := make([]results.Sample, int(testEnd/time.Second)+5)
	in := make([]int64, len(all))
	for i := range all {
		at := time.Duration(i) * time.Second
		all[i] = results.Sample{Time: epoch.Add(at), Phase: phaseAt(at), Client: map[string]float64{"cpu": r.cpu}}
		for _, n := range []**int64{
			&all[i].Offered, &all[i].Started, &all[i].Dropped, &all[i].Completed, &all[i].Failed, &all[i].Cancelled,
			&all[i].InFlight, &all[i].CompletionTokens,
		} {
			*n = new(int64)
		}
		if r.server {
			all[i].Server = map[string]float64{"queue_depth": float64(i % 4)}
		}
	}
	for i := range r.clock {
		all[i].Clock = r.clock[i : i+1]
	}
	for i := range r.arrivals {
		a := &r.arrivals[i]
		if a.Attempt > 1 {
			continue
		}
		s := &all[a.Arrival().Sub(epoch)/time.Second]
		*s.Offered++
		if a.Outcome == results.Dropped {
			*s.Dropped++

			continue
		}
		*s.Started++
		end := min(int(a.Start.Sub(epoch).Seconds()+(a.E2E.Value+a.Elapsed.Value)/1000), len(all)-1)
		switch a.Outcome {
		case results.OK:
			*all[end].Completed++
			*all[end].CompletionTokens += a.Completion.Value
		case results.Failed:
			*all[end].Failed++
		case results.Cancelled:
			*all[end].Cancelled++
		}
		for at := int(a.Start.Sub(epoch) / time.Second); at < end; at++ {
			in[at]++
		}
	}
	for i := range all {
		*all[i].InFlight = in[i]
		if r.second != nil {
			r.second(i, &all[i])
		}
	}

	return all
}

func open(t *testing.T, dir string) *results.Run {
	t.Helper()
	r, err := results.Open(dir)
	require.NoError(t, err)

	return r
}

func judge(t *testing.T, dir, slo string) *verdict.Result {
	t.Helper()
	judged, err := verdict.Judge(open(t, dir), load(t, slo))
	require.NoError(t, err)

	return judged
}

func join(t *testing.T, slo string, parts ...run) (merge.Report, string) {
	t.Helper()
	var dirs []string
	for _, part := range parts {
		dirs = append(dirs, part.write(t, slo))
	}
	out := filepath.Join(t.TempDir(), "merged")
	report, err := merge.Merge(dirs, out, merge.Options{Contract: load(t, slo)})
	require.NoError(t, err)

	return report, out
}

func requests(t *testing.T, dir string) []results.Request {
	t.Helper()
	var all []results.Request
	_, err := open(t, dir).Requests(func(r *results.Request) error {
		all = append(all, *r)

		return nil
	})
	require.NoError(t, err)

	return all
}

func series(t *testing.T, dir string) []results.Sample {
	t.Helper()
	var all []results.Sample
	_, err := open(t, dir).Series(func(s *results.Sample) error {
		all = append(all, *s)

		return nil
	})
	require.NoError(t, err)

	return all
}

// resolution is that of the histograms: three significant digits.
const resolution = 1e-3

// One test's evidence, taken apart by rows and joined again, is the same evidence: requests, counts, series, and the
// verdict to the last digit. The quantiles of the histograms are the same too, and so within the histograms' resolution of
// the true ones.
func TestSplitAndJoinedIsTheSame(t *testing.T) {
	t.Parallel()
	for _, instances := range []int{2, 3, 5} {
		t.Run(fmt.Sprint(instances), func(t *testing.T) {
			t.Parallel()
			whole := generate(uint64(instances))
			single := whole.write(t, slo)
			parts := whole.split(instances)
			clock := []results.ClockReading{{Date: epoch, Lower: -10, Upper: 10}}
			for i := range parts {
				parts[i].clock = clock
			}
			report, joined := join(t, slo, parts...)

			require.Equal(t, instances, len(report.Instances))
			require.Zero(t, report.DuplicateRows)
			sum := results.Counts{}
			for _, instance := range report.Instances {
				sum = sum.Plus(instance.Counts)
			}
			require.Equal(t, report.Counts, sum)

			byRow := func(a, b results.Request) int {
				if a.Row != b.Row {
					return int(a.Row - b.Row)
				}

				return a.Attempt - b.Attempt
			}
			want, got := requests(t, single), requests(t, joined)
			require.True(t, slices.IsSortedFunc(got, func(a, b results.Request) int { return a.Arrival().Compare(b.Arrival()) }))
			slices.SortStableFunc(want, byRow)
			slices.SortStableFunc(got, byRow)
			require.Equal(t, want, got, "each row once, as it was")

			wantSeries, gotSeries := series(t, single), series(t, joined)
			require.Equal(t, wantSeries, gotSeries)

			sameHistograms(t, single, joined)
			nearTheTruth(t, whole, joined)

			one, all := judge(t, single, slo), judge(t, joined, slo)
			require.Equal(t, one.Verdict, all.Verdict)
			require.Equal(t, one.Counts, all.Counts)
			require.Equal(t, one.Phases, all.Phases)
			for i, c := range one.Criteria {
				if c.Section == string(contract.SectionClientHeadroom) {
					require.Equal(t, c.Verdict, all.Criteria[i].Verdict, c.Name)

					continue // of each instance
				}
				require.Equal(t, c, all.Criteria[i])
			}
		})
	}
}

func sameHistograms(t *testing.T, single, joined string) {
	t.Helper()
	for _, metric := range results.HistogramMetrics() {
		want, err := open(t, single).Histograms(metric)
		require.NoError(t, err)
		require.NotEmpty(t, want, metric)
		got, err := open(t, joined).Histograms(metric)
		require.NoError(t, err)
		require.Len(t, got, len(want), metric)
		for i := range want {
			require.Equal(t, want[i].HistogramKey, got[i].HistogramKey)
			require.Equal(t, want[i].Bars(), got[i].Bars(), want[i].HistogramKey)
		}
	}
}

func nearTheTruth(t *testing.T, whole run, joined string) {
	t.Helper()
	var ttft, gaps []float64
	for _, a := range whole.arrivals {
		if a.TTFT.Known && a.Attempt <= 1 {
			ttft = append(ttft, a.TTFT.Value)
		}
		gaps = append(gaps, a.gaps...)
	}
	for metric, values := range map[string][]float64{results.MetricTTFT: ttft, results.MetricITL: gaps} {
		slices.Sort(values)
		all, err := open(t, joined).Histograms(metric)
		require.NoError(t, err)
		merged, err := results.MergeHistograms(all, func(results.HistogramKey) bool { return true })
		require.NoError(t, err)
		require.Equal(t, int64(len(values)), merged.Count())
		for _, q := range []float64{0.01, 0.5, 0.9, 0.95, 0.99, 0.999} {
			// Which of the two values at a quantile's rank is taken is a matter of rounding.
			rank := int(math.Ceil(q * float64(len(values))))
			got := merged.Quantile(q).Value
			require.GreaterOrEqual(t, got, values[max(rank-2, 0)]*(1-resolution), "%s %v", metric, q)
			require.LessOrEqual(t, got, values[rank-1]*(1+resolution), "%s %v", metric, q)
		}
	}
}

func TestAStrainedInstanceMakesTheWholeInvalid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		strain    func(*run)
		criterion string
	}{
		"cpu":    {strain: func(r *run) { r.cpu = 0.95 }, criterion: "client_headroom.cpu"},
		"timers": {strain: func(r *run) { r.timers = slices.Repeat([]float64{30}, 25) }, criterion: "client_headroom.timer_delay_p99"},
		"schedule": {strain: func(r *run) {
			first := r.arrivals[0].Due
			for i := range r.arrivals {
				if a := &r.arrivals[i]; !a.Start.IsZero() {
					a.Start = a.Start.Add(a.Start.Sub(first) / 20)
				}
			}
		}, criterion: "client_headroom.schedule_error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whole := generate(11)
			whole.arrivals = slices.DeleteFunc(whole.arrivals, func(a arrival) bool { return a.Outcome == results.Dropped })
			parts := whole.split(3)
			_, out := join(t, easy, parts...)
			require.Equal(t, verdict.Pass, judge(t, out, easy).Verdict)

			c.strain(&parts[1])
			_, out = join(t, easy, parts...)
			judged := judge(t, out, easy)
			require.Equal(t, verdict.Invalid, judged.Verdict)
			found := false
			for _, criterion := range judged.Criteria {
				if criterion.Name != c.criterion {
					continue
				}
				found = true
				require.Equal(t, verdict.Fail, criterion.Verdict)
				require.Contains(t, criterion.Note, "over the limit in 1/3:2/3 (host of 1/3:2/3)")
			}
			require.True(t, found)
		})
	}
}

func TestTimesAreSetByTheMeasuredOffset(t *testing.T) {
	t.Parallel()
	const ahead = 7300 * time.Millisecond
	turns := func(lower, upper float64) []results.ClockReading {
		var all []results.ClockReading
		for i := range 20 {
			all = append(all, results.ClockReading{Date: epoch.Add(time.Duration(i) * time.Second), Lower: lower, Upper: upper})
		}

		return all
	}
	whole := generate(5)
	parts := whole.split(3)
	parts[0].clock = turns(-20, 30)
	parts[1].clock, parts[1].ahead = turns(7270, 7330), ahead
	parts[1].edit = func(info *results.Info) {
		info.Aborted = &results.Aborted{Rule: results.RuleInterrupted, At: epoch.Add(testEnd + ahead)}
	}
	parts[2].clock = turns(-35, 25)
	report, out := join(t, slo, parts...)

	require.Nil(t, report.Instances[0].ClockOffset, "it is the measure")
	require.Empty(t, report.Instances[0].ClockUnknown)
	require.Equal(t, &results.ClockOffset{Lower: 7240, Upper: 7350, Turns: 20}, report.Instances[1].ClockOffset)
	require.InDelta(t, 7295, report.Instances[1].CorrectedMS, 1e-9)
	require.Equal(t, &results.ClockOffset{Lower: -65, Upper: 45, Turns: 20}, report.Instances[2].ClockOffset)
	require.Zero(t, report.Instances[2].CorrectedMS, "it may be none")
	require.NotNil(t, report.StartSkewMS)
	require.InDelta(t, 0, *report.StartSkewMS, 5, "what the middle of the bounds misses at most")

	single := whole.write(t, slo)
	want, got := series(t, single), series(t, out)
	require.Len(t, got, len(want))
	for i := range want {
		require.True(t, want[i].Time.Equal(got[i].Time), "second %d", i)
		require.Equal(t, want[i].Started, got[i].Started, "second %d", i)
		require.Equal(t, want[i].InFlight, got[i].InFlight, "second %d", i)
		require.Equal(t, want[i].Phase, got[i].Phase)
		require.Empty(t, got[i].Clock, "it was one instance's")
	}
	truth := map[int64]time.Time{}
	for _, a := range whole.arrivals {
		if a.Attempt <= 1 {
			truth[a.Row] = a.Due
		}
	}
	for _, r := range requests(t, out) {
		if r.Attempt > 1 {
			continue
		}
		off := time.Duration(0)
		if r.Row%3 == 1 {
			off = 5 * time.Millisecond
		}
		require.Equal(t, off, r.Due.Sub(truth[r.Row]), "row %d", r.Row)
	}
	info := open(t, out).Info
	require.Equal(t, epoch, info.Started)
	require.Equal(t, epoch.Add(testEnd+5*time.Millisecond), info.Ended)
	require.Equal(t, epoch.Add(steadyEnd+5*time.Millisecond), info.Phases[1].End)
	require.Equal(t, epoch.Add(testEnd+5*time.Millisecond), info.Aborted.At)
	require.Equal(t, epoch.Add(ahead), info.Merged.Instances[1].Started, "by its own clock")
	events, _, err := open(t, out).Events()
	require.NoError(t, err)
	require.Equal(t, epoch.Add(time.Second+5*time.Millisecond), events[2].Time)
	require.Contains(t, judge(t, out, slo).Warnings, "the clock of 1/3:2/3 (host of 1/3:2/3) is 7240 ms to 7350 ms ahead of "+
		"the first instance's: its times were corrected by 7295 ms")
}

func TestAnOffsetThatIsNotKnownCorrectsNothing(t *testing.T) {
	t.Parallel()
	whole := generate(5)
	parts := whole.split(2)
	parts[0].clock = []results.ClockReading{{Date: epoch, Lower: -20, Upper: 30}}
	parts[1].late = 1500 * time.Millisecond
	report, out := join(t, slo, parts...)
	require.Nil(t, report.Instances[1].ClockOffset)
	require.Equal(t, "the service's Date was not seen to turn", report.Instances[1].ClockUnknown)
	require.Zero(t, report.Instances[1].CorrectedMS)
	require.InDelta(t, 1500, *report.StartSkewMS, 100, "but for the gaps between rows")
	require.LessOrEqual(t, *report.StartSkewMS, 1500.0)
	warnings := judge(t, out, slo).Warnings
	require.Contains(t, warnings, fmt.Sprintf("the instances began at least %.0f ms apart: the load was not the schedule's", *report.StartSkewMS))
	require.Contains(t, warnings, "the clock of 1/2:2/2 (host of 1/2:2/2) could not be compared with the first instance's "+
		"(the service's Date was not seen to turn): its times stand as its own clock showed them")
}

func TestAPartOfTheTestIsToldToBeOne(t *testing.T) {
	t.Parallel()
	whole := generate(5)
	whole.arrivals = slices.DeleteFunc(whole.arrivals, func(a arrival) bool { return a.Outcome == results.Dropped })
	parts := whole.split(4)
	report, out := join(t, easy, parts[0], parts[2])
	require.InDelta(t, 0.5, *report.Covered, 1e-12)
	judged := judge(t, out, easy)
	require.Contains(t, judged.Warnings,
		"the instances' segments make 50% of the test: directories are missing, and what is in them may have failed")
	require.Equal(t, verdict.Inconclusive, judged.Verdict, "whatever the rest says")
}

func TestAKilledInstanceLeavesTheWholeUnfinished(t *testing.T) {
	t.Parallel()
	whole := generate(5)
	whole.arrivals = slices.DeleteFunc(whole.arrivals, func(a arrival) bool { return a.Outcome == results.Dropped })
	parts := whole.split(2)
	parts[1].killed = true
	report, out := join(t, easy, parts...)
	require.InDelta(t, 0, *report.StartSkewMS, 0, "it knows no phases, and began with the others")
	require.True(t, open(t, out).Info.Ended.IsZero())
	require.Equal(t, verdict.Inconclusive, judge(t, out, easy).Verdict)
	require.True(t, open(t, out).Info.Merged.Instances[1].Ended.IsZero())
	require.False(t, open(t, out).Info.Merged.Instances[0].Ended.IsZero())
}

func TestOnlyInstancesOfOneTestAreJoined(t *testing.T) {
	t.Parallel()
	parts := generate(5).split(2)
	first := parts[0].write(t, slo)
	out := func() string { return filepath.Join(t.TempDir(), "merged") }
	merged := func(other string) error {
		_, err := merge.Merge([]string{first, other}, out(), merge.Options{})

		return err
	}
	require.ErrorIs(t, merged(parts[1].write(t, "capacity_gate: {success_rate: \">= 0.5\"}\n")), merge.ErrDifferent)
	for want, edit := range map[string]func(*results.Info){
		"digest of trace: sha256:1 and sha256:2":     func(info *results.Info) { info.Digests["trace"] = "sha256:2" },
		"digest of more, which only one of them has": func(info *results.Info) { info.Digests["more"] = "sha256:1" },
		"seed of trace: 7 and 8":                     func(info *results.Info) { info.Seeds = map[string]uint64{"trace": 8} },
		"seed of trace, which only one of them has":  func(info *results.Info) { info.Seeds = nil },
		"rate of trace: 5 and 6":                     func(info *results.Info) { info.Rates = map[string]float64{"trace": 6} },
		`workload "chat" and "other"`:                func(info *results.Info) { info.Workload = "other" },
	} {
		other := parts[1]
		other.edit = edit
		err := merged(other.write(t, slo))
		require.ErrorIs(t, err, merge.ErrDifferent, want)
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, merged(parts[1].write(t, slo)))
	_, err := merge.Merge([]string{first}, out(), merge.Options{})
	require.ErrorContains(t, err, "got 1 directory, expected two or more")
	require.ErrorContains(t, merged(t.TempDir()), "is no results directory")
	second := parts[1].write(t, slo)
	_, err = merge.Merge([]string{first, second}, parts[1].write(t, slo), merge.Options{})
	require.ErrorContains(t, err, "is not empty")
}

// One run three times has three times the requests, and would prove what one does not.
func TestNothingCountsTwice(t *testing.T) {
	t.Parallel()
	parts := generate(5).split(2)
	first, second := parts[0].write(t, slo), parts[1].write(t, slo)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(first, link))
	out := filepath.Join(t.TempDir(), "merged")
	refused := func(want string, dirs ...string) {
		t.Helper()
		_, err := merge.Merge(dirs, out, merge.Options{})
		require.ErrorIs(t, err, merge.ErrTwice)
		require.ErrorContains(t, err, want)
		require.NoDirExists(t, out, "nothing is written")
	}
	refused("are one directory", first, first)
	refused("are one directory", first, second, first+"/")
	refused("are one directory", first, filepath.Join(first, "..", filepath.Base(first)))
	refused("are one directory", first, link)
	refused("are of one run (both began at 2026-01-02T03:04:05Z", first, parts[0].write(t, slo))

	later := parts[0]
	later.late = 6 * time.Second
	refused("the segments of "+first+" (0/2:1/2) and ", first, later.write(t, slo))
	later.segment = "1/4:3/4"
	refused("(1/4:3/4) overlap; give each instance its own --execution-segment and all of them the same --execution-segment-sequence",
		first, later.write(t, slo))
	later.segment = "1/2:2/2"
	rows := map[int64]bool{}
	for _, a := range parts[0].arrivals {
		rows[a.Row] = true
	}
	refused(fmt.Sprintf("%d rows were replayed by more than one instance; give each instance its own --execution-segment and all of "+
		"them the same --execution-segment-sequence", len(rows)), first, later.write(t, slo))

	_, err := merge.Merge([]string{first, second}, first+"/", merge.Options{Overwrite: true})
	require.ErrorContains(t, err, "which is to be read")
	require.NotEmpty(t, requests(t, first), "it is still there")
}

// Two traces of one test, in two scenarios, both begin at row 0.
func TestRowsOfOtherScenariosAreOtherRows(t *testing.T) {
	t.Parallel()
	parts := generate(5).split(2)
	for i := range parts {
		for k := range parts[i].arrivals {
			parts[i].arrivals[k].Row, parts[i].arrivals[k].Scenario = int64(k), fmt.Sprintf("scenario %d", i)
		}
	}
	report, _ := join(t, slo, parts...)
	require.Zero(t, report.DuplicateRows)
	require.Equal(t, report.Instances[0].Counts.Plus(report.Instances[1].Counts), report.Counts)
}

// An instance in which nothing started or ended in a second has as many requests in flight as before, not none.
func TestRequestsInFlightAreHeldOverQuietSeconds(t *testing.T) {
	t.Parallel()
	dirs := make([]string, 2)
	for i := range dirs {
		dirs[i] = filepath.Join(t.TempDir(), "run")
		w, err := results.Create(dirs[i], results.Info{Started: epoch, Segment: []string{"0:1/2", "1/2:1"}[i]}, results.Options{})
		require.NoError(t, err)
		for second := range 4 {
			s := results.Sample{Time: epoch.Add(time.Duration(second) * time.Second), Phase: "steady", Client: map[string]float64{"cpu": 0.1}}
			if i == 0 || second == 1 {
				inFlight := int64(10 * (i + 1))
				s.InFlight = &inFlight
			}
			require.NoError(t, w.Sample(s))
		}
		require.NoError(t, w.Close(epoch.Add(4*time.Second), nil))
	}
	out := filepath.Join(t.TempDir(), "merged")
	_, err := merge.Merge(dirs, out, merge.Options{})
	require.NoError(t, err)
	var got []int64
	for _, s := range series(t, out) {
		got = append(got, *s.InFlight)
	}
	require.Equal(t, []int64{10, 30, 30, 30}, got)
}

// A merge that fails in the middle leaves neither half an answer nor, where it was to replace one, less than there was.
func TestAMergeIsWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	parts := generate(5).split(2)
	good := []string{parts[0].write(t, slo), parts[1].write(t, slo)}
	damaged := parts[1].write(t, slo)
	path := filepath.Join(damaged, results.HistogramDir, results.MetricTTFT+".json")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, append(content, '\n'), 0o600))

	out := filepath.Join(t.TempDir(), "merged")
	_, err = merge.Merge([]string{good[0], damaged}, out, merge.Options{})
	require.ErrorContains(t, err, "ttft.json: it is not the file that the run wrote")
	require.NoDirExists(t, out)

	joined, err := merge.Merge(good, out, merge.Options{})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(out, results.VerdictFile), []byte("{}"), 0o600))
	_, err = merge.Merge([]string{good[0], damaged}, out, merge.Options{Overwrite: true})
	require.ErrorContains(t, err, "ttft.json: it is not the file that the run wrote")
	kept, err := results.Open(out)
	require.NoError(t, err)
	require.Len(t, kept.Info.Merged.Instances, 2)
	var counts results.Counts
	_, err = kept.Requests(func(r *results.Request) error {
		counts.Add(r.Outcome, r.Attempt)

		return nil
	})
	require.NoError(t, err)
	require.Equal(t, joined.Counts, counts)
	require.NoError(t, kept.CheckHistograms())
	require.FileExists(t, filepath.Join(out, results.VerdictFile))

	lock, err := results.LockDir(out)
	require.NoError(t, err)
	_, err = merge.Merge(good, out, merge.Options{Overwrite: true})
	require.ErrorIs(t, err, results.ErrInUse)
	lock.Release()
	_, err = merge.Merge(good, out, merge.Options{Overwrite: true})
	require.NoError(t, err)
	require.NoFileExists(t, filepath.Join(out, results.VerdictFile))
}
