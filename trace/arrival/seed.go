package arrival

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
)

// A user gives one seed; arrivals, token lengths, prompts and anything else that is random each need a
// stream of their own, or else changing one of them would shift all the others, and two of them reading the
// same stream would be correlated. The functions below derive those streams. Their values are part of the
// promise "one seed, one schedule, on every machine": they must never change.

// seedDomain keeps these hashes apart from any other use of SHA-256 over the same bytes.
const seedDomain = "safeqps/seed/v1\x00"

// Derive gives the seed of the named stream that belongs to a user's seed. Different names give independent
// seeds, and so do different user seeds, however close they are (1, 2, 3 …). Names are free text and
// compared byte by byte; packages use their own name as a prefix, as in "workload/lengths".
//
// The value is the first eight bytes, little endian, of SHA-256 over a domain label, the seed in eight bytes,
// little endian, and the name.
func Derive(seed uint64, stream string) uint64 {
	key := streamKey(seed, stream)
	return binary.LittleEndian.Uint64(key[:8])
}

// DeriveIndex gives the seed of row index (or request, or prompt number) under a seed, at the cost of a few
// instructions. For a fixed seed the map is a bijection: two rows never share a seed.
//
// The value is output number index+1 of the SplitMix64 generator started at seed. Source: G. Steele, D. Lea,
// C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
func DeriveIndex(seed, index uint64) uint64 {
	z := seed + (index+1)*0x9e3779b97f4a7c15
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

// NewSource starts the named stream of a user's seed as a ChaCha8 generator keyed with the whole hash that
// Derive takes its value from. It is not safe for concurrent use: one owner per source.
func NewSource(seed uint64, stream string) *rand.ChaCha8 {
	return rand.NewChaCha8(streamKey(seed, stream))
}

func streamKey(seed uint64, stream string) [sha256.Size]byte {
	text := make([]byte, 0, len(seedDomain)+8+len(stream))
	text = append(text, seedDomain...)
	text = binary.LittleEndian.AppendUint64(text, seed)
	text = append(text, stream...)
	return sha256.Sum256(text)
}
