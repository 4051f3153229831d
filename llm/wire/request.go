package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/safeqps/xk6-safeqps/llm/describe"
)

// RequestOptions is what a client adds to the user's own request.
type RequestOptions struct {
	// Model is used where the request names none. Where both are empty the field is left out: a server that serves one
	// model needs no name.
	Model string
	// Stream overrides the request's own `stream`. Nil leaves it to the request, which streams unless it says false.
	Stream *bool
	// IncludeUsage asks for token counts at the end of a stream (`stream_options.include_usage`), in the APIs that send
	// none unasked: chat and completions. A request that sets the field itself is left as it is.
	IncludeUsage bool
}

// promptFields lists the fields of which a request must have at least one.
var promptFields = map[API][]string{
	Chat:        {"messages"},
	Completions: {"prompt", "prompt_embeds"},
	Responses:   {"input", "prompt"},
	Messages:    {"messages"},
	Embeddings:  {"input"},
}

// BuildRequest makes the body of a request, and says whether its answer will be streamed. The fields are the provider's
// own and pass through, unknown ones too; the map is not changed. The same fields give the same bytes. An error names
// the field at fault and what was expected there.
//
// Parts of messages in chat's form, `text` and `image_url`, get the form of the API.
//
// A request that is not streamed loses its `stream_options`, which servers refuse in that case, and so does one that
// sets them to null.
func BuildRequest(api API, fields map[string]any, o RequestOptions) (body []byte, streamed bool, err error) {
	required, ok := promptFields[api]
	if !ok {
		_, err = ParseAPI(string(api))

		return nil, false, err
	}
	if err = checkPrompt(api, fields, required); err != nil {
		return nil, false, err
	}

	out := make(map[string]any, len(fields)+3)
	maps.Copy(out, fields)
	if err = setModel(out, o.Model); err != nil {
		return nil, false, err
	}
	if api == Embeddings {
		if body, err = embeddingsRequest(out); err != nil {
			return nil, false, err
		}

		return body, false, nil
	}
	if err = adaptParts(api, out); err != nil {
		return nil, false, fmt.Errorf("%s request: %w", api, err)
	}
	streamed, err = wantsStream(fields, o.Stream)
	if err != nil {
		return nil, false, err
	}
	out["stream"] = streamed
	if err = setStreamOptions(api, out, streamed, o.IncludeUsage); err != nil {
		return nil, false, err
	}

	body, err = encode(out)
	if err != nil {
		return nil, false, err
	}

	return body, streamed, nil
}

func embeddingsRequest(out map[string]any) ([]byte, error) {
	if stream := out["stream"]; stream != nil && stream != false {
		return nil, errors.New("embeddings request: field \"stream\": an embedding is no stream")
	}
	delete(out, "stream")

	return encode(out)
}

func checkPrompt(api API, fields map[string]any, required []string) error {
	for _, name := range required {
		value := fields[name]
		if value == nil {
			continue
		}
		if name == "messages" && !isList(value) {
			return fmt.Errorf("%s request: field \"messages\" must be a list of messages, got %s", api, kindOf(value))
		}

		return nil
	}

	return fmt.Errorf("%s request: field %q is missing", api, required[0])
}

func isList(v any) bool {
	kind := reflect.ValueOf(v).Kind()

	return kind == reflect.Slice || kind == reflect.Array
}

func setModel(out map[string]any, fallback string) error {
	switch model := out["model"].(type) {
	case nil:
	case string:
		if model != "" {
			return nil
		}
	default:
		return fmt.Errorf("field \"model\" must be a string, got %s", kindOf(model))
	}
	delete(out, "model")
	if fallback != "" {
		out["model"] = fallback
	}

	return nil
}

func wantsStream(fields map[string]any, override *bool) (bool, error) {
	switch stream := fields["stream"].(type) {
	case nil:
		return override == nil || *override, nil
	case bool:
		if override != nil {
			return *override, nil
		}

		return stream, nil
	default:
		return false, fmt.Errorf("field \"stream\" must be true or false, got %s", kindOf(stream))
	}
}

func setStreamOptions(api API, out map[string]any, streamed, includeUsage bool) error {
	asked, present := out["stream_options"]
	if asked == nil || !streamed {
		delete(out, "stream_options")
	}
	if !streamed || (present && asked == nil) {
		return nil
	}
	options, isObject := asked.(map[string]any)
	if present && !isObject {
		return fmt.Errorf("field \"stream_options\" must be an object, got %s", kindOf(asked))
	}
	if !includeUsage || (api != Chat && api != Completions) {
		return nil
	}
	if _, set := options["include_usage"]; set {
		return nil
	}
	merged := make(map[string]any, len(options)+1)
	maps.Copy(merged, options)
	merged["include_usage"] = true
	out["stream_options"] = merged

	return nil
}

// encode writes compact JSON with sorted keys. Prompts keep their <, > and &, which Go would escape for HTML.
func encode(fields map[string]any) ([]byte, error) {
	data, err := marshal(fields)
	if err == nil {
		return data, nil
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if _, fieldErr := marshal(fields[name]); fieldErr != nil {
			return nil, fmt.Errorf("field %q can not be sent as JSON: %w", name, fieldErr)
		}
	}

	return nil, fmt.Errorf("the request can not be sent as JSON: %w", err)
}

func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err //nolint:wrapcheck // the caller adds the field
	}

	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// kindOf names a value's kind: its text may be long, and is the user's.
func kindOf(v any) string {
	switch reflect.ValueOf(v).Kind() { //nolint:exhaustive // the rest has no text of its own
	case reflect.Invalid:
		return "nothing"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "a boolean"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		return fmt.Sprintf("the number %v", v)
	case reflect.Slice, reflect.Array:
		return "a list"
	default:
		return describe.Value(v)
	}
}
