package verdict

import (
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/llm/llmtest"
)

// service is a simulated engine and a workload on it, whose true capacity is known.
type service struct {
	name   string
	engine llmtest.Config
	// Lengths are lognormal with these means (before they are cut off) and this standard deviation of the logarithm;
	// 0 gives constant lengths.
	prompt, output, sigma float64
	// burstiness is the Gamma shape of the gaps between arrivals; +Inf for constant gaps.
	burstiness float64
}

const (
	longestPrompt = 6000
	longestOutput = 2000
)

// fastEngine serves about 20 requests per second of 500 prompt tokens.
func fastEngine() llmtest.Config {
	engine := llmtest.DefaultConfig()
	engine.NumBlocks = 8192
	engine.DisablePrefixCaching = true
	return engine
}

func heavyBursty() service {
	return service{name: "fast, heavy-tailed, k=0.3", engine: fastEngine(), prompt: 500, output: 120, sigma: 1, burstiness: 0.3}
}

func poisson() service {
	return service{name: "fast, heavy-tailed, Poisson", engine: fastEngine(), prompt: 500, output: 120, sigma: 1, burstiness: 1}
}

// meanLength is the mean of min(cut, lognormal) with the lognormal's mean and sigma: for Z standard normal and
// X = exp(mu + sigma Z), E min(X, c) = mean·Φ((ln c - mu)/sigma - sigma) + c·(1 - Φ((ln c - mu)/sigma)).
func meanLength(m, sigma, cut float64) float64 {
	if sigma == 0 {
		return m
	}
	mu := math.Log(m) - sigma*sigma/2
	z := (math.Log(cut) - mu) / sigma
	return m*distuv.UnitNormal.CDF(z-sigma) + cut*(1-distuv.UnitNormal.CDF(z))
}

func (s service) capacity() float64 {
	return s.engine.Capacity(meanLength(s.prompt, s.sigma, longestPrompt), meanLength(s.output, s.sigma, longestOutput))
}

func (s service) arrivals(rate float64, length time.Duration, seed uint64) []llmtest.Arrival {
	rng := rand.New(rand.NewPCG(seed, 0x5afe)) //nolint:gosec // a reproducible workload
	gap := func() float64 { return 1 / rate }
	if !math.IsInf(s.burstiness, 1) {
		gap = distuv.Gamma{Alpha: s.burstiness, Beta: s.burstiness * rate, Src: rng}.Rand
	}
	tokens := func(m, cut float64) int {
		if s.sigma == 0 {
			return int(m)
		}
		return max(1, int(math.Min(cut, m*math.Exp(s.sigma*rng.NormFloat64()-s.sigma*s.sigma/2))))
	}
	var all []llmtest.Arrival
	for at := gap(); at < length.Seconds(); at += gap() {
		all = append(all, llmtest.Arrival{
			At:           time.Duration(at * float64(time.Second)),
			PromptTokens: tokens(s.prompt, longestPrompt), MaxTokens: tokens(s.output, longestOutput),
		})
	}
	return all
}

// trial is a run of a service at a share of its capacity.
type trial struct {
	requests []results.Request
	samples  []results.Sample
}

var epoch = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func ms(d time.Duration, ok bool) results.Number {
	if !ok {
		return results.Number{}
	}
	return results.Num(float64(d) / float64(time.Millisecond))
}

// drain is the time without load at the end of a trial, in which what was started can end.
const drain = 2 * time.Minute

