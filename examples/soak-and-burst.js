// A steady load, a burst injected on top of it, and the recovery: does the queue drain, and how long does it take?
//
//   ./k6 x llm sim --max-num-seqs 16 &
//   ./k6 run examples/soak-and-burst.js
import llm from 'k6/x/llm';
import trace from 'k6/x/llm/trace';

const soak = Number(__ENV.LLM_RATE || 4); // requests per second, all the time
const burst = Number(__ENV.BURST || 40); // requests per second, for BURST_SECONDS
const total = Number(__ENV.SECONDS || 60);
const burstSeconds = Number(__ENV.BURST_SECONDS || 3);
const burstAt = Math.round(total / 3);

const mix = 'short=0.7@200/60,typical=0.3@800/120';
const steady = trace.generate({ rate: soak, duration: `${total}s`, mix, seed: 1 });
const crowd = trace.generate({ rate: burst, duration: `${burstSeconds}s`, mix, seed: 2 });

const vus = { preAllocatedVUs: 100, maxVUs: 400, gracefulStop: '60s' };

export const options = {
  scenarios: {
    soak: steady.scenario({ ...vus, tags: { load: 'soak' } }),
    burst: crowd.scenario({ ...vus, startTime: `${burstAt}s`, tags: { load: 'burst' }, exec: 'crowdIteration' }),
  },
  thresholds: {
    'llm_ttft{load:soak}': ['p(99)>=0'],
    'llm_ttft{load:burst}': ['p(99)>=0'],
    llm_success: ['rate>0.99'],
    llm_requests: ['count>0'],
    dropped_iterations: ['count==0'],
  },
  summaryTrendStats: ['med', 'p(95)', 'p(99)', 'max', 'count'],
};

const client = new llm.Client({
  baseURL: __ENV.LLM_BASE_URL || 'http://127.0.0.1:8000/v1',
  apiKey: __ENV.LLM_API_KEY,
  model: __ENV.LLM_MODEL || 'sim',
});

export default function () {
  client.chat(steady.next());
}

export function crowdIteration() {
  client.chat(crowd.next());
}
