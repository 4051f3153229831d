package llm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.k6.io/k6/lib"
	"go.k6.io/k6/lib/netext"
	k6types "go.k6.io/k6/lib/types"
	"go.k6.io/k6/metrics"
	"golang.org/x/time/rate"
	"gopkg.in/guregu/null.v3"

	"github.com/safeqps/xk6-safeqps/llm/stream"
	"github.com/safeqps/xk6-safeqps/llm/wire"
)

func TestAWholeAnswer(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		write(w, delta(""), thought("let me see"), delta("Hello"), delta(" world"), finish,
			"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":6,"+
				"\"prompt_tokens_details\":{\"cached_tokens\":4},\"completion_tokens_details\":{\"reasoning_tokens\":3}}}\n\n", done)
	})
	v := newVU(t)
	r := v.must(newClient(s, `tags: {tier: "gold"}, cost: {prompt: 1, completion: 2, cached: 0.5}`) + `
		result = client.chat({messages: [{role: "user", content: "hi"}], max_tokens: 8, class: "short",
			promptTokens: 10, tags: {n: 1}, slo: {ttft: "1m", itl: "1m", tpot: "1m", e2e: "1m"}});`)

	require.Equal(t, true, r["ok"])
	require.Equal(t, int64(200), r["status"])
	require.Nil(t, r["error"])
	require.Equal(t, "Hello world", r["text"])
	require.Equal(t, "let me see", r["reasoning"])
	require.Equal(t, "stop", r["finishReason"])
	require.Equal(t, "r-1", r["requestId"])
	require.Equal(t, "m-1", r["model"])
	require.Equal(t, int64(3), r["chunks"])
	require.Equal(t, map[string]any{
		"promptTokens": int64(11), "completionTokens": int64(6), "cachedTokens": int64(4), "reasoningTokens": int64(3),
		"source": "server",
	}, r["usage"])
	require.Equal(t, true, r["goodput"])
	require.InDelta(t, 1e-6*(7*1+4*0.5+6*2), r["cost"], 1e-15)

	timings := r["timings"].(map[string]any)
	gaps := timings["itl"].([]float64)
	require.Len(t, gaps, 2)
	require.InDelta(t, (gaps[0]+gaps[1])/5, num(timings["tpot"]), 1e-6, "TPOT divides the decode span by tokens, not by chunks")
	require.InDelta(t, num(timings["ttft"])+gaps[0], timings["ttftText"], 1e-6)
	require.GreaterOrEqual(t, num(timings["e2e"])+1e-6, num(timings["ttft"])+gaps[0]+gaps[1])
	require.Nil(t, timings["scheduleDelay"])

	seen := v.seen()
	for name, want := range map[string][]float64{
		"llm_prompt_tokens": {11}, "llm_completion_tokens": {6}, "llm_cached_tokens": {4}, "llm_reasoning_tokens": {3},
		"llm_chunk_tokens": {2}, "llm_prompt_tokens_error": {1}, "llm_requests": {1}, "llm_success": {1},
		"llm_http_5xx": {0}, "llm_goodput": {1}, "llm_in_flight": {1, 0}, "http_reqs": {1}, "http_req_failed": {0},
		"llm_ttft": {num(timings["ttft"])}, "llm_ttft_text": {num(timings["ttftText"])}, "llm_itl": gaps,
		"llm_tpot": {num(timings["tpot"])}, "llm_e2e": {num(timings["e2e"])}, "llm_cost": {num(r["cost"])},
	} {
		require.Equal(t, want, values(seen[name]), name)
	}
	if tpot := num(timings["tpot"]); tpot > 0 { // all chunks in one read leave no span to divide by
		require.InEpsilon(t, 1000/tpot, seen["llm_output_tps"][0].Value, 1e-3)
	}
	require.NotContains(t, seen, "llm_errors")
	require.NotContains(t, seen, "llm_schedule_delay")

	tags := seen["llm_ttft"][0].Tags.Map()
	require.Equal(t, map[string]string{
		"scenario": "s", "tier": "gold", "n": "1", "model": "m", "api": "chat", "class": "short",
	}, tags)
	source, _ := seen["llm_completion_tokens"][0].Tags.Get("source")
	require.Equal(t, "server", source)
	outcome, _ := seen["llm_requests"][0].Tags.Get("outcome")
	require.Equal(t, "ok", outcome)
	require.True(t, seen["llm_itl"][0].Time.Before(seen["llm_itl"][1].Time) || seen["llm_itl"][1].Value == 0,
		"each sample carries the time at which its chunk arrived")

	sent := s.last()
	require.Equal(t, "/v1/chat/completions", sent.path)
	require.JSONEq(t, `{"messages":[{"role":"user","content":"hi"}],"max_tokens":8,"model":"m","stream":true,
		"stream_options":{"include_usage":true}}`, sent.body)
	require.Equal(t, "identity", sent.header.Get("Accept-Encoding"))
	require.Equal(t, "k6-test", sent.header.Get("User-Agent"))
}

// num is a JavaScript number, which may come back as an integer.
func num(v any) float64 {
	f, ok := number(v)
	if !ok {
		panic(fmt.Sprintf("%v is not a number", v))
	}

	return f
}

