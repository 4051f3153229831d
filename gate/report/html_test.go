package report

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

func render(tb testing.TB, in Input) string {
	tb.Helper()
	var b bytes.Buffer
	require.NoError(tb, HTML(&b, in))
	return b.String()
}

func collect(tb testing.TB, dirs ...string) Input {
	tb.Helper()
	in, err := Collect(dirs)
	require.NoError(tb, err)
	return in
}

// short is a run that is quick to make and has every part.
func short() synthetic {
	return synthetic{rate: 20, capacity: 24, arrival: arrivalPoisson, warmup: 5 * time.Second, steady: 25 * time.Second, seed: 7, status: verdict.Fail}
}

// text is a page as a reader without scripts and styles sees it.
func text(page string) string {
	page = regexp.MustCompile(`(?s)<(script|style)[^>]*>.*?</(script|style)>`).ReplaceAllString(page, "")
	page = strings.ReplaceAll(page, "<wbr>", "")
	page = regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, " ")
	return strings.Join(strings.Fields(page), " ")
}

func TestHTMLSaysTheVerdictFirst(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "probe")
	short().write(t, dir)
	page := render(t, collect(t, dir))
	seen := text(page)
	_, body, _ := strings.Cut(seen, "Skip to the verdict")
	for _, part := range []string{ // in this order
		"FAIL probe", "2 of 6 criteria failed: ttft_p95, ttft_p99.", "synthetic prompts", "max_num_seqs 32 -&gt; 48",
		"Offered", "requests/s, Poisson", "Criteria", "success_rate", "&gt;= 0.995", "99.8%", "✓ PASS",
		"&lt;= 2s", "4.2s", "210%", "12 of 500 over (1.92% to 3.3%)", "✕ FAIL", "client_headroom.open_files", "not measured",
		"Over time", "Configuration", "sha256:3f5a9c0d",
	} {
		at := strings.Index(body, part)
		require.GreaterOrEqual(t, at, 0, "%q comes after what was found so far, in\n%s", part, body)
		body = body[at:]
	}
	require.NotContains(t, page, `id="rate-charts"`, "one rate is no curve")
	require.Contains(t, page, "<h1")
}

func TestHTMLOfSeveralRuns(t *testing.T) {
	dir := t.TempDir()
	for name, s := range map[string]synthetic{
		"probe-01": {rate: 10, capacity: 30, status: verdict.Pass}, "probe-02": {rate: 20, capacity: 30, status: verdict.Pass},
		"probe-03": {rate: 30, capacity: 30, status: verdict.Fail}, "probe-04": {rate: 25, capacity: 30, status: verdict.Inconclusive},
	} {
		s.arrival, s.steady, s.seed = arrivalConstant, 20*time.Second, 1
		s.write(t, filepath.Join(dir, name))
	}
	in := collect(t, dir)
	seen := text(render(t, in))
	require.Contains(t, seen, "constant : highest rate that passed 20/s ; lowest that failed 30/s (ttft_p95, ttft_p99); 1 undecided or not judged.")
	require.NotContains(t, seen, "do not agree")
	require.Contains(t, seen, "4 runs · started 2026-03-01 09:00:00 UTC chat.jsonl")
	head, _, _ := strings.Cut(seen, "Against the rate")
	require.Contains(t, head, "synthetic prompts change max_num_seqs 32 -&gt; 48")

	curves := curvesOf(in.Runs)
	require.Len(t, curves, 1)
	var rates []float64
	for _, p := range curves[0].Points {
		rates = append(rates, *p.OfferedPerSecond)
	}
	require.InDeltaSlice(t, []float64{10, 20, 25, 30}, rates, 0.001)
	require.Equal(t, []string{"PASS", "PASS", "INCONCLUSIVE", "FAIL"},
		[]string{curves[0].Points[0].Verdict, curves[0].Points[1].Verdict, curves[0].Points[2].Verdict, curves[0].Points[3].Verdict})

	safe, margin := 22.5, 0.2
	in.Capacity = []Capacity{
		{
			Workload: "chat", Arrival: "Poisson", SafeQPS: &safe, Confirmed: true, LimitingCriterion: "ttft_p99", Margin: &margin,
			CompletedRate: &safe, PromptTokensPerSecond: number(4567), Created: syntheticStart, Configuration: map[string]string{"gpus": "8"},
		},
		{Workload: "long", Arrival: "bursty", Note: "even the lowest rate failed", Created: syntheticStart, Configuration: map[string]string{"gpus": "8"}},
	}
	seen = text(render(t, in))
	require.Contains(t, seen, "22.5 requests/s Safe QPS chat · Poisson")
	require.Contains(t, seen, "No safe rate was found long · bursty")
	require.Contains(t, seen, "chat Poisson 22.5 22.5 not measured 4,567 ttft_p99 not found 20% ✓ yes")
	require.Contains(t, seen, "– no even the lowest rate failed found 2026-03-01 09:00:00 UTC gpus 8")
	require.NotContains(t, seen, "highest rate that passed", "what the search says replaces what the runs suggest")

	in.Runs[3].Verdict.Decision = json.RawMessage(`{"change":"another"}`)
	in.Runs[1].Info.Started = syntheticStart.Add(time.Hour)
	seen = text(render(t, in))
	require.Contains(t, seen, "decision differs from run to run")
	require.Contains(t, seen, "started 2026-03-01 09:00:00 UTC to 2026-03-01 10:00:00 UTC")

	in.Runs[0].Verdict.Verdict, in.Runs[2].Verdict.Verdict = verdict.Fail, verdict.Pass
	in.Capacity = nil
	require.Contains(t, text(render(t, in)), "A rate passed above one that failed")
}

