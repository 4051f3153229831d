package llmtest

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Config describes the simulated engine. Field names follow vLLM's options, so that a configuration under
// study can be written down as it stands.
type Config struct {
	// MaxNumSeqs is the highest number of sequences in one step (vLLM max_num_seqs).
	MaxNumSeqs int
	// MaxNumBatchedTokens is the token budget of one step, prefill and decode together (vLLM
	// max_num_batched_tokens). It must be at least MaxNumSeqs.
	MaxNumBatchedTokens int
	// LongPrefillTokenThreshold caps the prefill tokens that one request gets in one step; 0 means no cap.
	LongPrefillTokenThreshold int
	// DisableChunkedPrefill makes a prompt wait until it fits into the step whole. It then needs
	// MaxNumBatchedTokens to be at least MaxModelLen.
	DisableChunkedPrefill bool

	// NumBlocks is the size of the KV cache in blocks, and BlockSize the tokens in one block. Together they
	// must hold one sequence of MaxModelLen.
	NumBlocks int
	BlockSize int
	// DisablePrefixCaching turns reuse of blocks off.
	DisablePrefixCaching bool
	// MaxModelLen is the context length: prompt plus output, in tokens.
	MaxModelLen int
	// MaxWaiting bounds the waiting queue: a request that finds this many requests waiting (preempted ones
	// included) is refused with ErrQueueFull. 0 means unbounded, as in vLLM itself. A request that arrives
	// while a step runs waits for its end even if a slot is free.
	MaxWaiting int

	// A step lasts StepBase + StepPerPrefillToken per prefill token in it + StepPerSequence per decoding
	// sequence in it.
	StepBase            time.Duration
	StepPerPrefillToken time.Duration
	StepPerSequence     time.Duration
	// StepJitter multiplies each step's time by a lognormal factor of mean 1 whose logarithm has this
	// standard deviation; 0 means none. Range 0 to 1.
	StepJitter float64

	// Stalls are periods in which the engine makes no progress at all, by engine time.
	Stalls []Stall
	// Seed decides everything that is random.
	Seed uint64
}

// Stall is a period in which the whole engine stands still: a step that runs when it begins ends later by For.
type Stall struct {
	At  time.Duration
	For time.Duration
}

// DefaultConfig resembles an 8B-parameter model with grouped-query attention in 16 bit on one data-centre GPU.
// The magnitudes follow from memory bandwidth and arithmetic, the exact numbers are chosen, not measured:
//
//   - reading 16 GB of weights at 2.0 to 3.35 TB/s (A100 80 GB, H100 SXM data sheets) takes 5 to 8 ms: StepBase 6 ms;
//   - a prefill token costs 2 × 8e9 FLOP; at 400 TFLOP/s achieved that is 40 µs;
//   - a decoding sequence adds reading its own KV cache (131 kB per token: 32 layers × 8 heads × 128 × 2 × 2 B)
//     and sampling: chosen 150 µs;
//   - MaxNumBatchedTokens 2048 is vLLM's default for online serving on smaller GPUs; 4096 blocks of 16 tokens are
//     8.6 GB of KV cache, deliberately small, so that preemption can be provoked with little load.
func DefaultConfig() Config {
	return Config{
		MaxNumSeqs:          64,
		MaxNumBatchedTokens: 2048,
		NumBlocks:           4096,
		BlockSize:           16,
		MaxModelLen:         8192,
		StepBase:            6 * time.Millisecond,
		StepPerPrefillToken: 40 * time.Microsecond,
		StepPerSequence:     150 * time.Microsecond,
		Seed:                1,
	}
}

