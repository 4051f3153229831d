package report

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

func number(v float64) *float64 { return &v }
func count(v int64) *int64      { return &v }

func sample() *verdict.Result {
	return &verdict.Result{
		Schema: verdict.Schema, Verdict: verdict.Fail, Confidence: 0.95,
		Criteria: []verdict.Criterion{
			{
				Name: "ttft_p95", Section: "capacity_gate", Limit: "<= 800ms", Unit: "ms", Measured: number(1234.56), N: 1000, Over: 90,
				OverLow: number(0.0754), OverHigh: number(0.1065), Inflation: 1, Verdict: verdict.Fail, Note: "20 of 1000 requests failed",
			},
			{
				Name: "long/ttft_p99", Section: "capacity_gate", Limit: "<= 6s", Unit: "ms", Measured: number(812.3), N: 60,
				OverLow: number(0), OverHigh: number(0.0487), Inflation: 2.04, Undecided: 1, Verdict: verdict.Inconclusive, Needed: count(239),
			},
			{
				Name: "output_tokens_per_second", Section: "capacity_gate", Limit: ">= 700", Unit: "tokens/s", Measured: number(710.25), N: 120,
				MeanLow: number(705), MeanHigh: number(715.5), Verdict: verdict.Pass,
			},
			{Name: "queue_growth", Section: "capacity_gate", Limit: "no_sustained_growth", Unit: "state", Measured: number(0), N: 600, Verdict: verdict.Pass},
			{Name: "client_headroom.cpu", Section: "client_headroom", Limit: "<= 80%", Unit: "ratio", Verdict: verdict.Inconclusive, Ignored: true, Note: "it was not measured"},
		},
		Counts:    results.Counts{Offered: 1001, Started: 1000, Dropped: 1, Completed: 970, Failed: 20, Cancelled: 9, InFlight: 1},
		DroppedBy: map[string]int64{"late": 1},
		Phases: []verdict.Phase{{
			Name: "steady", OfferedPerSecond: number(10.01), RequestsPerSecond: number(9.7), OutputTokensPerSecond: number(710.25),
			Metrics: map[string]verdict.Quantiles{"ttft": {N: 970, P50: 100, P95: 1234.56, P99: 2000, Max: 2500}},
		}},
		Warnings: []string{"the declared warmup was too short: 50% | more\nand more"},
		Labels:   []string{results.LabelIgnoreEOS},
		Prefix:   &verdict.PrefixCache{Measured: 0.3, Ideal: number(0.1), Source: "usage", Warm: true},
		Decision: json.RawMessage(`{"change":"max_num_seqs 32 -> 48"}`),
		Started:  time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC),
	}
}

func TestText(t *testing.T) {
	require.Equal(t, `verdict: FAIL  (confidence 95%)

  criterion                 limit                measured        verdict       evidence
  ttft_p95                  <= 800ms             1.235s          FAIL          90 of 1000 over (7.54% to 10.65%)
    20 of 1000 requests failed
  long/ttft_p99             <= 6s                812.3ms         INCONCLUSIVE  0 of 60 over (0% to 4.87%); worth 29 independent ones; 1 undecided; needs 239 more, none over
  output_tokens_per_second  >= 700               710.2 tokens/s  PASS          mean of 120 (705 tokens/s to 715.5 tokens/s)
  queue_growth              no_sustained_growth  no              PASS          600 seen
  client_headroom.cpu       <= 80%               -               not measured  -
    it was not measured

  evidence: "N of M over (a to b)": N of M requests were over the limit, a to b bounds their true share; "mean of N (a to b)": a to b bounds the true mean; "worth K independent ones": slow requests came in clusters, and prove no more than K that do not depend on each other; "undecided": dropped, or cut short by the end; "needs K more, none over": so many further requests give PASS if none is over the limit (docs/statistics.md)
  offered 1001, started 1000, dropped 1 (1 late), completed 970, failed 20, cancelled 9, in flight 1
  steady: offered 10.01/s, completed 9.7/s, 710.2 output tokens/s
  label: ignore_eos: compares configurations, claims no capacity
  warning: the declared warmup was too short: 50% | more and more
`, string(Text(sample(), false)))

	painted := string(Text(sample(), true))
	require.Contains(t, painted, "verdict: \x1b[31mFAIL\x1b[0m")
	require.Contains(t, painted, "  \x1b[33mINCONCLUSIVE\x1b[0m  0 of 60")
	for _, colour := range append([]string{colourOff}, colours[verdict.Pass], colours[verdict.Fail], colours[verdict.Inconclusive]) {
		painted = strings.ReplaceAll(painted, colour, "")
	}
	require.Equal(t, string(Text(sample(), false)), painted, "colours change nothing else")
}

