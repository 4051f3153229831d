package llmtest

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/llm/wire"
)

// sse is one server-sent event.
type sse struct{ name, data string }

func (a answer) named() []sse {
	var out []sse
	for block := range strings.SplitSeq(a.body, "\n\n") {
		var e sse
		for line := range strings.SplitSeq(block, "\n") {
			if v, ok := strings.CutPrefix(line, "event: "); ok {
				e.name = v
			}
			if v, ok := strings.CutPrefix(line, "data: "); ok {
				e.data = v
			}
		}
		if e.data != "" {
			out = append(out, e)
		}
	}
	return out
}

func (a answer) names() []string {
	var names []string
	for _, e := range a.named() {
		names = append(names, e.name)
	}
	return names
}

// decode reads an answer, streamed or not, as a client does.
func (s testServer) decode(api wire.API, a answer) (*wire.Message, error) {
	s.t.Helper()
	dec := wire.NewDecoder(api)
	if !strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream") {
		require.Equal(s.t, 200, a.status, a.body)
		err := dec.Body([]byte(a.body))
		return dec.Message(), err
	}
	for _, e := range a.named() {
		if _, err := dec.Event(e.name, e.data); err != nil {
			return dec.Message(), err
		}
	}
	return dec.Message(), dec.Finish()
}

// wires are the APIs that generate text, each with its path and the form of a prompt and a limit.
var wires = []struct {
	api                 wire.API
	path, prompt, limit string
}{
	{wire.Chat, "/v1/chat/completions", `"messages":[{"role":"user","content":%q}]`, "max_tokens"},
	{wire.Responses, "/v1/responses", `"input":[{"role":"user","content":[{"type":"input_text","text":%q}]}]`, "max_output_tokens"},
	{wire.Messages, "/v1/messages", `"messages":[{"role":"user","content":[{"type":"text","text":%q}]}]`, "max_tokens"},
	{wire.Completions, "/v1/completions", `"prompt":%q`, "max_tokens"},
}

func TestEveryWireGivesTheSameAnswer(t *testing.T) {
	s := serve(t, fastConfig())
	finish := map[wire.API]string{wire.Chat: "length", wire.Responses: "max_output_tokens", wire.Messages: "max_tokens", wire.Completions: "length"}
	var text string
	for _, w := range wires {
		for _, stream := range []string{"true", "false"} {
			a := s.ask(w.path, fmt.Sprintf(`{"model":"sim-model","stream":%s,"stream_options":%s,%q:9,`+w.prompt+`}`, stream,
				map[string]string{"true": `{"include_usage":true}`, "false": "null"}[stream], w.limit, "Hello there, how are you?"))
			m, err := s.decode(w.api, a)
			require.NoError(t, err, a.body)
			prompt := helloTokens
			switch {
			case w.api == wire.Completions:
				prompt = 7
			case text == "":
				text = m.Text
			default:
				require.Equal(t, text, m.Text, w.api)
			}
			require.Equal(t, 9, CountTokens(m.Text))
			require.Equal(t, prompt, *m.Usage.PromptTokens, w.api)
			require.Equal(t, 9, *m.Usage.CompletionTokens)
			require.Zero(t, *m.Usage.CachedTokens)
			require.Equal(t, finish[w.api], m.FinishReason)
			require.Equal(t, "sim-model", m.Model)
			require.Equal(t, m.ID, a.header.Get("X-Request-Id"))
			if stream == "false" {
				continue
			}
			truth, ok := s.Truth(m.ID)
			require.True(t, ok)
			require.Equal(t, 9, truth.OutputTokens)
			require.True(t, truth.Ended)
			for i, e := range a.events() {
				if e != "[DONE]" {
					var stamped struct {
						SentNS int64 `json:"sim_sent_ns"`
					}
					require.NoError(t, json.Unmarshal([]byte(e), &stamped))
					require.Equal(t, truth.Chunks[i].SentNS, stamped.SentNS, "%s: each event tells when it was written", e)
				}
			}
		}
	}
}

