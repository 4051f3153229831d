package report

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// synthetic describes a results directory made by arithmetic: a service of a given capacity whose backlog grows beyond
// it. It has the shape of a real run, not its physics.
type synthetic struct {
	rate, capacity float64 // requests per second
	arrival        string  // one of the names of arrival processes
	warmup, steady time.Duration
	steps          int // rates that the steady phase climbs through, 0 for a single one
	seed           uint64
	status         verdict.Status // "" writes no verdict.json
	info           func(*results.Info)
	change         func(*results.Request)
	bare           bool // no server metrics, no client metrics, no class, no tokens, no per-request SLO
}

var syntheticStart = time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)

func (s synthetic) gap(rng *rand.Rand, mean float64) float64 {
	switch s.arrival {
	case arrivalConstant:
		return mean
	case arrivalBursty: // hyperexponential: a fifth of the gaps is long; the coefficient of variation is about 2
		if rng.Float64() < 0.2 {
			return rng.ExpFloat64() * 4 * mean
		}
		return rng.ExpFloat64() * 0.25 * mean
	default:
		return rng.ExpFloat64() * mean
	}
}

// write fills dir.
func (s synthetic) write(tb testing.TB, dir string) {
	tb.Helper()
	rng := rand.New(rand.NewPCG(s.seed, 1))
	total := s.warmup + s.steady
	info := results.Info{
		Started: syntheticStart, Workload: "chat.jsonl", Host: results.Host{Name: "generator-1", OS: "linux", Arch: "amd64", CPUs: 8, MemoryMB: 32768},
		Versions: map[string]string{"k6": "v1.8.1", "go": "go1.26"}, Seeds: map[string]uint64{"chat": s.seed},
		Digests:  map[string]string{"chat": "sha256:3f5a9c0d"},
		Decision: json.RawMessage(`{"change":"max_num_seqs 32 -> 48","model":"llama-3.1-8b","gpu":{"name":"H100","count":2}}`),
		Options:  json.RawMessage(`{"scenarios":{"steady":{"executor":"trace-arrival-rate"}}}`),
		Labels:   []string{results.LabelSyntheticPrompts},
		Phases: []results.Span{
			{Name: "warmup", Start: syntheticStart, End: syntheticStart.Add(s.warmup)},
			{Name: "steady", Start: syntheticStart.Add(s.warmup), End: syntheticStart.Add(total)},
		},
	}
	if s.info != nil {
		s.info(&info)
	}
	w, err := results.Create(dir, info, results.Options{HistogramInterval: time.Hour})
	require.NoError(tb, err)

	seconds := int(total.Seconds())
	flow := make([]results.Sample, seconds)
	counts := make([]struct{ offered, completed, failed, prompt, completion int64 }, seconds)
	backlog := make([]float64, seconds)
	queued, now, before := 0.0, 0.0, 0.0
	for row := int64(0); ; row++ {
		rate := s.rate
		step := ""
		if s.steps > 0 && now >= s.warmup.Seconds() {
			n := min(int((now-s.warmup.Seconds())/s.steady.Seconds()*float64(s.steps)), s.steps-1)
			rate = s.rate * float64(n+1) / float64(s.steps)
			step = strconv.FormatFloat(rate, 'f', -1, 64)
		}
		now += s.gap(rng, 1/rate)
		if now >= total.Seconds() {
			break
		}
		queued = math.Max(0, queued+1-(now-before)*s.capacity)
		before = now
		r := s.request(rng, row, now, queued, step)
		if s.change != nil {
			s.change(&r)
		}
		require.NoError(tb, w.Request(&r))
		if r.ITLP50.Known {
			gaps := []float64{r.ITLP50.Value, r.ITLP50.Value * 0.8, r.ITLP50.Value * 1.3, r.ITLMax.Value}
			require.NoError(tb, w.RecordITL(r.Phase, r.Step, r.Class, gaps))
		}
		second := int(now)
		counts[second].offered++
		backlog[second] = queued
		if r.Outcome != results.OK {
			counts[second].failed++
			continue
		}
		if done := int(now + r.E2E.Value/1000); done < seconds {
			counts[done].completed++
			counts[done].prompt += r.Prompt.Value
			counts[done].completion += r.Completion.Value
		}
	}
	for i := range flow {
		c := &counts[i]
		sample := results.Sample{
			Time: syntheticStart.Add(time.Duration(i) * time.Second), Phase: s.phase(float64(i)),
			Offered: &c.offered, Started: &c.offered, Completed: &c.completed, Failed: &c.failed, Dropped: new(int64), Cancelled: new(int64),
		}
		if !s.bare {
			inFlight := int64(backlog[i] + s.rate*1.5)
			sample.InFlight, sample.PromptTokens, sample.CompletionTokens = &inFlight, &c.prompt, &c.completion
			sample.Server = map[string]float64{
				"queue_depth": math.Floor(backlog[i]), "running": math.Min(48, s.rate*1.2), "prefix_hit_ratio": 0.31,
				"kv_cache_usage": math.Min(0.99, 0.35+0.1*math.Sin(float64(i)/40)+backlog[i]/200+0.02*rng.Float64()), "preemptions": 0,
			}
			sample.Client = map[string]float64{"cpu": 0.22 + 0.05*rng.Float64(), "memory": 0.11, "open_files": 0.04, "timer_delay": 0.3 + rng.ExpFloat64()*0.3}
		}
		require.NoError(tb, w.Sample(sample))
	}
	require.NoError(tb, w.Close(syntheticStart.Add(total), nil))
	if s.status != "" {
		require.NoError(tb, s.result().Write(dir))
	}
}

