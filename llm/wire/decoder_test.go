package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// one wraps a delta as the only choice of a chat chunk.
func one(delta string) string {
	return `{"id":"c1","model":"m1","choices":[{"index":0,"delta":` + delta + `,"finish_reason":null}]}`
}

const stop = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`

// Which events are chunks: those that carry output in any channel, and no others.
func TestWhatIsAChunk(t *testing.T) {
	t.Parallel()
	none, text, thought := Delta{}, Delta{Output: true, Text: true}, Delta{Output: true}
	for _, test := range []struct {
		name        string
		api         API
		event, data string
		want        Delta
	}{
		{"text", Chat, "", one(`{"content":"a"}`), text},
		{"text with a role", Chat, "", one(`{"role":"assistant","content":"a"}`), text},
		{"white space is text", Chat, "", one(`{"content":" "}`), text},
		{"role alone", Chat, "", one(`{"role":"assistant"}`), none},
		{"role with empty text", Chat, "", one(`{"role":"assistant","content":""}`), none},
		{"role with null text", Chat, "", one(`{"role":"assistant","content":null}`), none},
		{"empty delta", Chat, "", one(`{}`), none},
		{"null delta", Chat, "", one(`null`), none},
		{"finish alone", Chat, "", stop, none},
		{"text with finish", Chat, "", `{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}`, text},
		{"usage alone", Chat, "", `{"choices":[],"usage":{"completion_tokens":3}}`, none},
		{"no choices", Chat, "", `{"id":"c1"}`, none},
		{"null choices", Chat, "", `{"choices":null}`, none},
		{"empty object", Chat, "", `{}`, none},
		{"logprobs without text", Chat, "", `{"choices":[{"delta":{},"logprobs":{"content":[{"token":"a"}]}}]}`, none},
		{"reasoning_content", Chat, "", one(`{"reasoning_content":"a"}`), thought},
		{"reasoning", Chat, "", one(`{"reasoning":"a"}`), thought},
		{"reasoning_details", Chat, "", one(`{"reasoning_details":[{"type":"reasoning.text","text":"a"}]}`), thought},
		{"encrypted reasoning", Chat, "", one(`{"reasoning_details":[{"type":"reasoning.encrypted","data":"a"}]}`), none},
		{"empty reasoning", Chat, "", one(`{"reasoning_content":"","reasoning":null,"content":null}`), none},
		{"reasoning and text", Chat, "", one(`{"reasoning":"a","content":"b"}`), text},
		{"refusal", Chat, "", one(`{"refusal":"a"}`), text},
		{"null refusal", Chat, "", one(`{"refusal":null}`), none},
		{"tool arguments", Chat, "", one(`{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}`), text},
		{"tool name alone", Chat, "", one(`{"tool_calls":[{"index":0,"id":"x","function":{"name":"f","arguments":""}}]}`), text},
		{"name of a custom tool alone", Chat, "", one(`{"tool_calls":[{"index":0,"id":"x","type":"custom","custom":{"name":"f","input":""}}]}`), text},
		{"function_call name alone", Chat, "", one(`{"function_call":{"name":"f","arguments":""}}`), text},
		{"tool name alone, of another choice", Chat, "", `{"choices":[{"index":1,"delta":{"tool_calls":[{"function":{"name":"f"}}]}}]}`, Delta{Output: true, Text: true, Answer: 1}},
		{"tool id alone", Chat, "", one(`{"tool_calls":[{"index":0,"id":"x","function":{"arguments":""}}]}`), none},
		{"null tool calls", Chat, "", one(`{"tool_calls":null}`), none},
		{"function_call arguments", Chat, "", one(`{"function_call":{"arguments":"{"}}`), text},
		{"null function_call", Chat, "", one(`{"function_call":null}`), none},
		{"text parts", Chat, "", one(`{"content":[{"type":"text","text":"a"}]}`), text},
		{"thinking parts", Chat, "", one(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"a"}]}]}`), thought},
		{"unknown parts", Chat, "", one(`{"content":[{"type":"reference","reference_ids":[1]}]}`), none},
		{"another choice", Chat, "", `{"choices":[{"index":1,"delta":{"content":"a"}}]}`, Delta{Output: true, Text: true, Answer: 1}},
		{"another choice's text", Completions, "", `{"choices":[{"index":2,"text":"a"}]}`, Delta{Output: true, Text: true, Answer: 2}},
		{"another choice's role", Chat, "", `{"choices":[{"index":1,"delta":{"role":"assistant"}}]}`, none},
		{"two choices, of which one speaks", Chat, "", `{"choices":[{"index":0,"delta":{}},{"index":1,"delta":{"content":"a"}}]}`, Delta{Output: true, Text: true, Answer: 1}},
		{"two choices that speak", Chat, "", `{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"a"}}]}`, text},
		{"named event", Chat, "message", one(`{"content":"a"}`), text},
		{"ping", Chat, "ping", `{"type":"ping"}`, none},
		{"ping that is not JSON", Chat, "ping", `2026-01-01 00:00`, none},
		{"heartbeat", Completions, "heartbeat", `{}`, none},
		{"no data", Chat, "message", ``, none},
		{"[DONE]", Chat, "", `[DONE]`, Delta{Done: true}},
		{"[DONE] with space", Completions, "", ` [DONE] `, Delta{Done: true}},

		{"completions text", Completions, "", `{"choices":[{"index":0,"text":"a"}]}`, text},
		{"completions empty text", Completions, "", `{"choices":[{"index":0,"text":"","finish_reason":"stop"}]}`, none},
		{"completions null text", Completions, "", `{"choices":[{"index":0,"text":null}]}`, none},

		{"message_start", Messages, "message_start", `{"type":"message_start","message":{"id":"x","content":[]}}`, none},
		{"block start", Messages, "", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`, none},
		{"block start with text", Messages, "", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}`, text},
		{"tool start", Messages, "", `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}`, text},
		{"server tool start", Messages, "", `{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"t","name":"web_search","input":{}}}`, text},
		{"result of a server tool", Messages, "", `{"type":"content_block_start","index":0,"content_block":{"type":"web_search_tool_result","tool_use_id":"t","content":[]}}`, none},
		{"whole tool", Messages, "", `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f","input":{"a":1}}}`, text},
		{"text_delta", Messages, "", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}`, text},
		{"empty text_delta", Messages, "", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":""}}`, none},
		{"thinking_delta", Messages, "", `{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"a"}}`, thought},
		{"signature_delta", Messages, "", `{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"a"}}`, none},
		{"citations_delta", Messages, "", `{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{"cited_text":"a"}}}`, none},
		{"input_json_delta", Messages, "", `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{"}}`, text},
		{"empty input_json_delta", Messages, "", `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":""}}`, none},
		{"anthropic ping", Messages, "ping", `{"type":"ping"}`, none},
		{"anthropic ping, unnamed", Messages, "", `{"type":"ping"}`, none},
		{"the event's name stands in for the type", Messages, "message_stop", `{}`, Delta{Done: true}},
		{"message_stop", Messages, "", `{"type":"message_stop"}`, Delta{Done: true}},

		{"response.created", Responses, "", `{"type":"response.created","response":{"id":"r"}}`, none},
		{"output_text.delta", Responses, "", `{"type":"response.output_text.delta","delta":"a"}`, text},
		{"empty output_text.delta", Responses, "", `{"type":"response.output_text.delta","delta":""}`, none},
		{"output_text.delta by name", Responses, "response.output_text.delta", `{"delta":"a"}`, text},
		{"reasoning_text.delta", Responses, "", `{"type":"response.reasoning_text.delta","delta":"a"}`, thought},
		{"reasoning_summary_text.delta", Responses, "", `{"type":"response.reasoning_summary_text.delta","delta":"a"}`, thought},
		{"refusal.delta", Responses, "", `{"type":"response.refusal.delta","delta":"a"}`, text},
		{"arguments.delta", Responses, "", `{"type":"response.function_call_arguments.delta","item_id":"f","delta":"{"}`, text},
		{"call begins", Responses, "", `{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"f","call_id":"c","name":"n","arguments":""}}`, text},
		{"custom call begins", Responses, "", `{"type":"response.output_item.added","output_index":0,"item":{"type":"custom_tool_call","id":"f","call_id":"c","name":"n","input":""}}`, text},
		{"message begins", Responses, "", `{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"m","content":[]}}`, none},
		{"custom input without deltas", Responses, "", `{"type":"response.custom_tool_call_input.done","item_id":"f","input":"a"}`, text},
		{"custom input.delta", Responses, "", `{"type":"response.custom_tool_call_input.delta","item_id":"f","delta":"a"}`, text},
		{"text without deltas", Responses, "", `{"type":"response.output_text.done","text":"a"}`, text},
		{"refusal without deltas", Responses, "", `{"type":"response.refusal.done","refusal":"a"}`, text},
		{"arguments without deltas", Responses, "", `{"type":"response.function_call_arguments.done","item_id":"f","arguments":"{}"}`, text},
		{
			"call whole in its last event", Responses, "",
			`{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","id":"f","call_id":"c","name":"n","arguments":"{}"}}`, text,
		},
		{
			"answer whole in its last event", Responses, "",
			`{"type":"response.completed","response":{"output":[{"type":"message","content":[{"type":"output_text","text":"a"}]}]}}`,
			Delta{Output: true, Text: true, Done: true},
		},
		{"response.completed", Responses, "", `{"type":"response.completed","response":{"status":"completed"}}`, Delta{Done: true}},
		{"response.incomplete", Responses, "", `{"type":"response.incomplete","response":{}}`, Delta{Done: true}},
		{"unknown type", Responses, "", `{"type":"response.audio.delta","delta":"QQ=="}`, none},
		{"responses [DONE]", Responses, "", `[DONE]`, Delta{Done: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := NewDecoder(test.api).Event(test.event, test.data)
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}

// What is assembled, from streams that differ in their dialect.
func TestAssembledMessage(t *testing.T) {
	t.Parallel()
	call := func(parts string) string { return one(`{"tool_calls":[` + parts + `]}`) }
	for _, test := range []struct {
		name string
		api  API
		data []string
		want Message
	}{
		{"escapes", Chat, []string{one(`{"content":"a\"\\\n\u00e9\ud83d\ude80"}`), one(`{"content":"<&>"}`)}, Message{Text: "a\"\\\né🚀<&>"}},
		{"a character in two halves", Chat, []string{one("{\"content\":\"\xe2\x82\"}"), one("{\"content\":\"\xac!\"}")}, Message{Text: "€!"}},
		{"half a character", Chat, []string{one("{\"content\":\"a\xe2\x82\"}")}, Message{Text: "a\uFFFD"}},
		{"refusal", Chat, []string{one(`{"refusal":"I can"}`), one(`{"refusal":"not."}`)}, Message{Refusal: "I cannot."}},
		{"reasoning twice, the same", Chat, []string{one(`{"reasoning_content":"a","reasoning":"a"}`), one(`{"reasoning":"b","reasoning_content":"b"}`)}, Message{Reasoning: "ab"}},
		{"reasoning with details", Chat, []string{one(`{"reasoning":"a","reasoning_details":[{"text":"a"}]}`)}, Message{Reasoning: "a"}},
		{"details alone", Chat, []string{one(`{"reasoning_details":[{"text":"a"},{"type":"reasoning.summary","summary":"b"},{"data":"x"}]}`)}, Message{Reasoning: "ab"}},
		{"one name after the other", Chat, []string{one(`{"reasoning_content":"a","reasoning":null}`), one(`{"reasoning":"b","reasoning_content":""}`)}, Message{Reasoning: "ab"}},
		{
			"content in parts", Chat,
			[]string{
				one(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}`),
				one(`{"content":[{"type":"thinking","thinking":"m"},{"type":"text","text":"a"},{"type":"refusal","refusal":"r"}]}`), one(`{"content":"b"}`),
			},
			Message{Reasoning: "hmm", Text: "ab", Refusal: "r"},
		},
		{
			"tool call in parts", Chat,
			[]string{
				call(`{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}`),
				call(`{"index":0,"function":{"arguments":"{\"a\""}}`), call(`{"index":0,"function":{"arguments":":1}"}}`),
			},
			Message{ToolCalls: []ToolCall{{ID: "c1", Name: "f", Arguments: `{"a":1}`}}},
		},
		{
			"two calls, interleaved", Chat,
			[]string{
				call(`{"index":0,"id":"c1","function":{"name":"f","arguments":"1"}},{"index":1,"id":"c2","function":{"name":"g","arguments":"2"}}`),
				call(`{"index":1,"function":{"arguments":"b"}}`), call(`{"index":0,"function":{"arguments":"a"}}`),
			},
			Message{ToolCalls: []ToolCall{{ID: "c1", Name: "f", Arguments: "1a"}, {ID: "c2", Name: "g", Arguments: "2b"}}},
		},
		{
			"the same function twice", Chat,
			[]string{call(`{"index":0,"id":"c1","function":{"name":"f","arguments":"1"}}`), call(`{"index":1,"id":"c2","function":{"name":"f","arguments":"2"}}`)},
			Message{ToolCalls: []ToolCall{{ID: "c1", Name: "f", Arguments: "1"}, {ID: "c2", Name: "f", Arguments: "2"}}},
		},
		{
			"whole calls without numbers", Chat,
			[]string{call(`{"id":"c1","function":{"name":"f","arguments":"1"}},{"id":"c2","function":{"name":"f","arguments":"2"}}`)},
			Message{ToolCalls: []ToolCall{{ID: "c1", Name: "f", Arguments: "1"}, {ID: "c2", Name: "f", Arguments: "2"}}},
		},
		{
			"whole calls with nothing but names", Chat,
			[]string{call(`{"function":{"name":"f","arguments":"1"}}`), call(`{"function":{"name":"f","arguments":"2"}}`)},
			Message{ToolCalls: []ToolCall{{Name: "f", Arguments: "1"}, {Name: "f", Arguments: "2"}}},
		},
		{
			"whole calls, all number 0", Chat,
			[]string{call(`{"index":0,"id":"c1","function":{"name":"f","arguments":"1"}}`), call(`{"index":0,"id":"c2","function":{"name":"g","arguments":"2"}}`)},
			Message{ToolCalls: []ToolCall{{ID: "c1", Name: "f", Arguments: "1"}, {ID: "c2", Name: "g", Arguments: "2"}}},
		},
		{
			"parts without numbers", Chat,
			[]string{
				call(`{"id":"c1","function":{"name":"f","arguments":"1"}}`), call(`{"function":{"arguments":"a"}}`),
				call(`{"id":"c2","function":{"name":"g","arguments":"2"}}`), call(`{"id":"c1","function":{"arguments":"b"}}`),
			},
			Message{ToolCalls: []ToolCall{{ID: "c1", Name: "f", Arguments: "1ab"}, {ID: "c2", Name: "g", Arguments: "2"}}},
		},
		{
			"id and name repeated", Chat,
			[]string{call(`{"index":0,"id":"c1","function":{"name":"f","arguments":"1"}}`), call(`{"index":0,"id":"c1","function":{"name":"f","arguments":"a"}}`)},
			Message{ToolCalls: []ToolCall{{ID: "c1", Name: "f", Arguments: "1a"}}},
		},
		{
			"name repeated, no id", Chat,
			[]string{call(`{"index":0,"function":{"name":"f","arguments":"1"}}`), call(`{"index":0,"function":{"name":"f","arguments":"a"}}`)},
			Message{ToolCalls: []ToolCall{{Name: "f", Arguments: "1a"}}},
		},
		{
			"a new id with each part, as vLLM once sent", Chat,
			[]string{call(`{"index":0,"id":"c1","function":{"name":"f"}}`), call(`{"index":0,"id":"c9","function":{"arguments":"a"}}`)},
			Message{ToolCalls: []ToolCall{{ID: "c1", Name: "f", Arguments: "a"}}},
		},
		{"arguments as an object", Chat, []string{call(`{"index":0,"id":"c1","function":{"name":"f","arguments":{"a": 1}}}`)}, Message{ToolCalls: []ToolCall{{ID: "c1", Name: "f", Arguments: `{"a": 1}`}}}},
		{"number as a string", Chat, []string{call(`{"index":"0","id":"c1","function":{"name":"f"}}`), call(`{"index":"0","function":{"arguments":"a"}}`)}, Message{ToolCalls: []ToolCall{{ID: "c1", Name: "f", Arguments: "a"}}}},
		{"custom tool", Chat, []string{call(`{"id":"c1","type":"custom","custom":{"name":"f","input":"x"}}`)}, Message{ToolCalls: []ToolCall{{ID: "c1", Name: "f", Arguments: "x", Kind: CustomCall}}}},
		{
			"function_call", Chat,
			[]string{one(`{"function_call":{"name":"f","arguments":""}}`), one(`{"function_call":{"name":"f","arguments":"{"}}`), one(`{"function_call":{"arguments":"}"}}`)},
			Message{ToolCalls: []ToolCall{{Name: "f", Arguments: "{}", Kind: OldCall}}},
		},
		{
			"the text of the first choice", Chat,
			[]string{
				`{"choices":[{"index":1,"delta":{"content":"B","refusal":"R","reasoning":"T","tool_calls":[{"function":{"name":"x","arguments":"y"}}]}}]}`,
				`{"choices":[{"index":0,"delta":{"content":"A"}},{"index":1,"delta":{"content":"B"},"finish_reason":"length"}]}`,
			},
			Message{Text: "A"},
		},
		{"choices without numbers", Completions, []string{`{"choices":[{"text":"A"},{"text":"B"}]}`}, Message{Text: "A"}},
		{"a whole answer as one event", Chat, []string{`{"id":"c1","choices":[{"message":{"role":"assistant","content":"all"},"finish_reason":"stop"}]}`}, Message{ID: "c1", Text: "all", FinishReason: "stop"}},
		{"the first id and model stay", Chat, []string{`{"id":"","model":"m1"}`, `{"id":"c1","model":"m2"}`, `{"id":"c2"}`}, Message{ID: "c1", Model: "m1"}},
		{"a number as id", Completions, []string{`{"id":17}`}, Message{ID: "17"}},
		{"an empty finish reason is none", Chat, []string{`{"choices":[{"delta":{},"finish_reason":""}]}`}, Message{}},
		{"finish reason as an object", Chat, []string{`{"choices":[{"delta":{},"finish_reason":{"type":"length","length":4}}]}`}, Message{FinishReason: "length"}},
		{"error null", Chat, []string{`{"error":null,"choices":[{"delta":{"content":"a"}}]}`, `{"error":"","choices":[]}`, `{"error":false}`}, Message{Text: "a"}},
		{
			"unknown fields of all kinds", Chat,
			[]string{`{"a":[{"b":{}}],"n":1e999,"choices":[{"x":{"delta":{"content":"no"}},"delta":{"y":[[]],"audio":{"data":"QQ"},"content":"a"}}],"nvext":{}}`},
			Message{Text: "a"},
		},
		{
			"Anthropic input whole at the start", Messages,
			[]string{`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"f","input":{"a":1}}}`},
			Message{ToolCalls: []ToolCall{{ID: "t1", Name: "f", Arguments: `{"a":1}`}}},
		},
		{
			"Anthropic parts replace the start", Messages,
			[]string{
				`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"f","input":{}}}`,
				`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"b\":2}"}}`,
			},
			Message{ToolCalls: []ToolCall{{ID: "t1", Name: "f", Arguments: `{"b":2}`}}},
		},
		{
			"responses: two calls by item", Responses,
			[]string{
				`{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"f1","call_id":"c1","name":"a","arguments":""}}`,
				`{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","id":"f2","call_id":"c2","name":"b","arguments":""}}`,
				`{"type":"response.function_call_arguments.delta","item_id":"f2","output_index":1,"delta":"2"}`,
				`{"type":"response.function_call_arguments.delta","item_id":"f1","output_index":0,"delta":"1"}`,
				`{"type":"response.function_call_arguments.done","item_id":"f1","output_index":0,"arguments":"1"}`,
				`{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","id":"f2","call_id":"c2","name":"b","arguments":"2"}}`,
			},
			Message{ToolCalls: []ToolCall{{ID: "c1", Name: "a", Arguments: "1"}, {ID: "c2", Name: "b", Arguments: "2"}}},
		},
		{
			"responses: two calls by item alone", Responses,
			[]string{
				`{"type":"response.output_item.added","item":{"type":"function_call","id":"f1","call_id":"c1","name":"a"}}`,
				`{"type":"response.output_item.added","item":{"type":"function_call","id":"f2","call_id":"c2","name":"b"}}`,
				`{"type":"response.function_call_arguments.delta","item_id":"f1","delta":"1"}`,
				`{"type":"response.function_call_arguments.delta","item_id":"f2","delta":"2"}`,
			},
			Message{ToolCalls: []ToolCall{{ID: "c1", Name: "a", Arguments: "1"}, {ID: "c2", Name: "b", Arguments: "2"}}},
		},
		{
			"responses: a custom tool", Responses,
			[]string{
				`{"type":"response.output_item.added","output_index":0,"item":{"type":"custom_tool_call","id":"f1","call_id":"c1","name":"a","input":""}}`,
				`{"type":"response.custom_tool_call_input.delta","item_id":"f1","output_index":0,"delta":"x "}`,
				`{"type":"response.custom_tool_call_input.delta","item_id":"f1","output_index":0,"delta":"y"}`,
				`{"type":"response.custom_tool_call_input.done","item_id":"f1","output_index":0,"input":"x y"}`,
				`{"type":"response.output_item.done","output_index":0,"item":{"type":"custom_tool_call","id":"f1","call_id":"c1","name":"a","input":"x y"}}`,
			},
			Message{ToolCalls: []ToolCall{{ID: "c1", Name: "a", Arguments: "x y", Kind: CustomCall}}},
		},
		{
			"responses: a custom tool in the last event", Responses,
			[]string{`{"type":"response.completed","response":{"output":[{"type":"custom_tool_call","id":"f1","call_id":"c1","name":"a","input":""}]}}`},
			Message{FinishReason: "completed", ToolCalls: []ToolCall{{ID: "c1", Name: "a", Kind: CustomCall}}},
		},
		{
			"Anthropic's own tools are not the client's to call", Messages,
			[]string{
				`{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"s1","name":"web_search","input":{}}}`,
				`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"q\":1}"}}`,
				`{"type":"content_block_start","index":1,"content_block":{"type":"mcp_tool_use","id":"s2","name":"x","server_name":"y","input":{"b":2}}}`,
				`{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t1","name":"f","input":{"a":1}}}`,
			},
			Message{ToolCalls: []ToolCall{{ID: "t1", Name: "f", Arguments: `{"a":1}`}}},
		},
		{
			"nothing counts after the end", Chat,
			[]string{one(`{"content":"a"}`), `[DONE]`, one(`{"content":"late"}`), `garbage`, `{"error":"late"}`},
			Message{Text: "a"},
		},
		{
			"responses: done repeats what came", Responses,
			[]string{
				`{"type":"response.output_text.delta","delta":"a"}`, `{"type":"response.output_text.done","text":"a"}`,
				`{"type":"response.completed","response":{"id":"r1","model":"m1","output":[{"type":"message","content":[{"type":"output_text","text":"a"}]}]}}`,
			},
			Message{ID: "r1", Model: "m1", Text: "a", FinishReason: "completed"},
		},
		{
			"responses: whole answer in the last event", Responses,
			[]string{`{"type":"response.completed","response":{"id":"r1","output":[{"type":"reasoning","summary":[{"type":"summary_text","text":"t"}]},` +
				`{"type":"message","content":[{"type":"output_text","text":"a"},{"type":"refusal","refusal":"no"}]},{"type":"function_call","id":"f1","call_id":"c1","name":"n","arguments":"{}"}]}}`},
			Message{ID: "r1", Text: "a", Reasoning: "t", Refusal: "no", FinishReason: "completed", ToolCalls: []ToolCall{{ID: "c1", Name: "n", Arguments: "{}"}}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := NewDecoder(test.api)
			for _, data := range test.data {
				_, err := d.Event("", data)
				require.NoError(t, err)
			}
			if test.want.ID == "" && strings.Contains(test.data[0], `"id":"c1","model":"m1"`) {
				test.want.ID, test.want.Model = "c1", "m1"
			}
			require.Equal(t, &test.want, d.Message())
		})
	}
}

