package wire

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseAPI(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{
		"chat": "/chat/completions", "completions": "/completions", "responses": "/responses", "messages": "/messages",
	} {
		api, err := ParseAPI(name)
		require.NoError(t, err)
		require.Equal(t, API(name), api)
		require.Equal(t, path, api.Path())
	}
	for _, name := range []string{"", "Chat", "chat ", "embeddings"} {
		_, err := ParseAPI(name)
		require.ErrorContains(t, err, "expected one of chat, completions, responses, messages")
		require.ErrorContains(t, err, `"`+name+`"`)
	}
	require.Empty(t, API("rerank").Path())
}

func TestBuildRequest(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	type fields = map[string]any
	hello := []any{fields{"role": "user", "content": "a < b & c > \u2028 \"d\""}}
	for _, test := range []struct {
		name     string
		api      API
		fields   fields
		options  RequestOptions
		want     string
		streamed bool
	}{
		{
			"chat streams and asks for usage", Chat,
			fields{"messages": hello},
			RequestOptions{Model: "m", IncludeUsage: true},
			`{"messages":[{"content":"a < b & c > \u2028 \"d\"","role":"user"}],"model":"m","stream":true,"stream_options":{"include_usage":true}}`, true,
		},
		{"usage not wanted", Chat, fields{"messages": []any{}}, RequestOptions{Model: "m"}, `{"messages":[],"model":"m","stream":true}`, true},
		{"the request's model comes first", Chat, fields{"messages": []any{}, "model": "own"}, RequestOptions{Model: "m"}, `{"messages":[],"model":"own","stream":true}`, true},
		{"an empty model is none", Chat, fields{"messages": []any{}, "model": ""}, RequestOptions{Model: "m"}, `{"messages":[],"model":"m","stream":true}`, true},
		{"a null model is none", Chat, fields{"messages": []any{}, "model": nil}, RequestOptions{}, `{"messages":[],"stream":true}`, true},
		{"no model", Completions, fields{"prompt": "x"}, RequestOptions{}, `{"prompt":"x","stream":true}`, true},
		{
			"unknown fields pass", Completions,
			fields{"prompt": []any{int64(1), int64(2)}, "top_k": int64(5), "nvext": fields{"a": nil}, "temperature": 0.5, "max_tokens": float64(7)},
			RequestOptions{IncludeUsage: true},
			`{"max_tokens":7,"nvext":{"a":null},"prompt":[1,2],"stream":true,"stream_options":{"include_usage":true},"temperature":0.5,"top_k":5}`, true,
		},
		{"the request says not to stream", Chat, fields{"messages": []any{}, "stream": false}, RequestOptions{IncludeUsage: true}, `{"messages":[],"stream":false}`, false},
		{"a null stream streams", Chat, fields{"messages": []any{}, "stream": nil}, RequestOptions{}, `{"messages":[],"stream":true}`, true},
		{"the option comes before the request, off", Chat, fields{"messages": []any{}, "stream": true}, RequestOptions{Stream: &no, IncludeUsage: true}, `{"messages":[],"stream":false}`, false},
		{"the option comes before the request, on", Chat, fields{"messages": []any{}, "stream": false}, RequestOptions{Stream: &yes, IncludeUsage: true}, `{"messages":[],"stream":true,"stream_options":{"include_usage":true}}`, true},
		{"the option alone", Chat, fields{"messages": []any{}}, RequestOptions{Stream: &no}, `{"messages":[],"stream":false}`, false},
		{"the request turns usage off", Chat, fields{"messages": []any{}, "stream_options": fields{"include_usage": false}}, RequestOptions{IncludeUsage: true}, `{"messages":[],"stream":true,"stream_options":{"include_usage":false}}`, true},
		{"other stream options stay", Chat, fields{"messages": []any{}, "stream_options": fields{"continuous_usage_stats": true}}, RequestOptions{IncludeUsage: true}, `{"messages":[],"stream":true,"stream_options":{"continuous_usage_stats":true,"include_usage":true}}`, true},
		{"stream options without usage", Chat, fields{"messages": []any{}, "stream_options": fields{"a": 1}}, RequestOptions{}, `{"messages":[],"stream":true,"stream_options":{"a":1}}`, true},
		{"null stream options are none", Chat, fields{"messages": []any{}, "stream_options": nil}, RequestOptions{IncludeUsage: true}, `{"messages":[],"stream":true}`, true},
		{"stream options go with the stream", Chat, fields{"messages": []any{}, "stream": false, "stream_options": fields{"include_usage": true}}, RequestOptions{IncludeUsage: true}, `{"messages":[],"stream":false}`, false},
		{"messages API sends usage unasked", Messages, fields{"messages": []any{}, "max_tokens": int64(9)}, RequestOptions{Model: "c", IncludeUsage: true}, `{"max_tokens":9,"messages":[],"model":"c","stream":true}`, true},
		{"responses API too", Responses, fields{"input": "x"}, RequestOptions{Model: "c", IncludeUsage: true}, `{"input":"x","model":"c","stream":true}`, true},
		{"responses with a stored prompt", Responses, fields{"prompt": fields{"id": "p"}}, RequestOptions{}, `{"prompt":{"id":"p"},"stream":true}`, true},
		{"prompt embeddings", Completions, fields{"prompt_embeds": "QQ=="}, RequestOptions{}, `{"prompt_embeds":"QQ==","stream":true}`, true},
		{"typed messages", Chat, fields{"messages": []map[string]string{{"role": "user"}}}, RequestOptions{}, `{"messages":[{"role":"user"}],"stream":true}`, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			before, err := json.Marshal(test.fields)
			require.NoError(t, err)
			for range 3 { // the order of a Go map differs from one walk to the next
				body, streamed, err := BuildRequest(test.api, test.fields, test.options)
				require.NoError(t, err)
				require.Equal(t, test.want, string(body))
				require.Equal(t, test.streamed, streamed)
			}
			after, err := json.Marshal(test.fields)
			require.NoError(t, err)
			require.Equal(t, string(before), string(after), "the caller's fields must not change")
		})
	}
}

