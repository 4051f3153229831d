package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/llm/llmtest"
)

// binary is the k6 that is under test; TestMain builds it.
var binary string

func TestMain(m *testing.M) {
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)

		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "k6")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/k6")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building k6: %v\n%s", err, out)

		return 1
	}

	return m.Run()
}

// ran is what a finished process left.
type ran struct {
	stdout, stderr string
	exit           int
}

// limit bounds a test's process, so that a hanging one fails by itself.
const limit = 3 * time.Minute

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "K6_NO_USAGE_REPORT=true", "K6_NO_COLOR=true", "HOME="+cmd.Dir)

	return cmd
}

func runK6(t *testing.T, args ...string) ran {
	t.Helper()

	return finish(t, command(t, args...))
}

func finish(t *testing.T, cmd *exec.Cmd) ran {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", cmd.Args, err)
	}

	return ran{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// script runs a JavaScript file with k6 run, quietly and without its REST API.
func script(t *testing.T, source string, args ...string) ran {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script.js")
	require.NoError(t, os.WriteFile(path, []byte(source), 0o600))

	return runK6(t, append(append([]string{"run", "--quiet", "--address", ""}, args...), path)...)
}

// engine is a simulated engine of this process, on a real socket.
type engine struct {
	*llmtest.Server
	host, url string
}

func startEngine(t *testing.T, change func(*llmtest.ServerConfig)) *engine {
	t.Helper()
	cfg := llmtest.DefaultServerConfig()
	cfg.Model, cfg.KeepTruth = "sim", 10_000
	if change != nil {
		change(&cfg)
	}
	server, err := llmtest.NewServer(cfg)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})

	return &engine{server, l.Addr().String(), "http://" + l.Addr().String() + "/v1"}
}

// sample is a line of k6's own JSON output.
type sample struct {
	Metric string `json:"metric"`
	Type   string `json:"type"`
	Data   struct {
		Time  time.Time         `json:"time"`
		Value float64           `json:"value"`
		Tags  map[string]string `json:"tags"`
	} `json:"data"`
}

func readSamples(t *testing.T, path string) map[string][]sample {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	byName := map[string][]sample{}
	for line := range strings.Lines(string(data)) {
		var s sample
		require.NoError(t, json.Unmarshal([]byte(line), &s))
		if s.Type == "Point" {
			byName[s.Metric] = append(byName[s.Metric], s)
		}
	}

	return byName
}

func sum(samples []sample) float64 {
	total := 0.0
	for _, s := range samples {
		total += s.Data.Value
	}

	return total
}

// jsonLines decodes what a script printed with console.log under --log-format raw.
func jsonLines[T any](t *testing.T, text string) []T {
	t.Helper()
	var all []T
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "{") {
			continue
		}
		var one T
		require.NoError(t, json.Unmarshal([]byte(line), &one), line)
		all = append(all, one)
	}

	return all
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	require.NoError(t, err)

	return dir
}

func post(t *testing.T, url string) {
	t.Helper()
	resp, err := http.Post(url, "text/plain", nil) //nolint:noctx // a test
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
}
