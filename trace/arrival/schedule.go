package arrival

import (
	"iter"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat/distuv"
)

// Schedule returns the due time of every arrival, counted from the start of the run, in order. Arrivals may
// share a nanosecond. The error is that of Config.Validate.
func Schedule(c Config) ([]time.Duration, error) {
	p, err := c.plan()
	if err != nil {
		return nil, err
	}
	capacity := p.count
	if p.free {
		capacity = min(p.count, int(p.horizon))
	}
	return slices.AppendSeq(make([]time.Duration, 0, capacity), p.stream()), nil
}

// Stream gives the arrivals of Schedule one by one, in constant memory, and may be ranged over again and
// again. The call itself walks the whole process once, without keeping it (0.1 s per million arrivals),
// unless FreeCount is set or the spacing is constant. The sequence owns no goroutine and is safe for
// concurrent use: each range starts its own generator.
func Stream(c Config) (iter.Seq[time.Duration], error) {
	p, err := c.plan()
	if err != nil {
		return nil, err
	}
	return p.stream(), nil
}

func (p plan) stream() iter.Seq[time.Duration] {
	switch {
	case math.IsInf(p.burstiness, 1):
		return p.constant()
	case p.free:
		return p.open()
	default:
		return p.closed()
	}
}

// constant puts one arrival on each whole number of expected arrivals, the first at the start. Each time is
// worked out from its index, not from the one before, so that no error builds up.
func (p plan) constant() iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		var last time.Duration
		for i := range p.count {
			last = p.due(float64(i), last)
			if !yield(last) {
				return
			}
		}
	}
}

// open follows the renewal process until the run is over.
func (p plan) open() iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		var last time.Duration
		process, _, at := newRenewal(p.burstiness, p.seed)
		for range p.count {
			operational := float64(at) / quantaPerGap
			if operational >= p.horizon {
				return
			}
			last = p.due(operational, last)
			if !yield(last) {
				return
			}
			at += process.gap()
		}
	}
}

// closed is the renewal process under the condition that its gaps fill the run exactly.
func (p plan) closed() iter.Seq[time.Duration] {
	process, total, _ := newRenewal(p.burstiness, p.seed)
	for range p.count - 1 {
		total += process.gap()
	}
	return func(yield func(time.Duration) bool) {
		var last time.Duration
		process, _, at := newRenewal(p.burstiness, p.seed)
		for range p.count {
			last = p.due(float64(at)*p.horizon/float64(total), last)
			if !yield(last) {
				return
			}
			at += process.gap()
		}
	}
}

// due turns operational time into a time of the run. Λ⁻¹ is monotone, its rounded value may be off by one
// nanosecond: an arrival is kept behind the one before it and inside the run.
func (p plan) due(operational float64, last time.Duration) time.Duration {
	t := time.Duration(math.Round(p.intensity.inverse(operational)))
	return max(last, min(t, p.end-1))
}

// quantaPerGap is the grid of operational time: gaps are whole multiples of 2⁻²⁰, about a millionth, of the
// mean gap. Gonum's sampler and math/rand/v2 leave the compiler free to fuse multiply and add, and math.Exp
// is assembly on some processors, so the last bit of a sampled gap differs between machines. On the grid that
// bit is gone except where a gap lies within 10⁻¹⁵ of a rounding boundary, and the sums that follow are
// exact integers.
const quantaPerGap = 1 << 20

// renewal is the stationary Gamma renewal process with unit mean gap.
type renewal struct {
	gaps distuv.Gamma
}

// newRenewal starts the process at an arbitrary instant, and not at an arrival: the gap in which that instant
// falls is drawn by length, which makes a Gamma(k) into a Gamma(k+1), and the instant is uniform in it (D. Cox,
// "Renewal theory", 1962, on recurrence times). Then n arrivals are expected in any n units of operational time, from
// the first on; begun at an arrival, a bursty process would expect (1/k − 1)/2 too many.
//
// It returns that whole gap and the part of it that remains until the first arrival, in quanta.
func newRenewal(burstiness float64, seed uint64) (process renewal, straddling, first uint64) {
	source := NewSource(seed, "arrival/gaps")
	biased := distuv.Gamma{Alpha: burstiness + 1, Beta: burstiness, Src: source}
	straddling = max(1, quanta(biased.Rand()))
	return renewal{distuv.Gamma{Alpha: burstiness, Beta: burstiness, Src: source}},
		straddling, uniformBelow(straddling, source)
}

func (r renewal) gap() uint64 { return quanta(r.gaps.Rand()) }

func quanta(gap float64) uint64 { return uint64(math.Round(gap * quantaPerGap)) }

// uniformBelow is a uniform whole number in [0, n), by integer arithmetic alone: rand.Uint64N gives other
// values on 32-bit machines. Its bias, n/2⁶⁴, is beyond detection for the n of a gap.
func uniformBelow(n uint64, source rand.Source) uint64 {
	below, _ := bits.Mul64(source.Uint64(), n)
	return below
}