// How an answer of the responses API ended is what its last event says: by its status, or by its name where it has none.
// Servers use one name for every end (vLLM sends response.completed for what was cut short), so the worse of both counts.
func TestTheEndOfAResponse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, response string
		finish         string
		want           ErrorType
		code, message  string
	}{
		{"completed", `{"status":"completed","error":null,"incomplete_details":null}`, "completed", "", "", ""},
		{"completed", `{"status":"failed","error":{"code":"server_error","message":"boom"}}`, "", ErrStream, "server_error", "boom"},
		{"completed", `{"status":"failed"}`, "", ErrStream, "failed", "the server reports the answer as failed"},
		{"completed", `{"status":"cancelled"}`, "", ErrStream, "cancelled", "the server reports the answer as cancelled"},
		{"completed", `{"error":{"code":"server_error","message":"boom"}}`, "", ErrStream, "server_error", "boom"},
		{"completed", `{"status":"completed","error":{"code":"server_error","message":"boom"}}`, "", ErrStream, "server_error", "boom"},
		{"completed", `{"status":"failed","error":{"code":"context_length_exceeded","message":"m"}}`, "", ErrContextLength, "context_length_exceeded", "m"},
		{"completed", `{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}`, "max_output_tokens", "", "", ""},
		{"completed", `{"incomplete_details":{"reason":"max_output_tokens"}}`, "max_output_tokens", "", "", ""},
		{"completed", `{"status":"in_progress"}`, "", ErrTruncated, "", `the answer is not complete: its status is "in_progress"`},
		{"completed", `{"status":"queued"}`, "", ErrTruncated, "", `the answer is not complete: its status is "queued"`},
		{"incomplete", `{"status":"completed"}`, "incomplete", "", "", ""},
		{"incomplete", `{"status":"failed"}`, "", ErrStream, "failed", "the server reports the answer as failed"},
		{"incomplete", `{"incomplete_details":{"reason":"content_filter"}}`, "content_filter", "", "", ""},
		{"failed", `{"status":"completed"}`, "", ErrStream, "failed", "the server reports the answer as failed"},
		{"failed", `{"status":"in_progress"}`, "", ErrStream, "failed", "the server reports the answer as failed"},
		{"cancelled", `{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}`, "", ErrStream, "cancelled", "the server reports the answer as cancelled"},
	} {
		t.Run(test.name+" "+test.response, func(t *testing.T) {
			t.Parallel()
			response := strings.TrimSuffix(test.response, "}") + `,"output":[],"usage":{"input_tokens":3,"output_tokens":2}}`
			d := NewDecoder(Responses)
			_, err := d.Event("", `{"type":"response.output_text.delta","delta":"a"}`)
			require.NoError(t, err)
			delta, err := d.Event("response."+test.name, `{"response":`+response+`}`)
			require.Equal(t, Delta{Done: true}, delta)
			if e := requireType(t, test.want, err); e != nil {
				require.Equal(t, []string{test.code, test.message}, []string{e.Code, e.Message})
			}
			require.Equal(t, test.finish, d.Message().FinishReason)
			require.Equal(t, Usage{PromptTokens: intp(3), CompletionTokens: intp(2)}, d.Message().Usage, "a failed answer has its usage too")

			if test.name == "completed" { // the body that was not streamed has no name, and says the same
				whole := NewDecoder(Responses)
				if e := requireType(t, test.want, whole.Body([]byte(response))); e != nil {
					require.Equal(t, test.code, e.Code)
				}
				require.Equal(t, test.finish, whole.Message().FinishReason)
			}
		})
	}
}

