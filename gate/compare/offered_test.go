package compare

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// script is a run whose workload is in its script: requests of one scenario, without a trace.
type script struct {
	seed     uint64
	options  string  // the scenario as k6 writes it; "" for none
	rate     float64 // arrivals per second
	shape    float64 // of the gaps' Gamma distribution; 0 for constant ones
	seconds  float64
	labels   []string
	killed   bool
	perEvent int // requests of one arrival; 0 means 1
	// of says what became of the n-th request, and what was asked of it.
	of func(n int, rng *rand.Rand, r *results.Request)
}

func stock() script {
	return script{seed: 1, options: constantRate("122", "10s"), rate: 12.2, seconds: 60}
}

func constantRate(rate, unit string) string {
	return `{"executor": "constant-arrival-rate", "startTime": null, "gracefulStop": null, "env": null, "exec": null, "tags": {"phase": "steady"},
		"rate": ` + rate + `, "timeUnit": "` + unit + `", "duration": "1m0s", "preAllocatedVUs": 10, "maxVUs": 50}`
}

// gap draws a gap of a Gamma process, by sums of exponentials or Marsaglia and Tsang's method (ACM TOMS 26, 2000).
func (s script) gap(rng *rand.Rand) float64 {
	if s.shape == 0 {
		return 1 / s.rate
	}
	boost, shape := 1.0, s.shape
	if shape < 1 {
		boost, shape = math.Pow(rng.Float64(), 1/shape), shape+1
	}
	d := shape - 1.0/3
	for {
		x := rng.NormFloat64()
		v := math.Pow(1+x/math.Sqrt(9*d), 3)
		if v > 0 && math.Log(rng.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return boost * d * v / (s.shape * s.rate)
		}
	}
}

func (s script) run(t testing.TB) *results.Run {
	t.Helper()
	dir, rng := t.TempDir(), rand.New(rand.NewPCG(s.seed, 7))
	started := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	info := results.Info{Started: started, Workload: "s.js", Labels: s.labels}
	if s.options != "" {
		info.Options = json.RawMessage(`{"vus": null, "scenarios": {"llm_monitor": {"executor": "llm-monitor"},
			"warm": {"executor": "constant-vus", "vus": 3, "duration": "5s"}, "load": ` + s.options + `}}`)
	}
	w, err := results.Create(dir, info, results.Options{})
	require.NoError(t, err)
	n := 0
	for at := s.gap(rng); at < s.seconds; at += s.gap(rng) {
		for range max(1, s.perEvent) {
			e2e := 200 * math.Exp(0.3*rng.NormFloat64())
			r := results.Request{
				Row: -1, Scenario: "load", Phase: "steady", API: "chat", Model: "sim", Start: started.Add(time.Duration(at * 1e9)), Outcome: results.OK,
				TTFT: results.Num(e2e / 4), TPOT: results.Num(e2e / 40), ITLP99: results.Num(e2e / 30), E2E: results.Num(e2e),
				Prompt: results.IntOf(100), Completion: results.IntOf(20),
			}
			if s.of != nil {
				s.of(n, rng, &r)
			}
			require.NoError(t, w.Request(&r))
			n++
		}
	}
	if !s.killed {
		require.NoError(t, w.Close(started.Add(time.Duration(s.seconds*1e9)), nil))
	} else {
		require.NoError(t, w.Close(time.Time{}, nil))
	}
	run, err := results.Open(dir)
	require.NoError(t, err)
	return run
}

func lengths(prompt, completion int64) func(int, *rand.Rand, *results.Request) {
	return func(_ int, _ *rand.Rand, r *results.Request) {
		r.PromptAsked, r.CompletionAsked = results.IntOf(prompt), results.IntOf(completion)
	}
}

func drawn(scale float64) func(int, *rand.Rand, *results.Request) {
	return func(_ int, rng *rand.Rand, r *results.Request) {
		r.PromptAsked = results.IntOf(int64(scale * math.Exp(0.8*rng.NormFloat64())))
		r.CompletionAsked = results.IntOf(1 + int64(rng.IntN(100)))
	}
}

func tags(of func(n int, r *results.Request)) func(int, *rand.Rand, *results.Request) {
	return func(n int, _ *rand.Rand, r *results.Request) { of(n, r) }
}

