package trace

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Prompts that the trace brings are nobody's invention.
func TestPromptsOfATraceAreNotSynthetic(t *testing.T) {
	t.Parallel()
	const (
		literal = `{"timestamp": 0, "input_length": 20, "output_length": 1, "messages": [{"role": "user", "content": "a"}]}` + "\n"
		length  = `{"timestamp": 0, "input_length": 20, "output_length": 1}` + "\n"
	)
	p := newProject(t)
	p.write(t, "prompts.txt", "one\ntwo\n")
	for name, test := range map[string]struct {
		rows, prompts string
		synthetic     bool
	}{
		"literal": {literal, "", false},
		"mixed":   {literal + length, "", true},
		"lengths": {length, "", true},
		"pool":    {length, `, prompts: "prompts.txt"`, false},
	} {
		p.write(t, name+".jsonl", test.rows)
		id := js(t, p.vu(t), fmt.Sprintf(`trace.open("%s.jsonl", {seed: 6200%s}).id`, name, test.prompts)).String()
		s, ok := lookUp(id)
		require.True(t, ok)
		require.Equal(t, test.synthetic, s.info().Synthetic, name)
	}
}
