package deploy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"
)

// instrument is what arrived under one name over OTLP.
type instrument struct {
	kind, unit string
	attributes map[string]bool
	total      float64           // of a sum: the latest value of each set of attributes, added up
	count      uint64            // of a histogram: likewise
	last       map[string]latest // by attributes
}

type latest struct {
	at    uint64
	value float64
	count uint64
}

// collectorServer takes what k6 exports over OTLP/HTTP.
type collectorServer struct {
	mu   sync.Mutex
	seen map[string]*instrument
	errs []error
}

func (c *collectorServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var sent collector.ExportMetricsServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &sent)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.errs = append(c.errs, err)
		w.WriteHeader(http.StatusBadRequest)

		return
	}
	for _, resource := range sent.GetResourceMetrics() {
		for _, scope := range resource.GetScopeMetrics() {
			for _, m := range scope.GetMetrics() {
				c.take(m)
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (c *collectorServer) take(m *metrics.Metric) {
	i := c.seen[m.GetName()]
	if i == nil {
		i = &instrument{unit: m.GetUnit(), attributes: map[string]bool{}, last: map[string]latest{}}
		c.seen[m.GetName()] = i
	}
	keep := func(attributes []*common.KeyValue, now latest) {
		var key strings.Builder
		for _, attribute := range attributes {
			i.attributes[attribute.GetKey()] = true
			key.WriteString(attribute.GetKey() + "=" + attribute.GetValue().GetStringValue() + "\n")
		}
		if i.last[key.String()].at <= now.at {
			i.last[key.String()] = now
		}
	}
	number := func(points []*metrics.NumberDataPoint) {
		for _, p := range points {
			keep(p.GetAttributes(), latest{at: p.GetTimeUnixNano(), value: p.GetAsDouble() + float64(p.GetAsInt())})
		}
	}
	switch data := m.GetData().(type) {
	case *metrics.Metric_Sum:
		i.kind = "sum"
		number(data.Sum.GetDataPoints())
	case *metrics.Metric_Gauge:
		i.kind = "gauge"
		number(data.Gauge.GetDataPoints())
	case *metrics.Metric_Histogram:
		i.kind = "histogram"
		for _, p := range data.Histogram.GetDataPoints() {
			keep(p.GetAttributes(), latest{at: p.GetTimeUnixNano(), value: p.GetSum(), count: p.GetCount()})
		}
	case *metrics.Metric_ExponentialHistogram:
		i.kind = "exponential histogram"
		for _, p := range data.ExponentialHistogram.GetDataPoints() {
			keep(p.GetAttributes(), latest{at: p.GetTimeUnixNano(), value: p.GetSum(), count: p.GetCount()})
		}
	}
	i.total, i.count = 0, 0
	for _, l := range i.last {
		i.total += l.value
		i.count += l.count
	}
}

// overOTLP are the metrics of this extension as they arrive: kind, unit, and the attributes that queries select by.
var overOTLP = map[string]struct {
	kind, unit string
	attributes []string
}{
	"llm_ttft":                  {"histogram", "ms", []string{"api", "class", "model", "phase", "scenario", "testrun_name"}},
	"llm_ttft_text":             {"histogram", "ms", []string{"class", "phase"}},
	"llm_itl":                   {"histogram", "ms", []string{"class", "phase"}},
	"llm_tpot":                  {"histogram", "ms", []string{"class", "phase"}},
	"llm_e2e":                   {"histogram", "ms", []string{"class", "phase"}},
	"llm_schedule_delay":        {"histogram", "ms", []string{"class", "phase"}},
	"llm_output_tps":            {"histogram", "", []string{"class", "phase"}},
	"llm_chunk_tokens":          {"histogram", "", []string{"class", "phase"}},
	"llm_prompt_tokens_error":   {"histogram", "", []string{"class", "phase"}},
	"llm_prompt_tokens":         {"sum", "", []string{"class", "phase", "source"}},
	"llm_completion_tokens":     {"sum", "", []string{"class", "phase", "source"}},
	"llm_cached_tokens":         {"sum", "", []string{"class", "phase", "source"}},
	"llm_requests":              {"sum", "", []string{"class", "phase", "outcome", "cancel_phase"}},
	"llm_errors":                {"sum", "", []string{"class", "phase", "error_type"}},
	"llm_success.total":         {"sum", "", []string{"class", "phase", "condition"}},
	"llm_http_5xx.total":        {"sum", "", []string{"class", "phase", "condition"}},
	"llm_goodput.total":         {"sum", "", []string{"class", "phase", "condition"}},
	"llm_in_flight":             {"gauge", "", []string{"testrun_name"}},
	"llm_server_queue_depth":    {"gauge", "", []string{"phase"}},
	"llm_server_running":        {"gauge", "", []string{"phase"}},
	"llm_server_kv_cache_usage": {"gauge", "", []string{"phase"}},
	"llm_server_queue_time":     {"histogram", "ms", []string{"phase"}},
	"llm_client_cpu":            {"gauge", "", []string{"phase"}},
	"llm_client_memory":         {"gauge", "", []string{"phase"}},
	"llm_client_open_files":     {"gauge", "", []string{"phase"}},
	"llm_client_timer_delay":    {"histogram", "ms", []string{"phase"}},
	"llm_queue_growth":          {"gauge", "", []string{"phase"}},
	"dropped_iterations":        {"sum", "", []string{"class", "phase"}},
	"http_req_duration":         {"histogram", "ms", []string{"status", "phase"}},
}

func TestOpenTelemetryCarriesTheMetrics(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env       string
		histogram string
	}{
		"fixed buckets":       {env: "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION=explicit_bucket_histogram", histogram: "histogram"},
		"exponential buckets": {env: "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION=base2_exponential_bucket_histogram", histogram: "exponential histogram"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := exportOTLP(t, c.env)
			for name, want := range overOTLP {
				got := seen[name]
				require.NotNil(t, got, name)
				if want.kind == "histogram" {
					want.kind = c.histogram
				}
				require.Equal(t, want.kind, got.kind, name)
				require.Equal(t, want.unit, got.unit, name)
				for _, attribute := range want.attributes {
					require.True(t, got.attributes[attribute], "%s has no attribute %s", name, attribute)
				}
			}
			// The ledger arrives whole.
			requests := seen["llm_requests"].total
			require.Equal(t, 200.0, requests+seen["dropped_iterations"].total, "every row of the trace")
			cancelled := 0.0
			for attributes, l := range seen["llm_requests"].last {
				if strings.Contains(attributes, "outcome=cancelled\n") {
					cancelled += l.value
				}
			}
			require.Positive(t, cancelled, "users leave in this run")
			require.InDelta(t, requests, seen["llm_http_5xx.total"].total, 0)
			for _, rate := range []string{"llm_success.total", "llm_goodput.total"} {
				require.InDelta(t, requests-cancelled, seen[rate].total, 0, rate)
			}
			answered := requests - seen["llm_errors"].total
			require.InDelta(t, answered, float64(seen["llm_ttft"].count), 0, "users left after two tokens")
			require.InDelta(t, answered-cancelled, float64(seen["llm_e2e"].count), 0)
			require.InDelta(t, requests, float64(seen["llm_schedule_delay"].count), 0)
			require.Zero(t, seen["llm_in_flight"].total, "nothing is in flight when it is over")
		})
	}
}

func exportOTLP(t *testing.T, env string) map[string]*instrument {
	t.Helper()
	received := &collectorServer{seen: map[string]*instrument{}}
	endpoint := httptest.NewServer(received)
	t.Cleanup(endpoint.Close)
	dir := t.TempDir()
	write(t, dir, "script.js", eventful)
	write(t, dir, "slo.yaml", eventfulContract)
	r := start(t, dir, []string{
		env, "LLM_SERVER=" + startEngine(t, nil), "K6_OTEL_EXPORTER_PROTOCOL=http/protobuf", "K6_OTEL_HTTP_EXPORTER_INSECURE=true",
		"K6_OTEL_HTTP_EXPORTER_ENDPOINT=" + strings.TrimPrefix(endpoint.URL, "http://"), "K6_OTEL_EXPORT_INTERVAL=500ms",
		"K6_OTEL_FLUSH_INTERVAL=200ms",
	}, k6(t), "run", "--quiet", "--address", "", "--tag", "testrun_name=safeqps", "-o", "opentelemetry", "script.js")()
	require.Equal(t, 0, r.exit, r.out)
	received.mu.Lock()
	defer received.mu.Unlock()
	require.Empty(t, received.errs)

	return received.seen
}
