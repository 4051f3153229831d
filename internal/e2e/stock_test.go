package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// A warmup and a steady phase under k6's own executors, in two instances at once: no request is sent twice, so that the prefix
// cache has none of it, and the verdict knows.
func TestStockScenariosSendNoPromptTwice(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, nil)
	const source = `
		import llm from 'k6/x/llm';
		import trace from 'k6/x/llm/trace';
		const workload = trace.generate({ rate: 20, duration: '4s', mix: 'short=1@200/4', seed: 12 });
		const scenario = (phase, rate, startTime, duration) => ({
			executor: 'constant-arrival-rate', rate, startTime, duration, preAllocatedVUs: 20, tags: { phase },
		});
		export const options = { scenarios: {
			steady: scenario('steady', 20, '1s', '2s'), warmup: scenario('warmup', 20, '0s', '1s'),
			closed: { executor: 'constant-vus', vus: 1, duration: '1s', startTime: '500ms', tags: { phase: 'warmup' } },
		} };
		const client = new llm.Client({ baseURL: __ENV.URL, model: 'sim' });
		export default function () { client.chat(workload.next()); }`
	segments := []string{"0:1/2", "1/2:1"}
	ends, dirs := make([]ran, len(segments)), make([]string, len(segments))
	var running sync.WaitGroup
	for i, segment := range segments {
		dirs[i] = filepath.Join(t.TempDir(), "results")
		running.Go(func() {
			ends[i] = script(t, source, "--out", "llm="+dirs[i], "-e", "URL="+sim.url,
				"--execution-segment", segment, "--execution-segment-sequence", "0,1/2,1")
		})
	}
	running.Wait()
	rows := map[int64]string{}
	for i, dir := range dirs {
		require.Equal(t, 0, ends[i].exit, ends[i].stderr)
		for _, r := range firstAttempts(t, dir) {
			if r.Outcome == results.Dropped {
				continue // a busy machine had no VU free: that took no row
			}
			require.Empty(t, rows[r.Row], "row %d of %s", r.Row, r.Scenario)
			rows[r.Row] = r.Scenario
			require.Zero(t, r.Cached.Value, "row %d of %s", r.Row, r.Scenario)
		}
	}
	seen := map[string]bool{}
	for row, scenario := range rows {
		seen[scenario] = true
		switch { // 20 and 40 arrivals, and one at the end of each
		case row < 21:
			require.Equal(t, "warmup", scenario, row)
		case row < 21+41:
			require.Equal(t, "steady", scenario, row)
		default:
			require.Equal(t, "closed", scenario, row)
		}
	}
	require.Len(t, seen, 3)
}

// Where k6's own executors cannot take each row once, the test ends, and says so once: for a segment without its sequence, and
// for a trace that is another one in each VU.
func TestStockScenariosEndWhereRowsAreNotTheirOwn(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, nil)
	const source = `
		import llm from 'k6/x/llm';
		import trace from 'k6/x/llm/trace';
		const workload = trace.generate({ rate: 20, duration: '4s', mix: 'short=1@20/4', seed: __ENV.NOW ? Date.now() : 12 });
		export const options = { scenarios: { load: { executor: 'constant-vus', vus: 3, duration: '20s' } } };
		const client = new llm.Client({ baseURL: __ENV.URL, model: 'sim' });
		export default function () { try { client.chat(workload.next()); } catch { } }`
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--execution-segment", "1/3:1"}, "scenario load: an execution segment needs the execution segment sequence too"},
		{[]string{"-e", "NOW=1"}, "which is none of those that the script opened when it was first run"},
	} {
		dir := filepath.Join(t.TempDir(), "results")
		r := script(t, source, append(test.args, "--out", "llm="+dir, "-e", "URL="+sim.url)...)
		require.Equal(t, 108, r.exit, r.stderr) // k6's exit code of test.abort()
		require.Equal(t, 1, strings.Count(r.stderr, test.want), r.stderr)
		require.Empty(t, firstAttempts(t, dir))
	}
}

// What a prefix cache can serve is known at the end of the run, also where a scenario beside the load asks for no row.
func TestTheIdealHitRatioIsOfTheScenariosThatTookRows(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, nil)
	rows := ""
	for i := range 6 {
		rows += fmt.Sprintf(`{"timestamp": %d, "input_length": 600, "output_length": 2, "hash_ids": [1, %d]}`+"\n", 100*i, 10+i)
	}
	file, out := filepath.Join(t.TempDir(), "shared.jsonl"), filepath.Join(t.TempDir(), "out")
	require.NoError(t, os.WriteFile(file, []byte(rows), 0o600))
	r := script(t, fmt.Sprintf(`
		import llm from 'k6/x/llm';
		import trace from 'k6/x/llm/trace';
		const file = trace.open('%s', { seed: 1 });
		export const options = { scenarios: {
			load: { executor: 'shared-iterations', vus: 1, iterations: 4 },
			ping: { executor: 'per-vu-iterations', vus: 1, iterations: 1, exec: 'ping' },
		} };
		const client = new llm.Client({ baseURL: '%s', model: 'sim', timeout: '20s' });
		export function ping() {}
		export default function () { client.chat(file.next()); }`, filepath.ToSlash(file), sim.url), "--out", "llm="+out)
	require.Equal(t, 0, r.exit, r.stderr)
	run, err := results.Open(out)
	require.NoError(t, err)
	require.NotNil(t, run.Info.IdealPrefixHitRatio)
	require.InDelta(t, 3*512.0/(4*600), *run.Info.IdealPrefixHitRatio, 1e-9)
}
