package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/capacity"
	"github.com/safeqps/xk6-safeqps/gate/report"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

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

// Whatever is reported, report.html, report.json and report.md are there afterwards.
func TestAReportHasItsThreeFiles(t *testing.T) {
	contract := json.RawMessage(`{"confidence": 0.95, "phases": {"warmup": "0s", "steady": "3s", "recovery": "0s"}, "capacity_gate": [{"name": "ttft_p95",
		"section": "capacity_gate", "metric": "ttft", "stat": {"kind": "quantile", "quantile": 0.95}, "op": "<=", "limit": {"absolute": 300},
		"unit": "ms", "raw": "<= 300ms", "text": "<= 300ms", "phase": "steady"}]}`)
	base := t.TempDir()
	judged, bare := reportedRun(t, filepath.Join(base, "judged"), contract), reportedRun(t, filepath.Join(base, "bare"), nil)
	write := func(out string, dirs ...string) string {
		in, err := report.Collect(dirs)
		require.NoError(t, err)
		if in.Capacity, err = report.Capacities(dirs); err != nil {
			require.NoError(t, err)
		}
		page, others, err := writeReport(out, in)
		require.NoError(t, err)
		require.Equal(t, filepath.Join(out, "report.html"), page)
		require.FileExists(t, page)
		require.FileExists(t, filepath.Join(out, "report.json"))
		require.Equal(t, []string{"report.json", "report.md"}, others)
		text, err := os.ReadFile(filepath.Join(out, "report.md"))
		require.NoError(t, err)

		return string(text)
	}
	elsewhere := filepath.Join(base, "elsewhere")
	require.Contains(t, write(elsewhere, judged), "## LLM capacity gate: INCONCLUSIVE")
	require.Contains(t, write(judged, judged), "## LLM capacity gate: INCONCLUSIVE", "there was none")
	for _, dir := range []string{judged, elsewhere} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "report.md"), []byte("edited"), 0o600))
	}
	require.Equal(t, "edited", write(judged+"/.", judged), "the verdict's own")
	require.Contains(t, write(elsewhere, judged), "## LLM capacity gate", "a report's own is written anew")

	require.Contains(t, write(filepath.Join(base, "other"), bare), "| bare | unknown | 1 |", "not judged, and shown all the same")
	require.Contains(t, write(filepath.Join(base, "both"), judged, bare), "| judged |")

	search := filepath.Join(base, "search")
	reportedRun(t, filepath.Join(search, "probe-01"), contract)
	rate := 1.25
	e := capacity.NewEnvelope(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), map[string]string{"gpus": "8"})
	e.Entries = append(e.Entries, capacity.EnvelopeEntry{Workload: "chat", Result: capacity.Result{Schema: capacity.ResultSchema, SafeQPS: &rate, CompletedRate: &rate}})
	content, err := e.JSON()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(search, capacity.EnvelopeFile), content, 0o600))
	text := write(search, search)
	require.Contains(t, text, "| chat | (the script's) | **1.25** | 1.25 |", "a search of one probe")
	require.Contains(t, text, "The envelope holds for gpus 8; found 2026-03-01 12:00:00 UTC.")
}
