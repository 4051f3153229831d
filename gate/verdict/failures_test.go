package verdict

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// Turning requests away at once makes the rest fast and the queue short: nothing passes by it.
func TestRejectionsImproveNoVerdict(t *testing.T) {
	quick := func(_ int, q *results.Request) {
		q.TTFT, q.E2E, q.ITLP99 = results.Num(100), results.Num(300), results.Num(9)
	}
	rejected := func(every int) *recorded {
		r := new(recorded).add(1000, func(i int, q *results.Request) {
			quick(i, q)
			if i%every == 0 {
				failWith(503)(i, q)
			}
		}).seconds(steady, 100, func(_ int, s *results.Sample) {
			s.Server, s.Offered = map[string]float64{"queue_depth": 1}, count(10)
		})
		r.gaps = map[string][]float64{"": {9, 9, 9}}
		return r
	}
	const rate = `success_rate: ">= 95%"`
	for name, c := range map[string]struct {
		every int // one in so many fails
		lines []string
		of    string
		want  Status
		note  string
	}{
		"mean of a third":            {3, []string{`ttft_avg: "<= 1.5s"`}, "ttft_avg", Fail, "334 of 1000 requests failed, which a mean does not hold; the contract's other lines allow 0%"},
		"mean of one":                {1001, []string{`ttft_avg: "<= 1.5s"`}, "ttft_avg", Fail, "1 of 1000 requests failed, which"},
		"mean of what is allowed":    {100, []string{`ttft_avg: "<= 1.5s"`, rate}, "ttft_avg", Pass, ""},
		"mean of about that":         {20, []string{`ttft_avg: "<= 1.5s"`, rate}, "ttft_avg", Inconclusive, "50 of 1000 requests failed"},
		"mean, by the tightest":      {100, []string{`ttft_avg: "<= 1.5s"`, rate, `e2e_p99.9: "<= 1m"`}, "ttft_avg", Fail, "allow 0.1%"},
		"mean of gaps":               {3, []string{`itl_avg: "<= 1.5s"`}, "itl_avg", Fail, "which a mean does not hold"},
		"queue":                      {3, []string{"queue_growth: no_sustained_growth"}, "queue_growth", Fail, "a queue stays short where requests are turned away"},
		"queue, with a few failures": {500, []string{"queue_growth: no_sustained_growth"}, "queue_growth", Inconclusive, "turned away"},
		"queue of what is allowed":   {100, []string{"queue_growth: no_sustained_growth", rate}, "queue_growth", Pass, ""},
		"throughput":                 {3, []string{`success_rate: ">= 10%"`}, "success_rate", Pass, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := rejected(c.every).judge(t, gate(c.lines...)).criterion(t, c.of)
			require.Equal(t, c.want, got.Verdict, got.Note)
			require.Contains(t, got.Note, c.note)
			if c.note == "" {
				require.NotContains(t, got.Note, "does not hold")
				require.NotContains(t, got.Note, "turned away")
			}
		})
	}
}

func TestRejectionsMakeNoRecovery(t *testing.T) {
	r := new(recorded).add(1000, nil).seconds("recovery", 40, func(_ int, s *results.Sample) {
		s.Server = map[string]float64{"queue_depth": 1}
	})
	r.add(400, func(i int, q *results.Request) {
		q.Phase = "recovery"
		if i%2 == 0 {
			failWith(503)(i, q)
		}
	})
	const slo = "recovery: {queue_depth: \"<= 10\"}\n"
	require.Equal(t, Fail, r.judge(t, gate(`ttft_p90: "<= 1s"`)+slo).criterion(t, "recovery.queue_depth").Verdict)
	require.Equal(t, Pass, r.judge(t, gate(`ttft_p10: "<= 1s"`)+slo).criterion(t, "recovery.queue_depth").Verdict, "nine tenths may fail")
}
