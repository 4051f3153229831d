// One mean rate, five arrival processes, one after the other: constant, smooth, Poisson, bursty, and a recorded trace
// rescaled to that rate. Averages hide the difference; the tails of TTFT show it.
//
//   ./k6 x llm sim --max-num-seqs 16 &
//   ./k6 run examples/burst-matrix.js
import llm from 'k6/x/llm';
import trace from 'k6/x/llm/trace';

const rate = Number(__ENV.LLM_RATE || 6);
const seconds = Number(__ENV.SECONDS || 30);
const pause = 5; // for the service to come back to idle

/** @type {Record<string, number | 'constant'>} */
const synthetic = { constant: 'constant', smooth: 4, poisson: 1, bursty: 0.25 };
const workloads = Object.fromEntries(
  Object.entries(synthetic).map(([name, burstiness]) => [
    name,
    trace.generate({ rate, duration: `${seconds}s`, burstiness, mix: 'short=0.7@200/60,typical=0.3@800/120', seed: 11 }),
  ]),
);
workloads.trace = trace.open(__ENV.TRACE || './sample-trace.jsonl', { rate, limit: Math.round(rate * seconds) });

export const options = {
  scenarios: Object.fromEntries(
    Object.entries(workloads).map(([name, workload], i) => [
      name,
      workload.scenario({
        startTime: `${i * (seconds + pause)}s`,
        tags: { arrivals: name },
        env: { ARRIVALS: name },
        preAllocatedVUs: 60,
        maxVUs: 300,
        gracefulStop: '30s',
      }),
    ]),
  ),
  // A threshold makes k6 show a submetric of its own for each arrival process.
  thresholds: Object.fromEntries(
    Object.keys(workloads).flatMap((name) => [
      [`llm_ttft{arrivals:${name}}`, ['p(99)>=0']],
      [`llm_e2e{arrivals:${name}}`, ['p(99)>=0']],
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
  client.chat(workloads[__ENV.ARRIVALS].next());
}
