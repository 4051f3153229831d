package capacity

import (
	"math"
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

// What was asked for never contradicts itself, and a process of another kind does, given arrivals enough.
func TestGapsThatContradictTheProcess(t *testing.T) {
	seen := func(shape float64, n int, seed uint64) Offered {
		gaps := distuv.Gamma{Alpha: shape, Beta: shape * 20, Src: rand.NewPCG(seed, 1)}
		at, arrivals := 0.0, make([]float64, n)
		for i := range arrivals {
			if math.IsInf(shape, 1) {
				at += 1.0 / 20
			} else {
				at += gaps.Rand()
			}
			arrivals[i] = at
		}
		o, ok := OfferedRate(arrivals, at)
		require.True(t, ok)
		require.Equal(t, n-1, o.Gaps)
		return o
	}
	constant := math.Inf(1)
	const seeds = 400
	for _, shape := range []float64{constant, 100, 4, 1, 0.25, 0.05} {
		for _, n := range []int{20, 60, 300, 3000} {
			wrong := 0
			for seed := range uint64(seeds) {
				if o := seen(shape, n, seed); o.Contradicts(shape) {
					wrong++
				}
			}
			require.LessOrEqual(t, wrong, 1, "k = %v, %d arrivals", shape, n)
		}
	}
	for _, c := range []struct {
		asked, came float64
		n           int
	}{
		{constant, 1, 60}, {1, constant, 60}, {0.25, constant, 60}, {constant, 0.25, 60}, {0.25, 1, 400}, {1, 0.25, 400}, {4, 1, 400},
	} {
		told := 0
		for seed := range uint64(seeds) {
			if o := seen(c.came, c.n, seed); o.Contradicts(c.asked) {
				told++
			}
		}
		require.GreaterOrEqual(t, told, seeds*9/10, "%+v", c)
	}
	require.False(t, Offered{Gaps: 5, GapVariation: 1}.Contradicts(constant), "too few to tell")
}
