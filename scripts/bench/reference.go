package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// reference is a client that does what has to be done and no more.
func reference(ctx context.Context, role, url string, streams, tokens int) error {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: streams, DisableCompression: true}}
	results := make([]stamps, streams)
	failed := make([]error, streams)
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() { results[i], failed[i] = oneStream(ctx, client, role, url, tokens) })
	}
	wg.Wait()
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	if role == "floor" {
		return nil
	}
	out, err := os.Create("stamps.jsonl")
	if err != nil {
		return fmt.Errorf("writing the stamps: %w", err)
	}
	enc := json.NewEncoder(out)
	for i := 0; i < streams; i += every(streams) {
		r := results[i]
		if err := enc.Encode(r); err != nil {
			return fmt.Errorf("writing the stamps: %w", err)
		}
	}

	return out.Close()
}

func oneStream(ctx context.Context, client *http.Client, role, url string, tokens int) (stamps, error) {
	body := fmt.Sprintf(`{"model":"sim","messages":[{"role":"user","content":"hi"}],"max_tokens":%d,"ignore_eos":true,
		"stream":true,"stream_options":{"include_usage":true}}`, tokens)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/chat/completions", strings.NewReader(body))
	if err != nil {
		return stamps{}, fmt.Errorf("the request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return stamps{}, fmt.Errorf("the request: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return stamps{}, fmt.Errorf("the server answered %s", resp.Status)
	}
	if role == "floor" {
		_, err := io.Copy(io.Discard, resp.Body)

		return stamps{}, err //nolint:wrapcheck // a benchmark
	}

	return readBare(resp.Body)
}

// chunk is the part of a chat chunk that a bare reader needs.
type chunk struct {
	ID      string `json:"id"`
	Choices []struct {
		Delta struct {
			Content string `json:"content"`
		} `json:"delta"`
		FinishReason *string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		CompletionTokens int `json:"completion_tokens"`
	} `json:"usage"`
}

func readBare(body io.Reader) (stamps, error) {
	var s stamps
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		now := time.Now()
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var c chunk
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			return s, fmt.Errorf("a chunk: %w", err)
		}
		s.ID = c.ID
		if len(c.Choices) > 0 && c.Choices[0].Delta.Content != "" {
			s.NS = append(s.NS, now.UnixNano())
		}
	}

	return s, lines.Err() //nolint:wrapcheck // a benchmark
}
