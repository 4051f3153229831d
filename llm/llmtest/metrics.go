package llmtest

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"sync"
)

// The buckets are vLLM's (vllm/v1/metrics/loggers.py).
var (
	ttftBuckets = []float64{
		0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
	}
	itlBuckets = []float64{
		0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
	}
	latencyBuckets = []float64{
		0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
	}
)

type histogram struct {
	bounds []float64
	counts []uint64 // one more than bounds: the last is above all
	sum    float64
	n      uint64
}

func newHistogram(bounds []float64) histogram {
	return histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

func (h *histogram) observe(v float64) {
	h.counts[sort.SearchFloat64s(h.bounds, v)]++
	h.sum += v
	h.n++
}

// serverMetrics are the counts that the engine does not keep. Times are wall-clock seconds.
type serverMetrics struct {
	mu        sync.Mutex
	ttft      histogram
	itl       histogram
	e2e       histogram
	queueTime histogram
	finished  map[string]uint64 // by reason: stop, length, abort

	// Requests served at a fixed gap pass the engine by; these are theirs.
	fixedRunning int
	fixedPrompt  int64
	fixedOutput  int64
}

func newServerMetrics() *serverMetrics {
	return &serverMetrics{
		ttft:      newHistogram(ttftBuckets),
		itl:       newHistogram(itlBuckets),
		e2e:       newHistogram(latencyBuckets),
		queueTime: newHistogram(latencyBuckets),
		finished:  map[string]uint64{"stop": 0, "length": 0, "abort": 0},
	}
}

// render writes the metrics in Prometheus's text format, under vLLM's names and labels.
func (m *serverMetrics) render(model string, cfg Config, st Stats) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := promText{labels: `model_name="` + escapeLabel(model) + `",engine="0"`}
	p.family("vllm:num_requests_running", "gauge", "Number of requests in model execution batches.")
	p.value("vllm:num_requests_running", "", float64(st.Running+m.fixedRunning))
	p.family("vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed.")
	p.value("vllm:num_requests_waiting", "", float64(st.Waiting))
	p.family("vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.")
	p.value("vllm:kv_cache_usage_perc", "", st.KVUsage)

	p.counter("vllm:prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens.", st.PrefixQueries)
	p.counter("vllm:prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens.", st.PrefixHits)
	p.counter("vllm:num_preemptions_total", "Cumulative number of preemption from the engine.", st.Preemptions)
	p.counter("vllm:prompt_tokens_total", "Number of prefill tokens processed.", st.PromptTokens+m.fixedPrompt)
	p.counter("vllm:generation_tokens_total", "Number of generation tokens processed.", st.GenerationTokens+m.fixedOutput)

	p.family("vllm:request_success_total", "counter", "Count of successfully processed requests.")
	for _, reason := range []string{"stop", "length", "abort"} {
		p.value("vllm:request_success_total", `finished_reason="`+reason+`"`, float64(m.finished[reason]))
	}
	p.histogram("vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", &m.ttft)
	p.histogram("vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", &m.itl)
	p.histogram("vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", &m.e2e)
	p.histogram("vllm:request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", &m.queueTime)

	p.family("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig")
	p.labels = `engine="0"`
	p.value("vllm:cache_config_info", fmt.Sprintf(`block_size="%d",num_gpu_blocks="%d",enable_prefix_caching="%t"`,
		cfg.BlockSize, cfg.NumBlocks, !cfg.DisablePrefixCaching), 1)
	return []byte(p.b.String())
}

// promText builds Prometheus's text exposition format, version 0.0.4.
type promText struct {
	b      strings.Builder
	labels string
}

func (p *promText) family(name, kind, help string) {
	p.b.WriteString("# HELP " + name + " " + help + "\n# TYPE " + name + " " + kind + "\n")
}

func (p *promText) value(name, more string, v float64) {
	p.b.WriteString(name + "{" + p.labels)
	if more != "" {
		p.b.WriteString("," + more)
	}
	p.b.WriteString("} " + strconv.FormatFloat(v, 'g', -1, 64) + "\n")
}

func (p *promText) counter(name, help string, v int64) {
	p.family(name, "counter", help)
	p.value(name, "", float64(v))
}

func (p *promText) histogram(name, help string, h *histogram) {
	p.family(name, "histogram", help)
	var below uint64
	for i, bound := range h.bounds {
		below += h.counts[i]
		p.value(name+"_bucket", `le="`+strconv.FormatFloat(bound, 'g', -1, 64)+`"`, float64(below))
	}
	p.value(name+"_bucket", `le="+Inf"`, float64(h.n))
	p.value(name+"_sum", "", h.sum)
	p.value(name+"_count", "", float64(h.n))
}

func escapeLabel(s string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(s)
}
