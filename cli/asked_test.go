package cli

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
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
