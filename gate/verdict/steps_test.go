package verdict

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// climb is one step of a staircase that a test writes down: arrivals a second, and what they were answered.
type climb struct {
	name        string
	rate        int
	settle      int // seconds
	hold        int // seconds
	ttft        func(n int) float64
	gap         float64
	queue       func(second int) float64
	inFlight    int64
	noServer    bool
	requestsEnd int // how many of the last steady requests are in flight at the end
}

// staircase records steps one after the other.
func staircase(steps ...climb) *recorded {
	r := &recorded{}
	second := 0
	for _, s := range steps {
		n := 0
		for i := range s.settle + s.hold {
			phase := steady
			if i < s.settle {
				phase = "warmup"
			}
			for k := range s.rate {
				at := epoch.Add(time.Duration(second)*time.Second + time.Duration(k)*time.Second/time.Duration(s.rate))
				q := results.Request{
					Row: int64(len(r.requests)), Phase: phase, Step: s.name, Due: at, Start: at, Outcome: results.OK, Status: 200,
					TTFT: results.Num(s.ttft(n)), E2E: results.Num(s.ttft(n) + 100), ITLP99: results.Num(s.gap),
				}
				if i >= s.settle {
					n++
				}
				if n > s.rate*s.hold-s.requestsEnd {
					q.Outcome, q.TTFT, q.E2E, q.ITLP99 = results.InFlight, results.Number{}, results.Number{}, results.Number{}
				}
				r.requests = append(r.requests, q)
			}
			sample := results.Sample{Time: epoch.Add(time.Duration(second) * time.Second), Phase: phase, Step: s.name, Offered: count(int64(s.rate)), InFlight: count(s.inFlight)}
			if !s.noServer {
				depth := 0.0
				if s.queue != nil {
					depth = s.queue(i)
				}
				sample.Server = map[string]float64{"queue_depth": depth}
			}
			r.samples = append(r.samples, sample)
			second++
		}
	}

	return r
}

func constantly(ms float64) func(int) float64 { return func(int) float64 { return ms } }

// A staircase is judged rate by rate, and a rate that fails is not hidden by the many requests of the others.
func TestEachStepIsJudgedByItself(t *testing.T) {
	out := staircase(
		climb{name: "10", rate: 10, settle: 5, hold: 60, ttft: constantly(100)},
		climb{name: "20", rate: 20, settle: 5, hold: 60, ttft: constantly(200)},
		climb{name: "4", rate: 4, settle: 5, hold: 30, ttft: func(n int) float64 {
			if n%5 == 0 { // a fifth of 120, which is one in 80 of all
				return 900
			}
			return 300
		}},
	).judge(t, gate(`ttft_p95: "<= 500ms"`, `success_rate: ">= 0.9"`)+"recovery: {ttft_p95: \"<= 1s\"}\n")

	require.Len(t, out.Steps, 3)
	names := []string{"10", "20", "4"}
	for i, step := range out.Steps {
		require.Equal(t, names[i], step.Name)
		require.InDelta(t, []float64{10, 20, 4}[i], *step.OfferedPerSecond, 1e-9)
		require.EqualValues(t, []int{600, 1200, 120}[i], step.Counts.Offered)
		require.EqualValues(t, []int{600, 1200, 120}[i], step.Counts.Completed)
		require.Equal(t, []Status{Pass, Pass, Fail}[i], step.Verdict)
		for _, c := range step.Criteria {
			require.Equal(t, steady, c.Phase, c.Name)
			if c.Name == "ttft_p95" {
				require.InDelta(t, []float64{100, 200, 900}[i], *c.Measured, 0)
				require.EqualValues(t, []int{600, 1200, 120}[i], c.N)
				require.EqualValues(t, []int{0, 0, 24}[i], c.Over)
			}
		}
	}
	pooled := out.criterion(t, "ttft_p95")
	require.EqualValues(t, 1920, pooled.N)
	require.InDelta(t, 300, *pooled.Measured, 0, "of all requests, as the limit is written")
	require.Equal(t, Fail, pooled.Verdict)
	require.Equal(t, "it fails at step 4, which the steady phase as a whole hides", pooled.Note)
	require.Equal(t, Pass, out.criterion(t, "success_rate").Verdict)
	require.Equal(t, Fail, out.Verdict)
	require.InDelta(t, 1917.0/(59.9+59.95+29.75), *out.Phases[1].OfferedPerSecond, 1e-9, "the time of the steps alone")
	for _, warning := range out.Warnings {
		require.NotContains(t, warning, "warmup was too short", "a busier step is slower")
	}
}

