package verdict

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

func TestAContractThatARunCarriesIsChecked(t *testing.T) {
	c, err := CarriedContract(&results.Run{Dir: "run"})
	require.NoError(t, err)
	require.Nil(t, c)
	carried, err := json.Marshal(load(t, gate(`ttft_p99: "<= 50ms"`)))
	require.NoError(t, err)
	run := &results.Run{Dir: "run", Info: results.Info{Contract: carried}}
	c, err = CarriedContract(run)
	require.NoError(t, err)
	require.Equal(t, "ttft_p99", c.Gate[0].Name)
	run.Info.Contract = json.RawMessage(strings.Replace(string(carried), `"confidence":0.95`, `"confidence":7`, 1))
	_, err = CarriedContract(run)
	require.EqualError(t, err, "run/run.json: contract: confidence: got 7, expected a number above 0.5 and below 1")
}

// Another contract can be named, and judges what the run's own can not; which of k6's thresholds that one asked for is unknown.
func TestAContractThatCanNotBeReadIsNoObstacleToAnother(t *testing.T) {
	r := new(recorded).add(1000, nil)
	carried, err := json.Marshal(load(t, gate(`ttft_p99: "<= 50ms"`)))
	require.NoError(t, err)
	r.info.Contract = json.RawMessage(strings.Replace(string(carried), `"op":"\u003c="`, `"op":"~"`, 1))
	require.NotEqual(t, string(carried), string(r.info.Contract))
	got := r.judge(t, gate(`ttft_p95: "<= 800ms"`))
	require.Equal(t, Pass, got.Verdict)
	require.Len(t, got.Warnings, 1)
	require.Contains(t, got.Warnings[0], `run.json: contract: capacity_gate[0] (ttft_p99): op: got "~", expected < or <=`)
}
