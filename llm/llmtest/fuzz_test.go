package llmtest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzRequest looks for a request body that the server neither accepts with a sound plan nor refuses with 400, 404 or 413.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{` + hello + `}`, `{"prompt":[1,2,3],"max_tokens":5}`, `{"prompt":"x","max_tokens":9223372036854775807}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"a"}],"tool_calls":[{}]}],"tools":[{}],"tool_choice":{}}`,
		`{"sim_fault":{"heartbeat":"1s","reasoning_tokens":3,"tokens_per_chunk":2},"prompt":["x"],"min_tokens":3}`, `null`, `[]`,
		`{"instructions":"be brief","input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"function_call","name":"f"}],"max_output_tokens":3}`,
		`{"max_tokens":3,"system":"x","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"y"},{"type":"image","source":{"type":"base64","data":"AAAA"}}]}],"sim_fault":{"tool_rounds":2}}`,
	} {
		for api := range uint8(4) {
			f.Add(seed, api)
		}
	}
	s, err := NewServer(DefaultServerConfig())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(s.Close)
	f.Fuzz(func(t *testing.T, body string, api uint8) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
		var req apiRequest
		if apiErr := readJSON(httptest.NewRecorder(), r, &req); apiErr != nil {
			checkRefusal(t, apiErr)
			return
		}
		fault, apiErr := s.chooseFault(r, req.SimFault, 1)
		if apiErr != nil {
			checkRefusal(t, apiErr)
			return
		}
		j, apiErr := s.prepare(req, apiKind(api%4), 1)
		if apiErr != nil {
			checkRefusal(t, apiErr)
			return
		}
		j.finish(fault, req.Tools)
		if j.tokens < 1 || len(j.prompt) < 1 || len(j.prompt)+j.tokens > s.cfg.Engine.MaxModelLen {
			t.Fatalf("%q: %d prompt tokens, %d to generate", body, len(j.prompt), j.tokens)
		}
		if j.fault.TokensPerChunk < 1 || j.reason == "" {
			t.Fatalf("%q: %d tokens per chunk, reason %q", body, j.fault.TokensPerChunk, j.reason)
		}
		if !json.Valid([]byte(quote(j.tool))) {
			t.Fatalf("%q: tool %q", body, j.tool)
		}
	})
}

func checkRefusal(t *testing.T, e *apiError) {
	t.Helper()
	switch e.status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge:
	default:
		t.Fatalf("status %d: %s", e.status, e.message)
	}
	if !json.Valid(errorBody(e.status, e.message, e.param)) {
		t.Fatalf("error body is not JSON: %s", e.message)
	}
}
