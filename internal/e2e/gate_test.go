package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
	"github.com/safeqps/xk6-safeqps/llm/llmtest"
)

// gated is a script with constant arrivals in two phases, judged by a contract.
const gated = `
	import llm from 'k6/x/llm';
	import trace from 'k6/x/llm/trace';
	import gate from 'k6/x/llm/gate';
	const contract = gate.open('./slo.yaml');
	const workload = trace.generate({ rate: Number(__ENV.RATE || 40), duration: '8s', burstiness: 'constant', mix: 'short=1@40/8' });
	export const options = {
		scenarios: {
			...workload.phases(contract.phases, { preAllocatedVUs: 120, maxVUs: 120, gracefulStop: '5s', tolerance: '20s' }),
			...gate.monitor(contract),
		},
		thresholds: contract.thresholds({ llm_requests: ['count>0'] }),
	};
	const client = new llm.Client({ baseURL: __ENV.URL + '/v1', model: 'sim' });
	export default function () {
		client.chat({ ...workload.next(), ...JSON.parse(__ENV.EXTRA || '{}') });
	}
	export { handleSummary } from 'k6/x/llm/gate';`

// headroom is switched off where it is not under test: the tests share their machine with the engine. Where a PASS is asked for
// the limit is on a median: a stall of the machine makes requests slow in clusters, and a tail takes many independent ones.
const headroom = `
client_headroom: {cpu: off, timer_delay_p99: off, schedule_error: off, dropped: off}
phases: {warmup: 2s, steady: 6s}
server: {metrics_url: "${URL}/metrics", health_url: "${URL}/health"}
`

// gatedRun prepares a directory with script and contract, and the command that runs them.
func gatedRun(t *testing.T, contract string, args ...string) (*exec.Cmd, string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"script.js": gated, "slo.yaml": contract + headroom} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	cmd := command(t, append(append([]string{"run", "--quiet", "--address", "", "--out", "llm=out"}, args...), "script.js")...)
	cmd.Dir = dir

	return cmd, filepath.Join(dir, "out")
}

type row struct {
	Row     *int64 `json:"row"`
	Outcome string `json:"outcome"`
	Phase   string `json:"phase"`
}

func rows(t *testing.T, dir string) []row {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "requests.jsonl"))
	require.NoError(t, err)

	return jsonLines[row](t, string(data))
}

func TestAGatedRunPasses(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, nil)
	cmd, dir := gatedRun(t, `
capacity_gate:
  success_rate: ">= 0.98"
  ttft_p50: "<= 20s"`, "-e", "URL=http://"+sim.host)
	r := finish(t, cmd)
	require.Equal(t, 0, r.exit, r.stderr+r.stdout)
	require.Contains(t, r.stdout, "verdict: PASS")
	require.Contains(t, r.stdout, "TOTAL RESULTS", "k6's own summary stands below")

	seen := map[int64]int{}
	for _, row := range rows(t, dir) {
		require.NotNil(t, row.Row)
		seen[*row.Row]++
	}
	require.Len(t, seen, 320)
	for n, times := range seen {
		require.Equal(t, 1, times, "row %d", n)
	}
	judged, err := verdict.Read(dir)
	require.NoError(t, err)
	require.Equal(t, verdict.Pass, judged.Verdict)
	require.NoError(t, judged.Counts.Check())
	require.Equal(t, int64(320), judged.Counts.Offered)
	require.FileExists(t, filepath.Join(dir, "report.md"))
	require.FileExists(t, filepath.Join(dir, "junit.xml"))

	run, err := results.Open(dir)
	require.NoError(t, err)
	require.NotEmpty(t, run.Info.Contract)
	require.False(t, run.Info.Ended.IsZero())
	server := 0
	_, err = run.Series(func(s *results.Sample) error {
		if _, ok := s.Server["queue_depth"]; ok {
			server++
		}

		return nil
	})
	require.NoError(t, err)
	require.GreaterOrEqual(t, server, 5, "the monitor has read the server's queue second by second")

	keepsSchema(t, dir)
	ran, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "script.js"))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"script": fmt.Sprintf("sha256:%x", sha256.Sum256(ran))}, run.Info.Digests)

	again := runK6(t, "x", "llm", "gate", "verdict", dir, "--json")
	require.Equal(t, 0, again.exit, again.stderr)
	var printed verdict.Result
	require.NoError(t, json.Unmarshal([]byte(again.stdout), &printed))
	require.Equal(t, judged.Criteria, printed.Criteria)
}

