package e2e

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/llm/llmtest"
)

// TestASessionShowsThePrefixCache lets the same sessions of ten turns run against two engines that differ in prefix caching
// alone. The engine's own times decide: reading the whole conversation anew takes ten times as long as reading what is new.
func TestASessionShowsThePrefixCache(t *testing.T) {
	t.Parallel()
	const turns, sessions = 10, 4
	byTurn := map[bool]map[string][]sample{}
	for _, caching := range []bool{true, false} {
		sim := startEngine(t, func(c *llmtest.ServerConfig) {
			c.Engine.DisablePrefixCaching, c.Engine.StepPerPrefillToken = !caching, 150*time.Microsecond
		})
		out := filepath.Join(t.TempDir(), "samples.json")
		r := script(t, `
			import llm from 'k6/x/llm';
			export const options = { scenarios: { s: { executor: 'per-vu-iterations', vus: 2, iterations: 2 } } };
			const client = new llm.Client({ baseURL: __ENV.URL, model: 'sim' });
			export default function () {
				const session = new llm.Session(client, { system: 'Customer ' + __VU + ' of visit ' + __ITER });
				for (let turn = 1; turn <= 10; turn++) {
					const res = session.chat(('Question ' + turn + ' of it all. ').repeat(25), { max_tokens: 16, ignore_eos: true });
					if (!res.ok) throw new Error(res.error.message);
				}
			}`, "--out", "json="+out, "-e", "URL="+sim.url)
		require.Equal(t, 0, r.exit, r.stderr)
		samples := readSamples(t, out)
		byTurn[caching] = byTag(samples["llm_ttft"], "turn")
		prompts, cached := byTag(samples["llm_prompt_tokens"], "turn"), byTag(samples["llm_cached_tokens"], "turn")
		require.Len(t, byTurn[caching], turns)
		for turn := 1; turn <= turns; turn++ {
			name := fmt.Sprint(turn)
			require.Len(t, byTurn[caching][name], sessions)
			found := sum(cached[name])
			switch {
			case !caching:
				require.Zero(t, found)
			case turn > 1:
				before := sum(prompts[fmt.Sprint(turn-1)])
				require.GreaterOrEqual(t, found, before, "all of the conversation so far, but for what the last answer leaves of a block")
				require.Less(t, found, before+sessions*16)
			}
		}
	}
	// The fastest of a turn: what else the machine does can make an answer slower, and never faster than its prefill takes.
	ttft := func(caching bool, turn int) float64 {
		fastest := math.Inf(1)
		for _, s := range byTurn[caching][fmt.Sprint(turn)] {
			fastest = min(fastest, s.Data.Value)
		}

		return fastest
	}
	for turn := 1; turn <= turns; turn++ {
		t.Logf("turn %2d: TTFT %.1f ms with the cache, %.1f ms without", turn, ttft(true, turn), ttft(false, turn))
	}
	late := min(ttft(true, turns), ttft(true, turns-1), ttft(true, turns-2))
	require.Greater(t, ttft(false, turns), 3*late)
	require.Greater(t, ttft(false, turns), 2*ttft(false, 1))
}
