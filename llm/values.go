package llm

import (
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"sort"
	"time"

	"github.com/grafana/sobek"

	"github.com/safeqps/xk6-safeqps/llm/describe"
)

// ownTags are the tags that the client and k6's scenarios set, and that verdicts and thresholds rest on: a request that
// called itself warmup, or ok, would change what is judged. A session sets turn and round; elsewhere they are absent.
//
//nolint:gochecknoglobals // a constant list
var ownTags = []string{
	"scenario", "phase", "step", "class", "model", "api", "outcome", "error_type", "cancel_phase", "source", "attempt",
	"turn", "round",
}

// tags reads the option tags.
func (o *optionsOf) tags(expected string) (map[string]string, error) {
	tags, err := o.strings("tags", expected)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(tags))
	for name := range tags {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if !slices.Contains(ownTags, name) {
			continue
		}
		instead := "another name: this tag is set by the client or the scenario, and verdicts rest on it"
		if name == "class" {
			instead += "; give the request's own field class"
		}

		return nil, o.wrong("tags."+name, tags[name], instead)
	}

	return tags, nil
}

// deepest bounds how far a body is looked into; what is nested deeper, as an object that contains itself, is refused when
// it is written.
const deepest = 64

// flaw is a value that can not be sent, and where it stands.
type flaw struct {
	path     string
	found    any
	expected string
}

// checkSendable refuses what JSON can not carry: written, bytes would arrive as {}, or as text that nobody wrote.
func checkSendable(body map[string]any) error {
	names := make([]string, 0, len(body))
	for name := range body {
		names = append(names, name)
	}
	sort.Strings(names) // the same request fails for the same field
	for _, name := range names {
		if f := flawIn(body[name], 0); f != nil {
			return fmt.Errorf("llm request: field %q: got %s, expected %s", name+f.path, describe.Value(f.found), f.expected)
		}
	}

	return nil
}

func flawIn(v any, depth int) *flaw {
	switch v := v.(type) {
	case nil, string, bool, int64, int, time.Time, *big.Int:
		return nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return &flaw{found: v, expected: "a finite number"}
		}

		return nil
	case sobek.ArrayBuffer, *sobek.ArrayBuffer, []byte:
		return &flaw{found: v, expected: "text: JSON carries no bytes (encoding.b64encode of k6/encoding makes text of them)"}
	case *sobek.Promise:
		return &flaw{found: v, expected: "a value: await it first"}
	case sobek.Proxy, *sobek.Proxy:
		return &flaw{found: v, expected: "a plain value"}
	}
	if depth == deepest {
		return nil
	}

	return flawInside(v, depth)
}

// flawInside looks into lists and objects, which come from JavaScript or, as a trace's requests do, from Go.
func flawInside(v any, depth int) *flaw {
	inside := reflect.ValueOf(v)
	switch kind := inside.Kind(); {
	case kind == reflect.Slice || kind == reflect.Array:
		if kind := inside.Type().Elem().Kind(); kind == reflect.String || (kind >= reflect.Bool && kind <= reflect.Uint64) {
			return nil
		}
		for i := range inside.Len() {
			if f := flawIn(inside.Index(i).Interface(), depth+1); f != nil {
				f.path = fmt.Sprintf("[%d]", i) + f.path

				return f
			}
		}
	case kind == reflect.Map && inside.Type().Key().Kind() == reflect.String:
		for each := inside.MapRange(); each.Next(); {
			if f := flawIn(each.Value().Interface(), depth+1); f != nil {
				f.path = "." + each.Key().String() + f.path

				return f
			}
		}
	case kind == reflect.Func || kind == reflect.Chan || kind == reflect.UnsafePointer:
		return &flaw{found: v, expected: "a value that JSON can carry"}
	}

	return nil
}