func TestAGatedRunFails(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, nil)
	cmd, dir := gatedRun(t, `
capacity_gate:
  ttft_p95: "<= 1ms"`, "-e", "URL=http://"+sim.host)
	r := finish(t, cmd)
	require.Equal(t, 99, r.exit, r.stderr)
	require.Contains(t, r.stdout, "verdict: FAIL")
	require.Equal(t, 1, runK6(t, "x", "llm", "gate", "verdict", dir).exit)
	github := runK6(t, "x", "llm", "gate", "verdict", dir, "--github")
	require.Contains(t, github.stdout, "::error")
	run, err := results.Open(dir)
	require.NoError(t, err)
	require.Nil(t, run.Info.Aborted, "a threshold that is crossed at the end did not end the run")
}

func TestInstantRejectionsFail(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, nil)
	cmd, dir := gatedRun(t, `
capacity_gate:
  ttft_p95: "<= 20s"`, "-e", "URL=http://"+sim.host, "-e", `EXTRA={"sim_fault":{"status":503}}`)
	r := finish(t, cmd)
	require.Equal(t, 99, r.exit, r.stderr)
	require.Equal(t, 1, runK6(t, "x", "llm", "gate", "verdict", dir).exit, "no latency is not a good latency")
}

func TestAnAbortRuleEndsTheRun(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, nil)
	cmd, dir := gatedRun(t, `
capacity_gate:
  success_rate: ">= 0.9"
abort:
  error_rate: "> 20% for 2s"`, "-e", "URL=http://"+sim.host, "-e", `EXTRA={"sim_fault":{"status":500}}`)
	r := finish(t, cmd)
	require.Equal(t, 99, r.exit, r.stderr)
	require.Contains(t, r.stderr, "abort.error_rate")
	run, err := results.Open(dir)
	require.NoError(t, err)
	require.NotNil(t, run.Info.Aborted)
	require.Equal(t, "abort.error_rate", run.Info.Aborted.Rule)
	require.Contains(t, run.Info.Aborted.Saw, "100%")
	judged, err := verdict.Read(dir)
	require.NoError(t, err)
	require.NoError(t, judged.Counts.Check())
	require.Less(t, judged.Counts.Started, int64(320), "it did not run to its end")
}

func TestAnUnhealthyServerEndsTheRun(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, nil)
	post(t, "http://"+sim.host+"/sim/health?status=503")
	cmd, dir := gatedRun(t, `
capacity_gate:
  success_rate: ">= 0.9"
abort:
  unhealthy: {for: 2s}`, "-e", "URL=http://"+sim.host)
	r := finish(t, cmd)
	require.Equal(t, 99, r.exit, r.stderr)
	run, err := results.Open(dir)
	require.NoError(t, err)
	require.NotNil(t, run.Info.Aborted)
	require.Equal(t, "abort.unhealthy", run.Info.Aborted.Rule)
}

func TestAKilledRunLeavesItsEvidence(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, nil)
	cmd, dir := gatedRun(t, `
capacity_gate:
  success_rate: ">= 0.5"`, "-e", "URL=http://"+sim.host)
	require.NoError(t, cmd.Start())
	requests := filepath.Join(dir, "requests.jsonl")
	require.Eventually(t, func() bool {
		info, err := os.Stat(requests)

		return err == nil && info.Size() > 20_000
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())

	run, err := results.Open(dir)
	require.NoError(t, err)
	require.True(t, run.Info.Ended.IsZero(), "it did not come to its own end")
	var ledger results.Counts
	_, err = run.Requests(func(r *results.Request) error {
		ledger.Add(r.Outcome, r.Attempt)

		return nil
	})
	require.NoError(t, err)
	require.NoError(t, ledger.Check())
	require.Greater(t, ledger.Completed, int64(20))
	r := runK6(t, "x", "llm", "gate", "verdict", dir)
	require.Contains(t, []int{0, 1, 2}, r.exit, r.stderr)
	require.Contains(t, r.stdout, "verdict: ")
	keepsSchema(t, dir)
}

func TestResultsAreNotOverwritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "precious"), []byte("x"), 0o600))
	const nothing = `export const options = { iterations: 1 }; export default function () {}`
	r := script(t, nothing, "--out", "llm="+dir)
	require.NotEqual(t, 0, r.exit)
	require.Contains(t, r.stderr, "is not empty")
	require.Contains(t, r.stderr, "overwrite=true")
	r = script(t, nothing, "--out", "llm="+dir+",overwrite=true")
	require.Equal(t, 0, r.exit, r.stderr)
	require.FileExists(t, filepath.Join(dir, "precious"))
	r = script(t, nothing, "--out", "llm="+dir+",ovrwrite")
	require.Contains(t, r.stderr, `got the option \"ovrwrite\"`)
}

// A run that could not begin shows no verdict, least of all that of the run before it.
func TestARefusedRunHasNoVerdict(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, nil)
	contract := `
capacity_gate:
  ttft_p50: "<= 20s"`
	cmd, dir := gatedRun(t, contract, "-e", "URL=http://"+sim.host)
	require.Contains(t, finish(t, cmd).stdout, "verdict: PASS")
	again := command(t, "run", "--quiet", "--address", "", "--out", "llm="+dir, "-e", "URL=http://"+sim.host, "script.js")
	again.Dir = filepath.Dir(dir)
	r := finish(t, again)
	require.NotEqual(t, 0, r.exit)
	require.NotContains(t, r.stdout, "verdict: PASS")
	require.Contains(t, r.stdout, "No verdict: this run was not recorded")
	require.Contains(t, r.stderr, "is not empty")
}

// Iterations that send nothing offer no load: a service cannot pass at a rate that it never saw.
func TestIterationsThatSendNothingMakeARunInvalid(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, nil)
	cmd, dir := gatedRun(t, `
capacity_gate:
  ttft_p95: "<= 20s"`, "-e", "URL=http://"+sim.host)
	broken := strings.Replace(gated, "client.chat(", "if (__ITER % 2) throw new Error('my bug'); client.chat(", 1)
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(dir), "script.js"), []byte(broken), 0o600))
	contract := strings.Replace(headroom, "dropped: off", `dropped: "<= 5%"`, 1)
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(dir), "slo.yaml"), []byte("capacity_gate: {ttft_p95: \"<= 20s\"}\n"+contract), 0o600))
	r := finish(t, cmd)
	judged, err := verdict.Read(dir)
	require.NoError(t, err)
	require.Equal(t, verdict.Invalid, judged.Verdict, r.stdout)
	require.Equal(t, int64(320), judged.Counts.Offered)
	require.Greater(t, judged.DroppedBy["no_request"], int64(100))
	reasons := int64(0)
	for _, n := range judged.DroppedBy { // a busy machine adds others
		reasons += n
	}
	require.Equal(t, judged.Counts.Dropped, reasons)
	require.Contains(t, strings.Join(judged.Warnings, "\n"), "iterations ended without a request")
}

// What k6's own executors drop has no tags but the scenario's name: it belongs to that scenario's phase all the same.
func TestDropsOfStockExecutorsAreJudged(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, func(c *llmtest.ServerConfig) { c.FixedGap = 100 * time.Millisecond })
	cmd, dir := gatedRun(t, "capacity_gate: {success_rate: \">= 0.5\", dropped: \"== 0\"}", "-e", "URL=http://"+sim.host)
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(dir), "script.js"), []byte(`
		import llm from 'k6/x/llm';
		import gate from 'k6/x/llm/gate';
		const contract = gate.open('./slo.yaml');
		export const options = { scenarios: { ...gate.monitor(contract), load: {
			executor: 'constant-arrival-rate', rate: 20, duration: '3s', preAllocatedVUs: 1, maxVUs: 1, tags: { phase: 'steady' },
		} } };
		const client = new llm.Client({ baseURL: __ENV.URL + '/v1', model: 'sim' });
		export default function () { client.chat({ messages: [{ role: 'user', content: 'hi' }], max_tokens: 20 }); }`), 0o600))
	r := finish(t, cmd)
	require.Equal(t, 0, r.exit, r.stderr)
	require.Equal(t, 1, runK6(t, "x", "llm", "gate", "verdict", dir).exit)
	judged, err := verdict.Read(dir)
	require.NoError(t, err)
	require.Greater(t, judged.Counts.Dropped, int64(20))
	for _, c := range judged.Criteria {
		if c.Name == "dropped" {
			require.InDelta(t, float64(judged.Counts.Dropped), *c.Measured, 0)
		}
	}
	require.Len(t, judged.Phases, 1)
	require.Equal(t, judged.Counts, judged.Phases[0].Counts)
}

func TestWrongContractsEndTheRunAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "slo.yaml"), []byte("capacity_gate:\n  ttft_p95: \"<= 800\"\n  nonsense: 1\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "script.js"), []byte(gated), 0o600))
	r := runK6(t, "run", "--quiet", "--address", "", filepath.Join(dir, "script.js"))
	require.NotEqual(t, 0, r.exit)
	require.Contains(t, r.stderr, "slo.yaml:2:")
	require.Contains(t, r.stderr, "slo.yaml:3:", "all problems at once")
	check := runK6(t, "x", "llm", "gate", "check", filepath.Join(dir, "slo.yaml"))
	require.Equal(t, 3, check.exit)
}

func TestAnArchiveCarriesTraceAndContract(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, nil)
	cmd, _ := gatedRun(t, "\ncapacity_gate:\n  success_rate: \">= 0.5\"", "-e", "URL=http://"+sim.host)
	archive := command(t, "archive", "-e", "URL=http://"+sim.host, "-O", "test.tar", "script.js")
	archive.Dir = cmd.Dir
	r := finish(t, archive)
	require.Equal(t, 0, r.exit, r.stderr)
	require.NoError(t, os.Remove(filepath.Join(cmd.Dir, "slo.yaml")))
	run := command(t, "run", "--quiet", "--address", "", "--out", "llm=out", "test.tar")
	run.Dir = cmd.Dir
	r = finish(t, run)
	require.Equal(t, 0, r.exit, r.stderr)
	require.Len(t, rows(t, filepath.Join(cmd.Dir, "out")), 320)
	inspect := command(t, "inspect", "test.tar")
	inspect.Dir = cmd.Dir
	require.Equal(t, 0, finish(t, inspect).exit)
}

// While a run goes on, its directory is read by whoever likes, and written by nobody else; when it is killed, it is free.
func TestADirectoryBelongsToOneRunAtATime(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, nil)
	cmd, dir := gatedRun(t, `
capacity_gate:
  ttft_p50: "<= 20s"`, "-e", "URL=http://"+sim.host)
	put := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(dir), name), []byte(text), 0o600))
	}
	contract, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "slo.yaml"))
	require.NoError(t, err)
	// The first run lasts until it is killed.
	put("script.js", strings.Replace(gated, "duration: '8s'", "duration: '10m'", 1))
	put("slo.yaml", strings.Replace(string(contract), "steady: 6s", "steady: 9m", 1))
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool {
		info, err := os.Stat(filepath.Join(dir, results.RequestsFile))

		return err == nil && info.Size() > 0
	}, time.Minute, 10*time.Millisecond)

	again := func() ran {
		other := command(t, "run", "--quiet", "--address", "", "--out", "llm="+dir+",overwrite=true", "-e", "URL=http://"+sim.host, "script.js")
		other.Dir = filepath.Dir(dir)

		return finish(t, other)
	}
	r := again()
	require.Equal(t, 255, r.exit, r.stderr)
	require.Contains(t, r.stderr, "directory "+dir+" is in use: another one is writing to it")
	r = runK6(t, "x", "llm", "gate", "verdict", dir)
	require.Contains(t, r.stdout, "the run did not come to its end", r.stderr)
	r = runK6(t, "x", "llm", "report", dir)
	require.Equal(t, 0, r.exit, r.stderr)

	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.FileExists(t, filepath.Join(dir, results.LockFile), "it was killed")
	put("script.js", gated)
	put("slo.yaml", string(contract))
	r = again()
	require.Equal(t, 0, r.exit, r.stderr)
	require.Contains(t, r.stdout, "verdict: PASS")
	require.NoFileExists(t, filepath.Join(dir, results.LockFile))
	keepsSchema(t, dir)
}
