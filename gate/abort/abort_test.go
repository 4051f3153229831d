package abort_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/abort"
	"github.com/safeqps/xk6-safeqps/gate/contract"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// watch reads abort rules from the contract's own YAML, so that the rules are what users write.
func watch(t *testing.T, rules string) *abort.Watch {
	t.Helper()
	c, err := contract.Load("slo.yaml", []byte("capacity_gate: {success_rate: \">= 0.9\"}\nabort: "+rules+"\n"),
		func(string) (string, bool) { return "", false })
	require.NoError(t, err)

	return abort.NewWatch(c.Abort, start)
}

func ok(ttft float64) abort.Request {
	nan := math.NaN()

	return abort.Request{
		Steady: true, OK: true, Status: 200, TTFT: ttft, TTFTText: nan, TPOT: nan, E2E: nan, ScheduleDelay: nan, OutputTPS: nan,
		CompletionTokens: nan,
	}
}

func failed() abort.Request {
	r := ok(math.NaN())
	r.OK, r.Failed, r.Status = false, true, 500

	return r
}

// run feeds one request list a second, and returns the second in which a rule is met, 0 for never.
func run(w *abort.Watch, seconds ...[]abort.Request) (int, *abort.Tripped) {
	for i, requests := range seconds {
		for _, r := range requests {
			w.Request(r)
		}
		w.Arrivals(len(requests), 0)
		if tripped := w.Tick(start.Add(time.Duration(i+1)*time.Second), nil); tripped != nil {
			return i + 1, tripped
		}
	}

	return 0, nil
}

func repeat(n int, second ...abort.Request) [][]abort.Request {
	out := make([][]abort.Request, n)
	for i := range out {
		out[i] = second
	}

	return out
}

func TestAStateMustHoldWithoutABreak(t *testing.T) {
	t.Parallel()
	bad := []abort.Request{failed(), ok(1), ok(1)} // 33 %
	good := []abort.Request{failed(), ok(1), ok(1), ok(1), ok(1)}
	at, tripped := run(watch(t, `{error_rate: "> 20% for 3s"}`), repeat(10, bad...)...)
	require.Equal(t, 4, at, "bad since the end of second 1, for 3 s at the end of second 4")
	require.Equal(t, "abort.error_rate", tripped.Rule)
	require.Equal(t, "error_rate was 33.3% for 3s, the rule stops at > 20% for 3s", tripped.Saw)
	require.EqualError(t, tripped, "the contract's rule abort.error_rate stops the run: "+tripped.Saw)

	at, _ = run(watch(t, `{error_rate: "> 20% for 3s"}`), bad, bad, bad, good, bad, bad, bad, good, bad)
	require.Zero(t, at, "20 % is not above 20 %, and breaks the state")

	at, _ = run(watch(t, `{error_rate: "> 20% for 3s"}`), bad, nil, nil, nil, nil)
	require.Equal(t, 4, at, "seconds without data do not end a state")
}

func TestLatencyCountsWhatWasMeasured(t *testing.T) {
	t.Parallel()
	slow, quick := ok(11_000), ok(100)
	at, tripped := run(watch(t, `{ttft_p99: "> 10s for 2s"}`), repeat(5, quick, slow, failed())...)
	require.Equal(t, 3, at)
	require.Contains(t, tripped.Saw, "ttft was 1.1e+04ms for 2s")
	at, _ = run(watch(t, `{ttft_p50: "> 10s for 2s"}`), repeat(5, quick, quick, slow)...)
	require.Zero(t, at)
	at, _ = run(watch(t, `{ttft_p50: "> 10s for 2s"}`), repeat(5, failed())...)
	require.Zero(t, at, "a failed request has no latency here; error_rate is there for it")
}

func TestWarmupDoesNotCount(t *testing.T) {
	t.Parallel()
	r := failed()
	r.Steady = false
	at, _ := run(watch(t, `{error_rate: "> 20% for 1s"}`), repeat(5, r)...)
	require.Zero(t, at)
}

func TestAfterHoldsARuleBack(t *testing.T) {
	t.Parallel()
	at, _ := run(watch(t, `{error_rate: "> 20% for 1s after 6s"}`), repeat(9, failed())...)
	require.Equal(t, 6, at)
}

func TestThroughputAndDrops(t *testing.T) {
	t.Parallel()
	r := ok(1)
	r.CompletionTokens = 50
	at, tripped := run(watch(t, `{output_tokens_per_second: "< 120 tokens/s for 2s"}`), repeat(5, r, r)...)
	require.Equal(t, 3, at)
	require.Contains(t, tripped.Saw, "was 100 tokens/s")
	at, _ = run(watch(t, `{output_tokens_per_second: "< 100 tokens/s for 2s"}`), repeat(5, r, r)...)
	require.Zero(t, at)

	w := watch(t, `{dropped: "> 10% for 1s"}`)
	for i := range 3 {
		w.Arrivals(10, 2)
		tripped = w.Tick(start.Add(time.Duration(i+1)*time.Second), nil)
	}
	require.NotNil(t, tripped)
	require.Equal(t, "abort.dropped", tripped.Rule)
}

func TestLevelsAndStates(t *testing.T) {
	t.Parallel()
	w := watch(t, `{queue_depth: "> 50 for 2s", unhealthy: {for: 3s}, queue_growth: sustained}`)
	tick := func(second int, levels map[string]float64) *abort.Tripped {
		return w.Tick(start.Add(time.Duration(second)*time.Second), levels)
	}
	require.Nil(t, tick(1, map[string]float64{"queue_depth": 51, "unhealthy": 1, "queue_growth": 0}))
	require.Nil(t, tick(2, map[string]float64{"queue_depth": 50, "unhealthy": 1}))
	require.Nil(t, tick(3, map[string]float64{"queue_depth": 60, "unhealthy": 0}))
	require.Nil(t, tick(4, map[string]float64{"queue_depth": 60}))
	tripped := tick(5, map[string]float64{"queue_depth": 60})
	require.Equal(t, "abort.queue_depth", tripped.Rule)
	require.Contains(t, tripped.Saw, "queue_depth was 60 for 2s")

	w = watch(t, `{queue_growth: sustained}`)
	require.Nil(t, tick(1, nil), "what was not measured is not bad")
	require.Equal(t, "abort.queue_growth", tick(2, map[string]float64{"queue_growth": 1}).Rule)
}
