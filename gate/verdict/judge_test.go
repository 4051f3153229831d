package verdict

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// recorded is a run that a test writes down by hand.
type recorded struct {
	info     results.Info
	requests []results.Request
	samples  []results.Sample
	events   []results.Event
	gaps     map[string][]float64 // by class, in the steady phase
	killed   bool
}

// add appends n requests of the steady phase, 100 ms apart, each changed by edit.
func (r *recorded) add(n int, edit func(i int, q *results.Request)) *recorded {
	for range n {
		i := len(r.requests)
		at := epoch.Add(time.Duration(i) * 100 * time.Millisecond)
		q := results.Request{
			Row: int64(i), Phase: steady, Due: at, Start: at, Outcome: results.OK, Status: 200,
			TTFT: results.Num(100), TTFTText: results.Num(110), TPOT: results.Num(10), E2E: results.Num(1000),
			OutputTPS: results.Num(50), ITLP99: results.Num(12), ITLCount: 90, ScheduleDelay: results.Num(0.2),
			CompletionAsked: results.IntOf(91), Completion: results.IntOf(91), Goodput: results.FlagYes,
		}
		if edit != nil {
			edit(i, &q)
		}
		r.requests = append(r.requests, q)
	}
	return r
}

func failWith(status int) func(int, *results.Request) {
	return func(_ int, q *results.Request) {
		*q = results.Request{
			Row: q.Row, Phase: q.Phase, Class: q.Class, Due: q.Due, Start: q.Start, Outcome: results.Failed,
			ErrorType: "http_5xx", Status: status, Elapsed: results.Num(2), Goodput: results.FlagNo,
		}
	}
}

func everyTenth(edit func(int, *results.Request)) func(int, *results.Request) {
	return func(i int, q *results.Request) {
		if i%10 == 0 {
			edit(i, q)
		}
	}
}

// seconds appends one sample per second of the phase.
func (r *recorded) seconds(phase string, n int, edit func(i int, s *results.Sample)) *recorded {
	for i := range n {
		s := results.Sample{Time: epoch.Add(time.Duration(len(r.samples)) * time.Second), Phase: phase}
		edit(i, &s)
		r.samples = append(r.samples, s)
	}
	return r
}

func (r *recorded) write(t testing.TB) *results.Run {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	info := r.info
	if info.Started.IsZero() {
		info.Started = epoch
	}
	w, err := results.Create(dir, info, results.Options{})
	require.NoError(t, err)
	for i := range r.requests {
		require.NoError(t, w.Request(&r.requests[i]))
	}
	for class, gaps := range r.gaps {
		require.NoError(t, w.RecordITL(steady, "", class, gaps))
	}
	for _, s := range r.samples {
		require.NoError(t, w.Sample(s))
	}
	for _, e := range r.events {
		require.NoError(t, w.Event(e))
	}
	if r.killed {
		require.NoError(t, w.Flush(epoch))
	}
	require.NoError(t, w.Close(epoch.Add(time.Hour), nil))
	if r.killed {
		require.NoError(t, results.WriteFile(filepath.Join(dir, results.RunFile), []byte(
			`{"schema":"`+results.Schema+`","started":"2026-01-31T12:00:00Z"}`)))
	}
	run, err := results.Open(dir)
	require.NoError(t, err)
	return run
}

func (r *recorded) judge(t testing.TB, text string) *Result {
	t.Helper()
	out, err := Judge(r.write(t), load(t, text))
	require.NoError(t, err)
	return out
}

func (r *Result) criterion(t testing.TB, name string) Criterion {
	t.Helper()
	for _, c := range r.Criteria {
		if c.Name == name {
			return c
		}
	}
	require.Fail(t, "no criterion", name)
	return Criterion{}
}

func gate(lines ...string) string {
	return "capacity_gate:\n  " + strings.Join(lines, "\n  ") + "\n"
}

func count(n int64) *int64 { return &n }

