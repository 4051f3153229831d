package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("report.json", `{"runs":[{"name":"probe-01","points":[{"ttft":{"n":1}}]},{"name":"probe-02","points":[
		{"achieved_per_second":12.5,"output_tokens_per_second":1237.9,"error_share":0.0125,"ttft":{"n":629,"p50":19.25,"p95":76.7,"p99":129.9},
		"itl":{"n":24531,"p50":8.155,"p95":13.055,"p99":17.775},"e2e":{"n":629,"p50":368.2,"p95":451.2,"p99":501.3}}]}]}`)
	write("capacity.json", `{"bracket":{"low":{"rate":12.67,"verdict":"PASS","probe":2}},"probes":[{"n":1,"dir":"probe-01"},{"n":2,"dir":"probe-02"}]}`)
	var out strings.Builder
	require.NoError(t, show(&out, dir))
	require.Equal(t, `What users see at 12.7 requests/s (probe-02, PASS):
            n           p50       p95       p99
  TTFT    629       19.2 ms   76.7 ms  129.9 ms
  TPOT      0  not measured                    
   ITL  24531        8.2 ms   13.1 ms   17.8 ms
   E2E    629      368.2 ms  451.2 ms  501.3 ms
1238 output tokens/s
12.5 requests/s completed
error share 1.2 %
`, out.String())

	write("capacity.json", `{"bracket":{"low":{"rate":5,"verdict":"PASS","probe":1}},"probes":[{"n":1,"dir":"probe-01"}]}`)
	out.Reset()
	require.NoError(t, show(&out, dir))
	require.NotContains(t, out.String(), "/s\n", "what was not measured is absent, not zero")
	require.NotContains(t, out.String(), "error share")

	write("capacity.json", `{"bracket":{"low":null}}`)
	require.ErrorIs(t, show(&out, dir), errNoProbe)
	write("report.json", `{`)
	require.ErrorContains(t, show(&out, dir), "report.json")
	require.Error(t, show(&out, t.TempDir()))
}
