// Package scrape reads what inference servers say of themselves on their Prometheus endpoints, and brings the names that
// vLLM, SGLang, TGI, llama.cpp, TensorRT-LLM (trtllm-serve and Triton), NVIDIA Dynamo and the DCGM exporter use to one
// set of quantities. A quantity that an endpoint does not have stays absent.
package scrape

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// Reading is the state of one or more servers at one moment. Nil means that nobody said.
type Reading struct {
	// Engine is which family of names was found; "" where none was.
	Engine string
	// URL is the endpoint that was read; "" for several joined ones, and for a page that was parsed by itself.
	URL string

	QueueDepth   *float64 // requests waiting; the sum over replicas
	Running      *float64 // requests being served; the sum over replicas
	KVCacheUsage *float64 // 0 to 1; of the fullest replica

	// PrefixHitRatio is a ratio that the server computes itself, over a window of its own.
	PrefixHitRatio *float64

	// Counters since the servers started; Since turns them into what happened between two readings.
	PrefixQueries  *float64 // tokens, or blocks, looked up in the prefix cache
	PrefixHits     *float64 // and found there
	Preemptions    *float64
	QueueTimeSum   *float64 // seconds
	QueueTimeCount *float64

	// From a DCGM exporter.
	GPUUtilisation *float64 // 0 to 1; the mean over GPUs
	GPUMemoryUsed  *float64 // bytes; the sum over GPUs

	// NotMeasured says of quantities that are absent although somebody should have said them why: what was there is no
	// measurement (results.Gauge), or one of several replicas lacks it (Join). Nil where there is none.
	NotMeasured map[string]string
}

// The quantities, as NotMeasured names them.
const (
	queueDepth     = "queue_depth"
	running        = "running"
	kvCacheUsage   = "kv_cache_usage"
	prefixHitRatio = "prefix_hit_ratio"
	prefixQueries  = "prefix_queries"
	prefixHits     = "prefix_hits"
	preemptions    = "preemptions"
	queueTimeSum   = "queue_time_sum"
	queueTimeCount = "queue_time_count"
	gpuUtilisation = "gpu_utilisation"
	gpuMemory      = "gpu_memory"
)

// OfGPU says whether a quantity of NotMeasured is a GPU exporter's.
func OfGPU(quantity string) bool { return quantity == gpuUtilisation || quantity == gpuMemory }

// at is where the reading has a quantity.
func (r *Reading) at(quantity string) **float64 {
	return map[string]**float64{
		queueDepth: &r.QueueDepth, running: &r.Running, kvCacheUsage: &r.KVCacheUsage, prefixHitRatio: &r.PrefixHitRatio,
		prefixQueries: &r.PrefixQueries, prefixHits: &r.PrefixHits, preemptions: &r.Preemptions, queueTimeSum: &r.QueueTimeSum,
		queueTimeCount: &r.QueueTimeCount, gpuUtilisation: &r.GPUUtilisation, gpuMemory: &r.GPUMemoryUsed,
	}[quantity]
}

// fill sets a quantity that is not known yet; false where there is nothing to know.
func (r *Reading) fill(quantity string, f found) bool {
	into := r.at(quantity)
	if _, bad := r.NotMeasured[quantity]; bad || *into != nil {
		return false // an engine that was tried before has it
	}
	if f.bad != "" {
		r.notMeasured(quantity, f.bad)

		return true
	}
	*into = f.value

	return f.value != nil
}

func (r *Reading) notMeasured(quantity, why string) {
	if r.NotMeasured == nil {
		r.NotMeasured = map[string]string{}
	}
	r.NotMeasured[quantity] = why
}

// series selects samples of a metric family, by one label where a family holds several quantities.
type series struct {
	name         string
	label, value string
}

// engine maps one server's names. The first series that exists is taken.
type engine struct {
	name                           string
	queue, running, kv             []series
	hitRatio, queries, hits        []series
	preemptions                    []series
	queueTime                      []string // histograms or summaries, in seconds
	noHitRatio                     *float64 // what it gives for a ratio that it does not have
	kvIsPercent, hitRatioIsPercent bool
}

func named(names ...string) []series {
	out := make([]series, len(names))
	for i, name := range names {
		out[i] = series{name: name}
	}

	return out
}

