package verdict

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

func dropIt(_ int, q *results.Request) {
	*q = results.Request{Row: q.Row, Phase: q.Phase, Class: q.Class, Due: q.Due, Outcome: results.Dropped, ErrorType: "no_vu"}
}

// What the graceful stop empties is no recovery: the queue is looked at while there is load.
func TestTheDrainIsNotTheRecovery(t *testing.T) {
	got := new(recorded).add(400, func(i int, q *results.Request) {
		if i >= 200 {
			q.Phase = "recovery" // to 39.9 s
		}
	}).seconds(steady, 20, func(_ int, s *results.Sample) { s.Server = map[string]float64{"queue_depth": 40} }).
		seconds("recovery", 40, func(i int, s *results.Sample) {
			s.Server = map[string]float64{"queue_depth": 40}
			if i >= 20 {
				s.Server["queue_depth"] = 0
			}
		}).judge(t, "capacity_gate: {ttft_p95: \"<= 1s\"}\nrecovery: {queue_depth: \"<= 2\"}\n")
	c := got.criterion(t, "recovery.queue_depth")
	require.InDelta(t, 40, *c.Measured, 0)
	require.EqualValues(t, 5, c.N, "the last quarter of the 20 s in which recovery's requests arrived")
	require.Equal(t, Fail, c.Verdict)
	require.Equal(t, Fail, got.Verdict)
}

// A request that was cut short has waited for at least so long: that is no value to take a good mean from.
func TestAWaitIsALowerBound(t *testing.T) {
	mean := func(limit string, wait float64) Criterion {
		return new(recorded).add(3000, func(i int, q *results.Request) {
			if i >= 2901 {
				q.Outcome, q.TTFT, q.Elapsed = results.InFlight, results.Number{}, results.Num(wait)
			}
		}).judge(t, gate(`ttft_avg: "<= `+limit+`"`)).Criteria[0]
	}
	for _, wait := range []float64{400, 600, 3000} {
		require.Equal(t, Inconclusive, mean("500ms", wait).Verdict, "%g ms", wait)
	}
	c := mean("90ms", 100)
	require.Equal(t, Fail, c.Verdict, "the others alone are over the limit")
	require.EqualValues(t, 3000, c.N)
}

// An arrival that the generator dropped speaks neither for the service nor against it.
func TestDroppedArrivalsDoNotFailAMean(t *testing.T) {
	judged := func(drops int, lines ...string) Criterion {
		return new(recorded).add(3000, func(i int, q *results.Request) {
			q.TTFT, q.OutputTPS = results.Num(530), results.Num(45+float64(i%2)*10)
			if i%3 < drops {
				dropIt(i, q)
			}
		}).judge(t, gate(lines...)).Criteria[0]
	}
	require.Equal(t, Fail, judged(0, `ttft_avg: "<= 500ms"`).Verdict)
	c := judged(1, `ttft_avg: "<= 500ms"`)
	require.Equal(t, Inconclusive, c.Verdict, "with the dropped ones at once the mean is 353 ms")
	require.Contains(t, c.Note, "1000 requests are undecided")
	require.Equal(t, Fail, judged(1, `ttft_avg: "<= 300ms"`).Verdict, "and that is over 300 ms")
	require.Equal(t, Inconclusive, judged(1, `output_tps_avg: ">= 50.5"`).Verdict, "with the dropped ones as fast as the fastest it is 51.7")
	require.Equal(t, Fail, judged(0, `output_tps_avg: ">= 50.5"`).Verdict)
	require.Equal(t, Fail, judged(1, `output_tps_avg: ">= 53"`).Verdict)
}

// A throughput that the load generator did not ask for is not one that the service lacks.
func TestDroppedArrivalsDoNotFailAThroughput(t *testing.T) {
	judged := func(limit string, drops int) *Result {
		return new(recorded).add(1000, func(i int, q *results.Request) {
			if i%10 < drops {
				dropIt(i, q)
			}
		}).seconds(steady, 100, func(_ int, s *results.Sample) {
			done, tokens := int64(4), int64(400)
			s.Completed, s.CompletionTokens = &done, &tokens
		}).judge(t, gate(`requests_per_second: "`+limit+`"`))
	}
	got := judged(">= 6", 6)
	c := got.Criteria[0]
	require.InDelta(t, 4, *c.Measured, 1e-9)
	require.Equal(t, Inconclusive, c.Verdict, "with all arrivals served it would have been 10/s")
	require.Contains(t, c.Note, "600 of 1000 arrivals were dropped")
	require.Equal(t, Invalid, got.Verdict, "the load generator was the bottleneck")
	require.Equal(t, Fail, judged(">= 6", 0).Verdict)
	require.Equal(t, Fail, judged(">= 12", 6).Verdict, "it would not have been 12/s either")
	require.Equal(t, Pass, judged(">= 3", 6).Criteria[0].Verdict.orInvalid())
}

