package cli

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSimListensOnAllInterfacesOnlyIfAskedTo(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		":18260": "127.0.0.1:18260", "127.0.0.1:0": "127.0.0.1:0", "0.0.0.0:80": "0.0.0.0:80", "[::]:80": "[::]:80", "localhost:http": "localhost:http",
	} {
		got, err := listenAddress(given)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := listenAddress("8000")
	require.EqualError(t, err, `--listen: got "8000", expected host:port such as 127.0.0.1:8000`)
}

func TestWrongFlagsOfSimAreNamedAsFlags(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"--max-num-seqs=0"}, []string{"--max-num-seqs is 0, expected at least 1"}},
		{[]string{"--max-num-batched-tokens=1"}, []string{"--max-num-batched-tokens is 1, expected at least --max-num-seqs ("}},
		{[]string{"--num-blocks=1"}, []string{"--num-blocks is 1, expected at least ", "to hold one sequence of --max-model-len ("}},
		{
			[]string{"--fixed-ttft=1s", "--speed=0", "--queue-full-status=500", "--keep-truth=-1", "--output-sigma=9", "--step-base=0s", "--step-jitter=2"},
			[]string{
				"--fixed-ttft is 1s, expected 0 without --fixed-gap", "--speed is 0, expected more than 0", "--queue-full-status is 500, expected 429 or 503",
				"--keep-truth is -1", "--output-sigma is 9", "--step-base is 0s", "--step-jitter is 2",
			},
		},
	} {
		cmd := newSim(environment{stdout: io.Discard, stderr: io.Discard})
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SetArgs(append(tt.args, "--listen=127.0.0.1:0"))
		err := cmd.ExecuteContext(t.Context())
		require.Error(t, err)
		for _, want := range tt.want {
			require.ErrorContains(t, err, want)
		}
	}
}
