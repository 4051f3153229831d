package wire

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// cut splits a text into parts, some of them empty, at any byte: a token need not end with a character.
func cut(t *rapid.T, text, label string) []string {
	var parts []string
	for rest := text; ; {
		n := rapid.IntRange(0, len(rest)).Draw(t, label)
		parts = append(parts, rest[:n])
		if rest = rest[n:]; rest == "" {
			return parts
		}
	}
}

// rawJSON quotes a text whose bytes may be no UTF-8, and leaves those bytes alone, as servers do that cut by bytes.
func rawJSON(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ':
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')

	return b.String()
}

// However an answer is cut into deltas, the message is the same, and a chunk is a delta that is not empty, or names a tool.
func TestAssemblingIsIndependentOfTheCuts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		reasoning := rapid.String().Draw(t, "reasoning")
		arguments := rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, "arguments")

		for _, api := range apis {
			d := NewDecoder(api)
			chunks, want, texts := 0, 0, 0
			feed := func(data string, output, isText bool) {
				delta, err := d.Event("", data)
				require.NoError(t, err, "%s", data)
				require.Equal(t, output, delta.Output)
				require.Equal(t, output && isText, delta.Text)
				if delta.Output {
					chunks++
				}
				if output {
					want++
				}
				if delta.Text {
					texts++
				}
			}
			dialect := dialects[api]
			if dialect.reasoning != "" {
				for _, part := range cut(t, reasoning, "reasoning cut") {
					feed(fmt.Sprintf(dialect.reasoning, rawJSON(part)), part != "", false)
				}
			}
			for _, part := range cut(t, text, "text cut") {
				feed(fmt.Sprintf(dialect.text, rawJSON(part)), part != "", true)
			}
			wantCalls := []ToolCall(nil)
			if dialect.arguments != "" {
				for i, argument := range arguments {
					feed(fmt.Sprintf(dialect.call, i, i, i), true, true)
					for _, part := range cut(t, argument, "arguments cut") {
						feed(fmt.Sprintf(dialect.arguments, i, rawJSON(part)), part != "", true)
					}
					if strings.TrimSpace(argument) == "" {
						argument = "{}"
					}
					wantCalls = append(wantCalls, ToolCall{ID: fmt.Sprintf("c%d", i), Name: fmt.Sprintf("f%d", i), Arguments: argument})
				}
			}
			require.Equal(t, want, chunks)

			m := d.Message()
			require.Equal(t, text, m.Text)
			if dialect.reasoning != "" {
				require.Equal(t, reasoning, m.Reasoning)
			}
			require.Equal(t, wantCalls, m.ToolCalls)
		}
	})
}

var dialects = map[API]struct{ text, reasoning, call, arguments string }{
	Chat: {
		text:      `{"choices":[{"index":0,"delta":{"content":%s}}]}`,
		reasoning: `{"choices":[{"index":0,"delta":{"reasoning_content":%s}}]}`,
		call:      `{"choices":[{"delta":{"tool_calls":[{"index":%d,"id":"c%d","function":{"name":"f%d","arguments":""}}]}}]}`,
		arguments: `{"choices":[{"delta":{"tool_calls":[{"index":%d,"function":{"arguments":%s}}]}}]}`,
	},
	Completions: {text: `{"choices":[{"index":0,"text":%s}]}`},
	Responses: {
		text:      `{"type":"response.output_text.delta","output_index":9,"delta":%s}`,
		reasoning: `{"type":"response.reasoning_text.delta","output_index":8,"delta":%s}`,
		call:      `{"type":"response.output_item.added","output_index":%d,"item":{"type":"function_call","call_id":"c%d","name":"f%d","arguments":""}}`,
		arguments: `{"type":"response.function_call_arguments.delta","output_index":%d,"delta":%s}`,
	},
	Messages: {
		text:      `{"type":"content_block_delta","index":9,"delta":{"type":"text_delta","text":%s}}`,
		reasoning: `{"type":"content_block_delta","index":8,"delta":{"type":"thinking_delta","thinking":%s}}`,
		call:      `{"type":"content_block_start","index":%d,"content_block":{"type":"tool_use","id":"c%d","name":"f%d"}}`,
		arguments: `{"type":"content_block_delta","index":%d,"delta":{"type":"input_json_delta","partial_json":%s}}`,
	},
}

// A whole answer says what the stream of the same answer says.
func TestWholeAndStreamedAnswersAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		quote := func(s string) string {
			data, err := json.Marshal(s)
			require.NoError(t, err)

			return string(data)
		}
		text, reasoning := quote(rapid.String().Draw(t, "text")), quote(rapid.String().Draw(t, "reasoning"))
		said := `{"content":` + text + `,"reasoning":` + reasoning + `,"tool_calls":[{"id":"c","function":{"name":"f","arguments":` + text + `}}]}`
		end := `,"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`

		whole, streamed := NewDecoder(Chat), NewDecoder(Chat)
		require.NoError(t, whole.Body([]byte(`{"id":"i","choices":[{"message":`+said+end)))
		_, err := streamed.Event("", `{"id":"i","choices":[{"delta":`+said+end)
		require.NoError(t, err)
		require.Equal(t, streamed.Message(), whole.Message())
	})
}
