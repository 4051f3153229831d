package llm

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
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
	system    any    // kept apart where the API has a field for it
	model     string // of the first request; a client's mix chooses once for a session
	history   []any
	open      []any           // the last turn, where it ended with calls that nobody has answered yet
	asked     []wire.ToolCall // those calls
	turn      int
	thinkTime time.Duration
	tags      map[string]string
}

// clientKey is the hidden property by which a session finds the client it was given.
const clientKey = "__client"

// newSession is the constructor `new llm.Session(client, {system, thinkTime, tags})`.
func (m *moduleInstance) newSession(call sobek.ConstructorCall) *sobek.Object {
	rt := m.vu.Runtime()
	m.mustBeNew(m.sessionClass, call, "Session(client, {…})")
	s, err := m.parseSession(call.Argument(0), call.Argument(1))
	if err != nil {
		common.Throw(rt, err)
	}
	if err := errors.Join(
		call.This.Set("chat", s.chat),
		call.This.DefineAccessorProperty("turns", rt.ToValue(func() int { return s.turn }), nil, sobek.FLAG_FALSE, sobek.FLAG_TRUE),
		call.This.DefineAccessorProperty("messages", rt.ToValue(func() any { return rt.NewArray(slices.Concat(s.history, s.open)...) }), nil,
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
	if s.api = s.client.options.api; s.api == wire.Completions {
		return nil, fmt.Errorf(`llm.Session: got a client with api %q, expected "chat", "responses" or "messages"`, s.api)
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
		if s.api == wire.Chat {
			s.history = append(s.history, message("system", system))
		} else {
			s.system = system
		}
	}
	if s.thinkTime, _, err = o.duration("thinkTime"); err != nil {
		return nil, err
	}
	s.tags, err = o.tags(`an object of strings, e.g. {"persona": "analyst"}`)

	return s, err
}

func message(role, content string) map[string]any {
	return map[string]any{"role": role, "content": content}
}

// chat is session.chat(input, request): one turn. The input is the user's text, a message, or several (the results of
// tools, for example); request may hold whatever client.chat() takes but messages, and with onToolCall the turn goes on
// until the model has no more tools to call. What was said becomes history only if the turn went well, and its calls have
// got their results: APIs refuse a conversation in which a call has none.
func (s *session) chat(input, more sobek.Value) (sobek.Value, error) {
	said, err := turnInput(input)
	if err != nil {
		return nil, err
	}
	turn, err := s.goesOnFrom(said)
	if err != nil {
		return nil, err
	}
	request, tools, err := s.turnRequest(more)
	if err != nil {
		return nil, err
	}
	if s.client.module.vu.State() == nil {
		return nil, errors.New("llm: requests can be sent in VU code only, not in the init context")
	}
	if s.turn > 0 && s.thinkTime > 0 && !wait(s.client.module.vu.Context(), s.thinkTime) {
		return nil, errNeverSent
	}
	s.turn++
	for round := 1; ; round++ {
		request[s.messagesField()] = slices.Concat(s.history, turn)
		p, err := s.client.prepare(s.api, s.client.module.vu.Runtime().ToValue(request))
		if err != nil {
			return nil, err
		}
		s.model = p.model
		p.tags.SetTag("turn", strconv.Itoa(s.turn))
		if tools != nil {
			p.tags.SetTag("round", strconv.Itoa(round))
		}
		ex := s.client.send(s.client.module.vu.Context(), p)
		if ex == nil {
			return nil, errNeverSent
		}
		if ex.Outcome != OutcomeOK {
			return s.answer(p, ex, round)
		}
		calls, back := ex.Message.ToolCalls, reply(s.api, ex.Message)
		if tools == nil || len(calls) == 0 || round == tools.maxRounds {
			s.keep(turn, back, calls)

			return s.answer(p, ex, round)
		}
		results, err := tools.run(s.client.module, calls)
		if err != nil {
			return nil, err
		}
		turn = slices.Concat(turn, back, toolResults(s.api, calls, results))
	}
}

// goesOnFrom is what a turn begins with: its input, after the turn before where that ended with calls whose results the
// input holds. An input without them leaves those calls without an answer for ever, and so their turn out of the
// conversation, as if it had failed. Not the calls alone: many chat templates refuse two messages of the user in a row, or
// one that follows a tool's result.
func (s *session) goesOnFrom(said []any) ([]any, error) {
	results := resultsIn(said)
	if len(s.open) == 0 || len(results) == 0 {
		return said, nil
	}
	for _, call := range s.asked {
		if id := resultID(call); id != "" && !slices.Contains(results, id) {
			return nil, fmt.Errorf("llm.Session: chat: the input holds results of tools, but none for the call %q of %s, "+
				"expected one for each call of the turn before", id, call.Name)
		}
	}

	return slices.Concat(s.open, said), nil
}

// keep makes a turn that went well history. One that ended with calls waits for their results; an answer with nothing to
// send back leaves none.
func (s *session) keep(turn, back []any, calls []wire.ToolCall) {
	s.open, s.asked = nil, nil
	switch {
	case len(calls) > 0:
		s.open, s.asked = slices.Concat(turn, back), calls
	case len(back) > 0:
		s.history = slices.Concat(s.history, turn, back)
	}
}

// answer is what the script gets of a turn: its last response, and how many rounds it took.
func (s *session) answer(p *prepared, ex *Exchange, rounds int) (sobek.Value, error) {
	if s.client.throws(p, ex) {
		panic(s.client.module.failure(ex))
	}
	response := s.client.module.response(ex)
	if o, ok := response.(*sobek.Object); ok {
		_ = o.Set("rounds", rounds) // can not fail: see object
	}

	return response, nil
}

// messagesField is where the API wants a conversation.
func (s *session) messagesField() string {
	if s.api == wire.Responses {
		return "input"
	}

	return "messages"
}

// turnRequest is the body of a turn's requests without its messages, and what is done with calls of tools.
func (s *session) turnRequest(more sobek.Value) (map[string]any, *toolLoop, error) {
	given, ok := exportObject(more)
	if !ok && more != nil && !sobek.IsUndefined(more) && !sobek.IsNull(more) {
		return nil, nil, &OptionError{What: "llm.Session: chat", Found: describeValue(more), Expected: "a request such as {max_tokens: 100} after the input"}
	}
	request := map[string]any{}
	maps.Copy(request, given)
	if field := s.messagesField(); given[field] != nil {
		return nil, nil, fmt.Errorf("llm.Session: the request may not hold %s: the session keeps the conversation", field)
	}
	tools, err := parseToolLoop(more, request)
	if err != nil {
		return nil, nil, err
	}
	delete(request, "onToolCall")
	delete(request, "maxRounds")
	request["tags"] = s.turnTags(request["tags"])
	switch {
	case s.system == nil:
	case s.api == wire.Responses:
		request["instructions"] = s.system
	default:
		request["system"] = s.system
	}
	if request["model"] == nil && s.client.options.models != nil && s.model != "" {
		request["model"] = s.model // the session stays with the model that it began with
	}

	return request, tools, nil
}

// turnTags are the tags of a turn's requests: the session's, and above them the turn's own. What is no object of tags is left
// to the request to refuse.
func (s *session) turnTags(own any) any {
	named, ok := own.(map[string]any)
	if !ok && own != nil {
		return own
	}
	tags := make(map[string]any, len(s.tags)+len(named))
	for name, value := range s.tags {
		tags[name] = value
	}
	maps.Copy(tags, named)

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
