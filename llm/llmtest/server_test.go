package llmtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

// fastConfig is a server whose steps take well under a millisecond of wall-clock time.
func fastConfig() ServerConfig {
	cfg := DefaultServerConfig()
	cfg.Speed = 20
	cfg.KeepTruth = 100
	return cfg
}

type testServer struct {
	*Server
	t   *testing.T
	url string
}

func serve(t *testing.T, cfg ServerConfig) testServer {
	t.Helper()
	s, err := NewServer(cfg)
	require.NoError(t, err)
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		s.Close()
		h.Close()
	})
	return testServer{s, t, h.URL}
}

// post sends a body and gives the answer with its body not yet read.
func (s testServer) post(ctx context.Context, path, body string, header ...string) (*http.Response, error) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return http.DefaultClient.Do(req)
}

// closeBody closes an answer's body; that the connection may be gone by then is part of some tests.
func closeBody(resp *http.Response) { _ = resp.Body.Close() }

type answer struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body
}

func (s testServer) ask(path, body string, header ...string) answer {
	s.t.Helper()
	resp, err := s.post(s.t.Context(), path, body, header...)
	require.NoError(s.t, err)
	defer closeBody(resp)
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b), err}
}

func (s testServer) get(path string) answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, nil)
	require.NoError(s.t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	defer closeBody(resp)
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b), err}
}

type chunk struct {
	ID      string          `json:"id"`
	Object  string          `json:"object"`
	Model   string          `json:"model"`
	Created int64           `json:"created"`
	SentNS  int64           `json:"sim_sent_ns"`
	Usage   json.RawMessage `json:"usage"`
	Choices []struct {
		Index        int            `json:"index"`
		Delta        map[string]any `json:"delta"`
		Text         *string        `json:"text"`
		FinishReason *string        `json:"finish_reason"`
	} `json:"choices"`
	Error map[string]any `json:"error"`
}

// events are the data fields of a stream.
func (a answer) events() []string {
	var out []string
	for line := range strings.SplitSeq(a.body, "\n") {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			out = append(out, data)
		}
	}
	return out
}

func (s testServer) chunks(a answer) []chunk {
	s.t.Helper()
	var out []chunk
	for _, e := range a.events() {
		if e == "[DONE]" {
			continue
		}
		var c chunk
		require.NoError(s.t, json.Unmarshal([]byte(e), &c), e)
		out = append(out, c)
	}
	return out
}

const hello = `"messages":[{"role":"user","content":"Hello there, how are you?"}]`

// promptTokens: the template's 4 and 3, and "Hello", " there", ",", " how", " are", " you", "?".
const helloTokens = 4 + 7 + 3

func TestChatStream(t *testing.T) {
	s := serve(t, fastConfig())
	before := time.Now().UnixNano()
	a := s.ask("/v1/chat/completions",
		`{"model":"sim-model","stream":true,"stream_options":{"include_usage":true},"max_tokens":5,`+hello+`}`)
	require.NoError(t, a.err)
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "text/event-stream; charset=utf-8", a.header.Get("Content-Type"))
	events := a.events()
	require.Len(t, events, 1+5+1+1+1)
	require.Equal(t, "[DONE]", events[len(events)-1])
	require.True(t, strings.HasSuffix(a.body, "\n\n"))
	chunks := s.chunks(a)
	require.Equal(t, map[string]any{"role": "assistant", "content": ""}, chunks[0].Choices[0].Delta)
	var text strings.Builder
	for _, c := range chunks[1:6] {
		content, ok := c.Choices[0].Delta["content"].(string)
		require.True(t, ok)
		require.Equal(t, 1, CountTokens(content))
		require.Nil(t, c.Choices[0].FinishReason)
		text.WriteString(content)
	}
	require.Equal(t, 5, CountTokens(text.String()))
	require.Empty(t, chunks[6].Choices[0].Delta)
	require.Equal(t, "length", *chunks[6].Choices[0].FinishReason)
	require.Empty(t, chunks[7].Choices)
	require.JSONEq(t, `{"prompt_tokens":14,"completion_tokens":5,"total_tokens":19,"prompt_tokens_details":{"cached_tokens":0}}`,
		string(chunks[7].Usage))
	last := before
	for i, c := range chunks {
		require.Equal(t, a.header.Get("X-Request-Id"), c.ID)
		require.True(t, strings.HasPrefix(c.ID, "chatcmpl-"))
		require.Equal(t, "chat.completion.chunk", c.Object)
		require.Equal(t, "sim-model", c.Model)
		require.GreaterOrEqual(t, c.SentNS, last)
		last = c.SentNS
		if i < 7 {
			require.Equal(t, "null", string(c.Usage))
		}
	}
	require.LessOrEqual(t, last, time.Now().UnixNano())

	truth, ok := s.Truth(chunks[0].ID)
	require.True(t, ok)
	require.Equal(t, helloTokens, truth.PromptTokens)
	require.Equal(t, 5, truth.OutputTokens)
	require.Equal(t, "length", truth.FinishReason)
	require.Len(t, truth.Chunks, len(chunks))
	kinds := []string{"role", "text", "text", "text", "text", "text", "finish", "usage"}
	for i, c := range truth.Chunks {
		require.Equal(t, chunks[i].SentNS, c.SentNS)
		require.Equal(t, kinds[i], c.Kind)
	}
	var overHTTP Truth
	require.NoError(t, json.Unmarshal([]byte(s.get("/sim/requests/"+chunks[0].ID).body), &overHTTP))
	require.Equal(t, truth.Chunks, overHTTP.Chunks)
	require.Equal(t, http.StatusNotFound, s.get("/sim/requests/nope").status)
}

