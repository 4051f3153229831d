package tokens

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/safeqps/xk6-safeqps/llm/wire"
)

// Family is a kind of server, by how it offers its tokenizer.
type Family string

// The families that ServerTokenizer speaks to. The shapes are from their sources and documents:
//
//   - VLLM: POST /tokenize {"model","prompt"} or {"model","messages","add_generation_prompt"} gives
//     {"count","max_model_len","tokens"} (vllm/entrypoints/serve/tokenize/protocol.py).
//   - SGLang: POST /tokenize {"model","prompt"} gives the same; it takes no messages
//     (sglang/srt/entrypoints/openai/serving_tokenize.py).
//   - LlamaCPP: POST /apply-template {"messages"} gives {"prompt"}; POST /tokenize {"content","add_special",
//     "parse_special"} gives {"tokens"} (llama.cpp, tools/server/README.md).
//   - TGI: POST /tokenize {"inputs"} gives [{"id","text","start","stop"}]; POST /chat_tokenize {"model","messages"}
//     gives {"tokenize_response","templated_text"} (text-generation-inference, router/src/server.rs).
const (
	VLLM     Family = "vllm"
	SGLang   Family = "sglang"
	LlamaCPP Family = "llama.cpp"
	TGI      Family = "tgi"
)

// ErrNoChatTokenizer is wrapped by CountChat's error for a server that cannot count messages: calibrate by the
// `usage` of real answers instead.
var ErrNoChatTokenizer = errors.New("the server does not tokenize chat messages")

// ServerTokenizer counts tokens by asking the server.
type ServerTokenizer struct {
	// BaseURL is the server's address. A last path element /v1, as in the address of an OpenAI-style API, is
	// left out: tokenizers are served beside it.
	BaseURL string
	// Model is the served model's name; "" leaves it out.
	Model string
	// Family is the kind of server, see Detect.
	Family Family
	// Do sends a request, such as http.Client.Do.
	Do func(*http.Request) (*http.Response, error)
	// Header is sent along, for authorization; nil for none.
	Header http.Header
}

// maxReply bounds what is read of an answer: TGI sends some 60 bytes for each token.
const maxReply = 256 << 20

// reply is the union of the families' answers.
type reply struct {
	Count            *int              `json:"count"`
	Tokens           []json.RawMessage `json:"tokens"`
	TokenizeResponse []json.RawMessage `json:"tokenize_response"`
	Prompt           *string           `json:"prompt"`
	list             []json.RawMessage
}

// Count is the number of tokens of a text as the prompt of a completion: with the token for the beginning of the
// text, where the model has one.
func (s ServerTokenizer) Count(ctx context.Context, text string) (int, error) {
	switch s.Family {
	case VLLM, SGLang:
		return s.ask(ctx, "/tokenize", s.body("prompt", text), counted)
	case LlamaCPP:
		return s.ask(ctx, "/tokenize", llamaBody(text), listed)
	case TGI:
		return s.ask(ctx, "/tokenize", map[string]any{"inputs": text}, array)
	}
	return 0, s.unknown()
}

// CountChat is the number of tokens of a chat of one user message, chat template included. Its error wraps
// ErrNoChatTokenizer for SGLang.
func (s ServerTokenizer) CountChat(ctx context.Context, text string) (int, error) {
	messages := []any{map[string]any{"role": "user", "content": text}}
	switch s.Family {
	case VLLM:
		body := s.body("messages", messages)
		body["add_generation_prompt"] = true
		return s.ask(ctx, "/tokenize", body, counted)
	case SGLang:
		return 0, fmt.Errorf("%s: %w", s.Family, ErrNoChatTokenizer)
	case LlamaCPP:
		r, err := s.post(ctx, "/apply-template", map[string]any{"messages": messages})
		if err != nil {
			return 0, err
		}
		if r.Prompt == nil {
			return 0, s.shape("/apply-template", "prompt")
		}
		return s.ask(ctx, "/tokenize", llamaBody(*r.Prompt), listed)
	case TGI:
		return s.ask(ctx, "/chat_tokenize", s.body("messages", messages), chatListed)
	}
	return 0, s.unknown()
}

