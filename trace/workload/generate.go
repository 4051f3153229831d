package workload

import (
	"fmt"
	"math"

	"github.com/safeqps/xk6-safeqps/trace/arrival"
	"github.com/safeqps/xk6-safeqps/trace/format"
)

// Config is a synthetic workload.
type Config struct {
	// Arrivals says when requests come. Its Seed is the seed of everything: lengths, classes and prefixes too.
	Arrivals arrival.Config
	// Mix says how long they are.
	Mix Mix
	// Prefix says what they share; nil for nothing.
	Prefix *Prefix
}

// MaxRows bounds a generated trace, which is kept in memory: at 64 bytes a row, 3 GB.
const MaxRows = 50_000_000

// checkSize refuses a workload before its rows are made.
func checkSize(c arrival.Config) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	rows := float64(c.Count)
	if c.Count == 0 {
		intensity, err := c.Intensity()
		if err != nil {
			return fmt.Errorf("generate: %w", err)
		}
		end := c.Duration
		if end == 0 {
			end = intensity.Duration()
		}
		rows = intensity.Cumulative(end)
	}
	if rows > MaxRows {
		return fmt.Errorf("generate: got %.4g requests, expected at most %d", rows, MaxRows)
	}

	return nil
}

// Generate makes the trace of a synthetic workload. A generated workload is a trace like any other: written to a file
// and read again, a Plan with the same seed makes the same prompts of it, byte for byte. (Read moves the first arrival
// to time zero unless told TimeZero: FileZero.)
//
// A row with a shared prefix carries hash ids in blocks of Prefix.Tokens tokens, the first being its group's, the
// others its own. Rows without one carry none.
func Generate(c Config) (*format.Trace, error) {
	seed := c.Arrivals.Seed
	sampler, err := NewSampler(c.Mix, seed)
	if err != nil {
		return nil, err
	}
	if c.Prefix != nil {
		if err := c.Prefix.Validate(); err != nil {
			return nil, err
		}
	}
	if err := checkSize(c.Arrivals); err != nil {
		return nil, err
	}
	due, err := arrival.Schedule(c.Arrivals)
	if err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	if len(due) == 0 {
		return nil, fmt.Errorf("generate: no request arrives: expected a rate and a duration that give at least one")
	}
	const by = "the generator"
	t := &format.Trace{
		Name: "generated", Rows: make([]format.Row, len(due)), Format: format.Native, Unit: format.Milliseconds,
		FormatReason: by, UnitReason: by,
	}
	for i := range t.Rows {
		drawn := sampler.At(i)
		t.Rows[i] = format.Row{
			Due: due[i], InputTokens: int32(drawn.Input), OutputTokens: int32(drawn.Output), // #nosec G115 -- up to MaxTokens
			Class: drawn.Class,
		}
	}
	if t.Length, err = c.Arrivals.Length(); err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	if c.Prefix != nil && c.Prefix.Share > 0 {
		if err := addPrefixes(t, *c.Prefix, seed); err != nil {
			return nil, err
		}
		t.BlockSizeReason = by
	}
	return t, nil
}

// maxBlocks bounds the hash ids of a generated trace: 8 bytes each, 4 GB.
const maxBlocks = 500_000_000

func addPrefixes(t *format.Trace, p Prefix, seed uint64) error {
	t.BlockSize = p.Tokens
	groups := newPrefixSampler(p, seed)
	next := uint64(p.Groups) // #nosec G115 -- Validate: at least 1. Ids below are the groups', those above the rows' own
	total := 0
	for i := range t.Rows {
		group, ok := groups.at(i)
		if !ok {
			continue
		}
		r := &t.Rows[i]
		input := int(r.InputTokens) + p.Tokens
		if input > math.MaxInt32 {
			return fmt.Errorf("generate: row %d: a prefix of %d tokens makes the prompt too long", i, p.Tokens)
		}
		r.InputTokens = int32(input) // #nosec G115 -- checked above
		blocks := blocksOf(input, p.Tokens)
		if total += blocks; total > maxBlocks {
			return fmt.Errorf("generate: a prefix of %d tokens cuts the prompts into more than %d blocks: expected longer prefixes or fewer rows", p.Tokens, maxBlocks)
		}
		r.HashIDs = make([]uint64, blocks)
		r.HashIDs[0] = uint64(group) // #nosec G115 -- an index
		for j := 1; j < blocks; j++ {
			r.HashIDs[j] = next
			next++
		}
	}
	return nil
}

// blocksOf is the number of blocks that a prompt fills, the last one perhaps partly.
func blocksOf(input, size int) int { return (input + size - 1) / size }
