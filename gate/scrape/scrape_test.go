package scrape_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/scrape"
)

func parse(t *testing.T, text string) scrape.Reading {
	t.Helper()
	r, err := scrape.Parse(strings.NewReader(text))
	require.NoError(t, err)

	return r
}

func v(f float64) *float64 { return &f }

func TestNamesOfEachEngine(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text string
		want scrape.Reading
	}{
		"vllm, two data-parallel engines": {
			`# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 3
vllm:num_requests_waiting{engine="1",model_name="m"} 4
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} 8
vllm:num_requests_running{engine="1"} 8
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:kv_cache_usage_perc{engine="1"} 0.75
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total 1000
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total 250
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total 2
# TYPE vllm:request_queue_time_seconds histogram
vllm:request_queue_time_seconds_bucket{le="1"} 3
vllm:request_queue_time_seconds_bucket{le="+Inf"} 4
vllm:request_queue_time_seconds_sum 6
vllm:request_queue_time_seconds_count 4
`,
			scrape.Reading{
				Engine: "vllm", QueueDepth: v(7), Running: v(16), KVCacheUsage: v(0.75), PrefixQueries: v(1000), PrefixHits: v(250),
				Preemptions: v(2), QueueTimeSum: v(6), QueueTimeCount: v(4),
			},
		},
		"sglang": {
			"sglang:num_queue_reqs 5\nsglang:num_running_reqs 6\nsglang:token_usage 0.25\nsglang:cache_hit_rate 0.5\n",
			scrape.Reading{Engine: "sglang", QueueDepth: v(5), Running: v(6), KVCacheUsage: v(0.25), PrefixHitRatio: v(0.5)},
		},
		"tgi": {
			"tgi_queue_size 2\ntgi_batch_current_size 4\n",
			scrape.Reading{Engine: "tgi", QueueDepth: v(2), Running: v(4)},
		},
		"llama.cpp": {
			"llamacpp:requests_deferred 1\nllamacpp:requests_processing 2\nllamacpp:predicted_tokens_seconds nan\n",
			scrape.Reading{Engine: "llama.cpp", QueueDepth: v(1), Running: v(2)},
		},
		"trtllm-serve": {
			"trtllm_num_requests_waiting 1\ntrtllm_num_requests_running 2\ntrtllm_kv_cache_utilization 0.5\ntrtllm_kv_cache_hit_rate 0.25\n",
			scrape.Reading{Engine: "trtllm-serve", QueueDepth: v(1), Running: v(2), KVCacheUsage: v(0.5), PrefixHitRatio: v(0.25)},
		},
		"triton": {
			`nv_trt_llm_request_metrics{request_type="waiting",model="m"} 9
nv_trt_llm_request_metrics{request_type="scheduled",model="m"} 3
nv_trt_llm_request_metrics{request_type="max",model="m"} 512
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction"} 0.125
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max"} 1000
`,
			scrape.Reading{Engine: "triton", QueueDepth: v(9), Running: v(3), KVCacheUsage: v(0.125)},
		},
		"dynamo": {
			"dynamo_frontend_queued_requests 4\ndynamo_frontend_inflight_requests 12\n" +
				"dynamo_component_kvstats_gpu_cache_usage_percent 50\n",
			scrape.Reading{Engine: "dynamo", QueueDepth: v(4), Running: v(12), KVCacheUsage: v(0.5)},
		},
		"dcgm": {
			"DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 90\nDCGM_FI_DEV_GPU_UTIL{gpu=\"1\"} 70\nDCGM_FI_DEV_FB_USED{gpu=\"0\"} 2\n",
			scrape.Reading{GPUUtilisation: v(0.8), GPUMemoryUsed: v(2 << 20)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, parse(t, tt.text))
		})
	}
}

func TestWhatIsNotThereIsAnError(t *testing.T) {
	t.Parallel()
	_, err := scrape.Parse(strings.NewReader("process_cpu_seconds_total 3\n"))
	require.ErrorIs(t, err, scrape.ErrNothingKnown)
	_, err = scrape.Parse(strings.NewReader("<html>"))
	require.ErrorContains(t, err, "reading Prometheus metrics")
}