func TestResponsesStream(t *testing.T) {
	s := serve(t, fastConfig())
	a := s.ask("/v1/responses", `{"stream":true,"instructions":"Be brief.","input":"Hello","max_output_tokens":4,"sim_fault":{"reasoning_tokens":2}}`)
	require.Equal(t, []string{
		"response.created", "response.in_progress",
		"response.output_item.added", "response.reasoning_text.delta", "response.reasoning_text.delta",
		"response.reasoning_text.done", "response.output_item.done",
		"response.output_item.added", "response.content_part.added", "response.output_text.delta", "response.output_text.delta",
		"response.output_text.done", "response.content_part.done", "response.output_item.done",
		"response.incomplete",
	}, a.names())
	for i, e := range a.named()[2:14] {
		require.Contains(t, e.data, fmt.Sprintf(`"output_index":%d`, min(i/5, 1)), "the second item has a number of its own")
	}
	var last struct {
		Type     string
		Sequence int `json:"sequence_number"`
		Response struct {
			Status  string
			Details struct{ Reason string } `json:"incomplete_details"`
			Output  []struct {
				ID, Type string
				Content  []struct{ Type, Text string }
			}
			Usage struct {
				Input  int `json:"input_tokens"`
				Output int `json:"output_tokens"`
				Total  int `json:"total_tokens"`
				More   struct {
					Reasoning int `json:"reasoning_tokens"`
				} `json:"output_tokens_details"`
			}
		}
	}
	events := a.named()
	require.NoError(t, json.Unmarshal([]byte(events[len(events)-1].data), &last))
	require.Equal(t, "response.incomplete", last.Type)
	require.Equal(t, len(events)-1, last.Sequence)
	require.Equal(t, "incomplete", last.Response.Status)
	require.Equal(t, "max_output_tokens", last.Response.Details.Reason)
	require.Equal(t, 4, last.Response.Usage.Output)
	require.Equal(t, 2, last.Response.Usage.More.Reasoning)
	require.Equal(t, (4+3)+(4+1)+3, last.Response.Usage.Input, "instructions, user, and how the reply begins")
	require.Len(t, last.Response.Output, 2)
	m, err := s.decode(wire.Responses, a)
	require.NoError(t, err)
	require.Equal(t, m.Reasoning, last.Response.Output[0].Content[0].Text)
	require.Equal(t, m.Text, last.Response.Output[1].Content[0].Text)

	whole, err := s.decode(wire.Responses, s.ask("/v1/responses", `{"instructions":"Be brief.","input":"Hello","max_output_tokens":4,"sim_fault":{"reasoning_tokens":2}}`))
	require.NoError(t, err)
	require.Equal(t, m.Text, whole.Text)
	require.Equal(t, m.Reasoning, whole.Reasoning)
}

func TestMessagesStream(t *testing.T) {
	s := serve(t, fastConfig())
	question := strings.Repeat("Tell me a long story about this. ", 10)
	body := `{"stream":true,"system":[{"type":"text","text":"Be brief."}],"messages":[{"role":"user","content":"` + question +
		`"}],"max_tokens":4,"sim_fault":{"reasoning_tokens":2}}`
	s.ask("/v1/messages", body)
	a := s.ask("/v1/messages", body)
	require.Equal(t, []string{
		"message_start", "ping",
		"content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
		"content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
		"message_delta", "message_stop",
	}, a.names())
	require.NotContains(t, a.body, "[DONE]")
	for i, e := range a.named()[2:10] {
		require.Contains(t, e.data, fmt.Sprintf(`"index":%d`, i/4), "the second block has a number of its own")
	}
	var start struct {
		Message struct {
			Usage map[string]int
		}
	}
	require.NoError(t, json.Unmarshal([]byte(a.named()[0].data), &start))
	require.Equal(t, map[string]int{
		"input_tokens": 95 - 80, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 80, "output_tokens": 0,
	}, start.Message.Usage, "the prompt's part of usage comes first, and leaves out what was cached")
	require.Contains(t, a.named()[10].data, `"usage":{"output_tokens":4}`)
	m, err := s.decode(wire.Messages, a)
	require.NoError(t, err)
	require.Equal(t, 95, *m.Usage.PromptTokens)
	require.Equal(t, 80, *m.Usage.CachedTokens)
	require.Equal(t, 2, CountTokens(m.Reasoning))
	require.Equal(t, "max_tokens", m.FinishReason)
}

