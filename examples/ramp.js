// Arrivals at a rising rate until the service is past saturation, with prompts of mixed lengths.
// The test stops itself once the tail of TTFT or the share of 5xx answers is lost.
//
//   ./k6 run examples/ramp.js
import llm from 'k6/x/llm';

const peak = Number(__ENV.PEAK || 40); // requests per second
const duration = __ENV.DURATION || '60s';

export const options = {
  scenarios: {
    ramp: {
      executor: 'ramping-arrival-rate',
      startRate: 1,
      timeUnit: '1s',
      preAllocatedVUs: 100,
      maxVUs: 500,
      stages: [{ target: peak, duration }],
      gracefulStop: '30s',
    },
  },
  thresholds: {
    llm_ttft: [{ threshold: 'p(99)<3000', abortOnFail: true, delayAbortEval: '10s' }],
    llm_http_5xx: [{ threshold: 'rate<0.01', abortOnFail: true, delayAbortEval: '10s' }],
    // k6 lets a threshold pass that has seen no data: demand some.
    llm_requests: ['count>0'],
    dropped_iterations: ['count==0'],
  },
  summaryTrendStats: ['med', 'p(95)', 'p(99)', 'max', 'count'],
};

const client = new llm.Client({
  baseURL: __ENV.LLM_BASE_URL || 'http://127.0.0.1:8000/v1',
  apiKey: __ENV.LLM_API_KEY,
  model: __ENV.LLM_MODEL || 'sim',
  timeout: '60s',
});

const classes = [
  { class: 'short', share: 0.6, words: 60, max_tokens: 40 },
  { class: 'typical', share: 0.3, words: 400, max_tokens: 80 },
  { class: 'long', share: 0.1, words: 2000, max_tokens: 120 },
];

function pick() {
  let x = Math.random();
  for (const c of classes) {
    x -= c.share;
    if (x < 0) return c;
  }
  return classes[classes.length - 1];
}

export default function () {
  const c = pick();
  const words = Array.from({ length: c.words }, () => Math.floor(Math.random() * 1e6).toString(36));
  client.chat({
    messages: [{ role: 'user', content: words.join(' ') }],
    max_tokens: c.max_tokens,
    class: c.class,
  });
}
