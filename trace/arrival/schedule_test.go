package arrival

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestConstantIsExact: arrival i is at i/rate to the nearest nanosecond, with nothing accumulated.
func TestConstantIsExact(t *testing.T) {
	for _, rate := range []int64{1, 3, 7, 200, 999, 12_345} {
		const n = 200_000
		due := schedule(t, Config{Rate: float64(rate), Burstiness: math.Inf(1), Count: n})
		require.Len(t, due, n)
		for i, at := range due {
			exact := (2*int64(i)*1_000_000_000 + rate) / (2 * rate) // ⌊i·10⁹/rate + ½⌋
			if int64(at) != exact {
				require.Equal(t, exact, int64(at), "arrival %d at %d/s", i, rate)
			}
		}
	}
}

func TestConstantFillsTheDuration(t *testing.T) {
	for _, c := range []struct {
		rate float64
		end  time.Duration
		want []time.Duration
	}{
		{2, 2 * time.Second, []time.Duration{0, 500e6, 1000e6, 1500e6}},
		{2, 2*time.Second + time.Millisecond, []time.Duration{0, 500e6, 1000e6, 1500e6, 2000e6}},
		{0.1, 30 * time.Second, []time.Duration{0, 10e9, 20e9}},
		{0.3, 10 * time.Second, []time.Duration{0, 3333333333, 6666666667}},
		{0.01, time.Second, []time.Duration{0}},
	} {
		require.Equal(t, c.want, schedule(t, Config{Rate: c.rate, Burstiness: math.Inf(1), Duration: c.end}))
	}
}

// TestConstantOnRamps: with constant spacing in operational time, arrival i is where the integral is i.
func TestConstantOnRamps(t *testing.T) {
	require.Equal(t, []time.Duration{0, 1414213562, 2000000000, 2449489743, 2828427125, 3162277660, 3464101615, 3741657387},
		schedule(t, Config{Stages: []Stage{{4 * time.Second, 4}}, Burstiness: math.Inf(1)})) // √(2i)
	require.Equal(t, []time.Duration{0, 1000e6, 2000e6, 13000e6, 13500e6},
		schedule(t, Config{
			Rate: 1, Burstiness: math.Inf(1),
			Stages: []Stage{{3 * time.Second, 1}, {0, 0}, {10 * time.Second, 0}, {0, 2}, {time.Second, 2}},
		}))
}

// TestBoundsEndTheStagesEarly: Count and Duration cut the same arrivals from the same ramp.
func TestBoundsEndTheStagesEarly(t *testing.T) {
	ramp := []Stage{{100 * time.Second, 100}} // 1,250 arrivals in the first half
	byTime := schedule(t, Config{Stages: ramp, Duration: 50 * time.Second, Burstiness: 1, Seed: 5})
	byCount := schedule(t, Config{Stages: ramp, Count: 1_250, Burstiness: 1, Seed: 5})
	require.Len(t, byTime, 1_250)
	require.Equal(t, byTime, byCount)
	require.Less(t, byTime[1_249], 50*time.Second)
	require.Greater(t, byTime[1_249], 49*time.Second)
}

// TestOneUnitRateProcess: the rate only changes the clock. The arrivals of a doubled rate are those of the
// single one in half the time.
func TestOneUnitRateProcess(t *testing.T) {
	for _, free := range []bool{false, true} {
		for _, k := range []float64{0.3, 1, 5} {
			slow := schedule(t, Config{Rate: 10, Count: 1_000, Burstiness: k, FreeCount: free, Seed: 9})
			fast := schedule(t, Config{Rate: 20, Count: 1_000, Burstiness: k, FreeCount: free, Seed: 9})
			for i := range slow {
				require.InDelta(t, float64(slow[i])/2, float64(fast[i]), 1)
			}
		}
	}
}

