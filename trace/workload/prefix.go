package workload

import (
	"fmt"
	"math"
	"sort"

	"github.com/safeqps/xk6-safeqps/trace/arrival"
)

// Prefix is a model of shared beginnings, such as system prompts and few-shot examples.
type Prefix struct {
	// Share is the part of the requests that begin with a shared prefix, from 0 to 1.
	Share float64
	// Tokens is the length of each prefix. It comes on top of the lengths of the mix, as in vLLM's and GuideLLM's
	// benchmarks: a class of 100 tokens may well have a prefix of 1,000.
	Tokens int
	// Groups is the number of different prefixes.
	Groups int
	// Zipf is the exponent s of the groups' popularity: group i is drawn with a weight of (i+1)^-s. 0: all
	// are equally popular.
	Zipf float64
}

// Bounds of a prefix model.
const (
	maxGroups = 1_000_000
	maxZipf   = 10
)

// Validate checks the ranges; errors name the key.
func (p Prefix) Validate() error {
	switch {
	case !(p.Share >= 0 && p.Share <= 1):
		return fmt.Errorf("prefix.share: expected 0 to 1, got %g", p.Share)
	case p.Tokens < 1 || p.Tokens > MaxTokens:
		return fmt.Errorf("prefix.tokens: expected 1 to %d, got %d", MaxTokens, p.Tokens)
	case p.Groups < 1 || p.Groups > maxGroups:
		return fmt.Errorf("prefix.groups: expected 1 to %d, got %d", maxGroups, p.Groups)
	case !(p.Zipf >= 0 && p.Zipf <= maxZipf):
		return fmt.Errorf("prefix.zipf: expected 0 to %d, got %g", maxZipf, p.Zipf)
	}
	return nil
}

// ParsePrefix reads {share, tokens, groups, zipf}. Share is 1 and groups is 1 unless stated.
func ParsePrefix(value any) (Prefix, error) {
	f, err := newFields("prefix", value)
	if err != nil {
		return Prefix{}, err
	}
	var p Prefix
	if p.Share, err = f.number("share", 1); err != nil {
		return Prefix{}, err
	}
	if p.Tokens, err = f.whole("tokens", 0); err != nil {
		return Prefix{}, err
	}
	if p.Groups, err = f.whole("groups", 1); err != nil {
		return Prefix{}, err
	}
	if p.Zipf, err = f.number("zipf", 0); err != nil {
		return Prefix{}, err
	}
	if err := f.done(); err != nil {
		return Prefix{}, err
	}
	return p, p.Validate()
}

// prefixSampler draws the group of a row.
type prefixSampler struct {
	share                float64
	upTo                 []float64 // cumulative popularity of the groups
	shareSeed, groupSeed uint64
}

func newPrefixSampler(p Prefix, seed uint64) prefixSampler {
	s := prefixSampler{
		share:     p.Share,
		upTo:      make([]float64, p.Groups),
		shareSeed: arrival.Derive(seed, "workload/prefix-share"),
		groupSeed: arrival.Derive(seed, "workload/prefix-group"),
	}
	total := 0.0
	for i := range s.upTo {
		total += math.Pow(float64(i+1), -p.Zipf)
		s.upTo[i] = total
	}
	for i := range s.upTo {
		s.upTo[i] /= total
	}
	return s
}

// at is the group of a row; not ok when the row has no shared prefix.
func (s prefixSampler) at(row int) (group int, ok bool) {
	if uniform(s.shareSeed, row) >= s.share {
		return 0, false
	}
	u := uniform(s.groupSeed, row)
	return min(sort.Search(len(s.upTo), func(i int) bool { return u < s.upTo[i] }), len(s.upTo)-1), true
}