// TestFailuresAreNamed has a line for each way in which a request fails.
func TestFailuresAreNamed(t *testing.T) {
	t.Parallel()
	refused := closedPort(t)
	for name, tt := range map[string]struct {
		handle  func(http.ResponseWriter, *http.Request)
		client  string
		baseURL string
		kind    string
		status  int64
		text    string
		message string // a part of the error's message
		hasTTFT bool
	}{
		"stream ends without finish reason and without [DONE]": {
			handle: func(w http.ResponseWriter, _ *http.Request) { write(w, delta("a"), delta("b")) },
			kind:   "stream_truncated", status: 200, text: "ab", hasTTFT: true,
		},
		"connection breaks in the middle": {
			handle: func(w http.ResponseWriter, _ *http.Request) { write(w, delta("a")); hangUp(w) },
			kind:   "stream_truncated", status: 200, text: "a", hasTTFT: true,
		},
		"connection breaks before the header": {
			handle: func(w http.ResponseWriter, _ *http.Request) { hangUp(w) }, kind: "connect",
		},
		"200 with an error in place of a stream": {
			handle: func(w http.ResponseWriter, _ *http.Request) {
				write(w, "data: {\"error\":{\"message\":\"queue is full\",\"code\":429}}\n\n", done)
			},
			kind: "stream_error", status: 200, message: "queue is full",
		},
		"error after good chunks, without [DONE]": {
			handle: func(w http.ResponseWriter, _ *http.Request) {
				write(w, delta("a"), "data: {\"error\":{\"message\":\"out of memory\",\"code\":500}}\n\n")
			},
			kind: "stream_error", status: 200, text: "a", hasTTFT: true, message: "out of memory",
		},
		"bytes that are no JSON": {
			handle: func(w http.ResponseWriter, _ *http.Request) { write(w, delta("a"), "data: {]\n\n", done) },
			kind:   "decode", status: 200, text: "a", hasTTFT: true,
		},
		"429": {handle: status(429, `{"error":{"message":"slow down"}}`), kind: "http_429", status: 429, message: "slow down"},
		"404": {handle: status(404, `{"error":{"message":"no such model"}}`), kind: "http_4xx", status: 404},
		"503": {handle: status(503, "<html>gone</html>"), kind: "http_5xx", status: 503},
		"500 for a context that is too long": {
			handle: status(500, `{"error":{"code":500,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}`),
			kind:   "context_length", status: 500,
		},
		"no answer within timeout": {
			handle: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			client: `timeout: 50,`, kind: "timeout", message: "timeout",
		},
		"silence within timeout": {
			handle: func(w http.ResponseWriter, r *http.Request) { write(w, delta("a")); <-r.Context().Done() },
			client: `timeout: 80,`, kind: "timeout", status: 200, text: "a", hasTTFT: true,
		},
		"heartbeats for ever": {
			handle: func(w http.ResponseWriter, r *http.Request) {
				write(w, delta("a"))
				for r.Context().Err() == nil {
					write(w, ": heartbeat\n\n")
				}
			},
			client: `idleTimeout: 60,`, kind: "idle_timeout", status: 200, text: "a", hasTTFT: true, message: "idleTimeout",
		},
		"nobody listens": {baseURL: "http://" + refused, kind: "connect"},
		"no such host":   {baseURL: "http://nobody.invalid", kind: "dns"},
		"no TLS there":   {baseURL: "tls", handle: status(200, "{}"), kind: "tls"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handle := tt.handle
			if handle == nil {
				handle = status(200, "{}")
			}
			s := serve(t, handle)
			url := s.URL
			switch tt.baseURL {
			case "":
			case "tls":
				url = strings.Replace(s.URL, "http://", "https://", 1)
			default:
				url = tt.baseURL
			}
			v := newVU(t)
			r := v.must(fmt.Sprintf(`const client = new llm.Client({baseURL: %q, model: "m", %s slo: {ttft: "1m"}});
				result = `, url, tt.client) + ask)

			require.Equal(t, false, r["ok"])
			failed := r["error"].(map[string]any)
			require.Equal(t, tt.kind, failed["type"], failed["message"])
			require.Contains(t, failed["message"], tt.message)
			require.Equal(t, tt.status, r["status"])
			require.Equal(t, tt.text, r["text"])
			require.Equal(t, false, r["goodput"], "a failed request did not meet its objectives")

			seen := v.seen()
			require.Equal(t, []float64{0}, values(seen["llm_success"]), "it counts against the service")
			require.Equal(t, []float64{0}, values(seen["llm_goodput"]))
			require.Equal(t, []float64{indicator(tt.status >= 500)}, values(seen["llm_http_5xx"]))
			require.Equal(t, []float64{1}, values(seen["llm_errors"]))
			kind, _ := seen["llm_errors"][0].Tags.Get("error_type")
			require.Equal(t, tt.kind, kind)
			require.Equal(t, []float64{1}, values(seen["http_reqs"]))
			require.NotContains(t, seen, "llm_tpot")
			require.NotContains(t, seen, "llm_e2e")
			require.Equal(t, tt.hasTTFT, len(seen["llm_ttft"]) == 1, "a latency that was not seen is absent")
			require.Equal(t, tt.hasTTFT, r["timings"].(map[string]any)["ttft"] != nil)
		})
	}
}

func status(code int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())

	return l.Addr().String()
}

func TestAbsentIsNotZero(t *testing.T) {
	t.Parallel()
	t.Run("usage that nobody reported", func(t *testing.T) {
		t.Parallel()
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			write(w, delta("a"), delta("b"), delta("c"), finish, done)
		})
		v := newVU(t)
		r := v.must(newClient(s, `includeUsage: false, slo: {tpot: "1m"}`) + `result = ` + ask)
		require.Equal(t, map[string]any{
			"promptTokens": nil, "completionTokens": nil, "cachedTokens": nil, "reasoningTokens": nil, "source": "chunks",
		}, r["usage"])
		require.Nil(t, r["timings"].(map[string]any)["tpot"])
		require.Equal(t, false, r["goodput"], "an objective that can not be measured is not met")
		require.NotContains(t, s.last().body, "stream_options")
		seen := v.seen()
		require.NotContains(t, seen, "llm_tpot")
		require.NotContains(t, seen, "llm_prompt_tokens")
		require.NotContains(t, seen, "llm_chunk_tokens")
		require.Equal(t, []float64{3}, values(seen["llm_completion_tokens"]), "not max_tokens, which was 8")
		source, _ := seen["llm_completion_tokens"][0].Tags.Get("source")
		require.Equal(t, "chunks", source)
	})
	t.Run("usage of zeros", func(t *testing.T) {
		t.Parallel()
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			write(w, delta("hello"), delta(" world"), finish, usageOf(0, 0), done)
		})
		v := newVU(t)
		r := v.must(newClient(s, `cost: {prompt: 1, completion: 1}`) + `result = ` + ask)
		require.Equal(t, map[string]any{
			"promptTokens": nil, "completionTokens": nil, "cachedTokens": nil, "reasoningTokens": nil, "source": "chunks",
		}, r["usage"])
		require.Nil(t, r["cost"])
		seen := v.seen()
		require.NotContains(t, seen, "llm_prompt_tokens")
		require.Equal(t, []float64{2}, values(seen["llm_completion_tokens"]))
		counted := newVU(t).must(newClient(s, `tokenizer: "cl100k_base"`) + `result = ` + ask)["usage"].(map[string]any)
		require.Equal(t, int64(2), counted["completionTokens"])
		require.Equal(t, "tokenizer", counted["source"])
		require.NotNil(t, counted["promptTokens"])
	})
	t.Run("one token", func(t *testing.T) {
		t.Parallel()
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) { write(w, delta("a"), finish, usageOf(3, 1), done) })
		v := newVU(t)
		r := v.must(newClient(s, `slo: {tpot: "1m"}`) + `result = ` + ask)
		require.Equal(t, true, r["ok"])
		require.Equal(t, false, r["goodput"])
		seen := v.seen()
		require.NotContains(t, seen, "llm_tpot")
		require.NotContains(t, seen, "llm_itl")
		require.NotContains(t, seen, "llm_output_tps")
		require.Len(t, seen["llm_ttft"], 1)
	})
	t.Run("an answer without output", func(t *testing.T) {
		t.Parallel()
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) { write(w, finish, usageOf(3, 0), done) })
		v := newVU(t)
		r := v.must(newClient(s, `slo: {ttft: "1m"}`) + `result = ` + ask)
		require.Equal(t, true, r["ok"])
		require.Equal(t, false, r["goodput"])
		require.NotContains(t, v.seen(), "llm_ttft")
	})
	t.Run("a tokenizer counts what the server does not", func(t *testing.T) {
		t.Parallel()
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) { write(w, delta("hello"), delta(" world"), finish, done) })
		v := newVU(t)
		r := v.must(newClient(s, `tokenizer: "cl100k_base"`) + `result = ` + ask)
		require.Equal(t, "tokenizer", r["usage"].(map[string]any)["source"])
		require.Equal(t, int64(2), r["usage"].(map[string]any)["completionTokens"])
		require.NotNil(t, r["timings"].(map[string]any)["tpot"])
	})
}

