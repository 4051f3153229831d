package format

// Prefix describes how much of the input an ideal prefix cache, one that never evicts, would hold
// when rows are served one after the other in order of arrival. A prefix cache serves what a prompt begins with: a
// block counts as a hit if it, and every block before it in its row, stood there in an earlier row after the same
// blocks.
type Prefix struct {
	RowsWithIDs int `json:"rows_with_ids"`
	Blocks      int `json:"blocks"`
	// BlocksHit are served whole; BlocksSeen have an id that was seen before anywhere, whatever stood before it.
	BlocksHit    int `json:"blocks_hit"`
	BlocksSeen   int `json:"blocks_seen_before"`
	UniqueBlocks int `json:"unique_blocks"`
	// Tokens are the input tokens of all rows, those without ids too; TokensHit those that are served.
	Tokens    int64 `json:"tokens"`
	TokensHit int64 `json:"tokens_hit"`
	// HitRatio is BlocksHit/Blocks, TokenHitRatio TokensHit/Tokens.
	HitRatio      float64 `json:"hit_ratio"`
	TokenHitRatio float64 `json:"token_hit_ratio"`
}

func prefix(t *Trace) *Prefix {
	if t.BlockSize <= 0 {
		return nil
	}
	var p Prefix
	cache := NewPrefixCache(t.Rows, t.BlockSize)
	for i := range t.Rows {
		r := &t.Rows[i]
		p.Tokens += int64(max(r.InputTokens, 0)) // Unknown is negative
		if len(r.HashIDs) == 0 {
			continue
		}
		p.RowsWithIDs++
		p.Blocks += len(r.HashIDs)
		served := cache.Serve(0, r.HashIDs, int(r.InputTokens))
		p.BlocksHit += served.Blocks
		p.BlocksSeen += served.Seen
		p.TokensHit += int64(served.Tokens)
	}
	if p.Blocks == 0 || p.Tokens <= 0 {
		return nil
	}
	p.UniqueBlocks = p.Blocks - p.BlocksSeen
	p.HitRatio = float64(p.BlocksHit) / float64(p.Blocks)
	p.TokenHitRatio = float64(p.TokensHit) / float64(p.Tokens)
	return &p
}

// PrefixCache is a prefix cache that forgets nothing, as engines have it: it knows a block by its content and all
// content before it.
type PrefixCache struct {
	block int
	// dense and sparse hold the first place of each id. Public traces number theirs from 0, where a list is many times
	// as fast as a map; keyed hashes need the map.
	dense  []place
	sparse map[uint64]place
	// elsewhere has the further places: ids name whole prefixes in most traces, and then there are none.
	elsewhere map[uint64]int32
}

// place is a block after a beginning, and how many of its tokens are cached; 0 if it never came.
type place struct {
	before uint64
	tokens int32
}

// Served is what the cache gives for one prompt.
type Served struct {
	// Blocks and Tokens are those at the beginning of the prompt that were cached. A block of which a part was cached
	// counts in Tokens only.
	Blocks, Tokens int
	// Seen is how many of the prompt's ids the cache has met before, anywhere.
	Seen int
}

// NewPrefixCache is an empty cache for prompts of the hash ids of rows, in blocks of so many tokens.
func NewPrefixCache(rows []Row, block int) *PrefixCache {
	total, largest := uint64(0), uint64(0)
	for i := range rows {
		total += uint64(len(rows[i].HashIDs))
		for _, id := range rows[i].HashIDs {
			largest = max(largest, id)
		}
	}
	c := &PrefixCache{block: block, elsewhere: map[uint64]int32{}}
	if largest/4 <= total {
		c.dense = make([]place, largest+1)
	} else {
		c.sparse = make(map[uint64]place, total)
	}
	return c
}

// Serve looks a prompt up and keeps it. text tells apart the texts that equal ids stand for: 0 for the trace's own, another
// number for a repetition that has text of its own. The prompt has one id for each block, the last perhaps in part.
func (c *PrefixCache) Serve(text uint64, ids []uint64, tokens int) Served {
	var s Served
	before, unbroken := text, true
	for j, id := range ids {
		length := min(c.block, tokens-j*c.block)
		cached, seen := c.keep(before, id, int32(length)) //nolint:gosec // input lengths are of 32 bits
		if seen {
			s.Seen++
		}
		if unbroken {
			s.Tokens += min(int(cached), length)
			if unbroken = int(cached) >= length; unbroken {
				s.Blocks++
			}
		}
		before = mix(before ^ mix(id+0x9e3779b97f4a7c15))
	}
	return s
}

// keep says how many tokens of a block are cached after what stands before it, and whether its id has been met at all; and
// caches it to the given length.
func (c *PrefixCache) keep(before, id uint64, length int32) (cached int32, seen bool) {
	first := c.firstPlace(id)
	switch {
	case first.tokens == 0:
		c.setFirstPlace(id, place{before, length})
		return 0, false
	case first.before == before:
		if length > first.tokens {
			c.setFirstPlace(id, place{before, length})
		}
		return first.tokens, true
	}
	key := mix(before ^ mix(id+0x9e3779b97f4a7c15))
	cached = c.elsewhere[key]
	c.elsewhere[key] = max(cached, length)
	return cached, true
}

func (c *PrefixCache) firstPlace(id uint64) place {
	if c.dense != nil {
		return c.dense[id]
	}
	return c.sparse[id]
}

func (c *PrefixCache) setFirstPlace(id uint64, p place) {
	if c.dense != nil {
		c.dense[id] = p
		return
	}
	c.sparse[id] = p
}

// mix is the finaliser of SplitMix64 (Steele, Lea, Flood 2014).
func mix(z uint64) uint64 {
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}
