package contract

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func lookup(values map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
}

func TestExpandVariables(t *testing.T) {
	env := lookup(map[string]string{"A": "1", "EMPTY": "", "NESTED": "${A} $$", "_x9": "u"})
	for text, want := range map[string]string{
		"plain": "plain", "${A}": "1", "<${A}${A}>": "<11>", "${EMPTY}": "", "${EMPTY:-d}": "d", "${A:-d}": "1",
		"${UNSET:-}": "", "${UNSET:-a b:c}": "a b:c", "$${A}": "${A}", "$$$${A}": "$${A}", "cost $5": "cost $5", "$A": "$A",
		"${NESTED}": "${A} $$", "end$": "end$", "$$": "$", "${_x9}": "u",
	} {
		got, faults := expandVariables(text, env)
		require.Empty(t, faults, text)
		require.Equal(t, want, got, text)
	}
	for text, want := range map[string]fault{
		"${UNSET}":   {"${UNSET}, a variable that is not set", "UNSET to be set, or a default: ${UNSET:-default}"},
		"${A":        {`"${A"`, `a closing "}" for "${" (a literal dollar is written "$$")`},
		"${}":        {`"${}"`, "${NAME} or ${NAME:-default}, where NAME is made of letters, digits and _"},
		"${9}":       {`"${9}"`, "${NAME} or ${NAME:-default}, where NAME is made of letters, digits and _"},
		"${A?x}":     {`"${A?x}"`, "${NAME} or ${NAME:-default}, where NAME is made of letters, digits and _"},
		"${X:-${A}}": {`"${X:-${A}"`, "a default without a variable in it"},
	} {
		_, faults := expandVariables(text, env)
		require.Equal(t, []fault{want}, faults, text)
	}
	_, faults := expandVariables("${P} ${Q}", env)
	require.Len(t, faults, 2, "every variable that is not set is named")
}

// What a variable holds is a value and nothing else: it adds no key, no line, no document, no anchor.
func TestVariablesNeverInjectStructure(t *testing.T) {
	for name, value := range map[string]string{
		"a key":        "<= 1s\"\n  success_rate: \">= 0",
		"a flow map":   "{ttft_p99: '<= 9s'}",
		"a document":   "x\n---\ncapacity_gate: {}",
		"a comment":    "<= 1s # 2",
		"an alias":     "*slow",
		"a variable":   "${OTHER}",
		"a tag":        "!!map {}",
		"a block head": "|\n  <= 1s",
	} {
		t.Run(name, func(t *testing.T) {
			env := lookup(map[string]string{"V": value, "OTHER": "<= 1s"})
			_, err := Load("slo.yaml", []byte("capacity_gate:\n  ttft_p95: \"${V}\"\n  e2e_p95: ${V}\n"), env)
			var problems Errors
			require.ErrorAs(t, err, &problems)
			require.Len(t, problems, 2)
			require.Equal(t, Pos{2, 13}, problems[0].Pos)
			require.Equal(t, Pos{3, 12}, problems[1].Pos)
			require.Contains(t, problems[0].Found, `(from "${V}")`)

			c, err := Load("slo.yaml", []byte("capacity_gate: {ttft_p95: '<= 1s'}\ndecision: {note: \"${V}\", end: 1}\n"), env)
			require.NoError(t, err)
			require.Equal(t, `{"note":`+string(appendJSONString(nil, value))+`,"end":1}`, string(c.Decision))
			require.Len(t, c.Gate, 1)
		})
	}
}

func TestPositionsStayThoseOfTheFile(t *testing.T) {
	env := lookup(map[string]string{"LONG": "<=           800ms"})
	c, err := Load("slo.yaml", []byte("capacity_gate:\n  ttft_p95: \"${LONG}\"\n  itl_p99: \"<= 1ms\"\n"), env)
	require.NoError(t, err)
	require.Equal(t, Pos{2, 13}, c.Gate[0].Pos)
	require.Equal(t, Pos{3, 12}, c.Gate[1].Pos)
	require.Equal(t, "${LONG}", c.Gate[0].Raw)
	require.Equal(t, 800.0, *c.Gate[0].Limit.Absolute)
}
