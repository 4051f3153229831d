package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/grafana/sobek"

	"github.com/safeqps/xk6-safeqps/llm/tokens"
	"github.com/safeqps/xk6-safeqps/llm/wire"
)

// Where a server's own count of a prompt comes from.
const (
	byTokenizer = "tokenize" // its tokenizer endpoint
	byUsage     = "usage"    // the usage of short answers
)

const (
	calibrationTimeout = time.Minute // of one request
	maxCalibrationBody = 8 << 20
)

// calibrate is `trace.calibrate(options)`: it finds how the served model counts prompts, so that they can be made to
// length. It sends requests and so is for setup(), whose result k6 hands to every VU of every instance.
func (m *moduleInstance) calibrate(opts sobek.Value) (sobek.Value, error) {
	const what = "trace.calibrate"
	state := m.vu.State()
	if state == nil {
		return nil, errors.New(what + " sends requests, which k6 does not allow in the init context: call it in setup()")
	}
	o, err := optionsFrom(what, opts)
	if err != nil {
		return nil, err
	}
	base := o.text("baseURL")
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		o.wrong("baseURL", o.values["baseURL"], `an http or https URL such as "http://127.0.0.1:8000/v1"`)
	} else if u.Path == "" || u.Path == "/" {
		u.Path = "/v1" // as llm.Client has it
	}
	s := &server{
		url: u, model: o.text("model"), api: o.readAPI(wire.Chat), header: http.Header{},
		client: &http.Client{Transport: state.Transport, Timeout: calibrationTimeout},
	}
	if key := o.text("apiKey"); key != "" {
		s.header.Set("Authorization", "Bearer "+key)
		if s.api == wire.Messages {
			s.header = http.Header{"X-Api-Key": {key}}
		}
	}
	for name, value := range o.texts("headers", `an object of strings, e.g. {"X-Tenant": "a"}`) {
		s.header.Set(name, value)
	}
	by := o.choice("by", "", byTokenizer, byUsage)
	seed := uint64(o.whole("seed", DefaultSeed, 0, "a seed")) // #nosec G115 -- not negative
	if err := o.finish(); err != nil {
		return nil, err
	}

	c, err := s.calibrate(m.vu.Context(), by, seed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}

	return m.value(map[string]any{
		"perWord": c.PerWord, "overhead": c.Overhead, "source": c.Source,
		"observations": c.Observations, "worstError": c.WorstError,
	}), nil
}

// server is a service whose way of counting is looked for.
type server struct {
	url    *url.URL
	model  string
	api    wire.API
	header http.Header
	client *http.Client
}

// calibrate counts by the server's tokenizer where it has one that knows the chat template, and otherwise by the usage of
// answers of one token.
func (s *server) calibrate(ctx context.Context, by string, seed uint64) (tokens.Calibration, error) {
	builder := tokens.NewBuilder()
	if by != byUsage {
		c, err := s.byTokenizer(ctx, builder, seed)
		if err == nil || by == byTokenizer || ctx.Err() != nil || errors.Is(err, tokens.ErrNotLinear) {
			return c, err
		}
	}
	c, err := tokens.Calibrate(ctx, tokens.WordCounter(builder, seed, s.usage))
	c.Source = byUsage

	return c, err //nolint:wrapcheck // it says what it did
}

func (s *server) byTokenizer(ctx context.Context, builder *tokens.Builder, seed uint64) (tokens.Calibration, error) {
	t := tokens.ServerTokenizer{BaseURL: s.url.String(), Model: s.model, Do: s.client.Do, Header: s.header}
	family, err := t.Detect(ctx)
	if err != nil {
		return tokens.Calibration{}, err //nolint:wrapcheck // it says what it did
	}
	t.Family = family
	count := t.CountChat
	if s.api == wire.Completions {
		count = t.Count
	}
	c, err := tokens.Calibrate(ctx, tokens.WordCounter(builder, seed, count))
	c.Source = string(family) + " /tokenize"

	return c, err //nolint:wrapcheck // likewise
}

// usage is how many tokens the server finds in a prompt, as it reports with an answer of one token.
func (s *server) usage(ctx context.Context, text string) (int, error) {
	fields := map[string]any{"max_tokens": 1}
	switch s.api {
	case wire.Completions:
		fields["prompt"] = text
	case wire.Responses:
		fields = map[string]any{"max_output_tokens": 16, "input": text} // the least that the API takes
	case wire.Chat, wire.Messages:
		fields["messages"] = []any{map[string]any{"role": "user", "content": text}}
	}
	whole := false
	body, _, err := wire.BuildRequest(s.api, fields, wire.RequestOptions{Model: s.model, Stream: &whole})
	if err != nil {
		return 0, err //nolint:wrapcheck // it names the field
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url.JoinPath(s.api.Path()).String(), bytes.NewReader(body)) // #nosec G125 -- the path is a constant
	if err != nil {
		return 0, fmt.Errorf("asking for usage: %w", err)
	}
	req.Header = s.header.Clone()
	req.Header.Set("Content-Type", "application/json")
	if s.api == wire.Messages {
		req.Header.Set("Anthropic-Version", "2023-06-01")
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("asking for usage: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxCalibrationBody))
	if err != nil {
		return 0, fmt.Errorf("asking for usage: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return 0, wire.ErrorFromResponse(resp.StatusCode, data, wire.SecretsIn(s.header)...)
	}
	dec := wire.NewDecoder(s.api)
	dec.Hide(wire.SecretsIn(s.header))
	if err := dec.Body(data); err != nil {
		return 0, fmt.Errorf("asking for usage: %w", err)
	}
	prompt := dec.Message().Usage.PromptTokens
	if prompt == nil {
		return 0, errors.New("the server reports no usage.prompt_tokens, so prompts cannot be calibrated by it")
	}

	return *prompt, nil
}
