package cli

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/contract"
)

// A service of which it is not known what it does is not idle.
func TestAServiceWithoutAMeasurementIsNotIdle(t *testing.T) {
	t.Parallel()
	page := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(page)) }))
	t.Cleanup(s.Close)
	p := &prober{contract: &contract.Contract{Server: &contract.Server{MetricsURLs: []string{s.URL}}}}
	page = "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"
	require.NoError(t, p.busy(t.Context(), s.Client()))
	page = "vllm:num_requests_running 0\nvllm:num_requests_waiting -1\n"
	require.EqualError(t, p.busy(t.Context(), s.Client()), "vllm:num_requests_waiting was -1, which is no measurement")
	page = "vllm:num_requests_running NaN\nvllm:num_requests_waiting 0\n"
	require.EqualError(t, p.busy(t.Context(), s.Client()), "vllm:num_requests_running was NaN, which is no measurement")
	page = "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n"
	require.ErrorIs(t, p.busy(t.Context(), s.Client()), errBusy)
}

// Each replica tells by what it has: one that shows a metric from its first request on has nothing to do until then.
func TestEachReplicaHasToBeIdle(t *testing.T) {
	t.Parallel()
	pages := []string{"vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n", ""}
	p := &prober{contract: &contract.Contract{Server: &contract.Server{}}}
	for i := range pages {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(pages[i])) }))
		t.Cleanup(s.Close)
		p.contract.Server.MetricsURLs = append(p.contract.Server.MetricsURLs, s.URL)
	}
	pages[1] = "vllm:num_requests_running 0\n"
	require.NoError(t, p.busy(t.Context(), http.DefaultClient))
	pages[1] = "vllm:num_requests_running 3\n"
	require.EqualError(t, p.busy(t.Context(), http.DefaultClient), "it is busy: 3 requests are running and 0 are waiting")
	pages[0] = "vllm:num_requests_running 1\nvllm:num_requests_waiting 2\n"
	require.EqualError(t, p.busy(t.Context(), http.DefaultClient), "it is busy: 4 requests are running and 2 are waiting")
	pages[1] = "vllm:kv_cache_usage_perc 0\n"
	require.EqualError(t, p.busy(t.Context(), http.DefaultClient),
		p.contract.Server.MetricsURLs[1]+" has neither a number of running requests nor one of waiting ones")
}
