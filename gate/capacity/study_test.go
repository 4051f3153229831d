//go:build study

package capacity

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// The study prints the tables of docs/capacity-search.md:
//
//	go test -tags study -run Study -timeout 1h -v ./gate/capacity
//
// STUDY_SEEDS is the number of searches of each service (20 when unset).

func studySeeds(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("STUDY_SEEDS")
	if text == "" {
		return 20
	}
	seeds, err := strconv.ParseUint(text, 10, 16)
	require.NoError(t, err)
	return seeds
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
			defer func() { <-limit }()
			f(seed)
		}()
	}
	wg.Wait()
}

// gridTruth finds the true Safe QPS coarsely, and then on a grid of 1 % steps, as the mean over independent parts whose
// spread gives its standard error.
func (s service) gridTruth(t *testing.T) (rate, standardError float64, name string) {
	t.Helper()
	coarse, _, err := s.truth(0.5*s.engine.Capacity(s.prompt, s.output), 0.05, 30*time.Minute, []uint64{900, 901})
	require.NoError(t, err)
	const parts = 8
	rates := make([]float64, parts)
	names := make([]string, parts)
	each(parts, func(part uint64) {
		seeds := []uint64{1000 + 2*part, 1001 + 2*part}
		found, limit, err := s.truth(0.95*coarse, 0.01, time.Hour, seeds)
		if err == nil {
			rates[part], names[part] = found, limit
		}
	})
	require.NotContains(t, rates, 0.0)
	mean, square := 0.0, 0.0
	for _, r := range rates {
		mean += r / parts
	}
	for _, r := range rates {
		square += (r - mean) * (r - mean) / (parts - 1)
	}
	return mean, math.Sqrt(square / parts), names[0]
}

func TestStudy(t *testing.T) {
	seeds := studySeeds(t)
	fmt.Println("| service | true Safe QPS | limit | within 5 % | found/true: least, median, most | probes: mean, most | " +
		"time | fixed lengths | saved | fails stopped early above/below truth |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|")
	for _, s := range services() {
		begun := time.Now()
		truth, se, name := s.gridTruth(t)
		ratios := make([]float64, seeds)
		searches, fixed := make([]Result, seeds), make([]Result, seeds)
		each(seeds, func(seed uint64) {
			o := s.options()
			o.Seed = seed
			r, err := Search(context.Background(), o, s.probe, nil, nil)
			if err != nil {
				t.Error(err)
				return
			}
			searches[seed] = r
			if r.SafeQPS != nil {
				ratios[seed] = *r.SafeQPS / truth
			}
			if seed%4 != 0 {
				return
			}
			o.FixedLengths = true
			if fixed[seed], err = Search(context.Background(), o, s.probe, nil, nil); err != nil {
				t.Error(err)
			}
		})
		within, probes, most, early, wrong := 0, 0, 0, 0, 0
		seconds, fixedSeconds, same, fixedRuns := 0.0, 0.0, 0.0, 0.0
		statuses := map[Status]int{}
		for i := range searches {
			r := &searches[i]
			if math.Abs(ratios[i]-1) <= 0.05 {
				within++
			} else if os.Getenv("STUDY_VERBOSE") != "" {
				for _, p := range r.Probes {
					fmt.Printf("    %d %-9s %8.3f=%.3f len %.2f %s %s %.2f %.0fs %.20s\n", p.N, p.Purpose, p.Rate, p.Rate/truth,
						p.Length, p.Verdict, p.LimitingCriterion, *p.Pressure, p.Seconds, p.StoppedEarly)
				}
				fmt.Println()
			}
			statuses[r.Status]++
			probes += len(r.Probes)
			most = max(most, len(r.Probes))
			seconds += r.ElapsedSeconds
			fixedSeconds += fixed[i].ElapsedSeconds
			if i%4 == 0 {
				fixedRuns++
			}
			same += r.FixedLengthSeconds
			for _, p := range r.Probes {
				if p.StoppedEarly != "" && p.Rate > truth {
					early++
				}
				if p.StoppedEarly != "" && p.Rate <= truth {
					wrong++
				}
			}
		}
		slices.Sort(ratios)
		n := float64(seeds)
		fmt.Printf("| %s | %.2f ± %.2f | %s | %d of %d | %.3f, %.3f, %.3f | %.1f, %d | %.0f s | %.0f s (same probes: %.0f) | %.0f %% | %d/%d | %v\n",
			s.name, truth, se, name, within, seeds, ratios[0], ratios[len(ratios)/2], ratios[len(ratios)-1],
			float64(probes)/n, most, seconds/n, fixedSeconds/fixedRuns, same/n, 100*(1-seconds/n/(fixedSeconds/fixedRuns)), early, wrong, statuses)
		t.Log(s.name, time.Since(begun))
	}
}

// TestStudyEarlyStop counts how often a probe at a share of the true Safe QPS is stopped, although it would not have failed.
func TestStudyEarlyStop(t *testing.T) {
	seeds := 2 * studySeeds(t)
	fmt.Println("| service | rate/true | stopped early | FAIL at full length | stopped, but not FAIL at full length |")
	fmt.Println("|---|---|---|---|---|")
	for _, s := range services() {
		truth, _, _ := s.gridTruth(t)
		for _, share := range []float64{0.95, 1} {
			var mu sync.Mutex
			stopped, failed, wrong := 0, 0, 0
			each(seeds, func(seed uint64) {
				request := ProbeRequest{Rate: share * truth, Length: 1, Seed: 5000 + seed}
				full, err := s.probe(context.Background(), request)
				if err != nil {
					t.Error(err)
					return
				}
				request.StopEarly = true
				short, err := s.probe(context.Background(), request)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if full.Verdict == verdict.Fail {
					failed++
				}
				if short.StoppedEarly != "" {
					stopped++
					if full.Verdict != verdict.Fail {
						wrong++
					}
				}
			})
			fmt.Printf("| %s | %.2f | %d of %d | %d | %d |\n", s.name, share, stopped, seeds, failed, wrong)
		}
	}
}
