// Checks that the three modules are there and what they offer. It needs no server:
//
//   ./k6 run smoke.test.js
//
// xk6's lint runs it too.
import { check } from 'k6';
import llm from 'k6/x/llm';
import trace from 'k6/x/llm/trace';
import gate, { handleSummary, monitor, open } from 'k6/x/llm/gate';

export const options = {
  vus: 1,
  iterations: 1,
  thresholds: { checks: ['rate==1'] },
};

const apis = ['chat', 'completions', 'responses', 'messages'];
const client = new llm.Client({ baseURL: 'http://127.0.0.1:1/v1', model: 'none', timeout: '1s' });
const workload = trace.generate({ rate: 2, count: 20, burstiness: 1, mix: 'short=1@128/32', seed: 7 });
const again = trace.generate({ rate: 2, count: 20, burstiness: 1, mix: 'short=1@128/32', seed: 7 });

function refuses(use) {
  try {
    use();
  } catch (err) {
    return String(err);
  }
  return '';
}
const withoutURL = refuses(() => new llm.Client({ model: 'none' }));
const missingTrace = refuses(() => trace.open('./no-such-trace.jsonl'));
const missingContract = refuses(() => gate.open('./no-such-contract.yaml'));

export default function () {
  check(client, {
    'a client has each API, blocking and not': (c) =>
      apis.every((name) => {
        const async = `async${name[0].toUpperCase()}${name.slice(1)}`;
        return typeof c[name] === 'function' && typeof c[async] === 'function';
      }),
    'a client without a URL is refused': () => withoutURL.includes('baseURL'),
  });

  const refused = client.chat({ messages: [{ role: 'user', content: 'Is anyone there?' }], max_tokens: 1 });
  check(refused, {
    'a request that reaches nobody has failed': (r) => r.ok === false && r.outcome === 'failed',
    'and says how': (r) => r.error.type === 'connect' && r.error.message !== '',
    'and has no latency': (r) => r.timings.ttft === null && r.timings.tpot === null && r.chunks === 0,
  });

  check(workload, {
    'a workload gives scenarios': (w) => w.scenario({ preAllocatedVUs: 1 }).executor === 'trace-arrival-rate',
    'a workload has a summary': (w) => w.summary().rows === 20,
    'the same seed gives the same workload': (w) => JSON.stringify(w.summary()) === JSON.stringify(again.summary()),
    'a missing trace is named': () => missingTrace.includes('no-such-trace.jsonl'),
  });

  check(gate, {
    'the gate is there': (g) => [g.open, g.monitor, g.handleSummary].every((f) => typeof f === 'function'),
    'by name, too': () => [open, monitor, handleSummary].every((f) => typeof f === 'function'),
    'a missing contract is named': () => missingContract.includes('no-such-contract.yaml'),
  });
}