func TestToolCallsOfEveryWire(t *testing.T) {
	s := serve(t, fastConfig())
	tools := map[wire.API]string{
		wire.Chat:      `"tools":[{"type":"function","function":{"name":"look_up"}}],"tool_choice":"required"`,
		wire.Responses: `"tools":[{"type":"function","name":"look_up"}],"tool_choice":"required"`,
		wire.Messages:  `"tools":[{"name":"look_up","input_schema":{}}],"tool_choice":{"type":"any"}`,
	}
	finish := map[wire.API]string{wire.Chat: "tool_calls", wire.Responses: "completed", wire.Messages: "tool_use"}
	prefix := map[wire.API]string{wire.Chat: "chatcmpl-tool-", wire.Responses: "call_", wire.Messages: "toolu_"}
	for _, w := range wires[:3] {
		for _, tokens := range []int{1, 2, 3, 7} {
			for _, fault := range []string{`{}`, `{"tokens_per_chunk":3}`, `{"reasoning_tokens":1}`} {
				for _, stream := range []bool{true, false} {
					where := fmt.Sprintf("%s %d %s %t", w.api, tokens, fault, stream)
					a := s.ask(w.path, fmt.Sprintf(`{"stream":%t,%q:%d,"sim_fault":%s,%s,`+w.prompt+`}`,
						stream, w.limit, tokens, fault, tools[w.api], "Hello"))
					m, err := s.decode(w.api, a)
					require.NoError(t, err, where+a.body)
					require.Empty(t, m.Text, where)
					if strings.Contains(fault, "reasoning") && tokens == 1 {
						require.Empty(t, m.ToolCalls, where)
						continue
					}
					require.Len(t, m.ToolCalls, 1, where)
					require.Equal(t, "look_up", m.ToolCalls[0].Name)
					require.True(t, strings.HasPrefix(m.ToolCalls[0].ID, prefix[w.api]), m.ToolCalls[0].ID)
					require.True(t, json.Valid([]byte(m.ToolCalls[0].Arguments)), "%s: %s", where, m.ToolCalls[0].Arguments)
					require.Equal(t, finish[w.api], m.FinishReason, where)
					if truth, ok := s.Truth(m.ID); stream {
						require.True(t, ok)
						require.Equal(t, tokens, truth.OutputTokens, where)
					}
				}
			}
		}
		auto := strings.NewReplacer(`"required"`, `"auto"`, `{"type":"any"}`, `{"type":"auto"}`).Replace(tools[w.api])
		m, err := s.decode(w.api, s.ask(w.path, fmt.Sprintf(`{%q:5,%s,`+w.prompt+`}`, w.limit, auto, "Hello")))
		require.NoError(t, err)
		require.Empty(t, m.ToolCalls, "the model decides for text")
	}
}

func TestToolRoundsEnd(t *testing.T) {
	s := serve(t, fastConfig())
	chat := func(messages string) (wire.API, string, string) {
		return wire.Chat, "/v1/chat/completions", `"messages":[` + messages + `]`
	}
	responses := func(input string) (wire.API, string, string) {
		return wire.Responses, "/v1/responses", `"input":[` + input + `]`
	}
	messages := func(messages string) (wire.API, string, string) {
		return wire.Messages, "/v1/messages", `"messages":[` + messages + `]`
	}
	const (
		user           = `{"role":"user","content":"Hello"}`
		chatRound      = `{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"sunny"}`
		responsesRound = `{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"sunny"}`
		customRound    = `{"type":"custom_tool_call","call_id":"c","name":"f","input":"x"},{"type":"custom_tool_call_output","call_id":"c","output":"sunny"}`
		oldRound       = `{"role":"assistant","content":"","function_call":{"name":"f","arguments":"{}"}},{"role":"function","name":"f","content":"sunny"}`
		messagesRound  = `{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"sunny"}]}`
	)
	for _, wire := range []struct {
		make  func(string) (wire.API, string, string)
		round string
	}{{chat, chatRound}, {responses, responsesRound}, {messages, messagesRound}, {responses, customRound}, {chat, oldRound}} {
		for rounds, called := range map[string]bool{
			user:                    true,
			user + "," + wire.round: true,
			user + "," + wire.round + "," + wire.round:              false,
			user + "," + wire.round + "," + wire.round + "," + user: true,
		} {
			api, path, body := wire.make(rounds)
			m, err := s.decode(api, s.ask(path, `{"max_tokens":6,"max_output_tokens":6,"sim_fault":{"tool_rounds":2},`+body+`}`))
			require.NoError(t, err)
			require.Equal(t, called, len(m.ToolCalls) == 1, "%s: %s", api, rounds)
		}
	}
}

