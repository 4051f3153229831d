package e2e

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/llm/llmtest"
)

func TestExamplesRunUnchanged(t *testing.T) {
	t.Parallel()
	for name, env := range map[string][]string{
		"chat.js":              nil,
		"concurrency-sweep.js": {"SECONDS=1"},
		"ramp.js":              {"PEAK=10", "DURATION=3s"},
		"async-fanout.js":      nil,
		"burst-matrix.js":      {"SECONDS=2", "LLM_RATE=5"},
		"soak-and-burst.js":    {"SECONDS=6", "BURST=20", "BURST_SECONDS=1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim := startEngine(t, func(c *llmtest.ServerConfig) { c.Speed = 4 })
			out := filepath.Join(t.TempDir(), "samples.json")
			args := []string{"run", "--quiet", "--address", "", "--out", "json=" + out, "-e", "LLM_BASE_URL=" + sim.url}
			for _, e := range env {
				args = append(args, "-e", e)
			}
			r := runK6(t, append(args, filepath.Join(root(t), "examples", name))...)
			require.Equal(t, 0, r.exit, r.stderr)
			samples := readSamples(t, out)
			n := sum(samples["llm_requests"])
			require.Positive(t, n)
			require.Equal(t, n, sum(samples["llm_success"]), "every request succeeded")
			require.Equal(t, n, sum(samples["http_reqs"]))
			require.Len(t, samples["llm_ttft"], int(n))
			require.Len(t, samples["llm_itl"], int(sum(samples["llm_completion_tokens"])-n),
				"one gap for each token but the first of each request")
		})
	}
}

// answer is what the script of TestReportedValuesEqualTheTruth prints of each response.
type answer struct {
	ID           string    `json:"id"`
	StartTime    float64   `json:"startTime"`
	TTFT         float64   `json:"ttft"`
	TTFTText     float64   `json:"ttftText"`
	TPOT         float64   `json:"tpot"`
	E2E          float64   `json:"e2e"`
	ITL          []float64 `json:"itl"`
	Chunks       int       `json:"chunks"`
	Prompt       int       `json:"prompt"`
	Completion   int       `json:"completion"`
	Cached       int       `json:"cached"`
	FinishReason string    `json:"finish"`
}

func TestReportedValuesEqualTheTruth(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, nil)
	r := script(t, `
		import llm from 'k6/x/llm';
		export const options = { vus: 5, iterations: 25 };
		const client = new llm.Client({ baseURL: __ENV.URL, model: 'sim' });
		export default function () {
			const r = client.chat({
				messages: [{ role: 'user', content: 'a prompt that all share, long enough for a block or two of the cache: '.repeat(3) + __ITER }],
				max_tokens: 10 + __VU, ignore_eos: true,
				sim_fault: { reasoning_tokens: __ITER % 3, tokens_per_chunk: 1 + __ITER % 2, tool_call: __ITER % 5 === 4 },
			});
			if (!r.ok) throw new Error(r.error.message);
			console.log(JSON.stringify({ id: r.requestId, startTime: r.startTime, ...r.timings, chunks: r.chunks,
				prompt: r.usage.promptTokens, completion: r.usage.completionTokens, cached: r.usage.cachedTokens,
				finish: r.finishReason }));
		}`, "--log-format", "raw", "-e", "URL="+sim.url)
	require.Equal(t, 0, r.exit, r.stderr)
	answers := jsonLines[answer](t, r.stderr+r.stdout)
	require.Len(t, answers, 25)
	for _, a := range answers {
		truth, ok := sim.Truth(a.ID)
		require.True(t, ok, a.ID)
		require.Equal(t, truth.PromptTokens, a.Prompt)
		require.Equal(t, truth.OutputTokens, a.Completion)
		require.Equal(t, truth.CachedTokens, a.Cached)
		require.Equal(t, truth.FinishReason, a.FinishReason)

		var sent []int64
		firstText := -1
		for _, c := range truth.Chunks {
			if c.Tokens == 0 {
				continue
			}
			if c.Kind != "reasoning" && firstText < 0 {
				firstText = len(sent)
			}
			sent = append(sent, c.SentNS)
		}
		require.Equal(t, len(sent), a.Chunks)
		require.Len(t, a.ITL, len(sent)-1)

		// A chunk is seen after it was written, and before the next one could be seen; a float of milliseconds since 1970
		// is exact to a quarter of a microsecond.
		// The server stamps with the wall clock, the client adds times of the monotonic clock to one wall-clock stamp: the two
		// clocks are read apart, and are slewed apart, by some microseconds.
		const rounding, clocks = 0.001, 1.0
		seen := a.StartTime + a.TTFT
		require.GreaterOrEqual(t, seen+clocks, float64(sent[0])/1e6)
		require.LessOrEqual(t, a.StartTime, float64(truth.ReceivedNS)/1e6+clocks)
		span := 0.0
		for i, gap := range a.ITL {
			if i+1 == firstText {
				require.InDelta(t, a.TTFT+span+gap, a.TTFTText, rounding)
			}
			span += gap
			require.GreaterOrEqual(t, seen+span+clocks, float64(sent[i+1])/1e6)
		}
		require.InDelta(t, span/float64(a.Completion-1), a.TPOT, rounding)
		require.GreaterOrEqual(t, a.E2E+rounding, a.TTFT+span)
	}
}