func (s synthetic) phase(at float64) string {
	if at < s.warmup.Seconds() {
		return "warmup"
	}
	return "steady"
}

func (s synthetic) request(rng *rand.Rand, row int64, at, queued float64, step string) results.Request {
	start := syntheticStart.Add(time.Duration(at * float64(time.Second)))
	r := results.Request{
		Row: row, Attempt: 1, Scenario: "steady", Phase: s.phase(at), Step: step, Model: "m", Due: start, Start: start.Add(200 * time.Microsecond),
		Outcome: results.OK, Status: 200, ScheduleDelay: results.Num(0.2),
	}
	class, median := "typical", 900.0
	switch u := rng.Float64(); {
	case u < 0.5:
		class, median = "short", 220
	case u > 0.97:
		class, median = "extreme", 16000
	case u > 0.85:
		class, median = "long", 4500
	}
	prompt := math.Ceil(median * math.Exp(0.35*rng.NormFloat64()))
	output := math.Ceil(160 * math.Exp(0.6*rng.NormFloat64()))
	wait := 1000 * queued / s.capacity
	ttft := 25 + prompt*0.045 + wait*math.Exp(0.3*rng.NormFloat64()) + 10*rng.ExpFloat64()
	tpot := 14 + 10*math.Min(1.5, queued/s.capacity) + 1.5*rng.NormFloat64()
	if !s.bare {
		r.Class = class
		r.PromptAsked, r.Prompt = results.IntOf(int64(prompt)), results.IntOf(int64(prompt)+2)
		r.CompletionAsked, r.Completion = results.IntOf(int64(output)), results.IntOf(int64(math.Ceil(output*(0.5+0.5*rng.Float64()))))
		r.Goodput = results.FlagOf(ttft < 2000)
	}
	if rng.Float64() < 0.002+0.02*math.Min(1, queued/s.capacity/4) {
		r.Outcome, r.Status, r.ErrorType = results.Failed, 503, "http_5xx"
		if !s.bare {
			r.Goodput = results.FlagNo
		}
		r.Elapsed = results.Num(3)
		return r
	}
	r.TTFT, r.TPOT, r.E2E = results.Num(ttft), results.Num(tpot), results.Num(ttft+tpot*output)
	r.ITLP50, r.ITLMax, r.ITLCount = results.Num(tpot), results.Num(tpot*4), 4
	return r
}

func (s synthetic) result() *verdict.Result {
	limit := func(name, text string, value, measured float64, unit string, status verdict.Status, n, over int64) verdict.Criterion {
		c := verdict.Criterion{
			Name: name, Section: "capacity_gate", Limit: text, LimitValue: &value, Measured: &measured, Unit: unit, N: n, Over: over, Verdict: status,
		}
		low, high := float64(over)/float64(n)*0.8, min(1, float64(over+3)/float64(n)*1.1)
		c.OverLow, c.OverHigh = &low, &high
		return c
	}
	n := int64(s.rate * s.steady.Seconds())
	tail := 640.0
	if s.status == verdict.Fail {
		tail = 4200
	}
	return &verdict.Result{
		Schema: verdict.Schema, Verdict: s.status, Confidence: 0.95, Started: syntheticStart, Ended: syntheticStart.Add(s.warmup + s.steady),
		Workload: "chat.jsonl", Labels: []string{results.LabelSyntheticPrompts},
		Criteria: []verdict.Criterion{
			limit("success_rate", ">= 0.995", 0.995, 0.998, "ratio", verdict.Pass, n, 2),
			limit("ttft_p95", "<= 800ms", 800, tail/2, "ms", s.status, n, 4),
			limit("ttft_p99", "<= 2s", 2000, tail, "ms", s.status, n, 12),
			limit("itl_p99", "<= 80ms", 80, 57, "ms", verdict.Pass, n, 2),
			limit("e2e_p99", "<= 30s", 30000, 9100, "ms", verdict.Pass, n, 0),
			limit("client_headroom.cpu", "<= 80%", 0.8, 0.26, "ratio", verdict.Pass, 300, 0),
			{Name: "client_headroom.open_files", Section: "client_headroom", Limit: "<= 80%", Unit: "ratio", Verdict: verdict.Inconclusive, Ignored: true},
		},
		Counts: results.Counts{Offered: n, Started: n, Completed: n},
		Phases: []verdict.Phase{{Name: "steady", Counts: results.Counts{Offered: n, Started: n, Completed: n}, Metrics: map[string]verdict.Quantiles{
			"ttft": {N: n, P50: 80, P95: tail / 2, P99: tail, Max: 2 * tail},
		}}},
	}
}

// search writes the probes of a capacity search: three arrival processes at several rates each.
func search(tb testing.TB, dir string, steady time.Duration) {
	tb.Helper()
	for a, arrival := range []string{arrivalConstant, arrivalPoisson, arrivalBursty} {
		limit := []float64{42, 38, 30}[a]
		for i, rate := range []float64{10, 20, 30, 36, 40, 44} {
			status := verdict.Pass
			if rate > limit {
				status = verdict.Fail
			}
			out := filepath.Join(dir, arrival, "probe-0"+strconv.Itoa(i+1))
			synthetic{
				rate: rate, capacity: 43, arrival: arrival, warmup: 20 * time.Second, steady: steady, seed: uint64(10*a + i), status: status,
			}.write(tb, out)
		}
	}
}
