package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden files of testdata")

func TestExplainGolden(t *testing.T) {
	for _, name := range []string{"minimal", "full"} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			require.NoError(t, Explain(&out, loadFile(t, "testdata/"+name+".yaml", nil)))
			golden := "testdata/" + name + ".explain.txt"
			if *update {
				require.NoError(t, os.WriteFile(golden, out.Bytes(), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), out.String())
		})
	}
}

func TestExplainSaysWhatIsNeeded(t *testing.T) {
	var out strings.Builder
	require.NoError(t, Explain(&out, mustLoad(t, `capacity_gate: {ttft_p99: "<= 1s", goodput: ">= 90%", tpot_p95: "<= baseline"}
confidence: 99%
phases: {steady: 459s}
`)))
	require.Contains(t, out.String(), "slo.yaml: confidence 99%; warmup 0s, steady 7m39s, recovery 0s\n")
	require.Contains(t, out.String(), "evidence   at least 459 requests, not one of them bad\n")
	require.Contains(t, out.String(), "the steady phase needs at least 459 requests: 1 requests/s over 7m39s.")
	require.Contains(t, out.String(), "Not complete: a baseline, which the contract does not name has to supply tpot_p95.")
	require.Contains(t, out.String(), "the contract has no request_slo")
}

func TestExplainJSON(t *testing.T) {
	c := loadFile(t, "testdata/full.yaml", nil)
	var out bytes.Buffer
	require.NoError(t, ExplainJSON(&out, c))
	var back Explanation
	require.NoError(t, json.Unmarshal(out.Bytes(), &back))
	require.Equal(t, Describe(c), back)
	require.Equal(t, 2995, back.RequestsNeeded)
	require.Equal(t, []string{"tpot_p95", "recovery.queue_depth", "recovery.ttft_p95"}, back.BaselineNames)

	// Every line is judged by someone, and says why when it is not by k6.
	require.Len(t, back.Lines, len(c.Criteria())+len(c.Abort))
	for _, line := range back.Lines {
		require.NotEmpty(t, line.JudgedBy, line.Name)
		hasThreshold := false
		for _, threshold := range line.Thresholds {
			hasThreshold = hasThreshold || !threshold.Guard
		}
		require.Equal(t, hasThreshold, strings.Contains(joinJudges(line), string(JudgeThreshold)), line.Name)
		if !hasThreshold {
			require.Contains(t, line.Note, "no k6 threshold: ", line.Name)
		}
	}
}

func joinJudges(line Line) string {
	var out string
	for _, judge := range line.JudgedBy {
		out += string(judge) + ","
	}
	return out
}

type brokenWriter struct{}

var errBroken = errors.New("broken")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestExplainReportsAWriterThatFails(t *testing.T) {
	c := mustLoad(t, "capacity_gate: {ttft_p95: '<= 1s'}")
	require.ErrorIs(t, Explain(brokenWriter{}, c), errBroken)
	require.ErrorIs(t, ExplainJSON(brokenWriter{}, c), errBroken)
}
