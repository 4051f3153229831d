package llm

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/grafana/sobek"

	"github.com/safeqps/xk6-safeqps/llm/wire"
)

// toolLoop is what a turn does with the calls that the model asks for: it runs them and sends the results, until the model
// asks for none.
type toolLoop struct {
	onCall    sobek.Callable
	maxRounds int // requests of one turn
}

// defaultMaxRounds bounds a turn. A model that calls tools for ever would hold its VU until the test ends.
const defaultMaxRounds = 8

// parseToolLoop is nil where the request has no onToolCall: calls are then left to the script.
func parseToolLoop(more sobek.Value, request map[string]any) (*toolLoop, error) {
	o := &optionsOf{what: "llm.Session: chat", values: request}
	rounds, limited, err := o.whole("maxRounds", 1, "a whole number, 1 or more")
	if err != nil {
		return nil, err
	}
	if _, given := o.get("onToolCall"); !given {
		if limited {
			return nil, o.wrong("maxRounds", request["maxRounds"], "it beside onToolCall alone")
		}

		return nil, nil //nolint:nilnil // see above
	}
	loop := &toolLoop{maxRounds: defaultMaxRounds}
	if limited {
		loop.maxRounds = rounds
	}
	object, ok := more.(*sobek.Object)
	if ok {
		loop.onCall, ok = sobek.AssertFunction(object.Get("onToolCall"))
	}
	if !ok {
		return nil, o.wrong("onToolCall", request["onToolCall"], `a function such as (call) => "sunny"`)
	}

	return loop, nil
}

// run asks the script for the result of each call. An exception that it throws is passed on.
func (l *toolLoop) run(m *moduleInstance, calls []wire.ToolCall) ([]string, error) {
	results := make([]string, len(calls))
	for i, call := range calls {
		value, err := l.onCall(sobek.Undefined(), m.toolCall(call))
		if err != nil {
			return nil, err //nolint:wrapcheck // the script's own
		}
		if results[i], err = m.toolResult(call, value); err != nil {
			return nil, err
		}
	}

	return results, nil
}

// toolResult is a result as text: as it is, or as JSON.
func (m *moduleInstance) toolResult(call wire.ToolCall, value sobek.Value) (string, error) {
	if value != nil {
		switch v := value.Export().(type) {
		case string:
			return v, nil
		case *sobek.Promise:
			return "", fmt.Errorf("llm.Session: chat: onToolCall gave a Promise for %s, expected the result itself: it is not waited for", call.Name)
		}
	}
	stringify, ok := sobek.AssertFunction(m.vu.Runtime().Get("JSON").ToObject(m.vu.Runtime()).Get("stringify"))
	if ok && value != nil && !sobek.IsNull(value) {
		text, err := stringify(sobek.Undefined(), value)
		if err != nil {
			return "", fmt.Errorf("llm.Session: chat: what onToolCall gave for %s: %w", call.Name, err)
		}
		if !sobek.IsUndefined(text) {
			return text.String(), nil
		}
	}

	return "", fmt.Errorf("llm.Session: chat: onToolCall gave nothing for %s, expected the result: a text, or a value that becomes JSON", call.Name)
}

// reply is the assistant's turn as the API wants it back: text, and the tool calls whose results come next, each in the form
// in which it came. Reasoning is not sent back.
func reply(api wire.API, m *wire.Message) []any {
	switch api {
	case wire.Messages:
		return replyInBlocks(m)
	case wire.Responses:
		return replyInItems(m)
	default:
	}
	out := message("assistant", m.Text)
	var calls []any
	for _, call := range m.ToolCalls {
		if call.Kind == wire.OldCall {
			out["function_call"] = map[string]any{"name": call.Name, "arguments": call.Arguments}

			continue
		}
		calls = append(calls, chatCall(call))
	}
	if calls != nil {
		out["tool_calls"] = calls
	}

	return []any{out}
}