func TestMarkdown(t *testing.T) {
	require.Equal(t, `## LLM capacity gate: FAIL

> **ignore\_eos: compares configurations, claims no capacity**

| criterion | limit | measured | evidence | verdict |
| --- | --- | --- | --- | --- |
| ttft\_p95 | &lt;= 800ms | 1.235s | 90 of 1000 over (7.54% to 10.65%)<br>20 of 1000 requests failed | **FAIL** |
| long/ttft\_p99 | &lt;= 6s | 812.3ms | 0 of 60 over (0% to 4.87%); worth 29 independent ones; 1 undecided; needs 239 more, none over | **INCONCLUSIVE** |
| output\_tokens\_per\_second | &gt;= 700 | 710.2 tokens/s | mean of 120 (705 tokens/s to 715.5 tokens/s) | PASS |
| queue\_growth | no\_sustained\_growth | no | 600 seen | PASS |
| client\_headroom.cpu | &lt;= 80% | - | -<br>it was not measured | not measured |

Confidence 95%. Arrivals: offered 1001, started 1000, dropped 1 (1 late), completed 970, failed 20, cancelled 9, in flight 1.

### Warnings

- the declared warmup was too short: 50% \| more and more

### Phases

Latencies of the requests that have them, failed ones left out; warmup is shown and not judged.

| phase | metric | n | p50 | p95 | p99 | max |
| --- | --- | ---: | ---: | ---: | ---: | ---: |
| steady | ttft | 970 | 100ms | 1.235s | 2s | 2.5s |

steady: offered 10.01/s, completed 9.7/s, 710.2 output tokens/s.

Prefix cache: 30% of the prompt tokens (as the answers' usage says); the workload's own reuse explains 10%.

Run started 2026-01-31 12:00:00 UTC.

<details><summary>Decision</summary>

`+"```json\n"+`{
  "change": "max_num_seqs 32 -> 48"
}
`+"```"+`

</details>
`, string(Markdown(sample())))
}

func TestJUnit(t *testing.T) {
	content, err := JUnit(sample())
	require.NoError(t, err)
	require.Equal(t, `<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="LLM capacity gate" tests="5" failures="1" errors="1" skipped="1">
  <testsuite name="SLO contract" timestamp="2026-01-31T12:00:00" tests="5" failures="1" errors="1" skipped="1">
    <properties>
      <property name="verdict" value="FAIL"></property>
      <property name="confidence" value="0.95"></property>
      <property name="arrivals" value="offered 1001, started 1000, dropped 1 (1 late), completed 970, failed 20, cancelled 9, in flight 1"></property>
      <property name="label" value="ignore_eos: compares configurations, claims no capacity"></property>
    </properties>
    <testcase classname="capacity_gate" name="ttft_p95 &lt;= 800ms">
      <failure type="FAIL" message="measured 1.235s; 90 of 1000 over (7.54% to 10.65%)">20 of 1000 requests failed</failure>
    </testcase>
    <testcase classname="capacity_gate" name="long/ttft_p99 &lt;= 6s">
      <error type="INCONCLUSIVE" message="measured 812.3ms; 0 of 60 over (0% to 4.87%); worth 29 independent ones; 1 undecided; needs 239 more, none over"></error>
    </testcase>
    <testcase classname="capacity_gate" name="output_tokens_per_second &gt;= 700">
      <system-out>measured 710.2 tokens/s; mean of 120 (705 tokens/s to 715.5 tokens/s)</system-out>
    </testcase>
    <testcase classname="capacity_gate" name="queue_growth no_sustained_growth">
      <system-out>measured no; 600 seen</system-out>
    </testcase>
    <testcase classname="client_headroom" name="client_headroom.cpu &lt;= 80%">
      <skipped message="it was not measured"></skipped>
    </testcase>
    <system-out>the declared warmup was too short: 50% | more&#xA;and more</system-out>
  </testsuite>
</testsuites>
`, string(content))
}

// A run that was stopped is not green, whatever its criteria say.
func TestJUnitOfARunThatWasStopped(t *testing.T) {
	passed := []verdict.Criterion{{Name: "ttft_p95", Section: "capacity_gate", Limit: "<= 1s", Verdict: verdict.Pass}}
	content, err := JUnit(&verdict.Result{Verdict: verdict.Inconclusive, Criteria: passed, Warnings: []string{"the run was stopped: a signal"}})
	require.NoError(t, err)
	require.Contains(t, string(content), `tests="2" failures="0" errors="1"`)
	require.Contains(t, string(content), `<testcase classname="run" name="the run as a whole">`)
	require.Contains(t, string(content), `<error type="INCONCLUSIVE" message="the run was stopped: a signal">`)
	content, err = JUnit(&verdict.Result{Verdict: verdict.Pass, Criteria: passed})
	require.NoError(t, err)
	require.Contains(t, string(content), `tests="1" failures="0" errors="0"`)
}

