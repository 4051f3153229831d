package llmtest

// noBlock ends a list of blocks.
const noBlock int32 = -1

// block is one page of the KV cache. A block with no user is in the free list; it may still hold content that can be
// found by hash until it is handed out again.
type block struct {
	hash       uint64
	prev, next int32
	refs       int32
	hashed     bool
}

// blockPool is the KV cache: all blocks, the free ones in order of eviction (least recently freed first), and an index
// of content by chained hash. vLLM keeps one block back as a placeholder; this pool does not.
type blockPool struct {
	blocks     []block
	head, tail int32
	free       int
	byHash     map[uint64]int32
}

func newBlockPool(n int) *blockPool {
	p := &blockPool{blocks: make([]block, n), head: noBlock, tail: noBlock, byHash: make(map[uint64]int32)}
	for i := range n {
		p.pushFree(int32(i)) //nolint:gosec // Validate bounds NumBlocks to an int32
	}
	return p
}

func (p *blockPool) used() int { return len(p.blocks) - p.free }

// pushFree appends a block to the free list: it will be evicted after all that are free now.
func (p *blockPool) pushFree(id int32) {
	b := &p.blocks[id]
	b.prev, b.next = p.tail, noBlock
	if p.tail == noBlock {
		p.head = id
	} else {
		p.blocks[p.tail].next = id
	}
	p.tail = id
	p.free++
}

func (p *blockPool) unlink(id int32) {
	b := &p.blocks[id]
	if b.prev == noBlock {
		p.head = b.next
	} else {
		p.blocks[b.prev].next = b.next
	}
	if b.next == noBlock {
		p.tail = b.prev
	} else {
		p.blocks[b.next].prev = b.prev
	}
	b.prev, b.next = noBlock, noBlock
	p.free--
}

// take hands out the block at the head of the free list and forgets what it held. The caller has checked that there is
// a free block.
func (p *blockPool) take() int32 {
	id := p.head
	p.unlink(id)
	b := &p.blocks[id]
	if b.hashed {
		delete(p.byHash, b.hash)
		b.hashed = false
	}
	b.refs = 1
	return id
}

// share adds a user to a block found by hash.
func (p *blockPool) share(id int32) {
	b := &p.blocks[id]
	if b.refs == 0 {
		p.unlink(id)
	}
	b.refs++
}

// release takes a user off each block, last block first, so that the tail of a sequence is evicted before its
// beginning, which others are more likely to share.
func (p *blockPool) release(ids []int32) {
	for i := len(ids) - 1; i >= 0; i-- {
		b := &p.blocks[ids[i]]
		b.refs--
		if b.refs == 0 {
			p.pushFree(ids[i])
		}
	}
}

// remember makes a full block findable. Where another block already holds the same content, that one stays the
// findable one (vLLM indexes both; the difference shows only if the older copy is evicted first).
func (p *blockPool) remember(id int32, hash uint64) {
	if _, exists := p.byHash[hash]; exists {
		return
	}
	p.byHash[hash] = id
	p.blocks[id].hash = hash
	p.blocks[id].hashed = true
}

// chainHash identifies a block by its own content and all content before it.
func chainHash(before, content uint64) uint64 {
	return mix64(before ^ mix64(content+0x9e3779b97f4a7c15))
}

// mix64 is the finaliser of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
func mix64(x uint64) uint64 {
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb
	return x ^ (x >> 31)
}

// ExpandBlocks turns ids of large blocks, such as the 512-token hash_ids of the Mooncake traces, into ids of the
// engine's smaller blocks: each id yields idBlockSize/blockSize ids, a function of the id and the position in it. It
// returns nil where blockSize does not divide idBlockSize.
func ExpandBlocks(ids []uint64, idBlockSize, blockSize int) []uint64 {
	if blockSize < 1 || idBlockSize < blockSize || idBlockSize%blockSize != 0 {
		return nil
	}
	per := idBlockSize / blockSize
	out := make([]uint64, 0, len(ids)*per)
	for _, id := range ids {
		part := mix64(id)
		for range per {
			part += 0x9e3779b97f4a7c15
			out = append(out, mix64(part))
		}
	}
	return out
}
