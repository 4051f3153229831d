package wire

import (
	"encoding/base64"

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

	return each("data", data, func(_ int, item gjson.Result) *Error {
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
