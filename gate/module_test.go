package gate

import (
	"net/url"
	"testing"

	"github.com/grafana/sobek"
	"github.com/stretchr/testify/require"
	"go.k6.io/k6/js/modulestest"
	"go.k6.io/k6/lib/fsext"
)

const smallContract = "capacity_gate:\n  ttft_p95: \"<= 800ms\"\n"

// scriptVM is a VU in the init context, with a contract c.
func scriptVM(t *testing.T) *sobek.Runtime {
	t.Helper()
	rt := modulestest.NewRuntime(t)
	files := fsext.NewMemMapFs()
	require.NoError(t, fsext.WriteFile(files, "/project/slo.yaml", []byte(smallContract), 0o600))
	require.NoError(t, fsext.WriteFile(files, "/project/old/verdict.json", []byte(`{"schema": "safeqps-verdict/0", "verdict": "PASS"}`), 0o600))
	rt.VU.InitEnvField.FileSystems = map[string]fsext.Fs{"file": files}
	rt.VU.InitEnvField.CWD = &url.URL{Scheme: "file", Path: "/project"}
	vm := rt.VU.Runtime()
	require.NoError(t, vm.Set("gate", New(nil).NewModuleInstance(rt.VU).Exports().Default))
	_, err := vm.RunString(`const c = gate.open("slo.yaml")`)
	require.NoError(t, err)

	return vm
}

// What is passed over in silence was meant to do something.
func TestArgumentsOfAWrongType(t *testing.T) {
	t.Parallel()
	vm := scriptVM(t)
	const thresholds = `, expected an object of lists such as {http_req_failed: ["rate<0.01"]}`
	for code, want := range map[string]string{
		`c.thresholds(5)`:                              "contract.thresholds: got 5" + thresholds,
		`c.thresholds(NaN)`:                            "contract.thresholds: got NaN" + thresholds,
		`c.thresholds(true)`:                           "contract.thresholds: got true" + thresholds,
		`c.thresholds("")`:                             `contract.thresholds: got ""` + thresholds,
		`c.thresholds(["a"])`:                          "contract.thresholds: got an array" + thresholds,
		`c.thresholds([])`:                             "contract.thresholds: got an array" + thresholds,
		`c.thresholds(() => 1)`:                        "contract.thresholds: got a function" + thresholds,
		`c.thresholds(new Map())`:                      "contract.thresholds: got a Map" + thresholds,
		`c.thresholds(Symbol("x"))`:                    "contract.thresholds: got a Symbol" + thresholds,
		`c.thresholds(Promise.resolve({}))`:            "contract.thresholds: got a Promise" + thresholds,
		`c.thresholds({llm_ttft: "p(95)<1"})`:          `contract.thresholds: llm_ttft: got "p(95)<1", expected a list of thresholds, as in options.thresholds`,
		`gate.monitor(c, 5)`:                           "gate.monitor: options: got 5, expected an object such as {interval: \"2s\"}",
		`gate.monitor(c, true)`:                        "gate.monitor: options: got true, expected an object",
		`gate.monitor(c, Promise.resolve(1))`:          "gate.monitor: options: got a Promise, expected an object",
		`gate.monitor(c, {healthURL: () => 1})`:        "healthURL: got a function, expected an address",
		`gate.monitor(5)`:                              "gate.monitor: got 5, expected what gate.open() returns",
		`gate.monitor(Promise.resolve(c))`:             "gate.monitor: got a Promise, expected what gate.open() returns",
		`gate.open("slo.yaml", 5)`:                     "gate.open: options: got 5, expected an object such as",
		`gate.open("slo.yaml", new Map())`:             "gate.open: options: got a Map, expected an object such as",
		`gate.open("slo.yaml", {baseline: "old"})`:     `baseline: verdict: old/verdict.json: schema is "safeqps-verdict/0", this version reads`,
		`gate.open("slo.yaml", {baseline: new Map()})`: `gate.open: option "baseline": got a Map, expected {baseline:`,
	} {
		_, err := vm.RunString(code)
		require.ErrorContains(t, err, want, code)
	}
	for _, own := range []string{"", "undefined", "null", "{}"} {
		v, err := vm.RunString("Object.keys(c.thresholds(" + own + ")).length")
		require.NoError(t, err, own)
		require.Positive(t, v.ToInteger())
	}
	v, err := vm.RunString(`c.thresholds({http_req_failed: ["rate<0.01"]}).http_req_failed[0]`)
	require.NoError(t, err)
	require.Equal(t, "rate<0.01", v.String())
	v, err = vm.RunString(`c.thresholds(gate.open("slo.yaml").thresholds())["llm_requests{phase:steady}"].length`)
	require.NoError(t, err)
	require.EqualValues(t, 2, v.ToInteger())
}
