package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/llm/llmtest"
)

// buildDir is where the tested k6 is built, once.
var buildDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "deploy")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	buildDir = dir
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

var built = sync.OnceValues(func() (string, error) {
	binary := filepath.Join(buildDir, "k6")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/k6").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building k6: %w\n%s", err, out)
	}

	return binary, nil
})

func k6(t *testing.T) string {
	t.Helper()
	binary, err := built()
	require.NoError(t, err)

	return binary
}

// limit bounds a test's process, so that one that hangs fails by itself.
const limit = 2 * time.Minute

// ran is what a finished process left.
type ran struct {
	out  string // standard output and error
	exit int
}

// start starts a program in a directory, with variables besides the environment's. wait waits for its end: most of these
// programs only wait themselves, so tests start several and wait for one after the other.
func start(t *testing.T, dir string, env []string, name string, args ...string) (wait func() ran) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "K6_NO_USAGE_REPORT=true", "K6_NO_COLOR=true", "HOME="+t.TempDir()), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start(), "%v", cmd.Args)
	done := sync.OnceValue(cmd.Wait)
	t.Cleanup(func() {
		cancel()
		_ = done() // that it was ended here is no failure
	})

	return func() ran {
		err := done()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatalf("%v: %v", cmd.Args, err)
		}

		return ran{out.String(), cmd.ProcessState.ExitCode()}
	}
}

// startEngine serves a simulated engine; around may come before it.
func startEngine(t *testing.T, around func(http.Handler) http.Handler) string {
	t.Helper()
	cfg := llmtest.DefaultServerConfig()
	cfg.Model = "sim"
	engine, err := llmtest.NewServer(cfg)
	require.NoError(t, err)
	var handler http.Handler = engine
	if around != nil {
		handler = around(engine)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		engine.Close()
		server.Close()
	})

	return server.URL
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
}

// freePorts finds a run of ports that nobody listens on, and gives the first.
func freePorts(t *testing.T, count int) int {
	t.Helper()
	for first := 18300; first < 19300; first += count {
		var held []net.Listener
		for port := first; port < first+count; port++ {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				break
			}
			held = append(held, l)
		}
		for _, l := range held {
			require.NoError(t, l.Close())
		}
		if len(held) == count {
			return first
		}
	}
	t.Fatal("no free ports")

	return 0
}
