package llm

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

const vectors = `{"object":"list","model":"e-1","data":[{"index":0,"embedding":[1,2,3]},{"index":1,"embedding":[4,5,6]}],
	"usage":{"prompt_tokens":7,"total_tokens":7}}`

func TestEmbeddings(t *testing.T) {
	t.Parallel()
	s := serve(t, status(200, vectors))
	v := newVU(t)
	r := v.must(newClient(s, `cost: {prompt: 2, completion: 9}, slo: {ttft: 1, tpot: 1, e2e: "1m"}`) + `
		result = client.embeddings({input: ["a", "b"], model: "e", class: "short", row: 3, promptTokens: 6});`)
	require.Equal(t, true, r["ok"])
	require.Equal(t, map[string]any{"count": int64(2), "dimensions": int64(3)}, r["embeddings"])
	require.Equal(t, map[string]any{
		"promptTokens": int64(7), "completionTokens": nil, "cachedTokens": nil, "reasoningTokens": nil, "source": "server",
	}, r["usage"])
	require.Equal(t, true, r["goodput"], "the client's limits on TTFT and TPOT are for requests that stream")
	require.InDelta(t, 14e-6, r["cost"], 1e-15)
	timings := r["timings"].(map[string]any)
	require.NotNil(t, timings["e2e"])
	for _, absent := range []string{"ttft", "ttftText", "tpot"} {
		require.Nil(t, timings[absent])
	}

	seen := v.seen()
	for name, want := range map[string][]float64{
		"llm_e2e": {num(timings["e2e"])}, "llm_prompt_tokens": {7}, "llm_prompt_tokens_error": {1}, "llm_requests": {1},
		"llm_success": {1}, "llm_http_5xx": {0}, "llm_goodput": {1}, "llm_cost": {num(r["cost"])}, "http_reqs": {1},
	} {
		require.Equal(t, want, values(seen[name]), name)
	}
	for _, absent := range []string{
		"llm_ttft", "llm_ttft_text", "llm_itl", "llm_tpot", "llm_output_tps", "llm_completion_tokens", "llm_chunk_tokens",
		"llm_errors", "llm_cached_tokens",
	} {
		require.NotContains(t, seen, absent)
	}
	require.Equal(t, map[string]string{"scenario": "s", "model": "e", "api": "embeddings", "class": "short"}, seen["llm_e2e"][0].Tags.Map())
	require.Equal(t, "/v1/embeddings", s.last().path)
	require.JSONEq(t, `{"model":"e","input":["a","b"]}`, s.last().body)
}

func TestEmbeddingsWithoutUsageAreCountedByTheTokenizer(t *testing.T) {
	t.Parallel()
	s := serve(t, status(200, `{"data":[{"embedding":[1]}]}`))
	for option, want := range map[string]map[string]any{
		``:                          {"promptTokens": nil, "source": nil},
		`tokenizer: "cl100k_base",`: {"promptTokens": int64(2), "source": "tokenizer"},
	} {
		usage := newVU(t).must(newClient(s, option) + `result = client.embeddings({input: "hello world"});`)["usage"].(map[string]any)
		require.Equal(t, want["promptTokens"], usage["promptTokens"])
		require.Equal(t, want["source"], usage["source"])
		require.Nil(t, usage["completionTokens"])
	}
}

func TestFailedEmbeddings(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		handle func(http.ResponseWriter, *http.Request)
		want   string
	}{
		"429":           {status(429, `{"error":{"message":"slow down"}}`), "http_429"},
		"too long":      {status(400, `{"error":{"message":"This model's maximum context length is 8192 tokens. However, your request has 9000 input tokens."}}`), "context_length"},
		"error in 200":  {status(200, `{"error":{"message":"no","code":500}}`), "stream_error"},
		"no data":       {status(200, `{"data":[]}`), "decode"},
		"a stream":      {func(w http.ResponseWriter, _ *http.Request) { write(w, delta("a"), done) }, "decode"},
		"broken answer": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "99"); write(w, "{") }, "stream_truncated"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, tt.handle)
			v := newVU(t)
			r := v.must(newClient(s, "slo: {e2e: 60000}") + `result = client.embeddings({input: "a"});`)
			require.Equal(t, false, r["ok"])
			require.Equal(t, tt.want, r["error"].(map[string]any)["type"], r["error"])
			require.Equal(t, false, r["goodput"])
			seen := v.seen()
			require.Equal(t, []float64{0}, values(seen["llm_success"]))
			require.NotContains(t, seen, "llm_e2e")
		})
	}
}

// TestAVectorForEachInput: a server that leaves some out has not done what it was asked for.
func TestAVectorForEachInput(t *testing.T) {
	t.Parallel()
	two := `{"data":[{"index":0,"embedding":[1,2]},{"index":1,"embedding":[3,4]}]}`
	for _, tt := range []struct {
		input, answer, want string
	}{
		{`["a", "b"]`, two, ""},
		{`[[1, 2, 3], [4]]`, two, ""},
		{`["a", "b"]`, `{"data":[{"embedding":[1,2]}]}`, "the answer holds 1 vector for 2 inputs"},
		{`[[1, 2, 3], [4], [5]]`, two, "the answer holds 2 vectors for 3 inputs"},
		{`"a"`, two, "the answer holds 2 vectors for 1 input"},
		{`[1, 2, 3]`, two, "the answer holds 2 vectors for 1 input"},
		{`["a"]`, two, "the answer holds 2 vectors for 1 input"},
		{`[{text: "a"}, {image: "b"}, {text: "c"}]`, two, "the answer holds 2 vectors for 3 inputs"},
		{`[1, 2, 3]`, `{"data":[{"embedding":[1,2]}]}`, ""},
		{`{content: ["a"]}`, two, ""}, // no form of OpenAI's: the server knows how many inputs it is
	} {
		r := newVU(t).must(newClient(serve(t, status(200, tt.answer)), "") + `
			const res = client.embeddings({input: ` + tt.input + `});
			result = {ok: res.ok, type: res.error && res.error.type, message: res.error && res.error.message};`)
		want := map[string]any{"ok": true, "type": nil, "message": nil}
		if tt.want != "" {
			want = map[string]any{"ok": false, "type": "decode", "message": "decode: " + tt.want}
		}
		require.Equal(t, want, r, "%s: %s", tt.input, tt.answer)
	}
}

func TestWrongUseOfEmbeddings(t *testing.T) {
	t.Parallel()
	for request, want := range map[string]string{
		`{}`:                                    `embeddings request: field "input" is missing`,
		`{input: "a", stream: true}`:            "an embedding is no stream",
		`{input: "a", slo: {ttft: 5}}`:          `embeddings request: option "slo": got an object, expected a limit on e2e alone`,
		`{input: "a", abortAfter: {tokens: 2}}`: "an embedding has no tokens to wait for",
	} {
		_, err := newVU(t).run(`new llm.Client({baseURL: "http://127.0.0.1:1"}).embeddings(` + request + `)`)
		require.ErrorContains(t, err, want)
	}
	_, err := newVU(t).run(`new llm.Client({baseURL: "http://127.0.0.1:1", api: "embeddings"})`)
	require.ErrorContains(t, err, "expected one of chat, completions, responses, messages")
	r := newVU(t).must(newClient(serve(t, status(200, vectors)), "") + `result = {ok: (await client.asyncEmbeddings({input: ["a", "b"]})).ok};`)
	require.Equal(t, true, r["ok"])
}