// orInvalid undoes what the load generator makes of a pass.
func (s Status) orInvalid() Status {
	if s == Invalid {
		return Pass
	}
	return s
}

// The schedule's own time counts: half of it is missing, whichever half it is.
func TestScheduleErrorSeesWhatWasNeverStarted(t *testing.T) {
	measured := func(edit func(i int, q *results.Request)) float64 {
		return *new(recorded).add(3000, edit).judge(t, gate(`success_rate: ">= 0.5"`)).
			criterion(t, "client_headroom.schedule_error").Measured
	}
	for name, dropped := range map[string]func(i int) bool{
		"the second half": func(i int) bool { return i >= 1500 },
		"the first half":  func(i int) bool { return i < 1500 },
		"every other":     func(i int) bool { return i%2 == 0 },
	} {
		require.InDelta(t, 0.5, measured(func(i int, q *results.Request) {
			if dropped(i) {
				dropIt(i, q)
			}
		}), 1e-3, name)
	}
	require.InDelta(t, 1, measured(func(i int, q *results.Request) {
		q.Start = q.Due.Add(time.Duration(3000-i) * 50 * time.Millisecond)
	}), 1e-9, "in half of the time")
}

func TestASteadyPhaseThatIsTooShortIsTold(t *testing.T) {
	told := func(n int, phases string) string {
		return strings.Join(new(recorded).add(n, nil).judge(t, gate(`ttft_p95: "<= 1s"`)+phases).Warnings, "\n")
	}
	require.Contains(t, told(200, "phases: {steady: 10m}\n"), "the steady phase had arrivals for 19.9 s, and the contract asks for 10m")
	require.NotContains(t, told(200, "phases: {steady: 20s}\n"), "the contract asks for")
	require.NotContains(t, told(200, ""), "the contract asks for", "it asks for nothing")
}

// A throughput of a class is made of the requests themselves, since the series does not tell classes apart.
func TestThroughputOfAClass(t *testing.T) {
	got := new(recorded).add(1000, func(i int, q *results.Request) { // for 99.9 s, each answered a second later
		q.Class = "short"
		if i%5 == 0 {
			q.Class, q.Completion = "long", results.IntOf(300)
		}
	}).seconds(steady, 101, func(_ int, s *results.Sample) {
		done, tokens := int64(10), int64(1328)
		s.Completed, s.CompletionTokens = &done, &tokens
	}).judge(t, `
capacity_gate:
  output_tokens_per_second: ">= 1000"
  by_class: {long: {output_tokens_per_second: ">= 500", requests_per_second: ">= 3"}, other: {requests_per_second: ">= 1"}}
`)
	c := got.criterion(t, "long/output_tokens_per_second")
	require.EqualValues(t, 99, c.N)
	require.InDelta(t, 600*98.0/99, *c.Measured, 1e-9, "nothing came in the first second")
	require.Equal(t, Pass, c.Verdict)
	c = got.criterion(t, "long/requests_per_second")
	require.InDelta(t, 2*98.0/99, *c.Measured, 1e-9)
	require.Equal(t, Fail, c.Verdict)
	c = got.criterion(t, "other/requests_per_second")
	require.Nil(t, c.Measured)
	require.Equal(t, Inconclusive, c.Verdict)
}

// More cached tokens than there were tokens are no number of cached tokens.
func TestAnImpossiblePrefixHitIsNotOne(t *testing.T) {
	got := new(recorded).add(100, func(i int, q *results.Request) {
		q.Prompt, q.Cached = results.IntOf(10), results.IntOf(50)
		if i%2 == 0 {
			q.Cached = results.IntOf(5)
		}
	}).judge(t, gate(`ttft_p95: "<= 1s"`))
	require.InDelta(t, 0.5, got.Prefix.Measured, 1e-12)
	require.Contains(t, strings.Join(got.Warnings, "\n"), "50 requests say that more prompt tokens were cached than there were")
}

