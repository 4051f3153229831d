package contract

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The table "What each line becomes in k6" of docs/contract.md is true.
func TestReferenceTableOfThresholds(t *testing.T) {
	text, err := os.ReadFile("../../docs/contract.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "\n| line | threshold |\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	code := regexp.MustCompile("`([^`]+)`")
	rows := strings.Split(table, "\n")[1:]
	require.Len(t, rows, 15)
	for _, row := range rows {
		var spans []string
		for _, match := range code.FindAllStringSubmatch(row, -1) {
			spans = append(spans, match[1])
		}
		line := spans[0]
		spans = spans[1:]
		for len(spans) > 0 && !strings.HasPrefix(spans[0], "llm_") && !strings.HasPrefix(spans[0], "dropped_") {
			spans = spans[1:] // the words between the line and its threshold
		}
		require.GreaterOrEqual(t, len(spans), 2, row)
		contract := "capacity_gate:\n  " + line + "\n"
		if regexp.MustCompile(`^(recovery|abort|client_headroom):`).MatchString(line) {
			contract = "capacity_gate: {requests_per_second: '>= 1'}\n" + line + "\n"
		}
		var thresholds []string
		for _, threshold := range Thresholds(mustLoad(t, contract)) {
			checkAsK6(t, threshold)
			thresholds = append(thresholds, threshold.Metric+" "+threshold.Expression)
			if threshold.Metric == spans[0] && threshold.Expression == spans[1] {
				require.Equal(t, strings.Contains(row, "abortOnFail"), threshold.AbortOnFail, row)
				require.Equal(t, strings.Contains(row, "delayAbortEval: "+threshold.DelayAbortEval), threshold.DelayAbortEval != "", row)
			}
		}
		require.Contains(t, thresholds, spans[0]+" "+spans[1], row)
	}
}

// The errors that docs/contract.md shows are those that Load gives.
func TestReferenceErrors(t *testing.T) {
	text, err := os.ReadFile("../../docs/contract.md")
	require.NoError(t, err)
	_, shown, found := strings.Cut(string(text), "```text\n")
	require.True(t, found)
	shown, _, _ = strings.Cut(shown, "\n```")
	_, err = Load("slo.yaml", []byte(`# a contract with five faults
capacity_gate:
  ttft_p95: "<= 800"
  tftf_p99: "<= 2s"
  success_rate: ">= ${RATE}"
  itl_p99: ">= 80ms"
  goodput: ">= 99.5"
`), nil)
	require.EqualError(t, err, shown)
}
