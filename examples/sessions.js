// Conversations of ten turns. Each turn sends the whole history, so the prompt grows; with prefix caching the server reads
// only what is new, and TTFT stays flat. Compare: `./k6 x llm sim` and `./k6 x llm sim --no-prefix-caching`.
//
//   ./k6 x llm sim &
//   ./k6 run examples/sessions.js
//
// API may be chat (the default), responses or messages.
import llm from 'k6/x/llm';

const turns = 10;

export const options = {
  scenarios: { users: { executor: 'per-vu-iterations', vus: 2, iterations: 1 } },
  thresholds: {
    llm_success: ['rate==1'],
    // A threshold makes k6 show the submetric.
    ...Object.fromEntries(Array.from({ length: turns }, (_, i) => [`llm_ttft{turn:${i + 1}}`, ['p(95)<5000']])),
  },
};

const api = /** @type {import('k6/x/llm').API} */ (__ENV.API || 'chat');
const client = new llm.Client({
  baseURL: __ENV.LLM_BASE_URL || 'http://127.0.0.1:8000/v1',
  apiKey: __ENV.LLM_API_KEY,
  model: __ENV.LLM_MODEL || 'sim',
  api,
});
const limit = api === 'responses' ? 'max_output_tokens' : 'max_tokens';

export default function () {
  const session = new llm.Session(client, {
    system: `You help customer ${__VU}-${__ITER}.`,
    thinkTime: __ENV.THINK_TIME || '100ms',
  });
  for (let turn = 1; turn <= turns; turn++) {
    const res = session.chat(`This is question ${turn} of a long talk. `.repeat(20), { [limit]: 16 });
    if (!res.ok) return;
    console.log(`turn ${turn}: TTFT ${res.timings.ttft?.toFixed(1)} ms, ${res.usage.cachedTokens} of ${res.usage.promptTokens} tokens cached`);
  }
}
