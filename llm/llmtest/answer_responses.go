package llmtest

import (
	"encoding/json"
	"strconv"
)

// responsesDialect writes OpenAI's responses (https://platform.openai.com/docs/api-reference/responses-streaming): an
// answer is a list of items, each of which is opened, filled and closed.
type responsesDialect struct {
	x        *exchange
	sequence int    // of the next event
	open     string // the kind of the item that is being filled, "" for none
	from     int    // its first token
	items    []map[string]any
}

// send writes an event; fields are members that each begin with a comma.
func (d *responsesDialect) send(kind string, tokens int, event, fields string) error {
	x := d.x
	if err := x.out.named(event, `,"sequence_number":`+strconv.Itoa(d.sequence)+fields); err != nil {
		return err
	}
	d.sequence++
	x.note(kind, tokens, x.out.sentNS)
	return nil
}

func (d *responsesDialect) begin() error {
	response := `,"response":` + encoded(d.response("in_progress"))
	if err := d.send("open", 0, "response.created", response); err != nil {
		return err
	}
	return d.send("open", 0, "response.in_progress", response)
}

func (d *responsesDialect) first() error { return nil }

func (d *responsesDialect) chunk(from, to int) error {
	j := d.x.j
	kind, said, tokens := j.kind(from), j.said(from, to), to-from
	if kind != d.open {
		if kind == "tool_call" {
			return d.openItem(kind, said, from, tokens) // the opening carries the tool's name, which is a token too
		}
		if err := d.openItem(kind, "", from, 0); err != nil {
			return err
		}
	}
	event := map[string]string{
		"reasoning": "response.reasoning_text.delta", "text": "response.output_text.delta",
		"tool_call": "response.function_call_arguments.delta",
	}[kind]
	return d.send(kind, tokens, event, d.place(kind)+`,"delta":`+quote(said))
}

// place says which item, and which part of it, an event is about.
func (d *responsesDialect) place(kind string) string {
	place := `,"item_id":"` + d.itemID(kind) + `","output_index":` + strconv.Itoa(len(d.items))
	if kind != "tool_call" {
		place += `,"content_index":0`
	}
	return place
}

func (d *responsesDialect) itemID(kind string) string {
	prefix := map[string]string{"reasoning": "rs_", "text": "msg_", "tool_call": "fc_"}[kind]
	return prefix + d.x.j.id[len("resp_"):]
}

// openItem opens an item, which holds no more than what was said with its opening.
func (d *responsesDialect) openItem(kind, said string, from, tokens int) error {
	if err := d.closeItem(from); err != nil {
		return err
	}
	d.open, d.from = kind, from
	item := encoded(d.item(kind, said, "in_progress"))
	err := d.send(kind, tokens, "response.output_item.added", `,"output_index":`+strconv.Itoa(len(d.items))+`,"item":`+item)
	if err != nil || kind != "text" {
		return err
	}
	return d.send("open", 0, "response.content_part.added", d.place(kind)+`,"part":{"type":"output_text","text":"","annotations":[]}`)
}

// closeItem closes the item that is open, whose last token is the one before to.
func (d *responsesDialect) closeItem(to int) error {
	if d.open == "" {
		return nil
	}
	kind, said := d.open, d.x.j.said(d.from, to)
	event, field := "response.output_text.done", "text"
	switch kind {
	case "reasoning":
		event = "response.reasoning_text.done"
	case "tool_call":
		event, field = "response.function_call_arguments.done", "arguments"
	}
	if err := d.send("close", 0, event, d.place(kind)+`,"`+field+`":`+quote(said)); err != nil {
		return err
	}
	item := d.item(kind, said, "completed")
	if kind == "text" {
		part := `,"part":{"type":"output_text","text":` + quote(said) + `,"annotations":[]}`
		if err := d.send("close", 0, "response.content_part.done", d.place(kind)+part); err != nil {
			return err
		}
	}
	index := strconv.Itoa(len(d.items))
	d.items = append(d.items, item)
	d.open = ""
	return d.send("close", 0, "response.output_item.done", `,"output_index":`+index+`,"item":`+encoded(item))
}

// item is one element of the output.
func (d *responsesDialect) item(kind, said, status string) map[string]any {
	item := map[string]any{"id": d.itemID(kind), "status": status}
	switch kind {
	case "reasoning":
		item["type"], item["summary"], item["content"] = "reasoning", []any{}, []any{}
		if said != "" {
			item["content"] = []any{map[string]any{"type": "reasoning_text", "text": said}}
		}
	case "tool_call":
		item["type"], item["call_id"], item["name"], item["arguments"] = "function_call", d.x.j.callID(), d.x.j.tool, said
	default:
		item["type"], item["role"], item["content"] = "message", "assistant", []any{}
		if said != "" {
			item["content"] = []any{map[string]any{"type": "output_text", "text": said, "annotations": []any{}}}
		}
	}
	return item
}

func (d *responsesDialect) finish() error { return d.closeItem(d.x.j.tokens) }

// status is how the answer ended: where it reached its limit it is incomplete.
func (d *responsesDialect) status() string {
	if d.x.j.reason == "length" {
		return "incomplete"
	}
	return "completed"
}

func (d *responsesDialect) last() error {
	status := d.status()
	if err := d.send("finish", 0, "response."+status, `,"response":`+encoded(d.response(status))); err != nil {
		return err
	}
	d.x.finished(status)
	return nil
}

// response is the answer as far as it is known.
func (d *responsesDialect) response(status string) map[string]any {
	j := d.x.j
	output := make([]any, len(d.items))
	for i := range d.items {
		output[i] = d.items[i]
	}
	r := map[string]any{
		"id": j.id, "object": "response", "created_at": j.created, "model": j.model, "status": status, "output": output,
		"error": nil, "incomplete_details": nil, "usage": nil,
	}
	if status == "incomplete" {
		r["incomplete_details"] = map[string]any{"reason": "max_output_tokens"}
	}
	if status != "in_progress" && !j.fault.NoUsage {
		prompt := len(j.prompt)
		r["usage"] = map[string]any{
			"input_tokens": prompt, "input_tokens_details": map[string]any{"cached_tokens": d.x.tokens.cached.Load()},
			"output_tokens": j.tokens, "output_tokens_details": map[string]any{"reasoning_tokens": j.reasoning()},
			"total_tokens": prompt + j.tokens,
		}
	}
	return r
}

func (d *responsesDialect) failure(status int, message string) string {
	return "event: error\ndata: " + encoded(map[string]any{
		"type": "error", "code": errorType(status), "message": message, "param": nil, "sequence_number": d.sequence,
	}) + "\n\n"
}

func (d *responsesDialect) whole() map[string]any {
	j := d.x.j
	for from := 0; from < j.tokens; {
		kind, to := j.kind(from), j.tokens
		if kind == "reasoning" {
			to = j.reasoning()
		}
		d.items = append(d.items, d.item(kind, j.said(from, to), "completed"))
		from = to
	}
	return d.response(d.status())
}

func encoded(v any) string {
	b, err := json.Marshal(v)
	if err != nil { // these are maps of plain values
		return "null"
	}
	return string(b)
}
