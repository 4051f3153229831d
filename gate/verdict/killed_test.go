package verdict_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// TestAKilledRunCountsWhatWasInFlight has lines that are newer than the series, as a kill leaves them.
func TestAKilledRunCountsWhatWasInFlight(t *testing.T) {
	t.Parallel()
	c, err := contract.Load("slo.yaml", []byte("capacity_gate: {success_rate: \">= 0.5\"}\n"), func(string) (string, bool) { return "", false })
	require.NoError(t, err)
	dir := t.TempDir()
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w, err := results.Create(dir, results.Info{Started: start}, results.Options{})
	require.NoError(t, err)
	for second := range 4 {
		n := int64(10)
		require.NoError(t, w.Sample(results.Sample{Time: start.Add(time.Duration(second) * time.Second), Phase: "steady", Started: &n}))
	}
	// Of the 40 that the series saw start, 7 have no line; 12 lines are of requests that began after it.
	for i := range 52 {
		if i >= 33 && i < 40 {
			continue
		}
		require.NoError(t, w.Request(&results.Request{
			Row: int64(i), Phase: "steady", Start: start.Add(time.Duration(i) * 100 * time.Millisecond), Outcome: results.OK, E2E: results.Num(5),
		}))
	}
	require.NoError(t, w.Flush(start.Add(time.Minute)))

	run, err := results.Open(dir)
	require.NoError(t, err)
	judged, err := verdict.Judge(run, c)
	require.NoError(t, err)
	require.Equal(t, int64(7), judged.Counts.InFlight)
	require.Equal(t, int64(52), judged.Counts.Started)
	require.NoError(t, judged.Counts.Check())
}
