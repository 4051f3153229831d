package abort_test

import (
	"math"
	"slices"
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

	return abort.NewWatch(c, start)
}

func ok(ttft float64) abort.Request {
	nan := math.NaN()

	return abort.Request{
		Steady: true, Ended: true, OK: true, Waited: nan, Silence: nan, Status: 200, TTFT: ttft, TTFTText: nan, TPOT: nan, E2E: nan, ScheduleDelay: nan, OutputTPS: nan,
		CompletionTokens: nan,
	}
}

// open is a request in flight, without a first chunk yet.
func open(seq uint64, waited float64) abort.Request {
	r := ok(math.NaN())
	r.Seq, r.OK, r.Ended, r.Status, r.Waited = seq, false, false, 0, waited

	return r
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

func TestATickThatIsALittleEarlyEndsAHoldingTime(t *testing.T) {
	t.Parallel()
	w := watch(t, `{error_rate: "> 20% for 3s"}`)
	for _, ms := range []int{1010, 2000, 3005} {
		w.Request(failed())
		require.Nil(t, w.Tick(start.Add(time.Duration(ms)*time.Millisecond), nil))
	}
	require.NotNil(t, w.Tick(start.Add(4*time.Second), nil), "2.99 s after the first")
}

func TestLatencyCountsWhatWasMeasured(t *testing.T) {
	t.Parallel()
	slow, quick := ok(11_230), ok(100)
	at, tripped := run(watch(t, `{ttft_p99: "> 10s for 2s"}`), repeat(5, quick, slow)...)
	require.Equal(t, 3, at)
	require.Equal(t, "ttft_p99 was 11.2s for 2s, the rule stops at > 10s for 2s", tripped.Saw)
	_, tripped = run(watch(t, `{ttft_p99: "> 600ms for 2s"}`), repeat(5, ok(630))...)
	require.Equal(t, "ttft_p99 was 630ms for 2s, the rule stops at > 600ms for 2s", tripped.Saw)
	at, _ = run(watch(t, `{ttft_p50: "> 10s for 2s"}`), repeat(5, quick, quick, slow)...)
	require.Zero(t, at)
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
		for n := range 10 {
			a := abort.Arrival{Steady: true, Due: start, Sent: start}
			if n < 2 {
				a.Sent = time.Time{}
			}
			w.Arrival(a)
		}
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

func TestFailedRequestsAreOverEveryLatencyLimit(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{"ttft_p50", "ttft_text_p99", "tpot_p95", "itl_p50", "e2e_max"} {
		at, tripped := run(watch(t, `{`+rule+`: "> 10s for 2s"}`), repeat(5, failed(), failed(), ok(100))...)
		require.Equal(t, 3, at, rule)
		require.Contains(t, tripped.Saw, rule+" was unbounded (failed requests) for 2s")
	}
	at, _ := run(watch(t, `{output_tps_p50: "< 1 tokens/s for 2s"}`), repeat(5, failed())...)
	require.Equal(t, 3, at)
	at, _ = run(watch(t, `{schedule_delay_p50: "> 1ms for 2s"}`), repeat(5, failed())...)
	require.Zero(t, at, "a delay of the load generator is none of the service's")
	embedding := failed()
	embedding.Tokenless = true
	at, _ = run(watch(t, `{ttft_p50: "> 10s for 2s"}`), repeat(5, embedding)...)
	require.Zero(t, at)
	at, _ = run(watch(t, `{e2e_p50: "> 10s for 2s"}`), repeat(5, embedding)...)
	require.Equal(t, 3, at)
	at, tripped := run(watch(t, `{ttft_avg: "> 1s for 2s"}`), repeat(5, ok(100), ok(1500), failed())...)
	require.Equal(t, 3, at)
	require.Contains(t, tripped.Saw, "ttft_avg was 1.03s", "a failed one as the worst of the others: (100 + 1500 + 1500) / 3")
}

func TestARequestThatWaitsIsOverTheLimitNow(t *testing.T) {
	t.Parallel()
	// One request a second, that nobody ever answers.
	hang := func(rule string) int {
		w := watch(t, rule)
		for second := 1; second <= 20; second++ {
			for sent := range second {
				w.Request(open(uint64(sent+1), 1000*float64(second-sent)-1)) //nolint:gosec // small
			}
			if w.Tick(start.Add(time.Duration(second)*time.Second), nil) != nil {
				return second
			}
		}

		return 0
	}
	require.Equal(t, 6, hang(`{ttft_p99: "> 2s for 3s"}`), "over 2 s in second 3, and for 3 s in second 6")
	require.Equal(t, 6, hang(`{e2e_p99: "> 2s for 3s"}`))
	require.Equal(t, 3, hang(`{ttft_p99: "> 2s"}`), "without a holding time, at once")
	require.Zero(t, hang(`{ttft_p99: "> 30s for 3s"}`))

	// And those that hang for good, one after the other having come in time before, leave no more data: the state holds on.
	w := watch(t, `{ttft_p99: "> 2s for 3s"}`)
	var at int
	for second := 1; second <= 8 && at == 0; second++ {
		w.Request(open(1, 1000*float64(second)))
		if w.Tick(start.Add(time.Duration(second)*time.Second), nil) != nil {
			at = second
		}
	}
	require.Equal(t, 6, at)
}

func TestARequestCountsOnce(t *testing.T) {
	t.Parallel()
	// Of 40 requests a second one is never answered. Its waiting must not add up, second by second.
	w := watch(t, `{ttft_p95: "> 1s for 2s"}`)
	for second := 1; second <= 20; second++ {
		for range 39 {
			w.Request(ok(100))
		}
		for sent := range second {
			w.Request(open(uint64(sent+1), 1000*float64(second-sent))) //nolint:gosec // small
		}
		require.Nil(t, w.Tick(start.Add(time.Duration(second)*time.Second), nil), second)
	}

	// A first chunk in time counts when it has come, and not again at the answer's end.
	w = watch(t, `{ttft_max: "> 1s for 1s", ttft_p50: "> 1s for 2s"}`)
	talking := open(1, 30_000)
	talking.TTFT = 500
	for second := 1; second <= 5; second++ {
		w.Request(talking)
		require.Nil(t, w.Tick(start.Add(time.Duration(second)*time.Second), nil), "its waiting is over since its first chunk")
	}
	talking.Ended, talking.OK = true, true
	w.Request(talking)
	require.Nil(t, w.Tick(start.Add(6*time.Second), nil))

	// A late chunk is over from the moment on at which it is known.
	w = watch(t, `{ttft_p50: "> 1s for 1s"}`)
	late := open(2, 30_000)
	late.TTFT = 1500
	w.Request(late)
	require.Nil(t, w.Tick(start.Add(time.Second), nil))
	w.Request(late)
	require.Equal(t, "ttft_p50 was 1.5s for 1s, the rule stops at > 1s for 1s", w.Tick(start.Add(2*time.Second), nil).Saw)
}

func TestAFailureAfterTheFirstChunkIsOver(t *testing.T) {
	t.Parallel()
	w := watch(t, `{ttft_p50: "> 1s for 1s"}`)
	var at int
	for second := 1; second <= 5 && at == 0; second++ {
		talking := open(uint64(second), 10) //nolint:gosec // small
		talking.TTFT = 5
		w.Request(talking)
		if second > 1 {
			broken := failed()
			broken.Seq, broken.TTFT = uint64(second-1), 5 //nolint:gosec // small
			w.Request(broken)
			w.Request(failed())
		}
		if w.Tick(start.Add(time.Duration(second)*time.Second), nil) != nil {
			at = second
		}
	}
	require.Equal(t, 3, at, "one in time, and two that failed")
	// One that was over for its waiting, and fails, is over once.
	w = watch(t, `{ttft_p50: "> 1s"}`)
	w.Request(open(1, 2000))
	w.Request(ok(1))
	w.Request(ok(1))
	require.Nil(t, w.Tick(start.Add(time.Second), nil))
	broken := failed()
	broken.Seq, broken.Waited = 1, 2500
	w.Request(broken)
	require.Nil(t, w.Tick(start.Add(2*time.Second), nil), "1 of 3")
	w.Request(failed())
	require.Nil(t, w.Tick(start.Add(3*time.Second), nil), "2 of 4")
	w.Request(failed())
	require.Equal(t, "ttft_p50 was over the limit for 3 of 5, the rule stops at > 1s", w.Tick(start.Add(4*time.Second), nil).Saw)
}

func TestGapsCountWhileTheAnswerGoesOn(t *testing.T) {
	t.Parallel()
	// An answer of one token a second: its gaps are known long before its end.
	stream := func(rule string, gap float64) int {
		w := watch(t, rule)
		var gaps []float64
		for second := 1; second <= 10; second++ {
			gaps = append(gaps, gap)
			r := open(1, 1000*float64(second))
			r.TTFT, r.ITL, r.Silence = 10, slices.Values(gaps), 100
			w.Request(r)
			if w.Tick(start.Add(time.Duration(second)*time.Second), nil) != nil {
				return second
			}
		}

		return 0
	}
	require.Equal(t, 4, stream(`{itl_p99: "> 500ms for 3s"}`, 1000))
	require.Zero(t, stream(`{itl_p99: "> 500ms for 3s"}`, 400))

	// Each gap counts once: one long gap among many short ones is no p90.
	w := watch(t, `{itl_p90: "> 500ms"}`)
	gaps := []float64{1000}
	for second := 1; second <= 9; second++ {
		gaps = append(gaps, slices.Repeat([]float64{20}, 20)...)
		r := open(1, 1000*float64(second))
		r.ITL = slices.Values(gaps)
		w.Request(r)
		require.Nil(t, w.Tick(start.Add(time.Duration(second)*time.Second), nil))
	}

	// A stream that stalls is in a gap that is over the limit already; when its next chunk comes, that gap counts no second time.
	w = watch(t, `{itl_max: "> 3s for 2s"}`)
	r := open(7, 100)
	r.ITL = slices.Values([]float64{20, 20})
	var at int
	for second := 1; second <= 9 && at == 0; second++ {
		r.Silence = 1000 * float64(second)
		w.Request(r)
		if w.Tick(start.Add(time.Duration(second)*time.Second), nil) != nil {
			at = second
		}
	}
	require.Equal(t, 6, at, "over 3 s in second 4, and for 2 s in second 6")
	w = watch(t, `{itl_p50: "> 3s"}`)
	r.Silence = 4000
	w.Request(r)
	require.Nil(t, w.Tick(start.Add(time.Second), nil), "1 of 3")
	r.Silence, r.ITL = 10, slices.Values([]float64{20, 20, 4500})
	w.Request(r)
	require.Nil(t, w.Tick(start.Add(2*time.Second), nil), "1 of 3 still")
	r.Silence = 10
	r.ITL = slices.Values([]float64{20, 20, 4500, 5000})
	w.Request(r)
	require.Nil(t, w.Tick(start.Add(3*time.Second), nil), "2 of 4")
	r.ITL = slices.Values([]float64{20, 20, 4500, 5000, 5000})
	w.Request(r)
	require.Equal(t, "itl_p50 was over the limit for 3 of 5, the rule stops at > 3s", w.Tick(start.Add(4*time.Second), nil).Saw)

	// What a server takes from the last chunk to the end of the answer is no gap.
	w = watch(t, `{itl_max: "> 100ms for 1s"}`)
	for second := range 5 {
		r.Seq, r.Silence, r.ITL = uint64(second), 400, slices.Values([]float64{20}) //nolint:gosec // small
		w.Request(r)
		require.Nil(t, w.Tick(start.Add(time.Duration(second+1)*time.Second), nil))
	}
}

func TestWithoutAHoldingTimeAllOfTheSteadyPhaseCounts(t *testing.T) {
	t.Parallel()
	good, bad := repeat(1, ok(1), ok(1), ok(1), ok(1))[0], []abort.Request{failed(), failed(), failed(), failed()}
	at, _ := run(watch(t, `{error_rate: "> 20%"}`), good, good, good, good, bad)
	require.Zero(t, at, "4 of 20 are not above 20 %, though all of the last second failed")
	at, tripped := run(watch(t, `{error_rate: "> 20%"}`), good, good, good, good, bad, bad)
	require.Equal(t, 6, at)
	require.Equal(t, "error_rate was 33.3%, the rule stops at > 20%", tripped.Saw)
	at, tripped = run(watch(t, `{ttft_p75: "> 10s"}`), good, good, good, bad, good, bad)
	require.Equal(t, 6, at)
	require.Equal(t, "ttft_p75 was over the limit for 8 of 24, the rule stops at > 10s", tripped.Saw)
	r := ok(1)
	r.CompletionTokens = 50
	at, _ = run(watch(t, `{output_tokens_per_second: "< 60 tokens/s"}`), []abort.Request{r, r}, []abort.Request{r}, nil, []abort.Request{r})
	require.Equal(t, 3, at, "150 tokens in 3 s")
	r.OutputTPS = 10
	slow := r
	slow.OutputTPS = 1
	at, _ = run(watch(t, `{output_tps_p10: "< 5"}`), repeat(9, r)...)
	require.Zero(t, at)
	at, _ = run(watch(t, `{output_tps_p10: "< 5"}`), append(repeat(19, r), repeat(3, slow)...)...)
	require.Equal(t, 22, at, "3 of 22: the smallest three make the p10")
	at, _ = run(watch(t, `{requests_per_second: "< 1 for 1s"}`), repeat(5, failed())...)
	require.Equal(t, 2, at, "those that failed were not completed")
}

func client(t *testing.T, rule, limits string) *abort.Watch {
	t.Helper()
	c, err := contract.Load("slo.yaml", []byte("capacity_gate: {success_rate: \">= 0.9\"}\nabort: {client_headroom: "+rule+
		"}\nclient_headroom: "+limits+"\n"), func(string) (string, bool) { return "", false })
	require.NoError(t, err)

	return abort.NewWatch(c, start)
}

func TestEveryLimitOfTheLoadGenerator(t *testing.T) {
	t.Parallel()
	tick := func(w *abort.Watch, second int) *abort.Tripped {
		return w.Tick(start.Add(time.Duration(second)*time.Second), nil)
	}
	w := client(t, "true", `{timer_delay_p99: "<= 10ms"}`)
	for second := range 4 {
		for n := range 50 {
			late := 1.0
			if n == 0 && second%3 == 0 {
				late = 40
			}
			w.Client("timer_delay", late)
		}
		require.Nil(t, tick(w, second+1), "one of a hundred")
	}
	for range 4 {
		w.Client("timer_delay", 21.5)
	}
	require.Equal(t, "client_headroom: timer_delay_p99 was over the limit in 6 of 204 samples, up to 40ms, its limit is <= 10ms", tick(w, 5).Saw)

	w = client(t, "true", `{cpu: "<= 70%"}`)
	w.Client("cpu", 0.5)
	require.Nil(t, tick(w, 1))
	w.Client("cpu", 0.95)
	require.Contains(t, tick(w, 2).Saw, "cpu was over the limit in 1 of 2 samples, up to 95%")
	w = client(t, "{for: 2s}", `{cpu: "<= 70%"}`)
	for second, cpu := range []float64{0.9, 0.9, 0.5, 0.9, 0.9} {
		w.Client("cpu", cpu)
		require.Nil(t, tick(w, second+1))
	}
	w.Client("cpu", 0.93)
	require.Equal(t, "client_headroom for 2s: cpu was 93%, its limit is <= 70%", tick(w, 6).Saw)

	w = client(t, "true", `{memory: "<= 50%"}`)
	w.Client("memory", 0.51)
	require.Contains(t, tick(w, 1).Saw, "memory was 51%")

	sent := func(w *abort.Watch, steady bool, second int, dropped bool) {
		at := start.Add(time.Duration(second) * 100 * time.Millisecond)
		a := abort.Arrival{Steady: steady, Due: at, Sent: at}
		if dropped {
			a.Sent = time.Time{}
		}
		w.Arrival(a)
	}
	w = client(t, "true", `{schedule_error: off}`)
	sent(w, false, 0, true)
	require.Nil(t, tick(w, 1), "warmup is not judged")
	sent(w, true, 1, false)
	require.Nil(t, tick(w, 2))
	sent(w, true, 2, true)
	require.Equal(t, "client_headroom: dropped was 1, its limit is == 0", tick(w, 3).Saw)
	w = client(t, "true", `{schedule_error: off, dropped: "<= 40%"}`)
	sent(w, true, 1, true)
	sent(w, true, 2, false)
	require.Contains(t, tick(w, 3).Saw, "dropped was 50%")

	w = client(t, "true", `{dropped: off}`) // leaves schedule_error: "<= 2%"
	for n := range 101 {
		sent(w, true, n, n%10 == 9)
		if n < 100 {
			require.Nil(t, tick(w, n), "a rate over less than 10 s")
		}
	}
	require.Contains(t, tick(w, 101).Saw, "schedule_error was 10%")

	w = client(t, "true", `{schedule_delay_p50: "<= 5ms"}`)
	w.Arrival(abort.Arrival{Steady: true, Sent: start})
	require.Nil(t, tick(w, 1))
	w.Arrival(abort.Arrival{Steady: true, Due: start, Sent: start.Add(7 * time.Millisecond)})
	require.Contains(t, tick(w, 2).Saw, "schedule_delay_p50 was 7ms, its limit is <= 5ms")
}
