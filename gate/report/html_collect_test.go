package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// handmade writes a run of requests that are known one by one.
func handmade(tb testing.TB, info results.Info, requests []results.Request, samples []results.Sample) string {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "run")
	if info.Started.IsZero() {
		info.Started = syntheticStart
	}
	w, err := results.Create(dir, info, results.Options{})
	require.NoError(tb, err)
	for i := range requests {
		require.NoError(tb, w.Request(&requests[i]))
	}
	for _, s := range samples {
		require.NoError(tb, w.Sample(s))
	}
	ended := syntheticStart.Add(time.Minute)
	if n := len(samples); n > 0 && samples[n-1].Time.After(ended) {
		ended = samples[n-1].Time
	}
	require.NoError(tb, w.Close(ended, nil))
	return dir
}

func at(seconds float64) time.Time {
	return syntheticStart.Add(time.Duration(seconds * float64(time.Second)))
}

func TestCollectCountsExactly(t *testing.T) {
	var requests []results.Request
	add := func(second float64, phase string, outcome results.Outcome, ttft float64) *results.Request {
		r := results.Request{Row: -1, Attempt: 1, Phase: phase, Outcome: outcome, Due: at(second), Start: at(second)}
		if outcome == results.OK {
			r.TTFT, r.E2E, r.Goodput = results.Num(ttft), results.Num(10*ttft), results.FlagOf(ttft <= 70)
		}
		requests = append(requests, r)
		return &requests[len(requests)-1]
	}
	add(0.5, "warmup", results.OK, 9999)
	add(0.6, "warmup", results.Failed, 0).ErrorType = "connect"
	for i := range 100 {
		r := add(10+float64(i)/10, "steady", results.OK, float64(i+1))
		r.Class, r.Prompt, r.PromptAsked = "short", results.IntOf(int64(10*i)), results.IntOf(100)
		if i >= 50 {
			r.Class = "long"
		}
	}
	failed := add(20, "steady", results.Failed, 0)
	failed.ErrorType, failed.Class = "http_5xx", "long"
	drop := add(20.1, "steady", results.Dropped, 0)
	drop.Start, drop.ErrorType = time.Time{}, "late"
	early := add(0.7, "warmup", results.Dropped, 0)
	early.Start, early.ErrorType = time.Time{}, "no_vu"
	retry := requests[5]
	retry.Attempt, retry.TTFT = 2, results.Num(1e6)
	requests = append(requests, retry)
	var samples []results.Sample
	for second := range 22 {
		completed, tokens, phase := int64(10), int64(1000), "steady"
		if second < 10 {
			completed, phase = 77, "warmup"
		}
		samples = append(samples, results.Sample{Time: at(float64(second)), Phase: phase, Completed: &completed, CompletionTokens: &tokens})
	}
	for _, second := range []int{20, 21} {
		samples[second].Completed = count(500) // after the last arrival, an overloaded service completes what it was offered
	}
	samples[10].Completed = count(0) // the first second of the phase is cut by its beginning: arrivals start within it
	requests[2].Due, requests[2].Start = at(10.05), at(10.05)

	dir := handmade(t, results.Info{}, requests, samples)
	run := collect(t, dir).Runs[0]
	require.Equal(t, "steady", run.Part)
	require.Equal(t, results.Counts{Offered: 102, Started: 101, Dropped: 1, Completed: 100, Failed: 1}, run.Counts)
	require.Equal(t, map[string]int64{"late": 1}, run.DroppedBy, "the warmup's is another part")
	require.Contains(t, ledger(run.Counts, run.DroppedBy), keyValue{"dropped", "1 (1 late)"})
	require.Equal(t, map[string]int64{"http_5xx": 1}, run.ErrorTypes)

	require.Len(t, run.Points, 1)
	p := run.Points[0]
	require.Equal(t, &verdict.Quantiles{N: 100, P50: 50, P95: 95, P99: 99, Mean: 50.5, Max: 100}, p.TTFT)
	require.Equal(t, 990.0, p.E2E.P99)
	require.Nil(t, p.TPOT)
	require.Nil(t, p.ITL)
	require.InDelta(t, 101/10.05, *p.OfferedPerSecond, 1e-9)
	require.Equal(t, 10.0, *p.AchievedPerSecond)
	require.Equal(t, 1000.0, *p.OutputTokensPerSecond)
	source, err := results.Open(dir)
	require.NoError(t, err)
	judged, err := verdict.Judge(source, &contract.Contract{Confidence: 0.95})
	require.NoError(t, err)
	require.Equal(t, "steady", judged.Phases[1].Name)
	require.Equal(t, judged.Phases[1].RequestsPerSecond, p.AchievedPerSecond, "a run has one rate, whoever tells it")
	require.Equal(t, judged.Phases[1].OutputTokensPerSecond, p.OutputTokensPerSecond)
	require.InDelta(t, 70.0/101, *p.Goodput, 1e-12, "a failed request missed its SLOs")
	require.InDelta(t, 1.0/101, *p.ErrorShare, 1e-12)

	require.Len(t, run.Classes, 2)
	require.Equal(t, []string{"short", "long"}, []string{run.Classes[0].Name, run.Classes[1].Name})
	require.EqualValues(t, 51, run.Classes[1].N)
	require.EqualValues(t, 1, run.Classes[1].Failed)
	require.Equal(t, 75.0, run.Classes[1].TTFT.P50)

	require.Equal(t, "0–16", run.InputLengths[0].Name)
	require.Equal(t, "513–1024", run.InputLengths[len(run.InputLengths)-1].Name)
	require.EqualValues(t, 2, run.InputLengths[0].N)
	var total int64
	for _, g := range run.InputLengths {
		require.LessOrEqual(t, g.From, g.To)
		total += g.N
	}
	require.EqualValues(t, 100, total, "a request whose prompt is not known is in no range")

	require.Nil(t, run.OutputTokens)
	h := run.PromptTokens
	require.EqualValues(t, 100, sum(h.Achieved))
	require.EqualValues(t, 100, sum(h.Asked))
	require.EqualValues(t, 0, h.From[0])
	for i := range h.From {
		if h.From[i] <= 100 && 100 <= h.To[i] {
			require.EqualValues(t, 100, h.Asked[i])
		}
		if i > 0 {
			require.Equal(t, h.To[i-1]+1, h.From[i])
		}
	}

	require.Equal(t, 1.0, run.Series.BinSeconds)
	require.Equal(t, []Stretch{{"warmup", 0, 10}, {"steady", 10, 22}}, run.Series.Phases, "from the samples' tags")
	column := run.Series.Columns["ttft_p99"]
	require.Len(t, column, 22)
	require.Equal(t, results.Num(9999), column[0])
	require.Equal(t, results.Number{}, column[5], "nothing arrived then")
	require.Equal(t, results.Num(10), column[10])
	require.Equal(t, results.Num(0.5), run.Series.Columns["error_share"][0])
	require.Equal(t, results.Num(0.0), run.Series.Columns["goodput"][0], "one missed its SLO, one failed")
	require.NotContains(t, run.Series.Columns, "offered")
}

