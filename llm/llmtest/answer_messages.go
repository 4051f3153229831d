package llmtest

import "strconv"

// messagesDialect writes Anthropic's messages (https://docs.anthropic.com/en/docs/build-with-claude/streaming): an answer
// is a list of content blocks, each of which is started, filled and stopped. The prompt's tokens are reported at the
// beginning and the answer's at the end, and there is no [DONE].
type messagesDialect struct {
	x     *exchange
	open  string // the kind of the block that is being filled, "" for none
	index int    // of the next block, or of the open one
}

func (d *messagesDialect) send(kind string, tokens int, event, fields string) error {
	if err := d.x.out.named(event, fields); err != nil {
		return err
	}
	d.x.note(kind, tokens, d.x.out.sentNS)
	return nil
}

func (d *messagesDialect) begin() error { return nil }

func (d *messagesDialect) first() error {
	message := d.message(nil, nil, d.promptUsage(0))
	if err := d.send("role", 0, "message_start", `,"message":`+encoded(message)); err != nil {
		return err
	}
	return d.send("open", 0, "ping", "")
}

func (d *messagesDialect) chunk(from, to int) error {
	j := d.x.j
	kind, said, tokens := j.kind(from), j.said(from, to), to-from
	if kind != d.open {
		if kind == "tool_call" {
			return d.start(kind, said, tokens) // the opening carries the tool's name, which is a token too
		}
		if err := d.start(kind, "", 0); err != nil {
			return err
		}
	}
	delta := map[string]string{
		"reasoning": `"thinking_delta","thinking":`, "text": `"text_delta","text":`, "tool_call": `"input_json_delta","partial_json":`,
	}[kind]
	return d.send(kind, tokens, "content_block_delta", d.place()+`,"delta":{"type":`+delta+quote(said)+`}`)
}

func (d *messagesDialect) place() string { return `,"index":` + strconv.Itoa(d.index) }

// start opens a block, which holds no more than what was said with its opening.
func (d *messagesDialect) start(kind, said string, tokens int) error {
	if err := d.stop(); err != nil {
		return err
	}
	d.open = kind
	return d.send(kind, tokens, "content_block_start", d.place()+`,"content_block":`+encoded(d.block(kind, said)))
}

func (d *messagesDialect) stop() error {
	if d.open == "" {
		return nil
	}
	err := d.send("close", 0, "content_block_stop", d.place())
	d.open = ""
	d.index++
	return err
}

// block is a content block, empty or whole.
func (d *messagesDialect) block(kind, said string) map[string]any {
	switch kind {
	case "reasoning":
		return map[string]any{"type": "thinking", "thinking": said, "signature": ""}
	case "tool_call":
		input := rawJSON(said)
		if said == "" {
			input = rawJSON("{}")
		}
		return map[string]any{"type": "tool_use", "id": d.x.j.callID(), "name": d.x.j.tool, "input": input}
	}
	return map[string]any{"type": "text", "text": said}
}

func (d *messagesDialect) finish() error {
	if err := d.stop(); err != nil {
		return err
	}
	reason := d.stopReason()
	fields := `,"delta":{"stop_reason":"` + reason + `","stop_sequence":null}`
	if !d.x.j.fault.NoUsage {
		fields += `,"usage":{"output_tokens":` + strconv.Itoa(d.x.j.tokens) + `}`
	}
	if err := d.send("finish", 0, "message_delta", fields); err != nil {
		return err
	}
	d.x.finished(reason)
	return nil
}

func (d *messagesDialect) stopReason() string {
	return map[string]string{"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}[d.x.j.reason]
}

func (d *messagesDialect) last() error { return d.send("close", 0, "message_stop", "") }

func (d *messagesDialect) failure(status int, message string) string {
	return "event: error\ndata: " + string(messagesErrorBody(status, message)) + "\n\n"
}

// promptUsage is the usage object: input_tokens leaves out what came from the cache. It is nil where usage is left out.
func (d *messagesDialect) promptUsage(output int) map[string]any {
	if d.x.j.fault.NoUsage {
		return nil
	}
	cached := int(d.x.tokens.cached.Load())
	return map[string]any{
		"input_tokens": len(d.x.j.prompt) - cached, "cache_creation_input_tokens": 0, "cache_read_input_tokens": cached,
		"output_tokens": output,
	}
}

func (d *messagesDialect) message(content []any, reason any, usage map[string]any) map[string]any {
	if content == nil {
		content = []any{}
	}
	m := map[string]any{
		"id": d.x.j.id, "type": "message", "role": "assistant", "model": d.x.j.model, "content": content,
		"stop_reason": reason, "stop_sequence": nil,
	}
	if usage != nil {
		m["usage"] = usage
	}
	return m
}

func (d *messagesDialect) whole() map[string]any {
	j := d.x.j
	var content []any
	for from := 0; from < j.tokens; {
		kind, to := j.kind(from), j.tokens
		if kind == "reasoning" {
			to = j.reasoning()
		}
		content = append(content, d.block(kind, j.said(from, to)))
		from = to
	}
	return d.message(content, d.stopReason(), d.promptUsage(j.tokens))
}

// messagesErrorTypes are Anthropic's names for its errors (https://docs.anthropic.com/en/api/errors).
var messagesErrorTypes = map[int]string{
	400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
	413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error",
}

// messagesErrorBody is an error object as Anthropic writes it.
func messagesErrorBody(status int, message string) []byte {
	kind, ok := messagesErrorTypes[status]
	if !ok {
		kind = "api_error"
		if status < 500 {
			kind = "invalid_request_error"
		}
	}
	return []byte(encoded(map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": message}}))
}
