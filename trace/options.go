package trace

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/grafana/sobek"
	"go.k6.io/k6/js/common"
	"go.k6.io/k6/lib/types"

	"github.com/safeqps/xk6-safeqps/llm"
	"github.com/safeqps/xk6-safeqps/llm/describe"
)

// options is an object of options that is being read. It keeps the first mistake, so that the code that reads may go on
// and ask once at the end, and the names that were asked for, so that what is left over is known to be a mistake too.
type options struct {
	what   string // whose options: "trace.open"
	path   string // of an object within: "prefix."
	values map[string]any
	known  []string
	err    error
}

// optionsFrom reads the options of a call. Without an argument there are none.
func optionsFrom(what string, v sobek.Value) (*options, error) {
	if common.IsNullish(v) {
		return &options{what: what}, nil
	}
	values, ok := v.Export().(map[string]any)
	if !ok {
		return nil, &llm.OptionError{What: what, Found: describe.Given(v), Expected: "an object of options"}
	}

	if !nestsAtMost(values, maxNesting) {
		return nil, &llm.OptionError{
			What: what, Found: fmt.Sprintf("an object nested more than %d deep, or in itself", maxNesting), Expected: "an object of options",
		}
	}

	return &options{what: what, values: values}, nil
}

// maxNesting is far deeper than any option is.
const maxNesting = 32

// nestsAtMost is false for what is nested deeper than that, and so for what contains itself.
func nestsAtMost(v any, depth int) bool {
	if depth < 0 {
		return false
	}
	switch v := v.(type) {
	case map[string]any:
		for _, item := range v {
			if !nestsAtMost(item, depth-1) {
				return false
			}
		}
	case []any:
		for _, item := range v {
			if !nestsAtMost(item, depth-1) {
				return false
			}
		}
	}

	return true
}

func (o *options) wrong(name string, found any, expected string) {
	if o.err == nil {
		o.err = &llm.OptionError{What: o.what, Option: o.path + name, Found: describe.Value(found), Expected: expected}
	}
}

// finish is the first mistake, or an error for an option that nobody asked for.
func (o *options) finish() error {
	if o.err != nil {
		return o.err
	}
	for _, name := range sortedKeys(o.values) {
		if !slices.Contains(o.known, name) {
			return &llm.OptionError{
				What: o.what, Option: o.path + name, Found: "an option of a name that is not known",
				Expected: "one of: " + strings.Join(o.known, ", "),
			}
		}
	}

	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)

	return keys
}

func (o *options) get(name string) (any, bool) {
	if !slices.Contains(o.known, name) {
		o.known = append(o.known, name)
	}
	v := o.values[name]

	return v, v != nil
}

func (o *options) has(name string) bool {
	_, ok := o.get(name)

	return ok
}

func (o *options) text(name string) string {
	v, ok := o.get(name)
	if !ok {
		return ""
	}
	s, isText := v.(string)
	if !isText || s == "" {
		o.wrong(name, v, "a string")
	}

	return s
}

// choice is one of some words; the first where it is not given.
func (o *options) choice(name string, words ...string) string {
	v, ok := o.get(name)
	if !ok {
		return words[0]
	}
	s, _ := v.(string)
	if !slices.Contains(words, s) {
		o.wrong(name, v, fmt.Sprintf("one of %q", words))
	}

	return s
}

// flag is true or false; false where it is not given.
func (o *options) flag(name string) bool {
	v, ok := o.get(name)
	if !ok {
		return false
	}
	b, isBool := v.(bool)
	if !isBool {
		o.wrong(name, v, "true or false")
	}

	return b
}

func asNumber(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, !math.IsNaN(v)
	default:
		return 0, false
	}
}

// number is a number that passes a test.
func (o *options) number(name string, otherwise float64, expected string, fits func(float64) bool) float64 {
	v, ok := o.get(name)
	if !ok {
		return otherwise
	}
	f, isNumber := asNumber(v)
	if !isNumber || !fits(f) {
		o.wrong(name, v, expected)
	}

	return f
}

func positive(f float64) bool { return f > 0 && !math.IsInf(f, 0) }

func (o *options) positive(name string, otherwise float64, what string) float64 {
	return o.number(name, otherwise, what+" above 0", positive)
}

func (o *options) share(name string, otherwise float64) float64 {
	return o.number(name, otherwise, "a share from 0 to 1", func(f float64) bool { return f >= 0 && f <= 1 })
}

// whole is a whole number of at least low. JavaScript holds them exactly up to 2^53.
func (o *options) whole(name string, otherwise, low int64, what string) int64 {
	expected := fmt.Sprintf("%s: a whole number from %d to 2^53", what, low)
	fits := func(f float64) bool { return f == math.Trunc(f) && f >= float64(low) && f <= 1<<53 }

	return int64(o.number(name, float64(otherwise), expected, fits))
}

const durationForm = `milliseconds as a number, or a string such as "30s"`

// duration is a time as k6 writes it.
func (o *options) duration(name string, expected string, fits func(time.Duration) bool) (time.Duration, bool) {
	v, ok := o.get(name)
	if !ok {
		return 0, false
	}
	d, isDuration := asDuration(v)
	if !isDuration || !fits(d) {
		o.wrong(name, v, expected+": "+durationForm)

		return 0, false
	}

	return d, true
}

func asDuration(v any) (time.Duration, bool) {
	switch v.(type) {
	case string, int64, float64:
		d, err := types.GetDurationValue(v)

		return d, err == nil
	default:
		return 0, false
	}
}

func notNegative(d time.Duration) bool { return d >= 0 }
func aboveZero(d time.Duration) bool   { return d > 0 }

// texts is an object of strings, as k6's tags and env are.
func (o *options) texts(name, expected string) map[string]string {
	v, ok := o.get(name)
	if !ok {
		return nil
	}
	m, isObject := v.(map[string]any)
	if !isObject {
		o.wrong(name, v, expected)

		return nil
	}
	out := make(map[string]string, len(m))
	for key, value := range m {
		switch value := value.(type) {
		case string:
			out[key] = value
		case bool, int64, float64:
			out[key] = fmt.Sprint(value)
		default:
			o.wrong(name+"."+key, value, "a string")
		}
	}

	return out
}

// object is an object of options within; nil where it is not given. Its mistakes are to be asked of it.
func (o *options) object(name, expected string) *options {
	v, ok := o.get(name)
	if !ok {
		return nil
	}
	m, isObject := v.(map[string]any)
	if !isObject {
		o.wrong(name, v, expected)

		return nil
	}

	return &options{what: o.what, path: o.path + name + ".", values: m}
}

// list is an array of objects of options.
func (o *options) list(name, expected string) []*options {
	v, ok := o.get(name)
	if !ok {
		return nil
	}
	items, isArray := v.([]any)
	if !isArray {
		o.wrong(name, v, expected)

		return nil
	}
	list := make([]*options, len(items))
	for i, item := range items {
		m, isObject := item.(map[string]any)
		if !isObject {
			o.wrong(fmt.Sprintf("%s[%d]", name, i), item, expected)

			return nil
		}
		list[i] = &options{what: o.what, path: fmt.Sprintf("%s%s[%d].", o.path, name, i), values: m}
	}

	return list
}

// done takes over what is wrong with an object within.
func (o *options) done(within *options) {
	if err := within.finish(); err != nil && o.err == nil {
		o.err = err
	}
}