func TestHTMLOfASearch(t *testing.T) {
	dir := t.TempDir()
	search(t, dir, 40*time.Second)
	in := collect(t, dir)
	page := render(t, in)
	var curves []string
	for _, c := range curvesOf(in.Runs) {
		curves = append(curves, c.Label)
		require.Len(t, c.Points, 6)
	}
	require.Equal(t, []string{"constant", "Poisson", "bursty"}, curves, "told by the gaps of the arrivals")
	require.Regexp(t, `constant : highest rate that passed (39|40)[.\d]*/s ; lowest that failed 44[.\d]*/s`, text(page))
	const most = 1 << 20 // 18 runs of a minute
	require.Less(t, len(page), most)
}

func TestHTMLCurvesByWorkloadAndArrival(t *testing.T) {
	rate := 5.0
	run := func(name, workload, arrival string) Run {
		return Run{Name: name, Arrival: arrival, Info: results.Info{Workload: workload}, Points: []Point{{OfferedPerSecond: &rate}}}
	}
	labels := func(runs ...Run) (out []string) {
		for _, c := range curvesOf(runs) {
			out = append(out, c.Label)
		}
		return out
	}
	require.Equal(t, []string{"constant", "Poisson", "bursty"},
		labels(run("1", "w", arrivalBursty), run("2", "w", arrivalPoisson), run("3", "w", arrivalConstant), run("4", "w", arrivalPoisson)))
	require.Equal(t, []string{"a · Poisson", "b · constant"}, labels(run("1", "b", arrivalConstant), run("2", "a", arrivalPoisson)))
	require.Empty(t, labels(Run{Name: "1", Points: []Point{{}}}), "a point without a rate is on no curve")
}

func TestHTMLLoadsNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	short().write(t, dir)
	page := render(t, collect(t, dir))
	require.Contains(t, page, `http-equiv="Content-Security-Policy" content="default-src &#39;none&#39;;`)
	for _, pattern := range []string{
		`(?i)<(link|img|iframe|object|embed|base|audio|video|source|form|input)\b`,
		`(?i)<script[^>]+src`, `(?i)@import`, `(?i)url\(`, `(?i)\bfetch\(`, `XMLHttpRequest`, `sendBeacon`, `WebSocket`, `EventSource`,
		`\bimport\s*\(`, `(?i)(src|srcset|action|data|poster)\s*=\s*["']?\s*(https?:)?//`, `(?i)href\s*=\s*["']?\s*(https?:|//)`,
	} {
		require.NotRegexp(t, pattern, page)
	}
	// What is left of addresses: uPlot's own comment, the name of the SVG namespace.
	urls := regexp.MustCompile(`https?://[^\s"'<)]+`).FindAllString(page, -1)
	for _, url := range urls {
		require.Contains(t, []string{"https://github.com/leeoniya/uPlot", "http://www.w3.org/2000/svg"}, url)
	}
	require.Contains(t, page, "The MIT License (MIT)", "the licence asks for its text in all copies")
	require.Equal(t, 3, strings.Count(page, "<script"), "data, uPlot, the page's own")
}

