//go:build study

package compare

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/llm/llmtest"
	"github.com/safeqps/xk6-safeqps/trace/arrival"
)

// The study prints the tables of docs/compare.md:
//
//	go test -tags study -run Study -timeout 30m -v ./gate/compare

// engineRun is a run of the simulated engine: the workload's seed decides arrivals and lengths, the engine's what it does
// with them. slower scales the time of its steps.
func engineRun(t *testing.T, load float64, workload, engine uint64, slower float64) *sample {
	t.Helper()
	cfg := llmtest.DefaultConfig()
	cfg.MaxNumSeqs, cfg.StepJitter, cfg.Seed = 16, 0.3, engine
	cfg.DisablePrefixCaching = true
	rate := load * cfg.Capacity(200, 40)
	scale := func(d time.Duration) time.Duration { return time.Duration(slower * float64(d)) }
	cfg.StepBase, cfg.StepPerPrefillToken, cfg.StepPerSequence = scale(cfg.StepBase), scale(cfg.StepPerPrefillToken), scale(cfg.StepPerSequence)
	due, err := arrival.Schedule(arrival.Config{
		Rate: rate, Burstiness: 1, Duration: 5 * time.Minute, FreeCount: true, Seed: arrival.Derive(workload, "arrivals"),
	})
	require.NoError(t, err)
	rng := rand.New(arrival.NewSource(workload, "lengths"))
	arrivals := make([]llmtest.Arrival, len(due))
	for i, at := range due {
		tokens := func(mean float64) int { return max(2, int(mean*math.Exp(0.6*rng.NormFloat64()-0.18))) }
		arrivals[i] = llmtest.Arrival{At: at, PromptTokens: tokens(200), MaxTokens: tokens(40)}
	}
	sim, err := llmtest.Simulate(cfg, arrivals, llmtest.SimOptions{})
	require.NoError(t, err)
	s := &sample{seconds: 300, completed: make([]float64, 300), tokens: make([]float64, 300)}
	for i := range sim.Requests {
		r := &sim.Requests[i]
		ttft, _ := r.TTFT()
		tpot, _ := r.TPOT()
		e2e, _ := r.E2E()
		s.requests = append(s.requests, request{
			row: int64(i), at: r.Arrived.Seconds(),
			values: [latencyCount]float64{ms(ttft), ms(tpot), ms(r.MaxGap), ms(e2e)},
		})
		if second := int(r.Ended.Seconds()); second < 300 {
			s.completed[second]++
			s.tokens[second] += float64(r.OutputTokens)
		}
	}
	return s
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

func TestStudy(t *testing.T) {
	const runs = 200
	fmt.Println("| load | B is slower by | rows | better | worse | mixed | same | not enough evidence |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for _, load := range []float64{0.6, 0.85} {
		for _, slower := range []float64{1, 1.05, 1.1} {
			for _, paired := range []bool{true, false} {
				count := make(map[Answer]int)
				var mu sync.Mutex
				var wg sync.WaitGroup
				limit := make(chan struct{}, runtime.GOMAXPROCS(0))
				for i := range uint64(runs) {
					wg.Add(1)
					limit <- struct{}{}
					go func() {
						defer wg.Done()
						defer func() { <-limit }()
						other := i
						if !paired {
							other += 10_000
						}
						a, b := engineRun(t, load, i, 2*i, 1), engineRun(t, load, other, 2*i+1, slower)
						if !paired {
							for k := range b.requests {
								b.requests[k].row += 1_000_000
							}
						}
						r, err := compareSamples(a, b, Options{Resamples: 300, Seed: i}.withDefaults())
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						defer mu.Unlock()
						count[r.Answer]++
					}()
				}
				wg.Wait()
				rows := "the same"
				if !paired {
					rows = "others"
				}
				fmt.Printf("| %.0f %% | %.0f %% | %s | %d | %d | %d | %d | %d |\n", 100*load, 100*(slower-1), rows,
					count[Better], count[Worse], count[Mixed], count[Same], count[NotEnough])
			}
		}
	}
}
