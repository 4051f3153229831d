// Package describe names the values that scripts give, for errors: by what a script's author calls them, never by what
// Go holds of them, which for most is an address.
package describe

import (
	"fmt"
	"math/big"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Value names a value as the JavaScript runtime exports it, or as JSON and YAML decode it. Texts are quoted, numbers and
// booleans are written as they are; everything else is named by its kind: "an object", "a Promise", "a Map".
func Value(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case string:
		return strconv.Quote(v)
	case []byte:
		return "a Uint8Array"
	case [][2]any: // so the runtime exports it
		return "a Map"
	case time.Time:
		return "a Date"
	case *big.Int:
		return v.String()
	}
	of := reflect.TypeOf(v)
	switch kind := of.Kind(); {
	case kind == reflect.Func:
		return "a function"
	case kind == reflect.Slice || kind == reflect.Array:
		return "an array"
	case kind == reflect.Map:
		return "an object"
	case kind == reflect.String: // json.Number, and names of Go's own
		return strconv.Quote(reflect.ValueOf(v).String())
	case kind <= reflect.Float64:
		return fmt.Sprint(v)
	}

	return named(of)
}

// Given names what a call of a script was given. The runtime exports a Symbol as the text that describes it, which is not what was
// given.
func Given(v interface{ Export() any }) string {
	if v == nil {
		return "nothing"
	}
	if of := reflect.TypeOf(v); of.Kind() == reflect.Pointer && of.Elem().Name() == "Symbol" {
		return named(of)
	}

	return Value(v.Export())
}

// named is for the types of the JavaScript runtime itself, which have JavaScript's names. This package does not know the runtime,
// as no core package does.
func named(of reflect.Type) string {
	inner := of
	if inner.Kind() == reflect.Pointer {
		inner = inner.Elem()
	}
	name := inner.Name()
	if !strings.HasSuffix(inner.PkgPath(), "/sobek") || name == "" {
		return fmt.Sprintf("a value of the type %s", of)
	}
	if strings.ContainsRune("AEIOU", rune(name[0])) {
		return "an " + name
	}

	return "a " + name
}