func TestOneRateIsNoStaircase(t *testing.T) {
	out := staircase(climb{name: "10", rate: 10, hold: 60, ttft: constantly(100)}).judge(t, gate(`ttft_p95: "<= 500ms"`))
	require.Empty(t, out.Steps)
	require.Equal(t, Pass, out.Verdict)
}

// Requests in flight rise from step to step without any growth within one; a queue that grows within one is found.
func TestGrowthIsLookedForInEachStep(t *testing.T) {
	rising := func(second int) float64 { return float64(3 * second) }
	low := climb{name: "10", rate: 10, settle: 2, hold: 60, ttft: constantly(1)}
	high := climb{name: "40", rate: 40, settle: 2, hold: 60, ttft: constantly(1)}
	growth := func(change func(low, high *climb)) Criterion {
		a, b := low, high
		change(&a, &b)
		return staircase(a, b).judge(t, gate("queue_growth: no_sustained_growth")).criterion(t, "queue_growth")
	}
	c := growth(func(*climb, *climb) {})
	require.Equal(t, Pass, c.Verdict)
	require.InDelta(t, 0, *c.Measured, 0)
	require.EqualValues(t, 120, c.N)
	c = growth(func(a, b *climb) { a.noServer, b.noServer, a.inFlight, b.inFlight = true, true, 3, 500 })
	require.Equal(t, Pass, c.Verdict, c.Note)
	c = growth(func(_, b *climb) { b.queue = rising })
	require.Equal(t, Fail, c.Verdict)
	require.Contains(t, c.Note, "at step 40")
	c = growth(func(a, b *climb) { a.hold, b.hold, a.noServer, b.noServer = 5, 5, true, true })
	require.Equal(t, Inconclusive, c.Verdict)
	require.Nil(t, c.Measured)
	require.Contains(t, c.Note, "too short")
	c = growth(func(a, b *climb) { a.hold, b.hold = 14, 14 })
	require.Equal(t, Pass, c.Verdict, "the server's queue comes back to zero at every rate: the whole is looked at")
	low.hold, high.hold = 14, 14
	out := staircase(low, high).judge(t, gate("queue_growth: no_sustained_growth"))
	require.Equal(t, Pass, out.Verdict)
	for _, step := range out.Steps {
		require.Equal(t, Pass, step.Verdict, "nothing is left open")
		require.True(t, step.Criteria[0].Ignored)
	}
}

// A trend within a step is one; the step is named.
func TestATrendIsLookedForInEachStep(t *testing.T) {
	noise := rand.New(rand.NewPCG(1, 2))
	out := staircase(
		climb{name: "10", rate: 10, hold: 60, ttft: func(int) float64 { return 100 + noise.Float64() }},
		climb{name: "20", rate: 20, hold: 60, ttft: func(n int) float64 { return max(200, 600-float64(n)) + noise.Float64() }},
	).judge(t, gate(`ttft_p95: "<= 5s"`))
	require.Contains(t, strings.Join(out.Warnings, "\n"), "the declared warmup was too short: in the first fifth of step 20 the median ttft")
}

// A run that was cut short was cut short in its last step: those before it were whole.
func TestAnAbortIsOfTheLastStep(t *testing.T) {
	r := staircase(
		climb{name: "10", rate: 10, hold: 60, ttft: constantly(100)},
		climb{name: "20", rate: 20, hold: 60, ttft: constantly(100), requestsEnd: 2},
	)
	run := r.write(t)
	run.Info.Aborted = &results.Aborted{Rule: results.RuleInterrupted, Saw: "a signal"}
	out, err := Judge(run, load(t, gate(`ttft_p95: "<= 500ms"`)))
	require.NoError(t, err)
	require.Equal(t, Pass, out.Steps[0].Verdict)
	require.Equal(t, Inconclusive, out.Steps[1].Verdict)
	require.EqualValues(t, 2, out.Steps[1].Counts.InFlight)
	require.Equal(t, Inconclusive, out.Verdict)
}