func TestReplicasAddUp(t *testing.T) {
	t.Parallel()
	joined := scrape.Join(
		scrape.Reading{Engine: "vllm", QueueDepth: v(1), KVCacheUsage: v(0.5), PrefixHitRatio: v(0.2)},
		scrape.Reading{Engine: "vllm", QueueDepth: v(2), KVCacheUsage: v(0.9), PrefixHitRatio: v(0.4)},
		scrape.Reading{GPUUtilisation: v(0.5)},
	)
	require.Equal(t, v(3), joined.QueueDepth)
	require.Equal(t, v(0.9), joined.KVCacheUsage)
	require.InDelta(t, 0.3, *joined.PrefixHitRatio, 1e-12)
	require.Equal(t, v(0.5), joined.GPUUtilisation)
	require.Nil(t, joined.Running)
	require.Nil(t, joined.Preemptions)
}

// What one replica does not say is no zero: a sum, a mean or a maximum of the others would look like less load.
func TestAReplicaThatLacksAMetricIsNoZero(t *testing.T) {
	t.Parallel()
	at := func(url, page string) scrape.Reading {
		r := parse(t, page)
		r.URL = url

		return r
	}
	const all = "vllm:num_requests_waiting 0\nvllm:num_requests_running 2\nvllm:kv_cache_usage_perc 0.1\n"
	idle := at("http://a/metrics", all)
	for _, c := range []struct {
		name, page string
		missing    map[string]string
	}{
		{"all of them", all, nil},
		{"running alone", "vllm:num_requests_running 3\n", map[string]string{
			"queue_depth":    "http://b/metrics has no vllm:num_requests_waiting, which other replicas have",
			"kv_cache_usage": "http://b/metrics has no vllm:kv_cache_usage_perc, which other replicas have",
		}},
		{"waiting alone", "vllm:num_requests_waiting 3\nvllm:kv_cache_usage_perc 0.1\n", map[string]string{
			"running": "http://b/metrics has no vllm:num_requests_running, which other replicas have",
		}},
		{
			"another engine", "nv_trt_llm_request_metrics{request_type=\"scheduled\"} 1\nnv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\"} 0.5\n",
			map[string]string{
				"queue_depth": "http://b/metrics has no nv_trt_llm_request_metrics{request_type=\"waiting\"}, which other replicas have",
			},
		},
	} {
		for _, joined := range []scrape.Reading{scrape.Join(idle, at("http://b/metrics", c.page)), scrape.Join(at("http://b/metrics", c.page), idle)} {
			require.Equal(t, c.missing, joined.NotMeasured, c.name)
			for quantity, value := range map[string]*float64{"queue_depth": joined.QueueDepth, "running": joined.Running, "kv_cache_usage": joined.KVCacheUsage} {
				require.Equal(t, c.missing[quantity] == "", value != nil, c.name+": "+quantity)
			}
		}
	}

	// A kind of engine that never has it is no gap, and the others' part is no measurement of the whole.
	mixed := scrape.Join(
		at("http://a/metrics", all+"vllm:num_preemptions_total 4\n"),
		at("http://b/metrics", "tgi_queue_size 1\ntgi_batch_current_size 2\n"),
		scrape.Reading{GPUUtilisation: v(0.5)},
	)
	require.Equal(t, v(1), mixed.QueueDepth)
	require.Equal(t, v(4), mixed.Running)
	require.Nil(t, mixed.KVCacheUsage)
	require.Nil(t, mixed.Preemptions)
	require.Equal(t, v(0.5), mixed.GPUUtilisation, "which is no replica")
	require.Nil(t, mixed.NotMeasured)

	// A counter may appear with its first event, and is 0 until then.
	counted := scrape.Join(at("http://a/metrics", all+"vllm:num_preemptions_total 4\n"), at("http://b/metrics", all))
	require.Equal(t, v(4), counted.Preemptions)
	require.Nil(t, counted.NotMeasured)

	// So it is with the GPUs.
	gpus := scrape.Join(
		at("http://a:9400/metrics", "DCGM_FI_DEV_GPU_UTIL 90\nDCGM_FI_DEV_FB_USED 2\n"), at("http://b:9400/metrics", "DCGM_FI_DEV_GPU_UTIL 70\n"), idle,
	)
	require.InDelta(t, 0.8, *gpus.GPUUtilisation, 1e-12)
	require.Nil(t, gpus.GPUMemoryUsed)
	require.Equal(t, map[string]string{"gpu_memory": "http://b:9400/metrics has no DCGM_FI_DEV_FB_USED, which other exporters have"}, gpus.NotMeasured)
}

