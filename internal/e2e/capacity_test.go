package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/capacity"
	"github.com/safeqps/xk6-safeqps/gate/compare"
	"github.com/safeqps/xk6-safeqps/gate/plan"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/llm/llmtest"
)

// probed is the script of a search.
const probed = `
	import llm from 'k6/x/llm';
	import trace from 'k6/x/llm/trace';
	import gate from 'k6/x/llm/gate';
	const contract = gate.open('./slo.yaml');
	const k = __ENV.LLM_BURSTINESS || 'constant';
	const workload = trace.generate({
		rate: Number(__ENV.FIXED_RATE || __ENV.LLM_RATE), count: 2000, burstiness: k === 'constant' ? k : Number(k),
		mix: 'short=1@40/8', seed: Number(__ENV.LLM_SEED),
	});
	export const options = {
		scenarios: {
			...workload.phases(contract.phases, { preAllocatedVUs: 40, maxVUs: 400, gracefulStop: '10s', tolerance: '20s' }),
			...gate.monitor(contract),
		},
		thresholds: contract.thresholds(),
	};
	const client = new llm.Client({ baseURL: __ENV.URL + '/v1', model: 'sim' });
	export default function () { client.chat(workload.next()); }`

const probedContract = `
capacity_gate: {ttft_p75: "<= 300ms"}
phases: {warmup: 1s, steady: 3s}
server: {metrics_url: "${URL}/metrics"}
client_headroom: {cpu: off, memory: off, open_files: off, timer_delay_p99: off, schedule_error: off, dropped: off}
decision: {change: "none", engine: simulated, replicas: 1}
`

// smallEngine serves some 40 requests a second of 8 tokens, and not many more: 4 at a time, 10 ms a step.
func smallEngine(t *testing.T) *engine {
	t.Helper()

	return startEngine(t, func(c *llmtest.ServerConfig) {
		c.Engine.MaxNumSeqs, c.Engine.StepBase = 4, 10*time.Millisecond
	})
}

func capacityIn(t *testing.T, dir string, sim *engine, args ...string) *exec.Cmd {
	t.Helper()
	for name, text := range map[string]string{"script.js": probed, "slo.yaml": probedContract} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	cmd := command(t, append([]string{
		"x", "llm", "capacity", "--script", "script.js", "--contract", "slo.yaml", "--out", "search",
		"--min", "10", "--max", "160", "--tolerance", "25%", "-e", "URL=http://" + sim.host,
	}, args...)...)
	cmd.Dir = dir

	return cmd
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, v), path)
}

