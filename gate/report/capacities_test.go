package report

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/capacity"
)

func TestCapacitiesOfSearches(t *testing.T) {
	safe, tokens, margin := 12.5, 900.0, 0.2
	e := capacity.NewEnvelope(time.Unix(0, 0), nil)
	e.Entries = []capacity.EnvelopeEntry{
		{Workload: "chat", Arrivals: "poisson", Result: capacity.Result{
			Schema: capacity.ResultSchema, SafeQPS: &safe, Confirmed: true, LimitingCriterion: "ttft_p99",
			OutputTokensPerSecond: &tokens, Knee: &capacity.Knee{Rate: 15.6}, Margin: &margin,
		}},
		{Workload: "chat", Arrivals: "bursty", Result: capacity.Result{
			Schema: capacity.ResultSchema, Notes: []string{"one", "two"},
		}},
	}
	content, err := e.JSON()
	require.NoError(t, err)
	search, plain := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(search, EnvelopeFile), content, 0o600))

	got, err := Capacities([]string{plain, search})
	require.NoError(t, err)
	knee := 15.6
	require.Equal(t, []Capacity{
		{
			Workload: "chat", Arrival: "poisson", SafeQPS: &safe, Confirmed: true, OutputTokensPerSecond: &tokens,
			LimitingCriterion: "ttft_p99", Knee: &knee, Margin: &margin,
		},
		{Workload: "chat", Arrival: "bursty", Note: "one; two"},
	}, got)

	again, err := Capacities([]string{search, plain, search + "/."})
	require.NoError(t, err)
	require.Equal(t, got, again, "one search, whatever its names")

	require.NoError(t, os.WriteFile(filepath.Join(search, EnvelopeFile), []byte("{"), 0o600))
	_, err = Capacities([]string{search})
	require.ErrorContains(t, err, EnvelopeFile)
}

func TestLabelsOfSeveralRunsAreJoined(t *testing.T) {
	require.Equal(t, []string{"trace rescaled in time", "synthetic prompts", "trace truncated: 0s to 5m"}, JoinLabels([]string{
		"trace rescaled in time: from 5 to 10", "synthetic prompts", "trace truncated: 0s to 5m",
		"trace rescaled in time: from 5 to 20", "synthetic prompts", "trace truncated: 0s to 5m",
	}))
	require.Empty(t, JoinLabels(nil))
}
