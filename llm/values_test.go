package llm

import (
	"testing"

	"github.com/grafana/sobek"
	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/llm/describe"
)

// What a script gives is named by what its author calls it, and never by an address.
func TestValuesOfScriptsAreNamed(t *testing.T) {
	t.Parallel()
	rt := sobek.New()
	for script, want := range map[string]string{
		`undefined`: "nothing", `null`: "nothing", `"a"`: `"a"`, `""`: `""`, `true`: "true", `5`: "5", `-1.5`: "-1.5", `NaN`: "NaN",
		`Infinity`: "+Inf", `10n`: "10", `({a: 1})`: "an object", `[1, "a"]`: "an array", `new Float64Array(2)`: "an array",
		`new Uint8Array(2)`: "a Uint8Array", `new ArrayBuffer(2)`: "an ArrayBuffer", `new Date(0)`: "a Date",
		`Promise.resolve(1)`: "a Promise", `new Proxy({}, {})`: "a Proxy", `new Map([[1, 2]])`: "a Map", `new Map()`: "a Map",
		`() => 1`: "a function", `(function () {})`: "a function", `class {}`: "a function", `async () => 1`: "a function",
		`Symbol("x")`: "a Symbol", `Symbol()`: "a Symbol", `new Error("x")`: "an object", `new WeakMap()`: "an object",
	} {
		v, err := rt.RunString("(" + script + ")")
		require.NoError(t, err, script)
		require.Equal(t, want, describe.Given(v), script)
	}
	require.Equal(t, "a Symbol", describe.Value(sobek.NewSymbol("x")))
	require.Equal(t, "nothing", describeValue(nil))
}
