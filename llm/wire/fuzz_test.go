package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// FuzzEvent gives a decoder two events of any content. Whatever they are, it does not panic, says nothing that
// contradicts itself, and takes nothing that is not JSON.
func FuzzEvent(f *testing.F) {
	for i := range fixtures {
		body, err := os.ReadFile(filepath.Join("testdata", fixtures[i].file))
		require.NoError(f, err)
		for event := range strings.SplitSeq(string(body), "\n\n") {
			_, data, _ := strings.Cut(event, "data: ")
			for api := range apis {
				f.Add(uint8(api), "", data, stop) //nolint:gosec // a small index
			}
		}
	}
	f.Add(uint8(0), "error", "boom", "")
	f.Fuzz(func(t *testing.T, api uint8, name, first, second string) {
		d := NewDecoder(apis[int(api)%len(apis)])
		var failed error
		for _, data := range []string{first, second} {
			before := d.Message()
			delta, err := d.Event(name, data)
			after := d.Message()

			if !delta.Output {
				require.False(t, delta.Text)
				require.Zero(t, delta.Tokens)
				require.Equal(t, before.Text, after.Text)
				require.Equal(t, before.Reasoning, after.Reasoning)
				require.Equal(t, before.Refusal, after.Refusal)
			}
			require.GreaterOrEqual(t, delta.Tokens, 0)
			if failed != nil {
				require.NoError(t, err, "only the first error is reported")
				require.False(t, delta.Output)
			}
			if delta.Output {
				require.True(t, json.Valid([]byte(strings.TrimSpace(data))), "output from data that is not JSON: %q", data)
			}
			if err != nil {
				failed = err
				checkError(t, err)
			}
		}
		if failed != nil {
			require.Same(t, failed, d.Finish())
		}
		checkMessage(t, d.Message())
	})
}

// FuzzBody gives a decoder, and the reader of errors, a whole answer of any content.
func FuzzBody(f *testing.F) {
	whole := append(slices.Clone(apis), Embeddings)
	for _, seed := range []string{
		`{"id":"c","choices":[{"message":{"content":"a","tool_calls":[{"function":{"name":"f","arguments":{}}}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}`,
		`{"choices":[{"text":"a"}]}`, `{"content":[{"type":"tool_use","input":{"a":1}}]}`, `{"data":[{"embedding":[1,2]},{"embedding":"AAAAAA=="}]}`, `{"output":[{"type":"message","content":[{"type":"output_text","text":"a"}]}]}`,
		`{"error":{"message":"m","code":1}}`, `{"error":"m"}`, `{"detail":[{"loc":["a",1],"msg":"b"}]}`, `[{"error":{}}]`, `<title>a</title>`, ``,
	} {
		for api := range whole {
			f.Add(uint8(api), 400+100*(api%2), []byte(seed)) //nolint:gosec // a small index
		}
	}
	f.Fuzz(func(t *testing.T, api uint8, status int, body []byte) {
		d := NewDecoder(whole[int(api)%len(whole)])
		err := d.Body(body)
		if err == nil {
			require.True(t, json.Valid(bytes.TrimPrefix(body, []byte("\uFEFF"))))
			require.NoError(t, d.Finish())
		} else {
			checkError(t, err)
			require.Same(t, err, d.Finish())
		}
		checkMessage(t, d.Message())
		checkError(t, ErrorFromResponse(status, body))
	})
}

func checkError(t *testing.T, err error) {
	t.Helper()
	var e *Error
	require.True(t, errors.As(err, &e))
	require.Contains(t, []ErrorType{ErrStream, ErrTruncated, ErrDecode, ErrContextLength, ErrHTTP429, ErrHTTP4xx, ErrHTTP5xx}, e.Type)
	require.NotEmpty(t, e.Message)
	require.Less(t, len(e.Error()), 2048)
	require.True(t, utf8.ValidString(e.Error()))
	require.NotContains(t, e.Error(), "\n")
}

func checkMessage(t *testing.T, m *Message) {
	t.Helper()
	for _, text := range []string{m.Text, m.Reasoning, m.Refusal} {
		require.True(t, utf8.ValidString(text))
	}
	for _, call := range m.ToolCalls {
		require.True(t, utf8.ValidString(call.Arguments))
	}
	for _, n := range []*int{m.Usage.PromptTokens, m.Usage.CompletionTokens, m.Usage.CachedTokens, m.Usage.ReasoningTokens} {
		if n != nil {
			require.GreaterOrEqual(t, *n, 0)
		}
	}
}