func TestCapacityFindsTheLimitOfAnEngine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := finish(t, capacityIn(t, dir, smallEngine(t), "--prove-client", "--json", "--gpu-hour-price", "3600"))
	require.Contains(t, []int{0, 2}, r.exit, r.stderr) // 2 where the two generators disturb each other
	search := filepath.Join(dir, "search")

	var found capacity.Result
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &found), r.stdout)
	require.True(t, found.Confirmed, r.stderr)
	require.Equal(t, capacity.Found, found.Status)
	require.Equal(t, "ttft_p75", found.LimitingCriterion)
	require.Greater(t, *found.SafeQPS, 15.0)
	require.Less(t, *found.SafeQPS, 60.0)
	require.LessOrEqual(t, len(found.Probes), 10)
	require.InDelta(t, found.ElapsedSeconds, *found.Cost, 1e-6, "3600 an hour is 1 a second")

	for _, probe := range found.Probes {
		run, err := results.Open(filepath.Join(search, probe.Dir))
		require.NoError(t, err)
		require.FileExists(t, filepath.Join(search, probe.Dir, "verdict.json"))
		require.FileExists(t, filepath.Join(search, probe.Dir, "k6.log"))
		require.NotEmpty(t, run.Info.Contract)
		require.NotNil(t, probe.Recovered, "the engine's metrics are read between probes")
	}
	var stored capacity.Result
	readJSON(t, filepath.Join(search, "capacity.json"), &stored)
	require.Equal(t, found, stored)

	content, err := os.ReadFile(filepath.Join(search, "envelope.json"))
	require.NoError(t, err)
	envelope, err := capacity.ReadEnvelope(content)
	require.NoError(t, err)
	require.Len(t, envelope.Entries, 1)
	require.Equal(t, found, envelope.Entries[0].Result)
	require.Equal(t, "simulated", envelope.Configuration["engine"])
	require.Equal(t, "1", envelope.Configuration["replicas"])
	require.Contains(t, envelope.Configuration, "k6")
	require.Contains(t, envelope.Labels, results.LabelSyntheticPrompts)
	page, err := os.ReadFile(filepath.Join(search, "report.html"))
	require.NoError(t, err)
	require.Contains(t, string(page), "Safe QPS")
	require.Contains(t, string(page), strconv.FormatFloat(*found.SafeQPS, 'g', 3, 64))

	proof := found.ClientProof
	require.NotNil(t, proof)
	require.InDelta(t, *found.SafeQPS, proof.Rate, 0)
	require.Equal(t, len(proof.Lower) > 0, proof.Limited != nil && *proof.Limited)
	require.Positive(t, proof.Seconds)
	joined, err := results.Open(filepath.Join(search, proof.Dir))
	require.NoError(t, err)
	rows := map[int64]int{}
	_, err = joined.Requests(func(q *results.Request) error {
		rows[q.Row]++

		return nil
	})
	require.NoError(t, err)
	for n := range int64(len(rows)) {
		require.Equal(t, 1, rows[n], "row %d, of two generators", n)
	}
	offered := proof.Rate * 4 // seconds of warmup and steady phase, at the length that confirmed
	require.Greater(t, float64(len(rows)), offered*0.9)
	var compared compare.Report
	readJSON(t, filepath.Join(search, proof.Dir, "compare.json"), &compared)
	require.Equal(t, proof.Answer, string(compared.Answer))

	rate := *found.SafeQPS * 8 // with a fifth of headroom: exactly ten replicas, and one spare
	planned := runK6(t, "x", "llm", "plan", search, "--rate", fmt.Sprint(rate), "--json")
	require.Equal(t, 0, planned.exit, planned.stderr)
	var made plan.Plan
	require.NoError(t, json.Unmarshal([]byte(planned.stdout), &made))
	require.Equal(t, 10, made.BySafeQPS)
	require.GreaterOrEqual(t, made.Replicas, 11)
	require.NotNil(t, made.ByLittle, "mean E2E and requests in flight were measured")
}

// children are the processes that a process has started.
func children(t *testing.T, pid int) []int {
	t.Helper()
	var found []int
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // a thread that has ended
		}
		for field := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(field)
			require.NoError(t, err)
			found = append(found, child)
		}
	}

	return found
}

// A killed search leaves no load behind, and goes on where it was.
func TestAKilledSearchGoesOn(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/task"); err != nil {
		t.Skip("processes are looked up in /proc")
	}
	dir, sim := t.TempDir(), smallEngine(t)
	cmd := capacityIn(t, dir, sim)
	require.NoError(t, cmd.Start())
	var child int
	second := filepath.Join(dir, "search", "probe-02", "requests.jsonl")
	require.Eventually(t, func() bool {
		info, err := os.Stat(second)

		return err == nil && info.Size() > 0
	}, time.Minute, 5*time.Millisecond)
	if running := children(t, cmd.Process.Pid); len(running) == 1 {
		child = running[0]
	}
	require.NotZero(t, child, "the probe's k6")

	other := finish(t, capacityIn(t, dir, sim))
	require.Equal(t, 3, other.exit)
	require.Contains(t, other.stderr, "another search is running")

	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.Eventually(t, func() bool {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))

		return err != nil || strings.Contains(string(state), ") Z ")
	}, 10*time.Second, 5*time.Millisecond, "the probe's k6 has ended with the search")

	var before capacity.State
	readJSON(t, filepath.Join(dir, "search", capacity.StateFile), &before)
	require.Len(t, before.Probes, 1)

	changed := finish(t, capacityIn(t, dir, sim, "--tolerance", "10%"))
	require.Equal(t, 3, changed.exit)
	require.Contains(t, changed.stderr, "tolerance")

	r := finish(t, capacityIn(t, dir, sim, "--json"))
	require.Equal(t, 0, r.exit, r.stderr)
	require.Contains(t, r.stderr, "resuming after 1 probes")
	require.Contains(t, r.stderr, "probe-02 was cut after")
	var found capacity.Result
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &found))
	require.True(t, found.Confirmed)
	require.Equal(t, before.Probes[0], found.Probes[0], "what had ended was not run again")
	require.Equal(t, 2, found.Probes[1].Attempt)
	require.Contains(t, strings.Join(found.Notes, "\n"), "attempts at probes were cut, 1 of them")
	require.Positive(t, found.CutSeconds)
	took := found.CutSeconds
	for _, probe := range found.Probes {
		took += probe.Seconds
	}
	require.InDelta(t, took, found.ElapsedSeconds, 1e-9, "what was cut counts")

	again := finish(t, capacityIn(t, dir, sim, "--json"))
	require.Equal(t, 0, again.exit)
	require.JSONEq(t, r.stdout, again.stdout, "a search that has ended answers at once")
}