func sum(counts []int64) (total int64) {
	for _, n := range counts {
		total += n
	}
	return total
}

func TestCollectWithoutPhases(t *testing.T) {
	run := collect(t, handmade(t, results.Info{}, []results.Request{
		{Row: -1, Outcome: results.OK, Start: at(1), TTFT: results.Num(5)},
		{Row: -1, Outcome: results.OK, Start: at(3), TTFT: results.Num(7)},
	}, nil)).Runs[0]
	require.Empty(t, run.Part)
	require.EqualValues(t, 2, run.Counts.Offered)
	require.Equal(t, 0.5, *run.Points[0].OfferedPerSecond)
	require.Nil(t, run.Points[0].AchievedPerSecond)
	require.Nil(t, run.Points[0].Goodput)
	require.Equal(t, "unknown", run.Arrival)
	require.Equal(t, []float64{1, 2, 3}, run.Series.Seconds)

	empty := collect(t, handmade(t, results.Info{}, nil, nil)).Runs[0]
	require.Empty(t, empty.Points)
	require.Empty(t, empty.Series.Columns)
	require.Contains(t, text(render(t, Input{Runs: []Run{empty}})), "offered 0")
}

func TestCollectSteps(t *testing.T) {
	s := short()
	s.steps, s.steady, s.rate = 2, 40*time.Second, 40
	dir := filepath.Join(t.TempDir(), "stairs")
	s.write(t, dir)
	run := collect(t, dir).Runs[0]
	steps := map[string]Point{}
	for _, p := range run.Points {
		steps[p.Step] = p
	}
	require.InDelta(t, 20, *steps["20"].OfferedPerSecond, 3)
	require.InDelta(t, 40, *steps["40"].OfferedPerSecond, 5)
	require.Positive(t, steps["20"].ITL.N)
	require.Less(t, steps["20"].TTFT.P99, steps["40"].TTFT.P99)
	for _, p := range run.Points {
		require.EqualValues(t, 4*p.Counts.Completed, p.ITL.N, "the gaps of this step, of the steady phase")
	}
	page := render(t, Input{Runs: []Run{run}})
	require.Contains(t, page, `id="rate-charts"`)
	require.Greater(t, strings.Index(page, `id="rates"`), strings.Index(page, "Criteria</h3>"), "the verdict comes first")
}

