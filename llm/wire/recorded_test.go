package wire

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// recorded is a stream and the truth about it, read from its bytes by hand.
type recorded struct {
	file      string
	api       API
	chunks    int
	tokens    int    // sum of Delta.Tokens
	text      string // the whole text, or …
	textBytes int    // … its length and the beginning of its SHA-256
	textHash  string
	reasoning string
	tools     []ToolCall
	finish    string
	open      bool // no terminal marker comes
	id, model string

	prompt, completion, cached, thought *int

	failure ErrorType
	code    string
	message string // a part of the error's
}

func (want *recorded) check(t *testing.T, body string) {
	t.Helper()
	got := play(t, want.api, body)
	require.Equal(t, want.chunks, got.chunks, "chunks")
	require.Equal(t, want.tokens, got.tokens, "tokens")
	require.Equal(t, !want.open, got.done, "terminal marker")
	m := got.message
	if want.textHash != "" {
		require.Len(t, m.Text, want.textBytes)
		require.Equal(t, want.textHash, digest(m.Text))
	} else {
		require.Equal(t, want.text, m.Text)
	}
	require.Equal(t, want.reasoning, m.Reasoning)
	require.Equal(t, want.tools, m.ToolCalls)
	require.Equal(t, want.finish, m.FinishReason)
	require.Equal(t, want.id, m.ID)
	require.Equal(t, want.model, m.Model)
	require.Equal(t, Usage{want.prompt, want.completion, want.cached, want.thought}, m.Usage)
	if e := requireType(t, want.failure, got.err); e != nil {
		require.Equal(t, want.code, e.Code)
		require.Contains(t, e.Message, want.message)
	}
}

const loadTesting = "Load testing measures how a server behaves when many clients stream tokens at once, " +
	"including naïve café cases — 日本語 🚀."

const randomWords = " MySQL racianoлка prosper hochظ населення dit城at Tan:\u2009termin followedql Motor teams* " +
	"spare actuqtistik zna heutefalse Swiftfilename Estados Hope Country Ryan"