// TestHTMLCannotBeBrokenOutOf puts markup wherever a run can hold text.
func TestHTMLCannotBeBrokenOutOf(t *testing.T) {
	const evil = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)><!--\u2028{{.}}${1}`"
	dir := filepath.Join(t.TempDir(), "run")
	s := short()
	quoted, err := json.Marshal(evil)
	require.NoError(t, err)
	s.info = func(info *results.Info) {
		info.Workload, info.Labels, info.Host.Name, info.Segment = evil, []string{evil}, evil, evil
		info.Decision = json.RawMessage(`{` + string(quoted) + `:` + string(quoted) + `}`)
		info.Contract, info.Options = json.RawMessage(`{"x":`+string(quoted)+`}`), json.RawMessage(`{"x":`+string(quoted)+`}`)
		info.Versions, info.Digests = map[string]string{evil: evil}, map[string]string{evil: evil}
		info.Seeds = map[string]uint64{evil: 1}
		info.Aborted = &results.Aborted{Rule: evil, Saw: evil}
		for i := range info.Phases {
			info.Phases[i].Name += evil
		}
		info.Steps = []results.Span{{Name: evil, Start: syntheticStart}}
	}
	s.change = func(r *results.Request) {
		r.Class += evil
		r.Step, r.ErrorType = evil, evil
	}
	s.write(t, dir)
	in := collect(t, dir)
	in.Title = evil
	in.Capacity = []Capacity{{Workload: evil, Arrival: evil, LimitingCriterion: evil, Note: evil}}
	in.Runs[0].Name, in.Runs[0].Dir, in.Runs[0].Arrival, in.Runs[0].Notes = evil, evil, evil, []string{evil}
	in.Runs[0].Events = []results.Event{{Kind: evil, Message: evil, Rule: evil}}
	v := in.Runs[0].Verdict
	v.Labels, v.Warnings, v.Decision = []string{evil}, []string{evil}, in.Runs[0].Info.Decision
	v.Criteria[1].Name, v.Criteria[1].Limit, v.Criteria[1].Note, v.Criteria[1].Unit = evil, evil, evil, evil
	v.Phases[0].Name = evil
	second := in.Runs[0]
	second.Name = evil + "2"
	for _, runs := range [][]Run{in.Runs, {in.Runs[0], second}} {
		in.Runs = runs
		page := render(t, in)
		require.Equal(t, 3, strings.Count(page, "<script"))
		require.Equal(t, 3, strings.Count(page, "</script"))
		require.NotContains(t, page, "<img")
		require.NotContains(t, strings.ReplaceAll(page, "<!DOCTYPE", ""), "<!")
		require.Contains(t, page, "&lt;/script&gt;")

		var data struct {
			Runs []struct {
				Name    string
				Classes []Group
			}
		}
		require.NoError(t, json.Unmarshal([]byte(dataOf(t, page)), &data))
		require.Equal(t, evil, data.Runs[0].Name, "escaped, and not changed")
		require.Contains(t, data.Runs[0].Classes[0].Name, evil)
	}
}

func dataOf(t *testing.T, page string) string {
	t.Helper()
	found := regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`).FindStringSubmatch(page)
	require.NotNil(t, found)
	return found[1]
}

// TestHTMLShowsWhatWasNotMeasured uses a run without server metrics, tokens, classes and SLOs.
func TestHTMLShowsWhatWasNotMeasured(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bare")
	s := short()
	s.bare, s.status = true, ""
	s.write(t, dir)
	in := collect(t, dir)
	run := in.Runs[0]
	require.Nil(t, run.Verdict)
	require.Nil(t, run.PromptTokens)
	require.Nil(t, run.OutputTokens)
	require.Empty(t, run.Classes)
	require.Empty(t, run.InputLengths)
	require.Nil(t, run.Points[0].Goodput)
	require.Nil(t, run.Points[0].OutputTokensPerSecond)
	for _, absent := range []string{"goodput", "server_queue_depth", "client_cpu", "prompt_tokens", "in_flight"} {
		require.NotContains(t, run.Series.Columns, absent)
	}
	seen := text(render(t, in))
	require.Contains(t, seen, "NOT JUDGED")
	require.Contains(t, seen, "Goodput not measured")
	require.Contains(t, seen, "Output not measured")
	require.NotContains(t, seen, "Goodput 0")

	empty := Input{Runs: []Run{{Name: "x", Series: Series{Columns: map[string]Column{}}}}}
	require.Contains(t, text(render(t, empty)), "The run carries no contract")
	require.ErrorContains(t, HTML(&bytes.Buffer{}, Input{}), "no run")
}

