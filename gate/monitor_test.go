package gate

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	"go.k6.io/k6/lib"
	"go.k6.io/k6/metrics"

	"github.com/safeqps/xk6-safeqps/gate/contract"
)

// watchedPage is a monitor of a server whose metrics page is what *page holds, and what it has told k6 in one reading.
func watchedPage(t *testing.T, page *string) (read func() (values map[string]float64, gaps []string, levels map[string]float64), logs *logtest.Hook) {
	t.Helper()
	read, logs, _ = watchedPages(t, page)

	return read, logs
}

// watchedPages is watchedPage for several replicas, of which it gives the addresses as well.
func watchedPages(t *testing.T, pages ...*string) (
	read func() (values map[string]float64, gaps []string, levels map[string]float64), logs *logtest.Hook, urls []string,
) {
	t.Helper()
	for _, page := range pages {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(*page)) }))
		t.Cleanup(s.Close)
		urls = append(urls, s.URL)
	}
	registry := metrics.NewRegistry()
	require.NoError(t, registerMonitorMetrics(registry))
	logger, logs := logtest.NewNullLogger()
	m := &monitor{
		state:  &lib.ExecutionState{Test: &lib.TestRunState{TestPreInitState: &lib.TestPreInitState{Registry: registry}}},
		logger: logrus.NewEntry(logger), agreed: &contract.Contract{Server: &contract.Server{MetricsURLs: urls}},
		client: http.DefaultClient, endpoints: map[string]bool{},
	}

	return func() (map[string]float64, []string, map[string]float64) {
		out := make(chan metrics.SampleContainer, 100)
		m.out = out
		levels := map[string]float64{}
		m.readServer(t.Context(), time.Now(), registry.RootTagSet(), levels)
		close(out)
		values, gaps := map[string]float64{}, []string{}
		for container := range out {
			for _, sample := range container.GetSamples() {
				if sample.Metric.Name == gapsName {
					reason, _ := sample.Tags.Get("reason")
					endpoint, _ := sample.Tags.Get("endpoint")
					gaps = append(gaps, endpoint+": "+reason)

					continue
				}
				values[sample.Metric.Name] = sample.Value
			}
		}

		return values, gaps, levels
	}, logs, urls
}

// The queue of a replica that does not show one is not known, and neither is the service's: growth is then judged by the requests
// in flight. The gap names the endpoint and the metric.
func TestAReplicaWithoutAQueueIsAGap(t *testing.T) {
	t.Parallel()
	idle, busy := "vllm:num_requests_waiting 0\nvllm:num_requests_running 0\n", "vllm:num_requests_running 8\n"
	read, logs, urls := watchedPages(t, &idle, &busy)
	for range 2 {
		values, gaps, levels := read()
		require.Equal(t, map[string]float64{"llm_server_running": 8}, values)
		require.Equal(t, map[string]float64{"running": 8}, levels)
		require.Equal(t, []string{"server: " + urls[1] + " has no vllm:num_requests_waiting, which other replicas have"}, gaps)
	}
	require.Len(t, logs.AllEntries(), 1, "the first one is logged")
	busy = "vllm:num_requests_running 8\nvllm:num_requests_waiting 5\n"
	_, gaps, levels := read()
	require.Equal(t, map[string]float64{"running": 8, "queue_depth": 5}, levels)
	require.Empty(t, gaps)
}

// A number that is no measurement is a gap with its name and value, and no metric of k6, no level of an abort rule.
func TestNoMeasurementIsAGap(t *testing.T) {
	t.Parallel()
	const none = ", which is no measurement"
	page := ""
	read, logs := watchedPage(t, &page)
	for _, c := range []struct {
		page   string
		values map[string]float64
		gaps   []string
	}{
		{"vllm:num_requests_waiting -5\nvllm:num_requests_running 2\n", map[string]float64{"running": 2}, []string{"server: vllm:num_requests_waiting was -5" + none}},
		{"vllm:num_requests_waiting 1\nvllm:num_requests_running +Inf\n", map[string]float64{"queue_depth": 1}, []string{"server: vllm:num_requests_running was +Inf" + none}},
		{"vllm:num_requests_waiting 1e300\n", map[string]float64{}, []string{"server: vllm:num_requests_waiting was 1e+300" + none}},
		{"vllm:num_requests_waiting NaN\n", map[string]float64{}, []string{"server: vllm:num_requests_waiting was NaN" + none}},
		{"vllm:gpu_cache_usage_perc 7.5\nDCGM_FI_DEV_GPU_UTIL 250\n", map[string]float64{}, []string{
			"gpu: gpu: DCGM_FI_DEV_GPU_UTIL was 250" + none, "server: vllm:gpu_cache_usage_perc was 7.5" + none,
		}},
		{"vllm:gpu_cache_usage_perc 1\n", map[string]float64{"kv_cache_usage": 1}, []string{}},
		{ // each could be a number of requests, their sum can not
			"vllm:num_requests_waiting{engine=\"0\"} 9e14\nvllm:num_requests_waiting{engine=\"1\"} 9e14\n",
			map[string]float64{},
			[]string{"server: llm_server_queue_depth was 1.8e+15" + none},
		},
	} {
		page = c.page
		values, gaps, levels := read()
		want := map[string]float64{}
		for name, v := range c.values {
			want[serverPrefix+name] = v
		}
		require.Equal(t, want, values, c.page)
		require.Equal(t, c.gaps, gaps, c.page)
		require.Equal(t, c.values, levels, c.page)
	}

	page = "vllm:prefix_cache_queries 100\nvllm:prefix_cache_hits 0\n"
	read()
	page = "vllm:prefix_cache_queries 200\nvllm:prefix_cache_hits 300\n"
	values, gaps, _ := read()
	require.NotContains(t, values, "llm_server_prefix_hit_ratio")
	require.Equal(t, []string{"server: llm_server_prefix_hit_ratio was 3" + none}, gaps)

	told := 0
	for _, entry := range logs.AllEntries() {
		if strings.Contains(entry.Message, "vllm:num_requests_waiting was") {
			told++
		}
	}
	require.Equal(t, 1, told, "the first one of each is logged")
}
