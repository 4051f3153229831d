package report

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/capacity"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

func TestCapacitiesOfSearches(t *testing.T) {
	safe, tokens, margin, completed, prompt, each := 12.5, 900.0, 0.2, 12.4, 2500.0, 3.1
	configuration := map[string]string{"engine": "v1", "gpus": "8"}
	e := capacity.NewEnvelope(syntheticStart, configuration)
	e.Entries = []capacity.EnvelopeEntry{
		{Workload: "chat", Arrivals: "poisson", Result: capacity.Result{
			Schema: capacity.ResultSchema, SafeQPS: &safe, Confirmed: true, LimitingCriterion: "ttft_p99",
			OutputTokensPerSecond: &tokens, Knee: &capacity.Knee{Rate: 15.6}, Margin: &margin,
			CompletedRate: &completed, PromptTokensPerSecond: &prompt, RequestsPerArrival: &each,
		}},
		{Workload: "chat", Arrivals: "bursty", Result: capacity.Result{
			Schema: capacity.ResultSchema, Notes: []string{"one", "two"},
		}},
	}
	content, err := e.JSON()
	require.NoError(t, err)
	search, plain := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(search, capacity.EnvelopeFile), content, 0o600))

	got, err := Capacities([]string{plain, search})
	require.NoError(t, err)
	knee := 15.6
	require.Equal(t, []Capacity{
		{
			Workload: "chat", Arrival: "poisson", SafeQPS: &safe, Confirmed: true, OutputTokensPerSecond: &tokens,
			LimitingCriterion: "ttft_p99", Knee: &knee, Margin: &margin, CompletedRate: &completed, PromptTokensPerSecond: &prompt,
			RequestsPerArrival: &each, Created: syntheticStart, Configuration: configuration,
		},
		{Workload: "chat", Arrival: "bursty", Note: "one; two", Created: syntheticStart, Configuration: configuration},
	}, got)

	again, err := Capacities([]string{search, plain, search + "/."})
	require.NoError(t, err)
	require.Equal(t, got, again, "one search, whatever its names")

	require.NoError(t, os.WriteFile(filepath.Join(search, capacity.EnvelopeFile), []byte("{"), 0o600))
	_, err = Capacities([]string{search})
	require.ErrorContains(t, err, capacity.EnvelopeFile)
}

func TestLabelsOfSeveralRunsAreJoined(t *testing.T) {
	require.Equal(t, []string{"trace rescaled in time", "synthetic prompts", "trace truncated: 0s to 5m"}, JoinLabels([]string{
		"trace rescaled in time: from 5 to 10", "synthetic prompts", "trace truncated: 0s to 5m",
		"trace rescaled in time: from 5 to 20", "synthetic prompts", "trace truncated: 0s to 5m",
	}))
	require.Empty(t, JoinLabels(nil))
}

// What came back from a run that was cut is not how fast the service is: the fewer came, the faster they look.
func TestSurvivorsAreLowerBounds(t *testing.T) {
	rate, fast := 30.0, 31.0
	point := func(c results.Counts) Point {
		return Point{OfferedPerSecond: &rate, Counts: c, TTFT: &verdict.Quantiles{N: 10, P95: 2200, P99: 2200}}
	}
	cut := point(results.Counts{Offered: 87, Started: 87, Completed: 18, InFlight: 69})
	whole := point(results.Counts{Offered: 100, Started: 99, Dropped: 1, Completed: 90, Failed: 5, InFlight: 4})
	whole.OfferedPerSecond = &fast
	require.True(t, cut.Survivors())
	require.False(t, whole.Survivors())
	require.Equal(t, int64(18), cut.Ended())
	require.Equal(t, int64(95), whole.Ended())

	in := Input{Runs: []Run{
		{Name: "cut", Arrival: "Poisson", Points: []Point{cut}, Info: results.Info{Rates: map[string]float64{"t": 28}}},
		{Name: "whole", Arrival: "Poisson", Points: []Point{whole}},
	}}
	curves := curvesOf(in.Runs)
	require.Nil(t, curves[0].Points[0].TTFT, "not drawn")
	require.NotNil(t, curves[0].Points[1].TTFT)
	require.NotNil(t, in.Runs[0].Points[0].TTFT, "the data keeps it")
	var page bytes.Buffer
	require.NoError(t, HTML(&page, in))
	require.Contains(t, page.String(), "≥ 2.2 s")
	require.Contains(t, page.String(), "(18 ended)")
	require.Contains(t, page.String(), "≥: the run ended before")
	require.Contains(t, page.String(), `<td class="n">28</td>`)
	require.Contains(t, string(EnvelopeMarkdown(in)), "| ≥ 2.2 s |")
}