func TestPromptTokensAreThoseThatWereSent(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { write(w, delta("a"), finish, done) })
	partly := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		write(w, delta("a"), finish, "data: {\"choices\":[],\"usage\":{\"completion_tokens\":1}}\n\n", done)
	})
	for call, want := range map[string]any{
		`completions({prompt: "hello"})`:                                                                  int64(1),
		`completions({prompt: ["hello", "hello world"]})`:                                                 int64(3),
		`completions({prompt: [1, 2, 3]})`:                                                                int64(3),
		`completions({prompt: [[1, 2, 3], [4]]})`:                                                         int64(4),
		`completions({prompt: ""})`:                                                                       int64(0),
		`completions({prompt_embeds: "AAAA"})`:                                                            nil,
		`chat({messages: [{role: "user", content: "hello"}]})`:                                            int64(1),
		`chat({messages: [{role: "system", content: "hello"}, {role: "user", content: "hello"}]})`:        int64(2),
		`chat({messages: [{role: "user", content: [{type: "text", text: "hello"}, {type: "n", n: 7}]}]})`: int64(1),
	} {
		for _, server := range []*server{s, partly} {
			r := newVU(t).must(newClient(server, `tokenizer: "cl100k_base"`) + `result = client.` + call)
			require.Equal(t, want, r["usage"].(map[string]any)["promptTokens"], call)
		}
	}
}

// TestTimingsAgreeWithTheSamples: what has no sample is null.
func TestTimingsAgreeWithTheSamples(t *testing.T) {
	t.Parallel()
	wait := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, tt := range map[string]struct {
		handle  func(http.ResponseWriter, *http.Request)
		options string
		request string
	}{
		"whole": {func(w http.ResponseWriter, _ *http.Request) {
			write(w, delta("a"), delta("b"), finish, usageOf(1, 2), done)
		}, "", ""},
		"not streamed":   {status(200, `{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}`), "", "stream: false"},
		"an error event": {func(w http.ResponseWriter, _ *http.Request) { write(w, "data: {\"error\":\"x\"}\n\n") }, "", ""},
		"error after text": {func(w http.ResponseWriter, _ *http.Request) {
			write(w, delta("a"), delta("b"), "data: {\"error\":\"x\"}\n\n")
		}, "", ""},
		"truncated":         {func(w http.ResponseWriter, _ *http.Request) { write(w, delta("a"), delta("b")) }, "", ""},
		"idle_timeout":      {func(w http.ResponseWriter, r *http.Request) { write(w, ": hi\n\n"); wait(w, r) }, "idleTimeout: 30", ""},
		"timeout":           {func(w http.ResponseWriter, r *http.Request) { write(w, delta("a"), delta("b")); wait(w, r) }, "timeout: 60", ""},
		"429":               {status(429, "slow down"), "", ""},
		"left in prefill":   {func(w http.ResponseWriter, r *http.Request) { write(w, ": hi\n\n"); wait(w, r) }, "", "abortAfter: {ms: 40}"},
		"left in decode":    {func(w http.ResponseWriter, r *http.Request) { write(w, delta("a"), delta("b")); wait(w, r) }, "", "abortAfter: {tokens: 2}"},
		"left in the queue": {wait, "", "abortAfter: {ms: 40}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVU(t)
			r := v.must(newClient(serve(t, tt.handle), `tokenizer: "cl100k_base",`+tt.options) +
				`result = client.chat({messages: [], dueTime: Date.now(), ` + tt.request + `})`)
			timings, seen := r["timings"].(map[string]any), v.seen()
			for field, metric := range map[string]string{
				"ttft": "llm_ttft", "ttftText": "llm_ttft_text", "tpot": "llm_tpot", "e2e": "llm_e2e", "scheduleDelay": "llm_schedule_delay",
			} {
				if timings[field] == nil {
					require.Empty(t, seen[metric], field)
				} else {
					require.Equal(t, []float64{num(timings[field])}, values(seen[metric]), field)
				}
			}
			require.Equal(t, timings["e2e"] != nil, r["ok"])
			require.Len(t, timings["itl"], len(seen["llm_itl"]))
		})
	}
}

// TestALimitThatWasBrokenBeforeTheEnd counts against the service, and one that was kept until the user left or the run was over
// says nothing.
func TestALimitThatWasBrokenBeforeTheEnd(t *testing.T) {
	t.Parallel()
	sent := time.Now()
	at := func(after ...time.Duration) []time.Duration { return after }
	const ms = time.Millisecond
	for name, tt := range map[string]struct {
		chunks []time.Duration // since the send
		left   time.Duration
		limit  string // of 50 ms
		want   any
	}{
		"ttft kept":                       {at(40 * ms), 200 * ms, "ttft", nil},
		"ttft broken by a chunk":          {at(60 * ms), 61 * ms, "ttft", false},
		"ttft broken by silence":          {nil, 51 * ms, "ttft", false},
		"ttft not broken yet":             {nil, 50 * ms, "ttft", nil},
		"e2e broken in the queue":         {nil, 200 * ms, "e2e", false},
		"e2e broken while tokens came":    {at(10*ms, 20*ms), 51 * ms, "e2e", false},
		"e2e not broken yet":              {at(10*ms, 20*ms), 50 * ms, "e2e", nil},
		"itl broken by a gap":             {at(10*ms, 160*ms, 161*ms), 165 * ms, "itl", false},
		"itl broken by silence":           {at(10*ms, 20*ms), 75 * ms, "itl", false},
		"itl kept":                        {at(10*ms, 60*ms), 70 * ms, "itl", nil},
		"itl, and nothing came":           {nil, 500 * ms, "itl", nil},
		"tpot, which the rest could mend": {at(10*ms, 400*ms), 401 * ms, "tpot", nil},
	} {
		limit := 50 * ms
		s := map[string]slo{"ttft": {ttft: &limit}, "e2e": {e2e: &limit}, "itl": {itl: &limit}, "tpot": {tpot: &limit}}[tt.limit]
		for why, ended := range map[string]Exchange{
			"the user left":     {Outcome: OutcomeCancelled},
			"the run was over":  {Outcome: OutcomeFailed, ErrorType: errorInterrupted},
			"the server failed": {Outcome: OutcomeFailed, ErrorType: errorTimeout},
		} {
			ex, want := ended, tt.want
			ex.End, ex.Timeline = sent.Add(tt.left), timelineOf(t, sent, tt.chunks)
			if ex.Outcome == OutcomeFailed && ex.ErrorType != errorInterrupted {
				want = false // it never met its objectives
			}
			ex.judge(s)
			require.Equal(t, want, pointee(ex.Goodput), "%s: %s", name, why)
		}
	}
}

