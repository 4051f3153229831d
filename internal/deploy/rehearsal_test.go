package deploy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The instances that the operator would start replay each row once, and each has what its segment gives it.
func TestTheOperatorsInstancesReplayEachRowOnce(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"sh", "curl", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("scripts/operator-rehearsal.sh needs %s", tool)
		}
	}
	const instances = 3
	results := t.TempDir()
	port := freePorts(t, instances+1)
	r := start(t, "../..", []string{
		"K6=" + k6(t), "LLM_SERVER=" + startEngine(t, nil), "PORT=" + strconv.Itoa(port), "LIMIT=90",
		"WARMUP=1s", "STEADY=4s", "RECOVERY=1s",
	}, "sh", "scripts/operator-rehearsal.sh", "--instances", strconv.Itoa(instances), "--no-merge", "--results", results)()
	require.Equal(t, 0, r.exit, r.out)

	trace := traceRows(t)
	seen := map[int]int{} // instance by row
	for i := 1; i <= instances; i++ {
		evidence := filepath.Join(results, strconv.Itoa(i))
		for _, row := range firstAttempts(t, filepath.Join(evidence, "requests.jsonl")) {
			require.NotContains(t, seen, row, "row %d was offered by two instances", row)
			seen[row] = i
		}
		text, err := os.ReadFile(filepath.Join(evidence, "run.json"))
		require.NoError(t, err)
		var run struct {
			Segment string `json:"segment"`
			Ended   string `json:"ended"`
		}
		require.NoError(t, json.Unmarshal(text, &run))
		require.Equal(t, []string{"0:1/3", "1/3:2/3", "2/3:1"}[i-1], run.Segment)
		require.NotEmpty(t, run.Ended)
	}
	// The first row is the trace's time zero; the phases are 6 s long together.
	want := 0
	for want < len(trace) && trace[want]-trace[0] < 6000 {
		want++
	}
	require.Greater(t, want, 20)
	require.Len(t, seen, want)
	for row := range want {
		require.Contains(t, seen, row)
	}
	share := map[int]int{}
	for _, i := range seen {
		share[i]++
	}
	for i := 1; i <= instances; i++ {
		require.InDelta(t, float64(want)/instances, share[i], float64(want)/8, "instance %d", i)
	}
	require.Contains(t, r.out, "rows: "+strconv.Itoa(want)+" arrivals, "+strconv.Itoa(want)+" distinct rows, of "+strconv.Itoa(want))
}

func TestTheRehearsalRefusesWhatIsNotOnThisMachine(t *testing.T) {
	for name, c := range map[string]struct {
		env  string
		args []string
		says string
	}{
		"another machine":  {env: "LLM_SERVER=http://192.0.2.1:8000", says: "expected an address on 127.0.0.1"},
		"no instances":     {args: []string{"--instances", "0"}, says: "expected a number from 1"},
		"an unknown flag":  {args: []string{"--fast"}, says: "got --fast"},
		"a missing number": {args: []string{"--instances"}, says: "--instances needs a number"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, "../..", []string{c.env, "K6=/bin/true"}, "sh", append([]string{"scripts/operator-rehearsal.sh"}, c.args...)...)()
			require.Equal(t, 3, r.exit, r.out)
			require.Contains(t, r.out, c.says)
		})
	}
}

// traceRows are the timestamps of the trace that examples/replay.js opens, in milliseconds.
func traceRows(t *testing.T) []float64 {
	t.Helper()
	text, err := os.ReadFile("../../examples/sample-trace.jsonl")
	require.NoError(t, err)
	var all []float64
	for line := range strings.Lines(string(text)) {
		var row struct {
			Timestamp float64 `json:"timestamp"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		all = append(all, row.Timestamp)
	}

	return all
}

func firstAttempts(t *testing.T, path string) []int {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var all []int
	for line := range strings.Lines(string(text)) {
		var request struct {
			Row     *int `json:"row"`
			Attempt int  `json:"attempt"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &request), path)
		if request.Attempt <= 1 {
			require.NotNil(t, request.Row, line)
			all = append(all, *request.Row)
		}
	}

	return all
}
