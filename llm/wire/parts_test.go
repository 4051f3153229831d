package wire

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func fieldsOf(t *testing.T, body string) map[string]any {
	t.Helper()
	var fields map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &fields))

	return fields
}

func TestPartsInChatFormFitEveryAPI(t *testing.T) {
	t.Parallel()
	const content = `[{"type":"text","text":"What is it?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBO","detail":"low"}}]`
	for name, tt := range map[string]struct {
		api        API
		body, want string
	}{
		"chat keeps them": {
			Chat, `{"messages":[{"role":"user","content":` + content + `}]}`,
			`{"messages":[{"role":"user","content":` + content + `}],"stream":true}`,
		},
		"responses": {
			Responses, `{"input":[{"role":"user","content":` + content + `}]}`,
			`{"input":[{"role":"user","content":[{"type":"input_text","text":"What is it?"},
				{"type":"input_image","image_url":"data:image/png;base64,iVBO","detail":"low"}]}],"stream":true}`,
		},
		"responses, what the assistant said": {
			Responses, `{"input":[{"role":"assistant","content":[{"type":"text","text":"a"}]},{"type":"function_call_output","call_id":"c","output":"d"}]}`,
			`{"input":[{"role":"assistant","content":[{"type":"output_text","text":"a"}]},{"type":"function_call_output","call_id":"c","output":"d"}],"stream":true}`,
		},
		"messages": {
			Messages, `{"messages":[{"role":"user","content":` + content + `}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"What is it?"},
				{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBO"}}]}],"stream":true}`,
		},
		"messages, by address": {
			Messages, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://127.0.0.1/a.png"}}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://127.0.0.1/a.png"}}]}],"stream":true}`,
		},
		"an API's own parts pass through": {
			Responses, `{"input":[{"role":"user","content":[{"type":"input_file","file_id":"f"}]}, 7]}`,
			`{"input":[{"role":"user","content":[{"type":"input_file","file_id":"f"}]}, 7],"stream":true}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fields := fieldsOf(t, tt.body)
			body, _, err := BuildRequest(tt.api, fields, RequestOptions{})
			require.NoError(t, err)
			require.JSONEq(t, tt.want, string(body))
			require.Equal(t, fieldsOf(t, tt.body), fields, "the caller's own is not changed")
		})
	}
	for body, want := range map[string]string{
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":"x"}]}]}`:             `messages[0].content[0].image_url: expected an object with a "url", got a string`,
		`{"messages":[{},{"content":[{"type":"image_url","image_url":{"url":"data:image/png,x"}}]}]}`: `messages[1].content[0].image_url: expected a data URL in base64, such as data:image/png;base64,…`,
	} {
		_, _, err := BuildRequest(Messages, fieldsOf(t, body), RequestOptions{})
		require.ErrorContains(t, err, want)
	}
}

func TestEmbeddingsRequest(t *testing.T) {
	t.Parallel()
	require.Equal(t, "/embeddings", Embeddings.Path())
	_, err := ParseAPI("embeddings")
	require.Error(t, err, "it is no API that answers with text")
	body, streamed, err := BuildRequest(Embeddings, fieldsOf(t, `{"input":["a","b"],"dimensions":3}`), RequestOptions{Model: "m", IncludeUsage: true})
	require.NoError(t, err)
	require.False(t, streamed)
	require.JSONEq(t, `{"model":"m","input":["a","b"],"dimensions":3}`, string(body))
	for fields, want := range map[string]string{
		`{}`:                          `embeddings request: field "input" is missing`,
		`{"input":"a","stream":true}`: `embeddings request: field "stream": an embedding is no stream`,
	} {
		_, _, err := BuildRequest(Embeddings, fieldsOf(t, fields), RequestOptions{})
		require.ErrorContains(t, err, want)
	}
}

func TestEmbeddingsAnswer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		body                string
		vectors, dimensions int
	}{
		"numbers": {`{"object":"list","model":"m","data":[{"index":0,"embedding":[0.5,-1e-3,2]},{"index":1,"embedding":[1,2,3]}],"usage":{"prompt_tokens":7,"total_tokens":7}}`, 2, 3},
		"base64":  {`{"id":"e","model":"m","data":[{"embedding":"AAAAAAAAAAAAAAAA"}],"usage":{"prompt_tokens":7,"total_tokens":7,"completion_tokens":0}}`, 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dec := NewDecoder(Embeddings)
			require.NoError(t, dec.Body([]byte(tt.body)))
			require.NoError(t, dec.Finish())
			m := dec.Message()
			require.Equal(t, tt.vectors, m.Vectors)
			require.Equal(t, tt.dimensions, m.Dimensions)
			require.Equal(t, "m", m.Model)
			require.Equal(t, 7, *m.Usage.PromptTokens)
			require.Nil(t, m.Usage.CompletionTokens, "there is no completion to count")
		})
	}
	for body, want := range map[string]ErrorType{
		`{"data":[]}`:                                      ErrDecode,
		`{"object":"list"}`:                                ErrDecode,
		`{"data":[{"embedding":[]}]}`:                      ErrDecode,
		`{"data":[{"embedding":[1,"x"]}]}`:                 ErrDecode,
		`{"data":[{"embedding":[1]},{"embedding":[1,2]}]}`: ErrDecode,
		`{"data":[{"embedding":"!"}]}`:                     ErrDecode,
		`{"error":{"message":"no","code":500}}`:            ErrStream,
		`{"data":[{"embedding":[1]}`:                       ErrDecode,
	} {
		dec := NewDecoder(Embeddings)
		_ = requireType(t, want, dec.Body([]byte(body)))
		_ = requireType(t, want, dec.Finish())
	}
	_, err := NewDecoder(Embeddings).Event("", `{"data":[]}`)
	_ = requireType(t, ErrDecode, err)
}

func TestInputsOfARequestForEmbeddings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		input any
		want  int
	}{
		{"a", 1},
		{[]string{"a", "b"}, 2},
		{[]any{"a", "b", "c"}, 3},
		{[]any{int64(1), 2.0}, 1},
		{[]uint32{1, 2, 3}, 1},
		{[][]int{{1, 2}, {3}}, 2},
		{[]any{[]any{int64(1)}, []any{int64(2)}}, 2},
		{[]any{map[string]any{"text": "a"}}, 1},
		{[]any{}, 0},
		{[]any{nil, "a"}, 2},
		{map[string]any{"text": "a"}, 0},
		{nil, 0},
		{7, 0},
	} {
		require.Equal(t, tt.want, Inputs(map[string]any{"input": tt.input}), "%v", tt.input)
	}
}
