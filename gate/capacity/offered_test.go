package capacity

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/stat/distuv"
)

func TestOfferedRate(t *testing.T) {
	var even []float64
	for i := range 101 {
		even = append(even, float64(i)/10)
	}
	o, ok := OfferedRate(even, 10)
	require.True(t, ok)
	require.InDelta(t, 10.1, o.Rate, 1e-9)
	require.InDelta(t, 0, o.Noise, 1e-6)
	require.False(t, o.Differs(10, 0.2))
	require.True(t, o.Differs(13, 0.2))
	require.True(t, o.Differs(8, 0.2))

	// Gaps of 0 and 2 in turn: the coefficient of variation is 1.
	var pairs []float64
	for i := range 200 {
		pairs = append(pairs, float64(i/2*4))
	}
	o, ok = OfferedRate(pairs, 400)
	require.True(t, ok)
	require.InDelta(t, 0.5, o.Rate, 1e-9)
	require.InDelta(t, 1/14.14, o.Noise, 0.001)

	_, ok = OfferedRate(even[:19], 2)
	require.False(t, ok, "too few")
	_, ok = OfferedRate(make([]float64, 50), 2)
	require.False(t, ok, "all at one instant")
	_, ok = OfferedRate(even, 0)
	require.False(t, ok)
}

// Bursts are no reason to call a script wrong; another rate is.
func TestBurstsAreNotAnotherRate(t *testing.T) {
	wrong, missed := 0, 0
	for seed := range uint64(300) {
		gaps := distuv.Gamma{Alpha: 0.25, Beta: 0.25 * 20, Src: rand.NewPCG(seed, 1)}
		at, arrivals := 0.0, []float64(nil)
		for at < 6 {
			at += gaps.Rand()
			arrivals = append(arrivals, at)
		}
		o, ok := OfferedRate(arrivals, 6)
		require.True(t, ok)
		if o.Differs(20, 0.5) {
			wrong++
		}
		if !o.Differs(160, 0.5) {
			missed++
		}
	}
	require.LessOrEqual(t, wrong, 1)
	require.LessOrEqual(t, missed, 1)
}