// A call without arguments: whatever the wire, its opening is the one chunk, and its arguments are JSON.
func TestACallWithoutArguments(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		api  API
		data []string
	}{
		{"chat", Chat, []string{
			one(`{"role":"assistant","content":null}`), one(`{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}]}`),
			`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`, `[DONE]`,
		}},
		{"chat, the name again with each part", Chat, []string{
			one(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f"}}]}`), one(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":""}}]}`),
			`[DONE]`,
		}},
		{"chat, white space", Chat, []string{one(`{"tool_calls":[{"id":"c1","function":{"name":"f","arguments":" "}}]}`), `[DONE]`}},
		{"responses", Responses, []string{
			`{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"i1","call_id":"c1","name":"f","arguments":""}}`,
			`{"type":"response.function_call_arguments.done","item_id":"i1","output_index":0,"arguments":""}`,
			`{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","id":"i1","call_id":"c1","name":"f","arguments":""}}`,
			`{"type":"response.completed","response":{"status":"completed","output":[{"type":"function_call","id":"i1","call_id":"c1","name":"f","arguments":""}]}}`,
		}},
		{"responses, all in the last event", Responses, []string{
			`{"type":"response.completed","response":{"status":"completed","output":[{"type":"function_call","id":"i1","call_id":"c1","name":"f","arguments":""}]}}`,
		}},
		{"messages", Messages, []string{
			`{"type":"message_start","message":{"id":"x","content":[]}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c1","name":"f","input":{}}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":""}}`,
			`{"type":"content_block_stop","index":0}`, `{"type":"message_delta","delta":{"stop_reason":"tool_use"}}`, `{"type":"message_stop"}`,
		}},
		{"messages, without an input", Messages, []string{
			`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c1","name":"f"}}`, `{"type":"message_stop"}`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := NewDecoder(test.api)
			chunks := 0
			for _, data := range test.data {
				delta, err := d.Event("", data)
				require.NoError(t, err)
				if delta.Output {
					require.True(t, delta.Text)
					chunks++
				}
			}
			require.NoError(t, d.Finish())
			require.Equal(t, 1, chunks)
			require.Equal(t, []ToolCall{{ID: "c1", Name: "f", Arguments: "{}"}}, d.Message().ToolCalls)
		})
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		api  API
		data []string
		want Usage
	}{
		{"none", Chat, []string{one(`{"content":"a"}`)}, Usage{}},
		{"null", Chat, []string{`{"choices":[],"usage":null}`}, Usage{}},
		{"empty", Chat, []string{`{"choices":[],"usage":{}}`}, Usage{}},
		{"no object", Chat, []string{`{"choices":[],"usage":[1]}`, `{"choices":[],"usage":7}`}, Usage{}},
		{"no output counts zero", Chat, []string{`{"usage":{"prompt_tokens":7,"completion_tokens":0}}`}, Usage{PromptTokens: intp(7), CompletionTokens: intp(0)}},
		// Places that nobody filled in: Ollama sends such usage with every chunk of a completion but the last, aimock at the end.
		{"no prompt has no tokens", Chat, []string{`{"usage":{"prompt_tokens":0,"completion_tokens":0,"prompt_tokens_details":{"cached_tokens":0}}}`}, Usage{CompletionTokens: intp(0)}},
		{"zero beside output", Completions, []string{`{"choices":[{"text":"a"}],"usage":{"prompt_tokens":0,"completion_tokens":0,"completion_tokens_details":{"reasoning_tokens":0}}}`}, Usage{}},
		{"zero after output", Responses, []string{`{"type":"response.output_text.delta","delta":"a"}`, `{"type":"response.completed","response":{"usage":{"input_tokens":0,"output_tokens":0}}}`}, Usage{}},
		{"zero until the end", Completions, []string{`{"choices":[{"text":"a"}],"usage":{"prompt_tokens":0,"completion_tokens":0}}`, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}`}, Usage{PromptTokens: intp(9), CompletionTokens: intp(3)}},
		{"zero beside output of another answer", Chat, []string{`{"choices":[{"index":1,"delta":{"content":"x"}}],"usage":{"completion_tokens":0}}`}, Usage{}},
		{"zero beside a tool's name", Chat, []string{one(`{"tool_calls":[{"index":0,"id":"x","function":{"name":"f"}}]}`), `{"usage":{"completion_tokens":0}}`}, Usage{}},
		{"Anthropic's zero after output", Messages, []string{`{"type":"content_block_delta","index":0,"delta":{"text":"a"}}`, `{"type":"message_delta","usage":{"output_tokens":0}}`}, Usage{}},
		{
			"Anthropic broken off: what had been written at the start is no count", Messages,
			[]string{`{"type":"message_start","message":{"usage":{"input_tokens":10,"output_tokens":4}}}`, `{"type":"content_block_delta","index":0,"delta":{"text":"a"}}`},
			Usage{PromptTokens: intp(10)},
		},
		{
			"details", Chat,
			[]string{`{"usage":{"prompt_tokens":9,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":8},"completion_tokens_details":{"reasoning_tokens":3}}}`},
			Usage{intp(9), intp(5), intp(8), intp(3)},
		},
		{"null details", Chat, []string{`{"usage":{"prompt_tokens":9,"prompt_tokens_details":null,"completion_tokens_details":null}}`}, Usage{PromptTokens: intp(9)}},
		{"odd details", Chat, []string{`{"usage":{"prompt_tokens":9,"prompt_tokens_details":[1]}}`}, Usage{PromptTokens: intp(9)}},
		{"DeepSeek", Chat, []string{`{"usage":{"prompt_tokens":9,"prompt_cache_hit_tokens":6,"prompt_cache_miss_tokens":3}}`}, Usage{PromptTokens: intp(9), CachedTokens: intp(6)}},
		{
			"DeepSeek, details too", Chat,
			[]string{`{"usage":{"prompt_tokens_details":{"cached_tokens":8},"prompt_cache_hit_tokens":6}}`, `{"usage":{"prompt_cache_hit_tokens":6,"prompt_tokens_details":{"cached_tokens":8}}}`},
			Usage{CachedTokens: intp(8)},
		},
		{"SGLang", Chat, []string{`{"usage":{"completion_tokens":9,"reasoning_tokens":4}}`}, Usage{CompletionTokens: intp(9), ReasoningTokens: intp(4)}},
		{"Moonshot", Chat, []string{`{"choices":[{"index":0,"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":9,"completion_tokens":4,"cached_tokens":2}}]}`}, Usage{PromptTokens: intp(9), CompletionTokens: intp(4), CachedTokens: intp(2)}},
		{"Groq", Chat, []string{`{"choices":[],"x_groq":{"id":"r","usage":{"prompt_tokens":9,"completion_tokens":4}}}`}, Usage{PromptTokens: intp(9), CompletionTokens: intp(4)}},
		{"strings", Chat, []string{`{"usage":{"prompt_tokens":"9","completion_tokens":" 4 "}}`}, Usage{PromptTokens: intp(9), CompletionTokens: intp(4)}},
		{"whole floats", Chat, []string{`{"usage":{"prompt_tokens":9.0,"completion_tokens":4e1}}`}, Usage{PromptTokens: intp(9), CompletionTokens: intp(40)}},
		{"nonsense", Chat, []string{`{"usage":{"prompt_tokens":-1,"completion_tokens":1.5,"prompt_tokens_details":{"cached_tokens":1e99},"reasoning_tokens":"NaN"}}`}, Usage{}},
		{"the last report wins", Chat, []string{`{"usage":{"prompt_tokens":9,"completion_tokens":1}}`, `{"usage":{"prompt_tokens":9,"completion_tokens":2}}`, `{"usage":null}`}, Usage{PromptTokens: intp(9), CompletionTokens: intp(2)}},
		{"a later report that lacks a number", Chat, []string{`{"usage":{"prompt_tokens":9,"completion_tokens":1}}`, `{"usage":{"prompt_tokens":9}}`}, Usage{PromptTokens: intp(9), CompletionTokens: intp(1)}},
		{"after the finish reason", Chat, []string{stop, `{"choices":[],"usage":{"completion_tokens":2}}`}, Usage{CompletionTokens: intp(2)}},
		{"after [DONE]", Chat, []string{stop, `[DONE]`, `{"choices":[],"usage":{"completion_tokens":2}}`}, Usage{CompletionTokens: intp(2)}},
		{"timings are no usage", Chat, []string{`{"choices":[],"timings":{"prompt_n":4,"predicted_n":5}}`}, Usage{}},
		{"timings beside usage", Completions, []string{`{"usage":{"prompt_tokens":24,"completion_tokens":5},"timings":{"prompt_n":1,"predicted_n":9}}`}, Usage{PromptTokens: intp(24), CompletionTokens: intp(5)}},
		{
			"Anthropic adds the cache", Messages,
			[]string{`{"type":"message_start","message":{"usage":{"input_tokens":10,"cache_creation_input_tokens":5,"cache_read_input_tokens":100,"output_tokens":1}}}`, `{"type":"message_delta","delta":{},"usage":{"output_tokens":7}}`},
			Usage{PromptTokens: intp(115), CompletionTokens: intp(7), CachedTokens: intp(100)},
		},
		{
			"Anthropic repeats in message_delta", Messages,
			[]string{
				`{"type":"message_start","message":{"usage":{"input_tokens":10,"cache_read_input_tokens":100,"output_tokens":3}}}`,
				`{"type":"message_delta","delta":{},"usage":{"input_tokens":10,"cache_read_input_tokens":100,"output_tokens":5}}`,
				`{"type":"message_delta","delta":{},"usage":{"input_tokens":0,"output_tokens":9}}`,
			},
			Usage{PromptTokens: intp(110), CompletionTokens: intp(9), CachedTokens: intp(100)},
		},
		{"Anthropic late", Messages, []string{`{"type":"message_start","message":{"usage":{"input_tokens":0}}}`, `{"type":"message_delta","usage":{"input_tokens":31,"output_tokens":2}}`}, Usage{PromptTokens: intp(31), CompletionTokens: intp(2)}},
		{"Anthropic without input", Messages, []string{`{"type":"message_delta","usage":{"output_tokens":2,"cache_read_input_tokens":4}}`}, Usage{CompletionTokens: intp(2), CachedTokens: intp(4)}},
		{
			"responses", Responses,
			[]string{`{"type":"response.completed","response":{"usage":{"input_tokens":9,"output_tokens":5,"input_tokens_details":{"cached_tokens":8},"output_tokens_details":{"reasoning_tokens":3}}}}`},
			Usage{intp(9), intp(5), intp(8), intp(3)},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := NewDecoder(test.api)
			for _, data := range test.data {
				_, err := d.Event("", data)
				require.NoError(t, err)
			}
			require.Equal(t, test.want, d.Message().Usage)
		})
	}
}

