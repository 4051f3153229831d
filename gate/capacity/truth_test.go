package capacity

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The small version of the study in study_test.go: shorter runs, one seed, and the truth from few of them.
func TestKnownTruth(t *testing.T) {
	s := longContext("long context, Poisson", 1)
	s.full = 15 * time.Minute
	truth, name, err := s.truth(19, 0.03, 20*time.Minute, []uint64{900, 901})
	require.NoError(t, err)
	require.Equal(t, "ttft_p95", name)
	o := s.options()
	o.Seed = 3
	r, err := Search(context.Background(), o, s.probe, nil, nil)
	require.NoError(t, err)
	require.Equal(t, Found, r.Status, "%v", r.Notes)
	require.InDelta(t, 1, *r.SafeQPS/truth, 0.06, "true Safe QPS is about %v", truth)
	require.LessOrEqual(t, len(r.Probes), 10)
	require.Equal(t, "ttft_p95", r.LimitingCriterion)
	require.Less(t, r.ElapsedSeconds, 0.6*r.FixedLengthSeconds)
}

// The same engine and the same mean rate: the burstier the arrivals, the more requests are over the limit.
func TestBurstinessCostsCapacity(t *testing.T) {
	all := services()
	var shares []float64
	for _, s := range all[:3] { // constant, Poisson, k = 0.25
		over, err := s.shares(36, 6*time.Minute, []uint64{1, 2})
		require.NoError(t, err)
		shares = append(shares, over[0])
	}
	require.Less(t, shares[0], shares[1])
	require.Less(t, shares[1], shares[2])
	require.Greater(t, shares[2], 0.03)
}