func TestQuantileCriterion(t *testing.T) {
	slow := func(i int, q *results.Request) {
		if i%100 == 50 { // 1 %
			q.TTFT = results.Num(900)
		}
	}
	for _, c := range []struct {
		name     string
		run      *recorded
		line     string
		want     Status
		measured float64 // NaN: absent
		n, over  int64
		needed   int64 // 0: absent
		note     string
	}{
		{"pass", new(recorded).add(1000, slow), `ttft_p95: "<= 800ms"`, Pass, 100, 1000, 10, 0, ""},
		{"fail", new(recorded).add(1000, slow), `ttft_p99.9: "<= 800ms"`, Fail, 900, 1000, 10, 0, ""},
		{"as tolerated", new(recorded).add(1000, slow), `ttft_p99: "<= 800ms"`, Inconclusive, 100, 1000, 10, 693, ""},
		{"the limit itself is kept", new(recorded).add(1000, slow), `ttft_p99.9: "<= 900ms"`, Inconclusive, 900, 1000, 0, 1995, ""},
		{"and is not with <", new(recorded).add(1000, slow), `ttft_p99.9: "< 900ms"`, Fail, 900, 1000, 10, 0, ""},
		{"60 requests prove no p99", new(recorded).add(60, nil), `ttft_p99: "<= 800ms"`, Inconclusive, 100, 60, 0, 239, ""},
		{"59 prove a p95", new(recorded).add(59, nil), `ttft_p95: "<= 800ms"`, Pass, 100, 59, 0, 0, ""},
		{"max", new(recorded).add(1000, slow), `ttft_max: "<= 800ms"`, Fail, 900, 1000, 10, 0, ""},
		{"max kept", new(recorded).add(1000, slow), `ttft_max: "<= 900ms"`, Pass, 900, 1000, 0, 0, ""},
		{"min", new(recorded).add(1000, slow), `ttft_min: "<= 100ms"`, Pass, 100, 1000, 0, 0, ""},
		{"no requests", new(recorded), `ttft_p95: "<= 800ms"`, Inconclusive, math.NaN(), 0, 0, 59, "nothing was measured"},
		{
			"slow streams", new(recorded).add(1000, func(i int, q *results.Request) {
				if i%5 == 0 {
					q.OutputTPS = results.Num(10)
				}
			}), `output_tps_p5: ">= 20 tokens/s"`, Fail, 10, 1000, 200, 0, "",
		},
		{
			"failures are over any limit", new(recorded).add(1000, everyTenth(failWith(503))), `ttft_p95: "<= 800ms"`,
			Fail, math.NaN(), 1000, 100, 0, "the quantile falls among the requests that failed; 100 of 1000 requests failed",
		},
		{
			// 10 % of the requests fail, but in one outage: this could be chance.
			"one outage", new(recorded).add(450, nil).add(100, failWith(503)).add(450, nil), `ttft_p95: "<= 800ms"`,
			Inconclusive, math.NaN(), 1000, 100, -1, "",
		},
		{
			"a failure is over the limit even after its first token", new(recorded).add(1000, func(i int, q *results.Request) {
				if i%10 == 0 {
					q.Outcome, q.ErrorType = results.Failed, "stream_truncated"
				}
			}), `ttft_p95: "<= 800ms"`, Fail, math.NaN(), 1000, 100, 0, "",
		},
		{
			"no first token, no objective met", new(recorded).add(1000, func(i int, q *results.Request) {
				if i%10 == 0 {
					q.TTFT = results.Number{}
				}
			}), `ttft_p95: "<= 800ms"`, Fail, math.NaN(), 1000, 100, 0, "",
		},
		{
			"one token asked for, no TPOT to expect", new(recorded).add(1000, func(i int, q *results.Request) {
				if i%10 == 0 {
					q.TPOT, q.CompletionAsked = results.Number{}, results.IntOf(1)
				}
			}), `tpot_p95: "<= 50ms"`, Pass, 10, 900, 0, 0, "",
		},
		{
			"cancelled: its TTFT counts", new(recorded).add(1000, func(i int, q *results.Request) {
				if i%10 == 0 {
					q.Outcome, q.CancelPhase, q.TTFT = results.Cancelled, "decode", results.Num(5000)
				}
			}), `ttft_p95: "<= 800ms"`, Fail, 5000, 1000, 100, 0, "",
		},
		{
			"cancelled while it waited: over the limit if it waited longer", new(recorded).add(1000, func(i int, q *results.Request) {
				if i%10 == 0 {
					q.Outcome, q.TTFT, q.Elapsed = results.Cancelled, results.Number{}, results.Num(1000)
				}
				if i%10 == 1 {
					q.Outcome, q.TTFT, q.Elapsed = results.Cancelled, results.Number{}, results.Num(500)
				}
			}), `ttft_p95: "<= 800ms"`, Fail, 1000, 900, 100, 0,
			"100 had waited longer than the limit when the run ended or their user left, and count with that time; 100 requests whose users left in time are not counted",
		},
		{
			"retries are not arrivals", new(recorded).add(1000, nil).add(100, func(_ int, q *results.Request) {
				q.Attempt, q.TTFT = 2, results.Num(5000)
			}), `ttft_p95: "<= 800ms"`, Pass, 100, 1000, 0, 0, "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.run.judge(t, gate(c.line))
			criterion := got.Criteria[0]
			require.Equal(t, c.want, criterion.Verdict, "%+v", criterion)
			require.Equal(t, c.want, got.Verdict)
			if math.IsNaN(c.measured) {
				require.Nil(t, criterion.Measured)
			} else {
				require.NotNil(t, criterion.Measured)
				require.InDelta(t, c.measured, *criterion.Measured, 1e-9)
			}
			require.Equal(t, c.n, criterion.N)
			require.Equal(t, c.over, criterion.Over)
			switch {
			case c.needed < 0:
				require.NotNil(t, criterion.Needed)
			case c.needed == 0:
				require.Nil(t, criterion.Needed)
			default:
				require.Equal(t, count(c.needed), criterion.Needed)
			}
			require.Contains(t, criterion.Note, c.note)
		})
	}
}

func TestUndecidedArrivalsCannotMakeAPassOrAFail(t *testing.T) {
	// 59 good requests prove a p95; one dropped arrival, or one that the run's end cut short, undoes it.
	for _, undecided := range []func(int, *results.Request){
		func(_ int, q *results.Request) {
			q.Outcome, q.Start, q.TTFT = results.Dropped, time.Time{}, results.Number{}
		},
		func(_ int, q *results.Request) {
			q.Outcome, q.TTFT, q.Elapsed = results.InFlight, results.Number{}, results.Num(300)
		},
	} {
		r := new(recorded).add(59, nil).add(1, undecided).judge(t, gate(`ttft_p95: "<= 800ms"`))
		c := r.Criteria[0]
		require.Equal(t, Inconclusive, c.Verdict)
		require.Equal(t, int64(59), c.N)
		require.Equal(t, int64(1), c.Undecided)
		require.Equal(t, count(33), c.Needed, "93 requests are needed with one over")
	}
	// One that had waited longer than the limit is over it.
	r := new(recorded).add(59, nil).add(1, func(_ int, q *results.Request) {
		q.Outcome, q.TTFT, q.Elapsed = results.InFlight, results.Number{}, results.Num(900)
	}).judge(t, gate(`ttft_p95: "<= 800ms"`))
	require.Equal(t, int64(1), r.Criteria[0].Over)
	require.Zero(t, r.Criteria[0].Undecided)
}

