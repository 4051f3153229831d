package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/llm/llmtest"
)

// replayedRow is what requests.jsonl says of one request.
type replayedRow struct {
	Row        int64   `json:"row"`
	Scenario   string  `json:"scenario"`
	Outcome    string  `json:"outcome"`
	Prompt     int     `json:"prompt"`
	Completion int     `json:"completion"`
	Chunks     int     `json:"chunks"`
	TTFT       float64 `json:"ttft"`
	TPOT       float64 `json:"tpot"`
	E2E        float64 `json:"e2e"`
}

func readRows(t *testing.T, dir string) map[string][]replayedRow {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "requests.jsonl"))
	require.NoError(t, err)
	byScenario := map[string][]replayedRow{}
	for _, r := range jsonLines[replayedRow](t, string(data)) {
		byScenario[r.Scenario] = append(byScenario[r.Scenario], r)
	}

	return byScenario
}

func median(values []float64) float64 {
	ordered := slices.Sorted(slices.Values(values))

	return ordered[len(ordered)/2]
}

// TestOneReplayThroughEveryWire replays the same rows through all wires at the same time, each against an engine of its
// own: so a row meets the same engine state in each, and a busy machine slows all of them alike.
func TestOneReplayThroughEveryWire(t *testing.T) {
	t.Parallel()
	const rows = 2000
	wires := []string{"chat", "completions", "responses", "messages"}
	dir := filepath.Join(t.TempDir(), "results")
	args := []string{"--out", "llm=" + dir}
	for _, api := range wires {
		// Simulated times well above what a busy machine adds.
		sim := startEngine(t, func(c *llmtest.ServerConfig) {
			c.KeepTruth, c.Engine.MaxNumSeqs, c.Engine.StepBase = 0, 256, 15*time.Millisecond
		})
		args = append(args, "-e", api+"="+sim.url)
	}
	r := script(t, `
		import llm from 'k6/x/llm';
		import trace from 'k6/x/llm/trace';
		const workload = trace.generate({ rate: 110, count: 2000, mix: 'short=0.7@60/4,long=0.3@300/7', seed: 5 });
		const wires = ['chat', 'completions', 'responses', 'messages'];
		export const options = { scenarios: Object.fromEntries(wires.map((api) =>
			[api, workload.scenario({ exec: api, preAllocatedVUs: 250, maxVUs: 250, tolerance: '20s', startTime: '2s' })])) };
		const server = (api) => ({ baseURL: __ENV[api], model: 'sim', api });
		const clients = Object.fromEntries(wires.map((api) => [api, new llm.Client(server(api))]));
		export function setup() {
			return Object.fromEntries(wires.map((api) => [api, trace.calibrate(server(api))]));
		}
		const ask = (api, found) => clients[api].chat({ ...workload.next({ api, calibration: found[api] }), ignore_eos: true });
		export const chat = (found) => ask('chat', found);
		export const completions = (found) => ask('completions', found);
		export const responses = (found) => ask('responses', found);
		export const messages = (found) => ask('messages', found);`, args...)
	require.Equal(t, 0, r.exit, r.stderr)

	seen := readRows(t, dir)
	medians := map[string]map[string]float64{}
	var reference []replayedRow
	for _, api := range wires {
		of := seen[api]
		require.Len(t, of, rows, api)
		slices.SortFunc(of, func(a, b replayedRow) int { return int(a.Row - b.Row) })
		var ttft, tpot, e2e []float64
		dropped := 0
		for i, one := range of {
			require.Equal(t, int64(i), one.Row, "%s: each row once", api)
			if one.Outcome == "dropped" { // a busy machine has no VU free
				dropped++

				continue
			}
			require.Equal(t, "ok", one.Outcome, "%s: row %d", api, i)
			if reference != nil && reference[i].Outcome == "ok" {
				require.Equal(t, reference[i].Prompt, one.Prompt, "%s: row %d", api, i)
				require.Equal(t, reference[i].Completion, one.Completion, "%s: row %d", api, i)
				require.Equal(t, reference[i].Chunks, one.Chunks, "%s: row %d: what is a chunk does not depend on the wire", api, i)
			}
			ttft, tpot, e2e = append(ttft, one.TTFT), append(tpot, one.TPOT), append(e2e, one.E2E)
		}
		require.Less(t, dropped, rows/10, api)
		medians[api] = map[string]float64{"ttft": median(ttft), "tpot": median(tpot), "e2e": median(e2e)}
		t.Logf("%-12s medians: TTFT %.1f ms, TPOT %.2f ms, E2E %.1f ms", api,
			medians[api]["ttft"], medians[api]["tpot"], medians[api]["e2e"])
		if reference == nil {
			reference = of
		}
	}
	for _, api := range wires[1:] {
		for metric, value := range medians[api] {
			ratio := value / medians["chat"][metric]
			require.Less(t, max(ratio, 1/ratio), 1.5, "%s of %s differs from that of chat", metric, api)
		}
	}
}

