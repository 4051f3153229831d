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
	require.Equal(t, verdict.Fail, stepVerdict(r, "20#2"))
	require.Empty(t, stepVerdict(r, "21"))
	require.Empty(t, stepVerdict(nil, "21"))
}