// What a script asks without a trace is its workload too: run.json has the schedule, and requests.jsonl what was asked.
func TestWorkloadsOfScriptsAreToldApart(t *testing.T) {
	vus := func(n int) string {
		return fmt.Sprintf(`{"executor": "constant-vus", "vus": %d, "duration": "1m0s", "tags": {"phase": "steady"}}`, n)
	}
	ramp := func(target int) string {
		return fmt.Sprintf(`{"executor": "ramping-arrival-rate", "startRate": 5, "timeUnit": "1s", "preAllocatedVUs": 5,
			"stages": [{"duration": "30s", "target": %d}, {"duration": "30s", "target": 5}]}`, target)
	}
	replay := func(speed string) string {
		return `{"executor": "trace-arrival-rate", "trace": "t", "from": 0, "to": 700, "duration": "1m0s", "preAllocatedVUs": 1, "maxVUs": 2` + speed + `}`
	}
	rows := func(scale int64) func(int, *rand.Rand, *results.Request) {
		return tags(func(n int, r *results.Request) {
			r.Row, r.PromptAsked, r.CompletionAsked = int64(n), results.IntOf(scale*int64(10+n%17)), results.IntOf(20)
		})
	}
	share := func(of func(r *results.Request, yes bool), tenths int) func(int, *rand.Rand, *results.Request) {
		return func(_ int, rng *rand.Rand, r *results.Request) { of(r, rng.IntN(10) < tenths) }
	}
	api := func(r *results.Request, yes bool) {
		if yes {
			r.API = "completions"
		}
	}
	models := func(r *results.Request, yes bool) {
		r.Model = "large"
		if yes {
			r.Model = "small"
		}
	}
	for name, c := range map[string]struct {
		a, b func(*script)
		what []string
		text string
	}{
		"the rate of an executor": {
			func(*script) {},
			func(s *script) { s.options, s.rate = constantRate("75", "10s"), 7.5 },
			[]string{"scenarios of the phase steady"},
			"A: constant-arrival-rate (duration 1m0s, rate 12.2/s), B: constant-arrival-rate (duration 1m0s, rate 7.5/s)",
		},
		"the stages of a ramp": {
			func(s *script) { s.options = ramp(20) }, func(s *script) { s.options = ramp(30) },
			[]string{"scenarios of the phase steady"},
			`"target":20`,
		},
		"another arrival process": {
			func(*script) {}, func(s *script) { s.options, s.shape = replay(""), 1 }, []string{"scenarios of the phase steady"}, "trace-arrival-rate",
		},
		"the speed of a replay": {
			func(s *script) { s.options = replay("") }, func(s *script) { s.options = replay(`, "speed": 1.5`) },
			[]string{"scenarios of the phase steady"},
			"speed 1.5",
		},
		"VUs of a closed loop": {
			func(s *script) { s.options, s.labels = vus(8), []string{results.LabelClosedLoop} },
			func(s *script) { s.options, s.labels = vus(16), []string{results.LabelClosedLoop} },
			[]string{"scenarios of the phase steady"},
			"A: constant-vus (duration 1m0s, vus 8), B: constant-vus (duration 1m0s, vus 16)",
		},
		"a rate that only the arrivals show": {
			func(s *script) { s.options, s.shape = "", 1 }, func(s *script) { s.options, s.shape, s.rate = "", 1, 20 },
			[]string{"arrivals of the phase steady"},
			"/s",
		},
		"requests of an arrival": {
			func(*script) {}, func(s *script) { s.perEvent = 2 }, []string{"arrivals of the phase steady"}, "A: 732 in 59.92 s (12.22/s), B: 1464 in 59.92 s (24.43/s)",
		},
		"max_tokens": {
			func(s *script) { s.of = lengths(100, 40) }, func(s *script) { s.of = lengths(100, 80) },
			[]string{"completion tokens asked"},
			"A: 40, B: 80",
		},
		"max_tokens of few requests": {
			func(s *script) { s.of, s.rate = lengths(100, 40), 0.2 }, func(s *script) { s.of, s.rate = lengths(100, 80), 0.2 },
			[]string{"completion tokens asked"},
			"A: 40, B: 80",
		},
		"no max_tokens": {
			func(s *script) { s.of = lengths(100, 40) }, func(*script) {},
			[]string{"prompt tokens asked", "completion tokens asked"},
			"B: none",
		},
		"a distribution of prompts": {
			func(s *script) { s.of = drawn(200) }, func(s *script) { s.of, s.seed = drawn(300), 2 },
			[]string{"prompt tokens asked"},
			"median",
		},
		"prompts that only the service counted": {
			func(*script) {}, func(s *script) {
				s.of = tags(func(_ int, r *results.Request) { r.Prompt = results.IntOf(150) })
			},
			[]string{"prompt tokens as counted"},
			"A: 100, B: 150",
		},
		"rows": {
			func(s *script) { s.options, s.of = replay(""), rows(1) }, func(s *script) { s.options, s.of = replay(""), rows(2) },
			[]string{"prompt tokens asked of the same rows"},
			"A: 17.99 on average, B: 35.98 on average; 732 of 732 rows differ",
		},
		"APIs": {
			func(s *script) { s.of = share(api, 1) }, func(s *script) { s.of, s.seed = share(api, 5), 2 }, []string{"api"}, "completions",
		},
		"classes": {
			func(s *script) { s.of = tags(func(_ int, r *results.Request) { r.Class = "short" }) },
			func(s *script) { s.of = tags(func(_ int, r *results.Request) { r.Class = "long" }) },
			[]string{"class"},
			"A: short, B: long",
		},
		"a split over models": {
			func(s *script) { s.of = share(models, 2) }, func(s *script) { s.of, s.seed = share(models, 8), 2 }, []string{"model"}, "large",
		},
		"more models": {
			func(*script) {}, func(s *script) { s.of = share(models, 5) }, []string{"model"}, "A: sim, B: small 51.4 %, large 48.6 %",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := stock(), stock()
			c.a(&a)
			c.b(&b)
			ra, rb := a.run(t), b.run(t)
			_, err := Compare(ra, rb, Options{Resamples: 100, BlockSeconds: 4})
			var refused *DifferentWorkloadsError
			require.ErrorAs(t, err, &refused)
			what := make([]string, len(refused.Differences))
			for i, d := range refused.Differences {
				require.True(t, d.Workload)
				what[i] = d.What
			}
			require.Equal(t, c.what, what)
			require.ErrorContains(t, err, c.text)
			forced, err := Compare(ra, rb, Options{Resamples: 100, BlockSeconds: 4, Force: true})
			require.NoError(t, err)
			require.Equal(t, refused.Differences, workloadDifferences(forced.Differences))
		})
	}
}

