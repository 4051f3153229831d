// One service, several models: a base model and two LoRA adapters, by weight. A row of the trace asks for the same model in
// every run and on every machine; the tag `model` tells them apart.
//
//   ./k6 x llm sim &
//   ./k6 run examples/model-mix.js
import llm from 'k6/x/llm';
import trace from 'k6/x/llm/trace';

const base = __ENV.LLM_MODEL || 'sim';
const models = { [base]: 2, [`${base}:legal`]: 1, [`${base}:support`]: 1 };
const workload = trace.generate({ rate: 20, duration: '3s', mix: 'all=1@200/16' });

export const options = {
  scenarios: { load: workload.scenario({ preAllocatedVUs: 20, maxVUs: 100 }) },
  thresholds: {
    llm_success: ['rate==1'],
    ...Object.fromEntries(Object.keys(models).map((name) => [`llm_ttft{model:${name}}`, ['p(95)<2000']])),
  },
};

const client = new llm.Client({
  baseURL: __ENV.LLM_BASE_URL || 'http://127.0.0.1:8000/v1',
  apiKey: __ENV.LLM_API_KEY,
  model: models,
});

export default function () {
  client.chat(workload.next());
}
