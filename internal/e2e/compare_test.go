package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/compare"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// Without a trace the workload is in the script and its environment.
func TestCompareRefusesOtherWorkloadsOfOneScript(t *testing.T) {
	t.Parallel()
	dir, sim := t.TempDir(), smallEngine(t)
	script := `import llm from 'k6/x/llm';
export const options = { scenarios: { load: {
  executor: 'constant-arrival-rate', rate: Number(__ENV.RATE), timeUnit: '10s', duration: '3s', preAllocatedVUs: 20, tags: { phase: 'steady' } } } };
const client = new llm.Client({ baseURL: __ENV.URL, model: 'sim' });
export default () => client.chat({ messages: [{ role: 'user', content: 'number ' + Math.random() }], max_tokens: Number(__ENV.MAX) });
`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "s.js"), []byte(script), 0o600))
	for _, run := range [][3]string{{"a", "122", "4"}, {"again", "122", "4"}, {"slower", "75", "4"}, {"longer", "122", "8"}} {
		cmd := command(t, "run", "--quiet", "--address", "", "--out", "llm="+run[0], "-e", "URL="+sim.url, "-e", "RATE="+run[1], "-e", "MAX="+run[2], "s.js")
		cmd.Dir = dir
		require.Equal(t, 0, finish(t, cmd).exit)
	}
	for other, says := range map[string]string{
		"slower": "scenarios of the phase steady (A: constant-arrival-rate (duration 3s, rate 12.2/s), B: constant-arrival-rate (duration 3s, rate 7.5/s))",
		"longer": "completion tokens asked (A: 4, B: 8)",
	} {
		r := runK6(t, "x", "llm", "compare", filepath.Join(dir, "a"), filepath.Join(dir, other))
		require.Equal(t, 3, r.exit, r.stdout)
		require.Contains(t, r.stderr, says)
		require.Empty(t, r.stdout)
	}
	r := runK6(t, "x", "llm", "compare", filepath.Join(dir, "a"), filepath.Join(dir, "again"))
	require.NotEqual(t, 3, r.exit, r.stderr)
	require.Contains(t, r.stdout, "B is ")
}

// measuredRun leaves a run of 300 requests with a TPOT, and a verdict on its load generator.
func measuredRun(t *testing.T, tpot float64, status verdict.Status) string {
	t.Helper()
	dir, begin := filepath.Join(t.TempDir(), "run"), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	w, err := results.Create(dir, results.Info{Started: begin, Workload: "s.js"}, results.Options{})
	require.NoError(t, err)
	for i := range 300 {
		at := begin.Add(time.Duration(i) * 200 * time.Millisecond)
		require.NoError(t, w.Request(&results.Request{
			Row: int64(i), Attempt: 1, Phase: "steady", Due: at, Start: at, Outcome: results.OK, Status: 200,
			TTFT: results.Num(100), TPOT: results.Num(tpot), ITLP99: results.Num(12), E2E: results.Num(500),
		}))
	}
	require.NoError(t, w.Close(begin.Add(time.Minute), nil))
	cpu := 0.99
	judged := verdict.Result{
		Schema: verdict.Schema, Verdict: status, Confidence: 0.95,
		Criteria: []verdict.Criterion{{Name: "client_headroom.cpu", Section: "client_headroom", Unit: "ratio", Limit: "<= 70%", Measured: &cpu, N: 60, Verdict: verdict.Fail}},
	}
	if status == verdict.Pass {
		judged.Criteria[0].Verdict = verdict.Pass
	}
	require.NoError(t, judged.Write(dir))

	return dir
}

// What a load generator at its limit measures says nothing about the service.
func TestCompareWarnsOfAnInvalidSide(t *testing.T) {
	t.Parallel()
	good, busy := measuredRun(t, 10, verdict.Pass), measuredRun(t, 30, verdict.Invalid)
	for _, form := range []string{"", "--markdown", "--force"} {
		args := []string{"x", "llm", "compare", good, busy}
		if form != "" {
			args = append(args, form)
		}
		r := runK6(t, args...)
		require.Equal(t, 2, r.exit, r.stdout+r.stderr)
		require.Contains(t, r.stdout, "B is neither shown to differ nor to be the same: not enough evidence, since the verdict on B is INVALID")
		require.Contains(t, r.stdout, "warning: B ("+busy+") is INVALID: the load generator was the bottleneck: client_headroom.cpu (measured 99%, limit <= 70%)")
		require.Contains(t, r.stdout, "+200.0 %", "what was measured is shown all the same")
	}
	r := runK6(t, "x", "llm", "compare", busy, good, "--json")
	require.Equal(t, 2, r.exit, r.stderr)
	var found compare.Report
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &found), r.stdout)
	require.Equal(t, compare.NotEnough, found.Answer)
	require.Equal(t, []compare.InvalidSide{{Side: "A", Dir: busy, Broken: "client_headroom.cpu (measured 99%, limit <= 70%)"}}, found.Invalid)

	r = runK6(t, "x", "llm", "compare", good, measuredRun(t, 30, verdict.Pass))
	require.Equal(t, 1, r.exit, r.stderr)
	require.Contains(t, r.stdout, "B is worse\n")
	require.NotContains(t, r.stdout, "INVALID")
}
