package capacity

import (
	"math"
	"slices"

	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// Point is a tail latency at a rate.
type Point struct {
	Rate    float64 `json:"rate"`
	Latency float64 `json:"latency_ms"`
}

// Knee is where tail latency turns upward.
type Knee struct {
	Rate float64 `json:"rate"`
	// Metric is the latency that it was found on.
	Metric string `json:"metric"`
	// Between the rates of the neighbouring points the knee may lie anywhere: a knee is as sharp as its points are dense.
	Between [2]float64 `json:"between"`
	// Strength is the distance from the chord, 0 to 1: how sharp the turn is.
	Strength float64 `json:"strength"`
	Points   []Point `json:"points"`
}

const (
	kneeMetric = "ttft_p99"
	// minKneePoints is the fewest points that have a turn in them.
	minKneePoints = 4
	// minKneeStrength is the distance from the chord below which points count as lying on a line.
	minKneeStrength = 0.1
)

// FindKnee finds the knee of latency, on a logarithmic scale, against rate: the point that is furthest below the chord from
// the first to the last point once both axes are scaled to 0..1, which is where Kneedle finds the knee of a convex, rising
// curve when no smoothing is asked for (Satopää, Albrecht, Irwin, Raghavan, "Finding a 'kneedle' in a haystack", ICDCS
// workshops 2011). It is false for fewer than four rates, and where the points lie about on a line.
//
// Points at one rate are averaged. A service that is not stable has no latency of its own: its points say how long it was
// watched. Leave out all such points but the first.
func FindKnee(points []Point) (Knee, bool) {
	points = mergePoints(points)
	if len(points) < minKneePoints {
		return Knee{}, false
	}
	first, last := points[0], points[len(points)-1]
	rise := math.Log(last.Latency / first.Latency)
	if !(rise > 0) {
		return Knee{}, false
	}
	best, at := 0.0, 0
	for i, p := range points {
		x := (p.Rate - first.Rate) / (last.Rate - first.Rate)
		y := math.Log(p.Latency/first.Latency) / rise
		if x-y > best {
			best, at = x-y, i
		}
	}
	if best < minKneeStrength || at == 0 || at == len(points)-1 {
		return Knee{}, false
	}
	return Knee{
		Rate: points[at].Rate, Metric: kneeMetric, Between: [2]float64{points[at-1].Rate, points[at+1].Rate},
		Strength: best, Points: points,
	}, true
}

// mergePoints sorts by rate and takes the geometric mean of latencies at one rate; points without a latency are left out.
func mergePoints(points []Point) []Point {
	sorted := slices.Clone(points)
	sorted = slices.DeleteFunc(sorted, func(p Point) bool {
		return !(p.Rate > 0 && p.Latency > 0) || !finite(p.Rate) || !finite(p.Latency)
	})
	slices.SortStableFunc(sorted, func(a, b Point) int {
		switch {
		case a.Rate < b.Rate:
			return -1
		case a.Rate > b.Rate:
			return 1
		}
		return 0
	})
	var out []Point
	for i := 0; i < len(sorted); {
		j, sum := i, 0.0
		for ; j < len(sorted) && sorted[j].Rate == sorted[i].Rate; j++ {
			sum += math.Log(sorted[j].Latency)
		}
		out = append(out, Point{Rate: sorted[i].Rate, Latency: math.Exp(sum / float64(j-i))})
		i = j
	}
	return out
}

// kneePoints are the probes' p99 of TTFT, up to the first rate at which the service was saturated.
func kneePoints(probes []Record) []Point {
	limit := math.Inf(1)
	for i := range probes {
		if probes[i].saturated() {
			limit = math.Min(limit, probes[i].Rate)
		}
	}
	var points []Point
	for i := range probes {
		q, ok := probes[i].Latencies["ttft"]
		if ok && q.N > 0 && probes[i].Rate <= limit && probes[i].Verdict != verdict.Invalid {
			points = append(points, Point{Rate: probes[i].Rate, Latency: q.P99})
		}
	}
	return points
}