func TestRateCriteria(t *testing.T) {
	mixed := func() *recorded {
		return new(recorded).add(1000, func(i int, q *results.Request) {
			switch {
			case i%100 == 3:
				failWith(503)(i, q)
			case i%100 == 50:
				failWith(429)(i, q)
			case i%10 == 7:
				q.Outcome, q.Goodput = results.Cancelled, results.FlagAbsent
			case i%10 == 8:
				q.Goodput = results.FlagNo
			}
		})
	}
	for _, c := range []struct {
		line     string
		want     Status
		measured float64
		n, over  int64
	}{
		{`success_rate: ">= 95%"`, Pass, 880.0 / 900, 900, 20},
		{`success_rate: ">= 99.5%"`, Fail, 880.0 / 900, 900, 20},
		{`success_rate: ">= 98%"`, Inconclusive, 880.0 / 900, 900, 20},
		{`error_rate: "<= 5%"`, Pass, 20.0 / 900, 900, 20},
		{`http_5xx: "<= 2%"`, Pass, 0.01, 1000, 10},
		{`http_5xx: "== 0"`, Fail, 0.01, 1000, 10},
		{`goodput: ">= 80%"`, Pass, 780.0 / 900, 900, 120},
		{`goodput: ">= 95%"`, Fail, 780.0 / 900, 900, 120},
	} {
		got := mixed().judge(t, gate(c.line)).Criteria[0]
		require.Equal(t, c.want, got.Verdict, c.line)
		require.InDelta(t, c.measured, *got.Measured, 1e-12, c.line)
		require.Equal(t, c.n, got.N, c.line)
		require.Equal(t, c.over, got.Over, c.line)
		require.Less(t, *got.OverLow, float64(c.over)/float64(c.n))
		require.Greater(t, *got.OverHigh, float64(c.over)/float64(c.n))
	}
	none := new(recorded).add(100, func(_ int, q *results.Request) { q.Goodput = results.FlagAbsent })
	got := none.judge(t, gate(`goodput: ">= 80%"`)).Criteria[0]
	require.Equal(t, Inconclusive, got.Verdict)
	require.Contains(t, got.Note, "no request was judged")
}

func TestInstantRejectionsNeverImproveAVerdict(t *testing.T) {
	const slo = `capacity_gate:
  success_rate: ">= 99%"
  ttft_p95: "<= 800ms"
  itl_p99: "<= 80ms"
  e2e_p99: "<= 30s"
  e2e_avg: "<= 3s"
  tpot_p95: "<= 50ms"
  output_tps_p5: ">= 20 tokens/s"
  goodput: ">= 95%"
`
	// The service is too slow for everything; then it answers every second request 503 at once, and the rest well.
	overloaded := new(recorded).add(1000, func(_ int, q *results.Request) {
		q.TTFT, q.E2E, q.TPOT, q.Goodput = results.Num(4000), results.Num(40_000), results.Num(90), results.FlagNo
		q.OutputTPS, q.ITLP99 = results.Num(11), results.Num(200)
	})
	overloaded.gaps = map[string][]float64{"": repeat(200, 1000)}
	rejecting := new(recorded).add(1000, func(i int, q *results.Request) {
		if i%2 == 0 {
			failWith(503)(i, q)
		}
	})
	rejecting.gaps = map[string][]float64{"": repeat(10, 1000)}
	for name, run := range map[string]*recorded{"overloaded": overloaded, "rejecting": rejecting} {
		got := run.judge(t, slo)
		require.Equal(t, Fail, got.Verdict, name)
		for _, c := range got.Criteria {
			if c.Section != "capacity_gate" || name == "overloaded" && c.Name == "success_rate" {
				continue
			}
			// The mean alone need not fail: rejected requests count with the limit, so that it is at least not passed.
			if name == "rejecting" && c.Name == "e2e_avg" {
				require.InDelta(t, 2000, *c.Measured, 1e-9, "half at 1 s, half at the limit of 3 s")
				continue
			}
			require.Equal(t, Fail, c.Verdict, "%s %s", name, c.Name)
		}
	}
}

func TestFailuresCountInAMeanWithTheWorst(t *testing.T) {
	got := new(recorded).add(1000, func(i int, q *results.Request) {
		q.E2E = results.Num(5000)
		if i%2 == 0 {
			failWith(503)(i, q)
		}
	}).judge(t, gate(`e2e_avg: "<= 3s"`)).Criteria[0]
	require.InDelta(t, 5000, *got.Measured, 1e-9)
	require.Equal(t, Fail, got.Verdict)
}

func repeat(v float64, n int) []float64 {
	all := make([]float64, n)
	for i := range all {
		all[i] = v
	}
	return all
}

