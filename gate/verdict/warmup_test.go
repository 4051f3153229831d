package verdict

import (
	"cmp"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// A queue that grows makes the end slower than the beginning, and no longer warmup would change that.
func TestABacklogIsNotAShortWarmup(t *testing.T) {
	// 200 s of ten requests a second: the median of the first fifth is that at 20 s, that of the last half at 150 s.
	rising := func(second float64) float64 { return 100 + second }
	falling := func(second float64) float64 { return 300 - second }
	const short = "the declared warmup was too short: in the first fifth of the steady phase the median ttft is "
	for name, c := range map[string]struct {
		ttft     func(second float64) float64
		queue    func(second int) float64
		inFlight func(second int) int64
		offered  int64 // a second, as the series has it; 10 where it is 0
		says     string
	}{
		"a queue that grows": {
			ttft: rising, queue: func(s int) float64 { return float64(s) / 5 },
			says: "in the first fifth of the steady phase the median ttft is 52% below that of its last half, while the queue grew from 4 to 30 " +
				"requests: the service fell behind",
		},
		"a queue that grew until no VU was left": {
			ttft: rising, queue: func(s int) float64 { return math.Min(float64(s), 60) },
			says: "in the first fifth of the steady phase the median ttft is 52% below that of its last half, while the queue grew from 19 to 60 " +
				"requests: the service fell behind",
		},
		"requests in flight": {
			ttft: rising, inFlight: func(s int) int64 { return int64(10 + s/5) },
			says: "in the first fifth of the steady phase the median ttft is 52% below that of its last half, while the requests in flight grew from " +
				"13 to 39: the service fell behind, or it had not filled yet, and the declared warmup was too short",
		},
		"a queue that is empty":               {ttft: rising, queue: func(int) float64 { return 0 }, says: short + "52% below that of its last half"},
		"one of half a second's arrivals":     {ttft: rising, queue: func(s int) float64 { return float64(s/100) * 5 }, says: short + "52% below that of its last half"},
		"one that a burst fills for a moment": {ttft: rising, queue: func(s int) float64 { return float64(s/180) * 90 }, says: short + "52% below that of its last half"},
		"one of two requests at a low rate": {
			ttft: rising, offered: 1, queue: func(s int) float64 { return float64(s/100) * 2 }, says: short + "52% below that of its last half",
		},
		"nothing that tells": {ttft: rising, says: short + "52% below that of its last half"},
		"a beginning that is slow, whatever the queue does later": {
			ttft: falling, queue: func(s int) float64 { return float64(s) / 5 }, says: short + "90% above that of its last half",
		},
	} {
		r := new(recorded).add(2000, func(i int, q *results.Request) { q.TTFT = results.Num(c.ttft(float64(i) / 10)) }).
			seconds(steady, 200, func(i int, s *results.Sample) {
				s.Offered = count(cmp.Or(c.offered, 10))
				if c.queue != nil {
					s.Server = map[string]float64{"queue_depth": c.queue(i)}
				}
				if c.inFlight != nil {
					s.InFlight = count(c.inFlight(i))
				}
			})
		require.Equal(t, []string{c.says}, r.judge(t, gate(`ttft_p95: "<= 8s"`)).Warnings, name)
	}
}

// The queue of one step says nothing of another.
func TestABacklogIsOfItsStep(t *testing.T) {
	noise := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a reproducible run
	low := climb{name: "10", rate: 10, hold: 60, ttft: func(n int) float64 { return 100 + float64(n) + noise.Float64() }}
	high := climb{name: "20", rate: 20, hold: 60, ttft: constantly(500), queue: func(s int) float64 { return float64(3 * s) }}
	warnings := func(steps ...climb) string {
		return strings.Join(staircase(steps...).judge(t, gate(`ttft_p95: "<= 5s"`)).Warnings, "\n")
	}
	require.Contains(t, warnings(low, high), "the declared warmup was too short: in the first fifth of step 10 the median ttft")
	low.queue = high.queue
	require.Regexp(t, `^in the first fifth of step 10 the median ttft is \d\d% below that of its last half, while the queue grew from 15 to 132 requests: `+
		`the service fell behind$`, warnings(low, high))
}

// An overloaded engine, by contracts that do not look at its queue and in phases that are too short to find its growth.
func TestAnOverloadedServiceIsNotToldToWarmUp(t *testing.T) {
	c := load(t, gate(`ttft_p95: "<= 2s"`))
	told := 0
	for seed := range uint64(6) {
		warnings := strings.Join(poisson().run(t, 1.3, time.Minute, 2*time.Minute, seed).judge(t, c).Warnings, "\n")
		require.NotContains(t, warnings, "warmup", seed)
		told += strings.Count(warnings, "the service fell behind")
	}
	require.GreaterOrEqual(t, told, 5)
}