// TestExamplesOfOtherWires runs the examples whose requests are not all streams of text, in every API that they know.
func TestExamplesOfOtherWires(t *testing.T) {
	t.Parallel()
	for name, check := range map[string]func(*testing.T, map[string][]sample){
		"sessions.js": func(t *testing.T, s map[string][]sample) {
			require.Len(t, byTag(s["llm_ttft"], "turn"), 10)
		},
		"tools.js": func(t *testing.T, s map[string][]sample) {
			rounds := byTag(s["llm_requests"], "round")
			require.Len(t, rounds, 3)
			require.Equal(t, sum(rounds["1"]), sum(rounds["3"]), "two rounds of tools, and one with the answer")
		},
		"images.js": func(t *testing.T, s map[string][]sample) {
			require.GreaterOrEqual(t, s["llm_prompt_tokens"][0].Data.Value, float64(llmtest.ImageTokens(512, 512)))
			require.Zero(t, sum(s["llm_cached_tokens"]), "each picture is a new one")
		},
		"rag.js": func(t *testing.T, s map[string][]sample) {
			apis := byTag(s["llm_e2e"], "api")
			require.Len(t, apis["embeddings"], len(apis["chat"]))
			require.Len(t, s["llm_ttft"], len(apis["chat"]), "an embedding has no TTFT")
		},
		"model-mix.js": func(t *testing.T, s map[string][]sample) {
			require.Equal(t, []string{"sim", "sim:legal", "sim:support"}, sortedKeys(byTag(s["llm_requests"], "model")))
		},
	} {
		for _, api := range []string{"chat", "responses", "messages"} {
			if api != "chat" && (name == "rag.js" || name == "model-mix.js") {
				continue
			}
			t.Run(name+" "+api, func(t *testing.T) {
				t.Parallel()
				sim := startEngine(t, func(c *llmtest.ServerConfig) { c.Speed = 10 })
				out := filepath.Join(t.TempDir(), "samples.json")
				r := runK6(t, "run", "--quiet", "--address", "", "--out", "json="+out, "-e", "LLM_BASE_URL="+sim.url, "-e", "API="+api,
					filepath.Join(root(t), "examples", name))
				require.Equal(t, 0, r.exit, r.stderr)
				samples := readSamples(t, out)
				require.Positive(t, sum(samples["llm_requests"]))
				require.Equal(t, sum(samples["llm_requests"]), sum(samples["llm_success"]), "every request succeeded")
				check(t, samples)
			})
		}
	}
}

func byTag(samples []sample, tag string) map[string][]sample {
	groups := map[string][]sample{}
	for _, s := range samples {
		groups[s.Data.Tags[tag]] = append(groups[s.Data.Tags[tag]], s)
	}

	return groups
}

func sortedKeys[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)

	return names
}

