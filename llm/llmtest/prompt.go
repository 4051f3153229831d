package llmtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// message is one message of a chat, in OpenAI's form or Anthropic's.
type message struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls json.RawMessage `json:"tool_calls"`
}

// turn is one message as the model sees it, whatever API it came by.
type turn struct {
	role       string
	content    []piece
	toolResult bool
}

// piece is a part of a message: text, or the tokens of an image.
type piece struct {
	text  string
	image []uint32
}

// conversation reads the messages of a request.
func conversation(api apiKind, req apiRequest) ([]turn, *apiError) {
	switch api {
	case responsesAPI:
		return responsesConversation(req)
	case messagesAPI:
		return messagesConversation(req)
	default:
		return chatConversation(req.Messages)
	}
}

func chatConversation(messages []message) ([]turn, *apiError) {
	if len(messages) == 0 {
		return nil, badRequest("messages is empty, expected at least one message")
	}
	turns := make([]turn, 0, len(messages))
	for i, m := range messages {
		if m.Role == "" {
			return nil, badRequest("messages[%d] has no role", i)
		}
		content, err := readContent(chatAPI, m.Content)
		if err != nil {
			return nil, badRequest("messages[%d].content: %v", i, err)
		}
		if isGiven(m.ToolCalls) {
			content = append(content, piece{text: string(m.ToolCalls)})
		}
		turns = append(turns, turn{role: m.Role, content: content, toolResult: m.Role == "tool" || m.Role == "function"})
	}
	return turns, nil
}

func messagesConversation(req apiRequest) ([]turn, *apiError) {
	if len(req.Messages) == 0 {
		return nil, badRequest("messages: at least one message is required")
	}
	var turns []turn
	if isGiven(req.System) {
		content, err := readContent(messagesAPI, req.System)
		if err != nil {
			return nil, badRequest("system: %v", err)
		}
		turns = append(turns, turn{role: "system", content: content})
	}
	for i, m := range req.Messages {
		if m.Role != "user" && m.Role != "assistant" {
			return nil, badRequest("messages.%d.role: got %q, expected \"user\" or \"assistant\"", i, m.Role)
		}
		content, err := readContent(messagesAPI, m.Content)
		if err != nil {
			return nil, badRequest("messages.%d.content: %v", i, err)
		}
		turns = append(turns, turn{role: m.Role, content: content, toolResult: hasToolResult(m.Content)})
	}
	return turns, nil
}

// responsesConversation reads `input`: a text, or a list of messages, tool calls and their results.
func responsesConversation(req apiRequest) ([]turn, *apiError) {
	var turns []turn
	if req.Instructions != "" {
		turns = append(turns, turn{role: "system", content: []piece{{text: req.Instructions}}})
	}
	var text string
	if json.Unmarshal(req.Input, &text) == nil && text != "" {
		return append(turns, turn{role: "user", content: []piece{{text: text}}}), nil
	}
	var items []struct {
		Type      string          `json:"type"`
		Role      string          `json:"role"`
		Content   json.RawMessage `json:"content"`
		CallID    string          `json:"call_id"`
		Name      string          `json:"name"`
		Arguments string          `json:"arguments"`
		Input     string          `json:"input"`
		Output    json.RawMessage `json:"output"`
	}
	if json.Unmarshal(req.Input, &items) != nil || len(items) == 0 {
		return nil, badRequest("input: expected a text or a list of items that is not empty")
	}
	for i, item := range items {
		t := turn{role: item.Role}
		var err error
		switch item.Type {
		case "", "message":
			if item.Role == "" {
				return nil, badRequest("input[%d] has no role", i)
			}
			t.content, err = readContent(responsesAPI, item.Content)
		case "function_call", "custom_tool_call":
			t.role, t.content = "assistant", []piece{{text: item.Name + " " + item.Arguments + item.Input}}
		case "function_call_output", "custom_tool_call_output":
			t.role, t.toolResult = "tool", true
			if t.content, err = readContent(responsesAPI, item.Output); err == nil && item.CallID == "" {
				err = errors.New("call_id is missing")
			}
		case "reasoning":
			continue // not shown to the model again
		default:
			err = fmt.Errorf("an item of type %q is not known to this server", item.Type)
		}
		if err != nil {
			return nil, badRequest("input[%d]: %v", i, err)
		}
		turns = append(turns, t)
	}
	return turns, nil
}

// toolResults is how many results of tools have followed the user's last words.
func toolResults(turns []turn) int {
	n := 0
	for _, t := range turns {
		switch {
		case t.toolResult:
			n++
		case t.role == "user":
			n = 0
		}
	}
	return n
}

