package wire

import (
	"strings"

	"github.com/tidwall/gjson"
)

// openAIEvent takes one chunk of a chat or completions stream.
func (d *Decoder) openAIEvent(root gjson.Result, delta *Delta) *Error {
	var id, model, object, choices, usage, groq, failure gjson.Result
	root.ForEach(func(key, v gjson.Result) bool {
		switch key.Str {
		case "choices":
			choices = v
		case "id":
			id = v
		case "model":
			model = v
		case "object":
			object = v
		case "usage":
			usage = v
		case "x_groq": // Groq puts usage there
			groq = v
		case "error":
			failure = v
		}

		return true
	})
	if isError(failure) || object.Str == "error" {
		r, _ := reportIn(root)

		return streamError(r)
	}
	if d.id == "" || d.model == "" {
		d.identify(labelOf(id), labelOf(model))
	}
	err := each("choices", choices, func(position int, choice gjson.Result) *Error {
		return d.choice(position, choice, delta)
	})
	reported := d.counts.openAI(usage)
	if groq.Exists() {
		d.counts.openAI(member(groq, "usage"))
	}
	d.countChunkTokens(delta, reported)

	return err
}

// openAIBody takes a whole answer: its choices hold a `message` where chunks hold a `delta`.
func (d *Decoder) openAIBody(root gjson.Result) *Error {
	choices := root.Get("choices")
	if !choices.IsArray() || !choices.Get("0").Exists() {
		return decodeError("the answer has no choices", root.Raw)
	}
	var delta Delta

	return d.openAIEvent(root, &delta)
}

// choice takes one element of `choices`.
func (d *Decoder) choice(position int, choice gjson.Result, delta *Delta) *Error {
	var part, text, finish gjson.Result
	index := position
	choice.ForEach(func(key, v gjson.Result) bool {
		switch key.Str {
		case "index":
			if n, ok := countOf(v); ok {
				index = n
			}
		case "delta":
			part = v
		case "message": // of a whole answer, which some servers send as a single event
			if part.Type == gjson.Null {
				part = v
			}
		case "text":
			text = v
		case "finish_reason":
			finish = v
		case "token_ids": // vLLM, where `return_token_ids` asks for them
			d.tokenIDs += len(v.Array())
		case "usage": // Moonshot
			d.counts.openAI(v)
		}

		return true
	})
	if index != 0 && d.others == nil {
		d.others = make(map[int]bool)
	}
	if index != 0 && !d.others[index] {
		d.others[index] = false
	}

	keep, spoken := index == 0, delta.Output
	if err := d.plainText(text, keep, delta); err != nil {
		return err
	}
	if part.Type != gjson.Null {
		if err := d.part(part, keep, delta); err != nil {
			return err
		}
	}
	if delta.Output && !spoken {
		delta.Answer = index
	}

	return d.finishChoice(index, finish)
}

// plainText takes the `text` of a completions choice.
func (d *Decoder) plainText(v gjson.Result, keep bool, delta *Delta) *Error {
	text, err := textOf("text", v)
	if err != nil {
		return err
	}
	d.say(&d.text, text, keep, delta)

	return nil
}

// finishChoice notes why a choice ended.
func (d *Decoder) finishChoice(index int, v gjson.Result) *Error {
	reason := labelOf(v)
	if v.IsObject() { // SGLang's own form
		reason = labelOf(v.Get("type"))
	}
	if reason == "" {
		return nil
	}
	if index == 0 {
		d.finish = strings.Clone(reason)
	} else {
		d.others[index] = true
	}

	return givenUp("finish_reason", reason)
}

// givenUp is an error for a reason to finish that means that the engine gave up: vLLM and OpenRouter say "error", vLLM and
// SGLang "abort", TensorRT-LLM "timeout" and "cancelled", DeepSeek "insufficient_system_resource".
func givenUp(field, reason string) *Error {
	switch reason {
	case "error", "abort", "aborted", "timeout", "cancelled", "canceled", "insufficient_system_resource":
		return streamError(report{code: reason, message: "the server gave the answer up: " + field + " \"" + reason + "\""})
	default:
		return nil
	}
}

// say appends output to a channel of prose. Output of another answer than the first is a chunk, but is not kept.
func (d *Decoder) say(channel *[]byte, text string, keep bool, delta *Delta) {
	if text == "" {
		return
	}
	delta.output(channel == &d.reasoning)
	if keep {
		*channel = append(*channel, text...)
	}
}

// part takes a `delta`, or the `message` of a whole answer.
func (d *Decoder) part(part gjson.Result, keep bool, delta *Delta) *Error {
	if !part.IsObject() {
		return decodeError("field \"delta\" must be an object", part.Raw)
	}
	var err *Error
	var thoughts reasoningPart
	part.ForEach(func(key, v gjson.Result) bool {
		switch key.Str {
		case "content":
			err = d.content(v, keep, delta)
		case "refusal":
			var text string
			if text, err = textOf("refusal", v); err == nil {
				d.say(&d.refusal, text, keep, delta)
			}
		case "reasoning_content", "reasoning", "reasoning_details":
			err = thoughts.take(key.Str, v)
		case "tool_calls":
			err = each("tool_calls", v, func(_ int, call gjson.Result) *Error {
				return d.toolCallPart(call, keep, delta)
			})
		case "function_call":
			if v.Type != gjson.Null {
				err = d.namedCall(callPart{index: functionCall, kind: OldCall, called: v}, keep, delta)
			}
		}

		return err == nil
	})
	if err != nil {
		return err
	}
	d.say(&d.reasoning, thoughts.text(), keep, delta)

	return nil
}

