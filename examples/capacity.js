// The script of a capacity search: it sends LLM_RATE requests per second, and leaves the rest to the contract.
//
//   ./k6 x llm sim &
//   ./k6 x llm capacity --script examples/capacity.js --contract examples/slo.yaml --out search --min 1 --max 64
//
// The search hands over LLM_RATE, LLM_STEADY (gate.open takes it over by itself) and LLM_SEED; --arrival sets
// LLM_BURSTINESS, --workload sets LLM_WORKLOAD and variables of your own, such as MIX here.
import llm from 'k6/x/llm';
import trace from 'k6/x/llm/trace';
import gate from 'k6/x/llm/gate';

const contract = gate.open(__ENV.LLM_CONTRACT || './slo.yaml');
const burstiness = __ENV.LLM_BURSTINESS || '1';

// A trace that is longer than the phases: what is left over is not replayed.
const workload = trace.generate({
  rate: Number(__ENV.LLM_RATE || 2),
  duration: '30m',
  burstiness: burstiness === 'constant' ? 'constant' : Number(burstiness),
  mix: __ENV.MIX || 'short=0.6@200/60,typical=0.3@800/120,long=0.1@2000/200',
  seed: Number(__ENV.LLM_SEED || 0),
});

export const options = {
  scenarios: {
    ...workload.phases(contract.phases, {
      preAllocatedVUs: 100,
      maxVUs: Number(__ENV.MAX_VUS || 1000),
      gracefulStop: '60s',
    }),
    ...gate.monitor(contract),
  },
  thresholds: contract.thresholds(),
};

const server = {
  baseURL: __ENV.LLM_BASE_URL || 'http://127.0.0.1:8000/v1',
  apiKey: __ENV.LLM_API_KEY,
  model: __ENV.LLM_MODEL || 'sim',
};
const client = new llm.Client({ ...server, slo: contract.slo ?? undefined });

export function setup() {
  return trace.calibrate(server);
}

export default function (calibration) {
  client.chat(workload.next({ calibration }));
}

export { handleSummary } from 'k6/x/llm/gate';