func TestInterTokenLatency(t *testing.T) {
	// 1000 answers; 2 % of the gaps are slow.
	gaps := append(repeat(10, 98_000), repeat(500, 2000)...)
	good := func() *recorded {
		r := new(recorded).add(1000, nil)
		r.gaps = map[string][]float64{"": gaps}
		return r
	}
	c := good().judge(t, gate(`itl_p95: "<= 80ms"`)).Criteria[0]
	require.Equal(t, Pass, c.Verdict)
	require.InEpsilon(t, 10, *c.Measured, 0.001)
	require.Equal(t, int64(1000), c.N, "answers, not gaps")
	require.Equal(t, int64(20), c.Over)
	require.Contains(t, c.Note, "100000 gaps, 2000 of them over the limit")

	c = good().judge(t, gate(`itl_p99: "<= 80ms"`)).Criteria[0]
	require.Equal(t, Fail, c.Verdict)
	require.InEpsilon(t, 500, *c.Measured, 0.001)

	c = good().judge(t, gate(`itl_max: "<= 400ms"`)).Criteria[0]
	require.Equal(t, Fail, c.Verdict)
	c = good().judge(t, gate(`itl_max: "<= 501ms"`)).Criteria[0]
	require.Equal(t, Pass, c.Verdict)

	failing := new(recorded).add(1000, everyTenth(failWith(500)))
	failing.gaps = map[string][]float64{"": gaps}
	c = failing.judge(t, gate(`itl_p95: "<= 80ms"`)).Criteria[0]
	require.Equal(t, Fail, c.Verdict)
	require.Nil(t, c.Measured)
	require.Equal(t, int64(118), c.Over, "100 failed requests, and 2 % of 900 answers")

	none := new(recorded).add(1000, func(_ int, q *results.Request) { q.ITLP99 = results.Number{} })
	c = none.judge(t, gate(`itl_p95: "<= 80ms"`)).Criteria[0]
	require.Equal(t, Inconclusive, c.Verdict)
	require.Contains(t, c.Note, "no gap between chunks was recorded")
}

func TestByClassAndPhase(t *testing.T) {
	r := new(recorded).add(1000, func(i int, q *results.Request) {
		q.Class = "short"
		if i%2 == 0 {
			q.Class, q.TTFT = "long", results.Num(2000)
		}
	}).add(500, func(_ int, q *results.Request) { q.Phase, q.TTFT = "warmup", results.Num(9000) })
	got := r.judge(t, `
capacity_gate:
  ttft_p95: "<= 3s"
  by_class: {short: {ttft_p95: "<= 800ms"}, long: {ttft_p95: "<= 800ms"}}
`)
	require.Equal(t, Pass, got.criterion(t, "ttft_p95").Verdict)
	require.Equal(t, int64(1000), got.criterion(t, "ttft_p95").N, "the warmup does not count")
	require.Equal(t, Pass, got.criterion(t, "short/ttft_p95").Verdict)
	require.Equal(t, Fail, got.criterion(t, "long/ttft_p95").Verdict)
	require.Equal(t, int64(500), got.criterion(t, "long/ttft_p95").N)

	require.Equal(t, "warmup", got.Phases[0].Name)
	require.Equal(t, int64(500), got.Phases[0].Counts.Completed, "but it is shown")
	require.InDelta(t, 9000, got.Phases[0].Metrics["ttft"].P50, 0)
	require.Equal(t, results.Counts{Offered: 1500, Started: 1500, Completed: 1500}, got.Counts)
}

func TestThroughputAndLevels(t *testing.T) {
	r := new(recorded).add(700, nil).
		seconds(steady, 120, func(i int, s *results.Sample) {
			tokens, done := int64(700+10*(i%3)), int64(5)
			s.CompletionTokens, s.Completed = &tokens, &done
			s.Client = map[string]float64{"cpu": 0.5}
			s.Server = map[string]float64{"queue_depth": 4}
		}).
		seconds("recovery", 40, func(i int, s *results.Sample) {
			s.Server = map[string]float64{"queue_depth": float64(39 - i)}
		})
	got := r.judge(t, `
capacity_gate: {output_tokens_per_second: ">= 700", requests_per_second: ">= 6"}
recovery: {queue_depth: "<= 3"}
client_headroom: {cpu: "<= 70%"}
`)
	c := got.criterion(t, "output_tokens_per_second")
	require.Equal(t, Pass, c.Verdict)
	require.InDelta(t, 710, *c.Measured, 1e-9)
	require.Equal(t, Fail, got.criterion(t, "requests_per_second").Verdict)
	c = got.criterion(t, "recovery.queue_depth")
	require.Equal(t, Fail, c.Verdict, "the median of 9 to 0 is 4")
	require.Equal(t, int64(10), c.N, "%+v", c)
	require.InDelta(t, 4, *c.Measured, 0)
	cpu := got.criterion(t, "client_headroom.cpu")
	require.Equal(t, Pass, cpu.Verdict)
	require.InDelta(t, 0.5, *cpu.Measured, 0)
	memory := got.criterion(t, "client_headroom.memory")
	require.True(t, memory.Ignored, "a default that nothing was measured for")
	require.Equal(t, Inconclusive, memory.Verdict)
	require.InDelta(t, 710, *got.Phases[0].OutputTokensPerSecond, 1e-9)
	require.Nil(t, got.Phases[0].PromptTokensPerSecond, "not measured")
}

