package verdict

import (
	"math"
	"slices"
	"time"
)

// QueueSignal says what a queue detector is shown.
type QueueSignal int

const (
	// SignalWaiting is the server's own count of waiting requests. It comes back to about zero in a stable service.
	SignalWaiting QueueSignal = iota
	// SignalInFlight is the client's count of requests being served, waiting or not: the fallback where the server
	// says nothing. Its stable level is unknown, so growth is found later.
	SignalInFlight
)

// The hypotheses of the growth test, as shares of the arrival rate: a backlog at 105 % of capacity grows by 5 % of the
// arrivals, a queue at 85 % drains by 15 % while it is busy.
const (
	growingShare  = 0.05
	drainingShare = 0.15
)

// growthThreshold is the log likelihood ratio at which growth is found: 1000 to 1, by Wald's bound a false alarm in
// at most one of a thousand busy periods that drain as the null hypothesis says.
const growthThreshold = 6.9

// minGrowthBins is the shortest growth, in bins, that can be called sustained: 90 s with the usual bins of 5 s. A crowd
// that arrives within it and then drains is not sustained growth.
const minGrowthBins = 18

// maxGrowthBins bounds memory: after almost three hours of one busy period its first half is forgotten.
const maxGrowthBins = 2048

// lowSeconds is how many seconds' worth of arrivals may wait in a queue that counts as empty: a request that arrives
// while the engine is in a step waits for its end even in an idle service.
const lowSeconds = 0.5

// Bin lengths; see GrowthBin.
const (
	longestBin  = 5 * time.Second
	shortestBin = time.Second
	binsPerRun  = 120
)

// GrowthBin is the length of the detector's bins for a steady phase of the given length: 5 s for ten minutes and more,
// and shorter for short runs, so that the shortest growth that is found is at most 15 % of the phase, or 18 s.
func GrowthBin(steady time.Duration) time.Duration {
	return min(max(steady/binsPerRun, shortestBin), longestBin)
}

// ShortestForGrowth is the shortest steady phase in which sustained growth can be found, of a contract whose own is that
// long: the fewest bins, and the seconds at its ends that are not whole.
func ShortestForGrowth(steady time.Duration) time.Duration {
	const ends = 3 * time.Second
	return minGrowthBins*GrowthBin(steady) + ends
}

// ReadOftenEnough says that sustained growth can be found in a steady phase of that length by readings so far apart: a bin ends
// with a reading.
func ReadOftenEnough(steady, apart time.Duration) bool {
	return minGrowthBins*max(GrowthBin(steady), apart) <= steady
}

// GrowthState is what a detector thinks after an update.
type GrowthState struct {
	// Sustained is true while growth is found: the evidence has passed the threshold, and the floor of the queue has
	// risen from quarter to quarter of the busy period.
	Sustained bool
	// Evidence is the log likelihood ratio of growth at 105 % of capacity against a queue at 85 %; 0 while the queue
	// is low. Growth needs 6.9.
	Evidence float64
	// Since is when the present busy period began, on the caller's clock.
	Since time.Duration
	// Rise is how much the queue has risen since, in requests, and Rate this per second.
	Rise, Rate float64
	// Rising says that the queue's floor still rises: from the third quarter of the busy period to the fourth, and at its
	// very end.
	Rising bool
}

// Undecided reports that growth was not found, but that the evidence is half way to it and the queue still rises.
func (s GrowthState) Undecided() bool {
	return !s.Sustained && s.Rising && s.Evidence >= growthThreshold/2
}

// GrowthDetector is a sequential test for a backlog that keeps growing, on samples of the queue's depth. Feed it about
// once a second. docs/statistics.md has its derivation and how often it errs.
//
// Within a busy period (since the queue was last low) the depth is a random walk. The detector compares two drifts of
// it: +5 % of the arrival rate (105 % load) and -15 % (85 % load), by Wald's sequential probability ratio with the
// walk's variance estimated from its own increments; this is what makes it insensitive to bursty arrivals and to
// heavy-tailed service, and to a single jump, which inflates the variance it is measured against. Only the lowest depth
// of the last bins counts as risen. A busy period that is draining does not alarm, whatever its height: the floor has
// to rise over each of its four quarters, and still at the end.
type GrowthDetector struct {
	bin    time.Duration
	signal QueueSignal

	seen       bool
	last       time.Duration
	low        float64 // depth at the start of the busy period
	since      time.Duration
	arrivals   float64 // since then
	allTime    time.Duration
	allArrived float64

	binStart      time.Duration
	binStartDepth float64
	binFloor      float64
	rises         []float64 // change of depth over each bin
	lengths       []float64 // seconds of each bin
	floors        []float64 // lowest depth in each bin

	state GrowthState
}

// NewGrowthDetector makes a detector; bin comes from GrowthBin.
func NewGrowthDetector(bin time.Duration, signal QueueSignal) *GrowthDetector {
	return &GrowthDetector{bin: bin, signal: signal}
}

