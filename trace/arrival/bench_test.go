package arrival

import (
	"math"
	"testing"
	"time"
)

func BenchmarkSchedule(b *testing.B) {
	ramp := []Stage{{50 * time.Second, 10_000}, {0, 5_000}, {150 * time.Second, 5_000}, {50 * time.Second, 0}}
	for name, c := range map[string]Config{
		"constant":     {Rate: 5_000, Burstiness: math.Inf(1)},
		"poisson":      {Rate: 5_000, Burstiness: 1},
		"smooth k=4":   {Rate: 5_000, Burstiness: 4},
		"bursty k=0.5": {Rate: 5_000, Burstiness: 0.5},
		"bursty k=0.1": {Rate: 5_000, Burstiness: 0.1},
		"poisson ramp": {Rate: 5_000, Stages: ramp, Burstiness: 1},
	} {
		c.Count = 1_000_000
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Schedule(c); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*float64(c.Count)/b.Elapsed().Seconds(), "arrivals/s")
		})
	}
}

// BenchmarkStreamFirst is what an executor waits for before the first arrival of a day at 100/s.
func BenchmarkStreamFirst(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		arrivals, err := Stream(Config{Rate: 100, Duration: 24 * time.Hour, Burstiness: 1})
		if err != nil {
			b.Fatal(err)
		}
		for range arrivals {
			break
		}
	}
}