func TestClientHeadroomTurnsAPassIntoInvalid(t *testing.T) {
	const slo = `
capacity_gate: {ttft_p95: "<= 800ms"}
client_headroom: {cpu: "<= 70%"}
`
	busy := func(r *recorded) *recorded {
		return r.seconds(steady, 60, func(_ int, s *results.Sample) { s.Client = map[string]float64{"cpu": 0.9} })
	}
	got := busy(new(recorded).add(1000, nil)).judge(t, slo)
	require.Equal(t, Invalid, got.Verdict)
	require.Equal(t, 2, got.Verdict.ExitCode())
	require.Equal(t, Invalid, got.criterion(t, "ttft_p95").Verdict)
	require.Contains(t, got.criterion(t, "ttft_p95").Note, "the load generator was the bottleneck")
	require.Equal(t, Fail, got.criterion(t, "client_headroom.cpu").Verdict)

	got = busy(new(recorded).add(1000, failWith(503))).judge(t, slo)
	require.Equal(t, Fail, got.Verdict, "a failure stays one")
	got = busy(new(recorded).add(10, nil)).judge(t, slo)
	require.Equal(t, Invalid, got.Verdict, "more requests would not help")

	// A criterion that the contract states and nothing was measured for leaves the question open.
	got = new(recorded).add(1000, nil).judge(t, slo)
	require.Equal(t, Inconclusive, got.Verdict)
	require.False(t, got.criterion(t, "client_headroom.cpu").Ignored)

	// Dropped arrivals: the load that was asked for was not there.
	got = new(recorded).add(1000, func(i int, q *results.Request) {
		if i == 500 {
			q.Outcome, q.Start = results.Dropped, time.Time{}
		}
	}).judge(t, gate(`ttft_p95: "<= 800ms"`))
	require.Equal(t, Invalid, got.Verdict)
	require.Equal(t, int64(1), got.criterion(t, "client_headroom.dropped").Over)
	require.Equal(t, results.Counts{Offered: 1000, Started: 999, Dropped: 1, Completed: 999}, got.Counts)

	// The generator fell behind its schedule: every gap is 5 % too long.
	got = new(recorded).add(1000, func(i int, q *results.Request) {
		q.Start = q.Due.Add(time.Duration(i) * 5 * time.Millisecond)
	}).judge(t, gate(`ttft_p95: "<= 800ms"`))
	require.Equal(t, Invalid, got.Verdict)
	require.InDelta(t, 1-1/1.05, *got.criterion(t, "client_headroom.schedule_error").Measured, 1e-9)
}

// Without a recovery phase the drain carries the steady phase's name: 20 s of five a second, then six of what was left.
func TestTheDrainIsNotTheSteadyPhase(t *testing.T) {
	r := new(recorded).add(200, nil).seconds(steady, 26, func(i int, s *results.Sample) {
		done, tokens := int64(8), int64(800)
		s.Completed, s.CompletionTokens = &done, &tokens
		s.Client, s.Server = map[string]float64{"cpu": 0.5}, map[string]float64{"queue_depth": 4, "prefix_hit_ratio": 0.5}
		switch {
		case i >= 20:
			done, tokens = 3, 300
			s.Client["cpu"], s.Server["queue_depth"], s.Server["prefix_hit_ratio"] = 0.1, 0, 1
		case i%4 == 0: // nothing completed, so that nobody had tokens to count
			done, s.CompletionTokens = 0, nil
		}
	})
	got := r.judge(t, `
capacity_gate: {output_tokens_per_second: ">= 100", requests_per_second: ">= 1"}
client_headroom: {cpu: "<= 70%"}
`)
	// The last arrival is at 19.9 s: the seconds 0 to 18, of which 5 are empty.
	tokens := got.criterion(t, "output_tokens_per_second")
	require.Equal(t, int64(19), tokens.N)
	require.InDelta(t, 800*14.0/19, *tokens.Measured, 1e-9)
	require.InDelta(t, 8*14.0/19, *got.criterion(t, "requests_per_second").Measured, 1e-9)
	require.InDelta(t, 8*14.0/19, *got.Phases[0].RequestsPerSecond, 1e-9)
	require.InDelta(t, 800*14.0/19, *got.Phases[0].OutputTokensPerSecond, 1e-9)
	cpu := got.criterion(t, "client_headroom.cpu")
	require.Equal(t, int64(20), cpu.N, "an idle load generator afterwards is no headroom")
	require.InDelta(t, 0.5, got.Prefix.Measured, 1e-12)
}

func TestQueueGrowthFromRequestsInFlight(t *testing.T) {
	// The service fills up during the warmup and then settles: 12 requests more in ten minutes are no backlog.
	settling := func() *recorded {
		return new(recorded).add(1000, func(_ int, q *results.Request) { q.Phase = "warmup" }).add(6000, nil).
			seconds("warmup", 100, func(i int, s *results.Sample) {
				inFlight, offered := int64(i*64/100), int64(20)
				s.InFlight, s.Offered = &inFlight, &offered
			}).
			seconds(steady, 600, func(i int, s *results.Sample) {
				inFlight, offered := int64(64+i/50), int64(20)
				s.InFlight, s.Offered = &inFlight, &offered
			})
	}
	got := settling().judge(t, gate(`queue_growth: no_sustained_growth`)).Criteria[0]
	require.Equal(t, Pass, got.Verdict)
	require.Contains(t, got.Note, "judged by the requests in flight")
	require.Equal(t, int64(600), got.N)

	growing := settling()
	for i := range growing.samples[100:] {
		*growing.samples[100+i].InFlight += int64(i)
	}
	got = growing.judge(t, gate(`queue_growth: no_sustained_growth`)).Criteria[0]
	require.Equal(t, Fail, got.Verdict)
	require.InDelta(t, 1, *got.Measured, 0)

	short := settling()
	short.samples = short.samples[:180]
	got = short.judge(t, gate(`queue_growth: no_sustained_growth`)+"phases: {warmup: 100s, steady: 10m, recovery: 0s}\n").Criteria[0]
	require.Equal(t, Inconclusive, got.Verdict)
	require.Contains(t, got.Note, "the steady phase is too short for sustained growth to be found")

	none := new(recorded).add(100, nil).judge(t, gate(`queue_growth: no_sustained_growth`)).Criteria[0]
	require.Equal(t, Inconclusive, none.Verdict)
	require.Contains(t, none.Note, "no queue depth was recorded")
}