var capturedStreams = []recorded{
	{
		file: "sim/chat_stream_nousage.body", api: Chat, chunks: 24,
		text:   "The rest is silence. Testing, testing 1,2,3. To be or not to be that is the question",
		finish: "length", id: "chatcmpl-70b1fc34-f47f-5356-bf23-980c7a3f8fb0", model: "sim-model",
	},
	{
		file: "sim/chat_stream_usage.body", api: Chat, chunks: 24,
		text:   "Alas, poor Yorick! I knew him, Horatio: A fellow of infinite jest I am fine, how are you today",
		finish: "length", id: "chatcmpl-044289f2-cb9c-57eb-861a-9eefba77f332", model: "sim-model",
		prompt: intp(17), completion: intp(24), cached: intp(16),
	},
	{ // asked for continuous usage, and ignored: `usage` is null on every chunk but the last
		file: "sim/chat_stream_contusage.body", api: Chat, chunks: 8,
		text:   "Give a man a fish and you feed ",
		finish: "length", id: "chatcmpl-61c90ad0-b155-505d-8d94-14f71d2eeb34", model: "sim-model",
		prompt: intp(17), completion: intp(8), cached: intp(16),
	},
	{
		file: "sim/logprobs_stream.body", api: Chat, chunks: 4, text: "To be or not ",
		finish: "length", id: "chatcmpl-6a529fdc-1ec0-5fd7-8984-f29d4d0f4b3a", model: "sim-model",
	},
	{
		file: "sim/tools_stream.body", api: Chat, chunks: 9,
		tools:  []ToolCall{{ID: "chatcmpl-tool-5434894147", Name: "get_weather", Arguments: `{"city":"hello"}`}},
		finish: "tool_calls", id: "chatcmpl-04747ae6-8096-55fe-9913-6aa04e807f76", model: "sim-model",
	},
	{
		file: "sim/compl_stream_nousage.body", api: Completions, chunks: 16,
		text:   "To be or not to be that is the question. The rest is silence. ",
		finish: "length", id: "cmpl-ee45c5d9-0a92-5d31-94a6-9750be4a5ff7-0", model: "sim-model",
	},
	{
		file: "sim/compl_stream_usage.body", api: Completions, chunks: 16,
		text:   "Give a man a fish and you feed him for a day; teach a man ",
		finish: "length", id: "cmpl-5bb4bbbe-5952-5f0b-9da4-2fac6d00df94-0", model: "sim-model",
		prompt: intp(5), completion: intp(16), cached: intp(0),
	},
	{
		file: "sim/messages_stream.body", api: Messages, chunks: 1, text: "I ",
		finish: "end_turn", id: "msg_8f3c491a-7276-5524-afda-0e8651b73e09", model: "sim-model",
		prompt: intp(17), completion: intp(1), cached: intp(0),
	},
	{
		file: "sim/responses_stream.body", api: Responses, chunks: 1, text: "Testing",
		finish: "completed", id: "resp_8132f133-d0b0-5d08-a782-21afca6d1197", model: "sim-model",
		prompt: intp(10), completion: intp(1),
	},
	{
		file: "sim/overcontext.body", api: Chat,
		failure: ErrContextLength, code: "400", message: "you requested 100016 tokens",
	},
	{
		file: "sim/overcontext_prompt.body", api: Chat,
		failure: ErrContextLength, code: "400", message: "you requested 6015 tokens",
	},
	{ // the client left in the middle
		file: "sim/cancel.body", api: Chat, chunks: 17,
		text: "Today is a nice sunny day. Today it is partially cloudy and raining. I am ",
		id:   "chatcmpl-dd62f2f1-2089-587d-a7bf-dbe2f461ef76", model: "sim-model",
		open: true, failure: ErrTruncated, message: "in the middle of the answer",
	},
	{
		file: "llama/chat_stream_nousage.body", api: Chat, chunks: 48, textBytes: 265, textHash: "d06206c7c46b6b83",
		finish: "stop", id: "chatcmpl-A5xaYO4QsAOuALkTbGwSXzn2P4vKY079", model: "tiny",
	},
	{
		file: "llama/chat_stream_usage.body", api: Chat, chunks: 48, textBytes: 265, textHash: "d06206c7c46b6b83",
		finish: "stop", id: "chatcmpl-xyxCU9JniYQJS7kWa7uwKthbm99lCQNx", model: "tiny",
		prompt: intp(24), completion: intp(48), cached: intp(0),
	},
	{ // usage comes unasked, on a last chunk that has a choice
		file: "llama/compl_stream.body", api: Completions, chunks: 32, text: randomWords,
		finish: "stop", id: "chatcmpl-kFgY2XiFJtrOrQWfYx8hpdbrlpQf5aQe", model: "tiny",
		prompt: intp(5), completion: intp(32), cached: intp(0),
	},
	{
		file: "llama/compl_stream_usage.body", api: Completions, chunks: 32, text: randomWords,
		finish: "stop", id: "chatcmpl-hvgm40g6AbgjY7GcaEDNbeHH5OzyAZy3", model: "tiny",
		prompt: intp(5), completion: intp(32), cached: intp(4),
	},
	{ // an error after 180 good chunks, and no [DONE]
		file: "llama/hit_ctx_limit_noshift2.body", api: Chat, chunks: 180, textBytes: 1020, textHash: "4f29290a2c44dc68",
		id: "chatcmpl-qKXIs9LF5fv7Ivum17TJXigRhn69inYV", model: "tiny",
		open: true, failure: ErrContextLength, code: "500", message: "context shift is disabled",
	},
	{
		file: "llama/messages_stream.body", api: Messages, chunks: 32, textBytes: 188, textHash: "db8f6301afa059d2",
		finish: "end_turn", id: "chatcmpl-fHWUol6oxciONL6fNT0rDlDYfU790nWV", model: "tiny.gguf",
		prompt: intp(24), completion: intp(32), cached: intp(0),
	},
	{
		file: "aimock/chat_stream_nousage.body", api: Chat, chunks: 10, text: loadTesting,
		finish: "stop", id: "chatcmpl-zsOHFxBoFayaF2SD", model: "gpt-4o",
	},
	{
		file: "aimock/chat_stream_usage.body", api: Chat, chunks: 10, text: loadTesting,
		finish: "stop", id: "chatcmpl-kZ6DEKV8em8tHjvq", model: "gpt-4o",
		prompt: intp(16), completion: intp(30),
	},
	{
		file: "aimock/profile.body", api: Chat, chunks: 9,
		text:   "A stream with a time to first token and a token rate, many words long so there are several chunks.",
		finish: "stop", id: "chatcmpl-DMN0CmJBD9IRJqRh", model: "gpt-4o",
	},
	{
		file: "aimock/truncate.body", api: Chat, chunks: 1, text: "This stream ",
		id: "chatcmpl-ezqDmW69gFFPY0Lr", model: "gpt-4o",
		open: true, failure: ErrTruncated, message: "in the middle of the answer",
	},
	{ // the server reports zeros, which are no counts
		file: "aimock/messages_stream.body", api: Messages, chunks: 10, text: loadTesting,
		finish: "end_turn", id: "msg_JNLbV6cj93ru6SYS", model: "claude-x",
	},
	{
		file: "aimock/responses_stream.body", api: Responses, chunks: 10, text: loadTesting,
		finish: "completed", id: "resp-yaFmP-Z_9a4tWGig", model: "gpt-4o",
	},
}