// A pass is one at every rate: what a step leaves open, or what the load generator spoilt there, the whole does not cover.
func TestAStepThatIsNotDecidedIsNotPassed(t *testing.T) {
	out := staircase(
		climb{name: "10", rate: 10, hold: 200, ttft: constantly(100)},
		climb{name: "4", rate: 4, hold: 25, ttft: func(n int) float64 {
			if n < 2 {
				return 3000 // 2 of 100
			}
			return 100
		}},
	).judge(t, gate(`ttft_p99: "<= 2s"`))
	require.Equal(t, []Status{Pass, Inconclusive}, []Status{out.Steps[0].Verdict, out.Steps[1].Verdict})
	c := out.criterion(t, "ttft_p99")
	require.Equal(t, Inconclusive, c.Verdict)
	require.Equal(t, "it is not decided at step 4, which the steady phase as a whole hides", c.Note)
	require.Equal(t, Inconclusive, out.Verdict)

	r := staircase(
		climb{name: "10", rate: 10, hold: 60, ttft: constantly(100)},
		climb{name: "20", rate: 20, hold: 60, ttft: constantly(100)},
	)
	for i := range r.samples {
		r.samples[i].Client = map[string]float64{"cpu": 0.2}
		if r.samples[i].Step == "20" && i%20 == 0 {
			r.samples[i].Client["cpu"] = 0.9 // 3 seconds of 60
		}
	}
	out = r.judge(t, gate(`ttft_p95: "<= 2s"`)+"client_headroom: {cpu_p96: \"<= 70%\"}\n")
	require.Equal(t, []Status{Pass, Invalid}, []Status{out.Steps[0].Verdict, out.Steps[1].Verdict})
	require.Equal(t, Fail, out.criterion(t, "client_headroom.cpu_p96").Verdict)
	require.Equal(t, Invalid, out.criterion(t, "ttft_p95").Verdict)
	require.Equal(t, Invalid, out.Verdict)
}

// A class that has no request at a rate is not judged there.
func TestAStepWithoutAClassDecidesNothingOfIt(t *testing.T) {
	r := staircase(
		climb{name: "10", rate: 10, hold: 60, ttft: constantly(100)},
		climb{name: "20", rate: 20, hold: 60, ttft: constantly(100)},
	)
	for i := range r.requests {
		if r.requests[i].Step == "10" {
			r.requests[i].Class = "long"
		}
	}
	out := r.judge(t, "capacity_gate: {ttft_p95: \"<= 1s\", by_class: {long: {ttft_p95: \"<= 1s\"}}}\n")
	require.Equal(t, Pass, out.criterion(t, "long/ttft_p95").Verdict)
	require.Equal(t, []Status{Pass, Pass, Pass}, []Status{out.Steps[0].Verdict, out.Steps[1].Verdict, out.Verdict})
}

// The time between two steps is not one in which nothing was seen.
func TestSettlingIsNoGap(t *testing.T) {
	r := staircase(
		climb{name: "10", rate: 10, settle: 15, hold: 20, ttft: constantly(100)},
		climb{name: "20", rate: 20, settle: 15, hold: 20, ttft: constantly(100)},
		climb{name: "30", rate: 30, settle: 60, hold: 20, ttft: constantly(100)},
	)
	for i := range r.samples {
		if r.samples[i].Phase == steady {
			r.samples[i].Client = map[string]float64{"cpu": 0.2}
		}
	}
	out := r.judge(t, gate(`ttft_p95: "<= 1s"`, "queue_growth: no_sustained_growth")+"client_headroom: {cpu: \"<= 70%\"}\n")
	require.Equal(t, Pass, out.criterion(t, "client_headroom.cpu").Verdict)
	require.Equal(t, Pass, out.criterion(t, "queue_growth").Verdict)
	require.Equal(t, Pass, out.Verdict)
}

// A run that ended while the third step settled had done with the second.
func TestAnAbortInTheSettlingLeavesTheStepBefore(t *testing.T) {
	r := staircase(
		climb{name: "10", rate: 10, settle: 5, hold: 60, ttft: constantly(100)},
		climb{name: "20", rate: 20, settle: 5, hold: 60, ttft: constantly(100)},
		climb{name: "30", rate: 30, settle: 5, ttft: constantly(100)},
	)
	run := r.write(t)
	run.Info.Aborted = &results.Aborted{Rule: results.RuleInterrupted, Saw: "a signal"}
	out, err := Judge(run, load(t, gate(`ttft_p95: "<= 500ms"`)))
	require.NoError(t, err)
	require.Len(t, out.Steps, 2)
	require.Equal(t, []Status{Pass, Pass, Inconclusive}, []Status{out.Steps[0].Verdict, out.Steps[1].Verdict, out.Verdict})
}