// TestRoundingKeepsOrderAndBounds: a rounded time neither reaches the end nor falls behind its predecessor.
func TestRoundingKeepsOrderAndBounds(t *testing.T) {
	for seed := range uint64(100) {
		due := schedule(t, Config{Rate: MaxRate, Duration: 3, Burstiness: 1, Seed: seed})
		require.Len(t, due, 3)
		require.True(t, slices.IsSorted(due))
		require.LessOrEqual(t, due[2], time.Duration(2))
	}
	p, err := Config{Rate: 1, Duration: 10 * time.Second, Burstiness: 1}.plan()
	require.NoError(t, err)
	require.Equal(t, 4*time.Second, p.due(4, 3*time.Second))
	require.Equal(t, 4*time.Second+1, p.due(4, 4*time.Second+1))
	require.Equal(t, 10*time.Second-1, p.due(10, 0))
}

// TestFreeCountStopsWithTheStages: fewer arrivals than asked for, when chance has it so.
func TestFreeCountStopsWithTheStages(t *testing.T) {
	short := 0
	for seed := range uint64(100) {
		due := schedule(t, Config{
			Rate: 10, Stages: []Stage{{10 * time.Second, 10}}, Count: 100, Burstiness: 1, FreeCount: true, Seed: seed,
		})
		require.LessOrEqual(t, len(due), 100)
		require.Less(t, due[len(due)-1], 10*time.Second)
		if len(due) < 100 {
			short++
		}
	}
	require.Greater(t, short, 30) // a Poisson count with mean 100 is below 100 in 49 of 100 cases
	require.Less(t, short, 70)
}

func TestSeedsDiffer(t *testing.T) {
	seen := map[string]uint64{}
	for seed := range uint64(1_000) {
		sum := digest(schedule(t, Config{Rate: 10, Count: 20, Burstiness: 1, Seed: seed}))
		require.NotContains(t, seen, sum)
		seen[sum] = seed
	}
}

// digest is SHA-256 over the times as little-endian 64-bit nanoseconds.
func digest(due []time.Duration) string {
	bytes := make([]byte, 0, 8*len(due))
	for _, at := range due {
		bytes = binary.LittleEndian.AppendUint64(bytes, uint64(at)) //nolint:gosec // times are not negative
	}
	sum := sha256.Sum256(bytes)
	return hex.EncodeToString(sum[:])
}

// TestGoldenSchedules holds the promise of byte-identical schedules across machines, Go releases and versions
// of the sampler. A change here breaks every stored seed: it needs a new seed domain and a note for users.
func TestGoldenSchedules(t *testing.T) {
	// Over months, a nanosecond is near the last bit of a float64: fused arithmetic would show.
	months := []Stage{{40 * 24 * time.Hour, 0.013}, {3*24*time.Hour + 1, 0.007}, {50 * 24 * time.Hour, 0.0003}}
	for name, c := range map[string]struct {
		config Config
		sha256 string
	}{
		"constant":         {Config{Rate: 7, Burstiness: math.Inf(1)}, "53ae8326dd85e9154d7418a647f5387795595fd14dcea1c91ccbcd8d09898783"},
		"poisson":          {Config{Rate: 200, Burstiness: 1}, "d44aca857a80d4929782eca66f02889ec2f14c4bb1c4e465f85121582e8f890b"},
		"smooth":           {Config{Rate: 200, Burstiness: 4, Seed: 1}, "75891623433e72e3a72e41c00296d86428f5d40122d73010ca24a785a1d4a8b5"},
		"bursty":           {Config{Rate: 3.3, Burstiness: 0.25, Seed: 2}, "399c12b6c452aa394f85c487be5c4d0493d34a3e75b02ef36f99e4901ced6bb1"},
		"very bursty":      {Config{Rate: 1e4, Burstiness: 0.05, Seed: math.MaxUint64}, "ace7da5d40704792dcc6dfd2fc032e68dc30be458f0343ff1459451c9f0a219d"},
		"free":             {Config{Rate: 200, Burstiness: 0.5, FreeCount: true, Seed: 42}, "404bf35ff3e8b53f95d888501a84792804e677e2882c2287e4b2bbca6355f9dd"},
		"wave":             {Config{Stages: wave, Burstiness: 1, Seed: 3}, "b1d06794515529da6aff2dfe00e3b7312e1a589e04f277ebc7c7a610d1e7f2e8"},
		"bursty wave":      {Config{Stages: wave, Burstiness: 0.5, Seed: 4}, "a8b988047f56b1071b4ac001e06d6407365f672d1a7858f5f11cd14f163ad377"},
		"constant wave":    {Config{Stages: wave, Burstiness: math.Inf(1)}, "e858958d6968d4adb44284e17134c28778ba4f89270801ac4297b07c97819790"},
		"months of ramps":  {Config{Rate: 0.0011, Stages: months, Burstiness: 1, Seed: 5}, "2783fcd9f70330f3c75d3b146462817c891ca92b45ac001d03270d464ae902b5"},
		"months, constant": {Config{Rate: 0.0011, Stages: months, Burstiness: math.Inf(1)}, "709859d009fbbb411898133dba8e2e7726c7e885c59f41b12da0dd760d15fb6c"},
	} {
		if c.config.Stages == nil {
			c.config.Count = 20_000
		}
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.sha256, digest(schedule(t, c.config)))
		})
	}
}

