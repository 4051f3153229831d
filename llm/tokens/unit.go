package tokens

import "math"

// A unit is an endless sequence of symbols (words or token ids), named by a seed and a key. Prompts and prefix
// blocks are the beginnings of units. Two demands shape it:
//
//   - The symbol at a position depends on seed and key alone: no generator is carried from one prompt to the next.
//   - Units of one seed and different keys differ as early as they can. The keys are row numbers or block ids, and
//     the first symbols of a unit are the key's digits in base radix, the lowest first, each shifted by a hash
//     of the seed and of the digits before it. Where two keys first differ in a digit the shifts are equal, so the
//     symbols differ: keys that are fewer than radix apart differ in the first symbol, any two of radix² consecutive
//     keys within two symbols, and any two keys at all within `lead` symbols.
//
// The rest is SplitMix64 in counter mode (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number
// generators", OOPSLA 2014), keyed by a hash of both.
type unit struct {
	radix  uint64
	seed   uint64
	stream uint64
	rest   uint64 // the key's digits that are still to come
	passed uint64 // a hash of the digits that are gone
	lead   int    // the number of symbols that carry digits
	at     int    // the next position
	bits   uint64 // random bits not yet used, 16 for each symbol
}

const golden = 0x9e3779b97f4a7c15

// mix is the output function of SplitMix64, a bijection.
func mix(z uint64) uint64 {
	z += golden
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

func newUnit(seed, key uint64, radix, lead int) unit {
	return unit{
		radix:  uint64(radix), // #nosec G115 -- a radix is the size of a vocabulary, checked to be positive
		seed:   seed,
		stream: mix(mix(seed) ^ mix(key+golden)),
		rest:   key,
		passed: mix(seed),
		lead:   lead,
	}
}

// leadOf is the number of digits in base radix that hold any 64-bit key.
func leadOf(radix int) int {
	digits := 0
	for rest := uint64(math.MaxUint64); rest > 0; rest /= uint64(radix) { // #nosec G115 -- as in newUnit
		digits++
	}
	return digits
}

// next is the next symbol, in [0, radix).
func (u *unit) next() int {
	if u.at < u.lead {
		u.at++
		digit := u.rest % u.radix
		symbol := (digit + u.passed%u.radix) % u.radix
		u.rest /= u.radix
		u.passed = mix(u.passed ^ (digit + 1))
		return int(symbol) // #nosec G115 -- below radix, which is an int
	}
	return u.random()
}

// random scales random bits to the radix by a multiplication and a shift: 16 bits for a vocabulary, whose size is
// a power of two or far below 2¹⁶ so that no word is favoured by more than radix/2¹⁶; 32 bits for token ids.
func (u *unit) random() int {
	i := u.at - u.lead
	u.at++
	if u.radix <= 1<<12 {
		if i%4 == 0 {
			u.bits = mix(u.stream + uint64(i/4)*golden) // #nosec G115 -- a position is not negative
		}
		symbol := (u.bits & 0xffff) * u.radix >> 16
		u.bits >>= 16
		return int(symbol) //nolint:gosec // below radix, which is an int
	}
	if i%2 == 0 {
		u.bits = mix(u.stream + uint64(i/2)*golden) // #nosec G115 -- a position is not negative
	}
	symbol := (u.bits & 0xffffffff) * u.radix >> 32
	u.bits >>= 32
	return int(symbol) //nolint:gosec // below radix, which is an int
}