func TestHTMLLeadNamesWhatMatters(t *testing.T) {
	rate := 12.0
	criterion := func(name string, s verdict.Status) verdict.Criterion {
		return verdict.Criterion{Name: name, Verdict: s}
	}
	for _, c := range []struct {
		status   verdict.Status
		criteria []verdict.Criterion
		want     string
	}{
		{verdict.Pass, []verdict.Criterion{criterion("a", verdict.Pass), {Name: "b", Ignored: true}}, "All 1 criteria hold at 12 requests/s, at 95% confidence."},
		{verdict.Fail, []verdict.Criterion{criterion("a", verdict.Fail), criterion("b", verdict.Pass)}, "1 of 2 criteria failed: a."},
		{verdict.Inconclusive, []verdict.Criterion{criterion("a", verdict.Inconclusive), criterion("b", verdict.Pass)}, "1 of 2 criteria lack evidence at 95% confidence: a."},
		{verdict.Inconclusive, []verdict.Criterion{criterion("a", verdict.Pass)}, "The run did not come to its own end, so it proves nothing yet."},
		{verdict.Invalid, []verdict.Criterion{criterion("client_headroom.cpu", verdict.Fail)}, "The load generator was the bottleneck (client_headroom.cpu): nothing good about the service follows from this run."},
	} {
		r := Run{Points: []Point{{OfferedPerSecond: &rate}}, Verdict: &verdict.Result{Verdict: c.status, Confidence: 0.95, Criteria: c.criteria}}
		require.Equal(t, c.want, lead(&r))
	}
}

func TestCriterionShowsHowMuchOfTheLimitWasUsed(t *testing.T) {
	for _, c := range []struct {
		limit           string
		value, measured *float64
		used            string
		bar             float64
	}{
		{"<= 2s", number(2000), number(500), "25%", 25},
		{"<= 2s", number(2000), number(9000), "450%", 150},
		{"<= 2s", number(2000), number(1), "<1%", 0.05},
		{"<= 2s", number(2000), nil, "", 0},
		{"<= baseline + 10%", nil, number(5), "", 0},
		{">= 0.995", number(0.995), number(0.5), "", 0},
		{"== 0", number(0), number(3), "", 0},
	} {
		v := criterionOf(&verdict.Criterion{Limit: c.limit, LimitValue: c.value, Measured: c.measured, Unit: "ms"})
		require.Equal(t, c.used, v.Used, c.limit)
		require.InDelta(t, c.bar, v.UsedBar, 1e-9)
		require.Equal(t, c.used != "", v.HasUsed)
	}
	require.Equal(t, "not measured", criterionOf(&verdict.Criterion{}).Measured)
	require.Equal(t, "no value", criterionOf(&verdict.Criterion{N: 10}).Measured)
}

func TestBrief(t *testing.T) {
	for _, c := range []struct {
		v    float64
		unit string
		want string
	}{
		{0, "ms", "0 ms"},
		{12.345, "ms", "12.3 ms"},
		{999.6, "ms", "1000 ms"},
		{1234, "ms", "1.23 s"},
		{0.004, "ms", "0.004 ms"},
		{0.99941, "ratio", "99.9%"},
		{1, "ratio", "100%"},
		{1234567, "", "1,234,567"},
		{9.976, "", "9.98"},
		{-0.2, "ratio", "-20%"},
	} {
		require.Equal(t, c.want, brief(c.v, c.unit))
	}
	require.Equal(t, "not measured", quantityOf(nil, "ms"))
	require.Equal(t, "-1,000", grouped(-1000))
}

func TestFlatten(t *testing.T) {
	require.Equal(t, []keyValue{{"a.b", "12345678901234567"}, {"a.c[0]", "x"}, {"a.c[1]", "null"}, {"d", "true"}},
		flatten(json.RawMessage(`{"d":true,"a":{"c":["x",null],"b":12345678901234567}}`)))
	require.Equal(t, []keyValue{{"", "plain"}}, flatten(json.RawMessage(`"plain"`)))
	require.Nil(t, flatten(nil))
	require.LessOrEqual(t, len(pretty(json.RawMessage(`"`+strings.Repeat("x", 2*maxPretty)+`"`))), maxPretty+100)
}

func TestHTMLTellsOfAFailedWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	short().write(t, dir)
	require.ErrorContains(t, HTML(failingWriter{}, collect(t, dir)), "disk full")
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errDiskFull }

var errDiskFull = os.NewSyscallError("write: disk full", os.ErrInvalid)
