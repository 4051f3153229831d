package wire

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestErrorFromResponse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		status int
		body   string
		want   ErrorType
		text   string // of Error()
	}{
		{"OpenAI", 401, `{"error":{"message":"Bad key","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`, ErrHTTP4xx, "http_4xx (HTTP 401, code invalid_api_key, invalid_request_error): Bad key"},
		{"the code is the status", 404, `{"error":{"message":"No such model","type":"NotFoundError","code":404}}`, ErrHTTP4xx, "http_4xx (HTTP 404, NotFoundError): No such model"},
		{"429", 429, `{"error":{"message":"Rate limited","type":"rate_limit_error","code":null}}`, ErrHTTP429, "http_429 (HTTP 429, rate_limit_error): Rate limited"},
		{"429 that speaks of the context", 429, `{"error":{"message":"maximum context length","code":"context_length_exceeded"}}`, ErrHTTP429, "http_429 (HTTP 429, code context_length_exceeded): maximum context length"},
		{"503", 503, `{"error":{"message":"The server is overloaded or not ready yet.","code":503}}`, ErrHTTP5xx, "http_5xx (HTTP 503): The server is overloaded or not ready yet."},
		{"529", 529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, ErrHTTP5xx, "http_5xx (HTTP 529, overloaded_error): Overloaded"},
		{"Ollama", 404, `{"error":"model 'x' not found"}`, ErrHTTP4xx, "http_4xx (HTTP 404): model 'x' not found"},
		{"TGI", 424, `{"error":"Request failed during generation","error_type":"generation"}`, ErrHTTP4xx, "http_4xx (HTTP 424, generation): Request failed during generation"},
		{"older vLLM and SGLang", 400, `{"object":"error","message":"bad","type":"BadRequestError","param":null,"code":400}`, ErrHTTP4xx, "http_4xx (HTTP 400, BadRequestError): bad"},
		{"FastAPI", 404, `{"detail":"Not Found"}`, ErrHTTP4xx, "http_4xx (HTTP 404): Not Found"},
		{"FastAPI's list", 422, `{"detail":[{"type":"missing","loc":["body","messages",0],"msg":"Field required"},{"msg":"also this"}]}`, ErrHTTP4xx, "http_4xx (HTTP 422): body.messages.0: Field required; also this"},
		{"Google", 400, `[{"error":{"code":400,"message":"bad","status":"INVALID_ARGUMENT"}}]`, ErrHTTP4xx, "http_4xx (HTTP 400, INVALID_ARGUMENT): bad"},
		{"a message that is an object", 400, `{"error":{"message":{"detail":"deep"}}}`, ErrHTTP4xx, "http_4xx (HTTP 400): deep"},
		{"a message of its own form", 400, `{"error":{"message":{"why":1}}}`, ErrHTTP4xx, `http_4xx (HTTP 400): {"why":1}`},
		{"a JSON string", 500, `"oops"`, ErrHTTP5xx, "http_5xx (HTTP 500): oops"},
		{"JSON without a message", 500, `{}`, ErrHTTP5xx, "http_5xx (HTTP 500): Internal Server Error, without a message"},
		{"JSON null", 502, `null`, ErrHTTP5xx, "http_5xx (HTTP 502): null"},
		{"empty", 502, ``, ErrHTTP5xx, "http_5xx (HTTP 502): Bad Gateway, without a message"},
		{"nothing that can be shown", 500, "\x00\x7f", ErrHTTP5xx, "http_5xx (HTTP 500): Internal Server Error, without a message"},
		{"empty, of no known status", 599, ` `, ErrHTTP5xx, "http_5xx (HTTP 599): no message"},
		{"plain text", 500, "upstream\n  failed\r\n", ErrHTTP5xx, "http_5xx (HTTP 500): upstream failed"},
		{"HTML", 502, "<html>\n<head><TITLE>502\nBad Gateway</TITLE></head><body>nginx</body></html>", ErrHTTP5xx, "http_5xx (HTTP 502): an HTML page: 502 Bad Gateway"},
		{"HTML without a title", 413, "<!DOCTYPE html><p>no</p>", ErrHTTP4xx, "http_4xx (HTTP 413): an HTML page"},
		{"a status that is no answer", 302, "", ErrDecode, "decode (HTTP 302): Found, without a message"},
		{"no content", 204, "", ErrDecode, "decode (HTTP 204): No Content, without a message"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := ErrorFromResponse(test.status, []byte(test.body))
			require.Equal(t, test.want, e.Type)
			require.Equal(t, test.status, e.Status)
			require.Equal(t, test.text, e.Error())
		})
	}
}

