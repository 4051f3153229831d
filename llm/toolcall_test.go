package llm

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// bareCalls are answers with nothing but a call of f without arguments, as each API streams them.
var bareCalls = map[string]func(http.ResponseWriter){
	"chat": func(w http.ResponseWriter) {
		write(w, delta(""), `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}]}}]}`+"\n\n",
			`data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`+"\n\n", done)
	},
	"responses": named(`{"type":"response.created","response":{"id":"r1","status":"in_progress"}}`,
		`{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"fc","call_id":"c1","name":"f","arguments":""}}`,
		`{"type":"response.function_call_arguments.done","item_id":"fc","output_index":0,"arguments":""}`,
		`{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","id":"fc","call_id":"c1","name":"f","arguments":""}}`,
		`{"type":"response.completed","response":{"status":"completed","output":[]}}`),
	"messages": named(`{"type":"message_start","message":{}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c1","name":"f","input":{}}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use"}}`, `{"type":"message_stop"}`),
}

func TestACallWithoutArgumentsIsAnAnswer(t *testing.T) {
	t.Parallel()
	for api, answer := range bareCalls {
		t.Run(api, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) { answer(w) })
			v := newVU(t)
			r := v.must(newClient(s, `api: "`+api+`", slo: {ttft: "1m"}`) + `
				const res = client.chat({messages: [], input: "x"});
				const [call] = res.toolCalls;
				result = {ok: res.ok, chunks: res.chunks, goodput: res.goodput, timed: res.timings.ttft !== null && res.timings.ttftText !== null,
					gaps: res.timings.itl.length, call, given: Object.keys(JSON.parse(call.arguments)).length};`)
			require.Equal(t, map[string]any{
				"ok": true, "chunks": int64(1), "goodput": true, "timed": true, "gaps": int64(0), "given": int64(0),
				"call": map[string]any{"id": "c1", "name": "f", "arguments": "{}"},
			}, r)
			require.Len(t, v.seen()["llm_ttft"], 1)
		})
	}
}
