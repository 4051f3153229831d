package llmtest

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const ms = time.Millisecond

// plainConfig has a step of 10 ms + 1 ms per prefill token + 2 ms per decoding sequence, so that times can be worked out by
// hand.
func plainConfig() Config {
	return Config{
		MaxNumSeqs: 4, MaxNumBatchedTokens: 100, NumBlocks: 1000, BlockSize: 4, MaxModelLen: 1000,
		StepBase: 10 * ms, StepPerPrefillToken: ms, StepPerSequence: 2 * ms, Seed: 1,
	}
}

func simulate(t testing.TB, cfg Config, arrivals ...Arrival) Result {
	t.Helper()
	res, err := Simulate(cfg, arrivals, SimOptions{KeepTokenTimes: true})
	require.NoError(t, err)
	return res
}

func TestOneRequestTakesItsStepsOneAfterAnother(t *testing.T) {
	res := simulate(t, plainConfig(), Arrival{At: 5 * ms, PromptTokens: 20, MaxTokens: 3})
	r := res.Requests[0]
	// Prefill step: 10 + 20 = 30 ms, from 5 to 35. Decode steps: 10 + 2 = 12 ms each.
	require.Equal(t, []time.Duration{35 * ms, 47 * ms, 59 * ms}, r.TokenTimes)
	require.Equal(t, Completed, r.Status)
	require.Equal(t, 5*ms, r.Scheduled)
	require.Equal(t, 59*ms, r.Ended)
	require.Equal(t, 12*ms, r.MaxGap)
	require.Equal(t, []time.Duration{12 * ms, 12 * ms}, r.ITLs())
	ttft, ok := r.TTFT()
	require.True(t, ok)
	require.Equal(t, 30*ms, ttft)
	tpot, ok := r.TPOT()
	require.True(t, ok)
	require.Equal(t, 12*ms, tpot)
	require.Equal(t, int64(3), res.Stats.Steps)
	require.Equal(t, 54*ms, res.Stats.Busy)
	require.Equal(t, int64(20), res.Stats.PromptTokens)
	require.Equal(t, int64(3), res.Stats.GenerationTokens)
	require.Zero(t, res.Stats.UsedBlocks)
}

func TestPrefillJoinsTheBatchAndSlowsDecoding(t *testing.T) {
	res := simulate(t, plainConfig(),
		Arrival{At: 0, PromptTokens: 10, MaxTokens: 4},
		Arrival{At: 15 * ms, PromptTokens: 30, MaxTokens: 2},
	)
	// 0–20: prefill of the first. At 20 both: 10 + 2 + 30 = 42, to 62. Then two decode: 14, to 76. The second has ended; the first
	// alone: 12, to 88.
	require.Equal(t, []time.Duration{20 * ms, 62 * ms, 76 * ms, 88 * ms}, res.Requests[0].TokenTimes)
	require.Equal(t, []time.Duration{62 * ms, 76 * ms}, res.Requests[1].TokenTimes)
	require.Equal(t, 20*ms, res.Requests[1].Scheduled)
	require.Equal(t, 42*ms, res.Requests[0].MaxGap)
}

func TestChunkedPrefillSharesTheBudgetWithDecodes(t *testing.T) {
	cfg := plainConfig()
	cfg.MaxNumBatchedTokens = 16
	res := simulate(t, cfg,
		Arrival{At: 0, PromptTokens: 8, MaxTokens: 5},
		Arrival{At: 1 * ms, PromptTokens: 40, MaxTokens: 1},
	)
	// 0–18 prefill of the first. Then 1 decode + 15 prefill: 27 ms, to 45; again, to 72; then 10 are left: 22 ms, to 94, which is
	// the second's only token; the first alone: 12, to 106.
	require.Equal(t, []time.Duration{18 * ms, 45 * ms, 72 * ms, 94 * ms, 106 * ms}, res.Requests[0].TokenTimes)
	require.Equal(t, []time.Duration{94 * ms}, res.Requests[1].TokenTimes)

	// Without chunks the second does not fit beside a decode, although the step has room for 15 tokens.
	cfg.DisableChunkedPrefill = true
	cfg.MaxModelLen = 16
	res = simulate(t, cfg,
		Arrival{At: 0, PromptTokens: 8, MaxTokens: 3},
		Arrival{At: 1 * ms, PromptTokens: 15, MaxTokens: 1},
		Arrival{At: 1 * ms, PromptTokens: 15, MaxTokens: 1},
	)
	// 18; decode + 15 prefill: 27, to 45; decode + 15 prefill: 27, to 72.
	require.Equal(t, []time.Duration{18 * ms, 45 * ms, 72 * ms}, res.Requests[0].TokenTimes)
	require.Equal(t, 18*ms, res.Requests[1].Scheduled)
	require.Equal(t, 45*ms, res.Requests[2].Scheduled)
}