// capturedAnswers are those that came as one body: with the HTTP status they had.
var capturedAnswers = []struct {
	file    string
	status  int
	failure ErrorType
	code    string
	kind    string
	message string
}{
	{"sim/chat_nonstream.body", 200, "", "", "", ""},
	{"sim/badjson.body", 400, ErrHTTP4xx, "400", "BadRequestError", "Failed to read and parse request body, unexpected end of JSON input"},
	{"sim/badmodel.body", 404, ErrHTTP4xx, "404", "NotFoundError", "The model `nope` does not exist."},
	{"sim/forced_429.body", 429, ErrHTTP429, "429", "RateLimitError", "Simulated error triggered by X-Return-Error header (code 429)"},
	{"sim/forced_500.body", 500, ErrHTTP5xx, "500", "InternalServerError", "Simulated error triggered by X-Return-Error header (code 500)"},
	{"sim/forced_503.body", 503, ErrHTTP5xx, "503", "InternalServerError", "Simulated error triggered by X-Return-Error header (code 503)"},
	{"sim/inject_stream.body", 503, ErrHTTP5xx, "503", "InternalServerError", "The server is overloaded or not ready yet."},
	{
		"llama/badjson.body", 500, ErrHTTP5xx, "500", "server_error",
		"[json.exception.parse_error.101] parse error at line 1, column 10: syntax error while parsing value - " +
			"unexpected end of input; expected '[', '{', or a literal",
	},
	{
		"llama/overcontext_noshift_nonstream.body", 500, ErrContextLength, "500", "server_error",
		"the request exceeds the available context size, try increasing it",
	},
	{"aimock/chaos_malformed.body", 200, ErrDecode, "", "", `invalid JSON: "{malformed json: <<<chaos>>>"`},
	{"aimock/chaos_drop.body", 500, ErrHTTP5xx, "chaos_drop", "server_error", "Chaos: request dropped"},
	{"aimock/compl_stream.body", 404, ErrHTTP4xx, "", "not_found", "Not found"},
	{"aimock/ratelimit.body", 429, ErrHTTP429, "", "rate_limit_error", "Rate limited"},
}

func TestCapturedStreams(t *testing.T) {
	t.Parallel()
	folder := sharedFolder(t, "captures")
	for i := range capturedStreams {
		want := &capturedStreams[i]
		t.Run(want.file, func(t *testing.T) {
			t.Parallel()
			body, err := os.ReadFile(filepath.Join(folder, want.file))
			require.NoError(t, err)
			want.check(t, string(body))
		})
	}
}

