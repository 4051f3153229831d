package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/capacity"
	"github.com/safeqps/xk6-safeqps/gate/report"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

// judgedBy is a contract as a run carries it.
const judgedBy = `{"confidence": 0.95, "phases": {"warmup": "0s", "steady": "3s", "recovery": "0s"}, "capacity_gate": [{"name": "ttft_p95",
	"section": "capacity_gate", "metric": "ttft", "stat": {"kind": "quantile", "quantile": 0.95}, "op": "<=", "limit": {"absolute": 300},
	"unit": "ms", "raw": "<= 300ms", "text": "<= 300ms", "phase": "steady"}]}`

// reportedRun is a results directory of three requests; the contract judges it.
func reportedRun(t *testing.T, dir string, contract json.RawMessage) string {
	t.Helper()
	started := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	w, err := results.Create(dir, results.Info{Started: started, Contract: contract}, results.Options{})
	require.NoError(t, err)
	for i := range 3 {
		require.NoError(t, w.Request(&results.Request{
			Row: -1, Phase: "steady", Start: started.Add(time.Duration(i) * time.Second), Outcome: results.OK,
			TTFT: results.Num(50), E2E: results.Num(100),
		}))
	}
	require.NoError(t, w.Close(started.Add(4*time.Second), nil))

	return dir
}

func collected(t *testing.T, dirs ...string) report.Input {
	t.Helper()
	in, err := report.Collect(dirs)
	require.NoError(t, err)

	return in
}

// Whatever is reported, the three forms are there afterwards: report.md holds a verdict or a table.
func TestAReportHasItsThreeFiles(t *testing.T) {
	base := t.TempDir()
	contract := json.RawMessage(judgedBy)
	judged, bare := reportedRun(t, filepath.Join(base, "judged"), contract), reportedRun(t, filepath.Join(base, "bare"), nil)
	write := func(markdown, out string, dirs ...string) string {
		in := collected(t, dirs...)
		var err error
		in.Capacity, err = report.Capacities(dirs)
		require.NoError(t, err)
		w, err := writeReport(out, in)
		require.NoError(t, err)
		require.Equal(t, filepath.Join(out, "report.html"), w.page())
		require.FileExists(t, w.page())
		require.FileExists(t, filepath.Join(out, "report.json"))
		text, err := os.ReadFile(filepath.Join(out, markdown))
		require.NoError(t, err)

		return string(text)
	}
	elsewhere := filepath.Join(base, "elsewhere")
	require.Contains(t, write("report.md", elsewhere, judged), "## LLM capacity gate: INCONCLUSIVE")
	require.Contains(t, write("report.md", judged, judged), "## LLM capacity gate: INCONCLUSIVE", "there was none")
	for _, dir := range []string{judged, elsewhere} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "report.md"), []byte("edited"), 0o600))
	}
	require.Equal(t, "edited", write("report.md", judged+"/.", judged), "the verdict's own")
	require.Contains(t, write("report.md", elsewhere, judged), "## LLM capacity gate", "a report's own is written anew")

	require.Contains(t, write("report.md", filepath.Join(base, "other"), bare), "| bare | unknown | 1 |", "not judged, and shown all the same")
	require.Contains(t, write("report.md", filepath.Join(base, "both"), judged, bare), "| judged |")

	search := filepath.Join(base, "search")
	reportedRun(t, filepath.Join(search, "probe-01"), contract)
	rate := 1.25
	e := capacity.NewEnvelope(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), map[string]string{"gpus": "8"})
	e.Entries = append(e.Entries, capacity.EnvelopeEntry{Workload: "chat", Result: capacity.Result{Schema: capacity.ResultSchema, SafeQPS: &rate, CompletedRate: &rate}})
	content, err := e.JSON()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(search, capacity.EnvelopeFile), content, 0o600))
	require.Contains(t, write("report.md", bare, bare), "| bare | unknown | 1 |", "and in its own directory")
	text := write("report.md", search, search)
	require.Contains(t, text, "| chat | (the script's) | **1.25** | 1.25 |", "a search of one probe")
	require.Contains(t, text, "The envelope holds for gpus 8; found 2026-03-01 12:00:00 UTC.")
}

// report.md of a run is its verdict, which CI posts to the pull request: a report over several runs has another name for its
// table there, and says what it wrote and what it replaced.
func TestAReportOverSeveralRunsLeavesTheVerdict(t *testing.T) {
	base := t.TempDir()
	a, b := reportedRun(t, filepath.Join(base, "a"), json.RawMessage(judgedBy)), reportedRun(t, filepath.Join(base, "b"), nil)
	var stdout, stderr bytes.Buffer
	k6 := func(command func(environment) *cobra.Command, args ...string) {
		stdout.Reset()
		stderr.Reset()
		cmd := command(environment{stdout: &stdout, stderr: &stderr})
		cmd.SetArgs(args)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if err := cmd.Execute(); err != nil {
			require.ErrorContains(t, err, "the verdict is INCONCLUSIVE") // of three requests
		}
	}
	k6(newGateVerdict, a)
	verdicts, err := os.ReadFile(filepath.Join(a, "report.md"))
	require.NoError(t, err)

	k6(newReport, a, b)
	require.Equal(t, filepath.Join(a, "report.html")+"\n", stdout.String())
	require.Equal(t, "written to "+a+": rates.md, report.html, report.json\n", stderr.String())
	after, err := os.ReadFile(filepath.Join(a, "report.md"))
	require.NoError(t, err)
	require.Equal(t, string(verdicts), string(after))
	table, err := os.ReadFile(filepath.Join(a, "rates.md"))
	require.NoError(t, err)
	require.Contains(t, string(table), "| a |")
	require.Contains(t, string(table), "| b |")

	k6(newReport, a)
	require.Equal(t, "written to "+a+": report.html (replaced), report.json (replaced)\n"+
		"left as it is: report.md, the verdict of that run\n", stderr.String())
	k6(newReport, a, b, "--out", filepath.Join(base, "out"))
	require.Equal(t, "written to "+filepath.Join(base, "out")+": report.html, report.json, report.md\n", stderr.String())
	require.NoFileExists(t, filepath.Join(base, "out", "rates.md"))

	_, err = writeReport(a, collected(t, reportedRun(t, filepath.Join(base, "c"), json.RawMessage(judgedBy))))
	require.ErrorContains(t, err, "report.md in "+a+" is the verdict of another run")
	again, err := os.ReadFile(filepath.Join(a, "report.md"))
	require.NoError(t, err)
	require.Equal(t, string(verdicts), string(again))
}
