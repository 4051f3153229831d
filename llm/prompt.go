package llm

import "reflect"

// promptTokens counts the tokens of a prompt: of each text in it by itself, since nobody sent what would stand between them, and
// of token ids each as the one that it is. What a chat template adds is the server's own, and is not counted. It is false where
// the body holds nothing that can be counted, such as prompt_embeds.
func promptTokens(body map[string]any, count func(string) int) (tokens int, ok bool) {
	add := func(n int) { tokens, ok = tokens+n, true }
	var gather func(v any)
	gather = func(v any) {
		switch v := v.(type) {
		case string:
			add(count(v))
		case []any:
			for _, item := range v {
				gather(item)
			}
		case map[string]any:
			for _, name := range []string{"content", "text"} {
				gather(v[name])
			}
		}
	}
	for _, name := range []string{"instructions", "system", "messages", "prompt", "input"} {
		if ids := tokenIDs(reflect.ValueOf(body[name])); ids > 0 {
			add(ids)
		}
		gather(body[name])
	}

	return tokens, ok
}

// tokenIDs is how many token ids a prompt holds: a list of numbers, or lists of them. They come from JavaScript, or as a
// trace's requests do, from Go.
func tokenIDs(v reflect.Value) int {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch {
	case !v.IsValid():
		return 0
	case v.CanInt() || v.CanUint() || v.CanFloat():
		return 1
	case v.Kind() != reflect.Slice && v.Kind() != reflect.Array:
		return 0
	}
	n := 0
	for i := range v.Len() {
		n += tokenIDs(v.Index(i))
	}

	return n
}