func TestLongPrefillThresholdCapsOneRequest(t *testing.T) {
	cfg := plainConfig()
	cfg.LongPrefillTokenThreshold = 8
	res := simulate(t, cfg, Arrival{PromptTokens: 20, MaxTokens: 1})
	require.Equal(t, []time.Duration{(18 + 18 + 14) * ms}, res.Requests[0].TokenTimes)
}

func TestSlotsAreFirstComeFirstServed(t *testing.T) {
	cfg := plainConfig()
	cfg.MaxNumSeqs = 1
	res := simulate(t, cfg,
		Arrival{At: 0, PromptTokens: 10, MaxTokens: 2},
		Arrival{At: 1 * ms, PromptTokens: 10, MaxTokens: 1},
		Arrival{At: 2 * ms, PromptTokens: 10, MaxTokens: 1},
	)
	require.Equal(t, 32*ms, res.Requests[1].Scheduled)
	require.Equal(t, 52*ms, res.Requests[2].Scheduled)
	q, ok := res.Requests[2].QueueTime()
	require.True(t, ok)
	require.Equal(t, 50*ms, q)
}

func TestPrefixReuse(t *testing.T) {
	a, b, c, d := uint64(1), uint64(2), uint64(3), uint64(4)
	tests := []struct {
		name   string
		prompt int
		blocks []uint64
		cached int
	}{
		{"same prompt of whole blocks recomputes its last block", 12, []uint64{a, b, c}, 8},
		{"one token more leaves all blocks", 13, []uint64{a, b, c}, 12},
		{"common beginning", 16, []uint64{a, b, d, c}, 8},
		{"same block after another beginning is not the same", 13, []uint64{d, b, c}, 0},
		{"without ids nothing is shared", 13, nil, 0},
		{"ids beyond the full blocks are ignored", 11, []uint64{a, b, c}, 8},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res := simulate(t, plainConfig(),
				Arrival{PromptTokens: 12, MaxTokens: 1, Blocks: []uint64{a, b, c}},
				Arrival{At: time.Second, PromptTokens: tt.prompt, MaxTokens: 1, Blocks: tt.blocks},
			)
			r := res.Requests[1]
			require.Equal(t, tt.cached, r.CachedTokens)
			require.Equal(t, time.Second+10*ms+time.Duration(tt.prompt-tt.cached)*ms, r.FirstToken)
			require.Equal(t, int64(12+tt.prompt), res.Stats.PrefixQueries)
			require.Equal(t, int64(tt.cached), res.Stats.PrefixHits)
		})
	}

	t.Run("a block is found only behind its own beginning", func(t *testing.T) {
		res := simulate(t, plainConfig(),
			Arrival{PromptTokens: 13, MaxTokens: 1, Blocks: []uint64{a, b, c}},
			Arrival{At: time.Second, PromptTokens: 5, MaxTokens: 1, Blocks: []uint64{d}},
			Arrival{At: 2 * time.Second, PromptTokens: 13, MaxTokens: 1, Blocks: []uint64{d, b, c}},
		)
		require.Equal(t, 4, res.Requests[2].CachedTokens)
	})
	t.Run("within one step", func(t *testing.T) {
		same := Arrival{PromptTokens: 13, MaxTokens: 1, Blocks: []uint64{a, b, c}}
		res := simulate(t, plainConfig(), same, same)
		require.Equal(t, 12, res.Requests[1].CachedTokens)
		require.Equal(t, (10+13+1)*ms, res.Requests[1].FirstToken)
	})
	t.Run("turned off", func(t *testing.T) {
		cfg := plainConfig()
		cfg.DisablePrefixCaching = true
		same := Arrival{PromptTokens: 13, MaxTokens: 1, Blocks: []uint64{a, b, c}}
		res := simulate(t, cfg, same, same)
		require.Zero(t, res.Requests[1].CachedTokens)
		require.Zero(t, res.Stats.PrefixQueries)
	})
}

func TestEvictionIsLeastRecentlyUsedAndTailFirst(t *testing.T) {
	cfg := plainConfig()
	cfg.NumBlocks, cfg.MaxModelLen = 4, 16
	ask := func(at time.Duration, blocks ...uint64) Arrival {
		return Arrival{At: at, PromptTokens: 4*len(blocks) + 1, MaxTokens: 1, Blocks: blocks}
	}
	// The pool is 0 1 2 3. A takes 0 (a1), 1 (a2), 2 (partial) and frees them last first: 3 2 1 0. B takes 3 (b1) and 2: what
	// was never used and what holds nothing that can be found. A's two are still there.
	res := simulate(t, cfg, ask(0, 1, 2), ask(1*time.Second, 11), ask(2*time.Second, 1, 2))
	require.Equal(t, 8, res.Requests[2].CachedTokens)

	// After B the order is 1 0 2 3. One more block is A's tail; a1 stays.
	res = simulate(t, cfg, ask(0, 1, 2), ask(1*time.Second, 11), ask(2*time.Second), ask(3*time.Second, 1, 2))
	require.Equal(t, 4, res.Requests[3].CachedTokens)

	// Two more take all of A, but not the younger b1.
	res = simulate(t, cfg, ask(0, 1, 2), ask(1*time.Second, 11), ask(2*time.Second, 12), ask(3*time.Second, 11),
		ask(4*time.Second, 1, 2))
	require.Equal(t, 4, res.Requests[3].CachedTokens)
	require.Zero(t, res.Requests[4].CachedTokens)

	// Use in between makes A young again: then B's b1 is the victim, not A.
	res = simulate(t, cfg, ask(0, 1), ask(1*time.Second, 11), ask(2*time.Second, 1), ask(3*time.Second, 12, 13),
		ask(4*time.Second, 1))
	require.Equal(t, 4, res.Requests[2].CachedTokens)
	require.Equal(t, 4, res.Requests[4].CachedTokens)
}