func TestStreamCanBeLeftAndRepeated(t *testing.T) {
	for _, c := range []Config{
		{Rate: 10, Burstiness: math.Inf(1), Count: 100},
		{Rate: 10, Burstiness: 1, Count: 100},
		{Rate: 10, Burstiness: 1, Count: 100, FreeCount: true},
	} {
		arrivals, err := Stream(c)
		require.NoError(t, err)
		var head []time.Duration
		for at := range arrivals {
			if head = append(head, at); len(head) == 10 {
				break
			}
		}
		whole := schedule(t, c)
		require.Equal(t, whole[:10], head)
		require.Equal(t, whole, slices.Collect(arrivals))
	}
}

// TestScheduleProperties: whatever the configuration, a schedule is in order, inside its bounds, has the
// asked-for count, never falls where the rate is zero, and is the same again.
func TestScheduleProperties(t *testing.T) {
	burstiness := rapid.OneOf(rapid.Just(1.0), rapid.Just(math.Inf(1)), rapid.Just(MinBurstiness), rapid.Float64Range(0.05, 100))
	rapid.Check(t, func(t *rapid.T) {
		c := Config{
			Burstiness: burstiness.Draw(t, "burstiness"),
			FreeCount:  rapid.Bool().Draw(t, "free"),
			Seed:       rapid.Uint64().Draw(t, "seed"),
		}
		if rapid.Bool().Draw(t, "staged") {
			c.Rate, c.Stages = drawStages(t)
		} else {
			c.Rate = rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(1e-3, 500)).Draw(t, "rate")
		}
		switch rapid.SampledFrom([]string{"count", "duration", "neither"}).Draw(t, "bound") {
		case "count":
			c.Count = rapid.IntRange(1, 500).Draw(t, "count")
		case "duration":
			c.Duration = time.Duration(rapid.Int64Range(1, int64(5*time.Second)).Draw(t, "duration"))
		}

		due, err := Schedule(c)
		if err != nil {
			require.Equal(t, err, c.Validate())
			return
		}
		in, err := c.Intensity()
		require.NoError(t, err)
		end := in.Duration()
		if c.Duration > 0 {
			end = c.Duration
		}
		require.True(t, slices.IsSorted(due))
		for _, at := range due {
			require.GreaterOrEqual(t, at, time.Duration(0))
			require.Less(t, at, end)
			// A rounded time may miss the edge of a piece by a nanosecond.
			require.Positive(t, max(in.Rate(at-1), in.Rate(at), in.Rate(at+1)), "arrival at %v", at)
		}
		switch expected := in.Cumulative(end); {
		case c.Count > 0 && (!c.FreeCount || len(c.Stages) == 0 || math.IsInf(c.Burstiness, 1)):
			require.Len(t, due, c.Count)
		case c.Count > 0:
			require.LessOrEqual(t, len(due), c.Count)
		case math.IsInf(c.Burstiness, 1):
			require.InDelta(t, math.Ceil(expected-countTolerance), len(due), 0)
		case !c.FreeCount:
			require.InDelta(t, expected, len(due), 1)
		}
		again, err := Stream(c)
		require.NoError(t, err)
		require.Equal(t, digest(due), digest(slices.Collect(again)))
	})
}