// Update adds a sample of the queue's depth at a time that grows from call to call, with the number of arrivals that were
// offered since the last call. Samples that are missing need no call.
func (g *GrowthDetector) Update(at time.Duration, depth, arrivals float64) GrowthState {
	if !g.seen {
		g.seen = true
		g.last = at
		g.restart(at, depth)
		return g.state
	}
	g.allTime += at - g.last
	g.allArrived += arrivals
	g.arrivals += arrivals
	g.last = at
	if g.isLow(depth) {
		g.restart(at, depth)
		return g.state
	}
	g.binFloor = math.Min(g.binFloor, depth)
	if at-g.binStart >= g.bin {
		g.closeBin(at, depth)
		g.judge(at)
	}
	return g.state
}

// State is the result of the last update.
func (g *GrowthDetector) State() GrowthState { return g.state }

func (g *GrowthDetector) isLow(depth float64) bool {
	if g.signal == SignalInFlight {
		return depth <= g.low
	}
	rate := 0.0
	if g.allTime > 0 {
		rate = g.allArrived / g.allTime.Seconds()
	}
	return depth <= math.Max(2, lowSeconds*rate)
}

func (g *GrowthDetector) restart(at time.Duration, depth float64) {
	g.low, g.since, g.arrivals = depth, at, 0
	g.binStart, g.binStartDepth, g.binFloor = at, depth, math.Inf(1)
	g.rises, g.lengths, g.floors = g.rises[:0], g.lengths[:0], g.floors[:0]
	g.state = GrowthState{Since: at}
}

func (g *GrowthDetector) closeBin(at time.Duration, depth float64) {
	if len(g.rises) >= maxGrowthBins {
		half := maxGrowthBins / 2
		for _, length := range g.lengths[:half] {
			g.since += time.Duration(length * float64(time.Second))
		}
		for _, rise := range g.rises[:half] {
			g.low += rise
		}
		g.arrivals /= 2
		g.rises = append(g.rises[:0], g.rises[half:]...)
		g.lengths = append(g.lengths[:0], g.lengths[half:]...)
		g.floors = append(g.floors[:0], g.floors[half:]...)
	}
	g.rises = append(g.rises, depth-g.binStartDepth)
	g.lengths = append(g.lengths, (at - g.binStart).Seconds())
	g.floors = append(g.floors, g.binFloor)
	g.binStart, g.binStartDepth, g.binFloor = at, depth, math.Inf(1)
}

func (g *GrowthDetector) judge(at time.Duration) {
	g.state = GrowthState{Since: g.since}
	n := len(g.rises)
	if n < minGrowthBins {
		return
	}
	seconds := (at - g.since).Seconds()
	rate := g.arrivals / seconds
	if rate <= 0 {
		return
	}
	quarter := n / 4
	var quarters [4]float64
	for i := range quarters {
		end := (i + 1) * quarter
		if i == 3 {
			end = n
		}
		quarters[i] = slices.Min(g.floors[i*quarter : end])
	}
	rise := quarters[3] - g.low
	if g.signal == SignalInFlight {
		// The filling of an empty service is not growth: only what rises above the first quarter's level counts.
		rise = quarters[3] - sampleQuantile(slices.Clone(g.floors[:quarter]), 0.5)
	}
	g.state.Rate = g.drift()
	g.state.Rise = g.state.Rate * seconds
	// Wald (Sequential Analysis, 1947) for a walk of variance v per second and drifts +a or -b per second: the
	// log likelihood ratio of a rise X in time T is (a+b)/v (X + (b-a)/2 T). The second term says that a busy period
	// that lasts is evidence too; it needs the busy period to have begun at an empty queue.
	evidence := rise
	if g.signal == SignalWaiting {
		evidence += (drainingShare - growingShare) / 2 * rate * seconds
	}
	evidence *= (growingShare + drainingShare) * rate / g.varianceRate(rate)
	g.state.Evidence = math.Max(0, evidence)
	eighth := n / 8
	g.state.Rising = quarters[2] < quarters[3] &&
		slices.Min(g.floors[n-2*eighth:n-eighth]) < slices.Min(g.floors[n-eighth:])
	g.state.Sustained = g.state.Rising && quarters[0] < quarters[1] && quarters[1] < quarters[2] && evidence >= growthThreshold
}

// varianceRate is the variance of the depth's change per second around its mean change, from the bins. It is at least
// half that of arrivals at constant distance with random ends of service: a queue that happens to rise like clockwork over
// a few bins proves no more than that.
func (g *GrowthDetector) varianceRate(rate float64) float64 {
	drift, sum := g.drift(), 0.0
	for i, rise := range g.rises {
		residual := rise - drift*g.lengths[i]
		sum += residual * residual / g.lengths[i]
	}
	const leastShare = 0.5
	return math.Max(sum/float64(len(g.rises)-1), leastShare*rate)
}

// drift is the mean change of the depth per second over the bins.
func (g *GrowthDetector) drift() float64 {
	rises, seconds := 0.0, 0.0
	for i, rise := range g.rises {
		rises += rise
		seconds += g.lengths[i]
	}
	return rises / seconds
}
