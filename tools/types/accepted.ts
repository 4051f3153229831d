// What the module takes, in forms that the examples do not have. All of it must compile.

import llm, { Client, Session, type Request, type TurnRequest } from 'k6/x/llm';
import trace from 'k6/x/llm/trace';

const client = new Client({
  baseURL: 'http://127.0.0.1:8000',
  headers: { 'X-Tenant': 'a', 'X-Shard': 5, 'X-Dry-Run': true },
  tokenizer: 'o200k_base',
});
// Names and numbers that are known only when the script runs.
declare const __ENV: Record<string, string>;
new Client({ baseURL: 'http://127.0.0.1:8000', tokenizer: __ENV.LLM_TOKENIZER });
new Client({ baseURL: 'http://127.0.0.1:8000', tokenizer: __ENV.LLM_TOKENIZER ? __ENV.LLM_TOKENIZER : undefined });
trace.open('trace.csv', { prompts: { file: 'prompts.txt', fit: __ENV.LLM_TOKENIZER } });
trace.open('trace.csv', {
  rate: __ENV.RATE ? Number(__ENV.RATE) : undefined,
  speed: __ENV.SPEED ? Number(__ENV.SPEED) : undefined,
});
trace.generate({
  rate: 1,
  mix: 'chat',
  count: __ENV.COUNT ? Number(__ENV.COUNT) : undefined,
  duration: __ENV.COUNT ? undefined : '1m',
});
const messages = [{ role: 'user', content: 'hi' }];

client.chat({ messages, abortAfter: { tokens: 1 } });
client.chat({ messages, abortAfter: { ms: 0 }, temperature: 0, anything: { else: true } });
client.chat({ input: 'hi' }); // where the client's api is responses
client.chat({ prompt: 'hi' }); // or completions
client.completions({ prompt: [1, 2, 3] });
client.completions({ prompt_embeds: 'AAAA' });
client.responses({ prompt: { id: 'stored' } });
client.embeddings({ input: ['a', 'b'], abortAfter: { ms: 10 } });
const session = new Session(client, { system: 'be brief' });
session.chat('hi');
session.chat('hi', { max_tokens: 5 });
session.chat('hi', { onToolCall: () => 'sunny', maxRounds: 3 });
const turn: TurnRequest = { temperature: 0 };
session.chat(messages, turn);
new llm.Session(client);

const byStages = trace.generate({ stages: [{ duration: '1m', target: 2 }], startRate: 1, mix: 'chat' });
trace.generate({ rate: 1, count: 100, mix: 'chat' });
trace.generate({ rate: 1, duration: '1m', mix: { short: 1 }, prefix: { tokens: 100 } });
trace.open('trace.csv', { speed: 2 });
trace.open('trace.csv', { rate: 2, prompts: { file: 'prompts.txt', fit: 'cl100k_base' } });

const request: Request = byStages.next();
client.chat({ ...request, temperature: 0 });
const { max_tokens, ...rest } = byStages.at(3);
client.chat({ ...rest, max_completion_tokens: max_tokens });