// How many tokens each chunk holds, where the server says so, and nothing where it does not.
func TestTokensOfAChunk(t *testing.T) {
	t.Parallel()
	used := func(n int, text string) string {
		return fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":%q}}],"usage":{"completion_tokens":%d}}`, text, n)
	}
	for _, test := range []struct {
		name string
		data []string
		want []int
	}{
		{"not said", []string{one(`{"content":"a"}`)}, []int{0}},
		{"continuous usage", []string{used(0, ""), used(1, "a"), used(3, "b"), used(4, ""), used(6, "c"), used(6, "")}, []int{0, 1, 2, 0, 3, 0}},
		{"usage before the text of its chunk", []string{`{"usage":{"completion_tokens":2},"choices":[{"delta":{"content":"a"}}]}`}, []int{2}},
		{"zeros until the end, with text", []string{used(0, "a"), used(9, "b")}, []int{0, 0}},
		{"usage only at the end, with text", []string{one(`{"content":"a"}`), used(9, "b")}, []int{0, 0}},
		{"a gap in the usage", []string{used(1, "a"), one(`{"content":"b"}`), used(5, "c")}, []int{1, 0, 0}},
		{"a count that falls", []string{used(5, "a"), used(3, "b"), used(6, "c")}, []int{5, 0, 1}},
		{"several answers", []string{`{"choices":[{"index":1,"delta":{"content":"x"}}],"usage":{"completion_tokens":1}}`, used(1, "a")}, []int{0, 0}},
		{"token ids", []string{`{"choices":[{"delta":{"content":"a"},"token_ids":[1,2,3]}]}`, `{"choices":[{"delta":{"content":""},"token_ids":[4]}]}`, `{"choices":[{"delta":{"content":"b"},"token_ids":[5]}]}`}, []int{3, 0, 2}},
		{"null token ids", []string{`{"choices":[{"delta":{"content":"a"},"token_ids":null}]}`}, []int{0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := NewDecoder(Chat)
			var got []int
			for _, data := range test.data {
				delta, err := d.Event("", data)
				require.NoError(t, err)
				got = append(got, delta.Tokens)
			}
			require.Equal(t, test.want, got)
		})
	}
}

