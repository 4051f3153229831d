package gate

import (
	"time"

	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// So long, and so many scrapes, may go by without the server's queue before growth is looked for elsewhere.
const (
	leastGap      = 10 * time.Second
	gapsOfScrapes = 4
)

// growthWatch looks for sustained growth while a test runs: in the server's queue, and in the requests in flight where the
// server has not told of its queue for longer than patience. A server that is too busy to answer is often too busy to tell.
type growthWatch struct {
	bin, patience time.Duration
	rare          bool // the server's queue is read too seldom for growth to be found in it

	waiting, inFlight *verdict.GrowthDetector
	step              string
	seen              bool          // the server's queue, ever
	seenAt            time.Duration // the last time
	arrivals          float64       // since then
}

// newGrowthWatch is for a steady phase of that length and a server that is asked every so often.
func newGrowthWatch(steady, scrapeEvery time.Duration) *growthWatch {
	bin := verdict.GrowthBin(steady)

	return &growthWatch{
		bin: bin, patience: max(leastGap, gapsOfScrapes*scrapeEvery), rare: !verdict.ReadOftenEnough(steady, scrapeEvery),
		waiting:  verdict.NewGrowthDetector(bin, verdict.SignalWaiting),
		inFlight: verdict.NewGrowthDetector(bin, verdict.SignalInFlight),
	}
}

// update takes what was seen at a time since the test's start; waiting is nil where the server's queue was not read now.
// arrived is the number of requests since the update before. known is false in a gap that is too short to look elsewhere.
func (w *growthWatch) update(at time.Duration, step string, waiting *float64, inFlight, arrived float64) (sustained, known bool) {
	if step != w.step { // a busier step has more requests in flight without any growth
		w.step, w.inFlight = step, verdict.NewGrowthDetector(w.bin, verdict.SignalInFlight)
	}
	flying := w.inFlight.Update(at, inFlight, arrived)
	w.arrivals += arrived
	switch {
	case waiting != nil:
		state := w.waiting.Update(at, *waiting, w.arrivals)
		w.seen, w.seenAt, w.arrivals = true, at, 0

		return state.Sustained || w.rare && flying.Sustained, true
	case w.rare || !w.seen || at-w.seenAt > w.patience:
		return flying.Sustained, true
	default:
		return false, false
	}
}
