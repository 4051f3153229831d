// Package llmtest is a simulated LLM inference engine worth believing: it batches, queues, caches, preempts
// and slows down under load the way a production engine does, and it says exactly when it wrote each token.
//
// It has three layers, and each can be used alone:
//
//   - [Engine]: the scheduler, a pure state machine driven step by step with explicit time. It has no clock, no
//     goroutine and no socket. It follows vLLM V1: continuous batching with a token budget per step, running
//     requests before waiting ones, chunked prefill, a paged KV cache whose full blocks are reused by chained
//     hash and evicted least recently used first, and preemption by recomputation when blocks run out.
//   - [Simulate] and [Sim]: the engine on a virtual clock. Thousands of simulated seconds take milliseconds,
//     and equal inputs give equal outputs.
//   - [Server]: the engine on the wall clock behind an OpenAI-compatible HTTP API with vLLM's /metrics, with
//     faults on demand (see [Fault]). Each streamed chunk carries "sim_sent_ns", the wall-clock nanosecond at
//     which it was handed to the socket, so that a client can be measured against the truth.
//
// What it does not model: speculative decoding, several replicas, quality of text, the growth of decode time
// with context length. A step costs base + prefill tokens + decoding sequences, and nothing else.
//
// Sources for the behaviour: vLLM's vllm/v1/core/sched/scheduler.py, vllm/v1/core/kv_cache_manager.py,
// vllm/v1/core/block_pool.py and vllm/v1/metrics/loggers.py.
package llmtest
