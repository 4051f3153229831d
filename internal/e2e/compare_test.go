package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Without a trace the workload is in the script and its environment.
func TestCompareRefusesOtherWorkloadsOfOneScript(t *testing.T) {
	t.Parallel()
	dir, sim := t.TempDir(), smallEngine(t)
	script := `import llm from 'k6/x/llm';
export const options = { scenarios: { load: {
  executor: 'constant-arrival-rate', rate: Number(__ENV.RATE), timeUnit: '10s', duration: '3s', preAllocatedVUs: 20, tags: { phase: 'steady' } } } };
const client = new llm.Client({ baseURL: __ENV.URL, model: 'sim' });
export default () => client.chat({ messages: [{ role: 'user', content: 'number ' + Math.random() }], max_tokens: Number(__ENV.MAX) });
`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "s.js"), []byte(script), 0o600))
	for _, run := range [][3]string{{"a", "122", "4"}, {"again", "122", "4"}, {"slower", "75", "4"}, {"longer", "122", "8"}} {
		cmd := command(t, "run", "--quiet", "--address", "", "--out", "llm="+run[0], "-e", "URL="+sim.url, "-e", "RATE="+run[1], "-e", "MAX="+run[2], "s.js")
		cmd.Dir = dir
		require.Equal(t, 0, finish(t, cmd).exit)
	}
	for other, says := range map[string]string{
		"slower": "scenarios of the phase steady (A: constant-arrival-rate (duration 3s, rate 12.2/s), B: constant-arrival-rate (duration 3s, rate 7.5/s))",
		"longer": "completion tokens asked (A: 4, B: 8)",
	} {
		r := runK6(t, "x", "llm", "compare", filepath.Join(dir, "a"), filepath.Join(dir, other))
		require.Equal(t, 3, r.exit, r.stdout)
		require.Contains(t, r.stderr, says)
		require.Empty(t, r.stdout)
	}
	r := runK6(t, "x", "llm", "compare", filepath.Join(dir, "a"), filepath.Join(dir, "again"))
	require.NotEqual(t, 3, r.exit, r.stderr)
	require.Contains(t, r.stdout, "B is ")
}