func TestPreemptionRecomputesAndKeepsItsPlace(t *testing.T) {
	cfg := plainConfig()
	cfg.NumBlocks, cfg.MaxModelLen, cfg.DisablePrefixCaching = 4, 16, true
	res := simulate(t, cfg,
		Arrival{At: 0, PromptTokens: 7, MaxTokens: 3},
		Arrival{At: 0, PromptTokens: 7, MaxTokens: 3},
		Arrival{At: 1 * ms, PromptTokens: 5, MaxTokens: 1},
	)
	// 0–24: both prefill (7 + 7 tokens), two blocks each: the pool is full. 24–38: both decode, 14 ms; 8 tokens each. At 38 both need a
	// third block: the second is preempted, and nobody is admitted in this step. The first decodes alone, 12 ms, to 50, and
	// ends. At 50 the second is ahead of the third: 7 + 2 tokens to recompute in 3 blocks, 19 ms, to 69. The third needs 2 blocks and
	// gets them then: 15 ms, to 84.
	require.Equal(t, []time.Duration{24 * ms, 38 * ms, 50 * ms}, res.Requests[0].TokenTimes)
	require.Equal(t, []time.Duration{24 * ms, 38 * ms, 69 * ms}, res.Requests[1].TokenTimes)
	require.Equal(t, []time.Duration{84 * ms}, res.Requests[2].TokenTimes)
	require.Equal(t, 1, res.Requests[1].Preemptions)
	require.Equal(t, int64(1), res.Stats.Preemptions)
	require.Equal(t, time.Duration(0), res.Requests[1].Scheduled, "the first time counts")

	// With the prefix cache on, the preempted one finds its own first block again: the pool's reuse of the others costs it
	// the rest. 7 + 2 tokens, of which 4 or more are cached.
	cfg.DisablePrefixCaching = false
	res = simulate(t, cfg,
		Arrival{At: 0, PromptTokens: 7, MaxTokens: 3},
		Arrival{At: 0, PromptTokens: 7, MaxTokens: 3},
	)
	require.Equal(t, (50+10+5)*ms, res.Requests[1].LastToken)
	require.Zero(t, res.Requests[1].CachedTokens, "what preemption found is no prefix hit")
	require.Zero(t, res.Stats.PrefixHits)
}

func TestNobodyIsAdmittedInAStepThatPreempts(t *testing.T) {
	cfg := plainConfig()
	cfg.NumBlocks, cfg.MaxModelLen, cfg.DisablePrefixCaching, cfg.LongPrefillTokenThreshold = 4, 16, true, 4
	res := simulate(t, cfg,
		Arrival{At: 0, PromptTokens: 7, MaxTokens: 3},
		Arrival{At: 0, PromptTokens: 7, MaxTokens: 3},
	)
	// 4 + 4 tokens, to 18; 3 + 3, to 34; both decode, to 48. The second is preempted; a first piece of it would fit into the one
	// block left, but the first decodes alone: 12 ms, to 60. Then 4 and 4 tokens, 28 ms, and
	// the last one, which costs what a decoding sequence costs: 12 ms, to 100.
	require.Equal(t, []time.Duration{34 * ms, 48 * ms, 60 * ms}, res.Requests[0].TokenTimes)
	require.Equal(t, []time.Duration{34 * ms, 48 * ms, 100 * ms}, res.Requests[1].TokenTimes)
}

func TestBoundedQueueRejects(t *testing.T) {
	cfg := plainConfig()
	cfg.MaxNumSeqs, cfg.MaxWaiting = 1, 2
	var arrivals []Arrival
	for range 5 {
		arrivals = append(arrivals, Arrival{At: 1 * ms, PromptTokens: 10, MaxTokens: 1})
	}
	arrivals = append([]Arrival{{PromptTokens: 10, MaxTokens: 1}}, arrivals...)
	var ended []int
	res, err := Simulate(cfg, arrivals, SimOptions{OnEnd: func(i int, _ *RequestResult) { ended = append(ended, i) }})
	require.NoError(t, err)
	for i, want := range []Status{Completed, Completed, Completed, Rejected, Rejected, Rejected} {
		require.Equal(t, want, res.Requests[i].Status, i)
	}
	require.ErrorIs(t, res.Requests[3].Err, ErrQueueFull)
	require.Equal(t, 1*ms, res.Requests[3].Ended)
	require.Equal(t, int64(3), res.Stats.Rejected)
	require.Equal(t, []int{3, 4, 5, 0, 1, 2}, ended)
	_, ok := res.Requests[3].TTFT()
	require.False(t, ok)
}