func TestArrivalProcess(t *testing.T) {
	for _, arrival := range []string{arrivalConstant, arrivalPoisson, arrivalBursty} {
		for seed := range uint64(5) {
			dir := filepath.Join(t.TempDir(), "run")
			synthetic{rate: 20, capacity: 40, arrival: arrival, steady: 40 * time.Second, seed: seed, bare: true}.write(t, dir)
			run := collect(t, dir).Runs[0]
			require.Equal(t, arrival, run.Arrival, "coefficient of variation %v", *run.GapCV)
		}
	}
	for options, want := range map[string]string{
		`{"scenarios":{"a":{"executor":"constant-arrival-rate"},"m":{"executor":"llm-monitor"}}}`:  arrivalConstant,
		`{"scenarios":{"a":{"executor":"ramping-vus"}}}`:                                           arrivalClosed,
		`{"scenarios":{"a":{"executor":"trace-arrival-rate"}}}`:                                    "",
		`{"scenarios":{"a":{"executor":"constant-vus"},"b":{"executor":"constant-arrival-rate"}}}`: "",
		`{"scenarios":[]}`: "",
		``:                 "",
	} {
		require.Equal(t, want, arrivalOfExecutors(json.RawMessage(options)), options)
	}
}

func TestSeriesKeepsPeaks(t *testing.T) {
	const seconds = 10 * maxBins
	var samples []results.Sample
	for i := range seconds {
		depth, offered := 1.0, int64(3)
		switch i {
		case 12345 % seconds:
			depth = 900
		case 777:
			depth = 0
		}
		samples = append(samples, results.Sample{Time: at(float64(i)), Offered: &offered, Server: map[string]float64{"queue_depth": depth, "odd": 1e15}})
	}
	run := collect(t, handmade(t, results.Info{Started: at(-2)}, nil, samples)).Runs[0]
	require.Equal(t, 10.0, run.Series.BinSeconds)
	require.Len(t, run.Series.Seconds, maxBins)
	require.Equal(t, []float64{2, 12}, run.Series.Seconds[:2], "from the start of the run")
	high, low := run.Series.Columns["server_queue_depth"], run.Series.Columns["server_queue_depth_min"]
	require.Equal(t, results.Num(900), high[12345%seconds/10])
	require.Equal(t, results.Num(1), high[0])
	require.Equal(t, results.Num(0), low[77])
	require.Equal(t, results.Num(3), run.Series.Columns["offered"][9], "per second, whatever the bin")
}