func picture(t *testing.T, width, height int, shade uint8) string {
	t.Helper()
	img := image.NewGray(image.Rect(0, 0, width, height))
	img.Set(0, 0, color.Gray{Y: shade})
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, img))
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

func TestImages(t *testing.T) {
	require.Equal(t, 1, ImageTokens(28, 28))
	require.Equal(t, 4, ImageTokens(29, 29))
	require.Equal(t, 19*10, ImageTokens(512, 280))

	s := serve(t, fastConfig())
	parts := map[wire.API]string{
		wire.Chat:      `{"messages":[{"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}}]}],"max_tokens":2}`,
		wire.Responses: `{"input":[{"role":"user","content":[{"type":"input_text","text":"What is it?"},{"type":"input_image","image_url":"data:image/png;base64,%s"}]}],"max_output_tokens":2}`,
		wire.Messages:  `{"messages":[{"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"%s"}}]}],"max_tokens":2}`,
	}
	cached := 0
	for _, w := range wires[:3] {
		for _, shade := range []uint8{1, 2} {
			m, err := s.decode(w.api, s.ask(w.path, fmt.Sprintf(parts[w.api], picture(t, 512, 280, shade))))
			require.NoError(t, err)
			require.Equal(t, 4+4+190+3, *m.Usage.PromptTokens, w.api)
			if w.api == wire.Chat {
				require.Zero(t, *m.Usage.CachedTokens, "another image is another prompt")
			} else {
				require.Equal(t, 192, *m.Usage.CachedTokens, "the same image, by whatever API, is the same prompt")
				cached++
			}
		}
	}
	require.Equal(t, 4, cached)

	for body, want := range map[string]string{
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://127.0.0.1/a.png"}}]}]}`:                "fetches nothing",
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]}`:            "expected PNG, JPEG or GIF",
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,?"}}]}]}`:               "illegal base64",
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":"data:image/png;base64,AAAA"}]}]}`:                    "expected an object with a url",
		`{"messages":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,AAAA"}]}]}`:                  "no part of type",
		`{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"` + picture(t, 1, 1, 1) + `"}}]}]}`: "no part of type",
	} {
		a := s.ask("/v1/chat/completions", body)
		require.Equal(t, 400, a.status)
		require.Contains(t, a.body, want)
	}
	require.Contains(t, s.ask("/v1/messages", `{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"x"}}]}]}`).body, "expected type base64")
	require.Contains(t, s.ask("/v1/responses", `{"input":[{"role":"user","content":[{"type":"text","text":"x"}]}]}`).body, "no part of type")
}

