package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// baselineOf leaves a verdict that measured a TTFT p95.
func baselineOf(t *testing.T, ttft float64) string {
	t.Helper()
	dir := t.TempDir()
	judged := verdict.Result{
		Schema: verdict.Schema, Verdict: verdict.Pass, Confidence: 0.95,
		Criteria: []verdict.Criterion{{Name: "ttft_p95", Section: "capacity_gate", Unit: "ms", Limit: "<= 1s", Measured: &ttft, N: 100, Verdict: verdict.Pass}},
	}
	require.NoError(t, judged.Write(dir))

	return dir
}

// ranAgainst leaves the results of a run whose contract was resolved by a baseline: 200 requests, each with a TTFT of 100 ms.
func ranAgainst(t *testing.T, baseline map[string]float64) string {
	t.Helper()
	c, err := contract.Load("slo.yaml", []byte("capacity_gate: {ttft_p95: \"<= baseline + 10%\"}\n"+
		"client_headroom: {cpu: off, timer_delay_p99: off, memory: off, open_files: off, schedule_error: off, dropped: off}\n"), os.LookupEnv)
	require.NoError(t, err)
	if baseline != nil {
		c, err = c.Resolve(baseline)
		require.NoError(t, err)
	}
	text, err := json.Marshal(c)
	require.NoError(t, err)
	dir, begin := filepath.Join(t.TempDir(), "run"), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	w, err := results.Create(dir, results.Info{Started: begin, Contract: text}, results.Options{})
	require.NoError(t, err)
	for i := range 200 {
		at := begin.Add(time.Duration(i) * 50 * time.Millisecond)
		require.NoError(t, w.Request(&results.Request{
			Row: int64(i), Attempt: 1, Phase: "steady", Due: at, Start: at, Outcome: results.OK, Status: 200,
			TTFT: results.Num(100), E2E: results.Num(200),
		}))
	}
	require.NoError(t, w.Close(begin.Add(11*time.Second), nil))

	return dir
}

func judgedJSON(t *testing.T, args ...string) (verdict.Criterion, ran) {
	t.Helper()
	r := runK6(t, append([]string{"x", "llm", "gate", "verdict", "--json"}, args...)...)
	var judged verdict.Result
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &judged), r.stdout+r.stderr)

	return judged.Criteria[0], r
}

// --baseline counts whether or not the run had one of its own.
func TestTheVerdictTakesAnotherBaseline(t *testing.T) {
	t.Parallel()
	slow, fast := baselineOf(t, 200), baselineOf(t, 50)
	dir := ranAgainst(t, map[string]float64{"ttft_p95": 150})

	own, r := judgedJSON(t, dir)
	require.Equal(t, 0, r.exit, r.stderr)
	require.Equal(t, "<= 165ms (baseline + 10%, baseline 150ms)", own.Limit)
	against, r := judgedJSON(t, dir, "--baseline", slow)
	require.Equal(t, 0, r.exit, r.stderr)
	require.Equal(t, "<= 220ms (baseline + 10%, baseline 200ms)", against.Limit)
	against, r = judgedJSON(t, dir, "--baseline", fast)
	require.Equal(t, 1, r.exit, r.stderr)
	require.Equal(t, "<= 55ms (baseline + 10%, baseline 50ms)", against.Limit)
	against, r = judgedJSON(t, dir, "--baseline", dir)
	require.Equal(t, 0, r.exit, r.stderr)
	require.Equal(t, "<= 110ms (baseline + 10%, baseline 100ms)", against.Limit, "itself")
}

// A baseline that is not there is wrong use, whatever the contract asks for.
func TestABaselineThatIsNotThere(t *testing.T) {
	t.Parallel()
	none := filepath.Join(t.TempDir(), "nodir")
	contracts := t.TempDir()
	for name, limit := range map[string]string{"absolute.yaml": "<= 1s", "relative.yaml": "<= baseline + 10%"} {
		require.NoError(t, os.WriteFile(filepath.Join(contracts, name), []byte("capacity_gate: {ttft_p95: \""+limit+"\"}\n"), 0o600))
	}
	absolute, relative := filepath.Join(contracts, "absolute.yaml"), filepath.Join(contracts, "relative.yaml")
	resolved, open := ranAgainst(t, map[string]float64{"ttft_p95": 150}), ranAgainst(t, nil)
	for name, args := range map[string][]string{
		"a resolved contract":   {"gate", "verdict", resolved},
		"an open contract":      {"gate", "verdict", open},
		"another contract":      {"gate", "verdict", resolved, "--contract", relative},
		"no relative limit":     {"gate", "verdict", resolved, "--contract", absolute},
		"explained":             {"gate", "explain", relative},
		"explained, absolute":   {"gate", "explain", absolute},
		"merged":                {"merge", resolved, open, "--out", filepath.Join(t.TempDir(), "merged")},
		"merged, not relative":  {"merge", resolved, open, "--contract", absolute, "--out", filepath.Join(t.TempDir(), "merged")},
		"a directory, unjudged": {"gate", "verdict", resolved, "--baseline", contracts},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			where := none
			if args[len(args)-2] == "--baseline" {
				where = contracts
			} else {
				args = append(args, "--baseline", none)
			}
			r := runK6(t, append([]string{"x", "llm"}, args...)...)
			require.Equal(t, 3, r.exit, r.stderr)
			require.Contains(t, r.stderr, "baseline: verdict: there is no "+where)
			require.Contains(t, r.stderr, "expected the results directory of a run that was judged, or its verdict.json")
			require.Empty(t, r.stdout)
		})
	}
}
