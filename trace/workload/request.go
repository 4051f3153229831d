package workload

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/safeqps/xk6-safeqps/llm/wire"
)

// Request is what one row asks for. Exactly one of Prompt, PromptIDs, Messages and Payload is set.
type Request struct {
	// Row is the row's number in the run; with Options.Loop it may be beyond the trace's end.
	Row int
	// Class is the row's workload class, "" for none.
	Class string
	// Due is when the request starts, since the trace's time zero.
	Due time.Duration
	// InputTokens is the length that the prompt was made to have, or the length that the trace states for a literal
	// prompt. 0: not known.
	InputTokens int
	// MaxTokens bounds the answer; 0: the trace says nothing, and the server's default holds.
	MaxTokens int
	// Prompt is the text of a single user message, or of a completion.
	Prompt string
	// PromptIDs are the token ids of a completion.
	PromptIDs []int
	// Messages is a literal chat history, a JSON array.
	Messages json.RawMessage
	// Payload is a literal request body, a JSON object.
	Payload json.RawMessage
	// Session groups the turns of a conversation, "" for none. Turn counts from 1; 0: not known.
	Session string
	Turn    int
	// Delay is the pause after the session's previous turn that the trace asks for.
	Delay time.Duration
	// Stream says whether the answer is asked for as a stream.
	Stream bool
	// IgnoreEOS asks the server to go on until MaxTokens (vLLM's and SGLang's ignore_eos).
	IgnoreEOS bool
}

// Body is the request's body for an API, in the provider's own field names: messages or prompt (or input), max_tokens
// (max_output_tokens for responses), stream, and ignore_eos where asked for. A Payload is given as it is. Prompts that
// an API cannot carry are an error: token ids outside completions, and a chat history in completions.
func (r Request) Body(api wire.API) (map[string]any, error) {
	if r.Payload != nil {
		var body map[string]any
		if err := json.Unmarshal(r.Payload, &body); err != nil {
			return nil, fmt.Errorf("row %d: payload: expected a JSON object: %w", r.Row, err)
		}
		return body, nil
	}
	body := map[string]any{"stream": r.Stream}
	limit := "max_tokens"
	switch api {
	case wire.Completions:
		switch {
		case r.Messages != nil:
			return nil, fmt.Errorf("row %d: a chat history cannot be sent to the %s API: expected chat, responses or messages", r.Row, api)
		case r.PromptIDs != nil:
			body["prompt"] = r.PromptIDs
		default:
			body["prompt"] = r.Prompt
		}
	case wire.Chat, wire.Messages, wire.Responses:
		messages, err := r.chat()
		if err != nil {
			return nil, fmt.Errorf("row %d: %w", r.Row, err)
		}
		body["messages"] = messages
		if api == wire.Responses {
			delete(body, "messages")
			body["input"] = messages
			limit = "max_output_tokens"
		}
	default:
		_, err := wire.ParseAPI(string(api))
		return nil, err
	}
	if r.MaxTokens > 0 {
		body[limit] = r.MaxTokens
	}
	if r.IgnoreEOS {
		body["ignore_eos"] = true
	}
	return body, nil
}

func (r Request) chat() ([]any, error) {
	if r.PromptIDs != nil {
		return nil, fmt.Errorf("token ids can be sent to the %s API only", wire.Completions)
	}
	if r.Messages == nil {
		return []any{map[string]any{"role": "user", "content": r.Prompt}}, nil
	}
	var messages []any
	if err := json.Unmarshal(r.Messages, &messages); err != nil {
		return nil, fmt.Errorf("messages: expected a JSON array: %w", err)
	}
	return messages, nil
}