func TestGitHub(t *testing.T) {
	require.Equal(t, `::error title=FAIL ttft_p95::measured 1.235s, limit <= 800ms: 90 of 1000 over (7.54%25 to 10.65%25); 20 of 1000 requests failed
::warning title=INCONCLUSIVE long/ttft_p99::measured 812.3ms, limit <= 6s: 0 of 60 over (0%25 to 4.87%25); worth 29 independent ones; 1 undecided; needs 239 more, none over
::warning title=LLM capacity gate::the declared warmup was too short: 50%25 | more%0Aand more
::error title=LLM capacity gate%3A FAIL::offered 1001, started 1000, dropped 1 (1 late), completed 970, failed 20, cancelled 9, in flight 1%0Aignore_eos: compares configurations, claims no capacity
`, string(GitHub(sample())))

	odd := &verdict.Result{Verdict: verdict.Fail, Criteria: []verdict.Criterion{{Name: "a,b:100%\r", Limit: "<= 1", Verdict: verdict.Fail}}}
	require.Contains(t, string(GitHub(odd)), "::error title=FAIL a%2Cb%3A100%25%0D::measured -, limit <= 1: -\n")

	passed := &verdict.Result{Verdict: verdict.Pass}
	require.Contains(t, string(GitHub(passed)), "::notice title=LLM capacity gate%3A PASS::offered 0")
}

func TestAnyTextIsSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		r := sample()
		r.Criteria[0].Name, r.Criteria[0].Note, r.Criteria[1].Limit = text, text, text
		r.Warnings, r.Labels, r.Workload = []string{text}, []string{text}, text

		junit, err := JUnit(r)
		if err != nil {
			t.Fatal(err)
		}
		cases := 0
		decoder := xml.NewDecoder(strings.NewReader(string(junit)))
		for {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in %s", err, junit)
			}
			if start, ok := token.(xml.StartElement); ok && start.Name.Local == "testcase" {
				cases++
			}
		}
		if cases != len(r.Criteria) {
			t.Fatalf("%d test cases for %d criteria", cases, len(r.Criteria))
		}
		for _, line := range strings.Split(strings.TrimSuffix(string(GitHub(r)), "\n"), "\n") {
			if !strings.HasPrefix(line, "::") {
				t.Fatalf("a line of its own: %q", line)
			}
		}
		lines := strings.Count(string(Text(r, false)), "\n")
		if want := 13 + len(r.Criteria); lines > want {
			t.Fatalf("%d lines, at most %d expected", lines, want)
		}
		rows := 0
		for _, line := range strings.Split(string(Markdown(r)), "\n") {
			if strings.HasSuffix(line, " |") && strings.Count(strings.ReplaceAll(line, `\|`, ""), "|") == 6 {
				rows++
			}
		}
		if rows != len(r.Criteria)+2 {
			t.Fatalf("%d rows of the table of criteria in\n%s", rows, Markdown(r))
		}
	})
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, Write(dir, sample()))
	for _, name := range []string{results.VerdictFile, results.MarkdownFile, results.JUnitFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Positive(t, info.Size())
	}
	read, err := verdict.Read(dir)
	require.NoError(t, err)
	require.Equal(t, sample().Criteria, read.Criteria)
	require.ErrorContains(t, Write(filepath.Join(dir, "none"), sample()), "none")
}

func TestDigits(t *testing.T) {
	for in, want := range map[float64]string{
		0: "0", 1: "1", 0.000123456: "0.0001235", 12.3456: "12.35", 123456.7: "123457", -1.5: "-1.5", 999.96: "1000", 100: "100",
	} {
		require.Equal(t, want, digits(in))
	}
}

func TestTheLegendExplainsWhatIsThere(t *testing.T) {
	legendOf := func(criteria ...verdict.Criterion) string { return legend(&verdict.Result{Criteria: criteria}) }
	require.Empty(t, legendOf())
	require.Empty(t, legendOf(verdict.Criterion{N: 600}), "600 seen explains itself")
	require.Equal(t, `evidence: "mean of N (a to b)": a to b bounds the true mean (docs/statistics.md)`,
		legendOf(verdict.Criterion{N: 5, MeanLow: number(1), MeanHigh: number(2)}))
	require.Equal(t, `evidence: "N of M over (a to b)": N of M requests were over the limit, a to b bounds their true share (docs/statistics.md)`,
		legendOf(verdict.Criterion{N: 5, OverLow: number(0), OverHigh: number(0.1), Inflation: 1.2}))
	require.Equal(t, `evidence: "needs about K more": so many further requests decide if as large a share of them is over the limit (docs/statistics.md)`,
		legendOf(verdict.Criterion{N: 5, NeededAtShare: count(7)}))
}

func TestDroppedArrivalsAreToldByReason(t *testing.T) {
	c := results.Counts{Offered: 30, Started: 14, Dropped: 16, Completed: 14}
	require.Equal(t, "offered 30, started 14, dropped 16 (1 no VU, 2 VU starting, 3 late, 4 past maxDuration, 5 at the end of the test, 1 reason not recorded), "+
		"completed 14, failed 0, cancelled 0, in flight 0", countsLine(c, map[string]int64{
		"no_vu": 1, "vu_starting": 2, "late": 3, "max_duration": 4, "stopped": 5, "unknown": 1,
	}))
	require.Equal(t, "offered 30, started 14, dropped 16 (16 other), completed 14, failed 0, cancelled 0, in flight 0",
		countsLine(c, map[string]int64{"other": 16}), "a reason of a later version")
	require.Contains(t, countsLine(c, nil), "dropped 16, completed")
}
