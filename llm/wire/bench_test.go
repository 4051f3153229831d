package wire

import (
	"encoding/json"
	"testing"
)

// A chunk as vLLM sends it, some 250 bytes.
const typicalChunk = `{"id":"chatcmpl-8d0f8bb4f11e4c5b9c2f4d53b7a1e2d9","object":"chat.completion.chunk","created":1795964113,` +
	`"model":"Qwen/Qwen2.5-7B-Instruct","choices":[{"index":0,"delta":{"content":" latency"},"logprobs":null,` +
	`"finish_reason":null}],"usage":null}`

// The same with usage on every chunk.
const continuousChunk = `{"id":"chatcmpl-8d0f8bb4f11e4c5b9c2f4d53b7a1e2d9","object":"chat.completion.chunk","created":1795964113,` +
	`"model":"Qwen/Qwen2.5-7B-Instruct","choices":[{"index":0,"delta":{"content":" latency"},"logprobs":null,` +
	`"finish_reason":null}],"usage":{"prompt_tokens":17,"total_tokens":41,"completion_tokens":24}}`

const anthropicChunk = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" latency"}}`

// plainChunk is what a client that uses encoding/json would declare.
type plainChunk struct {
	ID      string `json:"id"`
	Model   string `json:"model"`
	Choices []struct {
		Index int `json:"index"`
		Delta struct {
			Content   string `json:"content"`
			Reasoning string `json:"reasoning_content"`
		} `json:"delta"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
	} `json:"usage"`
}

func BenchmarkChunk(b *testing.B) {
	for _, chunk := range []struct {
		name, data string
		api        API
	}{
		{"typical", typicalChunk, Chat},
		{"continuous_usage", continuousChunk, Chat},
		{"anthropic", anthropicChunk, Messages},
	} {
		b.Run("decoder/"+chunk.name, func(b *testing.B) {
			b.ReportAllocs()
			d := NewDecoder(chunk.api)
			for b.Loop() {
				if _, err := d.Event("", chunk.data); err != nil {
					b.Fatal(err)
				}
				d.text = d.text[:0]
			}
		})
	}
	b.Run("encoding_json/typical", func(b *testing.B) {
		b.ReportAllocs()
		var text []byte
		for b.Loop() {
			var c plainChunk
			if err := json.Unmarshal([]byte(typicalChunk), &c); err != nil {
				b.Fatal(err)
			}
			text = append(text[:0], c.Choices[0].Delta.Content...)
		}
	})
	b.Run("valid_only/typical", func(b *testing.B) {
		for b.Loop() {
			if !validJSON(typicalChunk) {
				b.Fatal("valid JSON was refused")
			}
		}
	})
}