// Validate reports every wrong field at once.
func (c Config) Validate() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(c.MaxNumSeqs < 1, "MaxNumSeqs is %d, expected at least 1", c.MaxNumSeqs)
	wrong(c.MaxNumBatchedTokens < c.MaxNumSeqs,
		"MaxNumBatchedTokens is %d, expected at least MaxNumSeqs (%d)", c.MaxNumBatchedTokens, c.MaxNumSeqs)
	wrong(c.LongPrefillTokenThreshold < 0,
		"LongPrefillTokenThreshold is %d, expected 0 or more", c.LongPrefillTokenThreshold)
	wrong(c.BlockSize < 1, "BlockSize is %d, expected at least 1", c.BlockSize)
	wrong(c.NumBlocks < 1, "NumBlocks is %d, expected at least 1", c.NumBlocks)
	wrong(c.NumBlocks > math.MaxInt32, "NumBlocks is %d, expected at most %d", c.NumBlocks, math.MaxInt32)
	wrong(c.MaxModelLen < 2, "MaxModelLen is %d, expected at least 2", c.MaxModelLen)
	wrong(c.BlockSize > 0 && c.NumBlocks > 0 && c.NumBlocks < ceilDiv(c.MaxModelLen, c.BlockSize),
		"NumBlocks is %d, expected at least %d to hold one sequence of MaxModelLen (%d tokens in blocks of %d)",
		c.NumBlocks, ceilDiv(c.MaxModelLen, max(c.BlockSize, 1)), c.MaxModelLen, c.BlockSize)
	wrong(c.DisableChunkedPrefill && c.MaxNumBatchedTokens < c.MaxModelLen,
		"MaxNumBatchedTokens is %d, expected at least MaxModelLen (%d) without chunked prefill",
		c.MaxNumBatchedTokens, c.MaxModelLen)
	wrong(c.DisableChunkedPrefill && c.LongPrefillTokenThreshold > 0,
		"LongPrefillTokenThreshold is %d, expected 0 without chunked prefill", c.LongPrefillTokenThreshold)
	wrong(c.MaxWaiting < 0, "MaxWaiting is %d, expected 0 (unbounded) or more", c.MaxWaiting)
	wrong(c.StepBase <= 0, "StepBase is %v, expected more than 0", c.StepBase)
	wrong(c.StepPerPrefillToken < 0, "StepPerPrefillToken is %v, expected 0 or more", c.StepPerPrefillToken)
	wrong(c.StepPerSequence < 0, "StepPerSequence is %v, expected 0 or more", c.StepPerSequence)
	wrong(!within(c.StepJitter, 0, 1), "StepJitter is %v, expected 0 to 1", c.StepJitter)
	for i, s := range c.Stalls {
		wrong(s.At < 0 || s.For <= 0, "Stalls[%d] is {At: %v, For: %v}, expected At of 0 or more and For of more than 0",
			i, s.At, s.For)
	}
	return errors.Join(errs...)
}

// StepTime is the time of one step without jitter.
func (c Config) StepTime(prefillTokens, decodeSequences int) time.Duration {
	return c.StepBase +
		time.Duration(prefillTokens)*c.StepPerPrefillToken +
		time.Duration(decodeSequences)*c.StepPerSequence
}

// Capacity is the highest request rate, per second, that the engine can sustain for requests of the given mean
// lengths: promptTokens counts the prompt tokens that are not found in the prefix cache, outputTokens the
// generated ones.
//
// At saturation N sequences run. A request holds its slot for one prefill step and outputTokens−1 decode steps, so a
// step carries N·(D−1)/D decoding sequences and N·P/D prefill tokens, and completes N/D requests:
//
//	τ = base + perSequence·N·(D−1)/D + perPrefillToken·N·P/D,   capacity = N / (D·τ)
//
// N is the smallest of MaxNumSeqs, what the token budget allows (N·(D−1+P)/D ≤ MaxNumBatchedTokens) and what the
// KV cache holds at the mean length of a running sequence (P + D/2). Where requests differ in length the KV limit is a
// mean-value estimate; the other two are exact for long runs. Prompts longer than the budget occupy their slot for
// several prefill steps, which makes Capacity an upper bound.
func (c Config) Capacity(promptTokens, outputTokens float64) float64 {
	d := math.Max(outputTokens, 1)
	p := math.Max(promptTokens, 1)
	n := float64(c.MaxNumSeqs)
	n = math.Min(n, float64(c.MaxNumBatchedTokens)*d/(d-1+p))
	n = math.Min(n, float64(c.NumBlocks)*float64(c.BlockSize)/(p+d/2))
	step := c.StepBase.Seconds() +
		c.StepPerSequence.Seconds()*n*(d-1)/d +
		c.StepPerPrefillToken.Seconds()*n*p/d
	return n / (d * step)
}

// within is false for NaN too.
func within(v, low, high float64) bool { return v >= low && v <= high }

func ceilDiv(a, b int) int { return (a + b - 1) / b }
