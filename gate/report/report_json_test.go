package report

import (
	"encoding/json"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

func TestColumnJSON(t *testing.T) {
	content, err := json.Marshal(Column{results.Num(0), {}, results.Num(1234.567), results.Num(1e9), results.Num(0.00012345), results.Num(-2)})
	require.NoError(t, err)
	require.Equal(t, `[0,null,1235,1e+09,0.0001234,-2]`, string(content))
	_, err = json.Marshal(Column{results.Num(math.NaN())})
	require.ErrorContains(t, err, "NaN")
	content, err = json.Marshal(Column{})
	require.NoError(t, err)
	require.Equal(t, `[]`, string(content))
}

func TestJSON(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	s := short()
	s.change = func(r *results.Request) {
		if r.Row%100 == 99 {
			r.Outcome, r.ErrorType = results.Failed, "http_5xx"
		}
	}
	s.write(t, dir)
	in := collect(t, dir)
	safe := 18.5
	in.Capacity = []Capacity{{Workload: "chat", SafeQPS: &safe, Confirmed: true}}
	content, err := JSON(in)
	require.NoError(t, err)
	var got map[string]any
	require.NoError(t, json.Unmarshal(content, &got))
	require.Equal(t, ReportSchema, got["schema"])
	require.Equal(t, []any{map[string]any{"workload": "chat", "safe_qps": 18.5, "confirmed": true}}, got["capacity"], "what is absent has no key")
	run := got["runs"].([]any)[0].(map[string]any)
	for _, key := range []string{
		"dir", "name", "run", "verdict", "arrival", "gap_cv", "part", "counts", "points", "classes", "input_lengths",
		"prompt_token_histogram", "output_token_histogram", "error_types", "series", "events_total",
	} {
		require.Contains(t, run, key)
	}
	require.Equal(t, "FAIL", run["verdict"].(map[string]any)["verdict"])
	require.Equal(t, "max_num_seqs 32 -> 48", run["run"].(map[string]any)["decision"].(map[string]any)["change"])
	point := run["points"].([]any)[0].(map[string]any)
	for _, key := range []string{"offered_per_second", "achieved_per_second", "output_tokens_per_second", "goodput", "error_share", "ttft", "itl", "tpot", "e2e"} {
		require.Contains(t, point, key)
	}
	series := run["series"].(map[string]any)
	columns := series["columns"].(map[string]any)
	for _, name := range []string{"offered", "ttft_p99", "server_queue_depth", "client_cpu", "goodput", "completion_tokens"} {
		require.Len(t, columns[name], len(series["seconds"].([]any)), name)
	}

	in.Runs[0].Series.Columns["ttft_p99"][0] = results.Num(math.Inf(1))
	_, err = JSON(in)
	require.ErrorContains(t, err, "+Inf")
}
