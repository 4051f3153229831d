package wire

import (
	"strings"

	"github.com/tidwall/gjson"
)

// responsesEvent takes one event of OpenAI's responses API. Servers that compute an answer at once send only the events
// that end in "done", or only the last one; so those count where nothing of the same had come before.
func (d *Decoder) responsesEvent(name string, root gjson.Result, delta *Delta) *Error {
	kind := root.Get("type").Str
	if kind == "" {
		kind = name
	}
	switch kind {
	case "response.output_text.delta":
		return d.responsesText(&d.text, root.Get("delta"), delta)
	case "response.reasoning_text.delta", "response.reasoning_summary_text.delta":
		return d.responsesText(&d.reasoning, root.Get("delta"), delta)
	case "response.refusal.delta":
		return d.responsesText(&d.refusal, root.Get("delta"), delta)
	case "response.function_call_arguments.delta":
		return d.responsesArguments(root, root.Get("delta"), FunctionCall, delta)
	case "response.custom_tool_call_input.delta":
		return d.responsesArguments(root, root.Get("delta"), CustomCall, delta)
	case "response.output_text.done":
		if len(d.text) == 0 {
			return d.responsesText(&d.text, root.Get("text"), delta)
		}
	case "response.refusal.done":
		if len(d.refusal) == 0 {
			return d.responsesText(&d.refusal, root.Get("refusal"), delta)
		}
	case "response.function_call_arguments.done":
		if !d.responsesCall(root, delta).begun() {
			return d.responsesArguments(root, root.Get("arguments"), FunctionCall, delta)
		}
	case "response.custom_tool_call_input.done":
		if !d.responsesCall(root, delta).begun() {
			return d.responsesArguments(root, root.Get("input"), CustomCall, delta)
		}
	case "response.output_item.added", "response.output_item.done":
		d.responsesItem(root, delta)
	case "response.created", "response.in_progress", "response.queued":
		d.identifyResponse(root.Get("response"))
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled":
		delta.Done = true

		return d.responsesEnd(kind, root.Get("response"), delta)
	default:
		if r, failed := reportIn(root); failed {
			return streamError(r)
		}
	}

	return nil
}

func (d *Decoder) responsesText(channel *[]byte, v gjson.Result, delta *Delta) *Error {
	text, err := textOf("delta", v)
	if err == nil {
		d.say(channel, text, true, delta)
	}

	return err
}

func (d *Decoder) responsesArguments(root, v gjson.Result, kind CallKind, delta *Delta) *Error {
	text, err := textOf("delta", v)
	if err != nil || text == "" {
		return err
	}
	delta.output(false)
	c := d.responsesCall(root, delta)
	c.kind = kind
	c.arguments = append(c.arguments, text...)

	return nil
}

// responsesCall finds the call that an event speaks of: by its item, or by its place in the output.
func (d *Decoder) responsesCall(root gjson.Result, delta *Delta) *toolCall {
	item := labelOf(root.Get("item_id"))
	for i := range d.calls {
		if item != "" && d.calls[i].item == item {
			return &d.calls[i]
		}
	}
	index := unnumbered
	if n, ok := countOf(root.Get("output_index")); ok {
		index = n
	}
	c := d.toolCall(index, "", "", delta)
	if c.item == "" {
		c.item = strings.Clone(item)
	}

	return c
}

// responsesItem notes id and name of a call that begins or ends, and its arguments where no part of them had come.
func (d *Decoder) responsesItem(root gjson.Result, delta *Delta) {
	item := root.Get("item")
	kind, called := responsesCallKind(item)
	if !called {
		return
	}
	index := unnumbered
	if n, ok := countOf(root.Get("output_index")); ok {
		index = n
	}
	c := d.toolCall(index, labelOf(item.Get("call_id")), labelOf(item.Get("name")), delta)
	c.kind = kind
	c.item = strings.Clone(labelOf(item.Get("id")))
	arguments := labelOf(item.Get("arguments"))
	if arguments == "" {
		arguments = labelOf(item.Get("input"))
	}
	if arguments != "" && !c.begun() {
		c.whole = strings.Clone(arguments)
		delta.output(false)
	}
}

// responsesCallKind says whether an item is a call of a tool of the client's, and of which kind.
func responsesCallKind(item gjson.Result) (kind CallKind, ok bool) {
	switch item.Get("type").Str {
	case "function_call":
		return FunctionCall, true
	case "custom_tool_call":
		return CustomCall, true
	default:
		return "", false
	}
}

func (d *Decoder) identifyResponse(response gjson.Result) {
	if d.id == "" || d.model == "" {
		d.identify(labelOf(response.Get("id")), labelOf(response.Get("model")))
	}
}

// responsesEnd takes the last event, which holds the whole answer once more.
func (d *Decoder) responsesEnd(kind string, response gjson.Result, delta *Delta) *Error {
	if d.chunks == 0 && len(d.calls) == 0 {
		if err := d.responsesOutput(response, delta); err != nil {
			return err
		}
	}

	return d.responsesStatus(strings.TrimPrefix(kind, "response."), response)
}

// responsesBody takes an answer that was not streamed.
func (d *Decoder) responsesBody(root gjson.Result) *Error {
	if !root.Get("output").IsArray() {
		return decodeError("the answer has no output", root.Raw)
	}
	var delta Delta
	if err := d.responsesOutput(root, &delta); err != nil {
		return err
	}

	return d.responsesStatus("completed", root)
}

// responsesStatus takes identity, usage and how the answer ended: as its status says, or its event's name where that says
// worse. Servers use one name for more than one end (vLLM sends response.completed for what was cut short, too), and an
// answer that carries an error has failed whatever it calls itself.
func (d *Decoder) responsesStatus(named string, response gjson.Result) *Error {
	d.identifyResponse(response)
	d.counts.openAI(response.Get("usage"))
	status := labelOf(response.Get("status"))
	if status == "" || gravity(named) > gravity(status) {
		status = named
	}
	if inner := response.Get("error"); isError(inner) {
		return streamError(reportOf(inner, response))
	}
	switch status {
	case "completed", "incomplete":
		d.finish = strings.Clone(status)
		if reason := labelOf(response.Get("incomplete_details.reason")); reason != "" {
			d.finish = strings.Clone(reason)
		}
	case "failed", "cancelled":
		return streamError(report{code: status, message: "the server reports the answer as " + status})
	default:
		return &Error{Type: ErrTruncated, Message: "the answer is not complete: its status is \"" + status + "\""}
	}

	return nil
}

// gravity orders the states of an answer by how bad an end they are. One that is not over (in_progress, queued), or that
// nobody knows, is no end.
func gravity(status string) int {
	switch status {
	case "completed":
		return 0
	case "incomplete":
		return 1
	case "cancelled":
		return 3
	case "failed":
		return 4
	default:
		return 2
	}
}

// responsesOutput takes the items of a whole answer.
func (d *Decoder) responsesOutput(response gjson.Result, delta *Delta) *Error {
	return each("output", response.Get("output"), func(_ int, item gjson.Result) *Error {
		switch item.Get("type").Str {
		case "message":
			return d.content(item.Get("content"), true, delta)
		case "reasoning":
			for _, list := range []string{"content", "summary"} {
				err := each(list, item.Get(list), func(_ int, part gjson.Result) *Error {
					return d.responsesText(&d.reasoning, part.Get("text"), delta)
				})
				if err != nil {
					return err
				}
			}
		}
		if kind, called := responsesCallKind(item); called {
			return d.namedCall(callPart{len(d.calls), labelOf(item.Get("call_id")), kind, item}, true, delta)
		}

		return nil
	})
}
