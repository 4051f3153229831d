package wire

import (
	"encoding/base64"
	"fmt"
	"reflect"

	"github.com/tidwall/gjson"
)

// embeddingsBody takes an answer of OpenAI's embeddings API. The vectors are counted and checked, and not kept.
func (d *Decoder) embeddingsBody(root gjson.Result) *Error {
	data := root.Get("data")
	if !data.IsArray() || !data.Get("0").Exists() {
		return decodeError("the answer has no data", root.Raw)
	}
	d.identify(labelOf(root.Get("id")), labelOf(root.Get("model")))
	d.counts.openAI(root.Get("usage"))
	d.counts.completion = count{} // vLLM reports a 0 for what does not exist

	err := each("data", data, func(_ int, item gjson.Result) *Error {
		n, ok := dimensionsOf(item.Get("embedding"))
		switch {
		case !ok:
			return decodeError("field \"embedding\" must be a list of numbers, or such a list in base64", item.Raw)
		case d.vectors > 0 && n != d.dimensions:
			return decodeError("the embeddings of one answer differ in length", data.Raw)
		}
		d.vectors++
		d.dimensions = n

		return nil
	})
	if err == nil && d.inputs > 0 && d.vectors != d.inputs {
		err = &Error{Type: ErrDecode, Message: fmt.Sprintf("the answer holds %s for %s", several(d.vectors, "vector"), several(d.inputs, "input"))}
	}

	return err
}

func several(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}

	return fmt.Sprintf("%d %ss", n, what)
}

// ExpectVectors says how many inputs a request for embeddings has ([Inputs]): an answer with another number of vectors is
// an error of type ErrDecode. Without it, or with 0, any number will do.
func (d *Decoder) ExpectVectors(inputs int) { d.inputs = inputs }

// Inputs is how many vectors a request for embeddings asks for. A text is one input, and so is a list of token ids; a list of
// texts, of such lists or of objects is several. It is 0 for a value of which that is not known.
func Inputs(fields map[string]any) int {
	input := reflect.ValueOf(fields["input"])
	switch input.Kind() { //nolint:exhaustive // the rest is no form of an input
	case reflect.String:
		return 1
	case reflect.Slice, reflect.Array:
	default:
		return 0
	}
	if input.Len() == 0 {
		return 0
	}
	first := input.Index(0)
	if first.Kind() == reflect.Interface {
		first = first.Elem()
	}
	if first.CanInt() || first.CanUint() || first.CanFloat() {
		return 1
	}

	return input.Len()
}

// dimensionsOf is the length of a vector: a list of numbers, or the base64 of numbers of 32 bits.
func dimensionsOf(v gjson.Result) (n int, ok bool) {
	if v.Type == gjson.String {
		raw, err := base64.StdEncoding.DecodeString(v.Str)

		return len(raw) / 4, err == nil && len(raw) > 0 && len(raw)%4 == 0
	}
	if !v.IsArray() {
		return 0, false
	}
	ok = true
	v.ForEach(func(_, number gjson.Result) bool {
		n++
		ok = number.Type == gjson.Number

		return ok
	})

	return n, ok && n > 0
}
