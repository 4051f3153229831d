package workload

import (
	"errors"
	"fmt"
	"math"
	"sort"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/safeqps/xk6-safeqps/trace/arrival"
	"github.com/safeqps/xk6-safeqps/trace/format"
)

// Class is a kind of request: its share of the traffic and its lengths. Lengths come either from Input and Output or
// from Pairs.
type Class struct {
	Name string
	// Share is the class's part of the requests, above 0 and at most 1.
	Share float64
	// Input and Output are the distributions of the prompt's and the answer's length in tokens.
	Input, Output Distribution
	// Correlation joins the two, in [-1, 1]: it is that of the Gaussian copula (R. B. Nelsen, "An Introduction to
	// Copulas", 2006), whose rank correlation is (6/π)·arcsin(ρ/2). 0 is independence.
	Correlation float64
	// Pairs are lengths that were observed. Whole pairs are drawn, each as likely as any other, so whatever
	// relation there is between input and output stays.
	Pairs []Pair
}

// Pair is the input and output length of one request, in tokens.
type Pair struct {
	Input, Output int
}

// Mix is a composition of classes. Shares add up to 1.
type Mix struct {
	Classes []Class
}

// shareTolerance absorbs shares such as three times 0.3333.
const shareTolerance = 1e-3

// PairsOf collects the lengths of a trace's rows. Rows that lack a length, or ask for no tokens, are left out and
// counted; a trace of which nothing is left is an error.
func PairsOf(t *format.Trace) (pairs []Pair, leftOut int, err error) {
	for i := range t.Rows {
		r := &t.Rows[i]
		if r.InputTokens < 1 || r.OutputTokens < 1 {
			leftOut++
			continue
		}
		pairs = append(pairs, Pair{Input: int(r.InputTokens), Output: int(r.OutputTokens)})
	}
	if len(pairs) == 0 {
		return nil, leftOut, fmt.Errorf("trace %s: none of %d rows has both an input and an output length", t.Name, len(t.Rows))
	}
	return pairs, leftOut, nil
}

// Lengths is one drawing from a mix.
type Lengths struct {
	Class         string
	Input, Output int
}

// Sampler draws lengths. It is immutable and safe for concurrent use.
type Sampler struct {
	classes []preparedClass
	// The streams are independent of each other, so that another mix of output lengths leaves the input lengths as
	// they were.
	classSeed, inputSeed, outputSeed uint64
}

type preparedClass struct {
	name          string
	upTo          float64 // the cumulative share
	input, output quantile
	correlation   float64
	pairs         []Pair
}

// NewSampler prepares a mix for drawing under a seed. Errors name the class and the key.
func NewSampler(m Mix, seed uint64) (*Sampler, error) {
	s := &Sampler{
		classSeed:  arrival.Derive(seed, "workload/class"),
		inputSeed:  arrival.Derive(seed, "workload/input"),
		outputSeed: arrival.Derive(seed, "workload/output"),
	}
	if len(m.Classes) == 0 {
		return nil, errors.New("mix: expected at least one class, got none")
	}
	total := 0.0
	seen := map[string]bool{}
	for _, c := range m.Classes {
		path := "mix." + c.Name
		if seen[c.Name] || c.Name == "" {
			return nil, fmt.Errorf("mix: expected each class to have a name of its own, got %q twice or empty", c.Name)
		}
		seen[c.Name] = true
		if !(c.Share > 0 && c.Share <= 1) {
			return nil, fmt.Errorf("%s.share: expected above 0 and at most 1, got %g", path, c.Share)
		}
		p, err := c.prepare(path)
		if err != nil {
			return nil, err
		}
		total += c.Share
		p.upTo = total
		s.classes = append(s.classes, p)
	}
	if math.Abs(total-1) > shareTolerance {
		return nil, fmt.Errorf("mix: expected shares that add up to 1, got %g", total)
	}
	for i := range s.classes {
		s.classes[i].upTo /= total
	}
	return s, nil
}

func (c Class) prepare(path string) (preparedClass, error) {
	p := preparedClass{name: c.Name, correlation: c.Correlation, pairs: c.Pairs}
	if len(c.Pairs) > 0 {
		for i, pair := range c.Pairs {
			if pair.Input < 1 || pair.Output < 1 || pair.Input > MaxTokens || pair.Output > MaxTokens {
				return p, fmt.Errorf("%s: pair %d: expected lengths from 1 to %d, got %d and %d", path, i, MaxTokens, pair.Input, pair.Output)
			}
		}
		return p, nil
	}
	if !(math.Abs(c.Correlation) <= 1) {
		return p, fmt.Errorf("%s.correlation: expected -1 to 1, got %g", path, c.Correlation)
	}
	var err error
	if p.input, err = c.Input.prepare(path + ".input"); err != nil {
		return p, err
	}
	p.output, err = c.Output.prepare(path + ".output")
	return p, err
}

// At draws the lengths of a row: a pure function of seed and row. Rows are not negative.
func (s *Sampler) At(row int) Lengths {
	u := uniform(s.classSeed, row)
	i := min(sort.Search(len(s.classes), func(i int) bool { return u < s.classes[i].upTo }), len(s.classes)-1)
	c := &s.classes[i]
	first := uniform(s.inputSeed, row)
	if len(c.pairs) > 0 {
		pair := c.pairs[min(int(first*float64(len(c.pairs))), len(c.pairs)-1)]
		return Lengths{Class: c.name, Input: pair.Input, Output: pair.Output}
	}
	second := uniform(s.outputSeed, row)
	if c.correlation != 0 {
		second = correlate(first, second, c.correlation)
	}
	return Lengths{Class: c.name, Input: c.input.at(first), Output: c.output.at(second)}
}

// correlate makes a uniform number out of two independent ones, joined to the first by a Gaussian copula.
func correlate(first, second, rho float64) float64 {
	normal := distuv.UnitNormal
	z := rho*normal.Quantile(first) + math.Sqrt(1-rho*rho)*normal.Quantile(second)
	return normal.CDF(z)
}

// uniform is a number in (0, 1) for a row: the middle of one of 2⁵² equal parts, so that neither end occurs.
func uniform(seed uint64, row int) float64 {
	const parts = 1 << 52
	bits := arrival.DeriveIndex(seed, uint64(max(row, 0))) >> 12 //nolint:gosec // not negative
	return (float64(bits) + 0.5) / parts
}