// A server that is too busy to tell of its queue has not told that it is short.
func TestAQueueThatIsNotSeenIsNotShort(t *testing.T) {
	judged := func(lines string, inFlight func(i int) *int64) *Result {
		return new(recorded).add(3000, nil).seconds(steady, 300, func(i int, s *results.Sample) {
			s.Offered, s.InFlight = count(10), inFlight(i)
			if i < 100 {
				s.Server = map[string]float64{"queue_depth": 0, "running": 4}
			}
		}).judge(t, gate(lines))
	}
	c := judged("queue_growth: no_sustained_growth", func(i int) *int64 { return count(int64(4 + max(0, 5*(i-60)))) }).Criteria[0]
	require.Equal(t, Fail, c.Verdict)
	require.Contains(t, c.Note, "judged by the requests in flight, since the server's queue was not seen for 200 s")
	c = judged("queue_growth: no_sustained_growth", func(i int) *int64 { return count(int64(4 + i%3)) }).Criteria[0]
	require.Equal(t, Pass, c.Verdict, c.Note)
	c = judged("queue_growth: no_sustained_growth", func(int) *int64 { return nil }).Criteria[0]
	require.Equal(t, Inconclusive, c.Verdict)
	require.Contains(t, c.Note, "the server's queue was not seen for 200 s")
	require.Nil(t, c.Measured, "that it did not grow was not measured")
}

// A load generator that was too busy to look at itself has not shown that it had room.
func TestAGeneratorThatIsNotSeenHasNoHeadroom(t *testing.T) {
	cpu := func(limit string, seen func(i int) bool) Criterion {
		return new(recorded).add(3000, nil).seconds(steady, 300, func(i int, s *results.Sample) {
			if seen(i) {
				s.Client = map[string]float64{"cpu": 0.5}
			}
		}).judge(t, gate(`ttft_p95: "<= 1s"`)+"client_headroom: {cpu: \"<= "+limit+"\"}\n").criterion(t, "client_headroom.cpu")
	}
	early := func(i int) bool { return i < 100 }
	c := cpu("70%", early)
	require.Equal(t, Inconclusive, c.Verdict)
	require.Equal(t, "it was not seen for 200 s", c.Note)
	require.Equal(t, Fail, cpu("40%", early).Verdict)
	require.Equal(t, Pass, cpu("70%", func(i int) bool { return i%15 == 0 }).Verdict, "as often as it is looked at")
}

// The end of a phase is the end of its time, not of what was seen in it.
func TestTheEndOfTheRecoveryIsItsEnd(t *testing.T) {
	c := new(recorded).add(400, func(i int, q *results.Request) {
		if i >= 200 {
			q.Phase = "recovery"
		}
	}).seconds(steady, 20, func(int, *results.Sample) {}).seconds("recovery", 20, func(i int, s *results.Sample) {
		if i < 14 {
			s.Server = map[string]float64{"queue_depth": 1}
		}
	}).judge(t, "capacity_gate: {ttft_p95: \"<= 1s\"}\nrecovery: {queue_depth: \"<= 2\"}\n").criterion(t, "recovery.queue_depth")
	require.Equal(t, Inconclusive, c.Verdict)
	require.Zero(t, c.N)
}

// A detector needs so many readings; a queue that is read seldom is judged by what is known of each second.
func TestAQueueThatIsReadSeldomIsNotShort(t *testing.T) {
	judged := func(every int, inFlight func(i int) int64) Criterion {
		return new(recorded).add(3000, nil).seconds(steady, 300, func(i int, s *results.Sample) {
			s.Offered, s.InFlight = count(10), count(inFlight(i))
			if i%every == 0 {
				s.Server = map[string]float64{"queue_depth": float64(inFlight(i)) - 4}
			}
		}).judge(t, gate("queue_growth: no_sustained_growth")).Criteria[0]
	}
	rising := func(i int) int64 { return int64(4 + 3*i) }
	even := func(i int) int64 { return int64(4 + i%3) }
	for every, signal := range map[int]string{1: "", 5: "", 20: "not seen often enough", 30: "not seen often enough"} {
		c := judged(every, rising)
		require.Equal(t, Fail, c.Verdict, "every %d s: %s", every, c.Note)
		require.Contains(t, c.Note, signal)
		require.Equal(t, Pass, judged(every, even).Verdict, "every %d s", every)
	}
}

