// Package capacity searches for the Safe QPS: the highest request rate at which a service keeps its contract.
//
// It is a driver of probes and knows nothing of how one is run. A [Probe] offers one rate to the service for a while and
// returns a verdict; [Search] decides which rate comes next and for how long, and when the answer stands. Each decision
// is a pure function of the options and of the probes that have ended, so a search that is killed and resumed from its
// [State] goes on as if nothing had happened.
//
// Estimates (from throughput, from how near a latency came to its limit) only place probes; nothing but verdicts moves
// the bracket. docs/capacity-search.md has the method, its sources, and how often it errs on services whose true Safe
// QPS is known.
package capacity
