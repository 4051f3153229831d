package plan

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/safeqps/xk6-safeqps/gate/capacity"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

func ptr[T any](v T) *T { return &v }

func replica() Capacity {
	return Capacity{
		SafeQPS: 10, Confirmed: true, CompletedRate: ptr(10.0), OutputTokensPerSecond: ptr(1500.0), PromptTokensPerSecond: ptr(4500.0),
		MeanInFlight: ptr(40.0), MeanE2ESeconds: ptr(4.0),
	}
}

func made(t require.TestingT, c Capacity, d Demand) *Plan {
	p, err := Make(c, d)
	require.NoError(t, err)
	return p
}

func TestReplicasAndCost(t *testing.T) {
	p := made(t, replica(), Demand{
		PeakRate: 100, MeanRate: 40, Headroom: 0.2, Growth: 0.1, Months: 6, Spares: 1, GPUHourPrice: 2.5, GPUsPerReplica: 2,
	})
	require.InDelta(t, 177.1561, p.PlannedRate, 1e-9)
	require.InDelta(t, 8, p.UsableQPS, 1e-12)
	require.Equal(t, 23, p.BySafeQPS) // 22.14
	require.Equal(t, 23, *p.ByLittle) // 708.6 in flight, 32 usable on each
	require.InDelta(t, 708.6244, *p.InFlight, 1e-9)
	require.InDelta(t, 0, *p.Disagreement, 1e-12)
	require.Equal(t, 24, p.Replicas)
	require.InDelta(t, 177.1561/240, p.LoadAtPeak, 1e-9)
	require.InDelta(t, 177.1561/230, p.LoadDegraded, 1e-9)
	require.InDelta(t, math.Log(2.3)/math.Log(1.1), *p.MonthsLeft, 1e-9)
	require.InDelta(t, 48, p.GPUs, 0)
	require.InDelta(t, 48*2.5*24, *p.CostPerDay, 1e-9)
	// 150 output and 450 prompt tokens a request, 40 requests a second.
	require.InDelta(t, 2880/(150*40*86400/1e6), *p.CostPerMillionOutputTokens, 1e-9)
	require.InDelta(t, 2880/(600*40*86400/1e6), *p.CostPerMillionTokens, 1e-9)
	require.Empty(t, p.Notes)
}

func TestExactMultiplesAreNotRoundedUp(t *testing.T) {
	c := replica()
	c.SafeQPS = 0.1
	c.MeanInFlight = ptr(0.4)
	require.Equal(t, 3, made(t, c, Demand{PeakRate: 0.3}).BySafeQPS)                 // 0.3/0.1 is 2.9999999999999996
	require.Equal(t, 3, made(t, c, Demand{PeakRate: 0.30000000000000004}).BySafeQPS) // 3.0000000000000004 replicas
	c.SafeQPS = 10 * (1 - 0.1)
	require.Equal(t, 7, made(t, c, Demand{PeakRate: 63}).BySafeQPS)
	require.Equal(t, 8, made(t, c, Demand{PeakRate: 63.001}).BySafeQPS)
	require.Equal(t, 1, made(t, c, Demand{PeakRate: 0.001}).BySafeQPS)
}

func TestTheGreaterOfBothCounts(t *testing.T) {
	c := replica()
	c.MeanInFlight = ptr(20.0) // half of what Little's law says
	p := made(t, c, Demand{PeakRate: 100, Spares: 1})
	require.Equal(t, 10, p.BySafeQPS)
	require.Equal(t, 20, *p.ByLittle)
	require.Equal(t, 21, p.Replicas)
	require.InDelta(t, -0.5, *p.Disagreement, 1e-12)
	require.Equal(t, "Little's law is off by -50 %: in flight at the Safe QPS was 20, rate times mean E2E is 40; they differ where requests failed, "+
		"were cut short or were tried again, where the phase is not many times as long as an answer, and where other arrivals came than the "+
		"rate says", p.Notes[0])
}