func TestBuildRequestErrors(t *testing.T) {
	t.Parallel()
	type fields = map[string]any
	for _, test := range []struct {
		name   string
		api    API
		fields fields
		want   string
	}{
		{"no messages", Chat, fields{"prompt": "x"}, `chat request: field "messages" is missing`},
		{"null messages", Chat, fields{"messages": nil}, `chat request: field "messages" is missing`},
		{"nothing at all", Messages, nil, `messages request: field "messages" is missing`},
		{"messages a string", Chat, fields{"messages": "hi"}, `chat request: field "messages" must be a list of messages, got a string`},
		{"messages an object", Messages, fields{"messages": fields{}}, `messages request: field "messages" must be a list of messages, got an object`},
		{"no prompt", Completions, fields{"messages": []any{}}, `completions request: field "prompt" is missing`},
		{"no input", Responses, fields{}, `responses request: field "input" is missing`},
		{"model a number", Chat, fields{"messages": []any{}, "model": int64(7)}, `field "model" must be a string, got the number 7`},
		{"stream a string", Chat, fields{"messages": []any{}, "stream": "yes"}, `field "stream" must be true or false, got a string`},
		{"stream options a boolean", Chat, fields{"messages": []any{}, "stream_options": true}, `field "stream_options" must be an object, got a boolean`},
		{"stream options a list", Responses, fields{"input": "", "stream_options": []any{}}, `field "stream_options" must be an object, got a list`},
		{"no number", Chat, fields{"messages": []any{}, "temperature": math.NaN()}, `field "temperature" can not be sent as JSON: json: unsupported value: NaN`},
		{"a function", Chat, fields{"messages": []any{}, "tools": func() {}}, `field "tools" can not be sent as JSON: json: unsupported type: func()`},
		{"unknown API", "grpc", fields{"messages": []any{}}, `unknown API "grpc": expected one of chat, completions, responses, messages`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			body, streamed, err := BuildRequest(test.api, test.fields, RequestOptions{IncludeUsage: true})
			require.EqualError(t, err, test.want)
			require.Nil(t, body)
			require.False(t, streamed)
		})
	}
}
