package llmtest

import (
	"encoding/json"
	"strconv"
)

// openAIDialect writes chat completions and completions as vLLM does.
type openAIDialect struct{ x *exchange }

// usesDone tells whether streams of the job's API end in [DONE].
func (j *job) usesDone() bool { return j.api == chatAPI || j.api == completionsAPI }

func (d *openAIDialect) begin() error { return nil }

func (d *openAIDialect) first() error {
	if d.x.j.api != chatAPI {
		return nil
	}
	return d.send("role", 0, `{"role":"assistant","content":""}`, "null")
}

func (d *openAIDialect) chunk(from, to int) error {
	kind, delta := d.delta(from, to)
	return d.send(kind, to-from, delta, "null")
}

// delta is the part of a chunk that carries tokens from to to: the delta object of a chat, the text of a completion.
func (d *openAIDialect) delta(from, to int) (kind, delta string) {
	j := d.x.j
	kind, said := j.kind(from), j.said(from, to)
	switch {
	case j.api == completionsAPI:
		return "text", said
	case kind == "reasoning":
		return kind, `{"` + j.fault.ReasoningField + `":"` + said + `"}`
	case kind == "text":
		return kind, `{"content":"` + said + `"}`
	case from == j.reasoning():
		return kind, `{"tool_calls":[{"index":0,"id":"` + j.callID() + `","type":"function","function":{"name":` +
			quote(j.tool) + `,"arguments":` + quote(said) + `}}]}`
	}
	return kind, `{"tool_calls":[{"index":0,"function":{"arguments":` + quote(said) + `}}]}`
}

func (d *openAIDialect) send(kind string, tokens int, delta, finish string) error {
	x, usage := d.x, "null"
	if x.j.always {
		x.out.tokens += tokens
		usage = d.usage(x.out.tokens)
	}
	if err := x.out.chunk(delta, finish, usage); err != nil {
		return err
	}
	x.note(kind, tokens, x.out.sentNS)
	return nil
}

func (d *openAIDialect) finish() error {
	x, j := d.x, d.x.j
	nothing := "{}"
	if j.api == completionsAPI {
		nothing = ""
	}
	if err := d.send("finish", 0, nothing, `"`+j.reason+`"`); err != nil {
		return err
	}
	x.finished(j.reason)
	if !j.usage {
		return nil
	}
	if err := x.out.usageChunk(d.usage(j.tokens)); err != nil {
		return err
	}
	x.note("usage", 0, x.out.sentNS)
	return nil
}

func (d *openAIDialect) last() error { return d.x.out.raw("data: [DONE]\n\n") }

func (d *openAIDialect) failure(status int, message string) string {
	return "data: " + string(errorBody(status, message, nil)) + "\n\n"
}

// usage is the usage object after so many tokens.
func (d *openAIDialect) usage(tokens int) string {
	prompt, cached := len(d.x.j.prompt), int(d.x.tokens.cached.Load())
	out := `{"prompt_tokens":` + strconv.Itoa(prompt) + `,"total_tokens":` + strconv.Itoa(prompt+tokens) +
		`,"completion_tokens":` + strconv.Itoa(tokens) +
		`,"prompt_tokens_details":{"cached_tokens":` + strconv.Itoa(cached) + `}`
	if r := d.x.j.reasoning(); r > 0 {
		out += `,"completion_tokens_details":{"reasoning_tokens":` + strconv.Itoa(min(r, tokens)) + `}`
	}
	return out + "}"
}

func (d *openAIDialect) whole() map[string]any {
	j := d.x.j
	answer := map[string]any{"id": j.id, "created": j.created, "model": j.model}
	choice := map[string]any{"index": 0, "logprobs": nil, "finish_reason": j.reason}
	if j.api == chatAPI {
		answer["object"] = "chat.completion"
		choice["message"] = j.message()
	} else {
		answer["object"] = "text_completion"
		choice["text"] = j.text(0, j.tokens, j.word)
	}
	answer["choices"] = []any{choice}
	if !j.fault.NoUsage {
		answer["usage"] = json.RawMessage(d.usage(j.tokens))
	}
	return answer
}

// message is the answer to a chat that is not streamed.
func (j *job) message() map[string]any {
	m := map[string]any{"role": "assistant", "content": nil}
	r := j.reasoning()
	if r > 0 {
		m[j.fault.ReasoningField] = j.text(0, r, j.word)
	}
	switch {
	case r == j.tokens:
	case j.tool != "":
		m["tool_calls"] = []any{map[string]any{
			"id": j.callID(), "type": "function",
			"function": map[string]any{"name": j.tool, "arguments": j.text(r, j.tokens, j.argument)},
		}}
	default:
		m["content"] = j.text(r, j.tokens, j.word)
	}
	return m
}