// content takes the text of a message: a string, or a list of typed parts, as Mistral sends it for models that think.
func (d *Decoder) content(v gjson.Result, keep bool, delta *Delta) *Error {
	if !v.IsArray() {
		text, err := textOf("content", v)
		if err == nil {
			d.say(&d.text, text, keep, delta)
		}

		return err
	}

	return each("content", v, func(_ int, part gjson.Result) *Error {
		channel, field := &d.text, "text"
		switch part.Get("type").Str {
		case "text", "output_text":
		case "thinking":
			channel, field = &d.reasoning, "thinking"
		case "refusal":
			channel, field = &d.refusal, "refusal"
		default:
			return nil
		}
		inner := part.Get(field)
		if !inner.IsArray() {
			text, err := textOf(field, inner)
			d.say(channel, text, keep, delta)

			return err
		}

		return each(field, inner, func(_ int, piece gjson.Result) *Error {
			text, err := textOf("text", piece.Get("text"))
			d.say(channel, text, keep, delta)

			return err
		})
	})
}

// reasoningPart is the reasoning of one delta, which servers send under one of three names, or the same under several:
// vLLM has sent `reasoning_content` and `reasoning` together, OpenRouter sends `reasoning` and `reasoning_details`.
type reasoningPart struct {
	deepSeek, plain, details string
}

func (r *reasoningPart) take(field string, v gjson.Result) (err *Error) {
	switch field {
	case "reasoning_content":
		r.deepSeek, err = textOf(field, v)
	case "reasoning":
		r.plain, err = textOf(field, v)
	case "reasoning_details":
		err = each(field, v, func(_ int, detail gjson.Result) *Error {
			for _, name := range []string{"text", "summary"} {
				text, err := textOf(name, detail.Get(name))
				if err != nil {
					return err
				}
				r.details += text
			}

			return nil
		})
	}

	return err
}

func (r *reasoningPart) text() string {
	switch {
	case r.deepSeek != "":
		return r.deepSeek
	case r.plain != "":
		return r.plain
	default:
		return r.details
	}
}

// toolCallPart takes one element of `tool_calls`.
func (d *Decoder) toolCallPart(v gjson.Result, keep bool, delta *Delta) *Error {
	part := callPart{index: unnumbered, id: labelOf(v.Get("id")), called: v.Get("function")}
	if n, ok := countOf(v.Get("index")); ok {
		part.index = n
	}
	if !part.called.Exists() {
		part.called, part.kind = v.Get("custom"), CustomCall
	}
	if part.called.Type == gjson.Null {
		return nil
	}

	return d.namedCall(part, keep, delta)
}

// callPart is a part of a tool call, or the whole of it.
type callPart struct {
	index  int
	id     string
	kind   CallKind
	called gjson.Result // its name, and its arguments or input
}

// namedCall takes the name and the arguments of a call. Arguments that come as an object and not as text are taken as
// the server wrote them.
func (d *Decoder) namedCall(part callPart, keep bool, delta *Delta) *Error {
	if !part.called.IsObject() {
		return decodeError("a tool call must be an object", part.called.Raw)
	}
	arguments, name := part.called.Get("arguments"), labelOf(part.called.Get("name"))
	if !arguments.Exists() {
		arguments = part.called.Get("input")
	}
	text := arguments.Raw
	if !arguments.IsObject() {
		var err *Error
		if text, err = textOf("arguments", arguments); err != nil {
			return err
		}
	}
	if text != "" || (name != "" && !keep) {
		delta.output(false)
	}
	if keep {
		c := d.toolCall(part.index, part.id, name, delta)
		c.kind = part.kind
		c.arguments = append(c.arguments, text...)
	}

	return nil
}

// countChunkTokens works out how many tokens the chunk holds, from what the server says: the ids of its tokens, or usage
// that has come with every chunk (vLLM's `continuous_usage_stats`). Tokens that came without output, such as the first
// bytes of a character, belong to the next chunk.
func (d *Decoder) countChunkTokens(delta *Delta, reported count) {
	if !delta.Output {
		return
	}
	// With several answers vLLM's continuous usage is that of one of them, and it does not say of which.
	counted := reported.known && reported.n > 0
	continuous := counted && !d.usageMissed && d.others == nil
	switch {
	case d.tokenIDs > 0:
		delta.Tokens = d.tokenIDs
	case continuous && reported.n > d.countedTokens:
		delta.Tokens = reported.n - d.countedTokens
	}
	d.tokenIDs = 0
	d.usageMissed = d.usageMissed || !counted
	d.countedTokens = max(d.countedTokens, reported.n)
}
