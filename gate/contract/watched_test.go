package contract

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRulesThatNothingWatches(t *testing.T) {
	t.Parallel()
	const gate = "capacity_gate: {success_rate: '>= 99%', ttft_p99: '<= 2s'}\n"
	for name, tt := range map[string]struct {
		yaml string
		want []string
	}{
		"no endpoint at all": {
			"abort: {unhealthy: true, queue_growth: sustained}",
			[]string{"abort.unhealthy is not watched: the contract has neither server.health_url nor server.metrics_url; " +
				"give one of them, or gate.monitor(contract, {healthURL: …})"},
		},
		"only a GPU exporter":            {"abort: {unhealthy: true}\nserver: {gpu_url: 'http://127.0.0.1:9400/metrics'}", []string{"abort.unhealthy is not watched"}},
		"health beside metrics":          {"abort: {unhealthy: true}\nserver: {metrics_url: 'http://127.0.0.1:8000/metrics'}", nil},
		"a health endpoint":              {"abort: {unhealthy: true}\nserver: {health_url: 'http://127.0.0.1:8000/health'}", nil},
		"levels of a server not known":   {"abort: {queue_depth: '> 50 for 5s', kv_cache_usage: '> 99%', in_flight: '> 100'}", []string{"abort.queue_depth", "abort.kv_cache_usage"}},
		"levels of a server":             {"abort: {running: '> 50 for 5s'}\nserver: {metrics_url: 'http://127.0.0.1:8000/metrics'}", nil},
		"a baseline that was not read":   {"abort: {ttft_p99: '> baseline + 50% for 5s'}", []string{"abort.ttft_p99 is not watched: its limit needs a baseline"}},
		"rules that need no server":      {"abort: {error_rate: '> 20% for 5s', client_headroom: true, ttft_p99: '> 10s'}", nil},
		"no rules":                       {"confidence: 0.9", nil},
		"a rule that is switched off":    {"abort: {unhealthy: false}", nil},
		"unhealthy for a while, no host": {"abort: {unhealthy: {for: 5s}}", []string{"abort.unhealthy"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := mustLoad(t, gate+tt.yaml+"\n")
			got := c.Unwatched()
			require.Len(t, got, len(tt.want))
			var text bytes.Buffer
			require.NoError(t, Explain(&text, c))
			for i, want := range tt.want {
				require.Contains(t, got[i].String(), want)
				require.Contains(t, text.String(), got[i].Why)
			}
			if len(tt.want) == 0 {
				require.NotContains(t, text.String(), "judged by  nobody")
			} else {
				require.Contains(t, text.String(), "judged by  nobody")
			}
		})
	}
}

func TestHealthIsBesideTheMetrics(t *testing.T) {
	t.Parallel()
	const gate = "capacity_gate: {success_rate: '>= 99%'}\nabort: {unhealthy: true}\n"
	for yaml, tt := range map[string]struct {
		urls    []string
		derived bool
	}{
		"": {nil, false},
		"server: {metrics_url: ['http://a:8000/metrics', 'https://b/x/metrics?y=1', 'http://a:8000/other']}": {[]string{"http://a:8000/health", "https://b/health"}, true},
		"server: {metrics_url: 'http://a:8000/metrics', health_url: 'http://a:8000/v2/health/ready'}":        {[]string{"http://a:8000/v2/health/ready"}, false},
		"server: {gpu_url: 'http://a:9400/metrics'}":                                                         {nil, false},
	} {
		c := mustLoad(t, gate+yaml+"\n")
		urls, derived := c.Health()
		require.Equal(t, tt.urls, urls, yaml)
		require.Equal(t, tt.derived, derived, yaml)
		var text bytes.Buffer
		require.NoError(t, Explain(&text, c))
		if derived {
			require.Contains(t, text.String(), "without server.health_url it asks http://a:8000/health, https://b/health, and watches from the first good answer on")
		}

		given, err := c.WithHealth([]string{"http://c/ready"})
		require.NoError(t, err)
		require.Empty(t, given.Unwatched())
		urls, derived = given.Health()
		require.Equal(t, []string{"http://c/ready"}, urls)
		require.False(t, derived)
		if c.Server != nil {
			require.Equal(t, c.Server.MetricsURLs, given.Server.MetricsURLs)
			require.NotEqual(t, c.Server.HealthURLs, given.Server.HealthURLs, "the contract itself is as it was")
		}
	}
	c := mustLoad(t, gate)
	for _, wrong := range []string{"", "ftp://x", "host:80/health", "http://me:secret@host/health"} {
		_, err := c.WithHealth([]string{wrong})
		require.ErrorContains(t, err, "expected ", wrong)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestWhoWatchesARule(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, `capacity_gate: {success_rate: '>= 99%', ttft_p99: '<= 2s'}
abort: {error_rate: '> 20% for 5s', ttft_p99: '> 10s', output_tokens_per_second: '< 5', dropped: '> 5%', in_flight: '> 9', queue_growth: sustained, client_headroom: true}
`)
	needs := map[string]bool{}
	for _, rule := range c.Abort {
		needs[rule.Metric] = rule.NeedsRequests()
	}
	require.Equal(t, map[string]bool{
		"error_rate": true, "ttft": false, "output_tokens_per_second": true, "dropped": true, "in_flight": false, "queue_growth": false, "client_headroom": false,
	}, needs)
	judges := map[string][]Judge{}
	for _, line := range Describe(c).Lines {
		judges[line.Name] = line.JudgedBy
	}
	require.Equal(t, []Judge{JudgeOutput}, judges["abort.error_rate"])
	require.Equal(t, []Judge{JudgeOutput, JudgeThreshold}, judges["abort.ttft_p99"])
	require.Equal(t, []Judge{JudgeMonitor}, judges["abort.in_flight"])
	require.Equal(t, []Judge{JudgeMonitor, JudgeThreshold}, judges["abort.queue_growth"])
	require.Equal(t, []Judge{JudgeMonitor, JudgeOutput}, judges["abort.client_headroom"])
}