func TestEmbeddings(t *testing.T) {
	s := serve(t, fastConfig())
	type result struct {
		Object, Model, ID string
		Data              []struct {
			Object    string
			Index     int
			Embedding json.RawMessage
		}
		Usage map[string]int
	}
	ask := func(body string) result {
		var r result
		a := s.ask("/v1/embeddings", body)
		require.Equal(t, 200, a.status, a.body)
		require.NoError(t, json.Unmarshal([]byte(a.body), &r))
		return r
	}
	floats := func(raw json.RawMessage) (v []float32) {
		require.NoError(t, json.Unmarshal(raw, &v))
		return v
	}
	one := ask(`{"model":"sim-model","input":"Hello there, how are you?"}`)
	require.Equal(t, "list", one.Object)
	require.Equal(t, "sim-model", one.Model)
	require.True(t, strings.HasPrefix(one.ID, "embd-"))
	require.Equal(t, map[string]int{"prompt_tokens": 7, "total_tokens": 7}, one.Usage)
	require.Len(t, one.Data, 1)
	require.Equal(t, "embedding", one.Data[0].Object)
	vector := floats(one.Data[0].Embedding)
	require.Len(t, vector, DefaultDimensions)
	length := 0.0
	for _, v := range vector {
		length += float64(v) * float64(v)
	}
	require.InDelta(t, 1, length, 1e-5)

	two := ask(`{"input":["Hello there, how are you?","bye"]}`)
	require.Equal(t, 8, two.Usage["prompt_tokens"])
	require.Equal(t, 1, two.Data[1].Index)
	require.Equal(t, vector, floats(two.Data[0].Embedding), "a function of the input")
	require.NotEqual(t, vector, floats(two.Data[1].Embedding))
	require.Equal(t, 3, ask(`{"input":[5,6,7]}`).Usage["prompt_tokens"])
	require.Equal(t, 5, ask(`{"input":[[5,6,7],[8,9]]}`).Usage["prompt_tokens"])

	packed := ask(`{"input":"Hello there, how are you?","dimensions":3,"encoding_format":"base64"}`)
	var text string
	require.NoError(t, json.Unmarshal(packed.Data[0].Embedding, &text))
	raw, err := base64.StdEncoding.DecodeString(text)
	require.NoError(t, err)
	require.Len(t, raw, 12)
	short := floats(ask(`{"input":"Hello there, how are you?","dimensions":3}`).Data[0].Embedding)
	require.Equal(t, short[0], math.Float32frombits(binary.LittleEndian.Uint32(raw)))

	st, ok := s.Stats()
	require.True(t, ok)
	require.Equal(t, int64(7+8+3+5+7+7), st.PromptTokens)
	require.Zero(t, st.GenerationTokens, "an embedding generates nothing")
	require.Equal(t, int64(8), st.Completed)
	require.Zero(t, s.metricFamilies()["vllm:time_to_first_token_seconds"].GetMetric()[0].GetHistogram().GetSampleCount())

	for body, want := range map[string]string{
		`{}`:                                  "input 0: expected a text or a list of token ids",
		`{"input":""}`:                        "input 0",
		`{"input":[]}`:                        "input 0",
		`{"input":["a",""]}`:                  "input 1",
		`{"input":"a","dimensions":0}`:        "dimensions is 0, expected 1 to 4096",
		`{"input":"a","encoding_format":"x"}`: "expected \\\"float\\\" or \\\"base64\\\"",
		`{"input":"` + strings.Repeat("a ", 8192) + `"}`: "maximum context length is 8192 tokens",
	} {
		a := s.ask("/v1/embeddings", body)
		require.Equal(t, 400, a.status)
		require.Contains(t, a.body, want)
	}
	require.Equal(t, 404, s.ask("/v1/embeddings", `{"model":"nope","input":"a"}`).status)
	require.Equal(t, 503, s.ask("/v1/embeddings", `{"input":"a","sim_fault":{"status":503}}`).status)
	require.NotContains(t, s.ask("/v1/embeddings", `{"input":"a","sim_fault":{"no_usage":true}}`).body, "usage")
	require.False(t, json.Valid([]byte(s.ask("/v1/embeddings", `{"input":"a","sim_fault":{"malformed_after":0}}`).body)))
}

func TestAnEmbeddingCostsItsPrefill(t *testing.T) {
	cfg := plainConfig()
	e, err := NewEngine(cfg)
	require.NoError(t, err)
	_, err = e.Submit(0, Request{PromptTokens: 100, MaxTokens: 2, Pooling: true})
	require.ErrorContains(t, err, "expected 1")
	seq, err := e.Submit(0, Request{PromptTokens: 100, MaxTokens: 1, Pooling: true})
	require.NoError(t, err)
	end, began := e.BeginStep(0)
	require.True(t, began)
	e.FinishStep()
	require.Equal(t, cfg.StepTime(100, 0), end)
	require.Equal(t, Completed, seq.Status)
	require.Equal(t, int64(100), e.Stats().PromptTokens)
	require.Zero(t, e.Stats().GenerationTokens)
	require.Zero(t, e.Stats().UsedBlocks)
}

