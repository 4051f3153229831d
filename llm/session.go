package llm

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/grafana/sobek"
	"go.k6.io/k6/js/common"

	"github.com/safeqps/xk6-safeqps/llm/wire"
)

// session is what `new llm.Session(client, {…})` gives: a conversation. Each turn sends the whole history, as chat clients
// do, so that a server's prefix cache is asked for what the turn before has left there.
type session struct {
	client    *client
	api       wire.API
	system    any // kept apart where the API has a field for it
	history   []any
	turn      int
	thinkTime time.Duration
	tags      map[string]string
}

// clientKey is the hidden property by which a session finds the client it was given.
const clientKey = "__client"

// newSession is the constructor `new llm.Session(client, {system, thinkTime, tags})`.
func (m *moduleInstance) newSession(call sobek.ConstructorCall) *sobek.Object {
	rt := m.vu.Runtime()
	s, err := m.parseSession(call.Argument(0), call.Argument(1))
	if err != nil {
		common.Throw(rt, err)
	}
	if err := errors.Join(
		call.This.Set("chat", s.chat),
		call.This.DefineAccessorProperty("turns", rt.ToValue(func() int { return s.turn }), nil, sobek.FLAG_FALSE, sobek.FLAG_TRUE),
		call.This.DefineAccessorProperty("messages", rt.ToValue(func() any { return rt.NewArray(s.history...) }), nil,
			sobek.FLAG_FALSE, sobek.FLAG_TRUE),
	); err != nil {
		common.Throw(rt, fmt.Errorf("llm.Session: %w", err))
	}

	return nil
}

func (m *moduleInstance) parseSession(of, with sobek.Value) (*session, error) {
	s := &session{}
	if object, ok := of.(*sobek.Object); ok {
		if hidden := object.Get(clientKey); hidden != nil {
			s.client, _ = hidden.Export().(*client)
		}
	}
	if s.client == nil {
		return nil, &OptionError{What: "llm.Session", Found: describeValue(of), Expected: "an llm.Client, and options after it"}
	}
	if s.api = s.client.options.api; s.api != wire.Chat && s.api != wire.Messages {
		return nil, fmt.Errorf(`llm.Session: got a client with api %q, expected "chat" or "messages"`, s.api)
	}
	values, ok := exportObject(with)
	if !ok && !sobek.IsUndefined(with) && !sobek.IsNull(with) {
		return nil, &OptionError{What: "llm.Session", Found: describeValue(with), Expected: `options such as {system: "Be brief.", thinkTime: "2s"}`}
	}
	o := &optionsOf{what: "llm.Session", values: values}
	if err := o.only("system", "thinkTime", "tags"); err != nil {
		return nil, err
	}
	system, err := o.str("system")
	if err != nil {
		return nil, err
	}
	if system != "" {
		if s.api == wire.Messages {
			s.system = system
		} else {
			s.history = append(s.history, message("system", system))
		}
	}
	if s.thinkTime, _, err = o.duration("thinkTime"); err != nil {
		return nil, err
	}
	s.tags, err = o.strings("tags", `an object of strings, e.g. {"persona": "analyst"}`)

	return s, err
}

func message(role, content string) map[string]any {
	return map[string]any{"role": role, "content": content}
}

// chat is session.chat(input, request): one turn. The input is the user's text, a message, or several (the results of
// tools, for example); request may hold whatever client.chat() takes but messages. What was said becomes history only if
// the turn went well.
func (s *session) chat(input, more sobek.Value) (sobek.Value, error) {
	said, err := turnInput(input)
	if err != nil {
		return nil, err
	}
	request, ok := exportObject(more)
	switch {
	case ok:
	case more == nil || sobek.IsUndefined(more) || sobek.IsNull(more):
		request = map[string]any{}
	default:
		return nil, &OptionError{
			What: "llm.Session: chat", Found: describeValue(more), Expected: "a request such as {max_tokens: 100} after the input",
		}
	}
	if _, given := request["messages"]; given {
		return nil, errors.New("llm.Session: the request may not hold messages: the session has them")
	}
	if s.client.module.vu.State() == nil {
		return nil, errors.New("llm: requests can be sent in VU code only, not in the init context")
	}
	if s.turn > 0 && s.thinkTime > 0 && !wait(s.client.module.vu.Context(), s.thinkTime) {
		return nil, errTestEnds
	}
	s.turn++
	messages := slices.Concat(s.history, said)
	request["messages"] = messages
	if s.system != nil {
		request["system"] = s.system
	}
	request["tags"] = s.turnTags(request["tags"])

	p, err := s.client.prepare(s.api, s.client.module.vu.Runtime().ToValue(request))
	if err != nil {
		return nil, err
	}
	ex := s.client.send(s.client.module.vu.Context(), p)
	if ex.Outcome == OutcomeOK {
		s.history = slices.Concat(messages, []any{s.reply(ex.Message)})
	}
	if s.client.throws(p, ex) {
		return nil, &RequestError{Type: ex.ErrorType, Message: ex.ErrorText}
	}

	return s.client.module.response(ex), nil
}

func (s *session) turnTags(own any) map[string]any {
	tags := map[string]any{}
	for name, value := range s.tags {
		tags[name] = value
	}
	if own, ok := own.(map[string]any); ok {
		maps.Copy(tags, own)
	}
	tags["turn"] = fmt.Sprint(s.turn)

	return tags
}

func turnInput(input sobek.Value) ([]any, error) {
	wrong := &OptionError{
		What: "llm.Session: chat", Found: describeValue(input),
		Expected: "the user's text, a message, or a list of messages",
	}
	if input == nil {
		return nil, wrong
	}
	switch v := input.Export().(type) {
	case string:
		return []any{message("user", v)}, nil
	case map[string]any:
		return []any{v}, nil
	case []any:
		if len(v) > 0 {
			return v, nil
		}
	}

	return nil, wrong
}

// reply is the assistant's turn as the API wants it back: text, and the tool calls whose results the next turn brings.
func (s *session) reply(m *wire.Message) map[string]any {
	if len(m.ToolCalls) == 0 {
		return message("assistant", m.Text)
	}
	if s.api == wire.Messages {
		return replyWithToolUse(m)
	}
	calls := make([]any, len(m.ToolCalls))
	for i, call := range m.ToolCalls {
		calls[i] = map[string]any{
			"id": call.ID, "type": "function",
			"function": map[string]any{"name": call.Name, "arguments": call.Arguments},
		}
	}
	out := message("assistant", m.Text)
	out["tool_calls"] = calls

	return out
}

// replyWithToolUse is an assistant's turn in Anthropic's form: content blocks, with a tool's input as an object.
func replyWithToolUse(m *wire.Message) map[string]any {
	var blocks []any
	if m.Text != "" {
		blocks = append(blocks, map[string]any{"type": "text", "text": m.Text})
	}
	for _, call := range m.ToolCalls {
		var input any = map[string]any{}
		if json.Valid([]byte(call.Arguments)) {
			input = json.RawMessage(call.Arguments)
		}
		blocks = append(blocks, map[string]any{"type": "tool_use", "id": call.ID, "name": call.Name, "input": input})
	}

	return map[string]any{"role": "assistant", "content": blocks}
}
