package cli

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

func TestWhatDrivesTheScenarios(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		`{"scenarios": {"a": {"executor": "trace-arrival-rate", "trace": "t1"}, "b": {"executor": "trace-arrival-rate", "trace": "t1"},
			"m": {"executor": "llm-monitor"}}}`: {"t1"},
		`{"scenarios": {"a": {"executor": "trace-arrival-rate", "trace": "t1"}, "b": {"executor": "constant-vus"}}}`: nil,
		`{"scenarios": {"m": {"executor": "llm-monitor"}}}`:                                                          nil,
		`[]`: nil,
	} {
		ids, traced := traceScenarios(json.RawMessage(text))
		require.Equal(t, want, ids, text)
		require.Equal(t, want != nil, traced, text)
	}
}

func TestWhetherAnExecutorTookTheRate(t *testing.T) {
	t.Parallel()
	options := func(executor, rate, unit string) json.RawMessage {
		return json.RawMessage(`{"scenarios": {"a": {"executor": "` + executor + `", "rate": ` + rate + `, "timeUnit": "` + unit + `"}}}`)
	}
	require.True(t, tookTheRate(options("constant-arrival-rate", "16", "1s"), 15.6), "k6 takes whole numbers")
	require.True(t, tookTheRate(options("constant-arrival-rate", "936", "1m0s"), 15.6))
	require.False(t, tookTheRate(options("constant-arrival-rate", "30", "1s"), 15.6))
	require.False(t, tookTheRate(options("constant-arrival-rate", "1000", "1m0s"), 15.6))
	require.False(t, tookTheRate(options("ramping-arrival-rate", "16", "1s"), 15.6))
	require.False(t, tookTheRate(options("constant-arrival-rate", "16", "0s"), 15.6))
	require.False(t, tookTheRate(json.RawMessage(`1`), 15.6))
}

func TestTheRateOfExecutors(t *testing.T) {
	t.Parallel()
	options := json.RawMessage(`{"scenarios": {"a": {"executor": "constant-arrival-rate", "rate": 15}, "b": {"executor": "constant-arrival-rate", "rate": 300, "timeUnit": "1m"},
		"c": {"executor": "trace-arrival-rate"}}}`)
	rate, known := configuredRate(options, []string{"a", "b"})
	require.True(t, known)
	require.InDelta(t, 20, rate, 1e-12)
	_, known = configuredRate(options, []string{"a", "c"})
	require.False(t, known)
	_, known = configuredRate(options, nil)
	require.False(t, known)
	require.True(t, tookTheRate(options, 15), "k6's time unit is a second unless another one is given")
}

func TestArrivalsAndRequests(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	dir := filepath.Join(t.TempDir(), "run")
	w, err := results.Create(dir, results.Info{Started: began}, results.Options{})
	require.NoError(t, err)
	for row := range int64(40) {
		at := began.Add(time.Duration(row) * 100 * time.Millisecond)
		q := results.Request{Row: row, Scenario: "a", Phase: "steady", Due: at, Start: at, Outcome: results.OK, E2E: results.Num(10)}
		if row%10 == 9 {
			q.Start, q.E2E, q.Outcome, q.ErrorType = time.Time{}, results.Number{}, results.Dropped, "no_request"
			require.NoError(t, w.Request(&q))

			continue
		}
		for range 3 {
			require.NoError(t, w.Request(&q))
		}
	}
	require.NoError(t, w.Close(began.Add(time.Minute), nil))
	run, err := results.Open(dir)
	require.NoError(t, err)
	a, err := arrivalsOf(run)
	require.NoError(t, err)
	require.Equal(t, 40, a.n)
	require.Equal(t, 4, a.silent)
	require.Equal(t, 108, a.requests)
	require.True(t, a.enough)
	require.InDelta(t, 10, a.Rate, 1e-6, "arrivals, and not requests")
	m, several := a.perArrival()
	require.True(t, several)
	require.InDelta(t, 3, m, 1e-12)

	b := &arrivals{n: 60, requests: 60, enough: true}
	b.Rate = 30
	_, several = b.perArrival()
	require.False(t, several)
	b.ofExecutor(15)
	m, several = b.perArrival()
	require.True(t, several)
	require.InDelta(t, 2, m, 1e-12)
	require.InDelta(t, 15, b.Rate, 0)
}
