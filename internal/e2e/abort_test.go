package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
	"github.com/safeqps/xk6-safeqps/llm/llmtest"
)

// watched is a script of steady arrivals for as long as its contract says.
const watched = `
	import llm from 'k6/x/llm';
	import trace from 'k6/x/llm/trace';
	import gate from 'k6/x/llm/gate';
	const contract = gate.open('./slo.yaml');
	const workload = trace.generate({ rate: Number(__ENV.RATE || 10), duration: '40s', burstiness: 'constant', mix: 'short=1@40/30' });
	export const options = {
		scenarios: {
			...workload.phases(contract.phases, { preAllocatedVUs: 100, maxVUs: 100, gracefulStop: '0s' }),
			...gate.monitor(contract, JSON.parse(__ENV.MONITOR || '{}')),
		},
		thresholds: contract.thresholds(),
	};
	const client = new llm.Client({ baseURL: __ENV.URL + '/v1', model: 'sim', timeout: __ENV.TIMEOUT || '60s' });
	export default function () {
		client.chat({ ...workload.next(), ...JSON.parse(__ENV.EXTRA || '{}') });
	}
	export { handleSummary } from 'k6/x/llm/gate';`

// watchedRun runs the script under a contract; args are further arguments of k6 run.
func watchedRun(t *testing.T, contract string, args ...string) (ran, string) {
	t.Helper()
	dir := t.TempDir()
	contract = "capacity_gate: {success_rate: \">= 0.5\"}\n" + contract
	if !strings.Contains(contract, "client_headroom:") {
		contract += "\nclient_headroom: {cpu: off, timer_delay_p99: off, schedule_error: off, dropped: off}\n"
	}
	for name, text := range map[string]string{"script.js": watched, "slo.yaml": contract} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	cmd := command(t, append(append([]string{"run", "--quiet", "--address", "", "--out", "llm=out"}, args...), "script.js")...)
	cmd.Dir = dir

	return finish(t, cmd), filepath.Join(dir, "out")
}

func openRun(t *testing.T, dir string) *results.Run {
	t.Helper()
	run, err := results.Open(dir)
	require.NoError(t, err)

	return run
}

// stoppedBy asserts which rule ended a run, and gives what it saw. The run would have lasted for 40 seconds.
func stoppedBy(t *testing.T, r ran, dir, rule string) string {
	t.Helper()
	require.Equal(t, 99, r.exit, r.stderr)
	run := openRun(t, dir)
	require.NotNil(t, run.Info.Aborted, r.stderr)
	require.Equal(t, rule, run.Info.Aborted.Rule)
	judged, err := verdict.Read(dir)
	require.NoError(t, err)
	require.NoError(t, judged.Counts.Check())
	require.Less(t, judged.Counts.Started, int64(390), "it did not run to its end")
	t.Logf("%s: %s; %.1f s after the start, and ended %.2f s later", rule, run.Info.Aborted.Saw,
		run.Info.Aborted.At.Sub(run.Info.Started).Seconds(), run.Info.Ended.Sub(run.Info.Aborted.At).Seconds())

	return run.Info.Aborted.Saw
}

func completed(t *testing.T, dir string) int64 {
	t.Helper()
	judged, err := verdict.Read(dir)
	require.NoError(t, err)

	return judged.Counts.Completed
}

const fortySeconds = "\nphases: {steady: 40s}\n"

// A service that takes two seconds for a first token and thirty for an answer.
func TestAnAbortDoesNotWaitForAnswers(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, func(c *llmtest.ServerConfig) { c.FixedTTFT, c.FixedGap = 2*time.Second, time.Second })
	r, dir := watchedRun(t, `abort: {ttft_p99: "> 1s for 3s"}`+fortySeconds, "-e", "URL=http://"+sim.host)
	require.Contains(t, stoppedBy(t, r, dir, "abort.ttft_p99"), "ttft_p99 was ")
	require.Zero(t, completed(t, dir), "no answer had come to its end")
	r, dir = watchedRun(t, `abort: {itl_p50: "> 500ms for 3s"}`+fortySeconds, "-e", "URL=http://"+sim.host)
	require.Contains(t, stoppedBy(t, r, dir, "abort.itl_p50"), "itl_p50 was ")
	require.Zero(t, completed(t, dir))
}

