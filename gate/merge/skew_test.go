package merge

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// The rows of one schedule, as two instances had them: what is told of their beginnings is never more than the truth, and
// misses it by no more than the largest gap between rows.
func TestTheLeastSkewIsCertain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		truth := time.Duration(rapid.Int64Range(-5000, 5000).Draw(t, "skew")) * time.Millisecond
		var a, b []due
		at, largest := time.Unix(1000, 0), time.Duration(0)
		for row := range int64(rapid.IntRange(20, 200).Draw(t, "rows")) {
			gap := time.Duration(rng.ExpFloat64() * float64(50*time.Millisecond))
			at, largest = at.Add(gap), max(largest, gap)
			if row%2 == 0 {
				a = append(a, due{row, at})
			} else {
				b = append(b, due{row, at.Add(truth)})
			}
		}
		got, ok := leastSkew(a, b)
		require.True(t, ok)
		want := milliseconds(truth)
		if want >= 0 {
			require.LessOrEqual(t, got, want)
			require.GreaterOrEqual(t, got, max(0, want-milliseconds(largest)))
		} else {
			require.GreaterOrEqual(t, got, want)
			require.LessOrEqual(t, got, min(0, want+milliseconds(largest)))
		}
		back, ok := leastSkew(b, a)
		require.True(t, ok)
		require.InDelta(t, -got, back, 1e-9)
	})
}

func TestTheWorstScenarioCounts(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	instance := func(number int64, late map[string]time.Duration) []results.Request {
		var all []results.Request
		for scenario, by := range late {
			for row := number; row < 300; row += 3 {
				all = append(all, results.Request{Scenario: scenario, Row: row, Due: begin.Add(time.Duration(row)*10*time.Millisecond + by)})
			}
		}

		return append(all, results.Request{Scenario: "other", Row: -1, Due: begin})
	}
	skew := startSkewOf(t, "", []string{"0:1/3", "1/3:2/3", "2/3:1"}, [][]results.Request{
		instance(0, map[string]time.Duration{"warmup": 0, "steady": 0}),
		instance(1, map[string]time.Duration{"warmup": -800 * time.Millisecond, "steady": time.Second}),
		instance(2, map[string]time.Duration{"warmup": 700 * time.Millisecond, "steady": 0}),
	})
	require.NotNil(t, skew)
	require.InDelta(t, 1500, *skew, 30, "from the earliest to the latest, in the warmup")
	halves := []string{"0:1/2", "1/2:1"}
	require.Nil(t, startSkewOf(t, "", halves, [][]results.Request{instance(0, nil), instance(1, nil)}), "not by a schedule")
	require.Nil(t, startSkewOf(t, "", halves, [][]results.Request{instance(0, nil), nil}))
}

func startSkewOf(t *testing.T, options string, segments []string, all [][]results.Request) *float64 {
	t.Helper()
	parts := make([]part, len(segments))
	for i, segment := range segments {
		parts[i].Run = &results.Run{Info: results.Info{Segment: segment, Options: []byte(options)}}
	}
	skew, err := startSkew(parts, all)
	require.NoError(t, err)

	return skew
}

