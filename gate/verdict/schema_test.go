package verdict

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

func keysOf(t *testing.T, v any) []string {
	t.Helper()
	content, err := json.Marshal(v)
	require.NoError(t, err)
	var plain map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(content, &plain))
	return slices.Sorted(maps.Keys(plain))
}

func TestSchemaHasTheKeysThatAreWritten(t *testing.T) {
	content, err := os.ReadFile("../../docs/results.schema.json")
	require.NoError(t, err)
	var schema struct {
		Defs map[string]struct {
			Properties map[string]json.RawMessage `json:"properties"`
		} `json:"$defs"`
	}
	require.NoError(t, json.Unmarshal(content, &schema))
	defined := func(name string) []string { return slices.Sorted(maps.Keys(schema.Defs[name].Properties)) }

	v, n := 0.5, int64(1)
	require.Equal(t, defined("criterion"), keysOf(t, Criterion{
		Class: "c", Phase: "p", LimitValue: &v, Measured: &v, Undecided: 1, OverLow: &v, OverHigh: &v, MeanLow: &v, MeanHigh: &v,
		Inflation: 1, Needed: &n, NeededAtShare: &n, Note: "n", Ignored: true,
	}))
	require.Equal(t, defined("step"), keysOf(t, Step{OfferedPerSecond: &v}))
	require.Equal(t, defined("verdict"), keysOf(t, Result{
		Phases: []Phase{{}}, Steps: []Step{{}}, Warnings: []string{"w"}, Labels: []string{"l"}, Prefix: &PrefixCache{}, Aborted: &results.Aborted{},
		Decision: json.RawMessage("{}"), Workload: "w", Started: time.Unix(1, 0), Ended: time.Unix(2, 0),
		DroppedBy: map[string]int64{"late": 1}, Crossed: []CrossedThreshold{{}},
	}))
}
