package llm

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASessionSendsItsHistory(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { write(w, delta("yes"), finish, usageOf(9, 1), done) })
	v := newVU(t)
	r := v.must(newClient(s, "") + `
		const session = new llm.Session(client, {system: "Be brief.", tags: {persona: "a"}});
		session.chat("one");
		session.chat({role: "user", content: "two"}, {max_tokens: 5, tags: {kind: "x"}});
		result = {turns: session.turns, n: session.messages.length, last: session.messages[4].content};`)
	require.Equal(t, map[string]any{"turns": int64(2), "n": int64(5), "last": "yes"}, r)
	require.JSONEq(t, `{"model":"m","stream":true,"stream_options":{"include_usage":true},"max_tokens":5,"messages":[
		{"role":"system","content":"Be brief."},{"role":"user","content":"one"},{"role":"assistant","content":"yes"},
		{"role":"user","content":"two"}]}`, s.last().body)
	samples := v.seen()["llm_ttft"]
	require.Len(t, samples, 2)
	for i, want := range []map[string]string{{"turn": "1", "persona": "a"}, {"turn": "2", "persona": "a", "kind": "x"}} {
		for name, value := range want {
			got, _ := samples[i].Tags.Get(name)
			require.Equal(t, value, got)
		}
	}
}

func TestASessionKeepsAFailedTurnOut(t *testing.T) {
	t.Parallel()
	s := serve(t, status(500, "no"))
	v := newVU(t)
	r := v.must(newClient(s, "") + `
		const session = new llm.Session(client);
		const answer = session.chat("one");
		result = {ok: answer.ok, n: session.messages.length};`)
	require.Equal(t, map[string]any{"ok": false, "n": int64(0)}, r)
}

func TestASessionGivesToolCallsBack(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		write(w, `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":`+
			`{"name":"f","arguments":"{\"a\":1}"}}]},"finish_reason":"tool_calls"}]}`+"\n\n", done)
	})
	v := newVU(t)
	v.must(newClient(s, "") + `
		const session = new llm.Session(client);
		const answer = session.chat("weather?");
		session.chat([{role: "tool", tool_call_id: answer.toolCalls[0].id, content: "sunny"}]);
		result = {};`)
	require.JSONEq(t, `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[
		{"role":"user","content":"weather?"},
		{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},
		{"role":"tool","tool_call_id":"c1","content":"sunny"}]}`, s.last().body)
}

func TestWrongUseOfASession(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		`new llm.Session({})`:                                                                              "llm.Session: got an object, expected an llm.Client",
		`new llm.Session(client, {sistema: ""})`:                                                           `llm.Session: unknown option "sistema", expected one of: system, thinkTime, tags`,
		`new llm.Session(client).chat(7)`:                                                                  "llm.Session: chat: got 7, expected the user's text, a message, or a list of messages",
		`new llm.Session(client).chat("x", 5)`:                                                             "llm.Session: chat: got 5, expected a request such as {max_tokens: 100} after the input",
		`new llm.Session(client).chat("x", {messages: []})`:                                                "the request may not hold messages: the session keeps the conversation",
		`new llm.Session(new llm.Client({baseURL: "http://x", api: "completions"}))`:                       `expected "chat", "responses" or "messages"`,
		`new llm.Session(client).chat("x", {onToolCall: 5})`:                                               `llm.Session: chat: option "onToolCall": got 5, expected a function`,
		`new llm.Session(client).chat("x", {onToolCall: () => "", maxRounds: 0})`:                          `option "maxRounds": got 0, expected a whole number, 1 or more`,
		`new llm.Session(client).chat("x", {maxRounds: 3})`:                                                `option "maxRounds": got 3, expected it beside onToolCall alone`,
		`new llm.Session(new llm.Client({baseURL: "http://x", api: "responses"})).chat("x", {input: "y"})`: "the request may not hold input: the session keeps the conversation",
	} {
		_, err := newVU(t).run(`const client = new llm.Client({baseURL: "http://127.0.0.1:1"}); ` + script)
		require.ErrorContains(t, err, want)
	}
}

// toolServer answers with a call of f until a conversation holds so many results, and then with text.
func toolServer(t *testing.T, rounds int, answers map[string][2]func(http.ResponseWriter)) *server {
	t.Helper()

	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen := 0
		if body, ok := r.Context().Value(bodyKey{}).(string); ok {
			seen = strings.Count(body, `"sunny"`)
		}
		for path, answer := range answers {
			if strings.HasSuffix(r.URL.Path, path) {
				if seen < rounds {
					answer[0](w)
				} else {
					answer[1](w)
				}
			}
		}
	})
}

func named(events ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for _, e := range events {
			name, _, _ := strings.Cut(strings.TrimPrefix(e, `{"type":"`), `"`)
			write(w, "event: "+name+"\ndata: "+e+"\n\n")
		}
	}
}