func TestErrorsInAStream(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name        string
		api         API
		event, data string
		want        ErrorType
		code, kind  string
		message     string
	}{
		{"object", Chat, "", `{"error":{"message":"boom","type":"server_error","code":500}}`, ErrStream, "500", "server_error", "boom"},
		{"string", Chat, "", `{"error":"boom"}`, ErrStream, "", "", "boom"},
		{"string with its type, as TGI's", Chat, "", `{"error":"Model is overloaded","error_type":"overloaded"}`, ErrStream, "", "overloaded", "Model is overloaded"},
		{"TGI's other form", Chat, "", `{"error":{"message":"boom","http_status_code":424}}`, ErrStream, "424", "", "boom"},
		{"code 429", Chat, "", `{"error":{"message":"queue full","type":"RateLimitError","param":null,"code":429}}`, ErrStream, "429", "RateLimitError", "queue full"},
		{"code as a string", Completions, "", `{"error":{"message":"slow down","code":"rate_limit_exceeded"}}`, ErrStream, "rate_limit_exceeded", "", "slow down"},
		{"code null", Chat, "", `{"error":{"message":"boom","code":null}}`, ErrStream, "", "", "boom"},
		{"flat, as older vLLM and SGLang", Chat, "", `{"object":"error","message":"boom","type":"InternalServerError","param":null,"code":500}`, ErrStream, "500", "InternalServerError", "boom"},
		{"empty object", Chat, "", `{"error":{}}`, ErrStream, "", "", "the server reported an error without a message"},
		{"number", Chat, "", `{"error":7}`, ErrStream, "", "", "7"},
		{"beside a choice", Chat, "", `{"choices":[{"delta":{"content":""},"finish_reason":"error"}],"error":{"code":502,"message":"boom"}}`, ErrStream, "502", "", "boom"},
		{"event: error", Chat, "error", `{"error":{"message":"boom","code":500}}`, ErrStream, "500", "", "boom"},
		{"event: error, flat", Chat, "error", `{"message":"boom","code":500}`, ErrStream, "500", "", "boom"},
		{"event: error, plain", Chat, "error", `boom`, ErrStream, "", "", "boom"},
		{"event: error, empty", Chat, "error", ``, ErrStream, "", "", "the server reported an error without a message"},
		{"finish reason error", Chat, "", `{"choices":[{"delta":{},"finish_reason":"error"}]}`, ErrStream, "error", "", `the server gave the answer up: finish_reason "error"`},
		{"finish reason of DeepSeek's overload", Chat, "", `{"choices":[{"delta":{},"finish_reason":"insufficient_system_resource"}]}`, ErrStream, "insufficient_system_resource", "", `the server gave the answer up: finish_reason "insufficient_system_resource"`},
		{"finish reason timeout, as TensorRT-LLM's", Chat, "", `{"choices":[{"delta":{},"finish_reason":"timeout"}]}`, ErrStream, "timeout", "", `the server gave the answer up: finish_reason "timeout"`},
		{"finish reason cancelled, of another answer", Chat, "", `{"choices":[{"index":1,"delta":{},"finish_reason":"cancelled"}]}`, ErrStream, "cancelled", "", `the server gave the answer up: finish_reason "cancelled"`},
		{"stop reason of a gateway in front of an engine that gave up", Messages, "", `{"type":"message_delta","delta":{"stop_reason":"abort"}}`, ErrStream, "abort", "", `the server gave the answer up: stop_reason "abort"`},
		{"finish reason abort", Completions, "", `{"choices":[{"text":"","finish_reason":"abort"}]}`, ErrStream, "abort", "", `the server gave the answer up: finish_reason "abort"`},
		{"Anthropic", Messages, "error", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, ErrStream, "", "overloaded_error", "Overloaded"},
		{"Anthropic, unnamed", Messages, "", `{"type":"error","error":{"type":"api_error","message":"boom"}}`, ErrStream, "", "api_error", "boom"},
		{"response.failed", Responses, "response.failed", `{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"boom"}}}`, ErrStream, "server_error", "", "boom"},
		{"response.failed without a word", Responses, "", `{"type":"response.failed","response":{}}`, ErrStream, "failed", "", "the server reports the answer as failed"},
		{"response.cancelled", Responses, "", `{"type":"response.cancelled","response":{"error":null}}`, ErrStream, "cancelled", "", "the server reports the answer as cancelled"},
		{"responses error event", Responses, "error", `{"type":"error","code":"server_error","message":"boom","param":null}`, ErrStream, "server_error", "error", "boom"},
		{"responses error, unnamed", Responses, "", `{"type":"error","code":"server_error","message":"boom"}`, ErrStream, "server_error", "error", "boom"},
		{"responses, as vLLM's", Responses, "", `{"error":{"message":"boom","code":400}}`, ErrStream, "400", "", "boom"},
		{"context by code", Chat, "", `{"error":{"message":"too much","code":"context_length_exceeded"}}`, ErrContextLength, "context_length_exceeded", "", "too much"},
		{"context by type", Chat, "", `{"error":{"message":"too much","type":"exceed_context_size_error","code":400}}`, ErrContextLength, "400", "exceed_context_size_error", "too much"},
		{"context in response.failed", Responses, "", `{"type":"response.failed","response":{"error":{"code":"context_length_exceeded","message":"m"}}}`, ErrContextLength, "context_length_exceeded", "", "m"},
		{"context in Anthropic", Messages, "error", `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens > 5 maximum"}}`, ErrContextLength, "", "invalid_request_error", "prompt is too long: 9 tokens > 5 maximum"},
		{"a full queue is no context error", Chat, "", `{"error":{"message":"maximum context length","code":429}}`, ErrStream, "429", "", "maximum context length"},

		{"invalid JSON", Chat, "", `{"choices":[`, ErrDecode, "", "", `invalid JSON: "{\"choices\":["`},
		{"text", Chat, "", `hello`, ErrDecode, "", "", `invalid JSON: "hello"`},
		{"a trailing comma", Chat, "", `{"a":1,}`, ErrDecode, "", "", `invalid JSON: "{\"a\":1,}"`},
		{"two values", Chat, "", `{} {}`, ErrDecode, "", "", `invalid JSON: "{} {}"`},
		{"no object", Chat, "", `[]`, ErrDecode, "", "", `expected a JSON object: "[]"`},
		{"null", Messages, "", `null`, ErrDecode, "", "", `expected a JSON object: "null"`},
		{"choices no list", Chat, "", `{"choices":{}}`, ErrDecode, "", "", `field "choices" must be a list: "{}"`},
		{"choice no object", Chat, "", `{"choices":["a"]}`, ErrDecode, "", "", `field "choices" must be a list of objects: "[\"a\"]"`},
		{"delta no object", Chat, "", one(`"a"`), ErrDecode, "", "", `field "delta" must be an object: "\"a\""`},
		{"content an object", Chat, "", one(`{"content":{"a":1}}`), ErrDecode, "", "", `field "content" must be a string: "{\"a\":1}"`},
		{"content a number", Chat, "", one(`{"content":7}`), ErrDecode, "", "", `field "content" must be a string: "7"`},
		{"content a boolean", Chat, "", one(`{"content":true}`), ErrDecode, "", "", `field "content" must be a string: "true"`},
		{"reasoning an object", Chat, "", one(`{"reasoning":{}}`), ErrDecode, "", "", `field "reasoning" must be a string: "{}"`},
		{"refusal a list", Chat, "", one(`{"refusal":[]}`), ErrDecode, "", "", `field "refusal" must be a string: "[]"`},
		{"arguments a list", Chat, "", one(`{"tool_calls":[{"function":{"arguments":[]}}]}`), ErrDecode, "", "", `field "arguments" must be a string: "[]"`},
		{"tool calls no list", Chat, "", one(`{"tool_calls":{}}`), ErrDecode, "", "", `field "tool_calls" must be a list: "{}"`},
		{"function no object", Chat, "", one(`{"tool_calls":[{"function":"f"}]}`), ErrDecode, "", "", `a tool call must be an object: "\"f\""`},
		{"text an object", Completions, "", `{"choices":[{"text":{}}]}`, ErrDecode, "", "", `field "text" must be a string: "{}"`},
		{"Anthropic text a number", Messages, "", `{"type":"content_block_delta","delta":{"text":1}}`, ErrDecode, "", "", `field "text" must be a string: "1"`},
		{"Anthropic delta missing", Messages, "", `{"type":"content_block_delta"}`, ErrDecode, "", "", `field "delta" must be an object: ""`},
		{"responses delta an object", Responses, "", `{"type":"response.output_text.delta","delta":{}}`, ErrDecode, "", "", `field "delta" must be a string: "{}"`},
		{"unknown API", "grpc", "", `{}`, ErrDecode, "", "", `unknown API "grpc": expected one of chat, completions, responses, messages`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := NewDecoder(test.api)
			delta, err := d.Event(test.event, test.data)
			require.False(t, delta.Output)
			e := requireType(t, test.want, err)
			require.Equal(t, &Error{Type: test.want, Code: test.code, Kind: test.kind, Message: test.message}, e)
			require.Same(t, e, d.Finish())

			// What follows changes nothing.
			for _, later := range []string{one(`{"content":"late"}`), `{"error":"later"}`, `garbage`, ``} {
				delta, err = d.Event("", later)
				require.NoError(t, err)
				require.Equal(t, Delta{}, delta)
			}
			require.Empty(t, d.Message().Text)
			require.Same(t, e, d.Finish())
		})
	}
}