func TestBaselineLimits(t *testing.T) {
	c := load(t, gate(`tpot_p95: "<= baseline + 10%"`))
	baseline, err := Judge(new(recorded).add(1000, nil).write(t), c)
	require.NoError(t, err)
	require.Equal(t, Inconclusive, baseline.Verdict)
	require.Contains(t, baseline.Criteria[0].Note, "the limit waits for a baseline")
	require.Equal(t, map[string]float64{"tpot_p95": 10}, onlyGate(baseline))

	resolved, err := c.Resolve(baseline.Measured())
	require.NoError(t, err)
	for tpot, want := range map[float64]Status{10.9: Pass, 11.1: Fail} {
		run := new(recorded).add(1000, func(_ int, q *results.Request) { q.TPOT = results.Num(tpot) })
		got, err := Judge(run.write(t), resolved)
		require.NoError(t, err)
		require.Equal(t, want, got.Verdict)
		require.InDelta(t, 11, *got.Criteria[0].LimitValue, 1e-9)
	}
}

// A criterion that waits for its baseline shows what was measured, and no evidence about a limit that it has not.
func TestNoEvidenceAboutALimitThatIsNotKnown(t *testing.T) {
	for _, line := range []string{
		`itl_p99: "<= baseline + 10%"`, `ttft_p95: "<= baseline"`, `success_rate: ">= baseline - 1%"`, `e2e_avg: "<= baseline"`, `itl_max: "<= baseline"`,
	} {
		r := new(recorded).add(70, func(i int, q *results.Request) {
			if i == 3 {
				q.Outcome, q.Status = results.Failed, 500
			}
		})
		got := r.judge(t, gate(line)).Criteria[0]
		require.Equal(t, Inconclusive, got.Verdict, line)
		require.Zero(t, got.Over, line)
		require.Nil(t, got.OverLow, line)
		require.Nil(t, got.OverHigh, line)
		require.Nil(t, got.Needed, line)
		require.Nil(t, got.NeededAtShare, line)
		require.NotContains(t, got.Note, "over the limit", line)
		require.Contains(t, got.Note, "the limit waits for a baseline", line)
	}
}

func onlyGate(r *Result) map[string]float64 {
	values := r.Measured()
	for name := range values {
		if strings.HasPrefix(name, "client_headroom") {
			delete(values, name)
		}
	}
	return values
}

func TestKilledRun(t *testing.T) {
	r := &recorded{killed: true}
	r.add(1000, nil).seconds(steady, 100, func(i int, s *results.Sample) {
		n := int64(10)
		if i == 99 {
			n = 17 // seven more than have a line
		}
		s.Started, s.Offered = &n, &n
	})
	run := r.write(t)
	path := filepath.Join(run.Dir, results.RequestsFile)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, append(content, `{"row":10`...), 0o600))

	got, err := Judge(run, load(t, gate(`ttft_p95: "<= 800ms"`)))
	require.NoError(t, err)
	require.Equal(t, Inconclusive, got.Verdict, "the run did not last as long as it should")
	require.Equal(t, Pass, got.Criteria[0].Verdict)
	require.Equal(t, int64(7), got.Criteria[0].Undecided)
	require.Equal(t, results.Counts{Offered: 1007, Started: 1007, Completed: 1000, InFlight: 7}, got.Counts)
	require.Contains(t, got.Warnings, "the last line of requests.jsonl is torn and was left out")
	require.Contains(t, got.Warnings, "the run did not come to its end; 7 requests were in flight then")
}

func TestAbortedRun(t *testing.T) {
	const slo = `
capacity_gate: {ttft_p95: "<= 800ms"}
abort: {error_rate: "> 20% for 10s", client_headroom: "true for 15s"}
`
	r := new(recorded).add(1000, nil)
	r.info.Aborted = &results.Aborted{Rule: "abort.error_rate", Saw: "31.5 % for 10 s", At: epoch}
	got := r.judge(t, slo)
	require.Equal(t, Fail, got.Verdict)
	c := got.criterion(t, "abort.error_rate")
	require.Equal(t, "stopped the run: 31.5 % for 10 s; it ended 3600.0 s later", c.Note)
	require.Equal(t, "not > 20% for 10s", c.Limit)

	r.info.Aborted = &results.Aborted{Rule: "abort.client_headroom", Saw: "cpu 95 %", At: epoch}
	require.Equal(t, Invalid, r.judge(t, slo).Verdict)

	r.info.Aborted = &results.Aborted{Rule: results.RuleInterrupted, Saw: "test run was aborted by the user", At: epoch}
	got = r.judge(t, slo)
	require.Equal(t, Inconclusive, got.Verdict, "not finished")
	require.Equal(t, Pass, got.criterion(t, "ttft_p95").Verdict)
	require.Equal(t, []string{"the run was stopped: test run was aborted by the user"}, got.Warnings)
}