// Detect finds the family of the server, by sending a short text under every family's key and looking at the shape of
// the answer. vLLM is told from SGLang by its taking messages.
func (s ServerTokenizer) Detect(ctx context.Context) (Family, error) {
	const text = "hello"
	probe := s
	probe.Family = VLLM
	_, chatErr := probe.CountChat(ctx, text)
	if chatErr == nil {
		return VLLM, nil
	}
	body := s.body("prompt", text)
	body["content"], body["inputs"] = text, text
	r, err := s.post(ctx, "/tokenize", body)
	switch {
	case err != nil:
		return "", fmt.Errorf("find the server's tokenizer: %w", err)
	case len(r.list) > 0:
		return TGI, nil
	case r.Count != nil && *r.Count > 0:
		return SGLang, nil
	case len(r.Tokens) > 0:
		return LlamaCPP, nil
	}
	return "", fmt.Errorf("find the server's tokenizer: the answer has the shape of no family that is known (as vllm: %w)", chatErr)
}

func (s ServerTokenizer) body(key string, value any) map[string]any {
	body := map[string]any{key: value}
	if s.Model != "" {
		body["model"] = s.Model
	}
	return body
}

// llamaBody asks for the tokens that a completion of the text would have: the beginning of the text added, special
// tokens of the template recognised.
func llamaBody(text string) map[string]any {
	return map[string]any{"content": text, "add_special": true, "parse_special": true}
}

func counted(r reply) (int, string) {
	if r.Count == nil {
		return 0, "count"
	}
	return *r.Count, "count"
}

func listed(r reply) (int, string)     { return len(r.Tokens), "tokens" }
func array(r reply) (int, string)      { return len(r.list), "a list of tokens" }
func chatListed(r reply) (int, string) { return len(r.TokenizeResponse), "tokenize_response" }

func (s ServerTokenizer) ask(ctx context.Context, path string, body map[string]any, count func(reply) (n int, key string)) (int, error) {
	r, err := s.post(ctx, path, body)
	if err != nil {
		return 0, err
	}
	n, key := count(r)
	if n <= 0 {
		return 0, s.shape(path, key)
	}
	return n, nil
}

func (s ServerTokenizer) post(ctx context.Context, path string, body map[string]any) (r reply, err error) {
	if s.Do == nil {
		return reply{}, errors.New("server tokenizer: no function to send requests with")
	}
	payload, err := json.Marshal(body)
	if err != nil {
		return reply{}, fmt.Errorf("POST %s: %w", path, err)
	}
	url := strings.TrimSuffix(strings.TrimRight(s.BaseURL, "/"), "/v1") + path
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(payload))
	if err != nil {
		return reply{}, fmt.Errorf("POST %s: %w", url, err)
	}
	for key, values := range s.Header {
		request.Header[key] = values
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := s.Do(request)
	if err != nil {
		return reply{}, fmt.Errorf("POST %s: %w", url, err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxReply+1))
	switch {
	case err != nil:
		return reply{}, fmt.Errorf("POST %s: read the answer: %w", url, err)
	case len(data) > maxReply:
		return reply{}, fmt.Errorf("POST %s: the answer is longer than %d bytes", url, maxReply)
	case response.StatusCode != http.StatusOK:
		return reply{}, fmt.Errorf("POST %s: expected status 200, got %d: %s", url, response.StatusCode, s.excerpt(data))
	}
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] == '[' {
		err = json.Unmarshal(trimmed, &r.list)
	} else {
		err = json.Unmarshal(trimmed, &r)
	}
	if err != nil {
		return reply{}, fmt.Errorf("POST %s: expected token counts in JSON, got %s: %w", url, s.excerpt(data), err)
	}
	return r, nil
}

func (s ServerTokenizer) shape(path, key string) error {
	return fmt.Errorf("POST %s: expected %s with at least one token, as %s gives: got none", path, key, s.Family)
}

func (s ServerTokenizer) unknown() error {
	return fmt.Errorf("unknown server family %q: expected %s, %s, %s or %s", s.Family, VLLM, SGLang, LlamaCPP, TGI)
}

// excerpt shows the beginning of an answer in an error, without a key that the server quotes.
func (s ServerTokenizer) excerpt(data []byte) string {
	const most = 200
	text := wire.SecretsIn(s.Header).Hide(strings.TrimSpace(string(data)))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return fmt.Sprintf("%q", text)
}
