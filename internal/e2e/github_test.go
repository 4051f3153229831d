package e2e

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// Annotations are read from both streams of a step; JSON for a program stands alone on its own.
func TestAnnotationsLeaveTheJSONAlone(t *testing.T) {
	t.Parallel()
	dir := ranAgainst(t, map[string]float64{"ttft_p95": 50}) // 100 ms, over the limit
	const annotation = "::error title=FAIL ttft_p95::measured 100ms, limit <= 55ms"

	r := runK6(t, "x", "llm", "gate", "verdict", dir, "--github")
	require.Equal(t, 1, r.exit, r.stderr)
	require.Contains(t, r.stdout, "verdict: FAIL")
	require.Contains(t, r.stdout, "\n"+annotation)
	require.NotContains(t, r.stderr, "::error")

	r = runK6(t, "x", "llm", "gate", "verdict", dir, "--github", "--json")
	require.Equal(t, 1, r.exit, r.stderr)
	var judged verdict.Result
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &judged), "one object: %s", r.stdout)
	require.Equal(t, verdict.Fail, judged.Verdict)
	require.Contains(t, "\n"+r.stderr, "\n"+annotation)
	require.Contains(t, r.stderr, "\n::error title=LLM capacity gate%3A FAIL::")
}
