// One user action that needs several answers at once: an agent that asks five questions in parallel and goes on when
// the slowest has come. The fan-out waits for the maximum of five, so its p50 is the service's p87.
//
//   ./k6 run examples/async-fanout.js
import { check } from 'k6';
import { Trend } from 'k6/metrics';
import llm from 'k6/x/llm';

export const options = {
  vus: 4,
  iterations: 20,
  batchPerHost: 8, // idle connections kept for each VU: at least as many as run at once
  thresholds: { llm_success: ['rate>0.99'] },
};

const slowest = new Trend('fanout_e2e', true);

const client = new llm.Client({
  baseURL: __ENV.LLM_BASE_URL || 'http://127.0.0.1:8000/v1',
  apiKey: __ENV.LLM_API_KEY,
  model: __ENV.LLM_MODEL || 'sim',
  slo: { ttft: '1s', e2e: '10s' },
});

export default async function () {
  const started = Date.now();
  const answers = await Promise.all(
    ['summarise', 'translate', 'classify', 'extract', 'criticise'].map((task) =>
      client.asyncChat({
        messages: [{ role: 'user', content: `${task}: document ${__VU}-${__ITER}` }],
        max_tokens: 48,
        tags: { task },
      }),
    ),
  );
  slowest.add(Date.now() - started);
  check(answers, { 'all five answered': (all) => all.every((a) => a.ok) });
}
