package wire

import "github.com/tidwall/gjson"

// count is a number that somebody may have reported. It is a value, so that usage on every chunk allocates nothing.
type count struct {
	n     int
	known bool
}

func (c count) pointer() *int {
	if !c.known {
		return nil
	}
	n := c.n

	return &n
}

// set takes a reported number over; what is no number leaves the count as it is.
func (c *count) set(v gjson.Result) {
	if n, ok := countOf(v); ok {
		*c = count{n, true}
	}
}

// raise takes a number over if it is the largest so far.
func (c *count) raise(v gjson.Result) {
	if n, ok := countOf(v); ok && (!c.known || n > c.n) {
		*c = count{n, true}
	}
}

// tokenCounts gathers usage while an answer comes in.
type tokenCounts struct {
	prompt, completion, cached, reasoning count
	// What Anthropic counts apart from the prompt.
	cacheRead, cacheWritten count
}

// openAI takes over the numbers of a usage object in OpenAI's form, both of chat (prompt_tokens, completion_tokens) and
// of responses (input_tokens, output_tokens). The last report wins: with usage on every chunk it is cumulative.
func (t *tokenCounts) openAI(usage gjson.Result) (completion count) {
	if !usage.IsObject() {
		return count{}
	}
	// Cached and reasoning tokens stand in a details object; some servers put them beside it, under names of their own.
	var cached, reasoning, plainCached, plainReasoning count
	usage.ForEach(func(key, v gjson.Result) bool {
		switch key.Str {
		case "prompt_tokens", "input_tokens":
			t.prompt.set(v)
		case "completion_tokens", "output_tokens":
			completion.set(v)
		case "prompt_tokens_details", "input_tokens_details":
			cached.set(member(v, "cached_tokens"))
		case "completion_tokens_details", "output_tokens_details":
			reasoning.set(member(v, "reasoning_tokens"))
		case "prompt_cache_hit_tokens", "cached_tokens": // DeepSeek; Moonshot
			plainCached.set(v)
		case "reasoning_tokens": // SGLang
			plainReasoning.set(v)
		}

		return true
	})
	t.completion = firstKnown(completion, t.completion)
	t.cached = firstKnown(cached, plainCached, t.cached)
	t.reasoning = firstKnown(reasoning, plainReasoning, t.reasoning)

	return completion
}

// anthropic takes over the numbers of a usage object of the messages API. See [Usage].PromptTokens.
func (t *tokenCounts) anthropic(usage gjson.Result) {
	if !usage.IsObject() {
		return
	}
	usage.ForEach(func(key, v gjson.Result) bool {
		switch key.Str {
		case "input_tokens":
			t.prompt.raise(v)
		case "output_tokens":
			t.completion.raise(v)
		case "cache_read_input_tokens":
			t.cacheRead.raise(v)
		case "cache_creation_input_tokens":
			t.cacheWritten.raise(v)
		}

		return true
	})
}

// usage is what was reported; said says that there was output. No prompt, and no output, has 0 tokens: where a server
// says so, it left open what it does not count, and so the details beside that number.
func (t *tokenCounts) usage(said bool) Usage {
	prompt, cached := t.prompt, firstKnown(t.cached, t.cacheRead)
	if prompt.known {
		prompt.n += t.cacheRead.n + t.cacheWritten.n
	}
	if prompt == (count{known: true}) {
		prompt, cached = count{}, count{}
	}
	completion, reasoning := t.completion, t.reasoning
	if said && completion == (count{known: true}) {
		completion, reasoning = count{}, count{}
	}

	return Usage{
		PromptTokens:     prompt.pointer(),
		CompletionTokens: completion.pointer(),
		CachedTokens:     cached.pointer(),
		ReasoningTokens:  reasoning.pointer(),
	}
}

func firstKnown(counts ...count) count {
	for _, c := range counts {
		if c.known {
			return c
		}
	}

	return count{}
}

// member is a field of an object, and absent for anything else.
func member(v gjson.Result, name string) gjson.Result {
	if !v.IsObject() {
		return gjson.Result{}
	}

	return v.Get(name)
}