func TestAdaptersHaveTheirOwnPrefixCache(t *testing.T) {
	s := serve(t, fastConfig())
	question := strings.Repeat("Tell me a long story about this. ", 10)
	cached := func(model string) int {
		a := s.ask("/v1/chat/completions", `{"model":"`+model+`","max_tokens":3,"messages":[{"role":"user","content":"`+question+`"}]}`)
		m, err := s.decode(wire.Chat, a)
		require.NoError(t, err)
		require.Equal(t, model, m.Model)
		return *m.Usage.CachedTokens
	}
	require.Equal(t, []int{0, 0, 0, 80, 80, 80}, []int{
		cached("sim-model"), cached("sim-model:legal"), cached("sim-model:sales"),
		cached("sim-model"), cached("sim-model:legal"), cached("sim-model:sales"),
	})
	for _, unknown := range []string{"sim-model:", "sim-modellegal", "other"} {
		require.Equal(t, 404, s.ask("/v1/chat/completions", `{"model":"`+unknown+`",`+hello+`}`).status)
	}
}

func TestConversationsOfEveryWireFindTheirPrefix(t *testing.T) {
	s := serve(t, fastConfig())
	question := strings.Repeat("Tell me a long story about this. ", 10)
	for _, w := range []struct {
		api                         wire.API
		path, first, second, prefix string
	}{
		{
			wire.Responses, "/v1/responses", `{"max_output_tokens":40,"instructions":"R","input":[{"role":"user","content":"` + question + `"}]}`,
			`{"max_output_tokens":40,"instructions":"R","input":[{"role":"user","content":"` + question + `"},{"role":"assistant","content":%q},{"role":"user","content":"And?"}]}`, "",
		},
		{
			wire.Messages, "/v1/messages", `{"max_tokens":40,"system":"M","messages":[{"role":"user","content":"` + question + `"}]}`,
			`{"max_tokens":40,"system":"M","messages":[{"role":"user","content":"` + question + `"},{"role":"assistant","content":%q},{"role":"user","content":"And?"}]}`, "",
		},
	} {
		one, err := s.decode(w.api, s.ask(w.path, w.first))
		require.NoError(t, err)
		require.Equal(t, 93, *one.Usage.PromptTokens, "five more for the system prompt of one token")
		require.Zero(t, *one.Usage.CachedTokens)
		two, err := s.decode(w.api, s.ask(w.path, fmt.Sprintf(w.second, one.Text)))
		require.NoError(t, err)
		require.Equal(t, 128, *two.Usage.CachedTokens, "93 and 39 of the answer: eight blocks of 16")
	}
}

func TestFaultsOfEveryWire(t *testing.T) {
	s := serve(t, fastConfig())
	for _, w := range wires {
		ask := func(fault string) (*wire.Message, error) {
			return s.decode(w.api, s.ask(w.path, fmt.Sprintf(`{"stream":true,%q:6,"sim_fault":%s,`+w.prompt+`}`, w.limit, fault, "Hello")))
		}
		kind := func(fault string) wire.ErrorType {
			m, err := ask(fault)
			require.NotNil(t, m)
			if err == nil {
				return ""
			}
			var e *wire.Error
			require.ErrorAs(t, err, &e)
			return e.Type
		}
		require.Equal(t, wire.ErrTruncated, kind(`{"truncate_after":3}`), w.api)
		require.Equal(t, wire.ErrStream, kind(`{"error_after":3}`), w.api)
		require.Equal(t, wire.ErrDecode, kind(`{"malformed_after":3}`), w.api)
		require.Equal(t, wire.ErrorType(""), kind(`{"heartbeat":"1ms","tokens_per_chunk":4,"split_at":20}`), w.api)
		m, err := ask(`{"no_usage":true}`)
		require.NoError(t, err)
		require.Nil(t, m.Usage.CompletionTokens)
		require.Nil(t, m.Usage.PromptTokens)
		if w.api == wire.Responses {
			require.Equal(t, wire.ErrTruncated, kind(`{"no_done":true}`), "the terminal event is the only one that says how it ended")
		} else {
			require.Equal(t, wire.ErrorType(""), kind(`{"no_done":true}`), w.api)
		}
		a := s.ask(w.path, fmt.Sprintf(`{%q:6,"sim_fault":{"status":429,"retry_after":3},`+w.prompt+`}`, w.limit, "Hello"))
		require.Equal(t, "3", a.header.Get("Retry-After"))
		var refused *wire.Error
		require.ErrorAs(t, wire.ErrorFromResponse(a.status, []byte(a.body)), &refused)
		require.Equal(t, wire.ErrHTTP429, refused.Type)
		require.Contains(t, refused.Message, "simulated failure with status 429")
	}
}

