package e2e

import (
	"encoding/json"
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

// judgedWith is baselineOf with an overall verdict, and with criteria on the load generator.
func judgedWith(t *testing.T, overall verdict.Status, droppedBy map[string]int64, headroom ...verdict.Criterion) string {
	t.Helper()
	ttft := 300.0
	dir := t.TempDir()
	judged := verdict.Result{
		Schema: verdict.Schema, Verdict: overall, Confidence: 0.95, DroppedBy: droppedBy,
		Criteria: append([]verdict.Criterion{
			{Name: "ttft_p95", Section: "capacity_gate", Unit: "ms", Limit: "<= 1s", Measured: &ttft, N: 100, Verdict: overall},
		}, headroom...),
	}
	require.NoError(t, judged.Write(dir))

	return dir
}

// What a load generator at its limit has measured would be a limit that anything keeps.
func TestAnInvalidBaselineIsRefused(t *testing.T) {
	t.Parallel()
	used, lost := 0.99, 30.0
	cpu := verdict.Criterion{Name: "client_headroom.cpu", Section: "client_headroom", Unit: "ratio", Limit: "<= 70%", Measured: &used, N: 100, Verdict: verdict.Fail}
	drops := verdict.Criterion{Name: "client_headroom.dropped", Section: "client_headroom", Unit: "count", Limit: "== 0", Measured: &lost, N: 100, Over: 30, Verdict: verdict.Fail}
	busy, slow := judgedWith(t, verdict.Invalid, nil, cpu), judgedWith(t, verdict.Fail, nil)
	both, dropping := judgedWith(t, verdict.Fail, nil, cpu), judgedWith(t, verdict.Fail, map[string]int64{"unknown": 30}, drops)
	contracts := t.TempDir()
	for name, text := range map[string]string{
		"absolute.yaml": `capacity_gate: {ttft_p95: "<= 1s"}`,
		"relative.yaml": `capacity_gate: {ttft_p95: "<= baseline + 10%"}`,
		"named.yaml":    "capacity_gate: {ttft_p95: \"<= baseline + 10%\"}\nbaseline: " + busy,
		"unread.yaml":   "capacity_gate: {ttft_p95: \"<= 1s\"}\nbaseline: " + busy,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(contracts, name), []byte(text+"\n"), 0o600))
	}
	in := func(name string) string { return filepath.Join(contracts, name) }
	opened := func(t *testing.T, name, options string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "script.js")
		require.NoError(t, os.WriteFile(path, []byte("import gate from 'k6/x/llm/gate';\ngate.open('"+in(name)+"', "+options+
			");\nexport default function () {}"), 0o600))

		return path
	}
	run := []string{"run", "--quiet", "--address", ""}
	open, resolved := ranAgainst(t, nil), ranAgainst(t, map[string]float64{"ttft_p95": 150})
	out := filepath.Join(t.TempDir(), "merged")
	for name, c := range map[string]struct {
		args []string
		exit int
	}{
		"an open contract":     {[]string{"x", "llm", "gate", "verdict", open, "--baseline", busy}, 3},
		"a resolved contract":  {[]string{"x", "llm", "gate", "verdict", resolved, "--baseline", busy}, 3},
		"its verdict.json":     {[]string{"x", "llm", "gate", "verdict", open, "--baseline", filepath.Join(busy, "verdict.json")}, 3},
		"no relative limit":    {[]string{"x", "llm", "gate", "verdict", open, "--contract", in("absolute.yaml"), "--baseline", busy}, 3},
		"the contract's own":   {[]string{"x", "llm", "gate", "verdict", open, "--contract", in("named.yaml")}, 3},
		"explained":            {[]string{"x", "llm", "gate", "explain", in("relative.yaml"), "--baseline", busy}, 3},
		"explained, its own":   {[]string{"x", "llm", "gate", "explain", in("named.yaml")}, 3},
		"merged":               {[]string{"x", "llm", "merge", open, resolved, "--out", out, "--baseline", busy}, 3},
		"a search":             {[]string{"x", "llm", "capacity", "--script", opened(t, "named.yaml", "{}"), "--contract", in("named.yaml"), "--out", out}, 3},
		"a script":             {append(run, opened(t, "relative.yaml", "{ baseline: '"+busy+"' }")), 107},
		"a script, its own":    {append(run, opened(t, "named.yaml", "{}")), 107},
		"a script, the file's": {append(run, opened(t, "relative.yaml", "{ baseline: '"+busy+"/verdict.json' }")), 107},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := runK6(t, c.args...)
			require.Equal(t, c.exit, r.exit, r.stderr)
			require.Contains(t, r.stderr, "baseline "+busy)
			require.Contains(t, r.stderr, "its verdict is INVALID, since the load generator was the bottleneck: client_headroom.cpu (measured 99%, limit <= 70%)")
			require.Contains(t, r.stderr, "repeat the baseline run with more headroom, or give another baseline")
			require.Empty(t, r.stdout)
			require.NoDirExists(t, out)
		})
	}

	against, r := judgedJSON(t, resolved, "--baseline", slow)
	require.Equal(t, 0, r.exit, r.stderr)
	require.Equal(t, "<= 330ms (baseline + 10%, baseline 300ms)", against.Limit, "FAIL is a baseline, too")
	r = runK6(t, "x", "llm", "gate", "explain", in("unread.yaml"))
	require.Equal(t, 0, r.exit, "no limit refers to it, so that it is not read: %s", r.stderr)
	r = runK6(t, append(run, opened(t, "relative.yaml", "{ baseline: '"+slow+"' }"))...)
	require.Equal(t, 0, r.exit, r.stderr)
	require.NotContains(t, r.stderr, "level=warning")

	// A load generator at its limit is one whatever the service did.
	const why = "its verdict is FAIL, and the load generator was a bottleneck, too: client_headroom.cpu (measured 99%, limit <= 70%)"
	r = runK6(t, "x", "llm", "gate", "verdict", resolved, "--baseline", both)
	require.Equal(t, 3, r.exit, r.stderr)
	require.Contains(t, r.stderr, why)
	r = runK6(t, append(run, opened(t, "relative.yaml", "{ baseline: '"+both+"' }"))...)
	require.Equal(t, 107, r.exit, r.stderr)
	require.Contains(t, r.stderr, why)

	// Drops of a slow service are told, once.
	const dropped = ": its verdict is FAIL, and arrivals were dropped, since all VUs were at work: client_headroom.dropped (measured 30, limit == 0)"
	against, r = judgedJSON(t, resolved, "--baseline", dropping)
	require.Equal(t, 0, r.exit, r.stderr)
	require.Equal(t, "<= 330ms (baseline + 10%, baseline 300ms)", against.Limit)
	require.Contains(t, r.stderr, "warning: baseline "+dropping+dropped)
	r = runK6(t, append(run, "--vus", "3", "--iterations", "3", opened(t, "relative.yaml", "{ baseline: '"+dropping+"' }"))...)
	require.Equal(t, 0, r.exit, r.stderr)
	require.Equal(t, 1, strings.Count(r.stderr, "baseline "+dropping+dropped), r.stderr)
}
