package report

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

func TestStepsAreShownEverywhere(t *testing.T) {
	rate, slow := 29.796, 812.0
	criterion := func(name, section string, v verdict.Status) verdict.Criterion {
		return verdict.Criterion{Name: name, Section: section, Limit: "<= 500ms", Unit: "ms", Measured: &slow, Verdict: v}
	}
	r := &verdict.Result{Verdict: verdict.Fail, Confidence: 0.95, Steps: []verdict.Step{
		{Name: "10", OfferedPerSecond: &rate, Verdict: verdict.Pass, Criteria: []verdict.Criterion{criterion("ttft_p95", "capacity_gate", verdict.Pass)}},
		{Name: "20#2", Verdict: verdict.Fail, Criteria: []verdict.Criterion{
			criterion("ttft_p95", "capacity_gate", verdict.Fail), criterion("e2e_p99", "capacity_gate", verdict.Pass),
		}},
		{Name: "30", Verdict: verdict.Invalid, Criteria: []verdict.Criterion{
			criterion("ttft_p95", "capacity_gate", verdict.Invalid), criterion("client_headroom.cpu", "client_headroom", verdict.Fail),
		}},
		{Name: "40", Verdict: verdict.Inconclusive, Criteria: []verdict.Criterion{criterion("ttft_p95", "capacity_gate", verdict.Pass)}},
	}}
	require.Contains(t, string(Text(r, false)), strings.Join([]string{
		"  step  offered    verdict       because of",
		"  10    29.8/s     PASS",
		"  20#2  -          FAIL          ttft_p95 812ms, limit <= 500ms",
		"  30    -          INVALID       client_headroom.cpu 812ms, limit <= 500ms",
		"  40    -          INCONCLUSIVE  the run did not come to its end",
	}, "\n"))
	require.Contains(t, string(Markdown(r)), `| 20#2 | - | **FAIL** | ttft\_p95 812ms, limit &lt;= 500ms |`)
	junit, err := JUnit(r)
	require.NoError(t, err)
	require.Contains(t, string(junit), `<testsuite name="SLO contract" tests="4" failures="1" errors="2" skipped="0">`)
	require.Contains(t, string(junit), `<testcase classname="step" name="step 20#2">`)
	require.Equal(t, verdict.Fail, stepOf(r, "20#2").Verdict)
	require.Nil(t, stepOf(r, "21"))
	require.Nil(t, stepOf(nil, "21"))
}

// Each step of a staircase has its verdict on the page, and the sentence below the verdict says between which it lies.
func TestThePageOfAStaircase(t *testing.T) {
	slow := 812.0
	point := func(name string, rate float64) Point { return Point{Step: name, OfferedPerSecond: &rate} }
	step := func(name string, rate float64, v verdict.Status) verdict.Step {
		return verdict.Step{Name: name, OfferedPerSecond: &rate, Verdict: v, Criteria: []verdict.Criterion{
			{Name: "ttft_p95", Section: "capacity_gate", Limit: "<= 500ms", Unit: "ms", Measured: &slow, Verdict: v},
		}}
	}
	run := func(steps ...verdict.Step) Run {
		r := Run{Name: "out", Arrival: arrivalPoisson, Verdict: &verdict.Result{Verdict: verdict.Fail, Confidence: 0.95, Steps: steps, Criteria: []verdict.Criterion{
			{Name: "ttft_p95", Section: "capacity_gate", Verdict: verdict.Fail},
		}}}
		for i := range steps {
			r.Points = append(r.Points, point(steps[i].Name, *steps[i].OfferedPerSecond))
		}
		return r
	}
	r := run(step("10", 9.9, verdict.Pass), step("20", 20.3, verdict.Pass), step("30", 29.8, verdict.Inconclusive), step("50", 49.1, verdict.Fail), step("60", 58, verdict.Fail))
	seen := text(render(t, Input{Runs: []Run{r}}))
	require.Contains(t, seen, "Highest step that passed: 20 (20.3/s); lowest that failed: 50 (49.1/s, ttft_p95 812ms, limit &lt;= 500ms); 1 undecided. 1 of 1 criteria failed: ttft_p95.")
	require.Contains(t, seen, "10 ✓ PASS 9.9")
	require.Contains(t, seen, "50 ✕ FAIL ttft_p95 812ms, limit &lt;= 500ms 49.1")
	require.Contains(t, seen, "Points of the charts: ● pass, ✕ fail")
	curves := curvesOf([]Run{r})
	require.Equal(t, []string{"PASS", "PASS", "INCONCLUSIVE", "FAIL", "FAIL"}, []string{
		curves[0].Points[0].Verdict, curves[0].Points[1].Verdict, curves[0].Points[2].Verdict, curves[0].Points[3].Verdict, curves[0].Points[4].Verdict,
	})
	found := findingsOf(curves)[0]
	require.InDelta(t, 20.3, *found.Passed, 0)
	require.InDelta(t, 49.1, *found.Failed, 0)
	require.Equal(t, "ttft_p95", found.Breaks)
	require.Equal(t, 1, found.Open)

	require.Contains(t, stepsLead(run(step("10", 10, verdict.Fail), step("20", 20, verdict.Invalid)).Verdict), "No step passed; lowest that failed: 10 (10/s, ")
	require.Contains(t, stepsLead(run(step("10", 10, verdict.Pass), step("20", 20, verdict.Pass)).Verdict), "Highest step that passed: 20 (20/s); none failed. ")
	require.Contains(t, stepsLead(run(step("10", 10, verdict.Fail), step("20", 20, verdict.Pass)).Verdict), "A step passed above one that failed. ")
	require.Empty(t, stepsLead(&verdict.Result{}))
	bare := run(step("10", 10, verdict.Fail), step("20", 20, verdict.Pass))
	bare.Verdict = nil
	require.NotContains(t, text(render(t, Input{Runs: []Run{bare}})), "Points of the charts", "nothing was judged")
}