func TestErrorsOfResponsesAndMessages(t *testing.T) {
	cfg := fastConfig()
	cfg.Engine.MaxModelLen = 64
	cfg.ErrorsInStream = true
	cfg.APIKey = "secret"
	s := serve(t, cfg)
	key := []string{"X-Api-Key", "secret"}
	a := s.ask("/v1/messages", `{"messages":[{"role":"user","content":"x"}]}`, key...)
	require.Equal(t, 400, a.status)
	require.JSONEq(t, `{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: Field required"}}`, a.body)
	require.Equal(t, 401, s.ask("/v1/messages", `{}`).status)
	long := strings.Repeat("a ", 64)
	for _, w := range wires {
		m, err := s.decode(w.api, s.ask(w.path, fmt.Sprintf(`{"stream":true,%q:6,`+w.prompt+`}`, w.limit, long), key...))
		var e *wire.Error
		require.ErrorAs(t, err, &e, w.api)
		require.Equal(t, wire.ErrContextLength, e.Type)
		require.Empty(t, m.Text)
	}
	for path, bodies := range map[string]map[string]string{
		"/v1/responses": {
			`{}`:                                  "input: expected a text or a list of items",
			`{"input":[{"content":"x"}]}`:         "input[0] has no role",
			`{"input":[{"type":"wish"}]}`:         "an item of type \\\"wish\\\"",
			`{"input":"x","max_output_tokens":0}`: "max_output_tokens must be at least 1",
			`{"input":[{"type":"function_call_output","output":"x"}]}`: "call_id is missing",
		},
		"/v1/messages": {
			`{"max_tokens":1,"messages":[]}`:                                                   "at least one message",
			`{"max_tokens":1,"messages":[{"role":"system","content":"x"}]}`:                    "messages.0.role: got \\\"system\\\"",
			`{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result"}]}]}`: "tool_use_id is missing",
		},
	} {
		for body, want := range bodies {
			a := s.ask(path, body, key...)
			require.Equal(t, 400, a.status, body)
			require.Contains(t, a.body, want)
		}
	}
}

func TestTheChunksOfEveryWire(t *testing.T) {
	s := serve(t, fastConfig())
	for _, w := range wires {
		a := s.ask(w.path, fmt.Sprintf(`{"stream":true,%q:7,"sim_fault":{"tokens_per_chunk":3},`+w.prompt+`}`, w.limit, "Hello"))
		m, err := s.decode(w.api, a)
		require.NoError(t, err)
		truth, ok := s.Truth(m.ID)
		require.True(t, ok)
		carrying := slices.DeleteFunc(tokensOf(truth), func(n int) bool { return n == 0 })
		require.Equal(t, []int{3, 3, 1}, carrying, w.api)
	}
}

// A call is the same chunks in every wire, and what a client takes for a chunk is what the truth has tokens for.
func TestTheChunksOfACallInEveryWire(t *testing.T) {
	s := serve(t, fastConfig())
	for tokens, want := range map[int][]int{1: {1}, 2: {1, 1}, 4: {1, 3}, 8: {1, 3, 3, 1}} {
		for _, w := range wires[:3] {
			where := fmt.Sprintf("%s, %d tokens", w.api, tokens)
			a := s.ask(w.path, fmt.Sprintf(`{"stream":true,%q:%d,"sim_fault":{"tool_call":true,"tokens_per_chunk":3},`+w.prompt+`}`, w.limit, tokens, "Hello"))
			m, err := s.decode(w.api, a)
			require.NoError(t, err)
			require.True(t, json.Valid([]byte(m.ToolCalls[0].Arguments)), where)
			truth, ok := s.Truth(m.ID)
			require.True(t, ok)
			require.Equal(t, want, slices.DeleteFunc(tokensOf(truth), func(n int) bool { return n == 0 }), where)

			dec, chunks := wire.NewDecoder(w.api), 0
			for _, e := range a.named() {
				delta, err := dec.Event(e.name, e.data)
				require.NoError(t, err)
				if delta.Output {
					chunks++
				}
			}
			require.Equal(t, len(want), chunks, where)
		}
	}
}