func TestCapacityEnvelope(t *testing.T) {
	t.Parallel()
	dir, sim := t.TempDir(), smallEngine(t)
	r := finish(t, capacityIn(t, dir, sim, "--arrival", "constant", "--arrival", "bursty", "--min", "18", "--max", "22", "--json"))
	require.Contains(t, []int{0, 1, 2}, r.exit, r.stderr) // the bursts decide
	var envelope capacity.Envelope
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &envelope), r.stdout)
	require.Len(t, envelope.Entries, 2)
	constant, bursty := envelope.Entries[0], envelope.Entries[1]
	require.Equal(t, "constant", constant.Arrivals)
	require.Nil(t, constant.Burstiness, "its shape is infinite")
	require.Equal(t, capacity.AboveRange, constant.Result.Status)
	require.InDelta(t, 22, *constant.Result.SafeQPS, 0)
	require.Equal(t, "bursty", bursty.Arrivals)
	require.InDelta(t, 0.25, *bursty.Burstiness, 0)
	for _, entry := range envelope.Entries {
		require.FileExists(t, filepath.Join(dir, "search", entry.Arrivals, entry.Result.Probes[0].Dir, "verdict.json"))
	}
	low := finish(t, capacityIn(t, t.TempDir(), sim, "--min", "2", "--max", "20", "--max-probes", "1"))
	require.Contains(t, low.stderr, "the contract needs 11 requests to pass, so the search begins at 2.444 requests/s")

	short := finish(t, capacityIn(t, t.TempDir(), sim, "--min", "1", "--max", "2"))
	require.Equal(t, 3, short.exit)
	require.Contains(t, short.stderr, "lengthen the steady phase")

	var page struct {
		Capacity []struct {
			Arrival string `json:"arrival"`
		} `json:"capacity"`
		Runs []struct {
			Dir     string `json:"dir"`
			Process string `json:"process"`
		} `json:"runs"`
	}
	readJSON(t, filepath.Join(dir, "search", "report.json"), &page)
	require.Len(t, page.Capacity, 2)
	for _, run := range page.Runs {
		require.Equal(t, filepath.Base(filepath.Dir(run.Dir)), run.Process, "each probe is of its search")
	}
	require.Len(t, page.Runs, len(constant.Result.Probes)+len(bursty.Result.Probes))

	planned := runK6(t, "x", "llm", "plan", filepath.Join(dir, "search"), "--rate", "66", "--headroom", "0", "--spares", "0", "--arrival", "constant")
	require.Equal(t, 0, planned.exit, planned.stderr)
	require.Regexp(t, `by Safe QPS +3 replicas`, planned.stdout)
}