func TestWarmCacheIsCalledOut(t *testing.T) {
	ideal := 0.10
	for _, c := range []struct {
		cached int64
		warm   bool
	}{{100, false}, {115, false}, {300, true}} {
		r := &recorded{info: results.Info{IdealPrefixHitRatio: &ideal}}
		r.add(1000, func(_ int, q *results.Request) {
			q.Prompt, q.Cached = results.IntOf(1000), results.IntOf(c.cached)
		})
		got := r.judge(t, gate(`ttft_p95: "<= 800ms"`))
		require.Equal(t, c.warm, got.Prefix.Warm)
		require.InDelta(t, float64(c.cached)/1000, got.Prefix.Measured, 1e-12)
		require.Equal(t, c.warm, strings.Contains(strings.Join(got.Warnings, "\n"),
			"warm cache: 30.0% of the prompt tokens came from the prefix cache, the workload's own reuse explains at most 10.0%"))
	}
	// The server's own ratio, where no answer tells.
	r := &recorded{info: results.Info{IdealPrefixHitRatio: &ideal}}
	r.add(1000, nil).seconds(steady, 60, func(_ int, s *results.Sample) { s.Server = map[string]float64{"prefix_hit_ratio": 0.5} })
	got := r.judge(t, gate(`ttft_p95: "<= 800ms"`))
	require.Equal(t, &PrefixCache{Measured: 0.5, Ideal: &ideal, Source: "server", Warm: true}, got.Prefix)
	require.Nil(t, new(recorded).add(10, nil).judge(t, gate(`ttft_p95: "<= 800ms"`)).Prefix)
}

func TestShortWarmupIsCalledOut(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // a reproducible run
	run := func(extra func(i int) float64) *recorded {
		return new(recorded).add(2000, func(i int, q *results.Request) {
			q.TTFT = results.Num((100 + extra(i)) * math.Exp(0.5*rng.NormFloat64()))
		})
	}
	warming := run(func(i int) float64 { return 150 * math.Exp(-float64(i)/200) })
	got := warming.judge(t, gate(`ttft_p95: "<= 8s"`))
	require.Len(t, got.Warnings, 1)
	require.Regexp(t, `^the declared warmup was too short: in the first fifth of the steady phase the median ttft is \d\d% above that of its last half$`, got.Warnings[0])

	alarms := 0
	for range 100 {
		var values []float64
		for range 2000 {
			values = append(values, 100*math.Exp(0.5*rng.NormFloat64()))
		}
		if _, remaining := trend(values); remaining {
			alarms++
		}
	}
	require.LessOrEqual(t, alarms, 3)
}

func TestCrossedThresholdsAreToldApart(t *testing.T) {
	r := new(recorded).add(1000, nil)
	carried, err := json.Marshal(load(t, gate(`ttft_p99: "<= 50ms"`)))
	require.NoError(t, err)
	r.info.Contract = carried
	for _, rule := range []string{
		"http_req_duration max<1", "llm_ttft{phase:steady} p(99)<=50", "llm_ttft{phase:steady} p(95)<=800", "llm_ttft{phase:steady} p(95)<=799",
		"http_req_duration max<1", // another instance's
	} {
		r.events = append(r.events, results.Event{Time: epoch, Kind: EventThreshold, Rule: rule, Message: "crossed"})
	}
	got := r.judge(t, gate(`ttft_p95: "<= 800ms"`))
	require.Equal(t, Pass, got.Verdict, "no criterion")
	require.Equal(t, []CrossedThreshold{
		{Threshold: "http_req_duration max<1", Own: true},
		{Threshold: "llm_ttft{phase:steady} p(99)<=50"}, // of the contract that the run carried
		{Threshold: "llm_ttft{phase:steady} p(95)<=800"},
		{Threshold: "llm_ttft{phase:steady} p(95)<=799", Own: true},
	}, got.Crossed)
	require.Equal(t, []string{
		"a threshold of the script's own was crossed: http_req_duration max<1. It is no part of the contract, and of this verdict",
		"a threshold of the script's own was crossed: llm_ttft{phase:steady} p(95)<=799. It is no part of the contract, and of this verdict",
	}, got.Warnings)
}

func TestEventsLabelsAndDecisionTravel(t *testing.T) {
	r := new(recorded).add(1000, nil)
	r.info.Labels = []string{results.LabelIgnoreEOS, "my own"}
	r.info.Decision = json.RawMessage(`{"change":"max_num_seqs 32 -> 48"}`)
	r.events = []results.Event{
		{Time: epoch, Kind: results.EventScrapeGap, Message: "connection refused"},
		{Time: epoch, Kind: results.EventScrapeGap, Message: "timeout", Count: 4},
	}
	got := r.judge(t, gate(`ttft_p95: "<= 800ms"`))
	require.Equal(t, []string{results.LabelIgnoreEOS, "my own"}, got.Labels)
	require.JSONEq(t, `{"change":"max_num_seqs 32 -> 48"}`, string(got.Decision))
	require.Equal(t, []string{"scrape_gap: 5 times, first: connection refused"}, got.Warnings)

	dir := t.TempDir()
	require.NoError(t, got.Write(dir))
	read, err := Read(dir)
	require.NoError(t, err)
	require.Equal(t, got.Criteria, read.Criteria)
	require.Equal(t, got.Counts, read.Counts)
	require.Equal(t, got.Labels, read.Labels)

	path := filepath.Join(dir, results.VerdictFile)
	var plain map[string]any
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, &plain))
	require.Equal(t, "PASS", plain["verdict"])
	require.InDelta(t, 1000, plain["counts"].(map[string]any)["offered"], 0)

	require.NoError(t, os.WriteFile(path, []byte(`{"schema":"`+Schema+`","verdict":"MAYBE"}`), 0o600))
	_, err = Read(path)
	require.EqualError(t, err, `verdict: unknown verdict "MAYBE" in `+path)
	_, err = Read(filepath.Join(dir, "none.json"))
	require.ErrorContains(t, err, "there is no")
}

