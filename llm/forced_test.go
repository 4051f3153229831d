package llm

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whoever reads the results has to know that answers were forced to their length, whichever field of the body said so.
func TestForcedLengthsAreSeenInTheBody(t *testing.T) {
	for fields, want := range map[string]bool{
		`max_tokens: 8`:                                            false,
		`max_tokens: 8, ignore_eos: true`:                          true,
		`max_tokens: 8, ignore_eos: false`:                         false,
		`max_tokens: 8, ignore_eos: null`:                          false,
		`max_tokens: 8, ignore_eos: 1`:                             true,
		`max_tokens: 8, ignore_eos: 0`:                             false,
		`max_tokens: 8, ignore_eos: "true"`:                        true,
		`max_tokens: 8, ignore_eos: "false"`:                       false,
		`max_tokens: 8, ban_eos_token: true`:                       true,
		`max_tokens: 8, nvext: {ignore_eos: true}`:                 true,
		`max_tokens: 8, nvext: {greed_sampling: true}`:             false,
		`max_tokens: 8, min_tokens: 8`:                             true,
		`max_tokens: 8, min_tokens: 9`:                             true,
		`max_tokens: 8, min_tokens: 7`:                             false,
		`min_tokens: 8`:                                            false,
		`max_completion_tokens: 8, min_tokens: 8`:                  true,
		`max_tokens: 8, min_new_tokens: 8`:                         true,
		`n_predict: 8, min_tokens: 8`:                              true,
		`max_tokens: 8, min_tokens: 0`:                             false,
		`min_tokens: 0`:                                            false,
		`max_tokens: 8, stop: ["a"], seed: 1, logit_bias: {"2":1}`: false,
	} {
		t.Run(fields, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				write(w, delta("hi"), finish, usageOf(3, 1), done)
			})
			v := newVU(t)
			v.must(newClient(s, ``) + fmt.Sprintf(`result = client.chat({messages: [{role: "user", content: "hi"}], %s})`, fields))
			var found []bool
			for _, container := range v.drain() {
				if ex, ok := container.(*Exchange); ok {
					found = append(found, ex.ForcedLength)
				}
			}
			require.Equal(t, []bool{want}, found)
		})
	}
}

func TestForcedLengthsOfOtherAPIs(t *testing.T) {
	require.True(t, forcedLength(map[string]any{"max_output_tokens": int64(16), "min_tokens": float64(16)}))
	require.True(t, forcedLength(map[string]any{"prompt": "a", "ignore_eos": true}), "from a trace, in Go's own values")
	require.False(t, forcedLength(map[string]any{"input": "an embedding"}))
	require.False(t, forcedLength(nil))
}
