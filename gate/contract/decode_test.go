package contract

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

const stored = `
capacity_gate:
  success_rate: ">= 99.5%"
  ttft_p95: "<= 800ms"
  output_tps_p5: ">= 20"
  tpot_p95: "<= baseline + 10%"
  dropped: "<= 1%"
  queue_growth: no_sustained_growth
  by_class: {long: {ttft_p99: "<= 6s"}}
recovery: {queue_depth: "<= baseline + 1"}
abort: {error_rate: "> 20% for 10s", ttft_p99: "> baseline", queue_growth: sustained, in_flight: "> 50 for 2s after 5s"}
request_slo: {ttft: 1s}
server: {metrics_url: "http://127.0.0.1:8000/metrics"}
`

func TestAStoredContractIsReadBack(t *testing.T) {
	c := mustLoad(t, stored)
	text, err := json.Marshal(c)
	require.NoError(t, err)
	back, err := Decode(text)
	require.NoError(t, err)
	require.Equal(t, c, back)
	resolved, err := c.Resolve(map[string]float64{"tpot_p95": 80, "recovery.queue_depth": 0, "ttft_p99": 100})
	require.NoError(t, err)
	text, err = json.Marshal(resolved)
	require.NoError(t, err)
	back, err = Decode(text)
	require.NoError(t, err)
	require.Equal(t, resolved, back)
}