// Two readings in ten minutes are not how often something is read.
func TestTwoReadingsAreNoHabit(t *testing.T) {
	cpu := func(at ...int) Criterion {
		return new(recorded).add(6000, nil).seconds(steady, 600, func(i int, s *results.Sample) {
			for _, one := range at {
				if i == one {
					s.Client = map[string]float64{"cpu": 0.5}
				}
			}
		}).judge(t, gate(`ttft_p95: "<= 1s"`)+"client_headroom: {cpu: \"<= 70%\"}\n").criterion(t, "client_headroom.cpu")
	}
	require.Equal(t, Inconclusive, cpu(0).Verdict)
	require.Equal(t, Inconclusive, cpu(0, 300).Verdict)
	require.Equal(t, Pass, cpu(0, 120, 240, 360, 480, 599).Verdict)
}

// The usual distance is the run's, not the window's: the last quarter of a recovery may hold one reading or two.
func TestTheEndOfARecoveryThatIsReadSeldom(t *testing.T) {
	depth := func(read func(i int) bool) Criterion {
		return new(recorded).add(2400, func(i int, q *results.Request) {
			if i >= 1200 {
				q.Phase = "recovery"
			}
		}).seconds(steady, 120, func(i int, s *results.Sample) {
			if read(i) {
				s.Server = map[string]float64{"queue_depth": 1}
			}
		}).seconds("recovery", 120, func(i int, s *results.Sample) {
			if read(120 + i) {
				s.Server = map[string]float64{"queue_depth": 1}
			}
		}).judge(t, "capacity_gate: {ttft_p95: \"<= 1s\"}\nrecovery: {queue_depth: \"<= 2\"}\n").criterion(t, "recovery.queue_depth")
	}
	require.Equal(t, Pass, depth(func(i int) bool { return i%15 == 0 }).Verdict)
	require.Equal(t, Inconclusive, depth(func(i int) bool { return i < 211 }).Verdict, "of 30 s the first is known")
}

func TestAClassThatFailedAltogether(t *testing.T) {
	got := new(recorded).add(600, func(i int, q *results.Request) {
		q.Class = "short"
		if i%10 == 0 {
			failWith(503)(i, q)
			q.Class = "long"
		}
	}).seconds(steady, 60, func(_ int, s *results.Sample) {
		done, tokens := int64(9), int64(819)
		s.Completed, s.CompletionTokens = &done, &tokens
	}).judge(t, `
capacity_gate:
  success_rate: ">= 50%"
  by_class: {long: {itl_p50: "<= 1s", ttft_p50: "<= 1s", requests_per_second: ">= 0.1", output_tokens_per_second: ">= 1"}}
`)
	for _, name := range []string{"long/itl_p50", "long/ttft_p50", "long/requests_per_second", "long/output_tokens_per_second"} {
		require.Equal(t, Fail, got.criterion(t, name).Verdict, name)
	}
	itl := got.criterion(t, "long/itl_p50")
	require.EqualValues(t, 60, itl.N)
	require.EqualValues(t, 60, itl.Over)
}

func TestNothingIsSaidOfAServiceThatWasNotAsked(t *testing.T) {
	got := new(recorded).add(600, dropIt).seconds(steady, 60, func(_ int, s *results.Sample) {
		s.Completed = count(0)
	}).judge(t, gate(`requests_per_second: ">= 5"`))
	require.Equal(t, Inconclusive, got.Criteria[0].Verdict)
	require.Equal(t, Invalid, got.Verdict)
}

// A burst of a few milliseconds whose last arrival is a millisecond late has the rate that was asked for; and one arrival has none.
func TestAScheduleOfAnInstantIsPunctual(t *testing.T) {
	of := func(n int, late time.Duration) Criterion {
		return new(recorded).add(n, func(i int, q *results.Request) {
			q.Due = epoch.Add(time.Duration(i) * 7 * time.Millisecond)
			q.Start = q.Due
			if i == n-1 {
				q.Start = q.Due.Add(late)
			}
		}).judge(t, gate(`success_rate: ">= 0.5"`)).criterion(t, "client_headroom.schedule_error")
	}
	require.InDelta(t, 0, *of(5, time.Millisecond).Measured, 0)
	require.Equal(t, Pass, of(5, time.Millisecond).Verdict)
	require.Equal(t, Fail, of(5, 100*time.Millisecond).Verdict)
	require.True(t, of(1, 0).Ignored)
}