// An excerpt of bad data is short, on one line, and shows no key.
func TestExcerptIsBoundedAndHarmless(t *testing.T) {
	t.Parallel()
	secret := "sk-proj-abcdefghijklmnop"
	_, err := NewDecoder(Chat).Event("", "no json\nBearer abcdef0123456789 "+secret+"\x00"+strings.Repeat("é", 1<<20))
	e := requireType(t, ErrDecode, err)
	require.Less(t, len(e.Message), 300)
	require.NotContains(t, e.Message, "\n")
	require.NotContains(t, e.Message, secret)
	require.NotContains(t, e.Message, "abcdef0123456789")
	require.Contains(t, e.Message, `"no json [redacted] [redacted] éé`)
	require.Contains(t, e.Message, `é…"`)
}

// An event can carry output and end in an error: the output counts.
func TestOutputBeforeAnErrorIsKept(t *testing.T) {
	t.Parallel()
	d := NewDecoder(Chat)
	delta, err := d.Event("", `{"choices":[{"index":0,"delta":{"content":"last"},"finish_reason":"abort"}]}`)
	_ = requireType(t, ErrStream, err)
	require.Equal(t, Delta{Output: true, Text: true}, delta)
	require.Equal(t, "last", d.Message().Text)
	require.Equal(t, "abort", d.Message().FinishReason)
}

