package contract

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

const relativeContract = `capacity_gate:
  tpot_p95: "<= baseline + 10%"
  success_rate: ">= baseline - 0.5%"
  ttft_p95: "<= 800ms"
  by_class: {long: {tpot_p95: "<= baseline + 5ms"}}
recovery: {queue_depth: "<= baseline + 1"}
abort: {tpot_p95: "> baseline + 100% for 30s"}
`

func TestResolve(t *testing.T) {
	c := mustLoad(t, relativeContract)
	require.Equal(t, []string{"tpot_p95", "success_rate", "long/tpot_p95", "recovery.queue_depth"}, c.BaselineNames())

	resolved, err := c.Resolve(map[string]float64{
		"tpot_p95": 21.3, "success_rate": 0.99, "long/tpot_p95": 30, "recovery.queue_depth": 0, "ttft_p95": 1,
	})
	require.NoError(t, err)
	require.Empty(t, resolved.BaselineNames())
	limits := map[string]float64{}
	for _, criterion := range append(resolved.Gate, resolved.Recovery...) {
		limits[criterion.Name] = *criterion.Limit.Absolute
	}
	require.Equal(t, map[string]float64{
		"tpot_p95": 23.43, "success_rate": 0.98505, "ttft_p95": 800, "long/tpot_p95": 35, "recovery.queue_depth": 1,
	}, limits)
	require.Equal(t, 42.6, *resolved.Abort[0].Limit.Absolute)
	require.Equal(t, 21.3, *resolved.Gate[0].Limit.Baseline)
	require.Equal(t, "<= 23.43ms (baseline + 10%, baseline 21.3ms)", resolved.Gate[0].LimitText())
	require.Equal(t, ">= 98.505% (baseline - 0.5%, baseline 99%)", resolved.Gate[1].LimitText())

	require.Nil(t, c.Gate[0].Limit.Absolute, "the contract itself stays as it was")
	require.Nil(t, c.Abort[0].Limit.Absolute)
	met, ok := c.Gate[0].Met(1)
	require.False(t, met || ok)
	met, ok = resolved.Gate[0].Met(23.43)
	require.True(t, met && ok)
	met, ok = resolved.Gate[0].Met(23.44)
	require.True(t, !met && ok)
}

// A contract that was kept with a run can be judged against another baseline than the run's own.
func TestARunsContractTakesAnotherBaseline(t *testing.T) {
	first := map[string]float64{"tpot_p95": 21.3, "success_rate": 0.99, "long/tpot_p95": 30, "recovery.queue_depth": 0}
	second := map[string]float64{"tpot_p95": 10, "success_rate": 0.98, "long/tpot_p95": 20, "recovery.queue_depth": 3}
	resolved, err := mustLoad(t, relativeContract).Resolve(first)
	require.NoError(t, err)
	kept, err := json.Marshal(resolved)
	require.NoError(t, err)
	var stored Contract
	require.NoError(t, json.Unmarshal(kept, &stored))

	open := stored.Unresolved()
	require.Equal(t, []string{"tpot_p95", "success_rate", "long/tpot_p95", "recovery.queue_depth"}, open.BaselineNames())
	again, err := open.Resolve(second)
	require.NoError(t, err)
	require.Equal(t, "<= 11ms (baseline + 10%, baseline 10ms)", again.Gate[0].LimitText())
	require.Equal(t, ">= 97.51% (baseline - 0.5%, baseline 98%)", again.Gate[1].LimitText())
	require.Equal(t, 800.0, *again.Gate[2].Limit.Absolute, "what was absolute stays")
	require.Equal(t, 25.0, *again.Gate[3].Limit.Absolute)
	require.Equal(t, 4.0, *again.Recovery[0].Limit.Absolute)
	require.Equal(t, 42.6, *again.Abort[0].Limit.Absolute, "the run was watched by it, and may have been stopped by it")
	require.Equal(t, 23.43, *stored.Gate[0].Limit.Absolute, "the contract itself stays as it was")
}

// ± leaves room on the side of the limit: a rule of abort names the bad state, beyond that room.
func TestRoomOnBothSides(t *testing.T) {
	c := mustLoad(t, `capacity_gate: {tpot_p95: "<= baseline ± 10%", success_rate: ">= baseline ± 0.5%"}
abort: {tpot_p95: "> baseline ± 50% for 10s", success_rate: "< baseline ± 20%"}
`)
	resolved, err := c.Resolve(map[string]float64{"tpot_p95": 20, "success_rate": 0.99})
	require.NoError(t, err)
	require.Equal(t, "<= 22ms (baseline ± 10%, baseline 20ms)", resolved.Gate[0].LimitText())
	require.Equal(t, ">= 98.505% (baseline ± 0.5%, baseline 99%)", resolved.Gate[1].LimitText())
	require.Equal(t, 30.0, *resolved.Abort[0].Limit.Absolute)
	require.Equal(t, 0.792, *resolved.Abort[1].Limit.Absolute)
}

func TestResolveNamesEveryValueThatIsMissingOrImpossible(t *testing.T) {
	c := mustLoad(t, relativeContract)
	_, err := c.Resolve(map[string]float64{"success_rate": math.NaN(), "long/tpot_p95": 3})
	require.EqualError(t, err, `slo.yaml:2:13: tpot_p95: found "<= baseline + 10%", expected the baseline to have a measured value for tpot_p95
slo.yaml:3:17: success_rate: found ">= baseline - 0.5%", expected a limit that is a finite number, which it is not with a baseline of NaN%
slo.yaml:6:25: recovery.queue_depth: found "<= baseline + 1", expected the baseline to have a measured value for recovery.queue_depth
slo.yaml:7:19: abort.tpot_p95: found "> baseline + 100% for 30s", expected the baseline to have a measured value for tpot_p95`)
}

func TestResolveRefusesImpossibleLimits(t *testing.T) {
	for line, test := range map[string]struct {
		name     string
		baseline float64
		ok       bool
	}{
		"success_rate: '>= baseline + 1%'":        {"success_rate", 0.999, false},
		"success_rate: '> baseline'":              {"success_rate", 1, false},
		"success_rate: '>= baseline'":             {"success_rate", 1, true},
		"error_rate: '<= baseline - 0.01'":        {"error_rate", 0.005, false},
		"error_rate: '<= baseline'":               {"error_rate", 0, true},
		"error_rate: '< baseline'":                {"error_rate", 0, false},
		"ttft_p95: '<= baseline - 10ms'":          {"ttft_p95", 10, false},
		"ttft_p95: '<= baseline'":                 {"ttft_p95", math.Inf(1), false},
		"output_tps_p5: '>= baseline - 5'":        {"output_tps_p5", 5, true},
		"output_tokens_per_second: '>= baseline'": {"output_tokens_per_second", 700, true},
	} {
		t.Run(line, func(t *testing.T) {
			c := mustLoad(t, "capacity_gate:\n  "+line+"\n")
			_, err := c.Resolve(map[string]float64{test.name: test.baseline})
			if test.ok {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "slo.yaml:2:")
		})
	}
}
