package cli

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

func TestFieldsFlag(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		args []string
		want map[string]string
		err  string
	}{
		{"several", []string{"--fields", "timestamp=ts,input_length=usage.in"}, map[string]string{"timestamp": "ts", "input_length": "usage.in"}, ""},
		{"none", nil, nil, ""},
		{
			"one with a comma, and others",
			[]string{"--fields", "timestamp=arrived, at", "--fields", "input_length=in,output_length=out"},
			map[string]string{"timestamp": "arrived, at", "input_length": "in", "output_length": "out"},
			"",
		},
		{
			"quoted as in CSV",
			[]string{"--fields", `"timestamp=arrived, at",input_length=in`},
			map[string]string{"timestamp": "arrived, at", "input_length": "in"},
			"",
		},
		{"a quoted one", []string{"--fields", `"timestamp=arrived, at"`}, map[string]string{"timestamp": "arrived, at"}, ""},
		{
			"a comma in one of several",
			[]string{"--fields", "timestamp=arrived, at,input_length=in"},
			nil,
			`got " at", expected NAME=THEIRS, several of them with commas between; a name with a comma goes into a --fields of its own`,
		},
		{
			"no pair",
			[]string{"--fields", "timestamp"},
			nil,
			`got "timestamp", expected NAME=THEIRS, several of them with commas between`,
		},
		{"an open quote", []string{"--fields", `"timestamp=a,input_length=b`}, nil, "expected NAME=THEIRS"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			flags := pflag.NewFlagSet("x", pflag.ContinueOnError)
			flags.SetOutput(io.Discard)
			r := &readFlags{}
			r.register(flags)
			err := flags.Parse(test.args)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)

				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, r.fields)
			require.Contains(t, flags.FlagUsages(), "a name with a comma in a --fields of its own")
		})
	}
}

// What the hint of an unclear file says can be done where it is said.
func TestFieldsOfAPlansTrace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	odd := filepath.Join(dir, "odd.csv")
	require.NoError(t, os.WriteFile(odd, []byte("arrived,in,out\n2025-01-01 00:00:00,5,6\n2025-01-01 00:00:01,5,6\n"), 0o600))
	run := func(args ...string) error {
		cmd := newPlan(environment{stdout: io.Discard, stderr: io.Discard})
		cmd.SetArgs(append([]string{filepath.Join(dir, "absent"), "--trace", odd}, args...))
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)

		return cmd.Execute()
	}
	require.ErrorContains(t, run(), "cannot tell which field holds the timestamp: state the format or map the field; the file has arrived, in, out")
	err := run("--window", "1s", "--fields", "timestamp=arrived,input_length=in,output_length=out")
	require.ErrorContains(t, err, "absent", "it comes to the envelope")

	_, err = (&generateFlags{mix: `{"a": {"share": 1, "from": "` + odd + `"}}`, rate: 1, burstiness: "1"}).config()
	require.ErrorContains(t, err, "make it a trace with `k6 x llm trace convert` first, which takes both")
}
