//go:build study

package verdict

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/safeqps/xk6-safeqps/llm/llmtest"
)

// The study prints the tables of docs/statistics.md:
//
//	go test -tags study -run Study -timeout 2h -v ./gate/verdict
//
// STUDY_SEEDS is the number of runs behind each figure (100 when unset).

func studySeeds(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("STUDY_SEEDS")
	if text == "" {
		return 100
	}
	seeds, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return seeds
}

// slowEngine serves about 3 requests per second of 500 prompt tokens.
func slowEngine() llmtest.Config {
	engine := fastEngine()
	engine.MaxNumSeqs = 16
	engine.StepBase = 20 * time.Millisecond
	return engine
}

func studied() []service {
	constant := math.Inf(1)
	return []service{
		{"fast, heavy, k = 0.3", fastEngine(), 500, 120, 1, 0.3},
		{"fast, heavy, Poisson", fastEngine(), 500, 120, 1, 1},
		{"fast, heavy, constant gaps", fastEngine(), 500, 120, 1, constant},
		{"slow, heavy, k = 0.3", slowEngine(), 500, 200, 1, 0.3},
		{"slow, heavy, Poisson", slowEngine(), 500, 200, 1, 1},
	}
}

// each calls f for every seed, on all processors.
func each(seeds uint64, f func(seed uint64)) {
	var wg sync.WaitGroup
	limit := make(chan struct{}, runtime.GOMAXPROCS(0))
	for seed := range seeds {
		wg.Add(1)
		limit <- struct{}{}
		go func() {
			defer wg.Done()
			f(seed)
			<-limit
		}()
	}
	wg.Wait()
}

func row(cells ...any) string {
	text := make([]string, len(cells))
	for i, c := range cells {
		text[i] = fmt.Sprint(c)
	}
	return "| " + strings.Join(text, " | ") + " |"
}

func percent(n, of int) string { return fmt.Sprintf("%.0f %%", 100*float64(n)/float64(of)) }

// orMore is the value that the share q of all runs did not exceed; "-" where fewer runs have one.
func orMore(found []float64, q float64, runs int) string {
	slices.Sort(found)
	rank := int(math.Ceil(q * float64(runs)))
	if rank > len(found) {
		return "-"
	}
	return fmt.Sprintf("%.0f s", found[rank-1])
}

func TestStudyQueueGrowth(t *testing.T) {
	seeds := studySeeds(t)
	const length = 14 * time.Minute
	fmt.Println(row("service", "arrivals/s", "load", "found", "median", "95 %", "undecided", "found (in flight)", "median", "95 %"))
	for _, s := range studied() {
		for _, load := range []float64{0.85, 0.95, 1.05, 1.1, 1.3} {
			var mu sync.Mutex
			var waiting, inFlight []float64
			undecided := 0
			each(seeds, func(seed uint64) {
				tr := s.run(t, load, time.Minute, length, seed)
				at, last := tr.growthAt(SignalWaiting)
				atInFlight, _ := tr.growthAt(SignalInFlight)
				mu.Lock()
				defer mu.Unlock()
				if at >= 0 {
					waiting = append(waiting, at)
				} else if last.Undecided() {
					undecided++
				}
				if atInFlight >= 0 {
					inFlight = append(inFlight, atInFlight)
				}
			})
			n := int(seeds)
			fmt.Println(row(s.name, fmt.Sprintf("%.1f", load*s.capacity()), fmt.Sprintf("%.0f %%", 100*load),
				percent(len(waiting), n), orMore(waiting, 0.5, n), orMore(waiting, 0.95, n), percent(undecided, n),
				percent(len(inFlight), n), orMore(inFlight, 0.5, n), orMore(inFlight, 0.95, n)))
		}
	}
}

// slowContract asks of a service with three requests per second what it can keep at 80 % of its capacity, and what ten
// minutes of it can prove.
const slowContract = `
capacity_gate:
  success_rate: ">= 0.99"
  ttft_p95: "<= 30s"
  queue_growth: no_sustained_growth
phases: {warmup: 1m, steady: 10m, recovery: 0s}
`

