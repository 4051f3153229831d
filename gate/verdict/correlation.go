package verdict

import "math"

// Blocks is the number of blocks that time-ordered observations are cut into. Schmeiser, "Batch size effects in the
// analysis of simulation output" (Operations Research 30, 1982): between 10 and 30 batches are enough for an interval,
// and fewer, longer ones are safer against correlation that outlasts a batch.
const Blocks = 30

// minBlockLength is the fewest requests in a block; with fewer than Blocks times as many there are fewer blocks.
const minBlockLength = 10

// minBlocks is the fewest blocks from which a variance is estimated.
const minBlocks = 5

// VarianceInflation is the factor by which correlation inflates the variance of the mean of x over that of independent
// observations: by batch means, the block length times the variance of the block means over the variance of single
// observations. x is in time order. It is at least 1: negative correlation is not credited. With x constant, or too
// short for five blocks of ten, nothing can be estimated and the result is 1.
//
// n observations then hold the evidence of n/VarianceInflation independent ones.
func VarianceInflation(x []float64) float64 {
	length, blocks := blockLayout(len(x))
	if blocks < minBlocks {
		return 1
	}
	x = x[len(x)-length*blocks:] // equal blocks: the first few observations are left out
	means := make([]float64, blocks)
	for i := range means {
		means[i] = mean(x[i*length : (i+1)*length])
	}
	single := variance(x)
	if single == 0 {
		return 1
	}
	return math.Max(1, float64(length)*variance(means)/single)
}

func blockLayout(n int) (length, blocks int) {
	length = max(n/Blocks, minBlockLength)
	return length, min(n/length, Blocks)
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// variance is the unbiased estimate from the sample x of at least two.
func variance(x []float64) float64 {
	m, sum := mean(x), 0.0
	for _, v := range x {
		sum += (v - m) * (v - m)
	}
	return sum / float64(len(x)-1)
}
