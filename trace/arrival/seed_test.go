package arrival

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/stat/distuv"
)

// TestDeriveGolden: these values are part of the promise to users; see the golden schedules.
func TestDeriveGolden(t *testing.T) {
	for _, c := range []struct {
		seed   uint64
		stream string
		want   uint64
	}{
		{0, "", 0x504ec8354c89e6b0},
		{0, "arrival/gaps", 0x5bb8dc7e93482ffc},
		{1, "arrival/gaps", 0x30fb32005ff1434f},
		{1, "workload/lengths", 0x1975cb95bdcd6d66},
		{math.MaxUint64, "Ärger", 0xa668b56cedc28cbc},
	} {
		require.Equal(t, c.want, Derive(c.seed, c.stream), "Derive(%d, %q)", c.seed, c.stream)
	}
	sum := sha256.Sum256([]byte("safeqps/seed/v1\x00\x07\x00\x00\x00\x00\x00\x00\x00prompts"))
	require.Equal(t, binary.LittleEndian.Uint64(sum[:8]), Derive(7, "prompts"))
}

// TestDeriveIndexIsSplitMix64 uses the reference outputs of the generator for the seeds 0 and 1234567.
func TestDeriveIndexIsSplitMix64(t *testing.T) {
	for i, want := range []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f, 0xf88bb8a8724c81ec} {
		require.Equal(t, want, DeriveIndex(0, uint64(i))) //nolint:gosec // small
	}
	for i, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423} {
		require.Equal(t, want, DeriveIndex(1234567, uint64(i))) //nolint:gosec // small
	}
}

func TestNewSourceGolden(t *testing.T) {
	source := NewSource(1, "arrival/gaps")
	require.Equal(t, []uint64{0x60eadac0b4fb0b60, 0xa89572f03538a52e, 0x498cc1e2808c4473},
		[]uint64{source.Uint64(), source.Uint64(), source.Uint64()})
}

// TestStreamsAreIndependent: over neighbouring seeds, names and rows the derived bits differ in half their
// places, as binomial as coin tosses. Error rate alpha.
func TestStreamsAreIndependent(t *testing.T) {
	const pairs = 20_000
	var pvalues []float64
	for _, pair := range []func(i uint64) (uint64, uint64){
		func(i uint64) (uint64, uint64) { return Derive(i, "a"), Derive(i+1, "a") },
		func(i uint64) (uint64, uint64) { return Derive(i, "a"), Derive(i, "b") },
		func(i uint64) (uint64, uint64) { return DeriveIndex(5, i), DeriveIndex(5, i+1) },
		func(i uint64) (uint64, uint64) { return DeriveIndex(Derive(5, "a"), i), DeriveIndex(Derive(5, "b"), i) },
		func(i uint64) (uint64, uint64) { return NewSource(i, "a").Uint64(), NewSource(i+1, "a").Uint64() },
	} {
		var observed, expected [5]float64
		law := distuv.Binomial{N: 64, P: 0.5}
		for i, edge := range []float64{27, 30, 33, 36, 64} {
			expected[i] = pairs * law.CDF(edge)
			if i > 0 {
				expected[i] -= pairs * law.CDF([]float64{27, 30, 33, 36, 64}[i-1])
			}
		}
		for i := range uint64(pairs) {
			a, b := pair(i)
			switch different := bits.OnesCount64(a ^ b); {
			case different <= 27:
				observed[0]++
			case different <= 30:
				observed[1]++
			case different <= 33:
				observed[2]++
			case different <= 36:
				observed[3]++
			default:
				observed[4]++
			}
		}
		pvalues = append(pvalues, chiSquared(observed[:], expected[:], len(observed)-1))
	}
	requirePlausible(t, pvalues...)
}