// What k6's own executors send has no numbers, so the first arrivals tell; less the time within which the schedule gives
// each instance its first, be it as slow as it likes.
func TestTheFirstArrivalsTellOfStockExecutors(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	thirds := []string{"0:1/3", "1/3:2/3", "2/3:1"}
	at := func(scenario string, seconds ...float64) []results.Request {
		var all []results.Request
		for _, s := range seconds {
			all = append(all, results.Request{Scenario: scenario, Row: -1, Start: begin.Add(time.Duration(s * float64(time.Second)))})
		}

		return all
	}
	const (
		fast    = `{"executor":"constant-arrival-rate","rate":60,"timeUnit":"1s"}`
		slow    = `{"executor":"constant-arrival-rate","rate":6,"timeUnit":"1m0s"}`
		plain   = `{"executor":"constant-arrival-rate","rate":2,"timeUnit":null}`
		ramp    = `{"executor":"ramping-arrival-rate","startRate":null,"timeUnit":"1m0s","stages":[{"duration":"10s","target":0},{"duration":"10m0s","target":60}]}`
		level   = `{"executor":"ramping-arrival-rate","startRate":6,"timeUnit":"1s","stages":[{"duration":"0s","target":3},{"duration":"1m","target":3}]}`
		flat    = `{"executor":"ramping-arrival-rate","startRate":60,"timeUnit":"1m0s","stages":[{"duration":"1m0s","target":60}]}`
		vus     = `{"executor":"ramping-vus","startVUs":0,"stages":[{"duration":"1m","target":60}]}`
		closed  = `{"executor":"constant-vus","vus":6,"duration":"1m0s"}`
		trace   = `{"executor":"trace-arrival-rate","trace":"t"}`
		foreign = `{"executor":"externally-controlled"}`
	)
	for name, c := range map[string]struct {
		scenario string
		first    [3]float64 // arrivals of the three instances, seconds
		want     float64    // ms; below zero for none
	}{
		"together":                       {fast, [3]float64{0, 1. / 60, 2. / 60}, 0},
		"one late":                       {fast, [3]float64{0, 1. / 60, 30}, 29900},
		"the first late":                 {fast, [3]float64{30, 0, 1. / 60}, 29900},
		"one late, one early":            {fast, [3]float64{10, 0, 15}, 9900 + 4900},
		"six a minute are 10 s apart":    {slow, [3]float64{0, 10, 20}, 0},
		"six a minute, a minute late":    {slow, [3]float64{0, 10, 80}, 20000},
		"without a unit it is a second":  {plain, [3]float64{0, 0.5, 11}, 8000},
		"a slow ramp":                    {ramp, [3]float64{10 + 34.6, 10 + 49, 10 + 60}, 0}, // sqrt(1200 n)
		"a slow ramp, late":              {ramp, [3]float64{44.6, 59, 110 + 44.6}, 15147},    // 10+sqrt(1200*6)
		"a ramp from a level":            {level, [3]float64{0, 0.33, 12}, 10000},
		"a ramp that begins with a rate": {flat, [3]float64{0, 1, 12}, 6000},
		"VUs that are added":             {vus, [3]float64{1, 2, 3}, 0},
		"VUs that are added late":        {vus, [3]float64{1, 2, 13}, 6000},
		"VUs that begin at once":         {closed, [3]float64{0, 0, 5}, 5000},
		"of a trace only rows tell":      {trace, [3]float64{0, 0, 30}, -1},
		"without a schedule":             {foreign, [3]float64{0, 0, 30}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			skew := startSkewOf(t, `{"scenarios":{"s":`+c.scenario+`}}`, thirds,
				[][]results.Request{at("s", c.first[0]), at("s", c.first[1], c.first[1]+1), at("s", c.first[2])})
			if c.want < 0 {
				require.Nil(t, skew)

				return
			}
			require.NotNil(t, skew)
			require.InDelta(t, c.want, *skew, 1)
		})
	}
	require.Nil(t, startSkewOf(t, "", thirds, [][]results.Request{at("s", 0), at("s", 9), at("s", 99)}), "options were not kept")
	require.Nil(t, startSkewOf(t, `{"scenarios":{"s":`+fast+`}}`, thirds, [][]results.Request{at("s", 0), nil, at("other", 99)}))
	require.InDelta(t, 29967, *startSkewOf(t, `{"scenarios":{"s":`+fast+`}}`, []string{"", ""}, [][]results.Request{at("s", 0), at("s", 30)}), 1,
		"two of the whole")
	retry := at("s", 30)
	retry[0].Attempt = 2
	require.Nil(t, startSkewOf(t, `{"scenarios":{"s":`+fast+`}}`, thirds[:2], [][]results.Request{at("s", 0), retry}), "a retry is no arrival")

	parts := []part{{Run: &results.Run{Dir: "dir", Info: results.Info{Options: []byte(`{"scenarios":{"s":{"executor":"constant-arrival-rate","rate":"x"}}}`)}}}}
	_, err := startSkew(parts, [][]results.Request{nil})
	require.ErrorContains(t, err, "options: scenario s: ")
}

// Rows prove more than first arrivals, which may be late for a reason of their own.
func TestRowsArePreferredToFirstArrivals(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	instance := func(numbers ...int64) []results.Request {
		var all []results.Request
		for _, row := range numbers {
			all = append(all, results.Request{Scenario: "s", Row: row, Due: begin.Add(time.Duration(row) * time.Second)})
		}

		return all
	}
	skew := startSkewOf(t, `{"scenarios":{"s":{"executor":"constant-vus"}}}`, []string{"0:1/2", "1/2:1"},
		[][]results.Request{instance(0, 1, 2, 3, 30, 32), instance(20, 31)})
	require.InDelta(t, 0, *skew, 0)
}
