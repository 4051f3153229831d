package llm

import "strings"

// forcedLength says whether a body forces the answer to its asked length, so that the model never ends it by itself: by
// ignore_eos (vLLM, SGLang, llama.cpp, TensorRT-LLM; Dynamo has it in nvext too), by ban_eos_token (text-generation-webui and
// what follows it), or by a least length that is the longest one as well. A logit_bias against the end token does the same,
// and is not seen: which token ends an answer is the model's own.
func forcedLength(body map[string]any) bool {
	if isOn(body["ignore_eos"]) || isOn(body["ban_eos_token"]) {
		return true
	}
	if dynamo, ok := body["nvext"].(map[string]any); ok && isOn(dynamo["ignore_eos"]) {
		return true
	}
	for _, name := range []string{"min_tokens", "min_new_tokens"} {
		least, ok := number(body[name])
		if !ok || least <= 0 {
			continue
		}
		if most := mostTokens(body); most > 0 && int(least) >= most {
			return true
		}
	}

	return false
}

// mostTokens is how long an answer may be, by any API's field or llama.cpp's own; 0 where the request does not say.
func mostTokens(body map[string]any) int {
	if n := maxTokens(body); n > 0 {
		return n
	}
	n, ok := number(body["n_predict"])
	if !ok || n < 0 {
		return 0
	}

	return int(n)
}

// isOn reads a switch as the servers do, which take 1 and "true" for true.
func isOn(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case string:
		return v == "1" || strings.EqualFold(v, "true")
	default:
		n, ok := number(v)

		return ok && n != 0
	}
}
