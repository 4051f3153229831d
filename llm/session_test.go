package llm

import (
	"encoding/json"
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
		`new llm.Session(client).chat("x", {tags: 5})`:                                                     `llm request: option "tags": got 5, expected an object of strings`,
		`new llm.Session(client).chat("x", {tags: {turn: "77"}})`:                                          `llm request: option "tags.turn": got "77", expected another name`,
		`new llm.Session(client).chat("x", {tags: {round: "7"}})`:                                          `llm request: option "tags.round": got "7", expected another name`,
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

// TestCallsWithoutResultsAreNoHistory: an API refuses a conversation in which a call has no result, and would refuse every
// turn that follows.
func TestCallsWithoutResultsAreNoHistory(t *testing.T) {
	t.Parallel()
	for api, want := range map[string]struct{ field, history, answered, result, other string }{
		"chat": {
			"messages", `{"role":"user","content":"one"},{"role":"assistant","content":"It is sunny."}`,
			`{"role":"user","content":"two"},
			{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"city\":1}"}}]},
			{"role":"tool","tool_call_id":"c1","content":"here"}`,
			`{role: "tool", tool_call_id: "c1", content: "here"}`, `{role: "tool", tool_call_id: "c9", content: "here"}`,
		},
		"responses": {
			"input", `{"role":"user","content":"one"},{"role":"assistant","content":"It is sunny."}`,
			`{"role":"user","content":"two"},
			{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"city\":1}"},
			{"type":"function_call_output","call_id":"c1","output":"here"}`,
			`{type: "function_call_output", call_id: "c1", output: "here"}`, `{type: "function_call_output", call_id: "c9", output: "here"}`,
		},
		"messages": {
			"messages", `{"role":"user","content":"one"},{"role":"assistant","content":"It is sunny."}`,
			`{"role":"user","content":"two"},
			{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"f","input":{"city":1}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"here"}]}`,
			`{role: "user", content: [{type: "tool_result", tool_use_id: "c1", content: "here"}]}`,
			`{role: "user", content: [{type: "tool_result", tool_use_id: "c9", content: "here"}]}`,
		},
	} {
		t.Run(api, func(t *testing.T) {
			t.Parallel()
			// Calls f for ever, but for the first turn and those whose input is to be answered.
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := r.Context().Value(bodyKey{}).(string)
				answers := toolAnswers[strings.TrimPrefix(r.URL.Path, "/v1")]
				if strings.Contains(body, `"two"`) && !strings.Contains(body, `"here"`) || strings.Contains(body, `"again"`) {
					answers[0](w)
				} else {
					answers[1](w)
				}
			})
			v := newVU(t)
			sent := func(script string) string {
				v.must(script + `; result = {};`)
				var body map[string]json.RawMessage
				require.NoError(t, json.Unmarshal([]byte(s.last().body), &body))

				return string(body[want.field])
			}
			sent(newClient(s, `api: "`+api+`"`) + `
				globalThis.session = new llm.Session(client);
				session.chat("one");
				const res = session.chat("two", {maxRounds: 2, onToolCall: () => "over there"});
				if (!res.ok || res.rounds !== 2 || res.toolCalls.length !== 1) throw new Error(JSON.stringify(res));`)
			require.JSONEq(t, `[`+want.history+`,{"role":"user","content":"three"}]`, sent(`session.chat("three")`),
				"a turn that reached maxRounds")
			require.JSONEq(t, `[`+want.history+`,{"role":"user","content":"three"},{"role":"assistant","content":"It is sunny."},
				{"role":"user","content":"four"}]`, sent(`session.chat("two"); session.chat("four")`), "calls that the script ignored")

			_, err := v.run(`session.chat("two"); session.chat([` + want.other + `])`)
			require.ErrorContains(t, err, `llm.Session: chat: the input holds results of tools, but none for the call "c1" of f, expected one for each call of the turn before`)
			sofar := `[` + want.history + `,{"role":"user","content":"three"},{"role":"assistant","content":"It is sunny."},
				{"role":"user","content":"four"},{"role":"assistant","content":"It is sunny."},` + want.answered
			require.JSONEq(t, sofar+`]`, sent(`failure = undefined; session.chat([`+want.result+`])`), "calls that the script answered")
			require.JSONEq(t, sofar+`,{"role":"assistant","content":"It is sunny."},{"role":"user","content":"five"}]`, sent(`session.chat("five")`))
		})
	}
}