func TestContextLength(t *testing.T) {
	cfg := plainConfig()
	cfg.MaxModelLen = 100
	res := simulate(t, cfg,
		Arrival{PromptTokens: 90, MaxTokens: 10},
		Arrival{PromptTokens: 90, MaxTokens: 11},
		Arrival{PromptTokens: 100, MaxTokens: 1},
		Arrival{PromptTokens: 0, MaxTokens: 1},
	)
	require.Equal(t, Completed, res.Requests[0].Status)
	var tooLong *ContextLengthError
	require.ErrorAs(t, res.Requests[1].Err, &tooLong)
	require.Equal(t, "This model's maximum context length is 100 tokens. However, you requested 11 output tokens and your "+
		"prompt contains 90 input tokens, for a total of 101 tokens (90 + 11 = 101 > 100). Please reduce the length of the "+
		"input prompt or the number of requested output tokens.", tooLong.Error())
	require.ErrorAs(t, res.Requests[2].Err, &tooLong)
	require.Contains(t, tooLong.Error(), "your request has 100 input tokens")
	require.Equal(t, Rejected, res.Requests[3].Status)
}

func TestCancellationFreesSlotAndBlocksAtOnce(t *testing.T) {
	cfg := plainConfig()
	cfg.MaxNumSeqs = 1
	res := simulate(t, cfg,
		Arrival{PromptTokens: 10, MaxTokens: 100, CancelAt: 25 * ms}, // its second step runs from 20 to 32
		Arrival{At: 1 * ms, PromptTokens: 10, MaxTokens: 100, CancelAt: 10 * ms},
		Arrival{At: 2 * ms, PromptTokens: 10, MaxTokens: 1},
	)
	r := res.Requests
	require.Equal(t, Cancelled, r[0].Status)
	require.Equal(t, []time.Duration{20 * ms}, r[0].TokenTimes, "the step under way gives it nothing")
	require.Equal(t, 25*ms, r[0].Ended)
	require.Equal(t, Cancelled, r[1].Status)
	require.Equal(t, Never, r[1].Scheduled)
	require.Equal(t, 32*ms, r[2].Scheduled)
	require.Equal(t, int64(2), res.Stats.Cancelled)

	sim, err := NewSim(cfg, SimOptions{})
	require.NoError(t, err)
	_, err = sim.Add(Arrival{PromptTokens: 10, MaxTokens: 100, CancelAt: 25 * ms})
	require.NoError(t, err)
	sim.AdvanceTo(24 * ms)
	require.Equal(t, 3, sim.Stats().UsedBlocks)
	require.Equal(t, 1, sim.Stats().Running)
	sim.AdvanceTo(25 * ms)
	require.Zero(t, sim.Stats().UsedBlocks)
	require.Zero(t, sim.Stats().Running)
}

func TestStallsDelayTheStepTheyFallInto(t *testing.T) {
	cfg := plainConfig()
	cfg.Stalls = []Stall{{At: 40 * ms, For: time.Second}}
	res := simulate(t, cfg,
		Arrival{At: 5 * ms, PromptTokens: 20, MaxTokens: 3},
		Arrival{At: 2 * time.Second, PromptTokens: 20, MaxTokens: 1},
	)
	require.Equal(t, []time.Duration{35 * ms, 1047 * ms, 1059 * ms}, res.Requests[0].TokenTimes)
	require.Equal(t, []time.Duration{2030 * ms}, res.Requests[1].TokenTimes)

	sim, err := NewSim(plainConfig(), SimOptions{})
	require.NoError(t, err)
	i, err := sim.Add(Arrival{PromptTokens: 20, MaxTokens: 2})
	require.NoError(t, err)
	sim.AdvanceTo(35 * ms) // the second step runs from 30 to 42
	sim.Stall(100 * ms)
	sim.Run()
	require.Equal(t, 142*ms, sim.Request(i).LastToken)
	j, err := sim.Add(Arrival{At: 150 * ms, PromptTokens: 20, MaxTokens: 1})
	require.NoError(t, err)
	sim.AdvanceTo(150 * ms)
	sim.Stall(50 * ms) // before the step begins
	sim.Run()
	require.Equal(t, 230*ms, sim.Request(j).LastToken)
}