// A script that does something else than it was asked for gives no answer, however it goes about it.
func TestAScriptThatIgnoresTheSearchIsTold(t *testing.T) {
	t.Parallel()
	constant := strings.NewReplacer("...workload.phases(contract.phases, { preAllocatedVUs: 40, maxVUs: 400, gracefulStop: '10s', tolerance: '20s' }),",
		"warmup: {executor: 'constant-arrival-rate', rate: 15, duration: '1s', preAllocatedVUs: 40, tags: {phase: 'warmup'}},"+
			"steady: {executor: 'constant-arrival-rate', rate: 15, startTime: '1s', duration: contract.phases.steady, preAllocatedVUs: 40, tags: {phase: 'steady'}},",
		"client.chat(workload.next())", "client.chat({messages: [{role: 'user', content: 'a'}], max_tokens: 8})").Replace(probed)
	ownLength := strings.NewReplacer("rate: 15,", "rate: Math.round(Number(__ENV.LLM_RATE)),", "duration: contract.phases.steady,", "duration: '6s',").Replace(constant)
	closed := "workers: {executor: 'constant-vus', vus: 4, duration: contract.phases.steady, tags: {phase: 'steady'}},"
	closedLoop := strings.Replace(probed, "...workload.phases(contract.phases, { preAllocatedVUs: 40, maxVUs: 400, gracefulStop: '10s', tolerance: '20s' }),", closed, 1)
	for name, c := range map[string]struct {
		script string
		args   []string
		says   string
	}{
		"its own steady phase": {ownLength, nil, "the scenarios of the script's steady phase send for 6 s, 1s were asked for"},
		"a closed loop":        {closedLoop, nil, "the scenario workers of the steady phase has the executor constant-vus, a closed loop"},
		"no monitor": {
			strings.Replace(probed, "...gate.monitor(contract),", "", 1), nil,
			"client_headroom.timer_delay_p99 <= 10s was not measured, so that no rate can pass, however long it runs: the script needs ...gate.monitor(contract)",
		},
		"goodput of nothing":    {probed, nil, "give the contract a request_slo"},
		"other arrivals":        {strings.Replace(probed, "__ENV.LLM_BURSTINESS", "''", 1), []string{"--arrival", "bursty"}, "--arrival bursty was asked for, and is not what came"},
		"another rate":          {probed, []string{"-e", "FIXED_RATE=10"}, "it has to take its rate from __ENV.LLM_RATE"},
		"another executor":      {constant, nil, "it has to take its rate from __ENV.LLM_RATE"},
		"half of the rows":      {strings.Replace(probed, "client.chat(", "if (__ITER % 2 === 0) client.chat(", 1), nil, "iterations of the steady phase ended without a request"},
		"no request":            {strings.Replace(probed, "client.chat(workload.next())", "", 1), nil, "the script sent no request"},
		"another contract":      {strings.Replace(probed, "gate.open('./slo.yaml')", "gate.open('./other.yaml')", 1), nil, "the script's warmup phase was 2s long, 1s were asked for"},
		"broken init code":      {"const a = ;", nil, "Unexpected token"},
		"its own length":        {probed, []string{"-e", "LLM_STEADY=1s"}, "LLM_STEADY is what the search hands to its probes"},
		"its own, by workload":  {probed, []string{"--workload", "w:LLM_SEED=1"}, "LLM_SEED is what the search hands to its probes"},
		"a budget for no probe": {probed, []string{"--max-time", "1s"}, "allows no probe"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := capacityIn(t, dir, smallEngine(t), c.args...)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "script.js"), []byte(c.script), 0o600))
			other := strings.Replace(probedContract, "warmup: 1s", "warmup: 2s", 1)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "other.yaml"), []byte(other), 0o600))
			slo := strings.NewReplacer(map[string][]string{
				"no monitor": {"timer_delay_p99: off", `timer_delay_p99: "<= 10s"`}, "goodput of nothing": {"ms\"}", "ms\", goodput: \">= 10%\"}"},
			}[name]...).Replace(probedContract)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "slo.yaml"), []byte(slo), 0o600))
			r := finish(t, cmd)
			require.Equal(t, 3, r.exit, r.stderr)
			require.Contains(t, r.stderr, c.says)
			require.NoFileExists(t, filepath.Join(dir, "search", "script.tar.tmp"))
		})
	}
}