// TestTheSameTurnByHand: rounds that the script runs by itself are one turn, which stands or falls as a whole.
func TestTheSameTurnByHand(t *testing.T) {
	t.Parallel()
	s := toolServer(t, 99, toolAnswers)
	r := newVU(t).must(newClient(s, "") + `
		const session = new llm.Session(client);
		const results = () => session.messages.at(-1).tool_calls.map((c) => ({role: "tool", tool_call_id: c.id, content: "cloudy"}));
		session.chat("weather?");
		session.chat(results());
		const held = session.messages.length;
		session.chat(results(), {maxRounds: 1, onToolCall: () => "?"});
		const more = session.messages.length;
		session.chat("never mind");
		result = {held, more, left: session.messages.length, first: session.messages[0].content};`)
	require.Equal(t, map[string]any{"held": int64(4), "more": int64(6), "left": int64(2), "first": "never mind"}, r)
	require.NotContains(t, s.last().body, "weather")
}

func TestCallsGoBackInTheFormInWhichTheyCame(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		api, field string
		call       func(http.ResponseWriter)
		want       string
	}{
		"responses, custom": {"responses", "input", named(
			`{"type":"response.output_item.added","output_index":0,"item":{"type":"custom_tool_call","id":"i1","call_id":"c1","name":"f","input":""}}`,
			`{"type":"response.custom_tool_call_input.delta","item_id":"i1","output_index":0,"delta":"print(1)"}`,
			`{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","id":"i2","call_id":"c2","name":"g","arguments":""}}`,
			`{"type":"response.completed","response":{"status":"completed","output":[]}}`,
		), `[{"role":"user","content":"go"},
			{"type":"custom_tool_call","call_id":"c1","name":"f","input":"print(1)"},{"type":"function_call","call_id":"c2","name":"g","arguments":"{}"},
			{"type":"custom_tool_call_output","call_id":"c1","output":"sunny"},{"type":"function_call_output","call_id":"c2","output":"sunny"}]`},
		"chat, custom": {"chat", "messages", func(w http.ResponseWriter) {
			write(w, `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"custom","custom":{"name":"f","input":"print(1)"}}]},`+
				`"finish_reason":"tool_calls"}]}`+"\n\n", done)
		}, `[{"role":"user","content":"go"},
			{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"custom","custom":{"name":"f","input":"print(1)"}}]},
			{"role":"tool","tool_call_id":"c1","content":"sunny"}]`},
		"chat, function_call": {"chat", "messages", func(w http.ResponseWriter) {
			write(w, `data: {"choices":[{"index":0,"delta":{"function_call":{"name":"f","arguments":"{\"a\":1}"}},"finish_reason":"function_call"}]}`+"\n\n", done)
		}, `[{"role":"user","content":"go"},
			{"role":"assistant","content":"","function_call":{"name":"f","arguments":"{\"a\":1}"}},{"role":"function","name":"f","content":"sunny"}]`},
		"messages, no arguments": {
			"messages", "messages", bareCalls["messages"],
			`[{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"f","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"sunny"}]}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := map[string]string{"chat": "/chat/completions", "responses": "/responses", "messages": "/messages"}[test.api]
			s := toolServer(t, 1, map[string][2]func(http.ResponseWriter){path: {test.call, toolAnswers[path][1]}})
			r := newVU(t).must(newClient(s, `api: "`+test.api+`"`) + `
				const session = new llm.Session(client);
				const res = session.chat("go", {onToolCall: () => "sunny"});
				result = {ok: res.ok, text: res.text, rounds: res.rounds};`)
			require.Equal(t, map[string]any{"ok": true, "text": "It is sunny.", "rounds": int64(2)}, r)
			var body map[string]json.RawMessage
			require.NoError(t, json.Unmarshal([]byte(s.last().body), &body))
			require.JSONEq(t, test.want, string(body[test.field]))
		})
	}
}

// TestAnAnswerThatSaidNothingIsNoHistoryWhereItWouldBeRefused: Anthropic refuses messages with empty text.
func TestAnAnswerThatSaidNothingIsNoHistoryWhereItWouldBeRefused(t *testing.T) {
	t.Parallel()
	thought := named(`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`,
		`{"type":"message_delta","delta":{"stop_reason":"max_tokens"}}`, `{"type":"message_stop"}`)
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { thought(w) })
	r := newVU(t).must(newClient(s, `api: "messages"`) + `
		const session = new llm.Session(client);
		const res = session.chat("one");
		session.chat("two");
		result = {ok: res.ok, n: session.messages.length};`)
	require.Equal(t, map[string]any{"ok": true, "n": int64(0)}, r)
	require.JSONEq(t, `{"model":"m","stream":true,"messages":[{"role":"user","content":"two"}]}`, s.last().body)
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
