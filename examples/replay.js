// Replays a trace, open loop: each request starts at its due time, whatever the server does, and the contract judges it.
//
//   ./k6 x llm sim --max-num-seqs 96 &
//   ./k6 run --out llm=results examples/replay.js
//
// TRACE names another trace (see docs/traces.md for public ones), SPEED replays it faster or slower.
import llm from 'k6/x/llm';
import trace from 'k6/x/llm/trace';
import gate from 'k6/x/llm/gate';

const contract = gate.open('./slo.yaml');
const workload = trace.open(__ENV.TRACE || './sample-trace.jsonl', {
  speed: Number(__ENV.SPEED || 1),
  loop: true,
});

export const options = {
  scenarios: { ...workload.phases(contract.phases, { preAllocatedVUs: 100, maxVUs: 400 }), ...gate.monitor(contract) },
  thresholds: contract.thresholds(),
  summaryTrendStats: ['med', 'p(95)', 'p(99)', 'max', 'count'],
};

const server = {
  baseURL: __ENV.LLM_BASE_URL || 'http://127.0.0.1:8000/v1',
  apiKey: __ENV.LLM_API_KEY,
  model: __ENV.LLM_MODEL || 'sim',
};
const client = new llm.Client({ ...server, slo: contract.slo ?? undefined });

// Finds how the served model counts, so that prompts have the trace's lengths with the chat template in them.
export function setup() {
  return trace.calibrate(server);
}

export default function (calibration) {
  client.chat(workload.next({ calibration }));
}

export { handleSummary } from 'k6/x/llm/gate';
