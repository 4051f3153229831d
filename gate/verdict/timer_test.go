package verdict_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// TestTimersAreJudgedByAllOfThem holds the rule that one late timer in a hundred seconds is not a bottleneck, although it
// is the worst of its second.
func TestTimersAreJudgedByAllOfThem(t *testing.T) {
	t.Parallel()
	c, err := contract.Load("slo.yaml", []byte("capacity_gate: {success_rate: \">= 0.5\"}\n"), func(string) (string, bool) { return "", false })
	require.NoError(t, err)
	for late, want := range map[int]verdict.Status{9: verdict.Pass, 11: verdict.Fail} {
		dir := t.TempDir()
		start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		w, err := results.Create(dir, results.Info{Started: start}, results.Options{})
		require.NoError(t, err)
		for i := range 1000 {
			delay := 1.0
			if i < late {
				delay = 50
			}
			require.NoError(t, w.RecordTimerDelay("steady", "", delay))
			require.NoError(t, w.RecordTimerDelay("warmup", "", 500))
		}
		require.NoError(t, w.Request(&results.Request{Row: -1, Phase: "steady", Start: start, Outcome: results.OK, E2E: results.Num(5)}))
		require.NoError(t, w.Close(start.Add(time.Minute), nil))
		run, err := results.Open(dir)
		require.NoError(t, err)
		judged, err := verdict.Judge(run, c)
		require.NoError(t, err)
		found := false
		for _, criterion := range judged.Criteria {
			if criterion.Name != "client_headroom.timer_delay_p99" {
				continue
			}
			found = true
			require.Equal(t, want, criterion.Verdict)
			require.Equal(t, int64(1000), criterion.N)
			require.Equal(t, int64(late), criterion.Over)
		}
		require.True(t, found)
	}
}
