// The script of a capacity search: it sends LLM_RATE requests per second, and leaves the rest to the contract.
//
//   ./k6 x llm sim &
//   ./k6 x llm capacity --script examples/capacity.js --contract examples/capacity.yaml --out search --min 1 --max 64
//
// The search hands over LLM_RATE, LLM_STEADY (gate.open takes it over by itself) and LLM_SEED; --arrival sets
// LLM_BURSTINESS, --workload sets LLM_WORKLOAD and variables of your own, such as MIX here. TRACE replays a trace,
// rescaled to the rate, in place of arrivals and lengths that are made up.
import llm from 'k6/x/llm';
import trace from 'k6/x/llm/trace';
import gate from 'k6/x/llm/gate';

const contract = gate.open(__ENV.LLM_CONTRACT || './capacity.yaml');
const rate = Number(__ENV.LLM_RATE || 2);
const seed = Number(__ENV.LLM_SEED || 0); // another one for each probe: else its prompts would come from the prefix cache

function generated() {
  const k = __ENV.LLM_BURSTINESS || '1';
  return trace.generate({
    rate,
    duration: '30m', // longer than the phases: what is left over is not replayed
    burstiness: k === 'constant' ? k : Number(k),
    mix: __ENV.MIX || 'short=0.6@200/60,typical=0.3@800/120,long=0.1@2000/200',
    seed,
  });
}

const workload = __ENV.TRACE ? trace.open(__ENV.TRACE, { rate, seed, loop: true }) : generated();

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
