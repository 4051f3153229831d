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