func TestStretches(t *testing.T) {
	require.Equal(t, []Stretch{{"warmup", 1, 4}, {"steady", 4, 99}}, stretches([]results.Span{
		{Name: "warmup", Start: at(1), End: at(4)}, {Name: "steady", Start: at(4)},
	}, syntheticStart, 99), "what has no end lasts to the end")

	dir := filepath.Join(t.TempDir(), "run")
	short().write(t, dir)
	require.Equal(t, []Stretch{{"warmup", 0, 5}, {"steady", 5, 30}}, collect(t, dir).Runs[0].Series.Phases)
}

func TestManyRunsShareTheBins(t *testing.T) {
	require.Equal(t, []string{"a/x", "b/x", "b/y"}, distinctNames([]string{"/r/a/x", "/r/b/x/", "/r/b/y"}))
	require.Equal(t, []string{"x"}, distinctNames([]string{"/r/a/x"}))

	dir := t.TempDir()
	s := short()
	s.steady, s.rate, s.bare = 400*time.Second, 1, true
	s.write(t, filepath.Join(dir, "only"))
	found, err := resultsDirs([]string{dir})
	require.NoError(t, err)
	run, err := collectRun(found[0], 60)
	require.NoError(t, err)
	require.Equal(t, 7.0, run.Series.BinSeconds)
	require.Len(t, run.Series.Seconds, 58)
}

func TestCollectFindsProbes(t *testing.T) {
	dir := t.TempDir()
	s := short()
	s.steady = 5 * time.Second
	for _, name := range []string{"chat/probe-02", "chat/probe-01", "long/probe-01"} {
		s.write(t, filepath.Join(dir, name))
	}
	in := collect(t, dir)
	var names []string
	for _, r := range in.Runs {
		names = append(names, r.Name)
	}
	require.Equal(t, []string{"chat/probe-01", "chat/probe-02", "long/probe-01"}, names)

	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	again := collect(t, filepath.Join(dir, "long/probe-01"), dir+"/.", link)
	require.Len(t, again.Runs, 3, "each run once, however often it is named")
	require.Equal(t, filepath.Join(dir, "long/probe-01"), again.Runs[0].Dir)

	_, err := Collect(nil)
	require.ErrorContains(t, err, "no results directory was given")
	_, err = Collect([]string{t.TempDir()})
	require.ErrorContains(t, err, "is no results directory and holds none")
	_, err = Collect([]string{filepath.Join(dir, "none")})
	require.ErrorContains(t, err, "none")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "chat/probe-01", results.RequestsFile), []byte("{\"outcome\":\"ok\"}\n"), 0o600))
	_, err = Collect([]string{dir})
	require.ErrorContains(t, err, "requests.jsonl: it is not the file that the run wrote")
	timers := filepath.Join(dir, "chat/probe-02", results.HistogramDir, "schedule_delay.json")
	before, err := os.ReadFile(timers)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(timers, nil, 0o600))
	_, err = Collect([]string{filepath.Join(dir, "chat/probe-02")})
	require.ErrorContains(t, err, "schedule_delay.json: it is not the file that the run wrote")
	require.NoError(t, os.WriteFile(timers, before, 0o600))
	forgetFiles(t, filepath.Join(dir, "chat/probe-01"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "chat/probe-01", results.RequestsFile), []byte("{\"outcome\":\"ok\"}\nnonsense\n"), 0o600))
	_, err = Collect([]string{dir})
	require.ErrorContains(t, err, "requests.jsonl:2")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "chat/probe-01", results.RequestsFile), []byte("{\"outcome\":\"ok\",\"start\":\"2026-03-01T09:00:00Z\"}\n{\"outc"), 0o600))
	require.Equal(t, []string{results.NotRecorded, "the last line of requests.jsonl is torn and was left out"}, collect(t, dir).Runs[0].Notes)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "chat/probe-01", results.VerdictFile), []byte("{"), 0o600))
	_, err = Collect([]string{dir})
	require.Error(t, err)
}

