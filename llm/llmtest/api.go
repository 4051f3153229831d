package llmtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxBody bounds a request body.
const maxBody = 64 << 20

// apiRequest holds the fields of a chat or completions request that the server knows. All others, such as temperature,
// stop or logprobs, are accepted and change nothing.
type apiRequest struct {
	Model               string          `json:"model"`
	Messages            []message       `json:"messages"`
	Prompt              json.RawMessage `json:"prompt"`
	Tools               json.RawMessage `json:"tools"`
	ToolChoice          json.RawMessage `json:"tool_choice"`
	Stream              bool            `json:"stream"`
	StreamOptions       *streamOptions  `json:"stream_options"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	MinTokens           int             `json:"min_tokens"`
	IgnoreEOS           bool            `json:"ignore_eos"`
	N                   *int            `json:"n"`
	Seed                *int64          `json:"seed"`
	SimFault            json.RawMessage `json:"sim_fault"`
}

type streamOptions struct {
	IncludeUsage         bool `json:"include_usage"`
	ContinuousUsageStats bool `json:"continuous_usage_stats"`
}

type message struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls json.RawMessage `json:"tool_calls"`
}

// apiError is an answer other than 200.
type apiError struct {
	status  int
	message string
	param   any
	// inStream errors may be sent as an event of a 200 answer (ServerConfig.ErrorsInStream).
	inStream bool
	retry    time.Duration
}

func badRequest(format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, message: fmt.Sprintf(format, args...)}
}

func (e *apiError) write(w http.ResponseWriter) {
	if e.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.retry.Seconds()))))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.status)
	writeBody(w, errorBody(e.status, e.message, e.param))
}

// job is one accepted request, ready to be run and answered.
type job struct {
	id      string
	chat    bool
	stream  bool
	prompt  []uint32
	blocks  []uint64
	tokens  int    // that the answer will have
	reason  string // finish_reason
	words   uint64 // seed of the answer's words
	usage   bool
	always  bool // usage in every chunk
	fault   Fault
	tool    string // the tool to call; empty for text
	created int64
}

func (s *Server) serveChat(w http.ResponseWriter, r *http.Request) { s.serveGeneration(w, r, true) }

func (s *Server) serveCompletions(w http.ResponseWriter, r *http.Request) {
	s.serveGeneration(w, r, false)
}

func (s *Server) serveGeneration(w http.ResponseWriter, r *http.Request, chat bool) {
	received := time.Now()
	var req apiRequest
	if err := readJSON(w, r, &req); err != nil {
		err.write(w)
		return
	}
	number := s.number.Add(1)
	fault, apiErr := s.chooseFault(r, req, number)
	if apiErr != nil {
		apiErr.write(w)
		return
	}
	if !s.sleep(r, time.Duration(fault.HeaderDelay)) {
		return
	}
	if fault.Status != 0 {
		if fault.RetryAfter != nil {
			w.Header().Set("Retry-After", strconv.Itoa(*fault.RetryAfter))
		}
		writeError(w, fault.Status, fmt.Sprintf("simulated failure with status %d", fault.Status))
		return
	}
	j, apiErr := s.prepare(req, chat, number)
	if apiErr == nil {
		j.fault = fault
		if fault.ToolCall && chat && j.tool == "" {
			j.tool = toolName(req.Tools)
		}
		j.finish()
		apiErr = s.run(w, r, j, received)
	}
	if apiErr == nil {
		return
	}
	if apiErr.inStream && req.Stream && s.cfg.ErrorsInStream {
		writeErrorStream(w, apiErr)
		return
	}
	apiErr.write(w)
}

// readJSON reads a request body.
func readJSON(w http.ResponseWriter, r *http.Request, into any) *apiError {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return &apiError{
				status:  http.StatusRequestEntityTooLarge,
				message: fmt.Sprintf("the request body is larger than %d bytes", tooLarge.Limit),
			}
		}
		return badRequest("failed to read the request body: %v", err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return badRequest("failed to parse the request body: %v", err)
	}
	return nil
}

// chooseFault takes the fault of the body, else that of the header, else a random one.
func (s *Server) chooseFault(r *http.Request, req apiRequest, number uint64) (Fault, *apiError) {
	raw := []byte(req.SimFault)
	if len(raw) == 0 {
		raw = []byte(r.Header.Get(FaultHeader))
	}
	if len(raw) == 0 {
		return drawFault(s.cfg.Faults, s.cfg.Engine.Seed, number), nil
	}
	f, err := parseFault(raw)
	if err != nil {
		return Fault{}, badRequest("%v", err)
	}
	return f, nil
}

// prepare checks a request and works out its prompt and its answer.
func (s *Server) prepare(req apiRequest, chat bool, number uint64) (*job, *apiError) {
	if req.Model != "" && req.Model != s.cfg.Model {
		return nil, &apiError{
			status:  http.StatusNotFound,
			message: fmt.Sprintf("The model `%s` does not exist.", req.Model),
			param:   "model",
		}
	}
	if req.N != nil && *req.N != 1 {
		return nil, badRequest("n is %d, but this server generates one choice per request", *req.N)
	}
	j := &job{chat: chat, stream: req.Stream, created: time.Now().Unix()}
	if apiErr := s.applyStreamOptions(j, req); apiErr != nil {
		return nil, apiErr
	}
	var apiErr *apiError
	if chat {
		j.prompt, apiErr = renderChat(req.Messages, req.Tools, true)
		if wantsTool(req) {
			j.tool = toolName(req.Tools)
		}
	} else {
		j.prompt, apiErr = parsePrompt(req.Prompt)
	}
	if apiErr != nil {
		return nil, apiErr
	}
	if len(j.prompt) == 0 {
		return nil, badRequest("the prompt is empty")
	}
	j.id = s.newID(chat, number)
	j.words = s.cfg.Engine.Seed
	for _, t := range j.prompt {
		j.words = mix64(j.words + uint64(t) + 1)
	}
	if req.Seed != nil {
		j.words = mix64(j.words ^ uint64(*req.Seed)) //nolint:gosec // any bits will do for a seed
	}
	return j, s.planLength(j, req)
}

func (s *Server) applyStreamOptions(j *job, req apiRequest) *apiError {
	if req.StreamOptions == nil {
		return nil
	}
	switch {
	case s.cfg.StreamOptions == RejectStreamOptions:
		return &apiError{
			status: http.StatusBadRequest, param: "stream_options",
			message: "Unrecognized request argument supplied: stream_options",
		}
	case !req.Stream:
		return badRequest("Stream options can only be defined when `stream=True`.")
	case s.cfg.StreamOptions == HonourStreamOptions:
		j.usage = req.StreamOptions.IncludeUsage
		j.always = j.usage && req.StreamOptions.ContinuousUsageStats
	}
	return nil
}

// planLength decides how many tokens the answer has and why it ends. With max_tokens it has exactly that many, reason
// "length", unless EarlyStop lets it end before; without, it ends at a length drawn for this prompt, reason "stop", or with the
// context, reason "length".
func (s *Server) planLength(j *job, req apiRequest) *apiError {
	limit := req.MaxTokens
	if req.MaxCompletionTokens != nil {
		limit = req.MaxCompletionTokens
	}
	room := s.cfg.Engine.MaxModelLen - len(j.prompt)
	most := room
	if limit != nil {
		most = min(*limit, math.MaxInt32)
	}
	switch {
	case limit != nil && *limit < 1:
		return badRequest("max_tokens must be at least 1, got %d.", *limit)
	case req.MinTokens < 0 || (limit != nil && req.MinTokens > *limit):
		return badRequest("min_tokens must be at least 0 and at most max_tokens, got %d.", req.MinTokens)
	case room < 1 || most > room:
		return contextError(&ContextLengthError{s.cfg.Engine.MaxModelLen, len(j.prompt), max(most, 1)})
	}
	j.tokens, j.reason = most, "length"
	if !req.IgnoreEOS && (limit == nil || s.cfg.EarlyStop) {
		if n := max(s.drawLength(j.words), req.MinTokens); n < most {
			j.tokens, j.reason = n, "stop"
		}
	}
	return nil
}

func contextError(err *ContextLengthError) *apiError {
	return &apiError{
		status: http.StatusBadRequest, message: err.Error(), param: "input_tokens", inStream: true,
	}
}

// drawLength draws a lognormal length.
func (s *Server) drawLength(seed uint64) int {
	z := rand.New(rand.NewPCG(seed, 0x1e9)).NormFloat64() //nolint:gosec // a simulation must repeat
	n := math.Round(s.cfg.OutputMedian * math.Exp(s.cfg.OutputSigma*z))
	return int(math.Min(math.Max(n, 1), math.MaxInt32))
}

// newID is unique within the server's life and different between servers of different seed.
func (s *Server) newID(chat bool, number uint64) string {
	prefix := "cmpl-"
	if chat {
		prefix = "chatcmpl-"
	}
	salt := uint64(s.started.UnixNano()) //nolint:gosec // any bits will do
	return fmt.Sprintf("%s%016x%016x", prefix, mix64(salt^s.cfg.Engine.Seed), mix64(number))
}

// finish works out what depends on the fault.
func (j *job) finish() {
	if j.tool != "" && j.reasoning() < j.tokens {
		j.reason = "tool_calls"
	}
	if j.fault.TokensPerChunk == 0 {
		j.fault.TokensPerChunk = 1
	}
	if j.fault.NoUsage {
		j.usage, j.always = false, false
	}
	if j.fault.ReasoningField == "" {
		j.fault.ReasoningField = "reasoning_content"
	}
}

// renderChat applies the chat template: each message is start, role, separator, content, end; tools are a message of their
// own at the front; the reply begins with start, role, separator.
func renderChat(messages []message, tools json.RawMessage, reply bool) ([]uint32, *apiError) {
	if len(messages) == 0 {
		return nil, badRequest("messages is empty, expected at least one message")
	}
	var out []uint32
	if hasTools(tools) {
		out = append(out, tokenStart, tokenID("system"), tokenSeparator)
		out = append(Tokenize(out, string(tools)), tokenEnd)
	}
	for i, m := range messages {
		if m.Role == "" {
			return nil, badRequest("messages[%d] has no role", i)
		}
		text, err := contentText(m.Content)
		if err != nil {
			return nil, badRequest("messages[%d].content: %v", i, err)
		}
		out = append(out, tokenStart, tokenID(m.Role), tokenSeparator)
		out = Tokenize(out, text)
		if hasTools(m.ToolCalls) {
			out = Tokenize(out, string(m.ToolCalls))
		}
		out = append(out, tokenEnd)
	}
	if reply {
		out = append(out, tokenStart, tokenID("assistant"), tokenSeparator)
	}
	return out, nil
}

func hasTools(raw json.RawMessage) bool {
	text := string(raw)
	return text != "" && text != "null" && text != "[]"
}

// contentText reads a message's content: a string, null, or a list of text parts.
func contentText(raw json.RawMessage) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", errors.New("expected a string or a list of parts")
	}
	var b strings.Builder
	for i, p := range parts {
		if p.Type != "text" || p.Text == nil {
			return "", fmt.Errorf("part %d is of type %q, but this server reads text only", i, p.Type)
		}
		b.WriteString(*p.Text)
	}
	return b.String(), nil
}

// parsePrompt reads a completions prompt: a text, a list of token ids, or a list with one of either.
func parsePrompt(raw json.RawMessage) ([]uint32, *apiError) {
	var text string
	if json.Unmarshal(raw, &text) == nil && len(raw) > 0 && raw[0] == '"' {
		return Tokenize(nil, text), nil
	}
	var ids []uint32
	if json.Unmarshal(raw, &ids) == nil && len(ids) > 0 {
		return ids, nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && len(list) > 0 {
		if len(list) > 1 {
			return nil, badRequest("prompt is a list of %d prompts, but this server reads one per request", len(list))
		}
		if first := list[0]; len(first) > 0 && (first[0] == '"' || first[0] == '[') {
			return parsePrompt(first)
		}
	}
	return nil, badRequest("prompt: expected a text or a list of token ids that is not empty")
}

// wantsTool tells whether the request forces a tool call.
func wantsTool(req apiRequest) bool {
	if !hasTools(req.Tools) || len(req.ToolChoice) == 0 {
		return false
	}
	return req.ToolChoice[0] == '{' || string(req.ToolChoice) == `"required"`
}

// toolName is the name of the first tool of a request, or one for a request without.
func toolName(raw json.RawMessage) string {
	var tools []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if json.Unmarshal(raw, &tools) == nil && len(tools) > 0 && tools[0].Function.Name != "" {
		return tools[0].Function.Name
	}
	return "get_weather"
}

func (s *Server) serveTokenize(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Model               string          `json:"model"`
		Prompt              *string         `json:"prompt"`
		Messages            []message       `json:"messages"`
		Tools               json.RawMessage `json:"tools"`
		AddGenerationPrompt *bool           `json:"add_generation_prompt"`
		AddSpecialTokens    bool            `json:"add_special_tokens"` // has no effect: see MaxPieceLen
	}
	apiErr := readJSON(w, r, &req)
	var tokens []uint32
	switch {
	case apiErr != nil:
	case req.Model != "" && req.Model != s.cfg.Model:
		apiErr = &apiError{
			status: http.StatusNotFound, param: "model",
			message: fmt.Sprintf("The model `%s` does not exist.", req.Model),
		}
	case req.Prompt != nil:
		tokens = Tokenize([]uint32{}, *req.Prompt)
	default:
		reply := req.AddGenerationPrompt == nil || *req.AddGenerationPrompt
		tokens, apiErr = renderChat(req.Messages, req.Tools, reply)
	}
	if apiErr != nil {
		apiErr.write(w)
		return
	}
	writeJSON(w, map[string]any{
		"count": len(tokens), "max_model_len": s.cfg.Engine.MaxModelLen, "tokens": tokens, "token_strs": nil,
	})
}
