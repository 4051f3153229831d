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

// flow returns one value per second of a phase.
func flow(samples []results.Sample, of func(*results.Sample) *int64) []float64 {
	var values []float64
	for i := range samples {
		if v := of(&samples[i]); v != nil {
			values = append(values, float64(*v))
		}
	}
	return values
}

// growth feeds the queue's depth, up to the end of the steady phase, to a detector. It says whether growth was found
// during the steady phase, and the detector's last state. ok is false where no depth was recorded.
func (s series) growth(steadyLength time.Duration) (found *GrowthState, last GrowthState, signal QueueSignal, samples int64, ok bool) {
	part := s.of(steady)
	signal = SignalWaiting
	if len(level(part, "queue_depth")) == 0 {
		signal = SignalInFlight
	}
	if steadyLength == 0 && len(part) > 1 {
		steadyLength = part[len(part)-1].Time.Sub(part[0].Time)
	}
	detector := NewGrowthDetector(GrowthBin(steadyLength), signal)
	arrivals := 0.0
	for i := range s.samples {
		sample := &s.samples[i]
		// The filling of an empty service looks like growth to the count of requests in flight.
		if sample.Phase != steady && (sample.Phase != "warmup" || signal == SignalInFlight) {
			continue
		}
		if sample.Offered != nil {
			arrivals += float64(*sample.Offered)
		}
		depth, known := sample.Server["queue_depth"], true
		if signal == SignalInFlight {
			known = sample.InFlight != nil
			if known {
				depth = float64(*sample.InFlight)
			}
		} else if _, known = sample.Server["queue_depth"]; !known {
			continue // a gap in scraping: its arrivals count at the next sample
		}
		if !known {
			continue
		}
		state := detector.Update(sample.Time.Sub(s.samples[0].Time), depth, arrivals)
		arrivals = 0
		if sample.Phase != steady {
			continue
		}
		samples++
		if state.Sustained && found == nil {
			found = &state
		}
	}
	return found, detector.State(), signal, samples, samples > 0
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
