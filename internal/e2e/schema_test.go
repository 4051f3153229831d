package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// keepsSchema holds every file of a results directory to the published schema.
func keepsSchema(t *testing.T, dir string) {
	t.Helper()
	compiler := jsonschema.NewCompiler()
	holds := func(file, definition, text string) {
		t.Helper()
		schema, err := compiler.Compile(filepath.Join(root(t), "docs", "results.schema.json") + "#/$defs/" + definition)
		require.NoError(t, err)
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		require.NoError(t, err, "%s: %s", file, text)
		require.NoError(t, schema.Validate(value), "%s: %s", file, text)
	}
	read := func(file string) string {
		text, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)

		return string(text)
	}
	holds(results.RunFile, "run", read(results.RunFile))
	holds(results.VerdictFile, "verdict", read(results.VerdictFile))
	for file, definition := range map[string]string{
		results.RequestsFile: "request", results.SeriesFile: "sample", results.EventsFile: "event",
	} {
		if _, err := os.Stat(filepath.Join(dir, file)); os.IsNotExist(err) && file == results.EventsFile {
			continue // nothing happened
		}
		for line := range strings.Lines(read(file)) {
			if strings.HasSuffix(line, "\n") { // a killed run may tear the last one
				holds(file, definition, line)
			}
		}
	}
	histograms, err := filepath.Glob(filepath.Join(dir, "histograms", "*.json"))
	require.NoError(t, err)
	run, err := results.Open(dir)
	require.NoError(t, err)
	require.True(t, len(histograms) > 0 || run.Info.Ended.IsZero(), "they are written from time to time, and at the end")
	for _, path := range histograms {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		holds(path, "histograms", string(text))
	}
}