// A service that never answers.
func TestAnAbortSeesRequestsThatHang(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, nil)
	hang := []string{"-e", "URL=http://" + sim.host, "-e", `EXTRA={"sim_fault":{"header_delay":"60s"}}`}
	r, dir := watchedRun(t, `abort: {ttft_p99: "> 1s for 3s"}`+fortySeconds, append(hang, "-e", "TIMEOUT=2s")...)
	stoppedBy(t, r, dir, "abort.ttft_p99")
	r, dir = watchedRun(t, `abort: {e2e_p99: "> 1s for 3s"}`+fortySeconds, hang...)
	stoppedBy(t, r, dir, "abort.e2e_p99")
}

// The generator's own limits, by the monitor and by the output.
func TestAnAbortSeesTheLoadGenerator(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, nil)
	url := "URL=http://" + sim.host
	r, dir := watchedRun(t, `abort: {client_headroom: true}
client_headroom: {timer_delay_p99: "<= 1us", cpu: off, schedule_error: off, dropped: off}`+fortySeconds, "-e", url)
	require.Contains(t, stoppedBy(t, r, dir, "abort.client_headroom"), "client_headroom: timer_delay_p99 was over the limit in ")
	judged, err := verdict.Read(dir)
	require.NoError(t, err)
	require.Equal(t, verdict.Invalid, judged.Verdict)
	r, dir = watchedRun(t, `abort: {client_headroom: true}
client_headroom: {timer_delay_p99: off, cpu: off, schedule_error: off, dropped: "<= 3"}`+fortySeconds, "-e", url, "-e", "RATE=60", "-e",
		`EXTRA={"sim_fault":{"header_delay":"30s"}}`)
	require.Contains(t, stoppedBy(t, r, dir, "abort.client_headroom"), "client_headroom: dropped was ")
}

// Health is asked for beside the metrics where the contract does not say where; what never answered well is not taken for ill.
func TestHealthWithoutAnAddressOfItsOwn(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, nil)
	const rule = "abort: {unhealthy: {for: 1s}}\nphases: {steady: 40s}\n"
	var asked atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/health":
			if asked.Add(1) > 2 { // ill after it has been seen well
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		case "/metrics":
			_, _ = fmt.Fprintln(w, "vllm:num_requests_waiting 0")
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(front.Close)
	url := "URL=http://" + sim.host
	r, dir := watchedRun(t, rule+"server: {metrics_url: \""+front.URL+"/metrics\"}\n", "-e", url)
	stoppedBy(t, r, dir, "abort.unhealthy")
	r, dir = watchedRun(t, rule, "-e", url, "-e", `MONITOR={"healthURL":"`+front.URL+`/health"}`)
	stoppedBy(t, r, dir, "abort.unhealthy")
}

const sixSeconds = "\nphases: {steady: 6s}\n"

func events(t *testing.T, dir, kind string) []string {
	t.Helper()
	all, _, err := openRun(t, dir).Events()
	require.NoError(t, err)
	var out []string
	for _, e := range all {
		if e.Kind == kind {
			out = append(out, e.Message)
		}
	}

	return out
}

