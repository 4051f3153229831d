package compare

import (
	"math"
	"math/rand/v2"
	"slices"
)

// resampler draws weights of time bins by the stationary bootstrap (Politis, Romano, "The stationary bootstrap", Journal
// of the American Statistical Association 89, 1994): blocks that begin anywhere, have geometric lengths, and wrap around the
// end. It keeps what a block bootstrap (Künsch, Annals of Statistics 17, 1989) keeps, the correlation within a block, and
// its resamples are stationary.
type resampler struct {
	rng     *rand.Rand
	bins    int
	endOdds float64 // that a block ends after a bin
}

func newResampler(seed, stream uint64, bins int, blockBins float64) *resampler {
	rng := rand.New(rand.NewPCG(seed, stream)) // #nosec G404 -- a reproducible resampling
	return &resampler{rng: rng, bins: bins, endOdds: 1 / math.Max(blockBins, 1)}
}

// draw counts into weights how often each bin is drawn; their sum is the number of bins.
func (r *resampler) draw(weights []float64) {
	clear(weights)
	bin := r.rng.IntN(r.bins)
	for range r.bins {
		weights[bin]++
		if r.rng.Float64() < r.endOdds {
			bin = r.rng.IntN(r.bins)
		} else if bin++; bin == r.bins {
			bin = 0
		}
	}
}

// binned are the values of a metric, sorted, with the time bin of each.
type binned struct {
	values []float64
	bins   []int
}

func newBinned(s *sample, metric int, binOf func(at float64) int) binned {
	var out binned
	order := make([]int, 0, len(s.requests))
	for i := range s.requests {
		if !math.IsNaN(s.requests[i].values[metric]) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		x, y := s.requests[i].values[metric], s.requests[j].values[metric]
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	out.values = make([]float64, len(order))
	out.bins = make([]int, len(order))
	for i, at := range order {
		out.values[i], out.bins[i] = s.requests[at].values[metric], binOf(s.requests[at].at)
	}
	return out
}

// quantiles under weights of the bins: the smallest value that at least the share q does not exceed. qs rise. NaN where
// nothing has weight; weights nil means 1 each.
func (b *binned) quantiles(weights, qs, out []float64) {
	total := float64(len(b.values))
	if weights != nil {
		total = 0
		for _, bin := range b.bins {
			total += weights[bin]
		}
	}
	next, sum := 0, 0.0
	for i := range out {
		out[i] = math.NaN()
	}
	for i, v := range b.values {
		if weights == nil {
			sum++
		} else {
			sum += weights[b.bins[i]]
		}
		for next < len(qs) && sum >= qs[next]*total-1e-9 && sum > 0 {
			out[next] = v
			next++
		}
		if next == len(qs) {
			return
		}
	}
}

// logRatio is ln(b/a), also where one or both are infinite: the same infinity is no difference.
func logRatio(a, b float64) float64 {
	switch {
	case math.IsInf(a, 1) && math.IsInf(b, 1):
		return 0
	case math.IsInf(a, 1):
		return math.Inf(-1)
	}
	return math.Log(b / a)
}

// spread is the standard deviation of the resampled values; infinite where more than a few of them are.
func spread(x []float64) float64 {
	finite := make([]float64, 0, len(x))
	for _, v := range x {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			finite = append(finite, v)
		}
	}
	const most = 0.01
	if float64(len(x)-len(finite)) > most*float64(len(x)) || len(finite) < 2 {
		return math.Inf(1)
	}
	mean, sum := 0.0, 0.0
	for _, v := range finite {
		mean += v / float64(len(finite))
	}
	for _, v := range finite {
		sum += (v - mean) * (v - mean)
	}
	return math.Sqrt(sum / float64(len(finite)-1))
}