// run plays a warmup and a steady phase, and a recovery without load.
func (s service) run(t testing.TB, load float64, warmup, length time.Duration, seed uint64) trial {
	t.Helper()
	engine := s.engine
	engine.Seed = seed
	loaded := warmup + length
	end := loaded + drain
	arrivals := s.arrivals(load*s.capacity(), loaded, seed)
	sim, err := llmtest.Simulate(engine, arrivals, llmtest.SimOptions{SampleEvery: time.Second, Until: end})
	require.NoError(t, err)

	phaseOf := func(at time.Duration) string {
		switch {
		case at < warmup:
			return "warmup"
		case at < loaded:
			return steady
		}
		return "recovery"
	}
	var tr trial
	offered := make([]int64, int(end/time.Second)+1)
	completed := make([]int64, len(offered))
	for i := range sim.Requests {
		r := &sim.Requests[i]
		offered[int(r.Arrived/time.Second)]++
		request := results.Request{
			Row: int64(i), Phase: phaseOf(r.Arrived), Due: epoch.Add(r.Arrived), Start: epoch.Add(r.Arrived),
			TTFT: ms(r.TTFT()), TPOT: ms(r.TPOT()), E2E: ms(r.E2E()),
			Completion: results.IntOf(int64(r.OutputTokens)), CompletionAsked: results.IntOf(int64(arrivals[i].MaxTokens)),
		}
		switch r.Status {
		case llmtest.Completed:
			request.Outcome = results.OK
			completed[int(r.Ended/time.Second)]++
		default:
			request.Outcome, request.ErrorType = results.InFlight, "interrupted"
			request.Elapsed = ms(end-r.Arrived, true)
			request.TPOT = results.Number{}
		}
		tr.requests = append(tr.requests, request)
	}
	for i, sample := range sim.Series[:len(offered)-1] {
		inFlight := int64(sample.Waiting + sample.Running)
		tr.samples = append(tr.samples, results.Sample{
			Time: epoch.Add(sample.At), Phase: phaseOf(sample.At), Offered: &offered[i], Started: &offered[i],
			Completed: &completed[i], InFlight: &inFlight, Server: map[string]float64{"queue_depth": float64(sample.Waiting)},
		})
	}
	return tr
}

const truthContract = `
capacity_gate:
  success_rate: ">= 0.99"
  ttft_p95: "<= 2s"
  ttft_p99: "<= 4s"
  e2e_p99: "<= 60s"
  queue_growth: no_sustained_growth
phases: {warmup: 1m, steady: 10m, recovery: 0s}
`

func load(t testing.TB, text string) *contract.Contract {
	t.Helper()
	c, err := contract.Load("slo.yaml", []byte(text), nil)
	require.NoError(t, err)
	return c
}

// judge judges a trial without a detour over files.
func (tr trial) judge(t testing.TB, c *contract.Contract) *Result {
	t.Helper()
	j := &judge{
		run: &results.Run{Info: results.Info{Ended: epoch.Add(time.Hour)}}, contract: c, confidence: c.Confidence,
		series: series{samples: tr.samples}, table: &table{},
	}
	for i := range tr.requests {
		j.table.add(&tr.requests[i])
	}
	out := &Result{Confidence: c.Confidence, Counts: j.table.counts, Ended: j.run.Info.Ended}
	require.NoError(t, j.fill(out))
	return out
}

// verdicts counts the verdicts on seeds runs of ten minutes.
func (s service) verdicts(t *testing.T, load float64, c *contract.Contract, seeds uint64) map[Status]int {
	t.Helper()
	counts := make(map[Status]int)
	var mu sync.Mutex
	var wg sync.WaitGroup
	limit := make(chan struct{}, runtime.GOMAXPROCS(0))
	for seed := range seeds {
		wg.Add(1)
		limit <- struct{}{}
		go func() {
			defer wg.Done()
			got := s.run(t, load, time.Minute, 10*time.Minute, seed).judge(t, c).Verdict
			<-limit
			mu.Lock()
			defer mu.Unlock()
			counts[got]++
		}()
	}
	wg.Wait()
	return counts
}

func TestKnownTruth(t *testing.T) {
	c := load(t, truthContract)
	const seeds = 12
	for _, s := range []service{heavyBursty(), poisson()} {
		counts := s.verdicts(t, 0.8, c, seeds)
		require.GreaterOrEqual(t, counts[Pass], seeds-1, "%s at 80 %%: %v", s.name, counts)
		require.Zero(t, counts[Fail], "%s at 80 %%: %v", s.name, counts)
		counts = s.verdicts(t, 1.1, c, seeds/2)
		require.Equal(t, seeds/2, counts[Fail], "%s at 110 %%: %v", s.name, counts)
	}
}

func TestVerdictFromFilesIsTheSame(t *testing.T) {
	c := load(t, truthContract)
	for _, share := range []float64{0.8, 1.1} {
		tr := poisson().run(t, share, time.Minute, 5*time.Minute, 1)
		want := tr.judge(t, c)
		run := (&recorded{requests: tr.requests, samples: tr.samples}).write(t)
		got, err := Judge(run, c)
		require.NoError(t, err)
		require.Equal(t, want.Verdict, got.Verdict)
		require.Equal(t, want.Counts, got.Counts)
		for i := range want.Criteria {
			if want.Criteria[i].Measured != nil { // the files keep microseconds
				require.InDelta(t, *want.Criteria[i].Measured, *got.Criteria[i].Measured, 0.001)
				got.Criteria[i].Measured = want.Criteria[i].Measured
			}
			require.Equal(t, want.Criteria[i], got.Criteria[i])
		}
	}
}
