package cli

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"go.k6.io/k6/errext"

	"github.com/safeqps/xk6-safeqps/gate/verdict"
	"github.com/safeqps/xk6-safeqps/trace/format"
)

var errFull = errors.New("no space left")

// full is an output that takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

func exitOf(t *testing.T, err error) int {
	t.Helper()
	var coded errext.HasExitCode
	require.ErrorAs(t, err, &coded)

	return int(coded.ExitCode())
}

// An answer that nobody got is none, whatever it was.
func TestAnOutputThatCanNotBeWrittenIsWrongUse(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(w io.Writer) error{
		"told by the command":     func(w io.Writer) error { return printJSON(w, 1) },
		"not told by the command": func(w io.Writer) error { _, _ = io.WriteString(w, "yes"); return nil },
		"a verdict":               func(w io.Writer) error { _, _ = io.WriteString(w, "no"); return exitWith(verdict.Fail) },
	} {
		out := &checkedOutput{to: full{}}
		run := (&cobra.Command{RunE: func(*cobra.Command, []string) error { return out.orLost(answer(out)) }}).RunE
		err := run(nil, nil)
		require.ErrorIs(t, err, errFull, name)
		require.Equal(t, 3, exitOf(t, err), name)
		require.Equal(t, 1, strings.Count(err.Error(), errFull.Error()), "%s: %v", name, err)
	}
	out := &checkedOutput{to: io.Discard}
	require.NoError(t, out.orLost(nil))
	require.Equal(t, 1, exitOf(t, out.orLost(exitWith(verdict.Fail))))
	require.Equal(t, 3, exitOf(t, out.orLost(errors.New("any other error"))))
}

func TestATraceThatCanNotBeWrittenIsToldOnce(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"t.jsonl", "t.csv", "t.jsonl.gz", "-"} {
		write, err := traceWriter(path)
		require.NoError(t, err)
		err = writeBuffered(full{}, write, &format.Trace{Rows: make([]format.Row, 3000)})
		require.ErrorIs(t, err, errFull)
		require.Equal(t, 1, strings.Count(err.Error(), errFull.Error()), "%s: %v", path, err)
	}
	require.Equal(t, 4096, bufio.NewWriter(nil).Size(), "less than the rows take")
}
