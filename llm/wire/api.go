// Package wire knows what requests and answers look like in each of the APIs that serve language models. It builds
// request bodies, and turns the events of a streamed answer, or the body of a whole one, into what was said: text,
// reasoning, refusals, tool calls, token usage, the reason for the end, and errors.
//
// It sees neither bytes on a socket nor clocks: package stream parses server-sent events and takes the times; here each
// event gets its meaning.
//
// The shapes follow the public API references (OpenAI's chat completions, completions and responses; Anthropic's
// messages) and what vLLM, SGLang, TGI, llama.cpp, Ollama, LM Studio and hosted services really send, which differs.
// The rule for the differences: strict where a mistake would turn into a wrong number (invalid JSON, an object where
// text belongs), tolerant everywhere else (unknown fields, absent fields, a number written as a string).
package wire

import (
	"fmt"
	"slices"
	"strings"
)

// API names the protocol of an endpoint: the shape of its requests and answers.
type API string

// The APIs that this package speaks.
const (
	// Chat is OpenAI's chat completions.
	Chat API = "chat"
	// Completions is OpenAI's legacy text completions, which most engines still serve.
	Completions API = "completions"
	// Responses is OpenAI's responses API.
	Responses API = "responses"
	// Messages is Anthropic's messages API.
	Messages API = "messages"
	// Embeddings is OpenAI's embeddings API. It answers with vectors and not with text, so [ParseAPI] does not know it: it
	// can not stand in for one of the others.
	Embeddings API = "embeddings"
)

var apis = []API{Chat, Completions, Responses, Messages}

// ParseAPI checks the name of an API that answers with text. Its error lists the names that are allowed.
func ParseAPI(s string) (API, error) {
	if api := API(s); slices.Contains(apis, api) {
		return api, nil
	}
	names := make([]string, len(apis))
	for i, api := range apis {
		names[i] = string(api)
	}

	return "", fmt.Errorf("unknown API %q: expected one of %s", s, strings.Join(names, ", "))
}

// Path is what follows the base URL, which ends in a version such as /v1. It is empty for an unknown API.
func (a API) Path() string {
	switch a {
	case Chat:
		return "/chat/completions"
	case Completions:
		return "/completions"
	case Responses:
		return "/responses"
	case Messages:
		return "/messages"
	case Embeddings:
		return "/embeddings"
	default:
		return ""
	}
}
