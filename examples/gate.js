// A gated run at a steady rate: the contract in slo.yaml decides before the test, stops it when it is lost, and says
// afterwards how sure we are.
//
//   ./k6 x llm sim &
//   ./k6 run --out llm=results examples/gate.js
import llm from 'k6/x/llm';
import trace from 'k6/x/llm/trace';
import gate from 'k6/x/llm/gate';

const contract = gate.open('./slo.yaml');
const workload = trace.generate({
  rate: Number(__ENV.LLM_RATE || 8),
  duration: '30m', // what is longer than the phases is not replayed
  mix: 'short=0.6@200/60,typical=0.3@800/120,long=0.1@2000/200',
  seed: Number(__ENV.LLM_SEED || 0),
});

export const options = {
  scenarios: { ...workload.phases(contract.phases, { preAllocatedVUs: 100, maxVUs: 400 }), ...gate.monitor(contract) },
  // The contract's thresholds, and one of our own.
  thresholds: contract.thresholds({ checks: ['rate==1'] }),
};

const client = new llm.Client({
  baseURL: __ENV.LLM_BASE_URL || 'http://127.0.0.1:8000/v1',
  apiKey: __ENV.LLM_API_KEY,
  model: __ENV.LLM_MODEL || 'sim',
  slo: contract.slo ?? undefined,
});

export default function () {
  client.chat(workload.next());
}

export { handleSummary } from 'k6/x/llm/gate';