func TestFaultsOfTheServer(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, nil)
	for fault, want := range map[string]string{
		`{}`:                                      "ok",
		`{tokens_per_chunk: 4}`:                   "ok",
		`{heartbeat: "1ms"}`:                      "ok",
		`{no_done: true}`:                         "ok",
		`{no_usage: true}`:                        "ok",
		`{split_at: 17, split_delay: "1ms"}`:      "ok",
		`{done_delay: "20ms", eof_delay: "20ms"}`: "ok",
		`{header_delay: "20ms"}`:                  "ok",
		`{tool_call: true}`:                       "ok",
		`{reasoning_tokens: 3, reasoning_field: "reasoning"}`: "ok",
		`{truncate_after: 3}`:                "stream_truncated",
		`{drop_after: 3}`:                    "stream_truncated",
		`{reset_after: 3}`:                   "stream_truncated",
		`{error_after: 3}`:                   "stream_error",
		`{error_after: 0, error_done: true}`: "stream_error",
		`{malformed_after: 2}`:               "decode",
		`{stall_after: 2}`:                   "idle_timeout",
		`{stall_after: 2, heartbeat: "1ms"}`: "idle_timeout",
		`{status: 429, retry_after: 1}`:      "http_429",
		`{status: 503}`:                      "http_5xx",
		`{status: 418}`:                      "http_4xx",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			r := script(t, fmt.Sprintf(`
				import llm from 'k6/x/llm';
				const client = new llm.Client({ baseURL: __ENV.URL, model: 'sim', idleTimeout: '1s' });
				export default function () {
					const r = client.chat({ messages: [{ role: 'user', content: 'hi' }], max_tokens: 12, sim_fault: %s });
					console.log(JSON.stringify({ kind: r.ok ? 'ok' : r.error.type }));
				}`, fault), "--log-format", "raw", "--log-output", "stdout", "--no-summary", "-e", "URL="+sim.url)
			require.Equal(t, 0, r.exit, r.stderr)
			kinds := jsonLines[struct{ Kind string }](t, r.stdout)
			require.Len(t, kinds, 1, r.stdout)
			require.Equal(t, want, kinds[0].Kind, r.stdout)
		})
	}
}

func TestGracefulStopRecordsWhatWasInFlight(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, func(c *llmtest.ServerConfig) { c.FixedGap = 50 * time.Millisecond })
	out := filepath.Join(t.TempDir(), "samples.json")
	r := script(t, `
		import llm from 'k6/x/llm';
		export const options = { scenarios: { s: { executor: 'constant-vus', vus: 3, duration: '1s', gracefulStop: '0s' } } };
		const client = new llm.Client({ baseURL: __ENV.URL, model: 'sim' });
		export default function () {
			client.chat({ messages: [{ role: 'user', content: 'hi' }], max_tokens: 1000 });
		}`, "--out", "json="+out, "-e", "URL="+sim.url)
	require.Equal(t, 0, r.exit, r.stderr)
	samples := readSamples(t, out)
	require.Equal(t, 3.0, sum(samples["llm_requests"]))
	require.Empty(t, samples["llm_success"], "whether they would have succeeded, nobody knows")
	require.Len(t, samples["llm_errors"], 3)
	for _, s := range samples["llm_errors"] {
		require.Equal(t, "interrupted", s.Data.Tags["error_type"])
	}
	require.Len(t, samples["llm_ttft"], 3, "what they had is kept")
	require.NotEmpty(t, samples["llm_itl"])
}

func TestWrongUseOfCommands(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"x", "llm", "nonsense"}, `unknown command \"nonsense\", expected one of:`},
		{[]string{"x", "llm", "sim", "--nonsense"}, "unknown flag: --nonsense"},
		{[]string{"x", "llm", "sim", "surplus"}, `expected no arguments, only flags`},
		{[]string{"x", "llm", "sim", "--max-num-seqs", "0"}, "--max-num-seqs is 0, expected at least 1"},
		{[]string{"x", "llm", "sim", "--listen", "nowhere"}, `--listen: got \"nowhere\", expected host:port`},
	} {
		r := runK6(t, tt.args...)
		require.Equal(t, 3, r.exit, tt.args)
		require.Contains(t, r.stderr, tt.want)
	}
}