func TestIncrementalDrivingEqualsSimulate(t *testing.T) {
	cfg := plainConfig()
	cfg.StepJitter = 0.2
	arrivals := randomArrivals(rand.New(rand.NewPCG(3, 4)), 200, 20*ms)
	want, err := Simulate(cfg, arrivals, SimOptions{KeepTokenTimes: true})
	require.NoError(t, err)

	sim, err := NewSim(cfg, SimOptions{KeepTokenTimes: true})
	require.NoError(t, err)
	for _, a := range arrivals { // in order of time: each is added only when the clock has reached it
		sim.AdvanceTo(a.At)
		_, err := sim.Add(a)
		require.NoError(t, err)
	}
	sim.Run()
	require.Equal(t, want.Requests, sim.Result().Requests)
	require.Equal(t, want.Stats, sim.Result().Stats)
	_, err = sim.Add(Arrival{At: 0, PromptTokens: 1, MaxTokens: 1})
	require.ErrorContains(t, err, "lies before the simulated time")
}

func TestWhatHappensAtTheSameInstant(t *testing.T) {
	// The last token comes first, then the client leaves.
	res := simulate(t, plainConfig(), Arrival{PromptTokens: 10, MaxTokens: 1, CancelAt: 20 * ms})
	require.Equal(t, Completed, res.Requests[0].Status)

	// What arrives when a step ends is in the next, also if it was added only then.
	want := simulate(t, plainConfig(),
		Arrival{PromptTokens: 10, MaxTokens: 2}, Arrival{At: 20 * ms, PromptTokens: 30, MaxTokens: 1})
	require.Equal(t, 20*ms, want.Requests[1].Scheduled)
	sim, err := NewSim(plainConfig(), SimOptions{KeepTokenTimes: true})
	require.NoError(t, err)
	_, err = sim.Add(Arrival{PromptTokens: 10, MaxTokens: 2})
	require.NoError(t, err)
	sim.AdvanceTo(20 * ms)
	_, err = sim.Add(Arrival{At: 20 * ms, PromptTokens: 30, MaxTokens: 1})
	require.NoError(t, err)
	sim.Run()
	require.Equal(t, want.Requests, sim.Result().Requests)
}

func TestClosedLoopThroughOnEnd(t *testing.T) {
	var sim *Sim
	left := 4
	sim, err := NewSim(plainConfig(), SimOptions{OnEnd: func(int, *RequestResult) {
		if left--; left > 0 {
			_, err := sim.Add(Arrival{At: sim.Now(), PromptTokens: 10, MaxTokens: 1})
			require.NoError(t, err)
		}
	}})
	require.NoError(t, err)
	_, err = sim.Add(Arrival{PromptTokens: 10, MaxTokens: 1})
	require.NoError(t, err)
	sim.Run()
	res := sim.Result()
	require.Len(t, res.Requests, 4)
	require.Equal(t, 80*ms, res.End, "four requests of 20 ms, each begun when the one before had ended")
}

func TestSamplesShowTheStateAfterWhatHappened(t *testing.T) {
	cfg := plainConfig()
	cfg.MaxNumSeqs, cfg.NumBlocks = 1, 250
	res, err := Simulate(cfg, []Arrival{
		{PromptTokens: 10, MaxTokens: 2},
		{At: 10 * ms, PromptTokens: 10, MaxTokens: 1},
	}, SimOptions{SampleEvery: 10 * ms})
	require.NoError(t, err)
	// 0–20 and 20–32 the first (3 blocks), 32–52 the second.
	require.Equal(t, []Sample{
		{At: 0, Running: 1, KVUsage: 3. / 250},
		{At: 10 * ms, Waiting: 1, Running: 1, KVUsage: 3. / 250},
		{At: 20 * ms, Waiting: 1, Running: 1, KVUsage: 3. / 250},
		{At: 30 * ms, Waiting: 1, Running: 1, KVUsage: 3. / 250},
		{At: 40 * ms, Running: 1, KVUsage: 3. / 250},
		{At: 50 * ms, Running: 1, KVUsage: 3. / 250},
	}, res.Series)
	require.Equal(t, 52*ms, res.End)
}

func TestUntilLeavesRequestsUnfinished(t *testing.T) {
	res, err := Simulate(plainConfig(), []Arrival{{PromptTokens: 20, MaxTokens: 3}}, SimOptions{Until: 40 * ms})
	require.NoError(t, err)
	require.Equal(t, Unfinished, res.Requests[0].Status)
	require.Equal(t, 1, res.Requests[0].OutputTokens)
	require.Equal(t, 30*ms, res.Requests[0].LastToken)
	require.Equal(t, 40*ms, res.End)
	_, ok := res.Requests[0].E2E()
	require.False(t, ok)
}

