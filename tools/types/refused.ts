// What the module refuses as soon as a script runs, and its types refuse before. Each line below a comment must not compile.

import llm, { type Client } from 'k6/x/llm';
import trace from 'k6/x/llm/trace';

declare const client: Client;
const baseURL = 'http://127.0.0.1:8000';
const messages = [{ role: 'user', content: 'hi' }];

// @ts-expect-error a user leaves by tokens or by time, not both
client.chat({ messages, abortAfter: { tokens: 1, ms: 2 } });
// @ts-expect-error nor by neither
client.chat({ messages, abortAfter: {} });
// @ts-expect-error an embedding has no tokens to wait for
client.embeddings({ input: 'hi', abortAfter: { tokens: 1 } });
// @ts-expect-error no prompt
client.chat({});
// @ts-expect-error no prompt
client.asyncChat({ max_tokens: 5, model: 'm' });
// @ts-expect-error no prompt
client.completions({ max_tokens: 5 });
// @ts-expect-error no prompt
client.embeddings({ dimensions: 8 });
// @ts-expect-error messages are a list
client.chat({ messages: 'hi' });
// @ts-expect-error an encoding is a name
new llm.Client({ baseURL, tokenizer: 4 });
// @ts-expect-error a header is no list
new llm.Client({ baseURL, headers: { a: ['b'] } });
// @ts-expect-error an option that does not exist
new llm.Client({ baseURL, baseUrl: baseURL });
// @ts-expect-error no server
new llm.Client({});
// @ts-expect-error calls of tools that nobody runs are one round
new llm.Session(client).chat('hi', { maxRounds: 3 });

// @ts-expect-error no rate and no stages
trace.generate({ duration: '1m', mix: 'chat' });
// @ts-expect-error a rate or stages, not both
trace.generate({ rate: 1, stages: [{ duration: '1m', target: 2 }], mix: 'chat' });
// @ts-expect-error the first rate of stages, where there are none
trace.generate({ rate: 1, startRate: 1, duration: '1m', mix: 'chat' });
// @ts-expect-error no length
trace.generate({ rate: 1, mix: 'chat' });
// @ts-expect-error nothing to ask for
trace.generate({ rate: 1, duration: '1m' });
// @ts-expect-error a speed is a number
trace.open('trace.csv', { speed: '2' });
// @ts-expect-error an encoding is a name
trace.open('trace.csv', { prompts: { file: 'prompts.txt', fit: 4 } });