func TestUnreadableResultsAreErrors(t *testing.T) {
	run := new(recorded).add(3, nil).write(t)
	path := filepath.Join(run.Dir, results.RequestsFile)
	require.NoError(t, os.WriteFile(path, []byte("{}\n{}\n"), 0o600))
	_, err := Judge(run, load(t, gate(`ttft_p95: "<= 800ms"`)))
	require.EqualError(t, err, "results: "+path+":1: outcome is missing")
}

func TestNothingInTheSteadyPhase(t *testing.T) {
	got := new(recorded).add(100, func(_ int, q *results.Request) { q.Phase = "" }).judge(t, gate(`ttft_p95: "<= 800ms"`))
	require.Equal(t, Inconclusive, got.Verdict)
	require.Contains(t, got.Warnings, "no arrival carries the tag phase: steady, which the contract is judged on")
}

func TestPrecedence(t *testing.T) {
	service := func(s Status) Criterion { return Criterion{Name: "a", Section: "capacity_gate", Verdict: s} }
	client := func(s Status) Criterion { return Criterion{Name: "b", Section: "client_headroom", Verdict: s} }
	for _, c := range []struct {
		criteria []Criterion
		want     Status
	}{
		{[]Criterion{service(Pass), client(Pass)}, Pass},
		{[]Criterion{service(Pass), service(Inconclusive)}, Inconclusive},
		{[]Criterion{service(Fail), service(Inconclusive), client(Fail)}, Fail},
		{[]Criterion{service(Inconclusive), client(Fail)}, Invalid},
		{[]Criterion{service(Pass), client(Fail)}, Invalid},
		{[]Criterion{service(Pass), client(Inconclusive)}, Inconclusive},
		{[]Criterion{service(Pass), {Section: "client_headroom", Verdict: Inconclusive, Ignored: true}}, Pass},
		{nil, Inconclusive},
	} {
		r := Result{Criteria: c.criteria, Ended: epoch}
		r.decide(r.unfinished())
		require.Equal(t, c.want, r.Verdict, "%+v", c.criteria)
	}
	require.Equal(t, []int{0, 1, 2, 2}, []int{Pass.ExitCode(), Fail.ExitCode(), Inconclusive.ExitCode(), Invalid.ExitCode()})
}

// Embeddings have no first token: they say nothing about limits on tokens, and count for the others.
func TestEmbeddingsHaveNoTokenLatencies(t *testing.T) {
	embedding := func(_ int, q *results.Request) {
		*q = results.Request{
			Row: q.Row, Phase: q.Phase, API: results.APIEmbeddings, Due: q.Due, Start: q.Start, Outcome: results.OK, Status: 200,
			E2E: results.Num(40), ScheduleDelay: results.Num(0.2), Prompt: results.IntOf(100),
		}
	}
	r := (&recorded{gaps: map[string][]float64{"": {10, 12, 14}}}).add(400, nil).add(400, embedding)
	r.add(40, func(i int, q *results.Request) {
		embedding(i, q)
		q.Outcome, q.E2E, q.Elapsed, q.ErrorType = results.Failed, results.Number{}, results.Num(1), "http_5xx"
	})
	out := r.judge(t, gate(`ttft_p99: "<= 2s"`, `tpot_p95: "<= 50ms"`, `itl_p95: "<= 50ms"`, `e2e_p50: "<= 500ms"`, `success_rate: ">= 99%"`))
	for name, n := range map[string]int64{"ttft_p99": 400, "tpot_p95": 400, "itl_p95": 400, "e2e_p50": 840, "success_rate": 840} {
		require.Equal(t, n, out.criterion(t, name).N, name)
	}
	for name, status := range map[string]Status{"ttft_p99": Pass, "tpot_p95": Pass, "itl_p95": Pass} {
		require.Equal(t, status, out.criterion(t, name).Verdict, name)
	}
	require.NotEqual(t, Pass, out.criterion(t, "success_rate").Verdict)
}

// A class that is misspelt is found by the ones that were seen.
func TestAClassThatNobodyHasIsTold(t *testing.T) {
	r := (&recorded{}).add(100, func(i int, q *results.Request) { q.Class = []string{"short", "long"}[i%2] })
	out := r.judge(t, gate(`ttft_p50: "<= 2s"`, `by_class: {shrot: {ttft_p50: "<= 1s"}, long: {ttft_p50: "<= 1s"}}`))
	require.Contains(t, out.criterion(t, "shrot/ttft_p50").Note, `no request has the class "shrot"; classes seen: long, short`)
	require.NotContains(t, out.criterion(t, "long/ttft_p50").Note, "classes seen")
}