// renderChat applies the chat template: each message is start, role, separator, content, end; tools are a message of their
// own at the front; the reply begins with start, role, separator.
func renderChat(turns []turn, tools json.RawMessage, reply bool) []uint32 {
	var out []uint32
	if isGiven(tools) {
		out = append(out, tokenStart, tokenID("system"), tokenSeparator)
		out = append(Tokenize(out, string(tools)), tokenEnd)
	}
	for _, t := range turns {
		out = append(out, tokenStart, tokenID(t.role), tokenSeparator)
		for _, p := range t.content {
			out = append(Tokenize(out, p.text), p.image...)
		}
		out = append(out, tokenEnd)
	}
	if reply {
		out = append(out, tokenStart, tokenID("assistant"), tokenSeparator)
	}
	return out
}

// isGiven tells that a field holds something.
func isGiven(raw json.RawMessage) bool {
	text := string(raw)
	return text != "" && text != "null" && text != "[]"
}

// part is one element of a message's content, of all APIs together.
type part struct {
	Type     string          `json:"type"`
	Text     *string         `json:"text"`
	ImageURL json.RawMessage `json:"image_url"`
	Source   *struct {
		Type string `json:"type"`
		Data string `json:"data"`
	} `json:"source"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
}

// readContent reads a message's content: a text, null, or a list of parts of the API's own types. Texts that follow each
// other are one.
func readContent(api apiKind, raw json.RawMessage) ([]piece, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []piece{{text: text}}, nil
	}
	var parts []part
	if err := json.Unmarshal(raw, &parts); err != nil {
		return nil, errors.New("expected a string or a list of parts")
	}
	var out []piece
	for i, p := range parts {
		read, err := p.read(api)
		if err != nil {
			return nil, fmt.Errorf("part %d: %w", i, err)
		}
		for _, next := range read {
			if last := len(out) - 1; last >= 0 && next.image == nil && out[last].image == nil {
				out[last].text += next.text
			} else {
				out = append(out, next)
			}
		}
	}
	return out, nil
}

// read gives a part's meaning. Each API has its own names for the same things, and knows no others.
func (p part) read(api apiKind) ([]piece, error) {
	switch kind := p.Type; {
	case kind == "text" && api != responsesAPI,
		(kind == "input_text" || kind == "output_text") && api == responsesAPI:
		if p.Text == nil {
			return nil, errors.New("text is missing")
		}
		return []piece{{text: *p.Text}}, nil
	case kind == "image_url" && api == chatAPI:
		var image struct {
			URL string `json:"url"`
		}
		if err := json.Unmarshal(p.ImageURL, &image); err != nil {
			return nil, errors.New("image_url: expected an object with a url")
		}
		return imageFromURL(image.URL)
	case kind == "input_image" && api == responsesAPI:
		var url string
		if err := json.Unmarshal(p.ImageURL, &url); err != nil {
			return nil, errors.New("image_url: expected a string")
		}
		return imageFromURL(url)
	case kind == "image" && api == messagesAPI:
		if p.Source == nil || p.Source.Type != "base64" {
			return nil, errors.New("source: expected type base64, since this server fetches nothing")
		}
		return imageFromBase64(p.Source.Data)
	case kind == "tool_use" && api == messagesAPI:
		return []piece{{text: p.Name + " " + string(p.Input)}}, nil
	case kind == "tool_result" && api == messagesAPI:
		if p.ToolUseID == "" {
			return nil, errors.New("tool_use_id is missing")
		}
		return readContent(api, p.Content)
	case (kind == "thinking" || kind == "redacted_thinking") && api == messagesAPI:
		return nil, nil // not shown to the model again
	}
	return nil, fmt.Errorf("this API has no part of type %q, or this server does not know it", p.Type)
}

// hasToolResult tells whether the content of a message of Anthropic's holds the result of a tool.
func hasToolResult(raw json.RawMessage) bool {
	var parts []struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return false
	}
	for _, p := range parts {
		if p.Type == "tool_result" {
			return true
		}
	}
	return false
}

// wantsTool tells whether the request forces a tool call: `"required"` or an object in OpenAI's APIs, the types `any` and
// `tool` in Anthropic's.
func wantsTool(req apiRequest) bool {
	if !isGiven(req.Tools) || len(req.ToolChoice) == 0 {
		return false
	}
	if req.ToolChoice[0] != '{' {
		return string(req.ToolChoice) == `"required"`
	}
	var choice struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(req.ToolChoice, &choice) != nil {
		return false
	}
	return choice.Type != "auto" && choice.Type != "none"
}

// toolName is the name of the first tool of a request, or one for a request without. Chat puts the name into an object
// `function`, the other APIs beside the type.
func toolName(raw json.RawMessage) string {
	var tools []struct {
		Name     string `json:"name"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if json.Unmarshal(raw, &tools) == nil && len(tools) > 0 {
		if name := strings.TrimSpace(tools[0].Function.Name + tools[0].Name); name != "" {
			return name
		}
	}
	return "get_weather"
}