// timelineOf reads an answer whose chunks come at the given times.
func timelineOf(t *testing.T, sent time.Time, chunks []time.Duration) stream.Timeline {
	t.Helper()
	tl := stream.Timeline{Sent: sent}
	now := sent
	for _, at := range chunks {
		now = sent.Add(at)
		require.NoError(t, stream.Read(strings.NewReader(delta("a")), wire.NewDecoder(wire.Chat), &tl, stream.Options{Now: func() time.Time { return now }}))
	}

	return tl
}

func TestUnaryRequest(t *testing.T) {
	t.Parallel()
	s := serve(t, status(200, `{"id":"x","model":"m-1","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},
		"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":9}}`))
	v := newVU(t)
	r := v.must(newClient(s, "") + `result = client.chat({messages: [{role: "user", content: "hi"}], stream: false});`)
	require.Equal(t, true, r["ok"], r["error"])
	require.Equal(t, "Hello", r["text"])
	require.Equal(t, int64(9), r["usage"].(map[string]any)["completionTokens"])
	require.NotNil(t, r["timings"].(map[string]any)["e2e"])
	seen := v.seen()
	require.Len(t, seen["llm_e2e"], 1)
	for _, absent := range []string{"llm_ttft", "llm_itl", "llm_tpot", "llm_output_tps", "llm_chunk_tokens"} {
		require.NotContains(t, seen, absent)
	}
	require.NotContains(t, s.last().body, "stream_options")
	require.Contains(t, s.last().body, `"stream":false`)
}

