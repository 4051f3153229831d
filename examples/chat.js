// The shortest useful script: one virtual user asks ten questions, one after another.
//
//   ./k6 x llm sim &
//   ./k6 run examples/chat.js
import { check } from 'k6';
import llm from 'k6/x/llm';

export const options = {
  vus: 1,
  iterations: 10,
  thresholds: {
    llm_success: ['rate==1'],
    llm_ttft: ['p(95)<2000'],
  },
};

const client = new llm.Client({
  baseURL: __ENV.LLM_BASE_URL || 'http://127.0.0.1:8000/v1',
  apiKey: __ENV.LLM_API_KEY,
  model: __ENV.LLM_MODEL || 'sim',
});

export default function () {
  const res = client.chat({
    messages: [{ role: 'user', content: `Question ${__ITER}: what is a tail latency?` }],
    max_tokens: 64,
  });

  check(res, {
    'it answered': (r) => r.ok,
    'the server said how many tokens': (r) => r.usage.source === 'server',
  });
  if (!res.ok) {
    console.error(`${res.error?.type}: ${res.error?.message}`);
    return;
  }
  console.log(
    `TTFT ${res.timings.ttft?.toFixed(1)} ms, TPOT ${res.timings.tpot?.toFixed(2)} ms, ` +
      `${res.usage.completionTokens} tokens in ${res.chunks} chunks, ended by "${res.finishReason}"`,
  );
}
