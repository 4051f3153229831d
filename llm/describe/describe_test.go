package describe_test

import (
	"encoding/json"
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/llm/describe"
)

// The values of the JavaScript runtime itself are tried where the runtime is known: in package llm.
func TestValuesOfGo(t *testing.T) {
	t.Parallel()
	n := 5
	for _, c := range []struct {
		value any
		want  string
	}{
		{nil, "nothing"},
		{"", `""`},
		{json.Number("7"), `"7"`},
		{uint8(3), "3"},
		{true, "true"},
		{math.Inf(-1), "-Inf"},
		{big.NewInt(7), "7"},
		{time.Time{}, "a Date"},
		{map[string]string{"a": "b"}, "an object"},
		{[]string{"a"}, "an array"},
		{[2]int{}, "an array"},
		{&n, "a value of the type *int"},
		{make(chan int), "a value of the type chan int"},
		{struct{ A int }{1}, "a value of the type struct { A int }"},
		{func() {}, "a function"},
	} {
		require.Equal(t, c.want, describe.Value(c.value))
	}
	require.Equal(t, "nothing", describe.Given(nil))
}