func TestWhatIsUnknownIsAbsentAndTold(t *testing.T) {
	p := made(t, Capacity{SafeQPS: 10}, Demand{PeakRate: 25})
	require.Equal(t, 3, p.Replicas)
	require.Nil(t, p.ByLittle)
	require.Nil(t, p.InFlight)
	require.Nil(t, p.CostPerDay)
	require.Nil(t, p.MonthsLeft)
	require.Len(t, p.Notes, 3)
	require.Contains(t, p.Notes[0], "not confirmed")
	require.Contains(t, p.Notes[1], "no check by Little's law")
	require.Contains(t, p.Notes[2], "no spare")
	p = made(t, Capacity{SafeQPS: 10, Confirmed: true}, Demand{PeakRate: 25, Spares: 1, GPUHourPrice: 2})
	require.InDelta(t, 4*2*24, *p.CostPerDay, 0)
	require.Nil(t, p.CostPerMillionOutputTokens)
	require.Contains(t, p.Notes[1], "at the peak rate around the clock")
	content, err := p.JSON()
	require.NoError(t, err)
	var keys map[string]any
	require.NoError(t, json.Unmarshal(content, &keys))
	require.NotContains(t, keys, "replicas_by_little")
	require.InDelta(t, 4, keys["replicas"], 0)
}

// Whatever the numbers: without the spares each replica stays within its usable rate, and one replica fewer would not do.
func TestPlansAreEnoughAndNoMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Capacity{SafeQPS: rapid.Float64Range(0.1, 100).Draw(t, "safe")}
		d := Demand{
			PeakRate: rapid.Float64Range(0.1, 1000).Draw(t, "peak"), Headroom: rapid.Float64Range(0, 0.5).Draw(t, "headroom"),
			Growth: rapid.Float64Range(-0.1, 0.2).Draw(t, "growth"), Months: rapid.Float64Range(0, 12).Draw(t, "months"),
			Spares: rapid.IntRange(0, 3).Draw(t, "spares"),
		}
		p := made(t, c, d)
		needed := float64(p.Replicas - d.Spares)
		require.LessOrEqual(t, p.PlannedRate, needed*p.UsableQPS*(1+1e-6))
		if needed > 1 {
			require.Greater(t, p.PlannedRate, (needed-1)*p.UsableQPS)
		}
		require.LessOrEqual(t, p.LoadDegraded, 1-d.Headroom+1e-6)
	})
}

func TestWrongInputIsTold(t *testing.T) {
	_, err := Make(Capacity{SafeQPS: -1, MeanE2ESeconds: ptr(0.0)}, Demand{
		PeakRate: 0, MeanRate: 5, Headroom: 1, Growth: -1, Months: math.Inf(1), Spares: -1, GPUHourPrice: math.NaN(),
	})
	for _, text := range []string{
		"safe_qps is -1", "mean_e2e_seconds is 0", "peak rate is 0", "mean rate is 5, above the peak rate of 0", "headroom is 1",
		"growth is -1", "months are +Inf", "spares are -1", "price is NaN",
	} {
		require.ErrorContains(t, err, text)
	}
	_, err = Make(replica(), Demand{PeakRate: -4})
	require.EqualError(t, err, "plan: peak rate is -4, expected more than 0")
	_, err = Make(replica(), Demand{PeakRate: 10, Growth: 9, Months: 12})
	require.ErrorContains(t, err, "it takes 1e+12 replicas, more than 1000000: a peak rate of 10 with its growth")
	c := replica()
	c.MeanInFlight = ptr(1e-300)
	_, err = Make(c, Demand{PeakRate: 10})
	require.ErrorContains(t, err, "by Little's law: mean_e2e_seconds of 4, or mean_in_flight of 1e-300, cannot be meant")
}

func TestPeakRate(t *testing.T) {
	var due []time.Duration
	for i := range 60 { // one a second, and ten more within the second from 30.0 on
		due = append(due, time.Duration(i)*time.Second)
		if i == 30 {
			for k := 1; k <= 10; k++ {
				due = append(due, 30*time.Second+time.Duration(k)*50*time.Millisecond)
			}
		}
	}
	for _, c := range []struct {
		window time.Duration
		want   float64
	}{{time.Second, 11}, {10 * time.Second, 2}, {50 * time.Second, 1.2}} {
		got, err := PeakRate(due, c.window)
		require.NoError(t, err)
		require.InDelta(t, c.want, got, 1e-12, c.window)
	}
	_, err := PeakRate(due, 2*time.Minute)
	require.ErrorContains(t, err, "the trace spans 59s, shorter than the window of 2m0s")
	_, err = PeakRate(nil, time.Second)
	require.ErrorContains(t, err, "no arrivals")
	_, err = PeakRate(due, 0)
	require.ErrorContains(t, err, "window is 0s")
	_, err = PeakRate([]time.Duration{0, 5, 3, 9}, 2)
	require.ErrorContains(t, err, "arrival 2")
}

