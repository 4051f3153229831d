package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tmaxmax/go-sse"
)

// answer is all that a decoder said about one stream.
type answer struct {
	chunks, textChunks, tokens int
	done                       bool
	message                    *Message
	err                        error // of the first event that failed, or of the end
}

// play feeds a decoder with the events of a stream, to the end, whatever comes.
func play(t *testing.T, api API, body string) answer {
	t.Helper()
	d := NewDecoder(api)
	var a answer
	for event, err := range sse.Read(strings.NewReader(body), &sse.ReadConfig{MaxEventSize: 1 << 20}) {
		require.NoError(t, err)
		delta, err := d.Event(event.Type, event.Data)
		if delta.Output {
			a.chunks++
		}
		if delta.Text {
			a.textChunks++
		}
		a.tokens += delta.Tokens
		a.done = a.done || delta.Done
		if a.err == nil && err != nil {
			a.err = err
		}
	}
	if a.err == nil {
		a.err = d.Finish()
	} else {
		require.Equal(t, a.err, d.Finish(), "Finish must return the error that ended the answer")
	}
	a.message = d.Message()

	return a
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))

	return hex.EncodeToString(sum[:8])
}

func intp(n int) *int { return &n }

// requireType checks the type of an error; "" stands for none.
func requireType(t *testing.T, want ErrorType, err error) *Error {
	t.Helper()
	if want == "" {
		require.NoError(t, err)

		return nil
	}
	var e *Error
	require.True(t, errors.As(err, &e), "expected an *Error, got %v", err)
	require.Equal(t, want, e.Type, "%v", e)

	return e
}

// sharedFolder finds a folder of recorded material that lies beside the repository, and skips the test without it.
func sharedFolder(t *testing.T, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(dir)
		require.NotEqual(t, parent, dir, "no go.mod above the test")
		dir = parent
	}
	folder := filepath.Join(dir, "..", "shared", name)
	if _, err := os.Stat(folder); err != nil {
		t.Skipf("the recorded material is not here (%s): the fixtures in testdata have the same shapes", folder)
	}

	return folder
}