func TestUsageAfterAnErrorIsTaken(t *testing.T) {
	t.Parallel()
	for api, late := range map[API]string{
		Chat:      `{"choices":[],"usage":{"completion_tokens":7}}`,
		Responses: `{"type":"response.failed","response":{"usage":{"output_tokens":7}}}`,
		Messages:  `{"type":"message_delta","usage":{"output_tokens":7}}`,
	} {
		d := NewDecoder(api)
		_, err := d.Event("error", "boom")
		require.Error(t, err)
		_, err = d.Event("", late)
		require.NoError(t, err)
		require.Equal(t, intp(7), d.Message().Usage.CompletionTokens, api)
	}
}

// A stream is complete with a finish reason or a terminal marker, and truncated with neither.
func TestFinish(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		api  API
		data []string
		want ErrorType
	}{
		{"nothing", Chat, nil, ErrTruncated},
		{"text alone", Chat, []string{one(`{"content":"a"}`)}, ErrTruncated},
		{"finish reason without [DONE]", Chat, []string{one(`{"content":"a"}`), stop}, ""},
		{"[DONE] without finish reason", Chat, []string{one(`{"content":"a"}`), `[DONE]`}, ""},
		{"null finish reason", Chat, []string{`{"choices":[{"delta":{},"finish_reason":null}]}`}, ErrTruncated},
		{"usage alone", Chat, []string{`{"choices":[],"usage":{"completion_tokens":1}}`}, ErrTruncated},
		{"one of two answers", Chat, []string{`{"choices":[{"index":1,"delta":{"content":"b"}}]}`, stop}, ErrTruncated},
		{"both answers", Chat, []string{`{"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":"stop"}]}`, stop, `{"choices":[{"index":1,"delta":{}}]}`}, ""},
		{"the other alone", Chat, []string{`{"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":"stop"}]}`}, ErrTruncated},
		{"completions", Completions, []string{`{"choices":[{"text":"a","finish_reason":"length"}]}`}, ""},
		{"completions without", Completions, []string{`{"choices":[{"text":"a","finish_reason":null}]}`}, ErrTruncated},
		{"Anthropic stop reason", Messages, []string{`{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`}, ""},
		{"Anthropic block stop", Messages, []string{`{"type":"content_block_stop","index":0}`}, ErrTruncated},
		{"Anthropic stop", Messages, []string{
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}`, `{"type":"message_stop"}`,
		}, ""},
		{"Anthropic stop alone", Messages, []string{`{"type":"message_stop"}`}, ErrDecode},
		{"Anthropic stop of an empty answer", Messages, []string{
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`, `{"type":"message_stop"}`,
		}, ""},
		{"[DONE] alone", Chat, []string{`[DONE]`}, ErrDecode},
		{"[DONE] after a role", Chat, []string{one(`{"role":"assistant","content":""}`), `[DONE]`}, ErrDecode},
		{"[DONE] alone, completions", Completions, []string{`[DONE]`}, ErrDecode},
		{"an empty answer", Chat, []string{one(`{"role":"assistant","content":""}`), stop, `[DONE]`}, ""},
		{"usage of no tokens", Chat, []string{`{"choices":[],"usage":{"completion_tokens":0}}`, `[DONE]`}, ""},
		{"a call without arguments", Chat, []string{one(`{"tool_calls":[{"index":0,"id":"c","function":{"name":"f"}}]}`), `[DONE]`}, ""},
		{"the other answer is empty", Chat, []string{`{"choices":[{"index":1,"delta":{}}]}`, `[DONE]`}, ""},
		{"responses text done", Responses, []string{`{"type":"response.output_text.done","text":"a"}`}, ErrTruncated},
		{"responses completed", Responses, []string{`{"type":"response.completed","response":{}}`}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := NewDecoder(test.api)
			for _, data := range test.data {
				_, err := d.Event("", data)
				require.NoError(t, err)
			}
			before := d.Message()
			_ = requireType(t, test.want, d.Finish())
			_ = requireType(t, test.want, d.Finish())
			require.Equal(t, before, d.Message())
		})
	}
}

