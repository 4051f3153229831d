package capacity

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/verdict"
	"github.com/safeqps/xk6-safeqps/llm/llmtest"
	"github.com/safeqps/xk6-safeqps/trace/arrival"
)

// limit is a criterion of a simulated contract: at most the share allowed of requests is over it.
type limit struct {
	name    string
	ms      float64
	allowed float64
	of      func(*llmtest.RequestResult) (time.Duration, bool)
}

func ttft(r *llmtest.RequestResult) (time.Duration, bool) { return r.TTFT() }
func tpot(r *llmtest.RequestResult) (time.Duration, bool) { return r.TPOT() }
func e2e(r *llmtest.RequestResult) (time.Duration, bool)  { return r.E2E() }

// service is a simulated engine with a workload and a contract, probed on the virtual clock.
type service struct {
	name   string
	engine llmtest.Config
	// Lengths are lognormal with these means and this standard deviation of the logarithm, up to four times the mean.
	prompt, output, sigma float64
	burstiness            float64
	limits                []limit
	warmup, full          time.Duration
	confidence            float64
}

func smallEngine() llmtest.Config {
	c := llmtest.DefaultConfig()
	c.MaxNumSeqs = 16
	c.StepBase = 15 * time.Millisecond
	c.DisablePrefixCaching = true
	return c
}

func interactive(name string, burstiness float64) service {
	return service{
		name: name, engine: smallEngine(), prompt: 200, output: 16, sigma: 0.8, burstiness: burstiness,
		limits: []limit{
			{"ttft_p95", 1000, 0.05, ttft},
			{"ttft_p99", 2500, 0.01, ttft},
			{"tpot_p95", 60, 0.05, tpot},
			{"e2e_p99", 10_000, 0.01, e2e},
		},
		warmup: time.Minute, full: 30 * time.Minute, confidence: 0.95,
	}
}

func longContext(name string, burstiness float64) service {
	s := interactive(name, burstiness)
	s.engine.MaxNumBatchedTokens, s.engine.MaxNumSeqs = 1024, 32
	s.prompt, s.output, s.sigma = 800, 20, 0.6
	s.limits = []limit{{"ttft_p95", 2000, 0.05, ttft}, {"tpot_p95", 90, 0.05, tpot}, {"e2e_p99", 20_000, 0.01, e2e}}
	return s
}

func services() []service {
	return []service{
		interactive("interactive, constant", math.Inf(1)), interactive("interactive, Poisson", 1),
		interactive("interactive, k = 0.25", 0.25), longContext("long context, Poisson", 1),
	}
}

func (s service) arrivals(rate float64, length time.Duration, seed uint64) ([]llmtest.Arrival, error) {
	due, err := arrival.Schedule(arrival.Config{
		Rate: rate, Burstiness: s.burstiness, Duration: length, FreeCount: true, Seed: arrival.Derive(seed, "arrivals"),
	})
	if err != nil {
		return nil, err
	}
	rng := rand.New(arrival.NewSource(seed, "lengths"))
	tokens := func(mean float64) int {
		x := mean * math.Exp(s.sigma*rng.NormFloat64()-s.sigma*s.sigma/2)
		return max(1, int(math.Min(x, 4*mean)))
	}
	out := make([]llmtest.Arrival, len(due))
	for i, at := range due {
		out[i] = llmtest.Arrival{At: at, PromptTokens: tokens(s.prompt), MaxTokens: tokens(s.output)}
	}
	return out, nil
}

// run is a probe under way.
type run struct {
	s        service
	sim      *llmtest.Sim
	arrivals []llmtest.Arrival
	first    int // of the steady phase
}

func (s service) start(rate float64, steady time.Duration, seed uint64) (*run, error) {
	arrivals, err := s.arrivals(rate, s.warmup+steady, seed)
	if err != nil {
		return nil, err
	}
	engine := s.engine
	engine.Seed = seed
	sim, err := llmtest.NewSim(engine, llmtest.SimOptions{})
	if err != nil {
		return nil, err
	}
	for _, a := range arrivals {
		if _, err := sim.Add(a); err != nil {
			return nil, err
		}
	}
	first, _ := slices.BinarySearchFunc(arrivals, s.warmup, func(a llmtest.Arrival, at time.Duration) int {
		return int(a.At - at)
	})
	return &run{s: s, sim: sim, arrivals: arrivals, first: first}, nil
}

// over are the requests that arrived in the steady phase and are decided, in order: 1 is over the limit, 0 within.
func (r *run) over(l limit) []float64 {
	now := r.sim.Now()
	var out []float64
	for i := r.first; i < len(r.arrivals) && r.arrivals[i].At <= now; i++ {
		request := r.sim.Request(i)
		value, ok := l.of(&request)
		waited := now - r.arrivals[i].At
		bound := time.Duration(l.ms * float64(time.Millisecond))
		switch {
		case ok && request.Status == llmtest.Completed, ok && l.name[:4] == "ttft":
			if value > bound {
				out = append(out, 1)
			} else {
				out = append(out, 0)
			}
		case l.name[:4] != "tpot" && waited > bound: // whatever it becomes, it is over the limit
			out = append(out, 1)
		}
	}
	return out
}

func sum(x []float64) int64 {
	total := 0.0
	for _, v := range x {
		total += v
	}
	return int64(total)
}

// early looks at a probe under way.
func (r *run) early(planned int64) Early {
	for _, l := range r.s.limits {
		x := r.over(l)
		if e := EarlyFail(EarlySample{
			Over: sum(x), N: int64(len(x)), Planned: planned, Inflation: EarlyInflation(x),
		}, l.allowed, r.s.confidence); e != NotYet {
			return e
		}
	}
	return NotYet
}

