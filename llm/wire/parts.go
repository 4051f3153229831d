package wire

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// adaptParts gives the parts of messages that are in chat's form (`text` and `image_url`) the form of another API, so that
// one script can speak all of them. Parts in the API's own form pass through. What it changes it copies first.
//
// The forms: https://platform.openai.com/docs/guides/images-vision for `image_url` and `input_image`,
// https://docs.anthropic.com/en/docs/build-with-claude/vision for `image`.
func adaptParts(api API, out map[string]any) error {
	name, adapt := "input", responsesPart
	switch api {
	case Responses:
	case Messages:
		name, adapt = "messages", messagesPart
	default:
		return nil
	}
	list, ok := out[name].([]any)
	if !ok {
		return nil
	}
	var adapted []any
	for i, item := range list {
		message, ok := item.(map[string]any)
		if !ok {
			continue
		}
		content, ok := message["content"].([]any)
		if !ok {
			continue
		}
		parts := slices.Clone(content)
		changed := false
		for n, v := range content {
			part, ok := v.(map[string]any)
			if !ok {
				continue
			}
			other, err := adapt(part, message["role"])
			if err != nil {
				return fmt.Errorf("%s[%d].content[%d].%w", name, i, n, err)
			}
			if other != nil {
				parts[n], changed = other, true
			}
		}
		if !changed {
			continue
		}
		if adapted == nil {
			adapted = slices.Clone(list)
		}
		message = maps.Clone(message)
		message["content"] = parts
		adapted[i] = message
	}
	if adapted != nil {
		out[name] = adapted
	}

	return nil
}

// responsesPart is nil for a part that stays as it is.
func responsesPart(part map[string]any, role any) (map[string]any, error) {
	switch part["type"] {
	case "text":
		other := maps.Clone(part)
		other["type"] = "input_text"
		if role == "assistant" {
			other["type"] = "output_text"
		}

		return other, nil
	case "image_url":
		image, url, err := imageURL(part)
		if err != nil {
			return nil, err
		}
		other := map[string]any{"type": "input_image", "image_url": url}
		if detail, ok := image["detail"]; ok {
			other["detail"] = detail
		}

		return other, nil
	}

	return nil, nil //nolint:nilnil // see above
}

// messagesPart is nil for a part that stays as it is.
func messagesPart(part map[string]any, _ any) (map[string]any, error) {
	if part["type"] != "image_url" {
		return nil, nil //nolint:nilnil // see above
	}
	_, url, err := imageURL(part)
	if err != nil {
		return nil, err
	}
	head, data, _ := strings.Cut(url, ",")
	inline, isData := strings.CutPrefix(head, "data:")
	if !isData {
		return map[string]any{"type": "image", "source": map[string]any{"type": "url", "url": url}}, nil
	}
	media, isBase64 := strings.CutSuffix(inline, ";base64")
	if !isBase64 {
		return nil, errors.New("image_url: expected a data URL in base64, such as data:image/png;base64,…")
	}

	return map[string]any{
		"type": "image", "source": map[string]any{"type": "base64", "media_type": media, "data": data},
	}, nil
}

func imageURL(part map[string]any) (image map[string]any, url string, err error) {
	image, _ = part["image_url"].(map[string]any)
	url, ok := image["url"].(string)
	if !ok {
		return nil, "", fmt.Errorf("image_url: expected an object with a \"url\", got %s", kindOf(part["image_url"]))
	}

	return image, url, nil
}
