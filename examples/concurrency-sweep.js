// CLOSED LOOP. Latency and throughput at 1, 2, 4, … users who each wait for an answer before they ask again.
//
// This shows how batching trades latency for throughput. It does not show what the service can carry: in a closed loop a
// slow server is asked less often, so overload never shows. For capacity, replay arrivals (examples/replay.js).
//
//   ./k6 run examples/concurrency-sweep.js
import llm from 'k6/x/llm';

const users = [1, 2, 4, 8, 16, 32];
const seconds = Number(__ENV.SECONDS || 5);

export const options = {
  scenarios: Object.fromEntries(
    users.map((vus, i) => [
      `users_${vus}`,
      {
        executor: 'constant-vus',
        vus,
        duration: `${seconds}s`,
        startTime: `${i * (seconds + 2)}s`,
        gracefulStop: '30s',
        tags: { loop: 'closed', users: String(vus) },
      },
    ]),
  ),
  // A threshold makes k6 show a submetric of its own for each number of users.
  thresholds: Object.fromEntries(
    users.flatMap((vus) => [
      [`llm_ttft{users:${vus}}`, ['p(99)>=0']],
      [`llm_tpot{users:${vus}}`, ['p(99)>=0']],
      [`llm_completion_tokens{users:${vus}}`, ['count>=0']],
    ]),
  ),
  summaryTrendStats: ['med', 'p(95)', 'p(99)', 'max', 'count'],
};

const client = new llm.Client({
  baseURL: __ENV.LLM_BASE_URL || 'http://127.0.0.1:8000/v1',
  apiKey: __ENV.LLM_API_KEY,
  model: __ENV.LLM_MODEL || 'sim',
});

export default function () {
  client.chat({
    // A prompt of its own for each request: the same one again would be served from the prefix cache.
    messages: [{ role: 'user', content: `User ${__VU}, turn ${__ITER}: tell me about queues. ${Math.random()}` }],
    max_tokens: 64,
  });
}