// A recorded trace brings its own arrivals: they are searched once, and not called what was asked for. No other search takes
// the directory over.
func TestARecordedTraceKeepsItsArrivals(t *testing.T) {
	t.Parallel()
	dir, sim := t.TempDir(), smallEngine(t)
	args := []string{"--workload", "prod:TRACE=./prod.jsonl", "--arrival", "constant", "--arrival", "bursty", "--min", "18", "--max", "22", "--max-probes", "1"}
	cmd := capacityIn(t, dir, sim, append(args, "--json")...)
	script := strings.Replace(probed, "trace.generate({", "trace.open(__ENV.TRACE, { rate: Number(__ENV.LLM_RATE), loop: true, seed: Number(__ENV.LLM_SEED) }); const unused = ({", 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "script.js"), []byte(script), 0o600))
	var rows strings.Builder
	for i := range 200 { // two at a time
		fmt.Fprintf(&rows, "{\"timestamp\": %d, \"input_length\": 40, \"output_length\": 8}\n", 1000*(i/2))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prod.jsonl"), []byte(rows.String()), 0o600))
	r := finish(t, cmd)
	require.Contains(t, []int{1, 2}, r.exit, r.stderr)
	require.Contains(t, r.stderr, "left out: prod replays a recorded trace, which brings its own arrivals")
	var envelope capacity.Envelope
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &envelope), r.stdout)
	require.Len(t, envelope.Entries, 1)
	require.Equal(t, "prod", envelope.Entries[0].Workload)
	require.Equal(t, "trace", envelope.Entries[0].Arrivals)
	require.Nil(t, envelope.Entries[0].Burstiness)
	require.Len(t, envelope.Entries[0].Result.Probes, 1)

	before, err := os.ReadFile(filepath.Join(dir, "search", "envelope.json"))
	require.NoError(t, err)
	for _, other := range [][]string{nil, {"--workload", "chat", "--arrival", "constant", "--arrival", "poisson"}} {
		r = finish(t, capacityIn(t, dir, sim, other...))
		require.Equal(t, 3, r.exit, r.stderr)
		require.Contains(t, r.stderr, "a search would replace what is not its own")
	}
	after, err := os.ReadFile(filepath.Join(dir, "search", "envelope.json"))
	require.NoError(t, err)
	require.Equal(t, before, after)
}

// Nothing that is not the search's own is replaced, and no file of the script changes unseen between two probes.
func TestASearchKeepsToItsOwn(t *testing.T) {
	t.Parallel()
	dir, sim := t.TempDir(), smallEngine(t)
	mine := filepath.Join(dir, "search", "probe-01", "mine.txt")
	require.NoError(t, os.MkdirAll(filepath.Dir(mine), 0o700))
	require.NoError(t, os.WriteFile(mine, []byte("mine"), 0o600))
	r := finish(t, capacityIn(t, dir, sim))
	require.Equal(t, 3, r.exit)
	require.Contains(t, r.stderr, "would replace what is not its own")
	require.FileExists(t, mine)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "search")))

	one := func(change func(dir string), args ...string) ran {
		cmd := capacityIn(t, dir, sim, append([]string{"--max-probes", "1", "-e", "TEXT=a,b=c"}, args...)...)
		script := strings.Replace(probed, "import llm", "import './lib.js'; const text = __ENV.TEXT + __ENV.FROM_OUTSIDE;\nimport llm", 1)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "script.js"), []byte(script), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "lib.js"), []byte("export const a = 1;"), 0o600))
		if change != nil {
			change(dir)
		}
		cmd.Env = append(cmd.Environ(), "TMPDIR=/nonexistent") // as in an image that holds nothing but k6
		defer func() { require.NoFileExists(t, filepath.Join(dir, "search", "script.tar.tmp")) }()

		return finish(t, cmd)
	}
	first := one(nil)
	require.Equal(t, 2, first.exit, "one probe is no search: %s", first.stderr)
	again := one(nil)
	require.Equal(t, 2, again.exit)
	require.Contains(t, again.stderr, "resuming after 1 probes")
	several := one(nil, "--arrival", "constant", "--arrival", "poisson")
	require.Equal(t, 3, several.exit)
	require.Contains(t, several.stderr, "holds the search of a single workload and arrival process")
	changed := one(func(dir string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "lib.js"), []byte("export const a = 2;"), 0o600))
	})
	require.Equal(t, 3, changed.exit)
	require.Contains(t, changed.stderr, "it differs in the script or a file that it reads; put that back")
	other := one(nil, "-e", "TEXT=z")
	require.Equal(t, 3, other.exit)
	require.Contains(t, other.stderr, "it differs in the script's variables")
}

// Two searches of one service do not send the same prompts.
func TestSearchesHaveSeedsOfTheirOwn(t *testing.T) {
	t.Parallel()
	sim := smallEngine(t)
	seeds := map[uint64]bool{}
	for _, exported := range []bool{false, true} { // the service's address, which the script reads while it is looked at, too
		dir := t.TempDir()
		cmd := capacityIn(t, dir, sim, "--max-probes", "1")
		if exported {
			at := slices.Index(cmd.Args, "URL=http://"+sim.host)
			cmd.Args = slices.Delete(cmd.Args, at-1, at+1)
			cmd.Env = append(cmd.Environ(), "URL=http://"+sim.host)
		}
		finish(t, cmd)
		var state capacity.State
		readJSON(t, filepath.Join(dir, "search", capacity.StateFile), &state)
		require.Len(t, state.Probes, 1)
		require.False(t, state.Probes[0].WarmCache)
		seeds[state.Probes[0].Seed] = true
		run, err := results.Open(filepath.Join(dir, "search", state.Probes[0].Dir))
		require.NoError(t, err)
		require.Equal(t, []uint64{state.Probes[0].LLMSeed}, slices.Collect(maps.Values(run.Info.Seeds)), "what the script was given")
	}
	require.Len(t, seeds, 2)
}