func TestFromEnvelope(t *testing.T) {
	entry := func(workload, arrivals string, safe *float64) capacity.EnvelopeEntry {
		return capacity.EnvelopeEntry{Workload: workload, Arrivals: arrivals, Result: capacity.Result{
			Status: capacity.Found, SafeQPS: safe, Confirmed: true, MeanInFlight: ptr(33.0), CompletedRate: ptr(6.0), OutputTokensPerSecond: ptr(900.0),
			PromptTokensPerSecond: ptr(1800.0), Latencies: map[string]verdict.Quantiles{"e2e": {N: 10, Mean: 3300}},
		}}
	}
	e := &capacity.Envelope{Entries: []capacity.EnvelopeEntry{
		entry("chat", "Poisson", ptr(10.0)), entry("chat", "bursty", ptr(7.0)), entry("long", "Poisson", nil),
	}}
	c, err := FromEnvelope(e, "chat", "")
	require.NoError(t, err)
	require.Equal(t, Capacity{
		SafeQPS: 7, Confirmed: true, Workload: "chat", Arrivals: "bursty", CompletedRate: ptr(6.0), OutputTokensPerSecond: ptr(900.0), PromptTokensPerSecond: ptr(1800.0),
		MeanInFlight: ptr(33.0), MeanE2ESeconds: ptr(3.3),
	}, c)
	c, err = FromEnvelope(e, "chat", "Poisson")
	require.NoError(t, err)
	require.InDelta(t, 10, c.SafeQPS, 0)
	_, err = FromEnvelope(e, "long", "")
	require.ErrorContains(t, err, "the search of workload long, Poisson arrivals found no Safe QPS (found)")
	e.Entries[2].Workload, e.Entries[2].Arrivals, e.Entries[2].Result.Status = "", "", capacity.NotRecovered
	_, err = FromEnvelope(e, "", "")
	require.EqualError(t, err, "plan: the search found no Safe QPS (not recovered)")
	_, err = FromEnvelope(e, "nope", "")
	require.ErrorContains(t, err, `no entry for workload "nope"`)
}

func TestText(t *testing.T) {
	p := made(t, replica(), Demand{PeakRate: 100, Growth: 0.05, Months: 12, Headroom: 0.2, GPUHourPrice: 2})
	lines := strings.Split(p.Text(), "\n")
	for i, want := range []string{
		`^demand +100 req/s at the peak$`, `^after growth +179\.6 req/s, \+5 % a month for 12 months$`,
		`^one replica +10 req/s Safe QPS, 8 usable with 20 % headroom$`, `^by Safe QPS +23 replicas$`,
		`^by Little's law +23 replicas: 718\.3 requests in flight, 40 on a replica at its Safe QPS$`,
		`^replicas +23, of which 0 spare$`, `^load at the peak +78 % of Safe QPS; 78 % without the spares$`,
		`^lasts +17\.1 months`, `^GPUs +23$`, `^cost per day +1104\.00$`, `^per million output tokens +0\.852$`,
		`^per million tokens +0\.213, prompt and output$`, `^note: no spare`, `^note: cost per token`,
	} {
		require.Regexp(t, want, lines[i])
	}
}

// Of a phase in which 7 of 10 requests a second completed, 1050 tokens a second are 150 a request, not 105.
func TestTokensPerRequestAreOfTheRequestsThatCompleted(t *testing.T) {
	c := replica()
	c.CompletedRate, c.OutputTokensPerSecond, c.PromptTokensPerSecond = ptr(7.0), ptr(1050.0), ptr(3150.0)
	d := Demand{PeakRate: 100, MeanRate: 40, Spares: 1, GPUHourPrice: 2}
	p := made(t, c, d)
	perDay := 11.0 * 2 * 24
	require.InDelta(t, perDay/(150*40*86400/1e6), *p.CostPerMillionOutputTokens, 1e-9)
	require.InDelta(t, perDay/(600*40*86400/1e6), *p.CostPerMillionTokens, 1e-9)
	require.Empty(t, p.Notes)
	c.CompletedRate = nil
	p = made(t, c, d)
	require.InDelta(t, perDay/(105*40*86400/1e6), *p.CostPerMillionOutputTokens, 1e-9)
	require.Len(t, p.Notes, 1)
	require.Contains(t, p.Notes[0], "the rate of completed requests at the Safe QPS was not measured")
	c.CompletedRate = ptr(0.0)
	_, err := Make(c, d)
	require.ErrorContains(t, err, "completed_rate is 0")
}

func TestTheHighestPeakOfThePeriodCounts(t *testing.T) {
	p := made(t, replica(), Demand{PeakRate: 100, Growth: -0.5, Months: 3, Spares: 1})
	require.InDelta(t, 100, p.PlannedRate, 0)
	require.Equal(t, 10, p.BySafeQPS)
	require.NotContains(t, p.Text(), "after growth")
	require.Contains(t, p.Notes[0], "the demand shrinks by 50 % a month: today's peak is the highest of the period")
}

