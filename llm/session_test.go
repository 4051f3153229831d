package llm

import (
	"net/http"
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
		`new llm.Session({})`:                                                        "llm.Session: got an object, expected an llm.Client",
		`new llm.Session(client, {sistema: ""})`:                                     `llm.Session: unknown option "sistema", expected one of: system, thinkTime, tags`,
		`new llm.Session(client).chat(7)`:                                            "llm.Session: chat: got 7, expected the user's text, a message, or a list of messages",
		`new llm.Session(client).chat("x", 5)`:                                       "llm.Session: chat: got 5, expected a request such as {max_tokens: 100} after the input",
		`new llm.Session(client).chat("x", {messages: []})`:                          "the session has them",
		`new llm.Session(new llm.Client({baseURL: "http://x", api: "completions"}))`: `expected "chat" or "messages"`,
	} {
		_, err := newVU(t).run(`const client = new llm.Client({baseURL: "http://127.0.0.1:1"}); ` + script)
		require.ErrorContains(t, err, want)
	}
}