func (s service) probe(_ context.Context, request ProbeRequest) (ProbeResult, error) {
	steady := time.Duration(request.Length * float64(s.full))
	r, err := s.start(request.Rate, steady, request.Seed)
	if err != nil {
		return ProbeResult{}, err
	}
	planned := int64(len(r.arrivals) - r.first)
	out := ProbeResult{}
	end := s.warmup + steady
	if request.StopEarly {
		const looks = 20
		for look := 1; look < looks; look++ {
			r.sim.AdvanceTo(s.warmup + steady*time.Duration(look)/looks)
			if e := r.early(planned); e != NotYet {
				out.StoppedEarly, end = string(e), r.sim.Now()
				break
			}
		}
	}
	r.sim.AdvanceTo(end)
	s.judge(r, &out)
	if out.StoppedEarly != "" {
		out.Verdict = verdict.Fail
	}
	out.Seconds = end.Seconds()
	completed := 0
	var waits []float64
	for i := range r.arrivals {
		q := r.sim.Request(i)
		if q.Status == llmtest.Completed && q.Ended > s.warmup {
			completed++
		}
		if d, ok := q.TTFT(); ok && i >= r.first {
			waits = append(waits, float64(d)/1e6)
		}
		if i >= r.first && q.Arrived <= end {
			out.Requests++
		}
	}
	perSecond := float64(completed) / (end - s.warmup).Seconds()
	out.CompletedRate = &perSecond
	if len(waits) > 0 {
		slices.Sort(waits)
		out.Latencies = map[string]verdict.Quantiles{"ttft": {N: int64(len(waits)), P99: waits[len(waits)*99/100]}}
	}
	return out, nil
}

// judge is the verdict on the requests so far: of every criterion, as in gate/verdict.
func (s service) judge(r *run, out *ProbeResult) {
	out.Verdict = verdict.Pass
	worst := math.Inf(-1)
	var needed int64
	open := false
	for _, l := range s.limits {
		x := r.over(l)
		inflation := verdict.VarianceInflation(x)
		sample := verdict.Sample{N: int64(len(x)), Over: sum(x), Inflation: inflation}
		e := verdict.TestShare(sample, l.allowed, s.confidence)
		switch {
		case e.Status == verdict.Fail:
			out.Verdict = verdict.Fail
		case e.Status == verdict.Inconclusive && out.Verdict == verdict.Pass:
			out.Verdict = verdict.Inconclusive
		}
		if e.Status == verdict.Inconclusive {
			if e.NeededAtShare == nil {
				open = true
			} else {
				needed = max(needed, *e.NeededAtShare)
			}
		}
		// The quantile that the criterion is about, as a share of the limit.
		if p, ok := r.pressure(l); ok && p > worst {
			worst = p
			out.LimitingCriterion, out.Pressure = l.name, &p
		}
	}
	if out.Verdict == verdict.Inconclusive && !open {
		out.Needed = &needed
	}
}

func (r *run) pressure(l limit) (float64, bool) {
	var values []float64
	now := r.sim.Now()
	for i := r.first; i < len(r.arrivals) && r.arrivals[i].At <= now; i++ {
		q := r.sim.Request(i)
		if v, ok := l.of(&q); ok {
			values = append(values, float64(v)/1e6)
		} else if l.name[:4] != "tpot" {
			values = append(values, float64(now-q.Arrived)/1e6)
		}
	}
	if len(values) == 0 {
		return 0, false
	}
	slices.Sort(values)
	return values[int(float64(len(values)-1)*(1-l.allowed))] / l.ms, true
}

func (s service) options() Options {
	return Options{
		Min: 1, Max: 1000, Tolerance: 0.05, FullSeconds: s.full.Seconds(), OverheadSeconds: s.warmup.Seconds(),
		MinRequests: 300,
	}
}

// shares are the long-run shares over each limit at a rate, over the seeds.
func (s service) shares(rate float64, length time.Duration, seeds []uint64) ([]float64, error) {
	over, n := make([]float64, len(s.limits)), make([]float64, len(s.limits))
	for _, seed := range seeds {
		r, err := s.start(rate, length, seed)
		if err != nil {
			return nil, err
		}
		r.sim.AdvanceTo(s.warmup + length)
		for i, l := range s.limits {
			x := r.over(l)
			over[i] += float64(sum(x))
			n[i] += float64(len(x))
		}
	}
	for i := range over {
		over[i] /= n[i]
	}
	return over, nil
}

// truth is the rate at which the first limit is reached in the long run: on a grid from low upwards by factors of 1 + step,
// interpolated on logarithmic scales.
func (s service) truth(low, step float64, length time.Duration, seeds []uint64) (float64, string, error) {
	var before []float64
	for rate := low; ; rate *= 1 + step {
		now, err := s.shares(rate, length, seeds)
		if err != nil {
			return 0, "", err
		}
		first, name := math.Inf(1), ""
		for i, l := range s.limits {
			if now[i] <= l.allowed {
				continue
			}
			if before == nil {
				return 0, "", nil // the grid begins above the limit
			}
			a, b := math.Log(math.Max(before[i], 1e-6)/l.allowed), math.Log(now[i]/l.allowed)
			at := rate / (1 + step) * math.Exp(-a/(b-a)*math.Log1p(step))
			if at < first {
				first, name = at, l.name
			}
		}
		if name != "" {
			return first, name, nil
		}
		before = now
	}
}