func TestMeanRate(t *testing.T) {
	var due []time.Duration
	for i := range 601 { // two a second for five minutes
		due = append(due, time.Duration(i)*500*time.Millisecond)
	}
	peak, err := PeakRate(due, time.Minute)
	require.NoError(t, err)
	require.InDelta(t, 2, peak, 1e-12)
	require.InDelta(t, 2, MeanRate(due), 1e-12)
	require.InDelta(t, 0.5, MeanRate([]time.Duration{time.Second, 3 * time.Second}), 1e-12)
	require.Zero(t, MeanRate(due[:1]))
	require.Zero(t, MeanRate([]time.Duration{5, 5}))
}

// Inputs that are numbers can make results that are none.
func TestResultsThatAreNoNumbersNameTheirInput(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*Capacity, *Demand)
		want string
	}{
		"GPUs and price": {func(_ *Capacity, d *Demand) { d.GPUsPerReplica, d.GPUHourPrice = 1e308, 1e308 }, "GPUs per replica of 1e+308"},
		"price":          {func(_ *Capacity, d *Demand) { d.GPUHourPrice = 1e308 }, "a price of 1e+308 a GPU hour"},
		"mean rate":      {func(_ *Capacity, d *Demand) { d.GPUHourPrice, d.MeanRate = 1, 1e-320 }, "mean rate of 1e-320"},
		"E2E": {func(c *Capacity, _ *Demand) {
			c.MeanE2ESeconds, c.MeanInFlight = ptr(1e308), nil
		}, "mean_e2e_seconds of 1e+308"},
		"tokens": {func(c *Capacity, d *Demand) { d.GPUHourPrice, c.OutputTokensPerSecond = 1, ptr(5e-324) }, "output_tokens_per_second of 5e-324"},
	} {
		c1, d := replica(), Demand{PeakRate: 25, Spares: 1}
		c.edit(&c1, &d)
		_, err := Make(c1, d)
		require.ErrorContains(t, err, c.want, name)
		require.ErrorContains(t, err, "cannot be meant", name)
	}
}

func TestAGrowthOfNextToNothingUsesNothingUp(t *testing.T) {
	require.Nil(t, made(t, replica(), Demand{PeakRate: 25, Growth: 1e-320}).MonthsLeft)
}

func TestTheEntryOfTheEnvelopeIsTold(t *testing.T) {
	c := replica()
	c.Workload, c.Arrivals = "chat", "bursty"
	p := made(t, c, Demand{PeakRate: 10})
	require.Regexp(t, `(?m)^measured with +workload chat, bursty arrivals$`, p.Text())
	content, err := p.JSON()
	require.NoError(t, err)
	require.Contains(t, string(content), `"workload": "chat"`)
	require.Contains(t, string(content), `"arrivals": "bursty"`)
}

// A plan repeats what the search doubts, and says at its head where its two counts cannot both be right.
func TestAPlanRepeatsTheDoubts(t *testing.T) {
	c := replica()
	c.Doubts = []string{"the tolerance is not met"}
	p := made(t, c, Demand{PeakRate: 100, Spares: 1})
	require.Equal(t, []string{"the search says: the tolerance is not met"}, p.Notes)
	require.NotContains(t, p.Text(), "differ by")
	c.MeanInFlight = ptr(60.0)
	require.Contains(t, made(t, c, Demand{PeakRate: 100, Spares: 1}).Text(), "of which 1 spare; the two counts differ by 50 %: see the notes\n")

	r := &capacity.Result{SafeQPS: ptr(3.0), Notes: []string{"a", "b"}}
	got, err := FromResult(r)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, got.Doubts)
}

// A script of sessions or of RAG sends several requests for one arrival; Safe QPS counts arrivals, and so does Little's law.
func TestArrivalsOfSeveralRequests(t *testing.T) {
	r := &capacity.Result{
		SafeQPS: ptr(10.0), Confirmed: true, RequestsPerArrival: ptr(2.0), MeanInFlight: ptr(80.0),
		Latencies: map[string]verdict.Quantiles{"e2e": {N: 100, Mean: 4000}},
	}
	c, err := FromResult(r)
	require.NoError(t, err)
	require.InDelta(t, 8, *c.MeanE2ESeconds, 1e-12)
	require.InDelta(t, 0, *made(t, c, Demand{PeakRate: 100}).Disagreement, 1e-12)
}
