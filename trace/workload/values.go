package workload

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/safeqps/xk6-safeqps/llm/describe"
)

// fields reads a plain map, as it comes from JavaScript, JSON or YAML, and remembers what was asked for, so that
// what nobody asked for can be reported.
type fields struct {
	path  string
	value map[string]any
	known []string
}

func newFields(path string, value any) (*fields, error) {
	m, ok := value.(map[string]any)
	if !ok {
		return nil, expected(path, "an object", value)
	}
	return &fields{path: path, value: m}, nil
}

// take gives the value of a key, nil when it is absent.
func (f *fields) take(key string) any {
	f.known = append(f.known, key)
	return f.value[key]
}

func (f *fields) at(key string) string { return f.path + "." + key }

// number reads a number; fallback is for an absent key.
func (f *fields) number(key string, fallback float64) (float64, error) {
	v := f.take(key)
	if v == nil {
		return fallback, nil
	}
	x, ok := toNumber(v)
	if !ok {
		return 0, expected(f.at(key), "a number", v)
	}
	return x, nil
}

// whole reads a whole number of at least one; fallback is for an absent key.
func (f *fields) whole(key string, fallback int) (int, error) {
	x, err := f.number(key, float64(fallback))
	if err != nil || f.value[key] == nil {
		return fallback, err
	}
	if x != math.Trunc(x) || x < 1 || x > MaxTokens {
		return 0, expected(f.at(key), fmt.Sprintf("a whole number from 1 to %d", MaxTokens), f.value[key])
	}
	return int(x), nil
}

// text reads a string; "" when the key is absent.
func (f *fields) text(key string) (string, error) {
	v := f.take(key)
	if v == nil {
		return "", nil
	}
	s, ok := v.(string)
	if !ok {
		return "", expected(f.at(key), "a string", v)
	}
	return s, nil
}

// done reports the first key that was never asked for.
func (f *fields) done() error {
	for _, key := range sortedKeys(f.value) {
		if !slices.Contains(f.known, key) {
			sort.Strings(f.known)
			return fmt.Errorf("%s: unknown key: expected one of %s", f.at(key), strings.Join(f.known, ", "))
		}
	}
	return nil
}

// sortedKeys makes the order of a map's keys the same in every process.
func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

// toNumber reads the number types of JavaScript, JSON and YAML decoders; NaN and infinities are none.
func toNumber(v any) (float64, bool) {
	var x float64
	switch n := v.(type) {
	case float64:
		x = n
	case float32:
		x = float64(n)
	case int:
		x = float64(n)
	case int32:
		x = float64(n)
	case int64:
		x = float64(n)
	case uint64:
		x = float64(n)
	case json.Number:
		parsed, err := n.Float64()
		if err != nil {
			return 0, false
		}
		x = parsed
	default:
		return 0, false
	}
	return x, !math.IsNaN(x) && !math.IsInf(x, 0)
}

func expected(path, what string, got any) error {
	return fmt.Errorf("%s: expected %s, got %s", path, what, show(got))
}

// show writes a value in an error, shortened: as JSON what JSON, YAML or a script's object literals give, by its name what a
// script made otherwise.
func show(v any) string {
	const most = 60
	text := describe.Value(v)
	switch v.(type) {
	case map[string]any, []any:
		if data, err := json.Marshal(v); err == nil {
			text = string(data)
		}
	}
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
