package contract

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRequestsNeeded(t *testing.T) {
	for _, test := range []struct {
		quantile, confidence float64
		want                 int
		ok                   bool
	}{
		{0.99, 0.99, 459, true}, // MLPerf's early-stopping table, p99, no request over
		{0.90, 0.99, 44, true},
		{0.95, 0.95, 59, true},
		{0.99, 0.95, 299, true},
		{0.999, 0.95, 2995, true},
		{0.995, 0.95, 598, true},
		{0.5, 0.75, 2, true}, // exactly 2
		{0.5, 0.875, 3, true},
		{0.01, 0.6, 1, true},
		{1, 0.95, 0, false},
		{0, 0.95, 0, false},
		{0.99, 1, 0, false},
		{math.NaN(), 0.95, 0, false},
		{1 - 1e-15, 0.95, 0, false},
	} {
		got, ok := RequestsNeeded(test.quantile, test.confidence)
		require.Equal(t, test.ok, ok, "%+v", test)
		require.Equal(t, test.want, got, "%+v", test)
	}
}

func TestRequestsNeededIsTheSmallestThatSuffices(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		q := rapid.Float64Range(0.01, 0.9999).Draw(rt, "quantile")
		c := rapid.Float64Range(0.51, 0.999).Draw(rt, "confidence")
		n, ok := RequestsNeeded(q, c)
		if !ok {
			rt.Fatal("no number")
		}
		if math.Pow(q, float64(n)) > (1-c)*(1+1e-9) {
			rt.Fatalf("%d is too few", n)
		}
		if n > 1 && math.Pow(q, float64(n-1)) < (1-c)*(1-1e-9) {
			rt.Fatalf("%d is more than needed", n)
		}
	})
}

func TestEvidenceQuantile(t *testing.T) {
	for line, want := range map[string]float64{
		"ttft_p95: '<= 1s'":             0.95,
		"ttft_med: '<= 1s'":             0.5,
		"output_tps_p5: '>= 20'":        0.95,
		"success_rate: '>= 99.5%'":      0.995,
		"error_rate: '<= 7%'":           0.93,
		"http_5xx: '<= 0.1%'":           0.999,
		"tpot_p99: '<= baseline + 10%'": 0.99,
		"success_rate: '>= 100%'":       1,
	} {
		got, ok := mustLoad(t, "capacity_gate:\n  "+line).Gate[0].EvidenceQuantile()
		require.True(t, ok, line)
		require.Equal(t, want, got, line)
	}
	for _, line := range []string{
		"ttft_avg: '<= 1s'", "dropped: '== 0'", "queue_growth: no_sustained_growth", "output_tokens_per_second: '>= 1'",
		"success_rate: '>= baseline'", "http_5xx: '== 0'",
	} {
		_, ok := mustLoad(t, "capacity_gate:\n  "+line).Gate[0].EvidenceQuantile()
		require.False(t, ok, line)
	}
}
