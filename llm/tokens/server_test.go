package tokens

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// call is what a server was sent.
type call struct {
	Path          string
	Authorization string
	Body          string
}

// server answers each path with a status and a body, and records what it was sent.
func server(t *testing.T, answer func(path string, body map[string]any) (int, string)) (*httptest.Server, *[]call) {
	t.Helper()
	var calls []call
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		var body map[string]any
		if err != nil || json.Unmarshal(data, &body) != nil || r.Method != http.MethodPost {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		calls = append(calls, call{Path: r.URL.Path, Authorization: r.Header.Get("Authorization"), Body: string(data)})
		status, reply := answer(r.URL.Path, body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, reply)
	}))
	t.Cleanup(s.Close)
	return s, &calls
}

// The servers of each family, with the literal shapes of their answers.
var families = map[Family]func(path string, body map[string]any) (int, string){
	VLLM: func(path string, body map[string]any) (int, string) {
		switch {
		case path != "/tokenize":
			return 404, `{"detail":"Not Found"}`
		case body["messages"] != nil:
			return 200, `{"count":5,"max_model_len":4096,"tokens":[128000,128006,882,128007,15339],"token_strs":null}`
		case body["prompt"] != nil:
			return 200, `{"count":2,"max_model_len":4096,"tokens":[128000,15339],"token_strs":null}`
		}
		return 400, `{"error":{"message":"prompt or messages","type":"BadRequestError","param":null,"code":400}}`
	},
	SGLang: func(path string, body map[string]any) (int, string) {
		if path != "/tokenize" || body["prompt"] == nil {
			return 422, `{"detail":[{"type":"missing","loc":["body","prompt"],"msg":"Field required"}]}`
		}
		return 200, `{"tokens":[128000,15339],"count":2,"max_model_len":131072}`
	},
	LlamaCPP: func(path string, body map[string]any) (int, string) {
		switch {
		case path == "/apply-template" && body["messages"] != nil:
			return 200, `{"prompt":"<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"}`
		case path == "/tokenize" && body["content"] == nil:
			return 200, `{"tokens":[]}`
		case path == "/tokenize" && strings.HasPrefix(body["content"].(string), "<|im_start|>"):
			return 200, `{"tokens":[1,872,198,15339,2,198,1,77091,198]}`
		case path == "/tokenize":
			return 200, `{"tokens":[1,15339]}`
		}
		return 404, `{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}`
	},
	TGI: func(path string, body map[string]any) (int, string) {
		switch {
		case path == "/tokenize" && body["inputs"] != nil:
			return 200, `[{"id":1,"text":"<s>","start":0,"stop":0},{"id":22172,"text":"hello","start":0,"stop":5}]`
		case path == "/chat_tokenize" && body["messages"] != nil:
			return 200, `{"tokenize_response":[{"id":1,"text":"<s>","start":0,"stop":3},{"id":733,"text":"[INST]","start":3,"stop":9},{"id":22172,"text":"hello","start":9,"stop":14}],"templated_text":"<s>[INST]hello"}`
		}
		return 422, "Failed to deserialize the JSON body into the target type: missing field `inputs` at line 1 column 20"
	},
}

func TestServerTokenizer(t *testing.T) {
	for _, c := range []struct {
		family      Family
		count, chat int
		sent        []call
	}{
		{VLLM, 2, 5, []call{
			{"/tokenize", "Bearer k", `{"model":"m","prompt":"hello"}`},
			{"/tokenize", "Bearer k", `{"add_generation_prompt":true,"messages":[{"content":"hello","role":"user"}],"model":"m"}`},
		}},
		{SGLang, 2, 0, []call{{"/tokenize", "Bearer k", `{"model":"m","prompt":"hello"}`}}},
		{LlamaCPP, 2, 9, []call{
			{"/tokenize", "Bearer k", `{"add_special":true,"content":"hello","parse_special":true}`},
			{"/apply-template", "Bearer k", `{"messages":[{"content":"hello","role":"user"}]}`},
			{"/tokenize", "Bearer k", `{"add_special":true,"content":"\u003c|im_start|\u003euser\nhello\u003c|im_end|\u003e\n\u003c|im_start|\u003eassistant\n","parse_special":true}`},
		}},
		{TGI, 2, 3, []call{
			{"/tokenize", "Bearer k", `{"inputs":"hello"}`},
			{"/chat_tokenize", "Bearer k", `{"messages":[{"content":"hello","role":"user"}],"model":"m"}`},
		}},
	} {
		t.Run(string(c.family), func(t *testing.T) {
			s, calls := server(t, families[c.family])
			client := ServerTokenizer{
				BaseURL: s.URL + "/v1/", Model: "m", Family: c.family, Do: s.Client().Do,
				Header: http.Header{"Authorization": {"Bearer k"}},
			}
			n, err := client.Count(t.Context(), "hello")
			require.NoError(t, err)
			require.Equal(t, c.count, n)
			n, err = client.CountChat(t.Context(), "hello")
			if c.chat == 0 {
				require.ErrorIs(t, err, ErrNoChatTokenizer)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, c.chat, n)
			require.Equal(t, c.sent, *calls)

			family, err := client.Detect(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.family, family)
		})
	}
}

func TestServerTokenizerErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		body   string
		want   string
	}{
		{"not found", 404, `{"detail":"Not Found"}`, `/tokenize: expected status 200, got 404: "{\"detail\":\"Not Found\"}"`},
		{"no JSON", 200, "<html>", `expected token counts in JSON, got "<html>"`},
		{"other shape", 200, `{"n":3}`, "expected count with at least one token, as vllm gives: got none"},
		{"count of zero", 200, `{"count":0,"tokens":[]}`, "expected count with at least one token"},
		{"long", 500, strings.Repeat("é", 500), "got 500: \"é"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := server(t, func(string, map[string]any) (int, string) { return c.status, c.body })
			client := ServerTokenizer{BaseURL: s.URL, Family: VLLM, Do: s.Client().Do}
			_, err := client.Count(t.Context(), "hello")
			require.ErrorContains(t, err, c.want)
			require.Less(t, len(err.Error()), 400)
			_, err = client.Detect(t.Context())
			require.ErrorContains(t, err, "find the server's tokenizer")
		})
	}
	_, err := ServerTokenizer{Family: "other"}.Count(t.Context(), "x")
	require.EqualError(t, err, `unknown server family "other": expected vllm, sglang, llama.cpp or tgi`)
	_, err = ServerTokenizer{Family: "other"}.CountChat(t.Context(), "x")
	require.Error(t, err)
	_, err = ServerTokenizer{Family: TGI}.Count(t.Context(), "x")
	require.ErrorContains(t, err, "no function to send requests with")
	s, _ := server(t, families[TGI])
	s.Close()
	_, err = ServerTokenizer{Family: TGI, BaseURL: s.URL, Do: http.DefaultClient.Do}.Count(t.Context(), "x")
	require.ErrorContains(t, err, "POST "+s.URL+"/tokenize")
}
