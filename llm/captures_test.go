package llm

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// captures is where bytes that real servers sent are kept; a lone clone does not have them. The same shapes, written for
// this repository, are in wire's own tests.
func captures(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../shared/captures")
	require.NoError(t, err)
	if _, err := os.Stat(dir); err != nil {
		t.Skip("the captures of real servers are not here: ", dir)
	}

	return dir
}

// TestBytesOfRealServers sends what real servers sent, status line and headers included, and holds the client's response
// against the truth, read from the bytes by hand.
func TestBytesOfRealServers(t *testing.T) {
	t.Parallel()
	dir := captures(t)
	type want struct {
		method     string
		kind       string // "" for a good answer
		status     int64
		chunks     int64
		completion any
		finish     any
	}
	for name, want := range map[string]want{
		"sim/chat_stream_usage":               {"chat", "", 200, 24, int64(24), "length"},
		"sim/chat_stream_nousage":             {"chat", "", 200, 24, nil, "length"},
		"sim/chat_stream_contusage":           {"chat", "", 200, 8, int64(8), "length"},
		"sim/tools_stream":                    {"chat", "", 200, 9, nil, "tool_calls"},
		"sim/compl_stream_usage":              {"completions", "", 200, 16, int64(16), "length"},
		"sim/messages_stream":                 {"messages", "", 200, 1, int64(1), "end_turn"},
		"sim/responses_stream":                {"responses", "", 200, 1, int64(1), "completed"},
		"sim/overcontext":                     {"chat", "context_length", 200, 0, nil, nil},
		"sim/forced_429":                      {"chat", "http_429", 429, 0, nil, nil},
		"sim/forced_500":                      {"chat", "http_5xx", 500, 0, nil, nil},
		"sim/forced_503":                      {"chat", "http_5xx", 503, 0, nil, nil},
		"sim/badjson":                         {"chat", "http_4xx", 400, 0, nil, nil},
		"sim/badmodel":                        {"chat", "http_4xx", 404, 0, nil, nil},
		"llama/chat_stream_usage":             {"chat", "", 200, 48, int64(48), "stop"},
		"llama/overcontext_noshift_nonstream": {"chat", "context_length", 500, 0, nil, nil},
		"aimock/chat_stream_usage":            {"chat", "", 200, 10, int64(30), "stop"},
		"aimock/truncate":                     {"chat", "stream_truncated", 200, 0, nil, nil},
		"aimock/ratelimit":                    {"chat", "http_429", 429, 0, nil, nil},
		"aimock/chaos_malformed":              {"chat", "decode", 200, 0, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header, err := os.ReadFile(filepath.Join(dir, name+".headers"))
			require.NoError(t, err)
			body, err := os.ReadFile(filepath.Join(dir, name+".body"))
			require.NoError(t, err)
			v := newVU(t)
			r := v.must(`const client = new llm.Client({baseURL: "http://` + replay(t, header, body) + `", model: "m"});
				result = client.` + want.method + `({messages: [], prompt: "x", input: "x"});`)
			if want.kind == "" {
				require.Equal(t, true, r["ok"], r["error"])
			} else {
				require.Equal(t, want.kind, r["error"].(map[string]any)["type"], r["error"])
			}
			require.Equal(t, want.status, r["status"])
			if want.kind != "stream_truncated" {
				require.Equal(t, want.chunks, r["chunks"])
				require.Equal(t, want.finish, r["finishReason"])
			}
			require.Equal(t, want.completion, r["usage"].(map[string]any)["completionTokens"])
			require.Len(t, v.seen()["llm_ttft"], min(int(r["chunks"].(int64)), 1))
		})
	}
}

// replay answers one request with recorded bytes and closes the connection.
func replay(t *testing.T, header, body []byte) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		if req, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			_ = req.Body.Close()
		}
		for line := range bytes.Lines(header) {
			name, _, _ := bytes.Cut(bytes.ToLower(line), []byte(":"))
			switch {
			case len(bytes.TrimSpace(line)) == 0, bytes.Equal(name, []byte("transfer-encoding")),
				bytes.Equal(name, []byte("content-length")), bytes.Equal(name, []byte("connection")):
				continue // the framing of the body is not part of what was recorded
			}
			_, _ = conn.Write(append(bytes.TrimRight(line, "\r\n"), "\r\n"...))
		}
		_, _ = conn.Write([]byte("Connection: close\r\n\r\n"))
		_, _ = conn.Write(body)
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})

	return l.Addr().String()
}