func TestWhatCanNotBeWatchedIsSaid(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, nil)
	url := "URL=http://" + sim.host
	r, dir := watchedRun(t, "abort: {unhealthy: true}"+sixSeconds, "-e", url)
	require.Contains(t, r.stderr, "abort.unhealthy is not watched: the contract has neither server.health_url nor server.metrics_url")
	require.Equal(t, 1, strings.Count(r.stderr, "is not watched"), "once, and not for each VU")
	require.Contains(t, r.stdout, "abort rule not watched: abort.unhealthy")
	judged, err := verdict.Read(dir)
	require.NoError(t, err)
	require.Contains(t, strings.Join(judged.Labels, "\n"), "abort rule not watched: abort.unhealthy")
	check := runK6(t, "x", "llm", "gate", "check", filepath.Join(filepath.Dir(dir), "slo.yaml"))
	require.Equal(t, 0, check.exit)
	require.Contains(t, check.stdout, "slo.yaml:2:")
	require.Contains(t, check.stdout, "warning: ")

	// A health endpoint that is not there, where nobody said that it is.
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			w.WriteHeader(http.StatusNotFound)

			return
		}
		_, _ = fmt.Fprintln(w, "vllm:num_requests_waiting 0")
	}))
	t.Cleanup(metrics.Close)
	r, dir = watchedRun(t, "abort: {unhealthy: true}\nserver: {metrics_url: \""+metrics.URL+"/metrics\"}"+sixSeconds, "-e", url)
	require.Equal(t, 0, r.exit, r.stderr)
	require.Contains(t, r.stderr, "abort.unhealthy is not watched until it answers")
	require.NotEmpty(t, events(t, dir, results.EventHealthGap))
	require.Empty(t, events(t, dir, results.EventScrapeGap))

	// Without an output nobody sees requests.
	none := filepath.Join(t.TempDir(), "slo.yaml")
	require.NoError(t, os.WriteFile(none, []byte("capacity_gate: {success_rate: \">= 0.5\"}\nabort: {error_rate: \"> 20% for 2s\"}"+
		"\nphases: {steady: 2s}\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(none), "script.js"), []byte(watched), 0o600))
	cmd := command(t, "run", "--quiet", "--address", "", "-e", url, "script.js")
	cmd.Dir = filepath.Dir(none)
	require.Contains(t, finish(t, cmd).stderr, "abort.error_rate is not watched: give --out llm=DIR")
}

// A GPU exporter that can not be read is a gap of its own, and holds nothing else back.
func TestAGapOfTheGPUExporterIsCounted(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close()) // nobody listens there
	samples := filepath.Join(t.TempDir(), "samples.json")
	r, dir := watchedRun(t, "server: {metrics_url: \"http://"+sim.host+"/metrics\", gpu_url: \"http://"+l.Addr().String()+"/metrics\"}"+sixSeconds,
		"-e", "URL=http://"+sim.host, "--out", "json="+samples)
	require.Equal(t, 0, r.exit, r.stderr)
	require.Contains(t, r.stderr, "the gpu endpoint could not be read")
	gaps := events(t, dir, results.EventGPUGap)
	require.NotEmpty(t, gaps)
	require.Contains(t, gaps[0], "gpu: metrics endpoint: ")
	require.Empty(t, events(t, dir, results.EventScrapeGap))
	seen := readSamples(t, samples)
	require.Len(t, seen["llm_server_scrape_gaps"], len(gaps))
	require.Equal(t, "gpu", seen["llm_server_scrape_gaps"][0].Data.Tags["endpoint"])
	require.NotEmpty(t, seen["llm_server_queue_depth"])
	require.Empty(t, seen["llm_server_gpu_utilisation"], "never a zero")
}

// The contract's interval and engine are kept; the monitor's own interval goes before.
func TestTheMonitorKeepsTheContract(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = fmt.Fprintln(w, "vllm:num_requests_waiting 3\nsglang:num_queue_reqs 5")
	}))
	t.Cleanup(front.Close)
	sim := startEngine(t, nil)
	run := func(server, monitor string) ([]float64, int, int64) {
		asked.Store(0)
		r, dir := watchedRun(t, "server: {metrics_url: \""+front.URL+"/metrics\""+server+"}"+sixSeconds, "-e", "URL=http://"+sim.host, "-e", "MONITOR="+monitor)
		require.Equal(t, 0, r.exit, r.stderr)
		var depths []float64
		cpu := 0
		_, err := openRun(t, dir).Series(func(s *results.Sample) error {
			if depth, ok := s.Server["queue_depth"]; ok {
				depths = append(depths, depth)
			}
			if _, ok := s.Client["cpu"]; ok {
				cpu++
			}

			return nil
		})
		require.NoError(t, err)

		return depths, cpu, asked.Load()
	}
	depths, cpu, times := run(", interval: 3s, engine: sglang", "{}")
	require.GreaterOrEqual(t, times, int64(2))
	require.LessOrEqual(t, times, int64(4), "every 3 s of 6")
	require.NotEmpty(t, depths)
	for _, depth := range depths {
		require.InDelta(t, 5, depth, 0)
	}
	require.Greater(t, int64(cpu), times, "the load generator is read each second all the same")
	depths, _, times = run(", interval: 3s", `{"interval":"500ms"}`)
	require.Greater(t, times, int64(6), "every half second of 6 s, and not every second")
	require.Equal(t, 3.0, depths[0], "the first engine whose names are known")
	_, _, times = run(", interval: 250ms", "{}")
	require.Greater(t, times, int64(8), "every quarter of a second")
}
