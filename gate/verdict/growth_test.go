package verdict

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// feed plays depths, one per second with a constant number of arrivals, and returns the second in which growth was
// found, or -1, and the last state.
func feed(g *GrowthDetector, arrivals float64, depths ...float64) (int, GrowthState) {
	found := -1
	for i, depth := range depths {
		if g.Update(time.Duration(i)*time.Second, depth, arrivals).Sustained && found < 0 {
			found = i
		}
	}
	return found, g.State()
}

func waitingDetector() *GrowthDetector { return NewGrowthDetector(5*time.Second, SignalWaiting) }

// ramp is a queue that is empty for a while and then changes by slopes[i] per second for lengths[i] seconds.
func ramp(empty int, pieces ...[2]float64) []float64 {
	depths := make([]float64, empty)
	depth := 0.0
	for _, piece := range pieces {
		for range int(piece[0]) {
			depth = max(0, depth+piece[1])
			depths = append(depths, depth)
		}
	}
	return depths
}

func TestGrowthIsFound(t *testing.T) {
	// 20 arrivals per second at 105 %: one request more per second. The queue is not low any more from the eleventh
	// second on (half a second's arrivals), and 18 bins of 5 s later growth is found.
	found, state := feed(waitingDetector(), 20, ramp(60, [2]float64{300, 1})...)
	require.Equal(t, 60+9+90, found)
	require.InDelta(t, 1, state.Rate, 0.1)
	require.Equal(t, 69*time.Second, state.Since)
	require.Greater(t, state.Evidence, growthThreshold)
}

func TestBurstsThatDrainAreNotGrowth(t *testing.T) {
	for name, depths := range map[string][]float64{
		"a jump":              append(ramp(60), ramp(0, [2]float64{1, 300}, [2]float64{400, -1})...),
		"a crowd of a minute": ramp(60, [2]float64{60, 10}, [2]float64{400, -3}),
		"a saw":               ramp(60, [2]float64{60, 2}, [2]float64{60, -2}, [2]float64{60, 2}, [2]float64{60, -2}),
		"half drained":        ramp(60, [2]float64{30, 10}, [2]float64{150, -1}, [2]float64{60, 0.5}),
		"a plateau":           ramp(60, [2]float64{30, 10}, [2]float64{500, 0}),
		"empty":               ramp(600),
	} {
		found, state := feed(waitingDetector(), 20, depths...)
		require.Equal(t, -1, found, name)
		require.False(t, state.Undecided(), name)
	}
}

func TestGrowthEndsWhenTheQueueDrains(t *testing.T) {
	g := waitingDetector()
	found, state := feed(g, 20, ramp(0, [2]float64{300, 2}, [2]float64{100, -6})...)
	require.Positive(t, found)
	require.False(t, state.Sustained)
	require.Zero(t, state.Evidence)
}

func TestRisingAtTheEndIsUndecided(t *testing.T) {
	// A queue that jumps by 35 requests every five seconds, and rises slowly by a third of one per second: too little to
	// be sure, too much to pass.
	depths := make([]float64, 201)
	for i := range depths {
		depths[i] = 12 + 0.35*float64(i) + 35*float64(i/5%2)
	}
	found, state := feed(waitingDetector(), 20, depths...)
	require.Equal(t, -1, found)
	require.True(t, state.Undecided(), "%+v", state)
}

func TestGapsInTheSamples(t *testing.T) {
	g := waitingDetector()
	found := -1
	for i, depth := range ramp(60, [2]float64{400, 1}) {
		if i%3 != 0 {
			continue // two of three scrapes fail; their arrivals come with the next
		}
		if g.Update(time.Duration(i)*time.Second, depth, 60).Sustained && found < 0 {
			found = i
		}
	}
	require.InDelta(t, 60+9+18*6, found, 6, "bins of six seconds, as the samples allow")
}

