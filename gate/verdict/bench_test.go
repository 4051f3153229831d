package verdict

import (
	"bufio"
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// peakMemory is the process's highest resident memory in MB since the last reset; false where the system does not tell.
func peakMemory() (float64, bool) {
	content, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, false
	}
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		fields := bytes.Fields(lines.Bytes())
		if len(fields) > 1 && string(fields[0]) == "VmHWM:" {
			kb, err := strconv.ParseFloat(string(fields[1]), 64)
			return kb / 1024, err == nil
		}
	}
	return 0, false
}

// BenchmarkJudgeMillion is the promise of a verdict on a million requests in 20 s and 300 MB.
func BenchmarkJudgeMillion(b *testing.B) {
	const requests = 1_000_000
	dir := filepath.Join(b.TempDir(), "run")
	w, err := results.Create(dir, results.Info{Started: epoch}, results.Options{})
	require.NoError(b, err)
	rng := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // a reproducible run
	classes := []string{"short", "typical", "long"}
	for i := range requests {
		ttft := 100 * math.Exp(0.5*rng.NormFloat64())
		at := epoch.Add(time.Duration(i) * 5 * time.Millisecond)
		require.NoError(b, w.Request(&results.Request{
			Row: int64(i), Scenario: "steady", Phase: steady, Class: classes[i%3], Due: at, Start: at.Add(80 * time.Microsecond),
			Outcome: results.OK, Status: 200, TTFT: results.Num(ttft), TTFTText: results.Num(ttft), TPOT: results.Num(10),
			E2E: results.Num(ttft + 1200), ScheduleDelay: results.Num(0.08), OutputTPS: results.Num(100),
			ITLP50: results.Num(10), ITLP99: results.Num(20), ITLMax: results.Num(30), ITLCount: 119, Chunks: 120,
			PromptAsked: results.IntOf(500), Prompt: results.IntOf(500), CompletionAsked: results.IntOf(120),
			Completion: results.IntOf(120), Cached: results.IntOf(0), TokenSource: "server", Goodput: results.FlagYes,
		}))
		if i%10 == 0 {
			require.NoError(b, w.RecordITL(steady, "", classes[i%3], []float64{10, 11, 12}))
		}
	}
	for i := range requests / 200 {
		flow, depth := int64(200), float64(i%3)
		require.NoError(b, w.Sample(results.Sample{
			Time: epoch.Add(time.Duration(i) * time.Second), Phase: steady, Offered: &flow, Started: &flow, Completed: &flow,
			CompletionTokens: &flow, Server: map[string]float64{"queue_depth": depth},
		}))
	}
	require.NoError(b, w.Close(epoch.Add(2*time.Hour), nil))
	c := load(b, `
capacity_gate:
  success_rate: ">= 0.995"
  ttft_p95: "<= 800ms"
  ttft_p99: "<= 2s"
  itl_p99: "<= 80ms"
  tpot_p95: "<= 50ms"
  e2e_p99: "<= 30s"
  goodput: ">= 0.95"
  output_tokens_per_second: ">= 100"
  queue_growth: no_sustained_growth
  by_class: {long: {ttft_p99: "<= 6s"}}
`)
	debug.FreeOSMemory()
	reset := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) == nil
	before, _ := peakMemory()
	b.ResetTimer()
	for range b.N {
		run, err := results.Open(dir)
		require.NoError(b, err)
		got, err := Judge(run, c)
		require.NoError(b, err)
		require.Equal(b, Pass, got.Verdict, "%+v", got)
	}
	b.StopTimer()
	if peak, ok := peakMemory(); ok && reset {
		b.ReportMetric(before, "MB-before")
		b.ReportMetric(peak, "MB-peak")
	}
}
