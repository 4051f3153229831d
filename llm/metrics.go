package llm

import (
	"fmt"

	"go.k6.io/k6/metrics"
)

// instruments are the request metrics of the extension. k6 wants every name to be registered in the first init context.
type instruments struct {
	ttft, ttftText, tpot, itl, e2e, scheduleDelay *metrics.Metric
	outputTPS, chunkTokens, promptTokensError     *metrics.Metric

	promptTokens, completionTokens, cachedTokens, reasoningTokens *metrics.Metric

	requests, retries, errors, cost *metrics.Metric
	success, http5xx, goodput       *metrics.Metric
	inFlight                        *metrics.Metric
}

func registerInstruments(registry *metrics.Registry) (*instruments, error) {
	m := &instruments{}
	for _, want := range []struct {
		into  **metrics.Metric
		name  string
		kind  metrics.MetricType
		value metrics.ValueType
	}{
		{&m.ttft, "llm_ttft", metrics.Trend, metrics.Time},
		{&m.ttftText, "llm_ttft_text", metrics.Trend, metrics.Time},
		{&m.tpot, "llm_tpot", metrics.Trend, metrics.Time},
		{&m.itl, "llm_itl", metrics.Trend, metrics.Time},
		{&m.e2e, "llm_e2e", metrics.Trend, metrics.Time},
		{&m.scheduleDelay, "llm_schedule_delay", metrics.Trend, metrics.Time},
		{&m.outputTPS, "llm_output_tps", metrics.Trend, metrics.Default},
		{&m.chunkTokens, "llm_chunk_tokens", metrics.Trend, metrics.Default},
		{&m.promptTokensError, "llm_prompt_tokens_error", metrics.Trend, metrics.Default},
		{&m.promptTokens, "llm_prompt_tokens", metrics.Counter, metrics.Default},
		{&m.completionTokens, "llm_completion_tokens", metrics.Counter, metrics.Default},
		{&m.cachedTokens, "llm_cached_tokens", metrics.Counter, metrics.Default},
		{&m.reasoningTokens, "llm_reasoning_tokens", metrics.Counter, metrics.Default},
		{&m.requests, "llm_requests", metrics.Counter, metrics.Default},
		{&m.retries, "llm_retries", metrics.Counter, metrics.Default},
		{&m.errors, "llm_errors", metrics.Counter, metrics.Default},
		{&m.cost, "llm_cost", metrics.Counter, metrics.Default},
		{&m.success, "llm_success", metrics.Rate, metrics.Default},
		{&m.http5xx, "llm_http_5xx", metrics.Rate, metrics.Default},
		{&m.goodput, "llm_goodput", metrics.Rate, metrics.Default},
		{&m.inFlight, "llm_in_flight", metrics.Gauge, metrics.Default},
	} {
		metric, err := registry.NewMetric(want.name, want.kind, want.value)
		if err != nil {
			return nil, fmt.Errorf("registering the metric %s: %w", want.name, err)
		}
		*want.into = metric
	}

	return m, nil
}