func TestASearchNeedsAnIdleService(t *testing.T) {
	t.Parallel()
	dir, sim := t.TempDir(), smallEngine(t)
	body := `{"model": "sim", "stream": true, "max_tokens": 4000, "messages": [{"role": "user", "content": "go on"}]}`
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, sim.url+"/chat/completions", strings.NewReader(body))
	require.NoError(t, err)
	other, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Body.Close()) }()

	r := finish(t, capacityIn(t, dir, sim, "--idle-wait", "1s"))
	require.Equal(t, 3, r.exit, r.stderr)
	require.Contains(t, r.stderr, "the service is not idle after 1s (--idle-wait)")
	require.Contains(t, r.stderr, "1 requests are running and 0 are waiting")
	require.NoDirExists(t, filepath.Join(dir, "search", "probe-01"))
	dead := capacityIn(t, t.TempDir(), sim, "--idle-wait", "1s", "-e", "URL=http://127.0.0.1:1")
	r = finish(t, dead)
	require.Equal(t, 3, r.exit, r.stderr)
	require.Contains(t, r.stderr, "127.0.0.1:1")
}

func TestCompareTwoServices(t *testing.T) {
	t.Parallel()
	fast := startEngine(t, func(c *llmtest.ServerConfig) { c.Engine.StepBase = 8 * time.Millisecond })
	slow := startEngine(t, func(c *llmtest.ServerConfig) { c.Engine.StepBase = 24 * time.Millisecond })
	dirs := make([]string, 0, 4)
	for _, run := range []struct {
		sim  *engine
		rate string
	}{{fast, "50"}, {slow, "50"}, {fast, "30"}, {fast, "50"}} {
		cmd, dir := gatedRun(t, "capacity_gate: {success_rate: \">= 0.5\"}\n", "-e", "URL=http://"+run.sim.host, "-e", "RATE="+run.rate)
		r := finish(t, cmd)
		require.Equal(t, 0, r.exit, r.stderr)
		dirs = append(dirs, dir)
	}
	r := runK6(t, "x", "llm", "compare", dirs[0], dirs[1], "--json")
	require.Equal(t, 1, r.exit, r.stderr)
	var found compare.Report
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &found))
	require.Equal(t, compare.Worse, found.Answer)
	require.GreaterOrEqual(t, found.PairedRows, 270, "both replayed the same 300 rows at the same times")
	at := slices.IndexFunc(found.Rows, func(row compare.Row) bool { return row.Metric == "tpot" && row.Statistic == "p50" })
	require.InDelta(t, 1, math.Log(*found.Rows[at].Change)/math.Log(3), 0.5, "a step takes three times as long: %v", *found.Rows[at].Change)

	back := runK6(t, "x", "llm", "compare", dirs[1], dirs[0])
	require.Equal(t, 0, back.exit, back.stderr)
	require.Contains(t, back.stdout, "B is better")

	again := runK6(t, "x", "llm", "compare", dirs[0], dirs[3])
	require.Equal(t, 3, again.exit, again.stdout)
	require.Contains(t, again.stderr, "prefix cache before the run (A: 0 %, B: ", "the first run left its prompts there")

	other := runK6(t, "x", "llm", "compare", dirs[0], dirs[2])
	require.Equal(t, 3, other.exit)
	require.Contains(t, other.stderr, "--force")
	require.Empty(t, other.stdout)
	forced := runK6(t, "x", "llm", "compare", dirs[0], dirs[2], "--force", "--markdown")
	require.NotEqual(t, 3, forced.exit, forced.stderr)
	require.Contains(t, forced.stdout, "the workload differs")
}

func TestWrongUseOfCapacityCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "slo.yaml"), []byte("capacity_gate: {ttft_p95: \"<= 1s\"}\nphases: {steady: 10s}\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "growth.yaml"), []byte("capacity_gate: {queue_growth: no_sustained_growth, ttft_p95: \"<= 1s\"}\nphases: {steady: 12s}\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "s.js"), []byte("export default function () {}"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "other.json"), []byte(`{"schema": "something/1"}`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "found.json"), []byte(`{"schema": "safeqps-capacity/1", "status": "found", "safe_qps": 2, "confirmed": true}`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "broken.json"), []byte(`{"schema":`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "short.csv"), []byte("timestamp,input_length,output_length\n0.5,1,1\n1.25,1,1\n"), 0o600))
	search := []string{"capacity", "--script", "s.js", "--contract", "slo.yaml", "--out", "search"}
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"no script":          {[]string{"capacity", "--contract", "slo.yaml", "--out", "search"}, "--script"},
		"missing contract":   {[]string{"capacity", "--script", "s.js", "--contract", "none.yaml", "--out", "search"}, "none.yaml"},
		"tolerance":          {append(slices.Clone(search), "--tolerance", "5x%"), "--tolerance"},
		"tolerance range":    {append(slices.Clone(search), "--tolerance", "0%"), "--tolerance is 0"},
		"range":              {append(slices.Clone(search), "--min", "5", "--max", "5"), "--max is 5"},
		"not a number":       {append(slices.Clone(search), "--min", "NaN"), "--min is NaN"},
		"cost without price": {append(slices.Clone(search), "--max-cost", "5"), "--max-cost is set, and needs --gpu-hour-price"},
		"idle wait":          {append(slices.Clone(search), "--idle-wait", "-1s"), "--idle-wait: got -1s, expected a time above 0"},
		"time":               {append(slices.Clone(search), "--max-time", "-1s"), "--max-time: got -1s"},
		"no probes":          {append(slices.Clone(search), "--max-probes", "0"), "--max-probes: got 0, expected 1 or more"},
		"short for growth":   {[]string{"capacity", "--script", "s.js", "--contract", "growth.yaml", "--out", "search"}, "too short for queue_growth, which takes 21s"},
		"arrival":            {append(slices.Clone(search), "--arrival", "sometimes"), "--arrival"},
		"workload":           {append(slices.Clone(search), "--workload", "../up:A=1"), "--workload"},
		"compare one":        {[]string{"compare", "a"}, "expected 2: A B"},
		"compare nothing":    {[]string{"compare", "a", "b"}, "run.json"},
		"compare margin":     {[]string{"compare", "a", "b", "--margin", "-5%"}, "--margin"},
		"plan without rate":  {[]string{"plan", "other.json"}, "--rate"},
		"plan of nothing":    {[]string{"plan", ".", "--rate", "5"}, "envelope.json"},
		"plan of another":    {[]string{"plan", "other.json", "--rate", "5"}, "something/1"},
		"plan of a torn one": {[]string{"plan", "broken.json", "--rate", "5"}, "broken.json"},
		"plan headroom":      {[]string{"plan", "other.json", "--rate", "5", "--headroom", "lots"}, "--headroom"},
		"plan without GPUs":  {[]string{"plan", "other.json", "--rate", "5", "--gpus", "0"}, "--gpus: got 0, expected more than 0"},
		"plan mean rate":     {[]string{"plan", "other.json", "--rate", "5", "--mean-rate", "0"}, "--mean-rate: got 0, expected more than 0"},
		"plan without end": {
			[]string{"plan", "found.json", "--rate", "5", "--gpus", "1e308", "--gpu-hour-price", "1e308", "--json"}, "GPUs per replica of 1e+308",
		},
		"search of arguments":  {[]string{"capacity", "extra"}, `expected no arguments, only flags`},
		"plan of both":         {[]string{"plan", "other.json", "--rate", "5", "--trace", "short.csv"}, "one of --rate and --trace"},
		"compare in two forms": {[]string{"compare", "a", "b", "--json", "--markdown"}, "one of --json and --markdown"},
		"plan of a short trace": {
			[]string{"plan", "other.json", "--trace", "short.csv", "--unit", "s", "--window", "1m"}, "shorter than the window",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := command(t, append([]string{"x", "llm"}, c.args...)...)
			cmd.Dir = dir
			r := finish(t, cmd)
			require.Equal(t, 3, r.exit, r.stderr)
			require.Contains(t, r.stderr, c.says)
			require.Empty(t, r.stdout)
		})
	}
}