var toolAnswers = map[string][2]func(http.ResponseWriter){
	"/chat/completions": {
		func(w http.ResponseWriter) {
			write(w, `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{\"ci"}}]}}]}`+"\n\n",
				`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"ty\":1}"}}]},"finish_reason":"tool_calls"}]}`+"\n\n", done)
		},
		func(w http.ResponseWriter) { write(w, delta("It is sunny."), finish, done) },
	},
	"/responses": {
		named(`{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"fc","call_id":"c1","name":"f","arguments":""}}`,
			`{"type":"response.function_call_arguments.delta","item_id":"fc","output_index":0,"delta":"{\"ci"}`,
			`{"type":"response.function_call_arguments.delta","item_id":"fc","output_index":0,"delta":"ty\":1}"}`,
			`{"type":"response.completed","response":{"status":"completed","output":[]}}`),
		named(`{"type":"response.output_text.delta","delta":"It is sunny."}`, `{"type":"response.completed","response":{"status":"completed","output":[]}}`),
	},
	"/messages": {
		named(`{"type":"message_start","message":{}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c1","name":"f","input":{}}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"ci"}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"ty\":1}"}}`,
			`{"type":"message_delta","delta":{"stop_reason":"tool_use"}}`, `{"type":"message_stop"}`),
		named(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"It is sunny."}}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`, `{"type":"message_stop"}`),
	},
}

const weather = `{onToolCall: (call) => { called.push(call); return "sunny"; }, max_tokens: 9, tags: {kind: "x"}}`

func TestALoopOfTools(t *testing.T) {
	t.Parallel()
	for api, want := range map[string]string{
		"chat": `{"model":"m","max_tokens":9,"stream":true,"stream_options":{"include_usage":true},"messages":[
			{"role":"system","content":"S"},{"role":"user","content":"weather?"},
			{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"city\":1}"}}]},
			{"role":"tool","tool_call_id":"c1","content":"sunny"},
			{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"city\":1}"}}]},
			{"role":"tool","tool_call_id":"c1","content":"sunny"}]}`,
		"responses": `{"model":"m","max_tokens":9,"stream":true,"instructions":"S","input":[
			{"role":"user","content":"weather?"},
			{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"city\":1}"},
			{"type":"function_call_output","call_id":"c1","output":"sunny"},
			{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"city\":1}"},
			{"type":"function_call_output","call_id":"c1","output":"sunny"}]}`,
		"messages": `{"model":"m","max_tokens":9,"stream":true,"system":"S","messages":[
			{"role":"user","content":"weather?"},
			{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"f","input":{"city":1}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"sunny"}]},
			{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"f","input":{"city":1}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"sunny"}]}]}`,
	} {
		t.Run(api, func(t *testing.T) {
			t.Parallel()
			s := toolServer(t, 2, toolAnswers)
			v := newVU(t)
			r := v.must(newClient(s, `api: "`+api+`"`) + `
				const called = [];
				const session = new llm.Session(client, {system: "S"});
				const res = session.chat("weather?", ` + weather + `);
				result = {called, text: res.text, rounds: res.rounds, calls: res.toolCalls.length, turns: session.turns,
					last: JSON.parse(JSON.stringify(session.messages)).at(-1).content};`)
			call := map[string]any{"id": "c1", "name": "f", "arguments": `{"city":1}`}
			require.Equal(t, []any{call, call}, r["called"])
			require.Equal(t, "It is sunny.", r["text"])
			require.Equal(t, int64(3), r["rounds"])
			require.Equal(t, int64(0), r["calls"])
			require.Equal(t, int64(1), r["turns"])
			require.Equal(t, "It is sunny.", r["last"])
			require.JSONEq(t, want, s.last().body)

			requests := v.seen()["llm_requests"]
			require.Len(t, requests, 3, "each round is a request of its own")
			for i, sample := range requests {
				tags := sample.Tags.Map()
				require.Equal(t, []string{"1", fmt.Sprint(i + 1), "x"}, []string{tags["turn"], tags["round"], tags["kind"]})
			}
		})
	}
}

func TestALoopOfToolsEnds(t *testing.T) {
	t.Parallel()
	s := toolServer(t, 99, toolAnswers)
	v := newVU(t)
	r := v.must(newClient(s, "") + `
		let n = 0;
		const session = new llm.Session(client);
		const res = session.chat("weather?", {maxRounds: 2, onToolCall: () => { n++; return {sky: "sunny", "t": [1, 2]}; }});
		const plain = new llm.Session(client).chat("weather?");
		result = {n, ok: res.ok, rounds: res.rounds, calls: res.toolCalls.length, messages: session.messages.length,
			given: session.messages[2].content, plain: plain.rounds};`)
	require.Equal(t, map[string]any{
		"n": int64(1), "ok": true, "rounds": int64(2), "calls": int64(1), "messages": int64(4),
		"given": `{"sky":"sunny","t":[1,2]}`, "plain": int64(1),
	}, r, "the last call is left to the script")
}

func TestWhatAToolMayReturn(t *testing.T) {
	t.Parallel()
	for callback, want := range map[string]string{
		`() => {}`:                            "llm.Session: chat: onToolCall gave nothing for f, expected the result: a text, or a value that becomes JSON",
		`async () => "sunny"`:                 "onToolCall gave a Promise for f",
		`() => { throw new Error("no net") }`: "no net",
	} {
		s := toolServer(t, 1, toolAnswers)
		v := newVU(t)
		_, err := v.run(newClient(s, "") + `
			globalThis.session = new llm.Session(client);
			session.chat("weather?", {onToolCall: ` + callback + `});`)
		require.ErrorContains(t, err, want)
		r := v.must(`failure = undefined; result = {n: session.messages.length};`)
		require.Equal(t, int64(0), r["n"], "a turn that did not end is no history")
	}
}

func TestARoundThatFailsEndsTheTurn(t *testing.T) {
	t.Parallel()
	s := toolServer(t, 1, map[string][2]func(http.ResponseWriter){
		"/chat/completions": {toolAnswers["/chat/completions"][0], func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }},
	})
	r := newVU(t).must(newClient(s, "") + `
		const session = new llm.Session(client);
		const res = session.chat("weather?", {onToolCall: () => "sunny"});
		result = {ok: res.ok, kind: res.error.type, rounds: res.rounds, n: session.messages.length};`)
	require.Equal(t, map[string]any{"ok": false, "kind": "http_5xx", "rounds": int64(2), "n": int64(0)}, r)
}