// engines are in the order in which they are tried: a Dynamo frontend may show its workers' names too.
//
// Sources: vLLM vllm/v1/metrics/loggers.py (V1) and its V0 predecessor; SGLang's metrics collector; the metrics
// documentation of TGI; llama.cpp tools/server/README.md; the TensorRT-LLM backend's custom metrics and trtllm-serve's
// /prometheus/metrics; the Dynamo metrics documentation.
var engines = []engine{ //nolint:gochecknoglobals // a constant table
	{
		name:        "vllm",
		queue:       named("vllm:num_requests_waiting"),
		running:     named("vllm:num_requests_running"),
		kv:          named("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
		hitRatio:    named("vllm:gpu_prefix_cache_hit_rate"),
		noHitRatio:  new(-1.0), // V0: "-1 means not supported or disabled"
		queries:     named("vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries_total"),
		hits:        named("vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits_total"),
		preemptions: named("vllm:num_preemptions_total", "vllm:num_preemptions"),
		queueTime:   []string{"vllm:request_queue_time_seconds"},
	},
	{
		name:      "sglang",
		queue:     named("sglang:num_queue_reqs", "sglang_num_queue_reqs"),
		running:   named("sglang:num_running_reqs", "sglang_num_running_reqs"),
		kv:        named("sglang:token_usage", "sglang_token_usage"),
		hitRatio:  named("sglang:cache_hit_rate", "sglang_cache_hit_rate"),
		queries:   named("sglang:prompt_tokens_total"),
		hits:      named("sglang:cached_tokens_total"),
		queueTime: []string{"sglang:queue_time_seconds"},
	},
	{
		name:      "tgi",
		queue:     named("tgi_queue_size"),
		running:   named("tgi_batch_current_size"),
		queueTime: []string{"tgi_request_queue_duration"},
	},
	{
		name:    "llama.cpp",
		queue:   named("llamacpp:requests_deferred"),
		running: named("llamacpp:requests_processing"),
		kv:      named("llamacpp:kv_cache_usage_ratio"),
	},
	{
		name:      "trtllm-serve",
		queue:     named("trtllm_num_requests_waiting"),
		running:   named("trtllm_num_requests_running"),
		kv:        named("trtllm_kv_cache_utilization"),
		hitRatio:  named("trtllm_kv_cache_hit_rate"),
		queueTime: []string{"trtllm_request_queue_time_seconds"},
	},
	{
		name:    "triton",
		queue:   []series{{"nv_trt_llm_request_metrics", "request_type", "waiting"}},
		running: []series{{"nv_trt_llm_request_metrics", "request_type", "scheduled"}},
		kv:      []series{{"nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "fraction"}},
	},
	{
		name:              "dynamo",
		queue:             named("dynamo_frontend_queued_requests"),
		running:           named("dynamo_frontend_inflight_requests"),
		kv:                named("dynamo_component_kvstats_gpu_cache_usage_percent"),
		hitRatio:          named("dynamo_component_kvstats_gpu_prefix_cache_hit_rate"),
		kvIsPercent:       true,
		hitRatioIsPercent: false,
	},
}

var dcgmUtilisation, dcgmMemory = named("DCGM_FI_DEV_GPU_UTIL"), named("DCGM_FI_DEV_FB_USED") //nolint:gochecknoglobals // constants

// ErrNothingKnown is returned for an endpoint that has metrics, but none that this package knows.
var ErrNothingKnown = errors.New(
	"no metric of vLLM, SGLang, TGI, llama.cpp, TensorRT-LLM, Triton, Dynamo or the DCGM exporter is there")

// Parse reads one exposition in Prometheus' text format, by the names of every engine and of the DCGM exporter.
func Parse(text io.Reader) (Reading, error) { return parse(text, all) }

// names says whose names are looked for.
type names struct {
	engine string // "" for every one's
	gpu    bool   // the DCGM exporter's
	none   error  // what it means that none of them is there
}

var all = names{gpu: true, none: ErrNothingKnown} //nolint:gochecknoglobals // a constant

func parse(text io.Reader, wanted names) (Reading, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return Reading{}, fmt.Errorf("reading Prometheus metrics: %w", err)
	}
	r := Reading{}
	known := false
	for i := range engines {
		if wanted.engine != "" && engines[i].name != wanted.engine {
			continue
		}
		if r.take(&engines[i], families) {
			known = true
			if r.Engine == "" {
				r.Engine = engines[i].name
			}
		}
	}
	if wanted.gpu {
		known = r.fill(gpuUtilisation, read(families, dcgmUtilisation, gpuUtilisation, 0.01).mean()) || known
		known = r.fill(gpuMemory, read(families, dcgmMemory, gpuMemory, 1<<20).sum()) || known
	}
	if !known {
		return Reading{}, wanted.none
	}

	return r, nil
}

// take fills what is still absent from one engine's names.
func (r *Reading) take(e *engine, families map[string]*dto.MetricFamily) bool {
	percent := func(is bool) float64 {
		if is {
			return 0.01
		}

		return 1
	}
	hitRatio := read(families, e.hitRatio, prefixHitRatio, percent(e.hitRatioIsPercent))
	if e.noHitRatio != nil {
		hitRatio = hitRatio.without(*e.noHitRatio)
	}
	known := false
	for _, q := range []struct {
		quantity string
		found    found
	}{
		{queueDepth, read(families, e.queue, queueDepth, 1).sum()},
		{running, read(families, e.running, running, 1).sum()},
		{kvCacheUsage, read(families, e.kv, kvCacheUsage, percent(e.kvIsPercent)).highest()},
		{prefixHitRatio, hitRatio.mean()},
		{prefixQueries, read(families, e.queries, prefixQueries, 1).sum()},
		{prefixHits, read(families, e.hits, prefixHits, 1).sum()},
		{preemptions, read(families, e.preemptions, preemptions, 1).sum()},
		{queueTimeSum, spent(families, e.queueTime, "_sum").sum()},
		{queueTimeCount, spent(families, e.queueTime, "_count").sum()},
	} {
		known = r.fill(q.quantity, q.found) || known
	}

	return known
}

// samples are what a page has of one quantity: of each engine, GPU or replica behind it.
type samples struct {
	quantity string
	name     string // the server's own
	scale    float64
	values   []float64 // as the server gives them
}

// found is what they come to: nothing where there are none, and bad where one of them is no measurement, since without it the
// others would look like the whole.
type found struct {
	value *float64
	bad   string
}

// read takes the first series that exists.
func read(families map[string]*dto.MetricFamily, candidates []series, quantity string, scale float64) samples {
	s := samples{quantity: quantity, scale: scale}
	each(families, candidates, func(name string, v float64) {
		s.name = name
		s.values = append(s.values, v)
	})

	return s
}

// without leaves out a value by which a server says that it has none.
func (s samples) without(none float64) samples {
	s.values = slices.DeleteFunc(s.values, func(v float64) bool { return v == none })

	return s
}

func (s samples) fold(join func(so, v float64) float64) found {
	var f found
	for _, raw := range s.values {
		v, ok := results.Gauge(s.quantity, raw*s.scale)
		if !ok {
			return found{bad: results.NoMeasurement(s.name, raw)}
		}
		if f.value != nil {
			v = join(*f.value, v)
		}
		f.value = &v
	}

	return f
}

func (s samples) sum() found { return s.fold(func(so, v float64) float64 { return so + v }) }

func (s samples) highest() found { return s.fold(func(so, v float64) float64 { return max(so, v) }) }

func (s samples) mean() found {
	f := s.sum()
	f.value = scaled(f.value, 1/float64(max(len(s.values), 1)))

	return f
}

// each calls yield with the values of the first series that exists.
func each(families map[string]*dto.MetricFamily, candidates []series, yield func(name string, v float64)) {
	for _, s := range candidates {
		family, ok := families[s.name]
		if !ok {
			continue
		}
		found := false
		for _, m := range family.GetMetric() {
			if s.label != "" && !hasLabel(m, s.label, s.value) {
				continue
			}
			if v, ok := value(m); ok {
				found = true
				yield(s.name, v)
			}
		}
		if found {
			return
		}
	}
}

func hasLabel(m *dto.Metric, name, value string) bool {
	for _, l := range m.GetLabel() {
		if l.GetName() == name && l.GetValue() == value {
			return true
		}
	}

	return false
}

func value(m *dto.Metric) (float64, bool) {
	switch {
	case m.Gauge != nil:
		return m.GetGauge().GetValue(), true
	case m.Counter != nil:
		return m.GetCounter().GetValue(), true
	case m.Untyped != nil:
		return m.GetUntyped().GetValue(), true
	default:
		return 0, false
	}
}

func scaled(v *float64, by float64) *float64 {
	if v == nil {
		return nil
	}
	out := *v * by

	return &out
}

// spent is the sum or the count of a histogram or summary, of each of its series.
func spent(families map[string]*dto.MetricFamily, names []string, part string) samples {
	for _, name := range names {
		family, ok := families[name]
		if !ok {
			continue
		}
		s := samples{quantity: "queue_time" + part, name: name + part, scale: 1}
		for _, m := range family.GetMetric() {
			v := m.GetHistogram().GetSampleSum() + m.GetSummary().GetSampleSum()
			if part == "_count" {
				v = float64(m.GetHistogram().GetSampleCount() + m.GetSummary().GetSampleCount())
			}
			s.values = append(s.values, v)
		}

		return s
	}

	return samples{}
}

// Since is what happened between two readings of the same servers.
type Since struct {
	PrefixHitRatio *float64 // nil where nothing was looked up
	Preemptions    *float64
	QueueTime      *float64 // mean, in seconds, of the requests that left the queue; nil where none did
}

// Between compares two readings. A counter that went back (a server restarted) tells nothing. One that appeared was 0
// until then: many servers show a counter only from its first event on. One that was no measurement was something else.
func Between(before, now Reading) Since {
	var s Since
	if before.Engine == now.Engine {
		for _, counter := range []string{prefixQueries, prefixHits, preemptions, queueTimeSum, queueTimeCount} {
			if _, bad := before.NotMeasured[counter]; !bad && *before.at(counter) == nil {
				*before.at(counter) = new(float64)
			}
		}
	}
	queries, hits := grown(before.PrefixQueries, now.PrefixQueries), grown(before.PrefixHits, now.PrefixHits)
	if queries != nil && hits != nil && *queries > 0 {
		s.PrefixHitRatio = scaled(hits, 1 / *queries)
	}
	s.Preemptions = grown(before.Preemptions, now.Preemptions)
	waited, n := grown(before.QueueTimeSum, now.QueueTimeSum), grown(before.QueueTimeCount, now.QueueTimeCount)
	if waited != nil && n != nil && *n > 0 {
		s.QueueTime = scaled(waited, 1 / *n)
	}

	return s
}

func grown(before, now *float64) *float64 {
	if before == nil || now == nil || *now < *before {
		return nil
	}
	d := *now - *before

	return &d
}

// maxBytes bounds an exposition, since parsing takes some 25 times its size. vLLM's own is tens of kilobytes for an engine
// and a model, a DCGM exporter's some kilobytes for a GPU: a hundred of either fit. What does not fit is a page such as that of
// vLLM issue 44691 (a whole model configuration in a label, 22 MB), which Prometheus' own users had to fence off, too.
const maxBytes = 8 << 20

// errTooLong is what a longer one gives: a part of a page would have wrong sums.
var errTooLong = fmt.Errorf("the page is longer than %d MiB: is it the metrics of one server?", maxBytes>>20)

// bounded reads up to maxBytes, and fails beyond them.
type bounded struct {
	from io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if len(p) > b.left+1 {
		p = p[:b.left+1] // one more than allowed tells that there is more
	}
	n, err := b.from.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, errTooLong
	}

	return n, err //nolint:wrapcheck // io.EOF has to stay what it is
}

// Fetch reads one endpoint, by the names of every engine and of the DCGM exporter.
func Fetch(ctx context.Context, client *http.Client, url string) (Reading, error) {
	return fetch(ctx, client, url, all)
}

// FetchEngine reads one endpoint by the names of one engine, which is called as contracts do (contract.Engines): a page that
// shows several engines' names, such as a router's, then gives those of the engine that is asked for. "auto" and "" take the
// first engine's that is found.
func FetchEngine(ctx context.Context, client *http.Client, url, name string) (Reading, error) {
	if name == "" || name == "auto" {
		return Fetch(ctx, client, url)
	}
	own := map[string]string{"llamacpp": "llama.cpp", "tensorrt-llm": "trtllm-serve"}
	if as, ok := own[name]; ok {
		name = as
	}

	return fetch(ctx, client, url, names{engine: name, gpu: true, none: fmt.Errorf("no metric of %s is there", name)})
}

// FetchGPU reads a DCGM exporter, and of a page that holds other metrics too nothing else.
func FetchGPU(ctx context.Context, client *http.Client, url string) (Reading, error) {
	return fetch(ctx, client, url, names{engine: "none", gpu: true, none: errors.New("no metric of the DCGM exporter is there")})
}

func fetch(ctx context.Context, client *http.Client, url string, wanted names) (Reading, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Reading{}, fmt.Errorf("metrics endpoint: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return Reading{}, fmt.Errorf("metrics endpoint: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return Reading{}, fmt.Errorf("metrics endpoint %s: got status %d, expected 200", url, resp.StatusCode)
	}
	r, err := parse(&bounded{from: resp.Body, left: maxBytes}, wanted)
	if err != nil {
		return r, fmt.Errorf("metrics endpoint %s: %w", url, err)
	}

	r.URL = url

	return r, nil
}

// Healthy asks a health endpoint; nil means that it answered 2xx.
func Healthy(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("health endpoint: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("health endpoint: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("health endpoint %s: got status %d, expected 2xx", url, resp.StatusCode)
	}

	return nil
}
