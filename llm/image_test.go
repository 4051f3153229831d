package llm

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image/png"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestImagePartsOfEveryAPI(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { write(w, done) })
	v := newVU(t)
	v.must(newClient(s, "") + `
		globalThis.client = client;
		globalThis.content = [{type: "text", text: "What is it?"}, llm.image({width: 40, height: 30, seed: 7, detail: "low"})];
		result = {};`)
	content := func(script, path string) []any {
		_, err := v.run(script)
		require.NoError(t, err)
		var body map[string]any
		require.NoError(t, json.Unmarshal([]byte(s.last().body), &body))
		messages := body[path].([]any)

		return messages[len(messages)-1].(map[string]any)["content"].([]any)
	}
	picture := func(data string) {
		raw, err := base64.StdEncoding.DecodeString(data)
		require.NoError(t, err)
		config, err := png.DecodeConfig(bytes.NewReader(raw))
		require.NoError(t, err)
		require.Equal(t, []int{40, 30}, []int{config.Width, config.Height})
	}

	chat := content(`client.chat({messages: [{role: "user", content}]})`, "messages")
	image := chat[1].(map[string]any)
	require.Equal(t, "image_url", image["type"])
	require.Equal(t, "low", image["image_url"].(map[string]any)["detail"])
	url, ok := strings.CutPrefix(image["image_url"].(map[string]any)["url"].(string), "data:image/png;base64,")
	require.True(t, ok)
	picture(url)

	responses := content(`client.responses({input: [{role: "user", content}]})`, "input")
	require.Equal(t, map[string]any{"type": "input_text", "text": "What is it?"}, responses[0])
	require.Equal(t, map[string]any{"type": "input_image", "image_url": "data:image/png;base64," + url, "detail": "low"}, responses[1])

	messages := content(`client.messages({max_tokens: 5, messages: [{role: "user", content}]})`, "messages")
	require.Equal(t, map[string]any{"type": "text", "text": "What is it?"}, messages[0])
	require.Equal(t, map[string]any{"type": "image", "source": map[string]any{
		"type": "base64", "media_type": "image/png", "data": url,
	}}, messages[1])
}

func TestWrongImages(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		`llm.image()`:                                        "llm.image: got nothing, expected an object such as",
		`llm.image({width: 5, height: 5})`:                   `llm.image: option "seed": got nothing, expected a whole number, 0 or more, that differs`,
		`llm.image({height: 5, seed: 1})`:                    `option "width": got nothing, expected pixels, 1 to 8192`,
		`llm.image({width: 5, height: 9000, seed: 1})`:       `option "height": got 9000, expected pixels, 1 to 8192`,
		`llm.image({width: 5, height: 0, seed: 1})`:          `option "height": got 0, expected pixels`,
		`llm.image({width: 5, height: 1, seed: 1, size: 2})`: `unknown option "size"`,
	} {
		_, err := newVU(t).run(script)
		require.ErrorContains(t, err, want)
	}
}
