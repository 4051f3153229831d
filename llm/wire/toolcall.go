package wire

import (
	"bytes"
	"strings"
)

// toolCall is a call while it is assembled.
type toolCall struct {
	index     int    // the server's own number of the call, or unnumbered
	item      string // the responses API's item id
	id, name  string
	kind      CallKind
	served    bool // by the service itself
	arguments []byte
	// whole is what the server gave as the arguments when the call began; it counts where no part of them follows.
	whole string
}

func (c *toolCall) assembled() ToolCall {
	arguments := c.arguments
	if len(arguments) == 0 {
		arguments = []byte(c.whole)
	}

	if c.kind != CustomCall && len(bytes.TrimSpace(arguments)) == 0 {
		// Anthropic says so itself; OpenAI's APIs leave the text empty, which is no JSON.
		arguments = []byte("{}")
	}

	return ToolCall{ID: c.id, Name: c.name, Arguments: textFrom(arguments), Kind: c.kind}
}

// begun says whether any of the arguments have come.
func (c *toolCall) begun() bool { return len(c.arguments) > 0 || c.whole != "" }

// identify fills in what the first part of a call says of it, and leaves what is known: some servers repeat the id and the
// name with each part. The event that brings the name is output: the model has chosen a tool.
func (c *toolCall) identify(id, name string, delta *Delta) {
	if c.id == "" {
		c.id = strings.Clone(id)
	}
	if c.name == "" && name != "" {
		c.name = strings.Clone(name)
		delta.output(false)
	}
}

const (
	unnumbered   = -1 // the server gives the call no number
	functionCall = -2 // the number of the one call of the old `function_call`
)

// toolCall finds the call that a part belongs to, or begins one.
//
// OpenAI numbers the calls, and gives id and name with the first part only. Other servers repeat the name with each
// part, or the id, or a new id; and others send each call whole, without numbers or all under the number 0. So a part
// belongs to the latest call of its number (without numbers, to the latest of all), unless it names a function where
// that call has its name already, and its id (without numbers, or the lack of one) says that it is another.
func (d *Decoder) toolCall(index int, id, name string, delta *Delta) *toolCall {
	numbered := index != unnumbered
	if !numbered && id != "" {
		if c := d.callWithID(id); c != nil {
			c.identify(id, name, delta)

			return c
		}
	}
	c := d.latestCall(index)
	switch {
	case c == nil:
	case name == "" || c.name == "", id == c.id && (numbered || id != ""), numbered && (id == "" || c.id == ""):
		c.identify(id, name, delta)

		return c
	default:
		if known := d.callWithID(id); known != nil {
			return known
		}
	}
	d.calls = append(d.calls, toolCall{index: index})
	c = &d.calls[len(d.calls)-1]
	c.identify(id, name, delta)

	return c
}

func (d *Decoder) latestCall(index int) *toolCall {
	for i := len(d.calls) - 1; i >= 0; i-- {
		if index == unnumbered || d.calls[i].index == index {
			return &d.calls[i]
		}
	}

	return nil
}

func (d *Decoder) callWithID(id string) *toolCall {
	for i := range d.calls {
		if id != "" && d.calls[i].id == id {
			return &d.calls[i]
		}
	}

	return nil
}
