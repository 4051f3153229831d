package format

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/tidwall/gjson"
)

// prompt turns a request body into the tokens that the model would read, near enough to tell which prompts
// start alike: tools first, then the messages in order, each encoded by itself so that a longer history
// starts with the tokens of the shorter one. It is nil when the body has no prompt or there is no
// tokenizer. parts counts images and the like.
func (a *anonymizer) prompt(body gjson.Result) (tokens []int, parts int, err error) {
	ids := body.Get("prompt")
	if tokens, ok := tokenIDs(ids); ok {
		return tokens, 0, nil
	}
	if a.o.Tokenizer == nil {
		return nil, 0, nil
	}
	found := false
	text := func(s string) {
		found = true
		tokens = append(tokens, a.o.Tokenizer.Encode(s)...)
	}
	if tools := body.Get("tools"); tools.IsArray() {
		text(tools.Raw + "\n")
	}
	for _, key := range []string{"system", "instructions"} {
		if v := body.Get(key); v.Exists() && v.Type != gjson.Null {
			s, more := a.content(v)
			text("system\n" + s + "\n")
			tokens = append(tokens, more...)
			parts += len(more)
		}
	}
	for _, key := range []string{"messages", "input", "prompt", "text_input"} {
		v := body.Get(key)
		switch {
		case v.Type == gjson.String:
			text(v.Str)
		case key == "prompt" && v.IsArray():
			list := v.Array()
			if len(list) != 1 || list[0].Type != gjson.String {
				return nil, 0, errors.New("prompt: expected one prompt, not a list of several")
			}
			text(list[0].Str)
		case v.IsArray():
			for _, message := range v.Array() {
				s, more := a.message(message)
				text(s)
				tokens = append(tokens, more...)
				parts += len(more)
			}
		}
	}
	if !found {
		return nil, 0, nil
	}
	if tokens == nil {
		tokens = []int{} // an empty prompt is a prompt
	}
	return tokens, parts, nil
}

// tokenIDs reads a prompt that is given as token ids: [1,2,3] or [[1,2,3]].
func tokenIDs(v gjson.Result) ([]int, bool) {
	if !v.IsArray() {
		return nil, false
	}
	list := v.Array()
	if len(list) == 1 && list[0].IsArray() {
		list = list[0].Array()
	}
	tokens := make([]int, 0, len(list))
	for _, id := range list {
		n, err := parseCount(id.Raw)
		if id.Type != gjson.Number || err != nil {
			return nil, false
		}
		tokens = append(tokens, int(n))
	}
	return tokens, len(tokens) > 0
}

// message gives a message as text, and a token for each part that is not text.
func (a *anonymizer) message(m gjson.Result) (string, []int) {
	text, more := a.content(m.Get("content"))
	var b strings.Builder
	b.WriteString(m.Get("role").String())
	b.WriteByte('\n')
	b.WriteString(text)
	for _, key := range []string{"reasoning_content", "tool_calls", "arguments", "output"} {
		if v := m.Get(key); v.Exists() && v.Type != gjson.Null {
			b.WriteString(jsonCell(v).text)
		}
	}
	b.WriteByte('\n')
	return b.String(), more
}

// content gives a message's content, which is a string or a list of parts.
func (a *anonymizer) content(v gjson.Result) (text string, more []int) {
	if !v.IsArray() {
		return jsonCell(v).text, nil
	}
	var b strings.Builder
	for _, part := range v.Array() {
		if s := part.Get("text"); s.Type == gjson.String {
			b.WriteString(s.Str)
			continue
		}
		sum := a.sum("part", nil, []byte(part.Raw))
		more = append(more, int(binary.LittleEndian.Uint64(sum)>>1)) //nolint:gosec // 63 bits fit
	}
	return b.String(), more
}

// answerText is what a response says, in any of the APIs' shapes.
func answerText(response gjson.Result) (string, bool) {
	var b strings.Builder
	found := false
	for _, path := range []string{
		"choices.#.message.reasoning_content", "choices.#.message.content", "choices.#.message.tool_calls", "choices.#.text",
		"output.#.content.#.text", "output.#.arguments", "content.#.text", "output_text",
	} {
		collect(response.Get(path), &b, &found)
	}
	return b.String(), found
}

func collect(v gjson.Result, b *strings.Builder, found *bool) {
	switch {
	case v.Type == gjson.String:
		*found = true
		b.WriteString(v.Str)
	case v.IsArray():
		for _, item := range v.Array() {
			collect(item, b, found)
		}
	case v.IsObject():
		*found = true
		b.WriteString(v.Raw)
	}
}