// What an A/B changes, and what the service does with what it is asked, is no other workload.
func TestWhatAnABChangesIsCompared(t *testing.T) {
	status := func(outcome results.Outcome, every int) func(int, *rand.Rand, *results.Request) {
		return tags(func(n int, r *results.Request) {
			if n%every == 0 {
				*r = results.Request{Row: -1, Scenario: r.Scenario, Phase: r.Phase, Start: r.Start, API: r.API, Model: r.Model, Outcome: outcome}
			}
		})
	}
	for name, c := range map[string]struct {
		a, b func(*script)
		told []string // differences that are no workload's
	}{
		"nothing": {func(*script) {}, func(*script) {}, nil},
		"the model's name": {
			func(*script) {}, func(s *script) { s.of = tags(func(_ int, r *results.Request) { r.Model = "sim-fp8" }) }, []string{"model"},
		},
		"the same rate in another notation": {func(*script) {}, func(s *script) { s.options = constantRate("61", "5000ms") }, nil},
		"more VUs for an open loop": {
			func(*script) {}, func(s *script) {
				s.options = `{"executor": "constant-arrival-rate", "rate": 122, "timeUnit": "10s", "duration": "60s", "preAllocatedVUs": 100, "maxVUs": 900,
					"gracefulStop": "1m0s", "exec": "other", "env": {"BASE_URL": "http://b"}, "tags": {"phase": "steady", "build": "b"}}`
			}, nil,
		},
		"what the model writes": {
			func(s *script) { s.of = lengths(100, 400) }, func(s *script) {
				s.of = tags(func(n int, r *results.Request) {
					lengths(100, 400)(n, nil, r)
					r.Completion = results.IntOf(300)
				})
			}, nil,
		},
		"another tokenizer": {
			func(*script) {}, func(s *script) { s.of = tags(func(_ int, r *results.Request) { r.Prompt = results.IntOf(119) }) }, nil,
		},
		"a service that fails":   {func(*script) {}, func(s *script) { s.of = status(results.Failed, 3) }, nil},
		"a service that cancels": {func(*script) {}, func(s *script) { s.of = status(results.Cancelled, 3) }, nil},
		"a generator that drops": {
			func(s *script) { s.of = lengths(100, 40) }, func(s *script) {
				s.of = func(n int, rng *rand.Rand, r *results.Request) {
					lengths(100, 40)(n, rng, r)
					status(results.Dropped, 3)(n, rng, r)
				}
			}, nil,
		},
		"failures of long prompts": {
			func(s *script) { s.of = mixed(false) }, func(s *script) { s.of = mixed(true) }, nil,
		},
		"later turns": {
			func(*script) {}, func(s *script) {
				s.perEvent = 2
				s.of = tags(func(n int, r *results.Request) {
					if n%2 == 1 {
						r.Turn, r.PromptAsked = 2, results.IntOf(5000)
					}
				})
			}, nil,
		},
		"requests that a failure kept from being sent": {
			func(s *script) { s.perEvent, s.rate = 2, 200 }, func(s *script) {
				s.perEvent, s.rate = 2, 200
				s.of = tags(func(n int, r *results.Request) {
					switch n % 6 {
					case 0:
						r.Outcome, r.TTFT, r.TPOT, r.ITLP99, r.E2E = results.Failed, results.Number{}, results.Number{}, results.Number{}, results.Number{}
					case 1:
						r.Phase = "" // never sent
					}
				})
			}, nil,
		},
		"the rate of a closed loop": {
			func(s *script) { s.options = `{"executor": "per-vu-iterations", "vus": 4, "iterations": 100}` },
			func(s *script) {
				s.options, s.rate = `{"executor": "per-vu-iterations", "vus": 4, "iterations": 100}`, 30
			}, nil,
		},
		"a run that was killed": {func(*script) {}, func(s *script) { s.killed, s.seconds = true, 40 }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := stock(), stock()
			c.a(&a)
			c.b(&b)
			b.seed = 2
			r, err := Compare(a.run(t), b.run(t), Options{Resamples: 100, BlockSeconds: 4})
			require.NoError(t, err)
			var told []string
			for _, d := range r.Differences {
				require.False(t, d.Workload)
				told = append(told, d.What)
			}
			require.Equal(t, c.told, told)
		})
	}
}