// A contract that was changed by hand, or by a fault, is told to be wrong by whatever reads it, with the place in it.
func TestAStoredContractIsChecked(t *testing.T) {
	good, err := json.Marshal(mustLoad(t, stored))
	require.NoError(t, err)
	type object = map[string]any
	at := func(c object, list string, i int) object { return c[list].([]any)[i].(object) }
	for want, change := range map[string]func(c object){
		"confidence: got 7, expected a number above 0.5 and below 1":     func(c object) { c["confidence"] = 7 },
		"confidence: got -1, expected a number above 0.5 and below 1":    func(c object) { c["confidence"] = -1 },
		"confidence: got 0.5, expected a number above 0.5 and below 1":   func(c object) { c["confidence"] = 0.5 },
		"confidence: got 1, expected a number above 0.5 and below 1":     func(c object) { c["confidence"] = 1 },
		"capacity_gate: got no criterion, expected at least one":         func(c object) { c["capacity_gate"] = nil },
		`capacity_gate[1] (ttft_p95): op: got "~", expected < or <=`:     func(c object) { at(c, "capacity_gate", 1)["op"] = "~" },
		`capacity_gate[1] (ttft_p95): op: got ">=", expected < or <=`:    func(c object) { at(c, "capacity_gate", 1)["op"] = ">=" },
		`capacity_gate[1] (ttft_p95): metric: got "tfft", expected ttft`: func(c object) { at(c, "capacity_gate", 1)["metric"] = "tfft" },
		`capacity_gate[1] (ttft_p95): metric: got "e2e", expected ttft`:  func(c object) { at(c, "capacity_gate", 1)["metric"] = "e2e" },
		`capacity_gate[1] (cpu): name: got the key "cpu", expected it in client_headroom`: func(c object) {
			at(c, "capacity_gate", 1)["name"], at(c, "capacity_gate", 1)["metric"] = "cpu", "cpu"
		},
		`capacity_gate[1] (ttft_p95.0): name: got "ttft_p95.0", expected "ttft_p95"`: func(c object) {
			at(c, "capacity_gate", 1)["name"] = "ttft_p95.0"
		},
		`capacity_gate[1] (ttft_p95): stat: got median 0.95, expected quantile 0.95`: func(c object) {
			at(c, "capacity_gate", 1)["stat"].(object)["kind"] = "median"
		},
		`capacity_gate[1] (ttft_p95): stat: got quantile 1.5, expected quantile 0.95`: func(c object) {
			at(c, "capacity_gate", 1)["stat"].(object)["quantile"] = 1.5
		},
		`capacity_gate[0] (success_rate): stat: got quantile 0.5, expected rate`: func(c object) {
			at(c, "capacity_gate", 0)["stat"] = object{"kind": "quantile", "quantile": 0.5}
		},
		`capacity_gate[6] (long/ttft_p99): class: got "lo{ng", expected one that k6 can filter by`: func(c object) {
			at(c, "capacity_gate", 6)["class"] = "lo{ng"
		},
		`capacity_gate[6] (long/ttft_p99): name: got "long/ttft_p99", expected one that begins with "short/"`: func(c object) {
			at(c, "capacity_gate", 6)["class"] = "short"
		},
		`capacity_gate[5] (queue_growth): limit: got == 1 (state), expected == 0 (state)`: func(c object) {
			at(c, "capacity_gate", 5)["limit"] = object{"absolute": 1}
		},
		`capacity_gate[3] (tpot_p95): limit: got -1 times the baseline, expected a factor above 0`: func(c object) {
			at(c, "capacity_gate", 3)["limit"].(object)["relative"].(object)["factor"] = -1
		},
		`capacity_gate[3] (tpot_p95): limit: got 0, expected one above 0`: func(c object) {
			at(c, "capacity_gate", 3)["limit"].(object)["absolute"] = 0
		},
		`capacity_gate[1] (ttft_p95): limit: got "<= 0ms", expected a limit that can be kept`: func(c object) {
			at(c, "capacity_gate", 1)["limit"] = object{"absolute": 0}
		},
		`capacity_gate[1] (ttft_p95): unit: got "s", expected ms`:                   func(c object) { at(c, "capacity_gate", 1)["unit"] = "s" },
		`capacity_gate[1] (ttft_p95): phase: got "warmup", expected steady`:         func(c object) { at(c, "capacity_gate", 1)["phase"] = "warmup" },
		`capacity_gate[1] (ttft_p95): section: got "abort", expected capacity_gate`: func(c object) { at(c, "capacity_gate", 1)["section"] = "abort" },
		`capacity_gate[1] (ttft_p95): limit: got -5, expected a number that is not negative`: func(c object) {
			at(c, "capacity_gate", 1)["limit"] = object{"absolute": -5}
		},
		`capacity_gate[0] (success_rate): limit: got 7, expected a number that is not negative, and of a share at most 1`: func(c object) {
			at(c, "capacity_gate", 0)["limit"] = object{"absolute": 7}
		},
		`capacity_gate[1] (ttft_p95): limit: got none, expected a number, or one against a baseline`: func(c object) {
			at(c, "capacity_gate", 1)["limit"] = object{}
		},
		`capacity_gate[1]: name: got nothing, expected a name`:                            func(c object) { at(c, "capacity_gate", 1)["name"] = "" },
		`capacity_gate[1] (success_rate): name: got it a second time, expected each once`: func(c object) { at(c, "capacity_gate", 1)["name"] = "success_rate" },
		`recovery[0] (recovery.queue_depth): metric: got "ttfb", expected queue_depth`:    func(c object) { at(c, "recovery", 0)["metric"] = "ttfb" },
		`client_headroom[0] (client_headroom.cpu): metric: got "x", expected cpu`:         func(c object) { at(c, "client_headroom", 0)["metric"] = "x" },
		`abort[0] (abort.error_rate): op: got "<", expected > or >=`:                      func(c object) { at(c, "abort", 0)["op"] = "<" },
		`abort[0] (error_rate): name: got "error_rate", expected one that begins with "abort."`: func(c object) {
			at(c, "abort", 0)["name"] = "error_rate"
		},
		`abort[0] (abort.error_rate): for: got -10s, expected a time that is not negative`: func(c object) { at(c, "abort", 0)["for"] = "-10s" },
		`phases: steady: got -1m, expected a time that is not negative`: func(c object) {
			c["phases"].(object)["steady"] = "-1m"
		},
		`request_slo: ttft: got 0, expected a time above 0`: func(c object) { c["request_slo"].(object)["ttft"] = 0 },
		`cannot unmarshal`: func(c object) { c["capacity_gate"] = 5 },
	} {
		var c object
		require.NoError(t, json.Unmarshal(good, &c))
		change(c)
		text, err := json.Marshal(c)
		require.NoError(t, err)
		_, err = Decode(text)
		require.ErrorContains(t, err, want)
	}
	_, err = Decode([]byte(`{"confidence": NaN}`))
	require.Error(t, err)
	_, err = Decode([]byte(`{} {}`))
	require.Error(t, err)
	_, err = Decode([]byte(`{"confidence": 0.95, "capacity_gate": []}`))
	require.ErrorContains(t, err, "expected at least one")
}
