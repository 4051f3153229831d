// Questions about pictures. Each picture is made up from its seed: the same in every run, and new to every cache.
//
//   ./k6 x llm sim &
//   ./k6 run examples/images.js
//
// API may be chat (the default), responses or messages: parts in chat's form are translated.
import exec from 'k6/execution';
import llm from 'k6/x/llm';

export const options = { vus: 2, iterations: 6, thresholds: { llm_success: ['rate==1'] } };

const api = /** @type {import('k6/x/llm').API} */ (__ENV.API || 'chat');
const client = new llm.Client({
  baseURL: __ENV.LLM_BASE_URL || 'http://127.0.0.1:8000/v1',
  apiKey: __ENV.LLM_API_KEY,
  model: __ENV.LLM_MODEL || 'sim',
  api,
});

export default function () {
  const content = [
    llm.image({ width: 512, height: 512, seed: exec.scenario.iterationInTest }),
    { type: 'text', text: 'What does this show?' },
  ];
  const message = { role: 'user', content };
  const res =
    api === 'responses'
      ? client.chat({ input: [message], max_output_tokens: 16 })
      : client.chat({ messages: [message], max_tokens: 16 });
  console.log(res.ok ? `${res.usage.promptTokens} prompt tokens, TTFT ${res.timings.ttft?.toFixed(1)} ms` : res.error?.message);
}