func TestAnswerThatIsNotStreamedThoughAStreamWasAskedFor(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"application/json", "text/plain"} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}]}`)
		})
		v := newVU(t)
		r := v.must(newClient(s, "") + `result = ` + ask)
		require.Equal(t, true, r["ok"], r["error"])
		require.Equal(t, "Hello", r["text"])
		require.NotContains(t, v.seen(), "llm_ttft")
	}
}

func TestOneConnectionForAHundredRequests(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		// The handler's return writes the terminal chunk of the transfer, after [DONE] has left in a write of its own.
		write(w, delta("a"), delta("b"), finish, done)
	})
	v := newVU(t)
	r := v.must(newClient(s, "") + `let ok = 0; for (let i = 0; i < 100; i++) { ok += ` + ask + `.ok ? 1 : 0 }; result = {ok};`)
	require.Equal(t, int64(100), r["ok"])
	require.Equal(t, int64(1), s.connections.Load())
	require.Equal(t, 1, countAbove(v.seen()["http_req_connecting"], 0))
}

func countAbove(samples []metrics.Sample, limit float64) int {
	n := 0
	for _, s := range samples {
		if s.Value > limit {
			n++
		}
	}

	return n
}

func TestAServerThatKeepsTheConnectionOpenDoesNotHoldTheAnswer(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		write(w, delta("a"), delta("b"), finish, usageOf(1, 2), done)
		<-r.Context().Done()
	})
	v := newVU(t)
	r := v.must(newClient(s, "") + `result = ` + ask)
	require.Equal(t, true, r["ok"], r["error"])
	timings := r["timings"].(map[string]any)
	require.Less(t, num(timings["e2e"]), float64(drainTime.Milliseconds()), "E2E ends with the answer, not with the drain")
}

func TestAUserWhoLeaves(t *testing.T) {
	t.Parallel()
	t.Run("after two tokens", func(t *testing.T) {
		t.Parallel()
		left := make(chan struct{})
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			write(w, delta("a"), delta("b"))
			<-r.Context().Done()
			close(left)
		})
		v := newVU(t)
		r := v.must(newClient(s, `slo: {ttft: "1m"}`) +
			`result = client.chat({messages: [{role: "user", content: "x"}], abortAfter: {tokens: 2}});`)
		require.Equal(t, false, r["ok"])
		require.Equal(t, "cancelled", r["outcome"])
		require.Equal(t, "decode", r["cancelPhase"])
		require.Nil(t, r["error"])
		require.Equal(t, "ab", r["text"])
		require.Equal(t, int64(2), r["chunks"])
		<-left // the server saw it
		seen := v.seen()
		require.NotContains(t, seen, "llm_success", "neither a success nor a failure of the service")
		require.NotContains(t, seen, "llm_errors")
		require.NotContains(t, seen, "llm_goodput")
		outcome, _ := seen["llm_requests"][0].Tags.Get("outcome")
		require.Equal(t, "cancelled", outcome)
		require.Len(t, seen["llm_ttft"], 1)
	})
	for phase, handle := range map[string]func(http.ResponseWriter, *http.Request){
		"queued":  func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"prefill": func(w http.ResponseWriter, r *http.Request) { write(w, ": here\n\n"); <-r.Context().Done() },
		"decode":  func(w http.ResponseWriter, r *http.Request) { write(w, delta("a")); <-r.Context().Done() },
	} {
		t.Run("out of patience while "+phase, func(t *testing.T) {
			t.Parallel()
			s := serve(t, handle)
			v := newVU(t)
			r := v.must(newClient(s, `slo: {ttft: 1}`) +
				`result = client.chat({messages: [{role: "user", content: "x"}], abortAfter: {ms: 60}});`)
			require.Equal(t, "cancelled", r["outcome"])
			require.Equal(t, phase, r["cancelPhase"])
			if phase != "decode" {
				require.Equal(t, false, r["goodput"], "it had broken its objective by then")
			}
			require.Equal(t, []float64{0}, values(v.seen()["http_req_failed"]), "no failure of the service")
		})
	}
}

func TestAnInterruptedStreamIsRecorded(t *testing.T) {
	t.Parallel()
	under := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		write(w, delta("a"), delta("b"))
		close(under)
		<-r.Context().Done()
	})
	v := newVU(t)
	go func() {
		<-under
		v.rt.CancelContext() // what k6 does once gracefulStop is over
	}()
	_, err := v.run(newClient(s, "slo: {ttft: '1h', e2e: '1h'}") + `result = ` + ask)
	require.NoError(t, err)
	seen := v.seen()
	kind, _ := seen["llm_errors"][0].Tags.Get("error_type")
	require.Equal(t, "interrupted", kind)
	require.NotContains(t, seen, "llm_success", "whether it would have succeeded, nobody knows")
	require.NotContains(t, seen, "llm_goodput", "it had kept its limits up to then")
	require.Equal(t, []float64{1}, values(seen["http_reqs"]), "k6's own metrics of it are kept too")
	require.Equal(t, []float64{1, 0}, values(seen["llm_in_flight"]))
}

func TestAsync(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { write(w, delta("a"), finish, done) })
	v := newVU(t)
	r := v.must(newClient(s, "") + `
		const answers = await Promise.all([1, 2, 3].map((n) => client.asyncChat({messages: [{role: "user", content: "q" + n}]})));
		const completed = await client.asyncCompletions({prompt: "x"});
		result = {texts: answers.map((a) => a.text).join(","), completed: completed.ok};`)
	require.Equal(t, "a,a,a", r["texts"])
	require.Equal(t, []float64{1, 1, 1, 1}, values(v.seen()["llm_requests"]))
	require.Equal(t, "/v1/completions", s.last().path)
}

func TestCompletions(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		write(w, "data: {\"choices\":[{\"index\":0,\"text\":\"one\"}]}\n\n",
			"data: {\"choices\":[{\"index\":0,\"text\":\" two\",\"finish_reason\":\"length\"}]}\n\n", usageOf(2, 2), done)
	})
	v := newVU(t)
	r := v.must(newClient(s, `api: "completions"`) + `result = client.chat({prompt: [1, 2, 3]});`)
	require.Equal(t, "one two", r["text"])
	require.Equal(t, "length", r["finishReason"])
	require.JSONEq(t, `{"prompt":[1,2,3],"model":"m","stream":true,"stream_options":{"include_usage":true}}`, s.last().body)
	api, _ := v.seen()["llm_ttft"][0].Tags.Get("api")
	require.Equal(t, "completions", api)
}

func TestDueTimeGivesScheduleDelay(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { write(w, delta("a"), finish, done) })
	v := newVU(t)
	before := time.Now()
	r := v.must(newClient(s, "") +
		`result = client.chat({messages: [{role: "user", content: "x"}], dueTime: Date.now() - 250, row: 7});`)
	spent := time.Since(before)
	delay := num(r["timings"].(map[string]any)["scheduleDelay"])
	require.GreaterOrEqual(t, delay, 250.0)
	require.Less(t, delay, 251.0+metrics.D(spent))
	var ex *Exchange
	for _, c := range v.drain() {
		if e, ok := c.(*Exchange); ok {
			ex = e
		}
	}
	require.Equal(t, int64(7), ex.Row)
	require.NotContains(t, s.last().body, "row")
	require.NotContains(t, s.last().body, "dueTime")
}

func TestThrow(t *testing.T) {
	t.Parallel()
	s := serve(t, status(500, "no"))
	_, err := newVU(t).run(newClient(s, "throw: true") + ask)
	require.ErrorContains(t, err, "llm request failed (http_5xx)")
	_, err = newVU(t).run(newClient(s, "") + `client.chat({messages: [{role: "user", content: "x"}], throw: true});`)
	require.ErrorContains(t, err, "llm request failed (http_5xx)")
	v := newVU(t)
	v.state.Options.Throw = null.BoolFrom(true)
	_, err = v.run(newClient(s, "") + `await client.asyncChat({messages: [{role: "user", content: "x"}]});`)
	require.ErrorContains(t, err, "llm request failed (http_5xx)")
	require.Len(t, v.seen()["llm_errors"], 1, "it is counted all the same")
}

// TestAThrownFailureCanBeRead the same way, however it was thrown.
func TestAThrownFailureCanBeRead(t *testing.T) {
	t.Parallel()
	s := serve(t, status(429, "slow down"))
	for name, call := range map[string]string{
		"chat": ask, "asyncChat": "await " + strings.Replace(ask, "client.chat", "client.asyncChat", 1), "a session": `new llm.Session(client).chat("hi")`,
	} {
		r := newVU(t).must(newClient(s, "throw: true") + `try { ` + call + `; result = {}; } catch (e) {
			result = {error: e instanceof Error, name: e.name, type: e.type, kind: typeof e.type, message: e.message, status: e.status, text: String(e)};
		}`)
		require.Equal(t, map[string]any{
			"error": true, "name": "Error", "type": "http_429", "kind": "string", "status": int64(429),
			"message": "llm request failed (http_429): http_429 (HTTP 429): slow down",
			"text":    "Error: llm request failed (http_429): http_429 (HTTP 429): slow down",
		}, r, name)
	}
}

func TestClassesAreClasses(t *testing.T) {
	t.Parallel()
	r := newVU(t).must(`const client = new llm.Client({baseURL: "http://x"}), session = new llm.Session(client);
		class Mine extends llm.Client {}
		result = {same: llm.Client === llm.Client && llm.Client === named.Client && llm.Session === llm.Session && llm.image === llm.image,
			client: client instanceof llm.Client, session: session instanceof llm.Session, neither: session instanceof llm.Client,
			mine: new Mine({baseURL: "http://x"}) instanceof llm.Client, name: client.constructor.name}`)
	require.Equal(t, map[string]any{"same": true, "client": true, "session": true, "neither": false, "mine": true, "name": "Client"}, r)
	_, err := newVU(t).run(`llm.Client({baseURL: "http://x"})`)
	require.EqualError(t, err, "TypeError: llm.Client is a class: use new llm.Client({…})")
	_, err = newVU(t).run(`llm.Session(new llm.Client({baseURL: "http://x"}))`)
	require.EqualError(t, err, "TypeError: llm.Session is a class: use new llm.Session(client, {…})")
}

// TestWhatAnswersIsNoHTTP: a port of another service is no connection that broke.
func TestWhatAnswersIsNoHTTP(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"SSH-2.0-OpenSSH_9.6\r\n", "HTTP/1.1 abc\r\n\r\n", "220 mail\r\n", "HTTP/1.1 200 OK\r\nno header\r\n\r\n"} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, text)
				_ = conn.Close()
			}
		})
		kind, message, status := failedWith(t, s, "")
		require.Equal(t, "decode", kind, message)
		require.Contains(t, message, "the answer is not HTTP: malformed ")
		require.Zero(t, status)
	}
}

// A server that speaks first, as SSH's and mail's do, may be heard before the request has gone out: Go's transport then says so
// in words of its own.
func TestAServerThatSpeaksFirstIsNoHTTP(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "SSH-2.0-OpenSSH_9.6\r\n")
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
	}()
	r := newVU(t).must(`result = new llm.Client({baseURL: "http://` + listener.Addr().String() + `", timeout: "5s"}).chat({messages: []})`)
	require.Equal(t, "decode", r["error"].(map[string]any)["type"], r["error"])
	require.NoError(t, listener.Close())
	<-done
	require.Equal(t, failure{"decode", "the answer is not HTTP: the server spoke before it was asked"},
		classify(errors.New("net/http: HTTP/1.x transport connection broken: readLoopPeekFailLocked: %!w(<nil>)"), false))
}

func TestWhatK6BlocksSaysSo(t *testing.T) {
	t.Parallel()
	v := newVU(t)
	dialer := netext.NewDialer(net.Dialer{}, nil)
	network, err := k6types.NewNullHostnameTrie([]string{"*.blocked.test"})
	require.NoError(t, err)
	dialer.BlockedHostnames = network.Trie
	_, loopback, err := net.ParseCIDR("127.0.0.0/8")
	require.NoError(t, err)
	dialer.Blacklist = []*lib.IPNet{{IPNet: *loopback}}
	v.state.Transport = &http.Transport{DialContext: dialer.DialContext}
	for url, want := range map[string]string{
		"http://a.blocked.test": "hostname (a.blocked.test) is in a blocked pattern (*.blocked.test)",
		"http://127.0.0.1:9":    "IP (127.0.0.1) is in a blacklisted range (127.0.0.0/8)",
	} {
		r := v.must(`result = new llm.Client({baseURL: "` + url + `"}).chat({messages: []})`)
		require.Equal(t, map[string]any{"type": "connect", "message": want}, r["error"])
	}
}

func TestTheKeyIsNowhere(t *testing.T) {
	t.Parallel()
	const key = "sk-very-secret-1234"
	s := serve(t, status(401, `{"error":{"message":"Incorrect API key provided: `+key+`"}}`))
	v := newVU(t)
	v.state.Options.HTTPDebug = null.StringFrom("full")
	v.state.Options.SystemTags = metrics.NewSystemTagSet(metrics.TagURL, metrics.TagName, metrics.TagError)
	r := v.must(newClient(s, `apiKey: "`+key+`", headers: {"X-Api-Key": "`+key+`"}`) + `result = ` + ask)
	require.Equal(t, "Bearer "+key, s.last().header.Get("Authorization"))
	require.Contains(t, fmt.Sprint(r["error"]), "[redacted]")

	var everything strings.Builder
	fmt.Fprint(&everything, r)
	for _, entry := range v.log.AllEntries() {
		fmt.Fprintln(&everything, entry.Message, entry.Data)
	}
	for _, container := range v.drain() {
		for _, sample := range container.GetSamples() {
			fmt.Fprintln(&everything, sample.Tags.Map(), sample.Metadata)
		}
		if ex, ok := container.(*Exchange); ok {
			fmt.Fprintln(&everything, ex.ErrorText)
		}
	}
	require.Contains(t, everything.String(), "POST /v1/chat/completions", "the debug output is there")
	require.NotContains(t, everything.String(), key)
}

// TestNoPartOfAKeyIsLeft: neither of a key in a header of any service's, nor of one at which an error's text is cut.
func TestNoPartOfAKeyIsLeft(t *testing.T) {
	t.Parallel()
	const key = "Qz7-" + "0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789"
	for name, options := range map[string]string{
		"apiKey":                    `apiKey: KEY`,
		"Authorization":             `headers: {Authorization: "Bearer " + KEY}`,
		"Authorization, of its own": `headers: {authorization: "Token " + KEY}`,
		"x-goog-api-key":            `headers: {"x-goog-api-key": KEY}`,
		"Ocp-Apim-Subscription-Key": `headers: {"Ocp-Apim-Subscription-Key": KEY}`,
		"X-Auth-Token":              `headers: {"X-Auth-Token": KEY}`,
		"CF-Access-Client-Secret":   `headers: {"CF-Access-Client-Secret": KEY}`,
		"a cookie":                  `headers: {Cookie: "a=b; session=" + KEY}`,
		"a bearer token by value":   `headers: {"X-Upstream": "Bearer " + KEY}`,
	} {
		options = strings.ReplaceAll(options, "KEY", strconv.Quote(key))
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			padded := strings.Repeat("x", 460) + " " + key
			for kind, handle := range map[string]func(http.ResponseWriter, *http.Request){
				"401":    status(401, `{"error":{"message":"`+padded+`"}}`),
				"a page": status(403, "<html><title>"+padded+"</title></html>"),
				"a text": status(500, padded),
				"an excerpt": func(w http.ResponseWriter, _ *http.Request) {
					write(w, "data: not JSON "+strings.Repeat("x", 90)+key+"\n\n")
				},
				"a stream": func(w http.ResponseWriter, _ *http.Request) {
					write(w, `data: {"error":{"message":"`+padded+`"}}`+"\n\n")
				},
				"a body": func(w http.ResponseWriter, _ *http.Request) {
					write(w, `{"choices":"`+strings.Repeat("x", 90)+key+`"}`)
				},
				"no redirect": func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Location", "/"+strings.Repeat("x", 180)+key)
					w.WriteHeader(http.StatusTemporaryRedirect)
				},
				"bad target": func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Location", "http://[::1"+strings.Repeat("x", 150)+key)
					w.WriteHeader(http.StatusTemporaryRedirect)
				},
				"no HTTP": func(w http.ResponseWriter, _ *http.Request) {
					conn, _, err := w.(http.Hijacker).Hijack()
					if err == nil {
						_, _ = io.WriteString(conn, key+"\r\n\r\n")
						_ = conn.Close()
					}
				},
			} {
				v := newVU(t)
				v.state.Options.SystemTags = metrics.NewSystemTagSet(metrics.TagURL, metrics.TagName, metrics.TagError)
				r := v.must(newClient(serve(t, handle), options) + "result = " + ask)
				require.Equal(t, false, r["ok"], kind)
				require.NotContains(t, fmt.Sprint(r), "Qz7", kind)
				for _, entry := range v.log.AllEntries() {
					require.NotContains(t, entry.Message, "Qz7", kind)
				}
				if kind == "no redirect" || kind == "bad target" || kind == "no HTTP" {
					continue // k6's own tags name, url and error hold the address that it was sent to, and what no HTTP client understood
				}
				for _, container := range v.drain() {
					for _, sample := range container.GetSamples() {
						require.NotContains(t, fmt.Sprint(sample.Tags.Map(), sample.Metadata), "Qz7", kind)
					}
				}
			}
		})
	}

	t.Run("what is no credential is left", func(t *testing.T) {
		t.Parallel()
		v := newVU(t)
		r := v.must(newClient(serve(t, status(400, "the tenant production-7 has no model llama-3")),
			`headers: {"X-Tenant": "production-7", "X-Model": "llama-3"}`) + "result = " + ask)
		require.Contains(t, fmt.Sprint(r["error"]), "the tenant production-7 has no model llama-3")
	})
}

func TestAKeyThatIsQuotedAsAnIDIsRedacted(t *testing.T) {
	t.Parallel()
	const key = "sk-very-secret-1234"
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		write(w, `data: {"id":"x-`+key+`","model":"`+key+`","choices":[{"index":0,"delta":{"content":"a"}}]}`+"\n\n", finish, done)
	})
	v := newVU(t)
	r := v.must(newClient(s, `apiKey: "`+key+`"`) + `result = ` + ask)
	require.Equal(t, "x-[redacted]", r["requestId"])
	require.Equal(t, "[redacted]", r["model"])
	for _, c := range v.drain() {
		if ex, ok := c.(*Exchange); ok {
			require.NotContains(t, ex.Message.ID+ex.Message.Model, key)
		}
	}
}

func TestTheKeyDoesNotFollowARedirectElsewhere(t *testing.T) {
	t.Parallel()
	elsewhere := serve(t, func(w http.ResponseWriter, _ *http.Request) { write(w, delta("a"), finish, done) })
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+"/moved", http.StatusTemporaryRedirect)
	})
	v := newVU(t)
	r := v.must(newClient(s, `apiKey: "sk-secret"`) + `result = ` + ask)
	require.Equal(t, true, r["ok"], r["error"])
	require.Equal(t, "a", r["text"])
	require.Empty(t, elsewhere.last().header.Get("Authorization"))
	require.Contains(t, elsewhere.last().body, `"content":"hi"`)
}

func TestK6OptionsAreHonoured(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Set-Cookie", "session=42")
		write(w, delta("a"), finish, done)
	})
	v := newVU(t)
	v.must(newClient(s, `headers: {"X-Tenant": "a"}`) + ask + "; result = " + ask)
	require.Equal(t, "session=42", s.last().header.Get("Cookie"))
	require.Equal(t, "a", s.last().header.Get("X-Tenant"))
}

// TestAnRPSLimitInventsNoFailures: a turn that comes after the iteration's end is waited for, and a request that never had one
// is none. The limiter's own Wait refuses at once, and the VU would spin.
func TestAnRPSLimitInventsNoFailures(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { write(w, delta("a"), finish, done) })
	for name, call := range map[string]string{
		"chat":      ask,
		"asyncChat": "await " + strings.Replace(ask, "client.chat", "client.asyncChat", 1),
		"a session": `new llm.Session(client).chat("hi")`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVU(t)
			v.state.RPSLimit = rate.NewLimiter(rate.Every(time.Hour), 1)
			var sends atomic.Int64
			ctx, cancel := context.WithTimeout(WithSends(context.Background(), &sends), 150*time.Millisecond)
			defer cancel()
			v.rt.VU.CtxField = ctx
			_, err := v.run(newClient(s, "") + call + ";" + call)
			require.ErrorContains(t, err, "the iteration ended before the request was sent")
			require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded, "it was waited for as long as the iteration lasted")
			require.EqualValues(t, 1, sends.Load())
			seen := v.seen()
			require.Equal(t, []float64{1}, values(seen["llm_requests"]))
			require.Equal(t, []float64{1}, values(seen["llm_success"]))
			require.Empty(t, seen["llm_errors"])
			require.Equal(t, []float64{1, 0}, values(seen["llm_in_flight"]))
			require.Len(t, v.log.AllEntries(), 1)
			require.Contains(t, v.log.LastEntry().Message, "k6's option rps")
		})
	}

	t.Run("a retry that has no turn leaves the first attempt's answer", func(t *testing.T) {
		t.Parallel()
		v := newVU(t)
		v.state.RPSLimit = rate.NewLimiter(rate.Every(time.Hour), 1)
		ctx, cancel := context.WithTimeout(context.Background(), 150*time.Millisecond)
		defer cancel()
		v.rt.VU.CtxField = ctx
		r := v.must(newClient(serve(t, status(500, "no")), `retry: {max: 1, budget: 1, backoff: 1}`) + "result = " + ask)
		require.Equal(t, "http_5xx", r["error"].(map[string]any)["type"])
		require.EqualValues(t, 1, r["attempts"])
		require.Empty(t, v.seen()["llm_retries"])
	})

	t.Run("a turn that comes is waited for", func(t *testing.T) {
		t.Parallel()
		v := newVU(t)
		v.state.RPSLimit = rate.NewLimiter(rate.Every(20*time.Millisecond), 1)
		v.must(newClient(s, "") + ask + ";" + ask + "; result = " + ask)
		require.Equal(t, []float64{1, 1, 1}, values(v.seen()["llm_requests"]))
		require.Empty(t, v.log.AllEntries())
	})
}

func TestCookiesAndTransportComeFromTheVU(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { write(w, delta("a"), finish, done) })
	v := newVU(t)
	v.state.Transport = roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("blocked by the test") })
	r := v.must(newClient(s, "") + `result = ` + ask)
	require.Contains(t, fmt.Sprint(r["error"]), "blocked by the test")
	require.Empty(t, s.requests)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestWrongUse holds the texts that a user sees.
func TestWrongUse(t *testing.T) {
	t.Parallel()
	for options, want := range map[string]string{
		`undefined`:               `llm.Client: got nothing, expected an object of options such as {baseURL: "http://127.0.0.1:8000/v1", model: "m"}`,
		`{}`:                      `llm.Client: option "baseURL": got nothing, expected an http or https URL such as "http://127.0.0.1:8000/v1"`,
		`{baseURL: 7}`:            `llm.Client: option "baseURL": got 7, expected a string`,
		`{baseURL: "localhost"}`:  `llm.Client: option "baseURL": got "localhost", expected an http or https URL such as "http://127.0.0.1:8000/v1"`,
		`{baseURL: "ftp://x/v1"}`: `llm.Client: option "baseURL": got "ftp://x/v1", expected an http or https URL such as "http://127.0.0.1:8000/v1"`,
		`{baseURL: "http://me:pw@x/v1"}`: `llm.Client: option "baseURL": got a URL with a user or password in it, ` +
			`expected credentials in the option apiKey or headers, where they stay out of tags and logs`,
		`{baseURL: "http://x", baseUrl: "http://x"}`: `llm.Client: unknown option "baseUrl", expected one of: baseURL, apiKey, model, ` +
			`headers, timeout, idleTimeout, api, tokenizer, slo, cost, tags, itlSampling, includeUsage, retry, seed, throw`,
		`{baseURL: "http://:8000/v1"}`: `llm.Client: option "baseURL": got "http://:8000/v1", expected an http or https URL such as`,
		`{baseURL: "http://x/v1/chat/completions"}`: `llm.Client: option "baseURL": got "http://x/v1/chat/completions", expected the base of the API, ` +
			`"http://x/v1": the client adds /chat/completions`,
		`{baseURL: "http://x/a/completions/"}`:             `expected the base of the API, "http://x/a": the client adds /completions`,
		`{baseURL: "http://x/v1/messages"}`:                `expected the base of the API, "http://x/v1": the client adds /messages`,
		`{baseURL: "http://x/v1/responses"}`:               `expected the base of the API, "http://x/v1": the client adds /responses`,
		`{baseURL: "http://x/embeddings"}`:                 `expected the base of the API, "http://x": the client adds /embeddings`,
		`{baseURL: "http://x", api: ""}`:                   `llm.Client: option "api": unknown API "": expected one of chat, completions, responses, messages`,
		`{baseURL: "http://x", tokenizer: ""}`:             `llm.Client: option "tokenizer": unknown tokenizer ""`,
		`{baseURL: "http://x", timeout: 18446744073710}`:   `llm.Client: option "timeout": got 18446744073710, expected a time above zero`,
		`{baseURL: "http://x", timeout: 1e300}`:            `llm.Client: option "timeout": got 1e+300, expected a time above zero`,
		`{baseURL: "http://x", timeout: "18446744073710"}`: `llm.Client: option "timeout": got "18446744073710", expected a time above zero`,
		`{baseURL: "http://x", timeout: "213504d"}`:        `llm.Client: option "timeout": got "213504d", expected a time above zero`,
		`{baseURL: "http://x", timeout: "106751d24h"}`:     `llm.Client: option "timeout": got "106751d24h", expected a time above zero`,
		`{baseURL: "http://x", slo: {e2e: "99999999h"}}`:   `llm.Client: slo: option "e2e": got "99999999h", expected a time above zero`,
		`{baseURL: "http://x:99999"}`:                      `llm.Client: option "baseURL": got "http://x:99999", expected a port from 1 to 65535`,
		`{baseURL: "http://x", apiKey: "a\nb"}`:            `llm.Client: option "apiKey": got characters that no header can carry`,
		`{baseURL: "http://x", headers: {"a b": "c"}}`:     `llm.Client: option "headers": got the name "a b"`,
		`{baseURL: "http://x", headers: {Host: "c"}}`:      `llm.Client: option "headers": got the name "Host"`,
		`{baseURL: "http://x", timeout: "soon"}`:           `llm.Client: option "timeout": got "soon", expected a time above zero: milliseconds as a number, or a string such as "30s"`,
		`{baseURL: "http://x", timeout: -1}`:               `llm.Client: option "timeout": got -1, expected a time above zero: milliseconds as a number, or a string such as "30s"`,
		`{baseURL: "http://x", idleTimeout: {}}`:           `llm.Client: option "idleTimeout": got an object, expected a time above zero: milliseconds as a number, or a string such as "30s"`,
		`{baseURL: "http://x", itlSampling: 2}`:            `llm.Client: option "itlSampling": got 2, expected a share from 0 (no ITL samples) to 1 (all)`,
		`{baseURL: "http://x", slo: {p99: 1}}`:             `llm.Client: slo: unknown option "p99", expected one of: ttft, tpot, e2e, itl`,
		`{baseURL: "http://x", tags: {a: {}}}`:             `llm.Client: option "tags.a": got an object, expected a string`,
		`{baseURL: "http://x", cost: {prompt: -1}}`:        `llm.Client: cost: option "prompt": got -1, expected currency units for a million tokens, 0 to 1e9`,
	} {
		_, err := newVU(t).run("new llm.Client(" + options + ")")
		require.ErrorContains(t, err, want)
	}
	for request, want := range map[string]string{
		`undefined`:                               `llm request: got nothing, expected an object: the provider's request body`,
		`{messages: [], abortAfter: {}}`:          `llm request: option "abortAfter": got an object, expected exactly one of "tokens" and "ms"`,
		`{messages: [], abortAfter: {tokens: 0}}`: `llm request: abortAfter: option "tokens": got 0, expected a whole number of tokens, 1 or more`,
		`{messages: [], stream: false, abortAfter: {tokens: 2}}`: `llm request: option "abortAfter": got tokens in a request that is not streamed, ` +
			`expected an object such as {"ms": 1500}: its tokens all come at once`,
		`{messages: [], dueTime: 5}`:           `llm request: option "dueTime": got 5, expected a point in time: milliseconds since 1970, as Date.now() gives them`,
		`{messages: [], class: 5}`:             `llm request: option "class": got 5, expected a string`,
		`{prompt: "x"}`:                        `messages`,
		`{messages: [], onToolCall: () => ""}`: `llm request: option "onToolCall": got a function, expected it in the request of session.chat (llm.Session): onToolCall and maxRounds are options of Session.chat`,
		`{messages: [], maxRounds: 2}`:         `llm request: option "maxRounds": got 2, expected it in the request of session.chat (llm.Session)`,
		`{messages: [], slo: {x: 1}}`:          `llm request: slo: unknown option "x", expected one of: ttft, tpot, e2e, itl`,
	} {
		_, err := newVU(t).run(`new llm.Client({baseURL: "http://127.0.0.1:1"}).chat(` + request + `)`)
		require.ErrorContains(t, err, want)
	}
	v := newVU(t)
	_, err := v.rt.VU.RuntimeField.RunString(`new llm.Client({baseURL: "http://x"}).chat({messages: []})`)
	require.ErrorContains(t, err, "requests can be sent in VU code only, not in the init context")
}

