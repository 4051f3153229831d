// Retrieval and answer: the question is embedded, and then a chat gets it with the texts that were found. The tag `api` tells
// the two kinds of requests apart; an embedding has E2E and no TTFT.
//
//   ./k6 x llm sim &
//   ./k6 run examples/rag.js
import llm from 'k6/x/llm';

export const options = {
  vus: 2,
  iterations: 6,
  thresholds: {
    llm_success: ['rate==1'],
    'llm_e2e{api:embeddings}': ['p(95)<500'],
    'llm_ttft{api:chat}': ['p(95)<2000'],
  },
};

const client = new llm.Client({
  baseURL: __ENV.LLM_BASE_URL || 'http://127.0.0.1:8000/v1',
  apiKey: __ENV.LLM_API_KEY,
  model: __ENV.LLM_MODEL || 'sim',
});

export default function () {
  const question = `Question ${__VU}-${__ITER}: what is a tail latency?`;
  const found = client.embeddings({ input: question, model: __ENV.EMBEDDING_MODEL || 'sim' });
  if (!found.ok) return;

  const texts = Array.from({ length: 5 }, (_, i) => `Text ${i}, found for ${question} `.repeat(10));
  const res = client.chat({
    messages: [
      { role: 'system', content: `Answer from these texts:\n${texts.join('\n')}` },
      { role: 'user', content: question },
    ],
    max_tokens: 32,
  });
  console.log(`embedded in ${found.timings.e2e?.toFixed(1)} ms, TTFT ${res.timings.ttft?.toFixed(1)} ms`);
}
