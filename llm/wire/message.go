package wire

// Message is what a server said in one answer. Fields that it did not send are empty, or nil.
type Message struct {
	// ID and Model are the server's own.
	ID, Model string
	// Text, Reasoning and Refusal are the three channels of prose, each assembled. Where more than one answer was asked
	// for (`n`), they are those of the first, as are the tool calls and the finish reason. Bytes that are not UTF-8
	// become U+FFFD.
	Text, Reasoning, Refusal string
	// FinishReason is the server's own word: "stop", "length", "tool_calls", "end_turn", … In the responses API it is
	// "completed", or the reason of an incomplete answer ("max_output_tokens").
	FinishReason string
	// ToolCalls are in the order in which they began. Those that the service runs by itself are not among them.
	ToolCalls []ToolCall
	// Usage is in tokens, as reported.
	Usage Usage
	// Vectors is how many embeddings the answer holds, and Dimensions the length of each; 0 for an answer with text.
	Vectors, Dimensions int
}

// CallKind is the form of a tool call, in which a conversation must hold it.
type CallKind string

// The forms of tool calls.
const (
	// FunctionCall is the call of a function, whose arguments are JSON.
	FunctionCall CallKind = ""
	// CustomCall is the call of OpenAI's custom tools, whose input is free text.
	CustomCall CallKind = "custom"
	// OldCall is the one `function_call` of chat completions, which came before tools and has no ID.
	OldCall CallKind = "function_call"
)

// ToolCall is a call that the model asks for.
type ToolCall struct {
	ID, Name string
	// Arguments are JSON as the model wrote it, which need not be valid; {} where it wrote none. Those of a [CustomCall] are
	// its text.
	Arguments string
	Kind      CallKind
}

// Usage counts tokens as the server reports them: nothing here is guessed, and nil means that nobody reported the
// number. A 0 for a prompt, or for a completion that holds output, is none: servers report it for what they do not count
// (Ollama with each chunk of a completion, aimock with responses and messages).
type Usage struct {
	// PromptTokens counts the whole prompt, cached tokens included.
	//
	// Anthropic's `input_tokens` leaves out what a cache was read for and what was written to one, so there the prompt is
	// input_tokens + cache_creation_input_tokens + cache_read_input_tokens. These numbers come spread over message_start
	// and message_delta; they are cumulative, so of each the largest that was seen counts. The `output_tokens` of
	// message_start are those written by then, and left out: of a broken answer they would be a wrong count.
	PromptTokens *int
	// CompletionTokens counts everything the model wrote, reasoning included.
	CompletionTokens *int
	// CachedTokens is the part of the prompt that was served from a prefix cache.
	CachedTokens *int
	// ReasoningTokens is the part of the completion that was reasoning.
	ReasoningTokens *int
}

// ErrorType is the name under which a failure is counted (the tag `error_type` of the metric llm_errors).
type ErrorType string

// The failures that an answer can show. Others, of the network and of time, are the client's to name.
const (
	// ErrStream is an error that the server reports inside an answer that had begun with success.
	ErrStream ErrorType = "stream_error"
	// ErrTruncated is an answer that ended without a finish reason and without a terminal marker.
	ErrTruncated ErrorType = "stream_truncated"
	// ErrDecode is an answer that is not what the API sends.
	ErrDecode ErrorType = "decode"
	// ErrContextLength is a prompt, or a prompt with its completion, that exceeds the model's context.
	ErrContextLength ErrorType = "context_length"
	// ErrHTTP429 is HTTP status 429: too many requests.
	ErrHTTP429 ErrorType = "http_429"
	// ErrHTTP4xx is any other HTTP status from 400 to 499.
	ErrHTTP4xx ErrorType = "http_4xx"
	// ErrHTTP5xx is an HTTP status from 500 on.
	ErrHTTP5xx ErrorType = "http_5xx"
)
