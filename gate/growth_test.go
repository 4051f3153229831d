package gate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// seconds runs a watch second by second at ten arrivals a second; it returns the first second of growth, and those without an
// answer.
func watchSeconds(w *growthWatch, n int, queue func(i int) *float64, inFlight func(i int) float64, step func(i int) string) (found, silent int) {
	found = -1
	for i := range n {
		sustained, known := w.update(time.Duration(i)*time.Second, step(i), queue(i), inFlight(i), 10)
		if !known {
			silent++
		}
		if sustained && found < 0 {
			found = i
		}
	}

	return found, silent
}

func TestGrowthIsSeenWhereTheServerNoLongerTells(t *testing.T) {
	const steady, every = 10 * time.Minute, time.Second
	unseen := func(int) *float64 { return nil }
	empty := func(int) *float64 { return new(float64) }
	until12 := func(i int) *float64 {
		if i < 12 {
			return new(float64)
		}

		return nil
	}
	even := func(i int) float64 { return float64(5 + i%3) }
	rising := func(i int) float64 { return float64(5 + 2*max(0, i-12)) }
	one := func(int) string { return "" }

	found, silent := watchSeconds(newGrowthWatch(steady, every), 600, until12, rising, one)
	require.Positive(t, found, "the requests in flight pile up")
	require.Equal(t, 10, silent, "a short gap is a gap")
	found, _ = watchSeconds(newGrowthWatch(steady, every), 600, until12, even, one)
	require.Equal(t, -1, found)
	found, silent = watchSeconds(newGrowthWatch(steady, every), 600, unseen, rising, one)
	require.Positive(t, found)
	require.Zero(t, silent, "nothing else to wait for")
	found, _ = watchSeconds(newGrowthWatch(steady, every), 600, empty, rising, one)
	require.Equal(t, -1, found, "long answers are no queue: the server says so")
	found, _ = watchSeconds(newGrowthWatch(steady, every), 600, func(i int) *float64 { depth := 2 * float64(i); return &depth }, even, one)
	require.Positive(t, found)
	stairs := func(i int) float64 { return float64(5 + 100*(i/50) + i%3) }
	found, _ = watchSeconds(newGrowthWatch(steady, every), 600, unseen, stairs, func(i int) string { return string(rune('a' + i/50)) })
	require.Equal(t, -1, found, "busier steps")

	seldom := func(i int) *float64 {
		if i%20 == 0 {
			return new(float64)
		}

		return nil
	}
	found, silent = watchSeconds(newGrowthWatch(5*time.Minute, 20*time.Second), 300, seldom, rising, one)
	require.Positive(t, found, "15 readings are too few")
	require.Zero(t, silent)
	found, _ = watchSeconds(newGrowthWatch(20*time.Minute, 20*time.Second), 600, seldom, rising, one)
	require.Equal(t, -1, found, "60 would do")
}
