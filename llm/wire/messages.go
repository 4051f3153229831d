package wire

import (
	"strings"

	"github.com/tidwall/gjson"
)

// messagesEvent takes one event of Anthropic's messages API.
func (d *Decoder) messagesEvent(name string, root gjson.Result, delta *Delta) *Error {
	var kind, index, message, block, part, usage, failure gjson.Result
	root.ForEach(func(key, v gjson.Result) bool {
		switch key.Str {
		case "type":
			kind = v
		case "index":
			index = v
		case "message":
			message = v
		case "content_block":
			block = v
		case "delta":
			part = v
		case "usage":
			usage = v
		case "error":
			failure = v
		}

		return true
	})
	if kind.Str == "" {
		kind.Str = name
	}
	if isError(failure) || kind.Str == "error" {
		r, failed := reportIn(root)
		if !failed {
			r = reportOf(root, root)
		}

		return streamError(r)
	}
	switch kind.Str {
	case "content_block_delta":
		return d.blockDelta(blockIndex(index), part, delta)
	case "message_start":
		d.identify(labelOf(member(message, "id")), labelOf(member(message, "model")))
		d.counts.anthropic(member(message, "usage"))
		d.counts.completion = count{} // what had been written by then, and no count of an answer that breaks off
	case "content_block_start":
		return d.block(blockIndex(index), block, delta)
	case "message_delta":
		d.counts.anthropic(usage)
		if reason := labelOf(member(part, "stop_reason")); reason != "" {
			d.finish = strings.Clone(reason)

			return givenUp("stop_reason", reason)
		}
	case "message_stop":
		delta.Done = true
	}

	return nil
}

func blockIndex(v gjson.Result) int {
	if n, ok := countOf(v); ok {
		return n
	}

	return unnumbered
}

// blockDelta takes a part of a content block. Signatures and citations are no output.
func (d *Decoder) blockDelta(index int, part gjson.Result, delta *Delta) *Error {
	if !part.IsObject() {
		return decodeError("field \"delta\" must be an object", part.Raw)
	}
	var err *Error
	part.ForEach(func(key, v gjson.Result) bool {
		var text string
		switch key.Str {
		case "text":
			if text, err = textOf("text", v); err == nil {
				d.say(&d.text, text, true, delta)
			}
		case "thinking":
			if text, err = textOf("thinking", v); err == nil {
				d.say(&d.reasoning, text, true, delta)
			}
		case "partial_json":
			if text, err = textOf("partial_json", v); err == nil && text != "" {
				delta.output(false)
				c := d.toolCall(index, "", "", delta)
				c.arguments = append(c.arguments, text...)
			}
		}

		return err == nil
	})

	return err
}

// block takes a content block: its beginning in a stream, where it is empty unless the server sends blocks whole, or all
// of it in a whole answer.
func (d *Decoder) block(index int, block gjson.Result, delta *Delta) *Error {
	if !block.IsObject() {
		return decodeError("a content block must be an object", block.Raw)
	}
	switch kind := block.Get("type").Str; kind {
	case "text":
		text, err := textOf("text", block.Get("text"))
		d.say(&d.text, text, true, delta)

		return err
	case "thinking":
		text, err := textOf("thinking", block.Get("thinking"))
		d.say(&d.reasoning, text, true, delta)

		return err
	case "tool_use", "server_tool_use", "mcp_tool_use":
		c := d.toolCall(index, labelOf(block.Get("id")), labelOf(block.Get("name")), delta)
		c.served = kind != "tool_use"
		input := block.Get("input")
		if !input.IsObject() {
			return nil
		}
		c.whole = strings.Clone(input.Raw)
		if len(input.Map()) > 0 {
			delta.output(false)
		}
	}

	return nil
}

// messagesBody takes an answer that was not streamed.
func (d *Decoder) messagesBody(root gjson.Result) *Error {
	if !root.Get("content").IsArray() {
		return decodeError("the answer has no content", root.Raw)
	}
	d.identify(labelOf(root.Get("id")), labelOf(root.Get("model")))
	d.finish = strings.Clone(labelOf(root.Get("stop_reason")))
	d.counts.anthropic(root.Get("usage"))
	var delta Delta
	err := each("content", root.Get("content"), func(position int, block gjson.Result) *Error {
		return d.block(position, block, &delta)
	})
	if err != nil {
		return err
	}

	return givenUp("stop_reason", d.finish)
}
