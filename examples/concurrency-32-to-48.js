// The decision to raise an engine's limit from 32 to 48 active requests, at 4, 5, 6 or 7 arrivals a second.
//
// Run it once against the engine at 32: that is the baseline. Then run it against the engine at 48, with the baseline's
// evidence, and read the verdict. Phases are scaled in time, so that a run takes a minute; on a real service use the
// contract's lengths in minutes.
//
//   ./k6 x llm sim --max-num-seqs 32 --max-model-len 16384 --num-blocks 16384 &
//   ./k6 run --out llm=at-32 examples/concurrency-32-to-48.js; ./k6 x llm gate verdict at-32; kill %1
//   ./k6 x llm sim --max-num-seqs 48 --max-model-len 16384 --num-blocks 16384 &
//   ./k6 run --out llm=at-48 -e BASELINE=$PWD/at-32 examples/concurrency-32-to-48.js; kill %1
//
// RATE is the arrivals a second: 4, 5, 6 (the default) or 7. Without BASELINE the criterion against it stays INCONCLUSIVE.
import llm from 'k6/x/llm';
import trace from 'k6/x/llm/trace';
import gate from 'k6/x/llm/gate';

const contract = gate.open('./concurrency-32-to-48.yaml', __ENV.BASELINE ? { baseline: __ENV.BASELINE } : {});

const workload = trace.generate({
  rate: Number(__ENV.RATE || 6),
  duration: '10m',
  mix: {
    short: { share: 0.6, input: 500, output: { dist: 'exponential', mean: 120, min: 1, max: 600 } },
    typical: { share: 0.3, input: 2000, output: { dist: 'exponential', mean: 120, min: 1, max: 600 } },
    long: { share: 0.1, input: 8000, output: { dist: 'exponential', mean: 120, min: 1, max: 600 } },
  },
  seed: 3248, // the same arrivals and prompts for both limits
});

export const options = {
  scenarios: { ...workload.phases(contract.phases, { preAllocatedVUs: 150, maxVUs: 400 }), ...gate.monitor(contract) },
  thresholds: contract.thresholds(),
};

const client = new llm.Client({
  baseURL: __ENV.LLM_BASE_URL || 'http://127.0.0.1:8000/v1',
  apiKey: __ENV.LLM_API_KEY,
  model: __ENV.LLM_MODEL || 'sim',
});

export default function () {
  client.chat(workload.next());
}

export { handleSummary } from 'k6/x/llm/gate';