func TestBody(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		api  API
		body string
		want Message
	}{
		{
			"chat", Chat,
			`{"id":"c1","model":"m1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi","reasoning_content":"hm","reasoning":"hm","refusal":null,"tool_calls":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"completion_tokens_details":{"reasoning_tokens":1}}}`,
			Message{ID: "c1", Model: "m1", Text: "hi", Reasoning: "hm", FinishReason: "stop", Usage: Usage{PromptTokens: intp(3), CompletionTokens: intp(2), ReasoningTokens: intp(1)}},
		},
		{
			"chat with tools", Chat,
			`{"choices":[{"message":{"content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"f","arguments":"[]"}}]},"finish_reason":"tool_calls"}]}`,
			Message{ToolCalls: []ToolCall{{ID: "a", Name: "f", Arguments: "{}"}, {ID: "b", Name: "f", Arguments: "[]"}}, FinishReason: "tool_calls"},
		},
		{"chat with several answers", Chat, `{"choices":[{"index":1,"message":{"content":"B"},"finish_reason":"length"},{"index":0,"message":{"content":"A"},"finish_reason":"stop"}]}`, Message{Text: "A", FinishReason: "stop"}},
		{"chat without finish reason", Chat, `{"choices":[{"message":{"content":"A"},"finish_reason":null}]}`, Message{Text: "A"}},
		{"chat with function_call", Chat, `{"choices":[{"message":{"content":null,"function_call":{"name":"f","arguments":"{}"}}}]}`, Message{ToolCalls: []ToolCall{{Name: "f", Arguments: "{}", Kind: OldCall}}}},
		{
			"completions", Completions, "\n" + `{"id":"c1","choices":[{"text":"hi","index":0,"finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}}` + "\n",
			Message{ID: "c1", Text: "hi", FinishReason: "length", Usage: Usage{PromptTokens: intp(3), CompletionTokens: intp(2), CachedTokens: intp(0)}},
		},
		{
			"messages", Messages,
			`{"id":"m1","type":"message","role":"assistant","model":"c","content":[{"type":"thinking","thinking":"hm","signature":"x"},{"type":"text","text":"hi"},{"type":"tool_use","id":"t","name":"f","input":{"a":1}}],"stop_reason":"tool_use","usage":{"input_tokens":3,"cache_read_input_tokens":4,"output_tokens":2}}`,
			Message{ID: "m1", Model: "c", Text: "hi", Reasoning: "hm", ToolCalls: []ToolCall{{ID: "t", Name: "f", Arguments: `{"a":1}`}}, FinishReason: "tool_use", Usage: Usage{PromptTokens: intp(7), CompletionTokens: intp(2), CachedTokens: intp(4)}},
		},
		{
			"responses", Responses,
			`{"id":"r1","model":"m","object":"response","status":"completed","error":null,"output":[{"type":"reasoning","content":[{"type":"reasoning_text","text":"hm"}],"summary":[]},{"type":"message","content":[{"type":"output_text","text":"hi"}]},{"type":"function_call","id":"f1","call_id":"c1","name":"f","arguments":"{}"},{"type":"web_search_call"}],"usage":{"input_tokens":3,"output_tokens":2}}`,
			Message{ID: "r1", Model: "m", Text: "hi", Reasoning: "hm", ToolCalls: []ToolCall{{ID: "c1", Name: "f", Arguments: "{}"}}, FinishReason: "completed", Usage: Usage{PromptTokens: intp(3), CompletionTokens: intp(2)}},
		},
		{"responses cut short", Responses, `{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[]}`, Message{FinishReason: "max_output_tokens"}},
		{"responses without status", Responses, `{"output":[]}`, Message{FinishReason: "completed"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := NewDecoder(test.api)
			require.NoError(t, d.Body([]byte(test.body)))
			require.NoError(t, d.Finish())
			require.Equal(t, &test.want, d.Message())
		})
	}
}

func TestBodyErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		api     API
		body    string
		want    ErrorType
		message string
	}{
		{"invalid", Chat, `{malformed`, ErrDecode, `invalid JSON: "{malformed"`},
		{"empty", Chat, ``, ErrDecode, `invalid JSON: ""`},
		{"HTML", Chat, `<html>`, ErrDecode, `invalid JSON: "<html>"`},
		{"list", Chat, `[]`, ErrDecode, `expected a JSON object: "[]"`},
		{"no choices", Chat, `{"id":"x"}`, ErrDecode, `the answer has no choices: "{\"id\":\"x\"}"`},
		{"empty choices", Completions, `{"choices":[]}`, ErrDecode, `the answer has no choices: "{\"choices\":[]}"`},
		{"no content", Messages, `{}`, ErrDecode, `the answer has no content: "{}"`},
		{"no output", Responses, `{}`, ErrDecode, `the answer has no output: "{}"`},
		{"text an object", Chat, `{"choices":[{"message":{"content":{}}}]}`, ErrDecode, `field "content" must be a string: "{}"`},
		{"error", Chat, `{"error":{"message":"boom","code":500}}`, ErrStream, "boom"},
		{"error string", Completions, `{"error":"boom"}`, ErrStream, "boom"},
		{"error flat", Chat, `{"object":"error","message":"boom"}`, ErrStream, "boom"},
		{"error of the context", Chat, `{"error":{"message":"the request exceeds the available context size","code":500}}`, ErrContextLength, "the request exceeds the available context size"},
		{"Anthropic error", Messages, `{"type":"error","error":{"type":"api_error","message":"boom"}}`, ErrStream, "boom"},
		{"aborted", Chat, `{"choices":[{"message":{"content":"a"},"finish_reason":"abort"}]}`, ErrStream, `the server gave the answer up: finish_reason "abort"`},
		{"responses failed", Responses, `{"status":"failed","error":{"code":"server_error","message":"boom"},"output":[]}`, ErrStream, "boom"},
		{"responses with an error that calls itself completed", Responses, `{"status":"completed","error":{"code":"server_error","message":"boom"},"output":[]}`, ErrStream, "boom"},
		{"messages given up", Messages, `{"content":[{"type":"text","text":"a"}],"stop_reason":"error"}`, ErrStream, `the server gave the answer up: stop_reason "error"`},
		{"responses in progress", Responses, `{"status":"in_progress","error":null,"output":[]}`, ErrTruncated, `the answer is not complete: its status is "in_progress"`},
		{"unknown API", "grpc", `{}`, ErrDecode, `unknown API "grpc": expected one of chat, completions, responses, messages`},
		{"hostile depth", Chat, strings.Repeat("[", 20<<20), ErrDecode, `invalid JSON: "` + strings.Repeat("[", maxExcerptBytes) + `…"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := NewDecoder(test.api)
			err := d.Body([]byte(test.body))
			e := requireType(t, test.want, err)
			require.Equal(t, test.message, e.Message)
			require.Same(t, err, d.Finish())
			require.Same(t, err, d.Body([]byte(`{"choices":[{"text":"a"}]}`)), "the first error stays")
		})
	}
}

// An *Error travels through wrapping.
func TestErrorsAreErrors(t *testing.T) {
	t.Parallel()
	_, err := NewDecoder(Chat).Event("", `{"error":{"message":"boom","type":"T","code":"c"}}`)
	var e *Error
	require.True(t, errors.As(fmt.Errorf("reading: %w", err), &e))
	require.Equal(t, "stream_error (code c, T): boom", err.Error())
}

// Large events are checked by another validator: the result must be the same.
func TestLargeEvents(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("a", 2<<20)
	d := NewDecoder(Chat)
	delta, err := d.Event("", one(`{"content":"`+text+`"}`))
	require.NoError(t, err)
	require.True(t, delta.Output)
	require.Equal(t, text, d.Message().Text)
	_, err = d.Event("", one(`{"content":"`+text+`"`))
	_ = requireType(t, ErrDecode, err)
}
