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

// apiKind is the form of a request and its answer.
type apiKind uint8

const (
	chatAPI        apiKind = iota // OpenAI's chat completions
	completionsAPI                // OpenAI's completions
	responsesAPI                  // OpenAI's responses
	messagesAPI                   // Anthropic's messages
)

// apiRequest holds the fields of a request for text that the server knows, of all APIs together. All others, such as
// temperature, stop or logprobs, are accepted and change nothing.
type apiRequest struct {
	Model               string          `json:"model"`
	Messages            []message       `json:"messages"`
	Prompt              json.RawMessage `json:"prompt"`
	Input               json.RawMessage `json:"input"`
	Instructions        string          `json:"instructions"`
	System              json.RawMessage `json:"system"`
	Tools               json.RawMessage `json:"tools"`
	ToolChoice          json.RawMessage `json:"tool_choice"`
	Stream              bool            `json:"stream"`
	StreamOptions       *streamOptions  `json:"stream_options"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	MaxOutputTokens     *int            `json:"max_output_tokens"`
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

func (e *apiError) write(w http.ResponseWriter, api apiKind) {
	if e.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.retry.Seconds()))))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.status)
	writeBody(w, e.body(api))
}

// body is the error object as the API writes it.
func (e *apiError) body(api apiKind) []byte {
	if api == messagesAPI {
		return messagesErrorBody(e.status, e.message)
	}
	return errorBody(e.status, e.message, e.param)
}

// job is one accepted request, ready to be run and answered.
type job struct {
	id      string
	api     apiKind
	model   string // that was asked for
	adapter string // its name where it is not the base model
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
	// toolResults is how many results of tools have followed the user's last words.
	toolResults int
	created     int64
}

// generation serves an API that generates text.
func (s *Server) generation(api apiKind) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { s.serveGeneration(w, r, api) }
}

func (s *Server) serveGeneration(w http.ResponseWriter, r *http.Request, api apiKind) {
	received := time.Now()
	var req apiRequest
	if err := readJSON(w, r, &req); err != nil {
		err.write(w, api)
		return
	}
	number := s.number.Add(1)
	fault, ok := s.strikeFirst(w, r, api, req.SimFault, number)
	if !ok {
		return
	}
	j, apiErr := s.prepare(req, api, number)
	if apiErr == nil {
		j.finish(fault, req.Tools)
		apiErr = s.run(w, r, j, received)
	}
	if apiErr == nil {
		return
	}
	if apiErr.inStream && req.Stream && s.cfg.ErrorsInStream {
		writeErrorStream(w, api, apiErr)
		return
	}
	apiErr.write(w, api)
}

// strikeFirst chooses the request's fault and strikes with what comes before the request is looked at. It is false where
// nothing more is to be answered.
func (s *Server) strikeFirst(
	w http.ResponseWriter, r *http.Request, api apiKind, inBody json.RawMessage, number uint64,
) (Fault, bool) {
	fault, apiErr := s.chooseFault(r, inBody, number)
	if apiErr != nil {
		apiErr.write(w, api)
		return fault, false
	}
	if !s.sleep(r, time.Duration(fault.HeaderDelay)) {
		return fault, false
	}
	if fault.Status == 0 {
		return fault, true
	}
	if fault.RetryAfter != nil {
		w.Header().Set("Retry-After", strconv.Itoa(*fault.RetryAfter))
	}
	failed := &apiError{status: fault.Status, message: fmt.Sprintf("simulated failure with status %d", fault.Status)}
	failed.write(w, api)
	return fault, false
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
func (s *Server) chooseFault(r *http.Request, inBody json.RawMessage, number uint64) (Fault, *apiError) {
	raw := []byte(inBody)
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
func (s *Server) prepare(req apiRequest, api apiKind, number uint64) (*job, *apiError) {
	if apiErr := s.checkModel(req.Model); apiErr != nil {
		return nil, apiErr
	}
	if req.N != nil && *req.N != 1 {
		return nil, badRequest("n is %d, but this server generates one choice per request", *req.N)
	}
	j := &job{api: api, model: req.Model, stream: req.Stream, created: time.Now().Unix()}
	switch j.model {
	case "":
		j.model = s.cfg.Model
	case s.cfg.Model:
	default:
		j.adapter = j.model
	}
	if apiErr := s.applyStreamOptions(j, req); apiErr != nil {
		return nil, apiErr
	}
	if apiErr := j.readPrompt(req); apiErr != nil {
		return nil, apiErr
	}
	if len(j.prompt) == 0 {
		return nil, badRequest("the prompt is empty")
	}
	prefix := [...]string{chatAPI: "chatcmpl-", completionsAPI: "cmpl-", responsesAPI: "resp_", messagesAPI: "msg_"}
	j.id = s.newID(prefix[api], number)
	j.words = s.cfg.Engine.Seed
	for _, t := range j.prompt {
		j.words = mix64(j.words + uint64(t) + 1)
	}
	if req.Seed != nil {
		j.words = mix64(j.words ^ uint64(*req.Seed)) // #nosec G115 -- any bits will do for a seed
	}
	return j, s.planLength(j, req)
}

// readPrompt works out the prompt, and whether a tool is to be called.
func (j *job) readPrompt(req apiRequest) *apiError {
	if j.api == completionsAPI {
		var apiErr *apiError
		j.prompt, apiErr = parsePrompt(req.Prompt)
		return apiErr
	}
	turns, apiErr := conversation(j.api, req)
	if apiErr != nil {
		return apiErr
	}
	j.prompt = renderChat(turns, req.Tools, true)
	j.toolResults = toolResults(turns)
	if wantsTool(req) {
		j.tool = toolName(req.Tools)
	}
	return nil
}

// checkModel knows the served model and its adapters: the names that begin with the model's and a colon.
func (s *Server) checkModel(name string) *apiError {
	if adapter, ok := strings.CutPrefix(name, s.cfg.Model+":"); name == "" || name == s.cfg.Model || (ok && adapter != "") {
		return nil
	}
	return &apiError{
		status:  http.StatusNotFound,
		message: fmt.Sprintf("The model `%s` does not exist.", name),
		param:   "model",
	}
}

func (s *Server) applyStreamOptions(j *job, req apiRequest) *apiError {
	if req.StreamOptions == nil || j.api == responsesAPI || j.api == messagesAPI {
		return nil // those report usage unasked
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
	name, limit := "max_tokens", req.MaxTokens
	switch {
	case j.api == responsesAPI:
		name, limit = "max_output_tokens", req.MaxOutputTokens
	case j.api == messagesAPI && limit == nil:
		return badRequest("max_tokens: Field required")
	case req.MaxCompletionTokens != nil:
		limit = req.MaxCompletionTokens
	}
	room := s.cfg.Engine.MaxModelLen - len(j.prompt)
	most := room
	if limit != nil {
		most = min(*limit, math.MaxInt32)
	}
	switch {
	case limit != nil && *limit < 1:
		return badRequest("%s must be at least 1, got %d.", name, *limit)
	case req.MinTokens < 0 || (limit != nil && req.MinTokens > *limit):
		return badRequest("min_tokens must be at least 0 and at most %s, got %d.", name, req.MinTokens)
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
	z := rand.New(rand.NewPCG(seed, 0x1e9)).NormFloat64() // #nosec G404 -- a simulation must repeat
	n := math.Round(s.cfg.OutputMedian * math.Exp(s.cfg.OutputSigma*z))
	return int(math.Min(math.Max(n, 1), math.MaxInt32))
}

// newID is unique within the server's life and different between servers of different seed.
func (s *Server) newID(prefix string, number uint64) string {
	salt := uint64(s.started.UnixNano()) //nolint:gosec // any bits will do
	return fmt.Sprintf("%s%016x%016x", prefix, mix64(salt^s.cfg.Engine.Seed), mix64(number))
}

// finish works out what depends on the fault.
func (j *job) finish(fault Fault, tools json.RawMessage) {
	j.fault = fault
	if j.api != completionsAPI && j.tool == "" && (fault.ToolCall || j.toolResults < fault.ToolRounds) {
		j.tool = toolName(tools)
	}
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
	if apiErr == nil {
		apiErr = s.checkModel(req.Model)
	}
	var tokens []uint32
	switch {
	case apiErr != nil:
	case req.Prompt != nil:
		tokens = Tokenize([]uint32{}, *req.Prompt)
	default:
		reply := req.AddGenerationPrompt == nil || *req.AddGenerationPrompt
		var turns []turn
		if turns, apiErr = conversation(chatAPI, apiRequest{Messages: req.Messages}); apiErr == nil {
			tokens = renderChat(turns, req.Tools, reply)
		}
	}
	if apiErr != nil {
		apiErr.write(w, chatAPI)
		return
	}
	writeJSON(w, map[string]any{
		"count": len(tokens), "max_model_len": s.cfg.Engine.MaxModelLen, "tokens": tokens, "token_strs": nil,
	})
}