func TestBetweenTwoReadings(t *testing.T) {
	t.Parallel()
	before := scrape.Reading{
		PrefixQueries: v(100), PrefixHits: v(10), Preemptions: v(3), QueueTimeSum: v(1), QueueTimeCount: v(2),
	}
	now := scrape.Reading{
		PrefixQueries: v(300), PrefixHits: v(60), Preemptions: v(5), QueueTimeSum: v(4), QueueTimeCount: v(8),
	}
	require.Equal(t, scrape.Since{PrefixHitRatio: v(0.25), Preemptions: v(2), QueueTime: v(0.5)}, scrape.Between(before, now))
	require.Equal(t, scrape.Since{}, scrape.Between(now, before), "a server that restarted tells nothing")
	require.Equal(t, scrape.Since{Preemptions: v(0)}, scrape.Between(now, now), "nothing looked up is no ratio of zero")
}

// A client library may show a counter from its first event on: then it was 0 before, and that event counts.
func TestACounterThatAppearsBetweenTwoReadings(t *testing.T) {
	t.Parallel()
	idle := parse(t, "vllm:num_requests_waiting 0\n")
	busy := parse(t, `vllm:num_requests_waiting 0
vllm:prefix_cache_queries 200
vllm:prefix_cache_hits 50
vllm:num_preemptions_total 1
# TYPE vllm:request_queue_time_seconds histogram
vllm:request_queue_time_seconds_bucket{le="+Inf"} 5
vllm:request_queue_time_seconds_sum 2
vllm:request_queue_time_seconds_count 5
`)
	require.Equal(t, scrape.Since{PrefixHitRatio: v(0.25), Preemptions: v(1), QueueTime: v(0.4)}, scrape.Between(idle, busy))
	require.Equal(t, scrape.Since{}, scrape.Between(scrape.Reading{}, busy), "what came before the first reading is not known")
	require.Equal(t, scrape.Since{}, scrape.Between(parse(t, "tgi_queue_size 0\n"), busy), "another server")
	require.Equal(t, scrape.Since{}, scrape.Between(busy, idle))
}

func TestCapturesOfRealServers(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "..", "..", "shared", "captures")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("the captures of real servers are not here")
	}
	for file, engine := range map[string]string{
		"sim/metrics_busy.prom": "vllm", "sim/metrics_idle.prom": "vllm", "llama/metrics.prom": "llama.cpp",
	} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		r := parse(t, string(text))
		require.Equal(t, engine, r.Engine, file)
		require.NotNil(t, r.QueueDepth, file)
		require.NotNil(t, r.Running, file)
	}
}

func TestFetch(t *testing.T) {
	t.Parallel()
	status := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte("tgi_queue_size 2\n"))
	}))
	defer s.Close()
	r, err := scrape.Fetch(t.Context(), s.Client(), s.URL)
	require.NoError(t, err)
	require.Equal(t, v(2), r.QueueDepth)
	require.NoError(t, scrape.Healthy(t.Context(), s.Client(), s.URL))
	status = http.StatusServiceUnavailable
	_, err = scrape.Fetch(t.Context(), s.Client(), s.URL)
	require.ErrorContains(t, err, "got status 503, expected 200")
	require.ErrorContains(t, scrape.Healthy(t.Context(), s.Client(), s.URL), "got status 503, expected 2xx")
}