func TestStudyVerdicts(t *testing.T) {
	seeds := studySeeds(t)
	fmt.Println(row("service", "load", "PASS", "FAIL", "INCONCLUSIVE"))
	for _, s := range studied() {
		c := load(t, truthContract)
		if s.engine.MaxNumSeqs == slowEngine().MaxNumSeqs {
			c = load(t, slowContract)
		}
		for _, share := range []float64{0.8, 0.9, 1.1} {
			var mu sync.Mutex
			counts := make(map[Status]int)
			each(seeds, func(seed uint64) {
				got := s.run(t, share, time.Minute, 10*time.Minute, seed).judge(t, c).Verdict
				mu.Lock()
				defer mu.Unlock()
				counts[got]++
			})
			n := int(seeds)
			fmt.Println(row(s.name, fmt.Sprintf("%.0f %%", 100*share), percent(counts[Pass], n), percent(counts[Fail], n),
				percent(counts[Inconclusive], n)))
		}
	}
}

func TestStudyCorrelation(t *testing.T) {
	trials := 20 * int(studySeeds(t))
	fmt.Println(row("quantile", "requests", "correlation", "false PASS", "false FAIL", "uncorrected: false PASS", "false FAIL", "PASS at a quarter of the tolerated share"))
	for _, tolerated := range []float64{0.05, 0.01} {
		for _, n := range []int{1000, 3000, 10_000} {
			for _, rho := range []float64{0, 0.5, 0.9, 0.97} {
				pass, failed := correlatedCase{n, rho, tolerated, tolerated, true}.decide(trials, 7)
				rawPass, rawFailed := correlatedCase{n, rho, tolerated, tolerated, false}.decide(trials, 7)
				power, _ := correlatedCase{n, rho, tolerated, tolerated / 4, true}.decide(trials/4, 8)
				text := func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
				fmt.Println(row(fmt.Sprintf("p%.0f", 100*(1-tolerated)), n, rho, text(pass), text(failed), text(rawPass), text(rawFailed), text(power)))
			}
		}
	}
}

// TestStudyBorderline judges TTFT by limits that are exactly the service's true quantiles, taken from all runs together.
func TestStudyBorderline(t *testing.T) {
	seeds := studySeeds(t)
	fmt.Println(row("service", "quantile", "true value", "false PASS", "false FAIL", "uncorrected: false PASS", "false FAIL"))
	for _, s := range studied() {
		runs := make([][]float64, seeds)
		each(seeds, func(seed uint64) {
			tr := s.run(t, 0.8, time.Minute, 10*time.Minute, seed)
			for i := range tr.requests {
				if r := &tr.requests[i]; r.Phase == steady && r.TTFT.Known {
					runs[seed] = append(runs[seed], r.TTFT.Value)
				}
			}
		})
		for _, q := range []float64{0.95, 0.99} {
			limit := sampleQuantile(slices.Concat(runs...), q)
			over := func(v float64) bool { return v > limit }
			var pass, failed, rawPass, rawFailed int
			for _, values := range runs {
				sample := Sample{N: int64(len(values))}
				for _, v := range values {
					if over(v) {
						sample.Over++
					}
				}
				count := func(s Status, pass, failed *int) {
					switch s {
					case Pass:
						*pass++
					case Fail:
						*failed++
					}
				}
				count(TestShare(sample, 1-q, 0.95).Status, &rawPass, &rawFailed)
				sample.Inflation = inflation(values, over, false)
				count(TestShare(sample, 1-q, 0.95).Status, &pass, &failed)
			}
			n := int(seeds)
			fmt.Println(row(s.name, fmt.Sprintf("p%.0f", 100*q), fmt.Sprintf("%.0f ms", limit), percent(pass, n), percent(failed, n),
				percent(rawPass, n), percent(rawFailed, n)))
		}
	}
}
