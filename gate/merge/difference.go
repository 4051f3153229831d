package merge

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// difference is a value of one JSON document that another has otherwise.
type difference struct {
	path string
	a, b any
}

func (d difference) String() string {
	return fmt.Sprintf("%s: %s and %s", d.path, shown(d.a), shown(d.b))
}

// differencesIn lists what differs in two JSON documents, however they are written: the order of keys, escapes, the form of
// numbers, and empty objects or nulls that are left out make no difference.
func differencesIn(a, b any) []difference { return differencesAt("", a, b) }

func differencesAt(path string, a, b any) []difference {
	x, isObject := a.(map[string]any)
	y, otherIsObject := b.(map[string]any)
	if (isObject || a == nil) && (otherIsObject || b == nil) {
		var out []difference
		for _, key := range eitherKey(x, y) {
			out = append(out, differencesAt(strings.TrimPrefix(path+"."+key, "."), x[key], y[key])...)
		}

		return out
	}
	list, isList := a.([]any)
	other, otherIsList := b.([]any)
	if isList && otherIsList && len(list) == len(other) {
		var out []difference
		for i := range list {
			out = append(out, differencesAt(fmt.Sprintf("%s[%d]", path, i), list[i], other[i])...)
		}

		return out
	}
	if isObject || otherIsObject || isList || otherIsList || a != b { // objects and lists are not comparable
		return []difference{{path, a, b}}
	}

	return nil
}

func eitherKey[V any](a, b map[string]V) []string {
	all := map[string]V{}
	maps.Copy(all, a)
	maps.Copy(all, b)

	return slices.Sorted(maps.Keys(all))
}

// shown is a value as JSON, cut to what fits into a message.
func shown(v any) string {
	const longest = 80
	if v == nil {
		return "nothing"
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	line := strings.TrimSpace(text.String())
	if runes := []rune(line); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}

	return line
}