// A page that does not end is cut by an error, not by a sum of a part of it.
func TestAPageThatIsTooLongIsRefused(t *testing.T) {
	t.Parallel()
	const limit = 8 << 20
	size := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		page := "tgi_queue_size 2\n#" + strings.Repeat("x", size-len("tgi_queue_size 2\n#\n")) + "\n"
		_, _ = w.Write([]byte(page))
	}))
	defer s.Close()
	size = limit
	r, err := scrape.Fetch(t.Context(), s.Client(), s.URL)
	require.NoError(t, err)
	require.Equal(t, v(2), r.QueueDepth)
	size = limit + 1
	_, err = scrape.Fetch(t.Context(), s.Client(), s.URL)
	require.ErrorContains(t, err, s.URL)
	require.ErrorContains(t, err, "the page is longer than 8 MiB")
}

func FuzzParse(f *testing.F) {
	f.Add("vllm:num_requests_waiting 1\n")
	f.Add("# TYPE vllm:request_queue_time_seconds histogram\nvllm:request_queue_time_seconds_sum 1\n")
	f.Fuzz(func(_ *testing.T, text string) {
		_, _ = scrape.Parse(strings.NewReader(text)) // must not panic
	})
}

func TestOneEngineIsAskedFor(t *testing.T) {
	t.Parallel()
	page := "vllm:num_requests_waiting 3\nsglang:num_queue_reqs 5\nllamacpp:requests_deferred 7\ntrtllm_num_requests_waiting 9\n" +
		"DCGM_FI_DEV_GPU_UTIL 40\n"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(page)) }))
	t.Cleanup(s.Close)
	for name, want := range map[string]float64{"auto": 3, "": 3, "vllm": 3, "sglang": 5, "llamacpp": 7, "tensorrt-llm": 9} {
		r, err := scrape.FetchEngine(t.Context(), s.Client(), s.URL, name)
		require.NoError(t, err, name)
		require.Equal(t, v(want), r.QueueDepth, name)
		require.Equal(t, v(0.4), r.GPUUtilisation)
	}
	r, err := scrape.FetchGPU(t.Context(), s.Client(), s.URL)
	require.NoError(t, err)
	require.Equal(t, scrape.Reading{URL: s.URL, GPUUtilisation: v(0.4)}, r, "the server's own numbers are not counted a second time")
	page = "vllm:num_requests_waiting 3\n"
	for _, name := range contract.Engines() {
		_, err = scrape.FetchEngine(t.Context(), s.Client(), s.URL, name)
		if name == "auto" || name == "vllm" {
			require.NoError(t, err)

			continue
		}
		require.ErrorContains(t, err, "no metric of ", name)
	}
	_, err = scrape.FetchGPU(t.Context(), s.Client(), s.URL)
	require.ErrorContains(t, err, "no metric of the DCGM exporter is there")
}