// What servers say when a request does not fit the context.
func TestContextLength(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status int
		body   string
	}{
		{400, `{"error":{"message":"x","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`},
		{400, `{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.","code":null}}`},
		{400, `{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens","code":400}`},
		{400, `{"error":{"message":"'max_tokens' or 'max_completion_tokens' is too large: 99999. This model's maximum context length is 4096 tokens","code":400}}`},
		{400, `{"error":{"message":"The decoder prompt (length 6005) is longer than the maximum model length of 4096.","code":400}}`},
		{400, `{"object":"error","message":"The prompt (total length 25938) is too long to fit into the model (context length 4096)."}`},
		{400, `{"object":"error","message":"The input (61709 tokens) is longer than the model's context length (40960 tokens).","code":400}`},
		{400, `{"object":"error","message":"Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).","code":400}`},
		{400, `{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_prompt_tokens":9,"n_ctx":8}}`},
		{500, `{"error":{"code":500,"message":"the request exceeds the available context size, try increasing it","type":"server_error"}}`},
		{500, `{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}`},
		{422, `{"error":"Input validation error: ` + "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 17 `inputs` tokens and 99999 `max_new_tokens`" + `","error_type":"validation"}`},
		{422, `{"error":"Input validation error: ` + "`inputs` must have less than 4095 tokens. Given: 5000" + `","error_type":"validation"}`},
		{400, `{"error":{"message":"the input length exceeds the context length"}}`},
		{400, `{"error":"Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough."}`},
		{400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}`},
		{400, `{"type":"error","error":{"type":"invalid_request_error","message":"input length and ` + "`max_tokens`" + ` exceed context limit: 190000 + 20000 > 200000"}}`},
		{400, `[{"error":{"code":400,"message":"The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}]`},
		{400, `{"error":"This model's maximum prompt length is 131072 but the request contains 200000 tokens."}`},
		{413, `This model's maximum context length is 4096 tokens.`},
	} {
		e := ErrorFromResponse(test.status, []byte(test.body))
		require.Equal(t, ErrContextLength, e.Type, test.body)
		require.Equal(t, test.status, e.Status)
	}
	for _, test := range []struct {
		status int
		body   string
		want   ErrorType
	}{
		{400, `{"error":{"message":"max_tokens must be at least 1, got 0","code":400}}`, ErrHTTP4xx},
		{400, `{"error":{"message":"Invalid 'user': string too long. Expected a string with maximum length 64","code":"string_above_max_length"}}`, ErrHTTP4xx},
		{404, `{"error":{"message":"no model with that maximum context length","code":404}}`, ErrHTTP4xx},
		{500, `{"error":{"message":"CUDA out of memory","code":500}}`, ErrHTTP5xx},
	} {
		require.Equal(t, test.want, ErrorFromResponse(test.status, []byte(test.body)).Type, test.body)
	}
}

// A server that does not know stream_options gets an error that names the remedy.
func TestStreamOptionsRejected(t *testing.T) {
	t.Parallel()
	const remedy = "the server rejects stream_options, by which token usage is asked for; " +
		"set the client option `includeUsage: false`. It said: "
	for _, test := range []struct {
		status     int
		body, said string
	}{
		{422, `{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","stream_options","include_usage"],"msg":"Extra inputs are not permitted","input":true}]},"type":"invalid_request_error","param":null,"code":null}`, "body.stream_options.include_usage: Extra inputs are not permitted"},
		{400, `{"detail":"Extra parameters ['stream_options'] are not allowed when extra-parameters is not set"}`, "Extra parameters ['stream_options'] are not allowed when extra-parameters is not set"},
		{400, `{"error":{"message":"Validation error at #/stream_options: Extra inputs are not permitted"}}`, "Validation error at #/stream_options: Extra inputs are not permitted"},
		{400, `{"error":{"message":"Stream options can only be defined when stream is true"}}`, "Stream options can only be defined when stream is true"},
		{400, `unknown field include_usage`, "unknown field include_usage"},
	} {
		e := ErrorFromResponse(test.status, []byte(test.body))
		require.Equal(t, ErrHTTP4xx, e.Type)
		require.Equal(t, remedy+test.said, e.Message)
	}
	_, err := NewDecoder(Chat).Event("", `{"error":{"message":"unknown field stream_options","code":400}}`)
	require.Equal(t, remedy+"unknown field stream_options", requireType(t, ErrStream, err).Message)

	for _, status := range []int{429, 500} { // those have another cause
		require.Equal(t, "stream_options", ErrorFromResponse(status, []byte(`{"error":"stream_options"}`)).Message)
	}
	require.Equal(t, "bad", ErrorFromResponse(400, []byte(`{"error":"bad"}`)).Message)
}

func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("日本", 1<<18)
	for _, body := range []string{
		long, `{"error":{"message":"` + long + `","code":"` + long + `","type":"` + long + `"}}`, "<title>" + long + "</title>", `{"detail":["` + long + `"]}`,
	} {
		e := ErrorFromResponse(500, []byte(body))
		require.LessOrEqual(t, len(e.Message), maxMessageBytes+len("…"))
		require.LessOrEqual(t, len(e.Code), maxExcerptBytes+len("…"))
		require.LessOrEqual(t, len(e.Kind), maxExcerptBytes+len("…"))
		require.True(t, utf8.ValidString(e.Error()))
	}
	require.Equal(t, strings.Repeat("日本", 85)+"…", ErrorFromResponse(500, []byte(long)).Message) // 510 of 512 bytes
}

// TestSecretsAreHiddenBeforeAnythingIsCut: a cut within a key would leave its beginning, which no search for the key finds.
func TestSecretsAreHiddenBeforeAnythingIsCut(t *testing.T) {
	t.Parallel()
	key := strings.Repeat("Qz/7", 21) + "!" // 85 characters, of no known form
	secrets := NewSecrets(key, "Qz/7Q", "abc")
	shown := func(e *Error) string { return e.Error() + e.Code + e.Kind + e.Message }
	for _, escape := range []bool{false, true} {
		quoted := key
		if escape {
			quoted = strings.ReplaceAll(key, "/", `\/`)
		}
		for pad := 0; pad < 5000; pad += 61 {
			for _, filler := range []string{"x", " "} {
				said := strings.Repeat(filler, pad) + " " + quoted + " and more"
				for _, body := range []string{
					said, `{"error":{"message":"` + said + `"}}`, `{"error":{"message":"m","code":"` + said + `","type":"` + said + `"}}`,
					`{"detail":["` + said + `"]}`, "<title>" + said + "</title>",
				} {
					if escape && body == said {
						continue
					}
					require.NotContains(t, shown(ErrorFromResponse(401, []byte(body), key, "Qz/7Q", "abc")), "Qz", "%d of %q", pad, filler)
				}
				for _, event := range []string{said, `{"choices":"` + said + `"}`, `{"choices":[{"delta":"` + said + `"}]}`, `{"error":{"message":"` + said + `"}}`} {
					d := NewDecoder(Chat)
					d.Hide(secrets)
					_, err := d.Event("", event)
					require.Error(t, err)
					require.NotContains(t, err.Error(), "Qz", "%d of %q", pad, filler)
					require.Same(t, err, d.Finish())
					d = NewDecoder(Chat)
					d.Hide(secrets)
					require.NotContains(t, d.Body([]byte(event)).Error(), "Qz")
					d = NewDecoder(Chat)
					d.Hide(secrets)
					require.NotContains(t, d.Reject("no stream", event).Error(), "Qz")
				}
			}
		}
	}
	require.Equal(t, "abc [redacted] [redacted]", ErrorFromResponse(401, []byte("abc "+key+" Qz/7Q"), secrets...).Message)
}

func TestCredentialsAreRedacted(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"error":{"message":"Incorrect API key provided: sk-proj-AAAAbbbbCCCC1234567890."}}`: "Incorrect API key provided: [redacted]",
		`{"error":"got header Authorization: Bearer abc.def-123456, which is wrong"}`:         "got header Authorization: [redacted], which is wrong",
		`token hf_abcdefghijklmnopqrst is expired`:                                            "token [redacted] is expired",
		`{"error":"try api-inference.example.org; no task-oriented-reply-was-found"}`:         "try api-inference.example.org; no task-oriented-reply-was-found",
	} {
		require.Equal(t, want, ErrorFromResponse(401, []byte(body)).Message)
	}
	require.Equal(t, "bad � byte", ErrorFromResponse(400, []byte("bad \xff byte")).Message)
}