func TestAMixIsTheSameInEverySegment(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, func(c *llmtest.ServerConfig) { c.Speed = 10 })
	const source = `
		import llm from 'k6/x/llm';
		import trace from 'k6/x/llm/trace';
		const workload = trace.generate({ rate: 60, count: 120, mix: 'all=1@20/3' });
		export const options = { scenarios: { s: workload.scenario({ preAllocatedVUs: 120, maxVUs: 120, tolerance: '20s' }) } };
		const client = new llm.Client({ baseURL: __ENV.URL, model: { sim: 2, 'sim:legal': 1, 'sim:support': 1 } });
		export default function () {
			const request = workload.next();
			const res = client.chat(request);
			console.log(JSON.stringify({ row: request.row, model: res.model }));
		}`
	type choice struct {
		Row   int
		Model string
	}
	run := func(segment ...string) map[int]string {
		r := script(t, source, append(segment, "--log-format", "raw", "--log-output", "stdout", "--no-summary", "-e", "URL="+sim.url)...)
		require.Equal(t, 0, r.exit, r.stderr)
		models := map[int]string{}
		for _, c := range jsonLines[choice](t, r.stdout) {
			require.NotEmpty(t, c.Model)
			models[c.Row] = c.Model
		}

		return models
	}
	whole := run()
	require.Len(t, whole, 120)
	parts := map[int]string{}
	for _, segment := range []string{"0:1/2", "1/2:1"} {
		part := run("--execution-segment", segment, "--execution-segment-sequence", "0,1/2,1")
		require.Less(t, len(part), 120)
		for row, model := range part {
			parts[row] = model
		}
	}
	require.Equal(t, whole, parts)
}

func TestEmbeddingsOverTheWire(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, nil)
	r := script(t, `
		import llm from 'k6/x/llm';
		const client = new llm.Client({ baseURL: __ENV.URL, model: 'sim', timeout: '2s' });
		export default function () {
			const whole = (r) => ({ kind: r.ok ? 'ok' : r.error.type, status: r.status, tokens: r.usage.promptTokens, vectors: r.embeddings,
				ttft: r.timings.ttft, e2e: r.timings.e2e !== null });
			console.log(JSON.stringify({ results: [
				whole(client.embeddings({ input: ['one two three', 'four'] })),
				whole(client.embeddings({ input: [[1, 2, 3]], dimensions: 5, encoding_format: 'base64' })),
				whole(client.embeddings({ input: 'a', sim_fault: { status: 429 } })),
				whole(client.embeddings({ input: 'a', sim_fault: { malformed_after: 0 } })),
				whole(client.embeddings({ input: 'a', sim_fault: { drop_after: 0 } })),
				whole(client.embeddings({ input: 'a '.repeat(9000) })),
			] }));
		}`, "--log-format", "raw", "--log-output", "stdout", "--no-summary", "-e", "URL="+sim.url)
	require.Equal(t, 0, r.exit, r.stderr)
	type vectors struct{ Count, Dimensions int }
	type outcome struct {
		Kind    string
		Status  int
		Tokens  *int
		Vectors *vectors
		TTFT    *float64
		E2E     bool
	}
	lines := jsonLines[struct{ Results []outcome }](t, r.stdout)
	require.Len(t, lines, 1, r.stdout)
	got := lines[0].Results
	require.Len(t, got, 6)
	four, three := 4, 3
	for i, want := range []outcome{
		{Kind: "ok", Status: 200, Tokens: &four, Vectors: &vectors{2, llmtest.DefaultDimensions}, E2E: true},
		{Kind: "ok", Status: 200, Tokens: &three, Vectors: &vectors{1, 5}, E2E: true},
		{Kind: "http_429", Status: 429},
		{Kind: "decode", Status: 200},
		{Kind: "stream_truncated", Status: 200},
		{Kind: "context_length", Status: 400},
	} {
		if want.Kind != "ok" {
			got[i].E2E = false // what a failed request took is of no interest here
		}
		require.Equal(t, want, got[i])
	}
}
