package llm

import (
	"github.com/grafana/sobek"

	"github.com/safeqps/xk6-safeqps/llm/images"
)

const imageForm = `an object such as {width: 512, height: 512, seed: row}`

// image is `llm.image({width, height, seed, detail})`: a part of a message's content that holds a made-up picture, in
// chat's form. The other APIs get it in their own form when the request is built.
func (m *moduleInstance) image(options sobek.Value) (sobek.Value, error) {
	values, ok := exportObject(options)
	if !ok {
		return nil, &OptionError{What: "llm.image", Found: describeValue(options), Expected: imageForm}
	}
	o := &optionsOf{what: "llm.image", values: values}
	if err := o.only("width", "height", "seed", "detail"); err != nil {
		return nil, err
	}
	var numbers [3]int
	for i, want := range []struct {
		option, expected string
		low              int
	}{
		{"width", "pixels, 1 to 8192", 1},
		{"height", "pixels, 1 to 8192", 1},
		// Without one all pictures of a test would be the same, and a cache would have the second already.
		{"seed", "a whole number, 0 or more, that differs from picture to picture", 0},
	} {
		n, given, err := o.whole(want.option, want.low, want.expected)
		if err != nil {
			return nil, err
		}
		if !given || (i < 2 && n > images.MaxSide) {
			return nil, o.wrong(want.option, values[want.option], want.expected)
		}
		numbers[i] = n
	}
	detail, err := o.str("detail")
	if err != nil {
		return nil, err
	}
	data, err := images.PNG(numbers[0], numbers[1], uint64(numbers[2])) // #nosec G115 -- not negative
	if err != nil {
		return nil, err //nolint:wrapcheck // it says which image
	}
	fields := []field{{"url", images.DataURL(data)}}
	if detail != "" {
		fields = append(fields, field{"detail", detail})
	}

	return m.object(field{"type", "image_url"}, field{"image_url", m.object(fields...)}), nil
}