func TestCapturedAnswers(t *testing.T) {
	t.Parallel()
	folder := sharedFolder(t, "captures")
	for _, want := range capturedAnswers {
		t.Run(want.file, func(t *testing.T) {
			t.Parallel()
			body, err := os.ReadFile(filepath.Join(folder, want.file))
			require.NoError(t, err)
			headers, err := os.ReadFile(filepath.Join(folder, strings.TrimSuffix(want.file, ".body")+".headers"))
			require.NoError(t, err)
			require.Contains(t, string(headers), "HTTP/1.1 "+statusText(want.status))

			var e *Error
			d := NewDecoder(Chat)
			if want.status == 200 {
				if e = requireType(t, want.failure, d.Body(body)); e == nil {
					return
				}
			} else {
				e = ErrorFromResponse(want.status, body)
				require.Equal(t, want.status, e.Status)
			}
			require.Equal(t, want.failure, e.Type)
			require.Equal(t, want.code, e.Code)
			require.Equal(t, want.kind, e.Kind)
			require.Equal(t, want.message, e.Message)
		})
	}
}

func TestCapturedWholeAnswer(t *testing.T) {
	t.Parallel()
	body, err := os.ReadFile(filepath.Join(sharedFolder(t, "captures"), "sim/chat_nonstream.body"))
	require.NoError(t, err)
	d := NewDecoder(Chat)
	require.NoError(t, d.Body(body))
	require.NoError(t, d.Finish())
	require.Equal(t, &Message{
		ID: "chatcmpl-03ab4a50-21a2-5e70-b1cd-7c88bb641905", Model: "sim-model",
		Text: "Today it is partially cloudy and raining", FinishReason: "stop",
		Usage: Usage{PromptTokens: intp(17), CompletionTokens: intp(7), CachedTokens: intp(16)},
	}, d.Message())
}

// The timed captures hold the bytes of each read.
func TestCapturedTimings(t *testing.T) {
	t.Parallel()
	folder := sharedFolder(t, "captures")
	for _, want := range []recorded{
		{
			file: "sim/chat_timing.jsonl", api: Chat, chunks: 40, textBytes: 157, textHash: "fba33150633068c4",
			finish: "length", id: "chatcmpl-adb21460-7012-5608-b1ae-d2781e8d6ffd", model: "sim-model",
			prompt: intp(17), completion: intp(40), cached: intp(16),
		},
		{
			file: "aimock/profile_timing.jsonl", api: Chat, chunks: 9, textBytes: 98, textHash: "228c01cca91be6f8",
			finish: "stop", id: "chatcmpl-g7KLgbJr0vIsoDv1", model: "gpt-4o",
		},
	} {
		t.Run(want.file, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(filepath.Join(folder, want.file))
			require.NoError(t, err)
			var body strings.Builder
			for line := range bytes.Lines(data) {
				var read struct {
					Bytes string `json:"bytes"`
				}
				require.NoError(t, json.Unmarshal(line, &read))
				body.WriteString(read.Bytes)
			}
			want.check(t, body.String())
		})
	}
}

// No capture may be left out.
func TestEveryCaptureIsTested(t *testing.T) {
	t.Parallel()
	folder := sharedFolder(t, "captures")
	known := map[string]bool{}
	for _, want := range capturedStreams {
		known[want.file] = true
	}
	for _, want := range capturedAnswers {
		known[want.file] = true
	}
	files, err := filepath.Glob(filepath.Join(folder, "*", "*.body"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		name, err := filepath.Rel(folder, file)
		require.NoError(t, err)
		require.True(t, known[filepath.ToSlash(name)], "%s has no test", name)
	}
}

// The fixtures have the shapes of the captures, and those of servers of which none was captured.
func TestFixtures(t *testing.T) {
	t.Parallel()
	for i := range fixtures {
		want := &fixtures[i]
		t.Run(want.file, func(t *testing.T) {
			t.Parallel()
			body, err := os.ReadFile(filepath.Join("testdata", want.file))
			require.NoError(t, err)
			want.check(t, string(body))
		})
	}
	files, err := filepath.Glob("testdata/*.sse")
	require.NoError(t, err)
	require.Len(t, fixtures, len(files), "a fixture without a test")
}