// forgetFiles makes a directory one of a version that recorded nothing about its files.
func forgetFiles(t *testing.T, dir string) {
	t.Helper()
	run, err := results.Open(dir)
	require.NoError(t, err)
	run.Info.Files = nil
	content, err := json.Marshal(run.Info)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, results.RunFile), content, 0o600))
}

// TestCollectJudges: a run that was killed has no verdict.json, and carries its contract.
func TestCollectJudges(t *testing.T) {
	s := short()
	s.status = ""
	s.info = func(info *results.Info) {
		info.Contract = json.RawMessage(`{"confidence":0.95,"phases":{"steady":"25s","warmup":"5s"},"capacity_gate":[{"limit":{"absolute":1},"metric":"ttft",` +
			`"name":"ttft_p95","op":"<=","phase":"steady","section":"capacity_gate","stat":{"kind":"quantile","quantile":0.95},"text":"<= 1ms","unit":"ms"}]}`)
	}
	dir := filepath.Join(t.TempDir(), "run")
	s.write(t, dir)
	run := collect(t, dir).Runs[0]
	require.Equal(t, verdict.Fail, run.Verdict.Verdict)
	require.Equal(t, "ttft_p95", run.Verdict.Criteria[0].Name)
	_, err := os.Stat(filepath.Join(dir, results.VerdictFile))
	require.ErrorIs(t, err, os.ErrNotExist, "a report changes no evidence")
}

func TestClassesAreBounded(t *testing.T) {
	classes := map[string]*grouping{}
	for i := range maxGroups + 20 {
		g := &grouping{Group: Group{Name: fmt.Sprintf("c%03d", i), N: int64(1000 - i)}, latencies: latencies{ttft: []float64{float64(i)}}}
		classes[g.Name] = g
	}
	out := sumClasses(classes)
	require.Len(t, out, maxGroups)
	require.Equal(t, "c000", out[0].Name)
	last := out[maxGroups-1]
	require.Equal(t, "(21 further classes)", last.Name)
	require.EqualValues(t, 21, last.TTFT.N)
	require.Equal(t, float64(maxGroups+19), last.TTFT.Max)

	var n names
	for i := range maxNames + 10 {
		n.index(fmt.Sprint(i))
	}
	require.Len(t, n.list, maxNames)
	require.Equal(t, otherNames, n.list[maxNames-1])
	require.EqualValues(t, maxNames-1, n.index("one more"))
	require.EqualValues(t, 3, n.index("3"))
}

func TestOctave(t *testing.T) {
	for n, want := range map[int64][2]int64{0: {0, 16}, 16: {0, 16}, 17: {17, 32}, 32: {17, 32}, 33: {33, 64}, 100000: {65537, 131072}} {
		from, to := octave(n)
		require.Equal(t, want, [2]int64{from, to})
	}
}

// What is no contract is told as it is everywhere else, and judges nothing.
func TestCollectChecksTheContract(t *testing.T) {
	for _, confidence := range []string{"7", "-1"} {
		s := short()
		s.status = ""
		s.info = func(info *results.Info) {
			info.Contract = json.RawMessage(`{"confidence":` + confidence + `,"capacity_gate":[{"limit":{"absolute":1},"metric":"ttft",` +
				`"name":"ttft_p95","op":"<=","phase":"steady","section":"capacity_gate","stat":{"kind":"quantile","quantile":0.95},"text":"<= 1ms","unit":"ms"}]}`)
		}
		dir := filepath.Join(t.TempDir(), "run")
		s.write(t, dir)
		_, err := Collect([]string{dir})
		require.EqualError(t, err, filepath.Join(dir, "run.json")+": contract: confidence: got "+confidence+
			", expected a number above 0.5 and below 1")
	}
}
