package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/trace/format"
)

// brokenContract has two problems.
const brokenContract = "capacity_gate:\n  ttft_p95: \"800\"\n  tftf_p99: \"<= 2s\"\n"

// checked is what `gate check --json` prints.
type checked struct {
	File     string
	OK       bool
	Problems []struct {
		File, Key, Found, Expected, Message string
		Line, Column                        int
	}
	Criteria   int
	AbortRules int `json:"abort_rules"`
	Confidence float64
}

func gateCheck(t *testing.T, exit int, path string) checked {
	t.Helper()
	r := runK6(t, "x", "llm", "gate", "check", path, "--json")
	require.Equal(t, exit, r.exit, r.stderr)
	var found checked
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &found), r.stdout)
	require.Equal(t, path, found.File)

	return found
}

func TestGateCheckForPrograms(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	require.NoError(t, os.WriteFile(good, []byte("capacity_gate: {ttft_p95: \"<= 800ms\"}\nabort: {error_rate: \"> 20%\"}\nconfidence: 0.9\n"), 0o600))
	require.NoError(t, os.WriteFile(bad, []byte(brokenContract), 0o600))

	found := gateCheck(t, 0, good)
	require.True(t, found.OK)
	require.NotNil(t, found.Problems)
	require.Empty(t, found.Problems)
	require.Equal(t, 7, found.Criteria)
	require.Equal(t, 1, found.AbortRules)
	require.InDelta(t, 0.9, found.Confidence, 0)

	found = gateCheck(t, 3, bad)
	require.False(t, found.OK)
	require.Len(t, found.Problems, 2)
	first := found.Problems[0]
	require.Equal(t, bad, first.File)
	require.Equal(t, [2]int{2, 13}, [2]int{first.Line, first.Column})
	require.Equal(t, "capacity_gate.ttft_p95", first.Key)
	require.Contains(t, first.Found+first.Expected, "800")
	require.Equal(t, bad+`:2:13: capacity_gate.ttft_p95: found `+first.Found+`, expected `+first.Expected, first.Message)
	require.Equal(t, "capacity_gate.tftf_p99", found.Problems[1].Key)

	found = gateCheck(t, 3, filepath.Join(dir, "none.yaml"))
	require.False(t, found.OK)
	require.Len(t, found.Problems, 1)
	require.Contains(t, found.Problems[0].Message, "no such file")
	require.Zero(t, found.Problems[0].Line)
}

// Errors of several lines stand one a line wherever they are printed, unless the log is for programs.
func TestErrorsOfSeveralLinesAreReadable(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bad.yaml")
	require.NoError(t, os.WriteFile(path, []byte(brokenContract), 0o600))
	for _, command := range []string{"check", "explain"} {
		r := runK6(t, "x", "llm", "gate", command, path)
		require.Equal(t, 3, r.exit)
		require.Contains(t, r.stderr, "the contract has errors:\n"+path+":2:13: capacity_gate.ttft_p95: found \"800\", expected ")
		require.Contains(t, r.stderr, "\n"+path+":3:3: capacity_gate.tftf_p99: found ")
		require.NotContains(t, r.stderr, `\n`)
	}
	r := runK6(t, "--log-format", "json", "x", "llm", "gate", "check", path)
	require.Equal(t, 3, r.exit)
	var line struct{ Level, Msg string }
	require.NoError(t, json.Unmarshal([]byte(r.stderr), &line), r.stderr)
	require.Equal(t, "error", line.Level)
	require.Contains(t, line.Msg, "the contract has errors:\n")
	r = runK6(t, "x", "llm", "gate", "check", path+".none")
	require.Contains(t, r.stderr, "level=error msg=", "a line alone stays a line of the log")
}

// The commands that write a trace say what it is as JSON, beside the trace.
func TestTracesAreDescribedForPrograms(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "made.jsonl")
	described := func(args ...string) format.Summary {
		r := runK6(t, append([]string{"x", "llm", "trace"}, append(args, "--json")...)...)
		require.Equal(t, 0, r.exit, r.stderr)
		var s format.Summary
		require.NoError(t, json.Unmarshal([]byte(r.stderr), &s), r.stderr)

		return s
	}
	require.Equal(t, 40, described("generate", "--rate", "5", "--count", "40", "--mix", "chat", "--out", path).Rows)
	half := described("convert", path, "--limit", "10", "--speed", "2")
	require.Equal(t, 10, half.Rows)
	require.Len(t, half.Labels, 2)
	r := runK6(t, "x", "llm", "trace", "anonymize", filepath.Join(root(t), "examples", "sample-log.jsonl"), "--encoding", "o200k_base",
		"--skip-bad-rows", "--out", filepath.Join(dir, "log.jsonl"), "--json")
	require.Equal(t, 0, r.exit, r.stderr)
	require.True(t, json.Valid([]byte(r.stderr)), r.stderr)
}

// What cannot be written is told with the exit code of every command, and not with k6's own.
func TestAFullOutputIsWrongUse(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full here")
	}
	dir := t.TempDir()
	rows, contract := filepath.Join(dir, "t.jsonl"), filepath.Join(dir, "slo.yaml")
	require.NoError(t, os.WriteFile(rows, []byte(strings.Repeat(`{"timestamp":0,"input_length":5,"output_length":5}`+"\n", 3)), 0o600))
	require.NoError(t, os.WriteFile(contract, []byte("capacity_gate: {ttft_p95: \"<= 1s\"}\n"), 0o600))
	run := filepath.Join(dir, "run")
	w, err := results.Create(run, results.Info{}, results.Options{})
	require.NoError(t, err)
	require.NoError(t, w.Close(time.Now(), nil))
	for _, args := range [][]string{
		{"gate", "check", contract},
		{"gate", "check", contract, "--json"},
		{"gate", "explain", contract},
		{"gate", "explain", contract, "--json"},
		{"trace", "inspect", rows},
		{"trace", "inspect", rows, "--json"},
		{"trace", "convert", rows},
		{"trace", "generate", "--rate", "5", "--duration", "10s", "--mix", "chat"},
		{"gate", "verdict", run, "--contract", contract},
		{"gate", "verdict", run, "--contract", contract, "--json"},
		{"report", run},
		{"report", run, "--json"},
	} {
		cmd := command(t, append([]string{"x", "llm"}, args...)...)
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)
		var stderr strings.Builder
		cmd.Stdout, cmd.Stderr = full, &stderr
		require.Error(t, cmd.Run(), "%v", args)
		require.NoError(t, full.Close())
		require.Equal(t, 3, cmd.ProcessState.ExitCode(), "%v: %s", args, stderr.String())
		require.Equal(t, 1, strings.Count(stderr.String(), "no space left on device"), "%v: %s", args, stderr.String())
	}
}
