package format

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever the bytes, Read ends in an error or in a trace that keeps its promises and can be written.
func FuzzRead(f *testing.F) {
	fixtures, err := filepath.Glob("testdata/*.*")
	require.NoError(f, err)
	for _, name := range fixtures {
		data, err := os.ReadFile(name) //nolint:gosec // a fixture
		require.NoError(f, err)
		f.Add(data, false)
		f.Add(data, true)
	}
	f.Add([]byte("\x1f\x8b\x08"), false)
	f.Add([]byte("timestamp_ms,input_tokens,output_tokens\n1e3,\"5\",6\n"), true)
	f.Add([]byte(`{"timestamp":1,"input_length":5,"output_length":6,"hash_ids":[ 1 , ]}`), true)
	f.Fuzz(func(t *testing.T, data []byte, skip bool) {
		trace, err := Read("f", bytes.NewReader(data), Options{SkipBadRows: skip, ZeroOutput: KeepZeroOutput})
		if err != nil {
			require.True(t, strings.HasPrefix(err.Error(), "f:"), "%v", err)
			return
		}
		require.NotEmpty(t, trace.Rows)
		require.Zero(t, trace.Rows[0].Due)
		for i, r := range trace.Rows {
			require.True(t, i == 0 || trace.Rows[i-1].Due <= r.Due)
			require.GreaterOrEqual(t, r.InputTokens, Unknown)
			require.GreaterOrEqual(t, r.OutputTokens, Unknown)
			if r.HashIDs != nil {
				require.Len(t, r.HashIDs, blocks(r.InputTokens, trace.BlockSize))
			}
		}
		var text bytes.Buffer
		require.NoError(t, Summarize(trace).Text(&text))
		again := readString(t, write(t, trace), Options{ZeroOutput: KeepZeroOutput})
		require.Equal(t, len(trace.Rows), len(again.Rows))
		for i := range trace.Rows {
			require.Equal(t, trace.Rows[i].Due, again.Rows[i].Due)
			require.Equal(t, trace.Rows[i].InputTokens, again.Rows[i].InputTokens)
			require.Equal(t, trace.Rows[i].HashIDs, again.Rows[i].HashIDs)
		}
	})
}

// Whatever the bytes, the anonymizer neither panics nor quotes them.
func FuzzAnonymize(f *testing.F) {
	f.Add([]byte(chatLog))
	f.Add([]byte(`{"time":1700000000,"prompt":[[1,2]],"usage":{"completion_tokens":3}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		trace, _, err := Anonymize("f", bytes.NewReader(data), AnonymizeOptions{Tokenizer: words{}, BlockSize: 4, ZeroOutput: KeepZeroOutput})
		if err != nil {
			return
		}
		for _, r := range trace.Rows {
			require.True(t, r.HashIDs == nil || len(r.HashIDs) == blocks(r.InputTokens, 4))
		}
		again := readString(t, write(t, trace), Options{ZeroOutput: KeepZeroOutput})
		requireSameRows(t, trace.Rows, again.Rows)
	})
}
