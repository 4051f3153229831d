package wire

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// recursionBound is the size from which validity is checked by encoding/json, whose depth is bounded: gjson's check
// recurses, and a hostile megabyte of brackets would cost it gigabytes of stack.
const recursionBound = 64 << 10

// validJSON says whether data is one JSON value. Everything below relies on it: gjson reads valid JSON only.
func validJSON(data string) bool {
	if len(data) >= recursionBound {
		return json.Valid([]byte(data))
	}

	return gjson.Valid(data)
}

// object parses data that must be a JSON object.
func object(data string) (gjson.Result, *Error) {
	if !validJSON(data) {
		return gjson.Result{}, decodeError("invalid JSON", data)
	}
	root := gjson.Parse(data)
	if !root.IsObject() {
		return gjson.Result{}, decodeError("expected a JSON object", data)
	}

	return root, nil
}

// textOf reads a value that must be text; an absent one and null are "".
func textOf(field string, v gjson.Result) (string, *Error) {
	switch v.Type { //nolint:exhaustive // the rest is no text
	case gjson.String:
		return v.Str, nil
	case gjson.Null:
		return "", nil
	default:
		return "", decodeError("field \""+field+"\" must be a string", v.Raw)
	}
}

// labelOf reads a short value that only informs: a string, or a number as written, and "" for anything else.
func labelOf(v gjson.Result) string {
	switch v.Type { //nolint:exhaustive // the rest is no label
	case gjson.String:
		return v.Str
	case gjson.Number:
		return v.Raw
	default:
		return ""
	}
}

// countOf reads a count. A number written as a string counts; a negative, broken or absurd one does not.
func countOf(v gjson.Result) (int, bool) {
	n := v.Num
	switch v.Type { //nolint:exhaustive // the rest is no number
	case gjson.Number:
	case gjson.String:
		var err error
		if n, err = strconv.ParseFloat(strings.TrimSpace(v.Str), 64); err != nil {
			return 0, false
		}
	default:
		return 0, false
	}
	if math.IsNaN(n) || n < 0 || n > math.MaxInt32 || n != math.Trunc(n) {
		return 0, false
	}

	return int(n), true
}

// each calls f for every element of a list that may be absent or null, until f fails.
func each(field string, list gjson.Result, f func(position int, element gjson.Result) *Error) *Error {
	if list.Type == gjson.Null {
		return nil
	}
	if !list.IsArray() {
		return decodeError("field \""+field+"\" must be a list", list.Raw)
	}
	var err *Error
	position := 0
	list.ForEach(func(_, element gjson.Result) bool {
		if !element.IsObject() {
			err = decodeError("field \""+field+"\" must be a list of objects", list.Raw)
		} else {
			err = f(position, element)
		}
		position++

		return err == nil
	})

	return err
}
