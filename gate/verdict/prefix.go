package verdict

import "github.com/safeqps/xk6-safeqps/gate/results"

// warmMargin is how far the measured hit ratio may lie above the ideal one before it is called out: counting by blocks
// and by whole prompts differs by about this much.
const warmMargin = 0.02

// PrefixTally adds up what the answers of a phase say of the prefix cache.
type PrefixTally struct{ tokens, cached, impossible int64 }

// Add takes a first attempt of the phase. More cached tokens than there were are no number of them.
func (t *PrefixTally) Add(r *results.Request) {
	if !r.Cached.Known || !r.Prompt.Known {
		return
	}
	if r.Cached.Value > r.Prompt.Value {
		t.impossible++
	} else {
		t.tokens += r.Prompt.Value
		t.cached += r.Cached.Value
	}
}

// Cache compares the hits with what the workload's own reuse explains, where that is known: ideal is run.json's
// ideal_prefix_hit_ratio. Where no answer says how many tokens were cached, the server's own ratio in the phase's samples
// counts. It is nil where nothing was measured.
func (t *PrefixTally) Cache(samples []results.Sample, ideal *float64) *PrefixCache {
	cache := PrefixCache{Ideal: ideal}
	if t.tokens > 0 {
		cache.Measured, cache.Source = float64(t.cached)/float64(t.tokens), "usage"
	} else if ratios := level(samples, "prefix_hit_ratio"); len(ratios) > 0 {
		cache.Measured, cache.Source = mean(ratios), "server"
	} else {
		return nil
	}
	cache.Warm = ideal != nil && cache.Measured > *ideal+warmMargin
	return &cache
}

// Before is the share of the prompt tokens that came from the cache and that the workload's own reuse does not explain: what
// the cache held from before the run. It is 0 unless the cache is called warm.
func (c *PrefixCache) Before() float64 {
	if !c.Warm {
		return 0
	}
	return c.Measured - *c.Ideal
}