// What is no measurement is told by the server's own name and the value, and its quantity is absent: for all replicas, since the
// others alone would look like less load.
func TestNoMeasurements(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line, quantity, want string
	}{
		{"vllm:num_requests_waiting -5", "queue_depth", "vllm:num_requests_waiting was -5"},
		{"vllm:num_requests_waiting NaN", "queue_depth", "vllm:num_requests_waiting was NaN"},
		{"vllm:num_requests_running +Inf", "running", "vllm:num_requests_running was +Inf"},
		{"vllm:num_requests_running 1e300", "running", "vllm:num_requests_running was 1e+300"},
		{"vllm:num_requests_running{engine=\"0\"} 5\nvllm:num_requests_running{engine=\"1\"} -5", "running", "vllm:num_requests_running was -5"},
		{"vllm:gpu_cache_usage_perc 7.5", "kv_cache_usage", "vllm:gpu_cache_usage_perc was 7.5"},
		{"vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\nvllm:kv_cache_usage_perc{engine=\"1\"} -0.1", "kv_cache_usage", "vllm:kv_cache_usage_perc was -0.1"},
		{"dynamo_component_kvstats_gpu_cache_usage_percent 750", "kv_cache_usage", "dynamo_component_kvstats_gpu_cache_usage_percent was 750"},
		{"sglang:cache_hit_rate 1.5", "prefix_hit_ratio", "sglang:cache_hit_rate was 1.5"},
		{"vllm:prefix_cache_queries_total -1", "prefix_queries", "vllm:prefix_cache_queries_total was -1"},
		{"vllm:prefix_cache_hits_total +Inf", "prefix_hits", "vllm:prefix_cache_hits_total was +Inf"},
		{"vllm:num_preemptions_total NaN", "preemptions", "vllm:num_preemptions_total was NaN"},
		{"# TYPE tgi_request_queue_duration summary\ntgi_request_queue_duration_sum -1\ntgi_request_queue_duration_count 2", "queue_time_sum", "tgi_request_queue_duration_sum was -1"},
		{"DCGM_FI_DEV_GPU_UTIL 250", "gpu_utilisation", "DCGM_FI_DEV_GPU_UTIL was 250"},
		{"DCGM_FI_DEV_FB_USED{gpu=\"0\"} 5\nDCGM_FI_DEV_FB_USED{gpu=\"1\"} 9223372036854775794", "gpu_memory", "DCGM_FI_DEV_FB_USED was 9.223372036854776e+18"},
	} {
		r := parse(t, c.line+"\n")
		require.Equal(t, map[string]string{c.quantity: c.want + ", which is no measurement"}, r.NotMeasured, c.line)
		for _, value := range []*float64{
			r.QueueDepth, r.Running, r.KVCacheUsage, r.PrefixHitRatio, r.PrefixQueries, r.PrefixHits, r.Preemptions, r.QueueTimeSum,
			r.GPUUtilisation, r.GPUMemoryUsed,
		} {
			require.Nil(t, value, c.line)
		}
	}
	r := parse(t, "vllm:num_requests_waiting -1\nvllm:num_requests_running 2\nsglang:num_queue_reqs 7\n")
	require.Nil(t, r.QueueDepth, "another engine's name does not stand in for it")
	require.Equal(t, v(2), r.Running)
	require.Equal(t, "vllm", r.Engine)
	r = parse(t, "vllm:kv_cache_usage_perc 1.000001\nvllm:gpu_prefix_cache_hit_rate -1\n")
	require.Equal(t, v(1), r.KVCacheUsage, "the whole, by rounding")
	require.Nil(t, r.PrefixHitRatio)
	require.Nil(t, r.NotMeasured, "so vLLM V0 says that there is no prefix cache")

	joined := scrape.Join(parse(t, "vllm:num_requests_waiting 3\nvllm:num_requests_running 1\n"), parse(t, "vllm:num_requests_waiting -5\nvllm:num_requests_running 1\n"))
	require.Nil(t, joined.QueueDepth)
	require.Equal(t, v(2), joined.Running)
	require.Equal(t, map[string]string{"queue_depth": "vllm:num_requests_waiting was -5, which is no measurement"}, joined.NotMeasured)
}

// A counter that could not be read is not one that was 0: its whole past would count as one second's.
func TestACounterAfterAGapTellsNothing(t *testing.T) {
	t.Parallel()
	page := "vllm:num_requests_waiting 0\nvllm:num_preemptions_total %s\nvllm:prefix_cache_queries %[1]s\nvllm:prefix_cache_hits %[1]s\n"
	broken, good := parse(t, fmt.Sprintf(page, "NaN")), parse(t, fmt.Sprintf(page, "500"))
	require.Equal(t, scrape.Since{}, scrape.Between(broken, good))
	require.Equal(t, scrape.Since{}, scrape.Between(good, broken))
}
