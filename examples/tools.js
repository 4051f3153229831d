// Turns in which the model calls tools: the session runs them and sends the results until the model has no more calls. Each
// round is a request with its own times, and the tag `round`.
//
//   ./k6 x llm sim &
//   ./k6 run examples/tools.js
//
// API may be chat (the default), responses or messages.
import { check, sleep } from 'k6';
import llm from 'k6/x/llm';

export const options = {
  vus: 2,
  iterations: 4,
  thresholds: { llm_success: ['rate==1'], 'llm_e2e{round:1}': ['p(95)<5000'] },
};

const api = /** @type {import('k6/x/llm').API} */ (__ENV.API || 'chat');
const client = new llm.Client({
  baseURL: __ENV.LLM_BASE_URL || 'http://127.0.0.1:8000/v1',
  apiKey: __ENV.LLM_API_KEY,
  model: __ENV.LLM_MODEL || 'sim',
  api,
  // Has the simulated engine call a tool twice; other servers do not know it, and their models decide.
  headers: { 'X-Sim-Fault': JSON.stringify({ tool_rounds: 2 }) },
});

// The provider's own form of a tool.
const name = 'get_weather';
const description = 'Tells the weather.';
const schema = { type: 'object', properties: { query: { type: 'string' } }, required: ['query'] };
const tool = {
  chat: { type: 'function', function: { name, description, parameters: schema } },
  responses: { type: 'function', name, description, parameters: schema },
  messages: { name, description, input_schema: schema },
}[api];
const limit = api === 'responses' ? 'max_output_tokens' : 'max_tokens';

export default function () {
  const session = new llm.Session(client, { system: `You help customer ${__VU}-${__ITER}.` });
  const res = session.chat('Do I need an umbrella?', {
    tools: [tool],
    [limit]: 40,
    maxRounds: 4,
    onToolCall: (call) => {
      sleep(0.05); // what the tool takes
      return { asked: JSON.parse(call.arguments), weather: 'sunny' };
    },
  });
  check(res, { 'it came to an end': (r) => r.ok && r.toolCalls.length === 0 });
  console.log(`${res.rounds} rounds, then: ${res.text}`);
}
