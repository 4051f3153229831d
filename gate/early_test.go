package gate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/capacity"
	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

func earlyWatch(t *testing.T, planned string) *earlyStop {
	t.Helper()
	c, err := contract.Load("slo.yaml", []byte("capacity_gate: {ttft_p95: \"<= 100ms\"}\nphases: {steady: 60s}\n"), nil)
	require.NoError(t, err)
	e, err := newEarlyStop(c, map[string]string{stopEarlyVariable: planned})
	require.NoError(t, err)
	require.NotNil(t, e)

	return e
}

func (e *earlyStop) take(n int, ttft float64) {
	for range n {
		e.request(&results.Request{
			Attempt: 1, Phase: "steady", Outcome: results.OK, TTFT: results.Number{Value: ttft, Known: true},
		})
	}
}

func TestEarlyStopLooksOnlyAfterATwentiethOfTheProbe(t *testing.T) {
	t.Parallel()
	e := earlyWatch(t, "20000")
	e.take(999, 500)
	require.Nil(t, e.certain(time.Time{}), "all over the limit, but it is too early to look")
	e.take(1, 500)
	got := e.certain(time.Time{})
	require.NotNil(t, got)
	require.Equal(t, capacity.StoppedEarlyRule, got.Rule)
	require.Contains(t, got.Saw, "ttft_p95: 1000 of 1000 over the limit")
}

// One episode is one event, however many requests it holds: it must not end a probe that could still pass.
func TestEarlyStopCreditsAnEpisodeAsOne(t *testing.T) {
	t.Parallel()
	e := earlyWatch(t, "20000")
	e.take(40, 500)
	e.take(360, 50)
	e.take(600, 50)
	require.Nil(t, e.certain(time.Time{}))
}

func TestEarlyStopLeavesEmbeddingsOut(t *testing.T) {
	t.Parallel()
	e := earlyWatch(t, "400")
	for range 400 {
		e.request(&results.Request{Attempt: 1, Phase: "steady", Outcome: results.OK, API: results.APIEmbeddings})
	}
	require.Nil(t, e.certain(time.Time{}), "they have no TTFT to be over a limit")
}

func TestEarlyStopFindsALostProbe(t *testing.T) {
	t.Parallel()
	e := earlyWatch(t, "400") // 20 of 400 may be over
	e.take(300, 50)
	e.take(20, 500)
	require.Nil(t, e.certain(time.Time{}))
	e.take(80, 500)
	require.NotNil(t, e.certain(time.Time{}))
}

func TestEarlyStopIsOffUnlessASearchAsks(t *testing.T) {
	t.Parallel()
	c, err := contract.Load("slo.yaml", []byte("capacity_gate: {ttft_p95: \"<= 100ms\"}\nphases: {steady: 60s}\n"), nil)
	require.NoError(t, err)
	e, err := newEarlyStop(c, nil)
	require.NoError(t, err)
	require.Nil(t, e)
	for _, text := range []string{"0", "-3", "many", ""} {
		_, err = newEarlyStop(c, map[string]string{stopEarlyVariable: text})
		require.ErrorContains(t, err, "expected a number of requests", text)
	}
}