func TestRetriesAreCountedApart(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) < 3 {
			status(503, "{}")(w, nil)

			return
		}
		write(w, delta("a"), delta("b"), finish, usageOf(3, 2), done)
	})
	v := newVU(t)
	r := v.must(newClient(s, `retry: {max: 3, backoff: 1, budget: 1}`) + ask + `; result = ` + ask)
	require.Equal(t, true, r["ok"])
	require.Equal(t, int64(1), r["attempts"], "the budget allows one retry for each first attempt")
	seen := v.seen()
	require.Equal(t, []float64{0, 1}, values(seen["llm_success"]), "a retry does not mend the first attempt")
	require.Equal(t, []float64{1, 1}, values(seen["llm_requests"]))
	require.Equal(t, []float64{1}, values(seen["llm_retries"]))
	outcome, _ := seen["llm_retries"][0].Tags.Get("outcome")
	require.Equal(t, "failed", outcome)
	attempt, _ := seen["llm_retries"][0].Tags.Get("attempt")
	require.Equal(t, "2", attempt)
	require.Len(t, seen["llm_ttft"], 1)
	require.Len(t, seen["http_reqs"], 3)
	require.Equal(t, 3, len(s.requests))
}

func TestARetryThatSucceeds(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) == 1 {
			hangUp(w)

			return
		}
		write(w, delta("a"), finish, usageOf(3, 1), done)
	})
	v := newVU(t)
	r := v.must(newClient(s, `retry: {max: 1, on: ["connect"], backoff: 1, budget: 1}`) + `result = ` + ask)
	require.Equal(t, true, r["ok"])
	require.Equal(t, int64(2), r["attempts"])
	seen := v.seen()
	require.Equal(t, []float64{0}, values(seen["llm_success"]))
	require.NotContains(t, seen, "llm_ttft", "the latency of a retry is not the latency of the request")
	require.Equal(t, []float64{1}, values(seen["llm_completion_tokens"]), "its tokens were served all the same")
}

func TestNoRetryWithoutPolicyBudgetOrCause(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"", `retry: {max: 2, backoff: 1, budget: 0}`, `retry: {max: 2, on: ["http_429"], backoff: 1, budget: 1}`} {
		s := serve(t, status(503, "{}"))
		r := newVU(t).must(newClient(s, policy) + `result = ` + ask)
		require.Equal(t, int64(1), r["attempts"], policy)
		require.Len(t, s.requests, 1)
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-1": 0, "soon": 0,
		now.Add(3 * time.Second).Format(http.TimeFormat): 3 * time.Second,
		now.Add(-time.Hour).Format(http.TimeFormat):      0,
	} {
		require.Equal(t, want, retryAfter(http.Header{"Retry-After": {value}}, now), value)
	}
}