func chatCall(call wire.ToolCall) map[string]any {
	if call.Kind == wire.CustomCall {
		return map[string]any{
			"id": call.ID, "type": "custom", "custom": map[string]any{"name": call.Name, "input": call.Arguments},
		}
	}

	return map[string]any{
		"id": call.ID, "type": "function", "function": map[string]any{"name": call.Name, "arguments": call.Arguments},
	}
}

// replyInItems is OpenAI's responses form: each call is an item beside the message.
func replyInItems(m *wire.Message) []any {
	var items []any
	if m.Text != "" || len(m.ToolCalls) == 0 {
		items = append(items, message("assistant", m.Text))
	}
	for _, call := range m.ToolCalls {
		item := map[string]any{"type": "function_call", "call_id": call.ID, "name": call.Name, "arguments": call.Arguments}
		if call.Kind == wire.CustomCall {
			item = map[string]any{"type": "custom_tool_call", "call_id": call.ID, "name": call.Name, "input": call.Arguments}
		}
		items = append(items, item)
	}

	return items
}

// replyInBlocks is Anthropic's form: content blocks, with a tool's input as an object. It is nil for an answer without text
// and calls, such as one that reached its limit in the thinking: Anthropic refuses empty text.
func replyInBlocks(m *wire.Message) []any {
	empty := strings.TrimSpace(m.Text) == ""
	switch {
	case len(m.ToolCalls) == 0 && empty:
		return nil
	case len(m.ToolCalls) == 0:
		return []any{message("assistant", m.Text)}
	}
	var blocks []any
	if !empty {
		blocks = append(blocks, map[string]any{"type": "text", "text": m.Text})
	}
	for _, call := range m.ToolCalls {
		var input map[string]any
		if json.Unmarshal([]byte(call.Arguments), &input) != nil || input == nil {
			input = map[string]any{}
		}
		blocks = append(blocks, map[string]any{"type": "tool_use", "id": call.ID, "name": call.Name, "input": input})
	}

	return []any{map[string]any{"role": "assistant", "content": blocks}}
}

// toolResults are the results of calls as the API wants them.
func toolResults(api wire.API, calls []wire.ToolCall, results []string) []any {
	out := make([]any, len(calls))
	for i, call := range calls {
		switch api {
		case wire.Messages:
			out[i] = map[string]any{"type": "tool_result", "tool_use_id": call.ID, "content": results[i]}
		case wire.Responses:
			out[i] = map[string]any{"type": "function_call_output", "call_id": call.ID, "output": results[i]}
			if call.Kind == wire.CustomCall {
				out[i] = map[string]any{"type": "custom_tool_call_output", "call_id": call.ID, "output": results[i]}
			}
		default:
			out[i] = map[string]any{"role": "tool", "tool_call_id": call.ID, "content": results[i]}
			if call.Kind == wire.OldCall {
				out[i] = map[string]any{"role": "function", "name": call.Name, "content": results[i]}
			}
		}
	}
	if api == wire.Messages {
		return []any{map[string]any{"role": "user", "content": out}} // all results are one message
	}

	return out
}

// resultID is by what a result names its call: the old function_call has no ID, and is named by its function.
func resultID(call wire.ToolCall) string {
	if call.Kind == wire.OldCall {
		return call.Name
	}

	return call.ID
}

// resultsIn are the calls whose results a turn's input holds, in the form of any API.
func resultsIn(said []any) []string {
	var ids []string
	for _, item := range said {
		m, _ := item.(map[string]any)
		kind, _ := m["type"].(string)
		switch {
		case m["role"] == "tool":
			ids = append(ids, stringIn(m["tool_call_id"]))
		case m["role"] == "function":
			ids = append(ids, stringIn(m["name"]))
		case strings.HasSuffix(kind, "_call_output"):
			ids = append(ids, stringIn(m["call_id"]))
		default:
			blocks, _ := m["content"].([]any)
			for _, b := range blocks {
				if block, ok := b.(map[string]any); ok && block["type"] == "tool_result" {
					ids = append(ids, stringIn(block["tool_use_id"]))
				}
			}
		}
	}

	return ids
}

func stringIn(v any) string {
	s, _ := v.(string)

	return s
}