func TestChatStreamWithoutUsageAndWithUsageInEveryChunk(t *testing.T) {
	s := serve(t, fastConfig())
	a := s.ask("/v1/chat/completions", `{"stream":true,"max_tokens":3,`+hello+`}`)
	require.Len(t, a.events(), 1+3+1+1)
	a = s.ask("/v1/chat/completions",
		`{"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true},"max_tokens":3,`+hello+`}`)
	for i, c := range s.chunks(a) {
		var usage struct {
			Completion int `json:"completion_tokens"`
			Prompt     int `json:"prompt_tokens"`
		}
		require.NoError(t, json.Unmarshal(c.Usage, &usage))
		require.Equal(t, min(i, 3), usage.Completion)
		require.Equal(t, helloTokens, usage.Prompt)
	}
}

func TestCompletionsStreamAndPrompts(t *testing.T) {
	s := serve(t, fastConfig())
	a := s.ask("/v1/completions",
		`{"stream":true,"stream_options":{"include_usage":true},"max_tokens":4,"prompt":"Once upon a time"}`)
	chunks := s.chunks(a)
	require.Len(t, chunks, 4+1+1)
	var text string
	for _, c := range chunks[:4] {
		text += *c.Choices[0].Text
		require.Equal(t, "text_completion", c.Object)
		require.True(t, strings.HasPrefix(c.ID, "cmpl-"))
	}
	require.Equal(t, 4, CountTokens(text))
	require.Empty(t, *chunks[4].Choices[0].Text)
	require.Equal(t, "length", *chunks[4].Choices[0].FinishReason)

	for prompt, tokens := range map[string]int{
		`"Once upon a time"`: 4, `["Once upon a time"]`: 4, `[5,6,7]`: 3, `[[5,6,7,8,9]]`: 5,
	} {
		var got struct {
			Usage struct {
				Prompt     int `json:"prompt_tokens"`
				Completion int `json:"completion_tokens"`
			} `json:"usage"`
			Choices []struct {
				Text string `json:"text"`
			} `json:"choices"`
		}
		a := s.ask("/v1/completions", `{"max_tokens":2,"prompt":`+prompt+`}`)
		require.NoError(t, json.Unmarshal([]byte(a.body), &got), a.body)
		require.Equal(t, tokens, got.Usage.Prompt, prompt)
		require.Equal(t, 2, CountTokens(got.Choices[0].Text))
	}
}