func TestInFlightSignal(t *testing.T) {
	fill := ramp(0, [2]float64{8, 8}) // the empty service fills up
	steadyState := make([]float64, 600)
	rng := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // a reproducible queue
	for i := range steadyState {
		steadyState[i] = 60 + float64(rng.IntN(9))
	}
	g := NewGrowthDetector(5*time.Second, SignalInFlight)
	found, state := feed(g, 20, append(fill, steadyState...)...)
	require.Equal(t, -1, found)
	require.False(t, state.Undecided())

	// It settles slowly: twelve requests in ten minutes.
	g = NewGrowthDetector(5*time.Second, SignalInFlight)
	found, _ = feed(g, 20, append(fill, ramp(0, [2]float64{64, 1}, [2]float64{600, 0.02})[64:]...)...)
	require.Equal(t, -1, found)

	g = NewGrowthDetector(5*time.Second, SignalInFlight)
	found, _ = feed(g, 20, append(fill, ramp(0, [2]float64{64, 1}, [2]float64{400, 1})[64:]...)...)
	require.Greater(t, found, 60)
	require.Less(t, found, 200)
}

func TestGrowthBin(t *testing.T) {
	for steadyLength, want := range map[time.Duration]time.Duration{
		10 * time.Minute: 5 * time.Second, time.Hour: 5 * time.Second, 4 * time.Minute: 2 * time.Second, 30 * time.Second: time.Second,
	} {
		require.Equal(t, want, GrowthBin(steadyLength))
	}
}

func TestLongBusyPeriodKeepsMemoryBounded(t *testing.T) {
	g := waitingDetector()
	found, state := feed(g, 20, ramp(0, [2]float64{20_000, 1})...)
	require.Positive(t, found)
	require.True(t, state.Sustained)
	require.LessOrEqual(t, len(g.rises), maxGrowthBins)
	require.InDelta(t, 1, state.Rate, 0.05, "the forgotten half counts neither in the rise nor in the time")
}

// growthAt is the number of seconds from the start of the load to the finding of growth, or -1, and the detector's last
// state. The requests in flight are looked at from the steady phase on, as the verdict does.
func (tr trial) growthAt(signal QueueSignal) (float64, GrowthState) {
	g := NewGrowthDetector(5*time.Second, signal)
	for _, sample := range tr.samples {
		if sample.Phase == "recovery" {
			break
		}
		depth := sample.Server["queue_depth"]
		if signal == SignalInFlight {
			if sample.Phase != steady {
				continue
			}
			depth = float64(*sample.InFlight)
		}
		if at := sample.Time.Sub(epoch); g.Update(at, depth, float64(*sample.Offered)).Sustained {
			return at.Seconds(), g.State()
		}
	}
	return -1, g.State()
}

// detections is the number of runs of 15 minutes in which growth was found.
func (s service) detections(t testing.TB, load float64, seeds uint64, signal QueueSignal) int {
	t.Helper()
	found := 0
	for seed := range seeds {
		if at, _ := s.run(t, load, time.Minute, 14*time.Minute, seed).growthAt(signal); at >= 0 {
			found++
		}
	}
	return found
}

func TestGrowthAtKnownLoads(t *testing.T) {
	const seeds = 12
	require.Zero(t, heavyBursty().detections(t, 0.85, seeds, SignalWaiting), "false alarms at 85 %, heavy-tailed and bursty")
	require.GreaterOrEqual(t, heavyBursty().detections(t, 1.05, seeds, SignalWaiting), seeds-1, "105 %, within 15 minutes")
	require.Zero(t, poisson().detections(t, 0.85, seeds/2, SignalInFlight))
	require.Equal(t, seeds/2, poisson().detections(t, 1.05, seeds/2, SignalInFlight))
}

func BenchmarkGrowthUpdate(b *testing.B) {
	g := waitingDetector()
	at := time.Duration(0)
	for b.Loop() {
		at += time.Second
		g.Update(at, float64(at/time.Second), 20)
	}
}