func TestEqualSeedsGiveEqualRunsAndOthersDoNot(t *testing.T) {
	cfg := plainConfig()
	cfg.StepJitter = 0.3
	arrivals := randomArrivals(rand.New(rand.NewPCG(1, 2)), 300, 15*ms)
	first, err := Simulate(cfg, arrivals, SimOptions{KeepTokenTimes: true, SampleEvery: 50 * ms})
	require.NoError(t, err)
	second, err := Simulate(cfg, arrivals, SimOptions{KeepTokenTimes: true, SampleEvery: 50 * ms})
	require.NoError(t, err)
	require.Equal(t, first, second)
	cfg.Seed++
	third, err := Simulate(cfg, arrivals, SimOptions{KeepTokenTimes: true})
	require.NoError(t, err)
	require.False(t, reflect.DeepEqual(first.Requests, third.Requests))
}

func TestJitterHasMeanOne(t *testing.T) {
	cfg := plainConfig()
	cfg.StepJitter = 0.5
	cfg.NumBlocks, cfg.MaxModelLen = 30000, 100_001
	res, err := Simulate(cfg, []Arrival{{PromptTokens: 1, MaxTokens: 100_000}}, SimOptions{})
	require.NoError(t, err)
	tpot, _ := res.Requests[0].TPOT()
	// The factor's deviation is sqrt(exp(0.25)-1) = 0.53; over 1e5 steps the mean's is 0.17 %. Five of these.
	require.InEpsilon(t, float64(12*ms), float64(tpot), 0.0085)
}

func randomArrivals(rng *rand.Rand, n int, meanGap time.Duration) []Arrival {
	out := make([]Arrival, n)
	var at time.Duration
	for i := range out {
		at += time.Duration(rng.ExpFloat64() * float64(meanGap))
		a := Arrival{At: at, PromptTokens: 1 + rng.IntN(60), MaxTokens: 1 + rng.IntN(20)}
		for range a.PromptTokens / 4 {
			a.Blocks = append(a.Blocks, rng.Uint64N(3))
		}
		if rng.IntN(5) == 0 {
			a.CancelAt = at + time.Duration(rng.Int64N(int64(300*ms)))
		}
		out[i] = a
	}
	return out
}

// checkEngine finds broken promises of the engine's state.
func checkEngine(e *Engine) error {
	refs := make([]int32, len(e.pool.blocks))
	for _, s := range e.running {
		if s.Status != Running {
			return errors.New("a sequence that does not run is in the running list")
		}
		if e.inStep && len(s.blocks) < ceilDiv(s.computed+s.stepTokens, e.cfg.BlockSize) {
			return errors.New("a sequence has too few blocks for its tokens")
		}
		for _, id := range s.blocks {
			refs[id]++
		}
	}
	free, listed := 0, 0
	for i := range e.pool.blocks {
		if e.pool.blocks[i].refs != refs[i] {
			return errors.New("a block's count of users is wrong")
		}
		if refs[i] == 0 {
			free++
		}
		if b := &e.pool.blocks[i]; b.hashed && e.pool.byHash[b.hash] != int32(i) { //nolint:gosec // a test's small number
			return errors.New("a block that can be found is found elsewhere")
		}
	}
	for id := e.pool.head; id != noBlock; id = e.pool.blocks[id].next {
		if listed++; listed > len(e.pool.blocks) {
			return errors.New("the free list has a loop")
		}
		if refs[id] != 0 {
			return errors.New("a block in use is in the free list")
		}
	}
	if free != e.pool.free || free != listed {
		return errors.New("free blocks are miscounted")
	}
	if len(e.running) > e.cfg.MaxNumSeqs {
		return errors.New("more sequences run than MaxNumSeqs")
	}
	waiting := 0
	for _, s := range e.waiting.items[e.waiting.head:] {
		if s != nil && s.Status == Waiting {
			waiting++
			if len(s.blocks) > 0 {
				return errors.New("a waiting sequence has blocks")
			}
		}
	}
	if waiting != e.waiting.len() {
		return errors.New("waiting sequences are miscounted")
	}
	if e.inStep {
		tokens := 0
		for _, s := range e.batch {
			tokens += s.stepTokens
			if s.stepTokens < 1 {
				return errors.New("a sequence is in the batch without a token")
			}
		}
		if tokens > e.cfg.MaxNumBatchedTokens {
			return errors.New("the batch is over the token budget")
		}
	}
	return nil
}

func TestSchedulerKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{
			MaxNumSeqs:           rapid.IntRange(1, 6).Draw(t, "seqs"),
			BlockSize:            rapid.IntRange(1, 8).Draw(t, "blockSize"),
			MaxModelLen:          rapid.IntRange(8, 60).Draw(t, "maxModelLen"),
			MaxWaiting:           rapid.IntRange(0, 8).Draw(t, "maxWaiting"),
			DisablePrefixCaching: rapid.Bool().Draw(t, "noCache"),
			StepBase:             10 * ms, StepPerPrefillToken: ms, StepPerSequence: 2 * ms,
			StepJitter: rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "jitter"), Seed: 7,
		}
		cfg.MaxNumBatchedTokens = cfg.MaxNumSeqs + rapid.IntRange(0, 40).Draw(t, "budget")
		cfg.NumBlocks = ceilDiv(cfg.MaxModelLen, cfg.BlockSize) + rapid.IntRange(0, 30).Draw(t, "blocks")
		if rapid.Bool().Draw(t, "long") {
			cfg.LongPrefillTokenThreshold = rapid.IntRange(1, 20).Draw(t, "threshold")
		} else if cfg.MaxNumBatchedTokens >= cfg.MaxModelLen {
			cfg.DisableChunkedPrefill = rapid.Bool().Draw(t, "noChunks")
		}
		if rapid.Bool().Draw(t, "stall") {
			cfg.Stalls = []Stall{{At: 100 * ms, For: 50 * ms}}
		}
		ends := map[int]int{}
		tokens := map[int]int{}
		sim, err := NewSim(cfg, SimOptions{
			KeepTokenTimes: true,
			OnEnd:          func(i int, _ *RequestResult) { ends[i]++ },
			OnToken:        func(i int, _, _ time.Duration) { tokens[i]++ },
		})
		if err != nil {
			t.Fatal(err)
		}
		n := rapid.IntRange(1, 30).Draw(t, "arrivals")
		var at time.Duration
		for range n {
			at += time.Duration(rapid.IntRange(0, 40).Draw(t, "gap")) * ms
			a := Arrival{
				At:           at,
				PromptTokens: rapid.IntRange(1, 50).Draw(t, "prompt"),
				MaxTokens:    rapid.IntRange(1, 30).Draw(t, "output"),
				Blocks:       rapid.SliceOfN(rapid.Uint64Range(1, 2), 0, 8).Draw(t, "content"),
			}
			if rapid.IntRange(0, 3).Draw(t, "cancels") == 0 {
				a.CancelAt = at + time.Duration(rapid.IntRange(0, 400).Draw(t, "stay"))*ms
			}
			if _, err := sim.Add(a); err != nil {
				t.Fatal(err)
			}
		}
		for before := sim.Now(); sim.Step(); before = sim.Now() {
			if sim.Now() < before {
				t.Fatal("time runs backwards")
			}
			if err := checkEngine(sim.engine); err != nil {
				t.Fatalf("at %v: %v", sim.Now(), err)
			}
		}
		checkResults(t, sim, cfg, ends, tokens)
	})
}

func checkResults(t *rapid.T, sim *Sim, cfg Config, ends, tokens map[int]int) {
	res := sim.Result()
	if res.Stats.UsedBlocks != 0 || res.Stats.Running != 0 || res.Stats.Waiting != 0 {
		t.Fatalf("the engine is not idle at the end: %+v", res.Stats)
	}
	var lastScheduled time.Duration
	var generated int64
	for i, r := range res.Requests {
		a := sim.arrivals[i]
		if ends[i] != 1 {
			t.Fatalf("request %d ended %d times", i, ends[i])
		}
		if tokens[i] != r.OutputTokens || len(r.TokenTimes) != r.OutputTokens {
			t.Fatalf("request %d: %d tokens seen, %d times, %d reported", i, tokens[i], len(r.TokenTimes), r.OutputTokens)
		}
		generated += int64(r.OutputTokens)
		switch r.Status {
		case Completed:
			if r.OutputTokens != a.MaxTokens || r.Ended != r.LastToken {
				t.Fatalf("request %d completed with %d of %d tokens", i, r.OutputTokens, a.MaxTokens)
			}
		case Cancelled:
			if r.Ended != a.CancelAt || r.OutputTokens >= a.MaxTokens {
				t.Fatalf("request %d was cancelled at %v: %+v", i, a.CancelAt, r)
			}
		case Rejected:
			if r.Err == nil || (errors.Is(r.Err, ErrQueueFull) && cfg.MaxWaiting == 0) {
				t.Fatalf("request %d was rejected: %v", i, r.Err)
			}
		default:
			t.Fatalf("request %d is %v", i, r.Status)
		}
		if r.CachedTokens%cfg.BlockSize != 0 || r.CachedTokens >= a.PromptTokens {
			t.Fatalf("request %d had %d of %d prompt tokens cached", i, r.CachedTokens, a.PromptTokens)
		}
		if r.Scheduled == Never {
			continue
		}
		if r.Scheduled < lastScheduled {
			t.Fatalf("request %d was scheduled at %v, before one that came before it (%v)", i, r.Scheduled, lastScheduled)
		}
		lastScheduled = r.Scheduled
		for k := 1; k < len(r.TokenTimes); k++ {
			if r.TokenTimes[k] <= r.TokenTimes[k-1] {
				t.Fatalf("request %d: token %d is not after the one before", i, k)
			}
		}
	}
	if generated != res.Stats.GenerationTokens {
		t.Fatalf("%d tokens in results, %d counted", generated, res.Stats.GenerationTokens)
	}
}

