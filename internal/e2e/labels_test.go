package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// labelsOf runs a script against an engine and gives the labels of its results.
func labelsOf(t *testing.T, options, scenarios, request string) []string {
	t.Helper()
	sim := startEngine(t, nil)
	out := filepath.Join(t.TempDir(), "out")
	r := script(t, fmt.Sprintf(`
		import llm from 'k6/x/llm';
		import trace from 'k6/x/llm/trace';
		const file = trace.open('%s', { seed: 1, %s });
		export const options = { scenarios: %s };
		const client = new llm.Client({ baseURL: '%s', model: 'sim', timeout: '20s' });
		export function ping() {}
		export default function () { client.chat(%s); }`,
		filepath.ToSlash(filepath.Join(root(t), "examples", "sample-trace.jsonl")), options, scenarios, sim.url, request), "--out", "llm="+out)
	require.Equal(t, 0, r.exit, r.stderr)
	run, err := results.Open(out)
	require.NoError(t, err)

	return run.Info.Labels
}

// A result says what limits its use, whether the script said it in an option, in a scenario or in a request.
func TestLabelsComeFromWhatWasDone(t *testing.T) {
	t.Parallel()
	const vus = `{ preAllocatedVUs: 20, maxVUs: 20, gracefulStop: '1s'`
	for name, c := range map[string]struct {
		scenarios, request string
		want               []string
		options            string
	}{
		"a part of a file and a forced length": {
			`file.phases({ steady: '1s' }, ` + vus + ` })`, `{ ...file.next(), max_tokens: 2, ignore_eos: true }`,
			[]string{results.LabelSyntheticPrompts, "trace truncated: 6 of 1080 rows", results.LabelIgnoreEOS},
			"",
		},
		"a staircase over a file": {
			`file.steps([12], ` + vus + `, hold: '1s' })`, `{ ...file.next(), max_tokens: 2 }`,
			[]string{results.LabelSyntheticPrompts, "trace rescaled in time: at 2.52 times its own pace", "trace truncated: 12 of 1080 rows"},
			"",
		},
		"requests of a file at other times": {
			`{ s: { executor: 'constant-arrival-rate', rate: 5, duration: '1s', preAllocatedVUs: 5 } }`, `{ ...file.next(), max_tokens: 2 }`,
			[]string{results.LabelSyntheticPrompts, "arrivals not the trace's: those of the scenarios"},
			"",
		},
		"beside a loop that sends nothing": {
			`{ s: { executor: 'constant-arrival-rate', rate: 5, duration: '1s', preAllocatedVUs: 5 },
			   p: { executor: 'per-vu-iterations', vus: 1, iterations: 1, exec: 'ping' } }`,
			`{ ...file.next(), max_tokens: 2 }`,
			[]string{results.LabelSyntheticPrompts, "arrivals not the trace's: those of the scenarios"},
			"",
		},
		"a closed loop over more requests than rows": {
			`{ s: { executor: 'shared-iterations', vus: 1, iterations: 9 } }`, `{ ...file.next(), max_tokens: 2 }`,
			[]string{
				"trace truncated: truncated to the first 6 of 1080 rows", results.LabelSyntheticPrompts, results.LabelClosedLoop,
				"trace repeated: 1.5 passes through its 6 rows", "arrivals not the trace's: those of the scenarios",
			},
			`limit: 6`,
		},
		"no trace at all": {
			`{ s: { executor: 'constant-arrival-rate', rate: 5, duration: '1s', preAllocatedVUs: 5 } }`,
			`{ messages: [{ role: 'user', content: 'hi' }], max_tokens: 3, min_tokens: 3 }`,
			[]string{results.LabelSyntheticPrompts, results.LabelIgnoreEOS},
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, labelsOf(t, c.options, c.scenarios, c.request))
		})
	}
}