func TestChatNotStreamed(t *testing.T) {
	s := serve(t, fastConfig())
	a := s.ask("/v1/chat/completions", `{"max_completion_tokens":6,"max_tokens":2,`+hello+`}`)
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	var got struct {
		Object  string `json:"object"`
		SentNS  int64  `json:"sim_sent_ns"`
		Choices []struct {
			FinishReason string `json:"finish_reason"`
			Message      struct {
				Role    string `json:"role"`
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
		Usage map[string]any `json:"usage"`
	}
	require.NoError(t, json.Unmarshal([]byte(a.body), &got))
	require.Equal(t, "chat.completion", got.Object)
	require.Positive(t, got.SentNS)
	require.Equal(t, "length", got.Choices[0].FinishReason)
	require.Equal(t, "assistant", got.Choices[0].Message.Role)
	require.Equal(t, 6, CountTokens(got.Choices[0].Message.Content))
	require.Equal(t, map[string]any{
		"prompt_tokens": 14., "completion_tokens": 6., "total_tokens": 20.,
		"prompt_tokens_details": map[string]any{"cached_tokens": 0.},
	}, got.Usage)
}

func TestAnswerLengthWithoutMaxTokens(t *testing.T) {
	cfg := fastConfig()
	cfg.OutputMedian, cfg.OutputSigma = 20, 0.3
	s := serve(t, cfg)
	length := func(body string) (int, string) {
		chunks := s.chunks(s.ask("/v1/chat/completions", `{"stream":true,`+body+`}`))
		return len(chunks) - 2, *chunks[len(chunks)-1].Choices[0].FinishReason
	}
	n, reason := length(hello)
	require.Equal(t, "stop", reason)
	require.InDelta(t, 20, n, 19)
	again, _ := length(hello)
	require.Equal(t, n, again, "a function of the prompt")
	other, _ := length(`"seed":1,` + hello)
	third, _ := length(`"seed":2,` + hello)
	require.False(t, other == n && third == n, "and of the seed")
	atLeast, reason := length(`"min_tokens":60,` + hello)
	require.Equal(t, 60, atLeast)
	require.Equal(t, "stop", reason)
	full, reason := length(`"max_tokens":200,` + hello)
	require.Equal(t, 200, full)
	require.Equal(t, "length", reason)

	cfg.EarlyStop = true
	cfg.Engine.MaxModelLen = 512
	s = serve(t, cfg)
	early, reason := length(`"max_tokens":200,` + hello)
	require.Equal(t, n, early)
	require.Equal(t, "stop", reason)
	full, reason = length(`"ignore_eos":true,"max_tokens":200,` + hello)
	require.Equal(t, 200, full)
	require.Equal(t, "length", reason)
	whole, reason := length(`"ignore_eos":true,` + hello)
	require.Equal(t, 512-helloTokens, whole)
	require.Equal(t, "length", reason)
}

func TestConversationFindsItsPrefixInTheCache(t *testing.T) {
	s := serve(t, fastConfig())
	question := strings.Repeat("Tell me a long story about this. ", 10) // 80 tokens: 8 in each sentence
	require.Equal(t, 81, CountTokens(question))
	first := `{"role":"user","content":"` + question + `"}`
	type result struct {
		Choices []struct {
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
		Usage struct {
			Prompt  int `json:"prompt_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	ask := func(messages string) result {
		var r result
		a := s.ask("/v1/chat/completions", `{"max_tokens":40,"messages":[`+messages+`]}`)
		require.NoError(t, json.Unmarshal([]byte(a.body), &r), a.body)
		return r
	}
	one := ask(first)
	require.Equal(t, 88, one.Usage.Prompt)
	require.Zero(t, one.Usage.Details.Cached)
	same := ask(first)
	require.Equal(t, 80, same.Usage.Details.Cached, "five blocks of 16")
	two := ask(first + `,{"role":"assistant","content":"` + one.Choices[0].Message.Content + `"},{"role":"user","content":"And then?"}`)
	// 88 prompt tokens and 39 of the 40 answered ones are in the cache: seven blocks.
	require.Equal(t, 112, two.Usage.Details.Cached)
	metrics := s.metricFamilies()
	require.Equal(t, float64(192), metrics["vllm:prefix_cache_hits_total"].GetMetric()[0].GetCounter().GetValue())
	require.Equal(t, float64(88+88+two.Usage.Prompt),
		metrics["vllm:prefix_cache_queries_total"].GetMetric()[0].GetCounter().GetValue())
}

func TestErrors(t *testing.T) {
	cfg := fastConfig()
	cfg.Engine.MaxModelLen = 64
	s := serve(t, cfg)
	chat, completions := "/v1/chat/completions", "/v1/completions"
	tests := []struct {
		name, path, body string
		status           int
		kind, message    string
	}{
		{"broken JSON", chat, `{"model":`, 400, "BadRequestError", "failed to parse the request body: unexpected end of JSON input"},
		{"wrong type", chat, `{"messages":3}`, 400, "BadRequestError", "failed to parse the request body"},
		{"unknown model", chat, `{"model":"nope",` + hello + `}`, 404, "NotFoundError", "The model `nope` does not exist."},
		{"no messages", chat, `{}`, 400, "BadRequestError", "messages is empty"},
		{"no role", chat, `{"messages":[{"content":"x"}]}`, 400, "BadRequestError", "messages[0] has no role"},
		{"an unknown part", chat, `{"messages":[{"role":"user","content":[{"type":"video_url"}]}]}`, 400, "BadRequestError", "part 0: this API has no part of type \"video_url\""},
		{"content of a wrong type", chat, `{"messages":[{"role":"user","content":3}]}`, 400, "BadRequestError", "expected a string or a list of parts"},
		{"no tokens", chat, `{"max_tokens":0,` + hello + `}`, 400, "BadRequestError", "max_tokens must be at least 1, got 0."},
		{"min over max", chat, `{"max_tokens":5,"min_tokens":6,` + hello + `}`, 400, "BadRequestError", "min_tokens"},
		{"two choices", chat, `{"n":2,` + hello + `}`, 400, "BadRequestError", "n is 2"},
		{"options without stream", chat, `{"stream_options":{},` + hello + `}`, 400, "BadRequestError", "Stream options can only be defined when `stream=True`."},
		{"over the context", chat, `{"stream":true,"max_tokens":51,` + hello + `}`, 400, "BadRequestError", "This model's maximum context length is 64 tokens. However, you requested 51 output tokens and your prompt contains 14 input tokens, for a total of 65 tokens"},
		{"prompt over the context", completions, `{"prompt":"` + strings.Repeat("a ", 64) + `"}`, 400, "BadRequestError", "However, your request has 65 input tokens."},
		{"no prompt", completions, `{}`, 400, "BadRequestError", "prompt: expected a text"},
		{"empty prompt", completions, `{"prompt":""}`, 400, "BadRequestError", "the prompt is empty"},
		{"two prompts", completions, `{"prompt":["a","b"]}`, 400, "BadRequestError", "list of 2 prompts"},
		{"unknown fault", chat, `{"sim_fault":{"truncate":3},` + hello + `}`, 400, "BadRequestError", `unknown field "truncate"`},
		{"wrong fault", chat, `{"sim_fault":{"status":200,"stall_after":-1},` + hello + `}`, 400, "BadRequestError", "status is 200, expected 400 to 599\nstall_after is -1"},
		{"wrong duration", chat, `{"sim_fault":{"heartbeat":5},` + hello + `}`, 400, "BadRequestError", `expected a string such as "250ms"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := s.ask(tt.path, tt.body)
			require.Equal(t, tt.status, a.status)
			require.Equal(t, "application/json", a.header.Get("Content-Type"))
			var got struct {
				Error struct {
					Message, Type string
					Code          int
				}
			}
			require.NoError(t, json.Unmarshal([]byte(a.body), &got), a.body)
			require.Contains(t, got.Error.Message, tt.message)
			require.Equal(t, tt.kind, got.Error.Type)
			require.Equal(t, tt.status, got.Error.Code)
		})
	}
	require.Equal(t, http.StatusMethodNotAllowed, s.get(chat).status)
	require.Equal(t, http.StatusNotFound, s.get("/v2").status)
	st, ok := s.Stats()
	require.True(t, ok)
	require.Zero(t, st.GenerationTokens)
}

// busy is a server with one slot and one waiting place, both taken until the test ends.
func busy(t *testing.T, cfg ServerConfig) testServer {
	t.Helper()
	cfg.Speed = 1
	cfg.Engine.MaxNumSeqs, cfg.Engine.MaxWaiting = 1, 1
	cfg.Engine.StepBase = time.Hour
	s := serve(t, cfg)
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		resp, err := s.post(ctx, "/v1/chat/completions", `{"stream":true,`+hello+`}`)
		require.NoError(t, err)
		t.Cleanup(func() { closeBody(resp) })
	}
	return s
}

func TestFullQueue(t *testing.T) {
	cfg := fastConfig()
	cfg.RetryAfter = 1500 * time.Millisecond
	s := busy(t, cfg)
	a := s.ask("/v1/chat/completions", `{"stream":true,`+hello+`}`)
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Equal(t, "2", a.header.Get("Retry-After"))
	require.JSONEq(t, `{"error":{"message":"the waiting queue is full","type":"ServiceUnavailableError","param":null,"code":503}}`, a.body)
	m := s.metricFamilies()
	require.Equal(t, 1., m["vllm:num_requests_running"].GetMetric()[0].GetGauge().GetValue())
	require.Equal(t, 1., m["vllm:num_requests_waiting"].GetMetric()[0].GetGauge().GetValue())

	cfg.QueueFullStatus, cfg.RetryAfter = http.StatusTooManyRequests, 0
	s = busy(t, cfg)
	a = s.ask("/v1/chat/completions", `{"stream":true,`+hello+`}`)
	require.Equal(t, http.StatusTooManyRequests, a.status)
	require.Empty(t, a.header.Get("Retry-After"))
	require.Contains(t, a.body, `"RateLimitError"`)

	cfg.ErrorsInStream = true
	s = busy(t, cfg)
	a = s.ask("/v1/chat/completions", `{"stream":true,`+hello+`}`)
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "data: {\"error\":{\"code\":429,\"message\":\"the waiting queue is full\",\"param\":null,\"type\":\"RateLimitError\"}}\n\ndata: [DONE]\n\n", a.body)
	a = s.ask("/v1/chat/completions", `{"stream":true,"max_tokens":100000,`+hello+`}`)
	require.Equal(t, http.StatusOK, a.status)
	require.Contains(t, a.body, "maximum context length")
	a = s.ask("/v1/chat/completions", hello)
	require.Equal(t, http.StatusBadRequest, a.status, "only an answer that is a stream")
}

func TestLeavingClientFreesSlotAndQueue(t *testing.T) {
	cfg := fastConfig()
	cfg.Engine.MaxNumSeqs = 1
	cfg.Speed = 1
	s := serve(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := s.post(ctx, "/v1/chat/completions", `{"stream":true,"max_tokens":8000,`+hello+`}`)
	require.NoError(t, err)
	_, err = bufio.NewReader(resp.Body).ReadString('\n')
	require.NoError(t, err)
	cancel()
	require.NoError(t, resp.Body.Close())
	// The slot of the one that left is all there is: this can only be answered once it is free, long before 8000 tokens.
	a := s.ask("/v1/chat/completions", `{"stream":true,"max_tokens":1,`+hello+`}`)
	require.Contains(t, a.body, "[DONE]")
	st, _ := s.Stats()
	kept := -1
	s.loop.call(func(time.Duration) { kept = len(s.loop.deliveries) })
	require.Zero(t, kept)
	require.Equal(t, int64(1), st.Cancelled)
	require.Equal(t, int64(1), st.Completed)
	require.Zero(t, st.UsedBlocks)
	for _, m := range s.metricFamilies()["vllm:request_success_total"].GetMetric() {
		require.Equal(t, map[string]float64{"stop": 0, "length": 1, "abort": 1}[labelOf(m, "finished_reason")], m.GetCounter().GetValue())
	}
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func (s testServer) metricFamilies() map[string]*dto.MetricFamily {
	s.t.Helper()
	a := s.get("/metrics")
	require.Equal(s.t, http.StatusOK, a.status)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(a.body))
	require.NoError(s.t, err)
	return families
}

func TestMetrics(t *testing.T) {
	cfg := fastConfig()
	cfg.Model = `my "model"`
	s := serve(t, cfg)
	s.ask("/v1/chat/completions", `{"max_tokens":5,`+hello+`}`)
	s.ask("/v1/chat/completions", `{"max_tokens":3,`+hello+`}`)
	f := s.metricFamilies()
	for name, want := range map[string]float64{
		"vllm:num_requests_running": 0, "vllm:num_requests_waiting": 0, "vllm:kv_cache_usage_perc": 0,
	} {
		require.Equal(t, dto.MetricType_GAUGE, f[name].GetType(), name)
		require.Equal(t, want, f[name].GetMetric()[0].GetGauge().GetValue(), name)
		require.Equal(t, `my "model"`, labelOf(f[name].GetMetric()[0], "model_name"))
	}
	for name, want := range map[string]float64{
		"vllm:prompt_tokens_total": 28, "vllm:generation_tokens_total": 8, "vllm:num_preemptions_total": 0,
		"vllm:prefix_cache_queries_total": 28, "vllm:prefix_cache_hits_total": 0,
	} {
		require.Equal(t, dto.MetricType_COUNTER, f[name].GetType(), name)
		require.Equal(t, want, f[name].GetMetric()[0].GetCounter().GetValue(), name)
	}
	for name, want := range map[string]uint64{
		"vllm:time_to_first_token_seconds": 2, "vllm:inter_token_latency_seconds": 6,
		"vllm:e2e_request_latency_seconds": 2, "vllm:request_queue_time_seconds": 2,
	} {
		h := f[name].GetMetric()[0].GetHistogram()
		require.Equal(t, want, h.GetSampleCount(), name)
		require.Equal(t, want, h.GetBucket()[len(h.GetBucket())-1].GetCumulativeCount(), name)
	}
	// Engine time over speed: prefill step 6 ms + 14 × 40 µs, decode steps 6.15 ms, at 20 times the speed.
	require.InEpsilon(t, 2*6.56e-3/20, f["vllm:time_to_first_token_seconds"].GetMetric()[0].GetHistogram().GetSampleSum(), 1e-6)
	require.InEpsilon(t, 6*6.15e-3/20, f["vllm:inter_token_latency_seconds"].GetMetric()[0].GetHistogram().GetSampleSum(), 1e-6)
	require.InEpsilon(t, (2*6.56e-3+6*6.15e-3)/20, f["vllm:e2e_request_latency_seconds"].GetMetric()[0].GetHistogram().GetSampleSum(), 1e-6)
	for _, b := range f["vllm:inter_token_latency_seconds"].GetMetric()[0].GetHistogram().GetBucket() {
		require.Equal(t, uint64(6), b.GetCumulativeCount(), "0.3 ms is below every bound")
	}
	require.Equal(t, "16", labelOf(f["vllm:cache_config_info"].GetMetric()[0], "block_size"))
}

func TestModelsTokenizeHealthAndKey(t *testing.T) {
	cfg := fastConfig()
	cfg.APIKey = "secret"
	s := serve(t, cfg)
	require.Equal(t, http.StatusUnauthorized, s.get("/v1/models").status)
	require.Equal(t, http.StatusUnauthorized, s.ask("/v1/chat/completions", `{`+hello+`}`, "Authorization", "Bearer wrong").status)
	require.Equal(t, http.StatusOK, s.ask("/v1/chat/completions", `{"max_tokens":1,`+hello+`}`, "Authorization", "Bearer secret").status)

	cfg.APIKey = ""
	s = serve(t, cfg)
	require.Contains(t, s.get("/v1/models").body, `"id":"sim-model"`)
	var got struct {
		Count       int      `json:"count"`
		MaxModelLen int      `json:"max_model_len"`
		Tokens      []uint32 `json:"tokens"`
	}
	a := s.ask("/tokenize", `{"model":"sim-model","prompt":"Once upon a time","add_special_tokens":true}`)
	require.NoError(t, json.Unmarshal([]byte(a.body), &got))
	require.Equal(t, 4, got.Count)
	require.Equal(t, 8192, got.MaxModelLen)
	require.Equal(t, Tokenize(nil, "Once upon a time"), got.Tokens)
	a = s.ask("/tokenize", `{`+hello+`}`)
	require.NoError(t, json.Unmarshal([]byte(a.body), &got))
	require.Equal(t, helloTokens, got.Count)
	a = s.ask("/tokenize", `{"add_generation_prompt":false,`+hello+`}`)
	require.NoError(t, json.Unmarshal([]byte(a.body), &got))
	require.Equal(t, helloTokens-ReplyOverhead, got.Count)
	a = s.ask("/tokenize", `{"messages":[{"role":"system","content":[{"type":"text","text":"Be kind."}]},{"role":"user","content":"Hi"}]}`)
	require.NoError(t, json.Unmarshal([]byte(a.body), &got))
	require.Equal(t, 2*MessageOverhead+ReplyOverhead+3+1, got.Count)
	require.Equal(t, http.StatusNotFound, s.ask("/tokenize", `{"model":"x","prompt":""}`).status)
	require.Equal(t, http.StatusBadRequest, s.ask("/tokenize", `{}`).status)

	require.Equal(t, http.StatusOK, s.get("/health").status)
	require.Equal(t, http.StatusOK, s.ask("/sim/health?status=503", "").status)
	require.Equal(t, http.StatusServiceUnavailable, s.get("/health").status)
	require.Equal(t, http.StatusBadRequest, s.ask("/sim/health?status=x", "").status)
	require.Equal(t, http.StatusBadRequest, s.ask("/sim/stall?for=-1s", "").status)
}

func TestStreamOptionsModes(t *testing.T) {
	cfg := fastConfig()
	body := `{"stream":true,"stream_options":{"include_usage":true},"max_tokens":2,` + hello + `}`
	cfg.StreamOptions = RejectStreamOptions
	a := serve(t, cfg).ask("/v1/chat/completions", body)
	require.Equal(t, http.StatusBadRequest, a.status)
	require.JSONEq(t, `{"error":{"message":"Unrecognized request argument supplied: stream_options","type":"BadRequestError","param":"stream_options","code":400}}`, a.body)
	cfg.StreamOptions = IgnoreStreamOptions
	a = serve(t, cfg).ask("/v1/chat/completions", body)
	require.Equal(t, http.StatusOK, a.status)
	require.NotContains(t, a.body, "prompt_tokens")
}

// stream asks for six tokens with a fault.
func (s testServer) faulty(fault string) answer {
	s.t.Helper()
	return s.ask("/v1/chat/completions",
		`{"stream":true,"stream_options":{"include_usage":true},"max_tokens":6,"sim_fault":`+fault+`,`+hello+`}`)
}

// texts counts the chunks that carry text.
func texts(chunks []chunk) int {
	n := 0
	for _, c := range chunks {
		if len(c.Choices) == 1 && c.Choices[0].Delta["content"] != nil && c.Choices[0].Delta["content"] != "" {
			n++
		}
	}
	return n
}

func finished(chunks []chunk) bool {
	return slices.ContainsFunc(chunks, func(c chunk) bool { return len(c.Choices) == 1 && c.Choices[0].FinishReason != nil })
}

func TestFaultsThatEndTheStream(t *testing.T) {
	s := serve(t, fastConfig())
	t.Run("truncate", func(t *testing.T) {
		a := s.faulty(`{"truncate_after":3}`)
		require.NoError(t, a.err)
		require.Equal(t, 3, texts(s.chunks(a)))
		require.False(t, finished(s.chunks(a)))
		require.NotContains(t, a.body, "[DONE]")
		a = s.faulty(`{"truncate_after":0}`)
		require.NoError(t, a.err)
		require.Empty(t, a.body)
		a = s.faulty(`{"truncate_after":7}`)
		require.Contains(t, a.body, "[DONE]", "the stream is shorter")
		a = s.faulty(`{"truncate_after":6}`)
		require.Equal(t, 6, texts(s.chunks(a)))
		require.False(t, finished(s.chunks(a)))
	})
	t.Run("error", func(t *testing.T) {
		a := s.faulty(`{"error_after":2}`)
		require.NoError(t, a.err)
		chunks := s.chunks(a)
		require.Equal(t, 2, texts(chunks))
		require.EqualValues(t, 500, chunks[len(chunks)-1].Error["code"])
		require.NotContains(t, a.body, "[DONE]")
		a = s.faulty(`{"error_after":2,"error_done":true}`)
		require.True(t, strings.HasSuffix(a.body, "}}\n\ndata: [DONE]\n\n"))
	})
	t.Run("drop", func(t *testing.T) {
		a := s.faulty(`{"drop_after":2}`)
		require.ErrorIs(t, a.err, io.ErrUnexpectedEOF)
		require.Equal(t, 2, texts(s.chunks(a)))
	})
	t.Run("reset", func(t *testing.T) {
		// A reset throws away what the client has not read yet: only the error is certain.
		a := s.faulty(`{"reset_after":2}`)
		require.ErrorIs(t, a.err, syscall.ECONNRESET)
	})
	s.active.Wait() // a handler outlives the connection that it cut
	st, _ := s.Stats()
	require.Zero(t, st.Running+st.Waiting+st.UsedBlocks, "what was cut is cancelled in the engine")
}

func TestFaultsThatChangeTheStream(t *testing.T) {
	s := serve(t, fastConfig())
	t.Run("no usage, no done", func(t *testing.T) {
		a := s.faulty(`{"no_usage":true}`)
		require.NotContains(t, a.body, "prompt_tokens")
		require.Contains(t, a.body, "[DONE]")
		a = s.faulty(`{"no_done":true}`)
		require.Contains(t, a.body, "prompt_tokens")
		require.NotContains(t, a.body, "[DONE]")
	})
	t.Run("several tokens per chunk", func(t *testing.T) {
		a := s.faulty(`{"tokens_per_chunk":4}`)
		chunks := s.chunks(a)
		require.Equal(t, 2, texts(chunks))
		first, ok := chunks[1].Choices[0].Delta["content"].(string)
		require.True(t, ok)
		require.Equal(t, 4, CountTokens(first))
		require.Contains(t, a.body, `"completion_tokens":6`)
		truth, _ := s.Truth(chunks[0].ID)
		require.Equal(t, []int{0, 4, 2, 0, 0}, tokensOf(truth))
	})
	t.Run("malformed", func(t *testing.T) {
		events := s.faulty(`{"malformed_after":1}`).events()
		require.Len(t, events, 1+6+3)
		for i, e := range events[:9] {
			require.Equal(t, i != 2, json.Valid([]byte(e)), e)
		}
	})
	t.Run("reasoning", func(t *testing.T) {
		a := s.faulty(`{"reasoning_tokens":2}`)
		chunks := s.chunks(a)
		require.Equal(t, 4, texts(chunks))
		require.Contains(t, chunks[1].Choices[0].Delta, "reasoning_content")
		require.Contains(t, chunks[2].Choices[0].Delta, "reasoning_content")
		require.Contains(t, chunks[3].Choices[0].Delta, "content")
		require.Contains(t, a.body, `"completion_tokens_details":{"reasoning_tokens":2}`)
		truth, _ := s.Truth(s.chunks(s.faulty(`{"reasoning_tokens":2,"tokens_per_chunk":4}`))[0].ID)
		require.Equal(t, []int{0, 2, 4, 0, 0}, tokensOf(truth), "a chunk is reasoning or text")
		a = s.faulty(`{"reasoning_tokens":9,"reasoning_field":"reasoning","tokens_per_chunk":4}`)
		require.Equal(t, 2, strings.Count(a.body, `"reasoning":"`))
		require.Zero(t, texts(s.chunks(a)))
	})
	t.Run("split", func(t *testing.T) {
		whole := s.faulty(`{}`)
		for _, at := range []string{"1", "5", "6", "100", "9999"} {
			split := s.faulty(`{"split_at":` + at + `}`)
			require.NoError(t, split.err)
			require.Equal(t, texts(s.chunks(whole)), texts(s.chunks(split)))
		}
	})
	t.Run("heartbeats", func(t *testing.T) {
		a := s.faulty(`{"heartbeat":"1ms","stall_after":2,"stall_for":"20ms"}`)
		require.Equal(t, 6, texts(s.chunks(a)))
		require.Contains(t, a.body, ": heartbeat\n\n")
		require.Contains(t, a.body, "[DONE]")
	})
	t.Run("delays at the end", func(t *testing.T) {
		a := s.faulty(`{"done_delay":"2ms","eof_delay":"2ms"}`)
		require.NoError(t, a.err)
		require.True(t, strings.HasSuffix(a.body, "data: [DONE]\n\n"))
	})
}

func tokensOf(truth Truth) []int {
	out := make([]int, 0, len(truth.Chunks))
	for _, c := range truth.Chunks {
		out = append(out, c.Tokens)
	}
	return out
}

func TestFaultyStatus(t *testing.T) {
	s := serve(t, fastConfig())
	a := s.faulty(`{"status":429,"retry_after":7,"header_delay":"1ms"}`)
	require.Equal(t, 429, a.status)
	require.Equal(t, "7", a.header.Get("Retry-After"))
	require.Contains(t, a.body, `"type":"RateLimitError"`)
	a = s.ask("/v1/chat/completions", `{`+hello+`}`, FaultHeader, `{"status":502}`)
	require.Equal(t, 502, a.status)
	require.Contains(t, a.body, `"type":"InternalServerError"`)
}

func TestFaultsOfAnswersThatAreNotStreamed(t *testing.T) {
	s := serve(t, fastConfig())
	ask := func(fault string) answer {
		return s.ask("/v1/chat/completions", `{"max_tokens":6,"sim_fault":`+fault+`,`+hello+`}`)
	}
	require.NotContains(t, ask(`{"no_usage":true}`).body, "usage")
	require.ErrorIs(t, ask(`{"drop_after":0}`).err, io.ErrUnexpectedEOF)
	require.False(t, json.Valid([]byte(ask(`{"malformed_after":0}`).body)))
	resp, err := s.post(t.Context(), "/v1/chat/completions", `{"max_tokens":6,"sim_fault":{"reset_after":0},`+hello+`}`)
	if err == nil {
		_ = resp.Body.Close()
	}
	require.Error(t, err)
	require.Contains(t, ask(`{"reasoning_tokens":2}`).body, `"reasoning_content":"`)
	var got struct {
		Choices []struct {
			FinishReason string `json:"finish_reason"`
			Message      struct {
				Content   *string `json:"content"`
				ToolCalls []struct {
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(ask(`{"tool_call":true}`).body), &got))
	require.Equal(t, "tool_calls", got.Choices[0].FinishReason)
	require.Nil(t, got.Choices[0].Message.Content)
	require.Equal(t, "get_weather", got.Choices[0].Message.ToolCalls[0].Function.Name)
	require.True(t, json.Valid([]byte(got.Choices[0].Message.ToolCalls[0].Function.Arguments)))
}

func TestToolCallStream(t *testing.T) {
	s := serve(t, fastConfig())
	tools := `"tools":[{"type":"function","function":{"name":"look_up","parameters":{}}}],"tool_choice":"required"`
	for _, tokens := range []string{"1", "2", "3", "7"} {
		for _, fault := range []string{`{}`, `{"tokens_per_chunk":3}`, `{"reasoning_tokens":2}`} {
			a := s.ask("/v1/chat/completions",
				`{"stream":true,"max_tokens":`+tokens+`,"sim_fault":`+fault+`,`+tools+`,`+hello+`}`)
			var name, args, id, reason string
			calls := 0
			for _, c := range s.chunks(a) {
				if r := c.Choices[0].FinishReason; r != nil {
					reason = *r
				}
				raw, ok := c.Choices[0].Delta["tool_calls"]
				if !ok {
					continue
				}
				calls++
				b, err := json.Marshal(raw)
				require.NoError(t, err)
				var delta []struct {
					ID       string `json:"id"`
					Function struct {
						Name, Arguments string
					} `json:"function"`
				}
				require.NoError(t, json.Unmarshal(b, &delta))
				name += delta[0].Function.Name
				args += delta[0].Function.Arguments
				id += delta[0].ID
			}
			if strings.Contains(fault, "reasoning") && tokens < "3" {
				require.Zero(t, calls, "all is reasoning")
				require.Equal(t, "length", reason)
				continue
			}
			require.Equal(t, "look_up", name, "%s %s", tokens, fault)
			require.True(t, json.Valid([]byte(args)), args)
			require.True(t, strings.HasPrefix(id, "chatcmpl-tool-"))
			require.Equal(t, "tool_calls", reason)
		}
	}
}

func TestStallWithoutEndLastsUntilTheClientLeaves(t *testing.T) {
	s := serve(t, fastConfig())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp, err := s.post(ctx, "/v1/chat/completions",
		`{"stream":true,"max_tokens":6,"sim_fault":{"stall_after":2,"heartbeat":"1ms"},`+hello+`}`)
	require.NoError(t, err)
	defer closeBody(resp)
	r := bufio.NewReader(resp.Body)
	data, heartbeats := 0, 0
	for heartbeats < 5 { // they can only follow one another when the stream stands still
		line, err := r.ReadString('\n')
		require.NoError(t, err)
		switch {
		case strings.HasPrefix(line, "data:"):
			data++
		case strings.HasPrefix(line, ":"):
			heartbeats++
		}
	}
	require.LessOrEqual(t, data, 1+2)
	cancel()
	_, err = io.ReadAll(r)
	require.Error(t, err)
}

func TestRandomFaultsStrikeTheirShare(t *testing.T) {
	cfg := fastConfig()
	cfg.Faults = []RandomFault{{0.2, Fault{Status: 500}}, {0.3, Fault{Status: 503}}}
	require.NoError(t, cfg.Validate())
	count := map[int]int{}
	for n := range uint64(10_000) {
		f := drawFault(cfg.Faults, 1, n)
		count[f.Status]++
		require.Equal(t, f, drawFault(cfg.Faults, 1, n))
	}
	require.InDelta(t, 2000, count[500], 200) // five standard deviations of a binomial
	require.InDelta(t, 3000, count[503], 230)
	require.InDelta(t, 5000, count[0], 250)

	cfg.Faults = []RandomFault{{1, Fault{Status: 500}}}
	s := serve(t, cfg)
	require.Equal(t, 500, s.ask("/v1/chat/completions", `{`+hello+`}`).status)
	require.Equal(t, 200, s.ask("/v1/chat/completions", `{"max_tokens":1,"sim_fault":{},`+hello+`}`).status, "its own fault comes first")
}

func TestServerConfigErrors(t *testing.T) {
	cfg := DefaultServerConfig()
	cfg.Model, cfg.Speed, cfg.QueueFullStatus, cfg.StreamOptions = "", 0, 500, "maybe"
	cfg.Engine.BlockSize = 0
	cfg.FixedTTFT = time.Second
	cfg.Faults = []RandomFault{{0.7, Fault{Status: 99}}, {0.7, Fault{}}}
	_, err := NewServer(cfg)
	for _, want := range []string{
		"Engine: BlockSize is 0", "Model is empty", "Speed is 0", "QueueFullStatus is 500, expected 429 or 503",
		`StreamOptions is "maybe"`, "Faults[0]: status is 99", "add up to 1.4", "FixedTTFT is 1s, expected 0 without FixedGap",
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestEngineStallOverHTTP(t *testing.T) {
	cfg := fastConfig()
	cfg.Speed = 1000
	s := serve(t, cfg)
	require.Equal(t, http.StatusOK, s.ask("/sim/stall?for=1h", "").status)
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := s.post(ctx, "/v1/chat/completions", `{"stream":true,"max_tokens":1,"sim_fault":{"heartbeat":"5ms"},`+hello+`}`)
	require.NoError(t, err)
	defer closeBody(resp)
	line, err := bufio.NewReader(resp.Body).ReadString('\n') // without the stall the token comes in microseconds
	require.NoError(t, err)
	require.Equal(t, ": heartbeat\n", line)
	cancel()
}

func TestFixedGap(t *testing.T) {
	cfg := fastConfig()
	cfg.FixedGap, cfg.FixedTTFT = time.Millisecond, 3*time.Millisecond
	s := serve(t, cfg)
	a := s.ask("/v1/chat/completions", `{"stream":true,"max_tokens":20,`+hello+`}`)
	chunks := s.chunks(a)
	require.Equal(t, 20, texts(chunks))
	truth, _ := s.Truth(chunks[0].ID)
	for i, c := range truth.Chunks[1:21] {
		// Never early: each token has its own due time.
		require.GreaterOrEqual(t, c.SentNS-truth.ReceivedNS, int64((3+i)*1e6))
	}
	f := s.metricFamilies()
	require.Equal(t, 20., f["vllm:generation_tokens_total"].GetMetric()[0].GetCounter().GetValue())
	require.InEpsilon(t, 19e-3, f["vllm:inter_token_latency_seconds"].GetMetric()[0].GetHistogram().GetSampleSum(), 1e-9)
	require.InEpsilon(t, 22e-3, f["vllm:e2e_request_latency_seconds"].GetMetric()[0].GetHistogram().GetSampleSum(), 1e-9)
	require.Zero(t, f["vllm:num_requests_running"].GetMetric()[0].GetGauge().GetValue())
}

func TestSlowReaderDoesNotHoldTheEngine(t *testing.T) {
	cfg := fastConfig()
	cfg.Speed = 10_000
	cfg.Engine.MaxModelLen = 60_000
	s := serve(t, cfg)
	// 50,000 chunks are 15 MB, more than the sockets hold: its writer blocks.
	resp, err := s.post(t.Context(), "/v1/chat/completions", `{"stream":true,"max_tokens":50000,`+hello+`}`)
	require.NoError(t, err)
	for {
		a := s.ask("/v1/chat/completions", `{"stream":true,"max_tokens":2,`+hello+`}`)
		require.Contains(t, a.body, "[DONE]")
		if st, _ := s.Stats(); st.GenerationTokens >= 50_000 {
			break // the engine has made all tokens of a stream that nobody reads
		}
	}
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 1+50_000+1+1, bytes.Count(b, []byte("data: ")))
}

func TestTruthIsBounded(t *testing.T) {
	cfg := fastConfig()
	cfg.KeepTruth = 2
	s := serve(t, cfg)
	ids := make([]string, 3)
	for i := range ids {
		ids[i] = s.chunks(s.ask("/v1/chat/completions", `{"stream":true,"max_tokens":1,`+hello+`}`))[0].ID
	}
	_, ok := s.Truth(ids[0])
	require.False(t, ok)
	_, ok = s.Truth(ids[2])
	require.True(t, ok)
	require.Len(t, s.truths.byID, 2)
	cfg.KeepTruth = 0
	s = serve(t, cfg)
	id := s.chunks(s.ask("/v1/chat/completions", `{"stream":true,"max_tokens":1,`+hello+`}`))[0].ID
	_, ok = s.Truth(id)
	require.False(t, ok)
}

func TestListenAndServeEndsWithItsContext(t *testing.T) {
	s, err := NewServer(DefaultServerConfig())
	require.NoError(t, err)
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	ts := testServer{s, t, "http://" + l.Addr().String()}
	resp, err := ts.post(t.Context(), "/v1/chat/completions", `{"stream":true,"max_tokens":8000,`+hello+`}`)
	require.NoError(t, err)
	cancel()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err, "the stream is cut short, but as HTTP it ends properly")
	require.NoError(t, resp.Body.Close())
	require.NotContains(t, string(b), "[DONE]")
	require.NoError(t, <-ended)
	_, ok := s.Stats()
	require.False(t, ok)
	s.Close()
	rec := httptest.NewRecorder()
	s.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/health", nil))
	require.Equal(t, http.StatusServiceUnavailable, rec.Code)

	s, err = NewServer(DefaultServerConfig())
	require.NoError(t, err)
	defer s.Close()
	err = s.ListenAndServe(t.Context(), "127.0.0.1:99999")
	require.ErrorContains(t, err, "listen on 127.0.0.1:99999")
}

func TestManyClientsAtOnce(t *testing.T) {
	cfg := fastConfig()
	cfg.Engine.NumBlocks, cfg.Engine.MaxModelLen = 64, 512 // tight: requests wait and are preempted
	cfg.Speed = 200
	s := serve(t, cfg)
	var wg sync.WaitGroup
	errs := make(chan error, 60)
	for i := range 60 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			resp, err := s.post(ctx, "/v1/chat/completions", `{"stream":true,"max_tokens":60,`+hello+`}`)
			if err != nil {
				errs <- err
				return
			}
			defer closeBody(resp)
			if i%6 == 0 {
				return // leaves at once
			}
			b, err := io.ReadAll(resp.Body)
			if err == nil && bytes.Count(b, []byte(`"content":" `)) != 59 {
				err = errors.New("tokens are missing: " + string(b))
			}
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	n := 0
	for err := range errs {
		require.NoError(t, err)
		n++
	}
	require.Equal(t, 50, n)
	// Those that left are cancelled, or had got all their tokens before anybody noticed.
	s.Close()
	s.active.Wait()
	require.NoError(t, checkEngine(s.loop.engine))
	require.GreaterOrEqual(t, s.loop.engine.stats.Completed, int64(50))
}