func poissonArrivals(rate float64, n, prompt, output int, seed uint64) []Arrival {
	rng := rand.New(rand.NewPCG(seed, 1))
	out := make([]Arrival, n)
	at := 0.0
	for i := range out {
		at += rng.ExpFloat64() / rate
		out[i] = Arrival{At: time.Duration(at * 1e9), PromptTokens: prompt, MaxTokens: output}
	}
	return out
}

func TestThroughputSaturatesAtCapacity(t *testing.T) {
	slots := DefaultConfig()
	budget := DefaultConfig()
	budget.MaxNumBatchedTokens = 256
	blocks := DefaultConfig()
	blocks.NumBlocks, blocks.MaxModelLen = 1024, 1024
	tests := []struct {
		name           string
		cfg            Config
		prompt, output int
		tolerance      float64
	}{
		{"bound by slots", slots, 200, 100, 0.02},
		{"bound by slots, long answers", slots, 50, 400, 0.02},
		{"bound by the token budget", budget, 1000, 100, 0.03},
		{"bound by KV blocks", blocks, 500, 60, 0.12},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			capacity := tt.cfg.Capacity(float64(tt.prompt), float64(tt.output))
			const n = 4000
			run := func(load float64) Result {
				res, err := Simulate(tt.cfg, poissonArrivals(load*capacity, n, tt.prompt, tt.output, 5),
					SimOptions{SampleEvery: time.Second})
				require.NoError(t, err)
				return res
			}
			over := run(2)
			completedRate := n / over.End.Seconds()
			require.InEpsilon(t, capacity, completedRate, tt.tolerance)
			// At twice the capacity half of what came is still there when the last has come.
			last := over.Requests[n-1].Arrived
			backlog := 0
			for _, s := range over.Series {
				if s.At <= last {
					backlog = s.Waiting + s.Running
				}
			}
			require.InEpsilon(t, n/2, float64(backlog), 0.15)

			under := run(0.7)
			worst := 0
			for _, s := range under.Series {
				worst = max(worst, s.Waiting)
			}
			require.Less(t, worst, tt.cfg.MaxNumSeqs, "below capacity the queue stays short")
			require.InEpsilon(t, 0.7*capacity, n/under.End.Seconds(), 0.05)
		})
	}
}

func TestConfigErrorsNameEveryField(t *testing.T) {
	_, err := NewEngine(Config{
		MaxNumSeqs: 8, MaxNumBatchedTokens: 4, NumBlocks: 2, BlockSize: 16, MaxModelLen: 100, MaxWaiting: -1, StepJitter: math.NaN(),
		Stalls: []Stall{{At: -1}},
	})
	for _, want := range []string{
		"MaxNumBatchedTokens is 4, expected at least MaxNumSeqs (8)",
		"NumBlocks is 2, expected at least 7 to hold one sequence of MaxModelLen",
		"MaxWaiting is -1", "StepBase is 0s", "StepJitter is NaN", "Stalls[0] is {At: -1ns, For: 0s}",
	} {
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, DefaultConfig().Validate())
	require.Equal(t, 10*ms+3*ms+4*ms, plainConfig().StepTime(3, 2))
}

func TestExpandBlocks(t *testing.T) {
	small := ExpandBlocks([]uint64{7, 8}, 512, 16)
	require.Len(t, small, 64)
	require.Equal(t, small[:32], ExpandBlocks([]uint64{7, 9}, 512, 16)[:32])
	seen := map[uint64]bool{}
	for _, id := range small {
		seen[id] = true
	}
	require.Len(t, seen, 64)
	require.Nil(t, ExpandBlocks([]uint64{7}, 500, 16))
}

func TestManyCancellationsInALongQueue(t *testing.T) {
	cfg := plainConfig()
	cfg.MaxNumSeqs = 1
	arrivals := make([]Arrival, 0, 2001)
	arrivals = append(arrivals, Arrival{PromptTokens: 10, MaxTokens: 500})
	for i := range 2000 {
		a := Arrival{At: ms, PromptTokens: 10, MaxTokens: 1}
		if i%10 != 9 {
			a.CancelAt = 2 * ms
		}
		arrivals = append(arrivals, a)
	}
	sim, err := NewSim(cfg, SimOptions{})
	require.NoError(t, err)
	for _, a := range arrivals {
		_, err := sim.Add(a)
		require.NoError(t, err)
	}
	sim.AdvanceTo(3 * ms)
	require.Equal(t, 200, sim.Stats().Waiting)
	require.Less(t, len(sim.engine.waiting.items), 500, "tombstones do not pile up")
	require.NoError(t, checkEngine(sim.engine))
	sim.Run()
	require.Equal(t, int64(201), sim.Stats().Completed)
}

func BenchmarkSimulate(b *testing.B) {
	cfg := DefaultConfig()
	arrivals := poissonArrivals(0.9*cfg.Capacity(200, 100), 20_000, 200, 100, 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Simulate(cfg, arrivals, SimOptions{SampleEvery: time.Second}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(arrivals)*100)*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
}
