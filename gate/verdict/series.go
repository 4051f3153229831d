package verdict

import (
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// series is what the verdict needs of series.jsonl: one entry per second.
type series struct {
	samples []results.Sample
}

func readSeries(run *results.Run) (series, results.Torn, error) {
	var s series
	torn, err := run.Series(func(sample *results.Sample) error {
		s.samples = append(s.samples, *sample)
		return nil
	})
	if err != nil {
		return series{}, 0, err
	}
	slices.SortStableFunc(s.samples, func(a, b results.Sample) int { return a.Time.Compare(b.Time) })
	return s, torn, nil
}

// of returns the samples of a phase.
func (s series) of(phase string) []results.Sample {
	var part []results.Sample
	for _, sample := range s.samples {
		if sample.Phase == phase {
			part = append(part, sample)
		}
	}
	return part
}

// sum adds up a flow over the whole run; ok is false where no sample has it.
func (s series) sum(flow func(*results.Sample) *int64) (total int64, ok bool) {
	for i := range s.samples {
		if v := flow(&s.samples[i]); v != nil {
			total += *v
			ok = true
		}
	}
	return total, ok
}

// level returns the values of a gauge by the contract's name.
func level(samples []results.Sample, metric string) []float64 {
	var values []float64
	for i := range samples {
		s := &samples[i]
		switch metric {
		case "in_flight":
			if s.InFlight != nil {
				values = append(values, float64(*s.InFlight))
			}
		case "cpu", "memory", "open_files", "timer_delay":
			if v, ok := s.Client[metric]; ok {
				values = append(values, v)
			}
		default:
			if v, ok := s.Server[metric]; ok {
				values = append(values, v)
			}
		}
	}
	return values
}

// cutDrain takes the seconds after a phase's last arrival out of it: where no other phase follows, they carry its name, and
// the service has less and less to do in them.
func (s series) cutDrain(phase string, last time.Time) {
	for i := range s.samples {
		if sample := &s.samples[i]; sample.Phase == phase && sample.Time.After(last) {
			sample.Phase = ""
		}
	}
}

// growthFinding is what a detector found in a run.
type growthFinding struct {
	signal QueueSignal
	// samples is the number of depths seen in the steady phase.
	samples int64
	// found is the state in which growth was first found in the steady phase; nil where it was not.
	found *GrowthState
	last  GrowthState
	// short is true where the queue was not seen for long enough, or not often enough, for sustained growth to be found.
	short bool
	// rare is true where the server's queue was seen, and the requests in flight are judged since that was not enough.
	rare bool
	// unseen is the longest time for which the server's queue was not seen; 0 where it was seen throughout.
	unseen time.Duration
}

// badness orders findings: growth, what may become growth, what could not be seen, none.
func (f growthFinding) badness() int {
	switch {
	case f.found != nil:
		return 3
	case f.last.Undecided():
		return 2
	case f.short:
		return 1
	default:
		return 0
	}
}

// growth looks for growth of the server's queue up to the end of the steady phase, and by the requests in flight where that
// was not seen all the time: a server that is too busy to answer is often too busy to tell of it. planned is the steady
// phase's length by the contract, 0 where it does not say.
func (s series) growth(planned time.Duration) growthFinding {
	part := s.of(steady)
	if len(part) == 0 {
		return growthFinding{}
	}
	if planned == 0 {
		planned = part[len(part)-1].Time.Sub(part[0].Time)
	}
	waiting := s.growthOf(SignalWaiting, planned)
	if waiting.samples > 0 {
		waiting.unseen = s.unseen(part, "queue_depth")
	}
	if waiting.found != nil || (waiting.samples > 0 && waiting.unseen == 0 && !waiting.short) {
		return waiting
	}
	inFlight := s.growthOf(SignalInFlight, planned)
	if inFlight.samples == 0 || (inFlight.short && waiting.samples > 0 && waiting.unseen == 0) {
		return waiting
	}
	inFlight.unseen, inFlight.rare = waiting.unseen, waiting.samples > 0
	return inFlight
}

// growthOf feeds the depth by one signal to a detector.
func (s series) growthOf(signal QueueSignal, planned time.Duration) growthFinding {
	bin := GrowthBin(planned)
	f := growthFinding{signal: signal}
	detector := NewGrowthDetector(bin, signal)
	arrivals := 0.0
	bins := 0
	var from time.Time // of the bin
	for i := range s.samples {
		sample := &s.samples[i]
		// The filling of an empty service looks like growth to the count of requests in flight.
		if sample.Phase != steady && (sample.Phase != "warmup" || signal == SignalInFlight) {
			continue
		}
		if sample.Offered != nil {
			arrivals += float64(*sample.Offered)
		}
		depth, known := sample.Server["queue_depth"]
		if signal == SignalInFlight {
			if known = sample.InFlight != nil; known {
				depth = float64(*sample.InFlight)
			}
		}
		if !known {
			continue // a gap: its arrivals count at the next sample
		}
		state := detector.Update(sample.Time.Sub(s.samples[0].Time), depth, arrivals)
		arrivals = 0
		if sample.Phase != steady {
			continue
		}
		switch f.samples++; {
		case from.IsZero():
			from = sample.Time
		case sample.Time.Sub(from) >= bin:
			bins++
			from = sample.Time
		}
		if state.Sustained && f.found == nil {
			f.found = &state
		}
	}
	f.last = detector.State()
	f.short = bins < minGrowthBins // a bin ends with a reading
	return f
}

// unseen is the longest time in which a gauge was not read in seconds that belong together: a line of the series is one, and
// what lies between two steps is none of them. It is 0 where it was read as often as it is: up to 10 s, a tenth of the time, or
// four of the usual distances between readings of the whole run are no gap.
func (s series) unseen(seconds []results.Sample, metric string) time.Duration {
	const (
		short  = 10
		share  = 10
		usuals = 4
		few    = 3 // distances, of which none is usual
	)
	longest, gap := 0, 0
	for i := range seconds {
		if gap++; len(level(seconds[i:i+1], metric)) > 0 {
			gap = 0
		}
		longest = max(longest, gap)
	}
	var distances []int
	last := -1
	for i := range s.samples {
		if len(level(s.samples[i:i+1], metric)) == 0 {
			continue
		}
		if last >= 0 {
			distances = append(distances, i-last)
		}
		last = i
	}
	usual := 0
	if len(distances) >= few {
		slices.Sort(distances)
		usual = distances[len(distances)/2]
	}
	if longest <= max(short, len(seconds)/share, usuals*usual) {
		return 0
	}
	return time.Duration(longest) * time.Second
}

// interval is a mean with one-sided bounds, each at the confidence.
type interval struct {
	mean, low, high float64
	blocks          int
}

// meanInterval is the mean of a time-ordered series by batch means with Student's t: blocks long enough to be nearly
// independent of each other (Schmeiser 1982, as for VarianceInflation). ok is false for too few values.
func meanInterval(x []float64, confidence float64) (interval, bool) {
	blocks := min(Blocks, len(x)/2)
	if blocks < minBlocks {
		return interval{}, false
	}
	length := len(x) / blocks
	rest := x[len(x)-length*blocks:]
	means := make([]float64, blocks)
	for i := range means {
		means[i] = mean(rest[i*length : (i+1)*length])
	}
	half := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(blocks - 1)}.Quantile(confidence) *
		math.Sqrt(variance(means)/float64(blocks))
	m := mean(x)
	return interval{mean: m, low: m - half, high: m + half, blocks: blocks}, true
}

// sampleQuantile is the smallest value that at least the share q of the values do not exceed. It sorts x.
func sampleQuantile(x []float64, q float64) float64 {
	slices.Sort(x)
	rank := int(math.Ceil(q*float64(len(x)) - 1e-9))
	return x[min(max(rank, 1), len(x))-1]
}