// mixed has prompts of two lengths that the script does not state; the long ones fail, so that nobody counts them.
func mixed(failing bool) func(int, *rand.Rand, *results.Request) {
	return tags(func(n int, r *results.Request) {
		if n%4 != 0 {
			return
		}
		r.Prompt = results.IntOf(2000)
		if failing {
			r.Outcome, r.Prompt, r.Completion = results.Failed, results.Int{}, results.Int{}
			r.TTFT, r.TPOT, r.ITLP99, r.E2E = results.Number{}, results.Number{}, results.Number{}, results.Number{}
		}
	})
}

// Arrivals and lengths that are drawn anew in each run are one workload: none of many pairs may be refused.
func TestRandomWorkloadsAreNotRefused(t *testing.T) {
	const runs = 400
	for name, s := range map[string]script{
		"Poisson":          {rate: 2, shape: 1, seconds: 30},
		"bursty":           {rate: 3, shape: 0.25, seconds: 60},
		"few and bursty":   {rate: 0.5, shape: 0.25, seconds: 30},
		"bursts of twenty": {rate: 20, shape: 0.05, seconds: 60},
		"many and smooth":  {rate: 20, shape: 4, seconds: 30},
	} {
		t.Run(name, func(t *testing.T) {
			one := func(seed uint64) *offered {
				s.seed = seed
				rng := rand.New(rand.NewPCG(seed, 7))
				o := newOffered()
				for n, at := 0, s.gap(rng); at < s.seconds; n, at = n+1, at+s.gap(rng) {
					r := results.Request{Row: -1, Phase: "steady", API: "chat", Outcome: results.OK, Start: time.Unix(0, int64(at*1e9))}
					drawn(200)(n, rng, &r)
					if r.Class = "long"; rng.IntN(3) == 0 {
						r.Class = "short"
					}
					r.Prompt = r.PromptAsked
					if seed%2 == 0 {
						r.Prompt.Value = r.Prompt.Value * 6 / 5
					}
					o.see(&r)
				}
				return o
			}
			for seed := range uint64(runs) {
				a, b := one(2*seed), one(2*seed+1)
				if len(a.arrivals) == 0 || len(b.arrivals) == 0 {
					continue
				}
				require.Empty(t, offeredDifferences("steady", results.Info{}, results.Info{}, a, b), "pair %d", seed)
				for _, o := range []*offered{a, b} {
					o.promptAsked = tally{unknown: len(o.arrivals)}
				}
				require.Empty(t, offeredDifferences("steady", results.Info{}, results.Info{}, a, b), "pair %d, prompts not stated", seed)
			}
		})
	}
}

// Twice the rate, or three times the lengths, are found in runs of a few hundred requests.
func TestAnotherLoadIsFound(t *testing.T) {
	for shape, seconds := range map[float64]float64{1: 60, 0.5: 120, 4: 60} {
		for seed := range uint64(20) {
			a := script{seed: 2 * seed, rate: 5, shape: shape, seconds: seconds, of: drawn(200)}
			b := script{seed: 2*seed + 1, rate: 10, shape: shape, seconds: seconds, of: drawn(600)}
			_, err := Compare(a.run(t), b.run(t), Options{})
			require.ErrorContains(t, err, "arrivals of the phase steady", "shape %v, seed %d", shape, seed)
			require.ErrorContains(t, err, "prompt tokens asked", "shape %v, seed %d", shape, seed)
		}
	}
}
