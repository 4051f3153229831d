package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/trace/format"
)

func TestTraceCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "made.jsonl")
	generate := []string{
		"x", "llm", "trace", "generate", "--rate", "5", "--count", "400", "--burstiness", "0.5",
		"--mix", "short=0.75@100/20,long=0.25@3000/200", "--seed", "7",
	}
	r := runK6(t, append(generate, "--out", path)...)
	require.Equal(t, 0, r.exit, r.stderr)
	require.Contains(t, r.stderr, "400 requests")
	made, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(made), runK6(t, generate...).stdout, "one seed gives the same bytes, in a file or not")

	again := runK6(t, append(generate, "--out", path)...)
	require.Equal(t, 3, again.exit)
	require.Contains(t, again.stderr, "exists")

	inspect := runK6(t, "x", "llm", "trace", "inspect", path, "--json")
	require.Equal(t, 0, inspect.exit, inspect.stderr)
	var s format.Summary
	require.NoError(t, json.Unmarshal([]byte(inspect.stdout), &s))
	require.Equal(t, 400, s.Rows)
	require.Len(t, s.Classes, 2)
	require.InDelta(t, 5, s.Rate.Mean, 0.5)
	require.Contains(t, runK6(t, "x", "llm", "trace", "inspect", path).stdout, "burstiness")

	half := filepath.Join(dir, "half.csv")
	r = runK6(t, "x", "llm", "trace", "convert", path, "--rate", "2.5", "--limit", "100", "--out", half)
	require.Equal(t, 0, r.exit, r.stderr)
	r = runK6(t, "x", "llm", "trace", "inspect", half, "--json")
	require.Equal(t, 0, r.exit, r.stderr)
	var h format.Summary
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &h))
	require.Equal(t, 100, h.Rows)
	require.InDelta(t, 2.5, h.Rate.Mean, 0.01)

	zipped := filepath.Join(dir, "half.csv.gz")
	r = runK6(t, "x", "llm", "trace", "convert", half, "--out", zipped)
	require.Equal(t, 0, r.exit, r.stderr)
	content, err := os.ReadFile(zipped)
	require.NoError(t, err)
	require.Equal(t, []byte{0x1f, 0x8b}, content[:2], "what its name says")
	r = runK6(t, "x", "llm", "trace", "inspect", zipped)
	require.Contains(t, r.stdout, "rows           100 over")
}

func TestConvertToCSV(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out.csv")
	require.NoError(t, os.WriteFile(in, []byte(`{"timestamp": 0, "input_length": 5, "output_length": 6, "hash_ids": [1]}
nonsense
{"timestamp": 10, "input_length": 0, "output_length": 6}
`), 0o600))
	r := runK6(t, "x", "llm", "trace", "convert", in, "--skip-bad-rows", "--out", out)
	require.Equal(t, 3, r.exit)
	require.Contains(t, r.stderr, "row 0 has hash ids, a session, an elapsed time or a prompt, which CSV does not hold")
	require.Contains(t, r.stderr, "--lengths-only")
	require.NoFileExists(t, out)
	r = runK6(t, "x", "llm", "trace", "convert", in, "--skip-bad-rows", "--lengths-only", "--out", out)
	require.Equal(t, 0, r.exit, r.stderr)
	require.Contains(t, r.stderr, "1 requests over 0s\n2 of 3 lines left out: 1 that could not be read, 1 without input tokens, such as ")
}

func TestAnonymizeNeverWritesText(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := filepath.Join(dir, "log.jsonl")
	secret := strings.Repeat("the patient's name is Erika Mustermann, born in Heidelberg. ", 30)
	line := func(at, prompt string) string {
		b, err := json.Marshal(map[string]any{
			"timestamp": at, "user": "user-4711-private", "request": map[string]any{
				"model": "m", "messages": []any{map[string]any{"role": "user", "content": prompt}},
			}, "response": map[string]any{"usage": map[string]any{"prompt_tokens": 460, "completion_tokens": 30}},
		})
		require.NoError(t, err)

		return string(b) + "\n"
	}
	require.NoError(t, os.WriteFile(log, []byte(
		line("2026-01-02T03:04:05Z", secret+"one")+line("2026-01-02T03:04:06Z", secret+"two")), 0o600))
	out := filepath.Join(dir, "trace.jsonl")
	r := runK6(t, "x", "llm", "trace", "anonymize", log, "--encoding", "cl100k_base", "--block-size", "64", "--out", out)
	require.Equal(t, 0, r.exit, r.stderr)
	data, err := os.ReadFile(out)
	require.NoError(t, err)
	for _, private := range []string{"Mustermann", "Heidelberg", "4711", "2026", "patient"} {
		require.NotContains(t, string(data), private)
	}
	rows := jsonLines[struct {
		Timestamp float64  `json:"timestamp"`
		Input     int      `json:"input_length"`
		HashIDs   []uint64 `json:"hash_ids"`
	}](t, string(data))
	require.Len(t, rows, 2)
	require.Equal(t, 1000.0, rows[1].Timestamp)
	require.Equal(t, 460, rows[0].Input)
	require.Equal(t, rows[0].HashIDs[0], rows[1].HashIDs[0], "equal prefixes have equal ids")
	require.NotEqual(t, rows[0].HashIDs[len(rows[0].HashIDs)-1], rows[1].HashIDs[len(rows[1].HashIDs)-1])
}

func TestWrongUseOfTraceCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.jsonl")
	require.NoError(t, os.WriteFile(bad, []byte(`{"timestamp": 1, "input_length": 5, "output_length": 6}`+"\n{]\n"), 0o600))
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"inspect", filepath.Join(dir, "nowhere")}, "no such file"},
		{[]string{"inspect", bad}, "bad.jsonl:2:"},
		{[]string{"inspect"}, "got 0 arguments, expected 1: FILE"},
		{[]string{"generate", "--rate", "5"}, "--mix: got nothing"},
		{[]string{"generate", "--rate", "5", "--mix", "chat"}, "arrival:"},
		{[]string{"generate", "--rate", "5", "--mix", "chat", "--count", "3", "--burstiness", "often"}, `--burstiness: got \"often\"`},
		{[]string{"generate", "--stages", "soon:3", "--mix", "chat"}, `--stages: got \"soon:3\"`},
		{[]string{"convert", bad, "--window", "x"}, `--window: got \"x\"`},
		{[]string{"generate", "--rate", "5", "--count", "3", "--mix", "chat", "--out", filepath.Join(dir, "x.txt")}, "expected a name that ends in .jsonl or .csv"},
		{[]string{"anonymize", bad, "--encoding", "klingon"}, "--encoding:"},
	} {
		r := runK6(t, append([]string{"x", "llm", "trace"}, tt.args...)...)
		require.Equal(t, 3, r.exit, tt.args)
		require.Contains(t, r.stderr, tt.want)
	}
}
