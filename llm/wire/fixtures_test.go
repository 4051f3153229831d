package wire

import (
	"net/http"
	"strconv"
)

func statusText(status int) string {
	return strconv.Itoa(status) + " " + http.StatusText(status)
}

var fixtures = []recorded{
	{
		file: "vllm_chat_usage.sse", api: Chat, chunks: 3, text: "Safe rates are measured", finish: "length",
		id: "chatcmpl-fix1", model: "m-vllm", prompt: intp(9), completion: intp(5), cached: intp(8),
	},
	{ // 1, 3, then 2 tokens: one that gave no text yet belongs to the next chunk
		file: "vllm_chat_continuous_usage.sse", api: Chat, chunks: 3, tokens: 6, text: "one two three —", finish: "stop",
		id: "chatcmpl-fix1", model: "m-vllm", prompt: intp(9), completion: intp(6),
	},
	{
		file: "vllm_chat_tools.sse", api: Chat, chunks: 4, finish: "tool_calls", id: "chatcmpl-fix1", model: "m-vllm",
		tools: []ToolCall{{ID: "call-a", Name: "look_up", Arguments: `{"q":"qps"}`}},
	},
	{
		file: "vllm_chat_logprobs.sse", api: Chat, chunks: 2, text: "To go", finish: "stop",
		id: "chatcmpl-fix1", model: "m-vllm",
	},
	{
		file: "vllm_chat_overcontext.sse", api: Chat,
		failure: ErrContextLength, code: "400", message: "you requested 9009 tokens",
	},
	{
		file: "vllm_chat_queue_full.sse", api: Chat,
		failure: ErrStream, code: "429", message: "Too many requests are waiting",
	},
	{
		file: "vllm_completions_usage.sse", api: Completions, chunks: 2, text: "Once upon", finish: "length",
		id: "cmpl-fix2", model: "m-vllm", prompt: intp(3), completion: intp(2), cached: intp(0),
	},
	{
		file: "llamacpp_chat_usage.sse", api: Chat, chunks: 3, text: " шов城\né🚀", finish: "stop",
		id: "chatcmpl-fix3", model: "tiny", prompt: intp(7), completion: intp(3), cached: intp(2),
	},
	{
		file: "llamacpp_chat_timings_only.sse", api: Chat, chunks: 1, text: "x", finish: "stop",
		id: "chatcmpl-fix3", model: "tiny",
	},
	{
		file: "llamacpp_completions_usage_on_last_choice.sse", api: Completions, chunks: 2, text: " prosper", finish: "stop",
		id: "chatcmpl-fix4", model: "tiny", prompt: intp(5), completion: intp(2), cached: intp(4),
	},
	{
		file: "llamacpp_chat_error_in_the_middle.sse", api: Chat, chunks: 2, text: "good start",
		id: "chatcmpl-fix3", model: "tiny",
		open: true, failure: ErrContextLength, code: "500", message: "context shift is disabled",
	},
	{
		file: "anthropic_messages_cache.sse", api: Messages, chunks: 2, text: "Hello there", finish: "end_turn",
		id: "msg_fix5", model: "claude-fix", prompt: intp(2117), completion: intp(12), cached: intp(2000),
	},
	{
		file: "anthropic_messages_thinking_tools.sse", api: Messages, chunks: 6, reasoning: "Need weather.",
		tools: []ToolCall{
			{ID: "toolu_1", Name: "get_weather", Arguments: `{"city": "Paris"}`},
			{ID: "toolu_2", Name: "get_time", Arguments: `{}`},
		},
		finish: "tool_use", id: "msg_fix6", model: "claude-fix", prompt: intp(30), completion: intp(41),
	},
	{
		file: "anthropic_messages_overloaded.sse", api: Messages, chunks: 1, text: "Half",
		id: "msg_fix7", model: "claude-fix", prompt: intp(5),
		open: true, failure: ErrStream, message: "Overloaded",
	},
	{
		file: "openai_responses_reasoning_tools.sse", api: Responses, chunks: 6, text: "Looking", reasoning: "Think.",
		tools:  []ToolCall{{ID: "call_1", Name: "look_up", Arguments: `{"q":1}`}},
		finish: "completed", id: "resp_fix8", model: "m-resp",
		prompt: intp(20), completion: intp(33), cached: intp(16), thought: intp(21),
	},
	{
		file: "openai_responses_incomplete.sse", api: Responses, chunks: 1, text: "Cut", finish: "max_output_tokens",
		id: "resp_fix8", model: "m-resp", prompt: intp(4), completion: intp(1),
	},
	{
		file: "openai_responses_failed.sse", api: Responses, chunks: 1, text: "Half", id: "resp_fix8", model: "m-resp",
		open: false, failure: ErrStream, code: "server_error", message: "The model failed to generate a response.",
	},
	{
		file: "openai_chat_empty_role.sse", api: Chat, chunks: 1, text: "naïve café — 日本語 🚀.", finish: "stop",
		id: "chatcmpl-fix9", model: "gpt-fix",
	},
	{
		file: "openai_chat_truncated.sse", api: Chat, chunks: 1, text: "This ends ", id: "chatcmpl-fix9", model: "gpt-fix",
		open: true, failure: ErrTruncated, message: "in the middle of the answer",
	},
	{ // usage on a last chunk that has a choice, under DeepSeek's own name for cached tokens
		file: "deepseek_chat_reasoning.sse", api: Chat, chunks: 3, text: "42", reasoning: "Let me see.", finish: "stop",
		id: "ds-fix10", model: "deepseek-fix", prompt: intp(64), completion: intp(9), cached: intp(48), thought: intp(7),
	},
	{ // usage of zeros with each chunk: places that nobody filled in
		file: "ollama_completions_broken_off.sse", api: Completions, chunks: 2, text: "Once upon",
		id: "cmpl-718", model: "qwen-fix", open: true, failure: ErrTruncated, message: "in the middle of the answer",
	},
	{ // usage is reported and says nothing
		file: "mock_responses_zero_usage.sse", api: Responses, chunks: 2, text: "Not counted", finish: "completed",
		id: "resp_fix11", model: "m-resp",
	},
	{ // two answers: the numbers are those of both together, the text is the first's
		file: "vllm_chat_two_answers.sse", api: Chat, chunks: 4, text: "Yes, sure", finish: "length",
		id: "chatcmpl-fix1", model: "m-vllm", prompt: intp(9), completion: intp(4),
	},
	{
		file: "ollama_chat_reasoning_tools.sse", api: Chat, chunks: 2, reasoning: "Hm",
		tools: []ToolCall{
			{ID: "call_x1", Name: "a", Arguments: `{"n":1}`},
			{ID: "call_x2", Name: "b", Arguments: `{}`},
		},
		finish: "tool_calls", id: "chatcmpl-718", model: "qwen-fix", prompt: intp(160), completion: intp(22),
	},
	{
		file: "openrouter_chat_error_in_the_middle.sse", api: Chat, chunks: 2, text: "Part", reasoning: "So",
		id: "gen-fix11", model: "x/y",
		open: true, failure: ErrStream, code: "server_error", message: "Provider disconnected unexpectedly",
	},
}
