package report

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

func TestEnvelopeMarkdown(t *testing.T) {
	in := Input{
		Capacity: []Capacity{
			{Workload: "chat|x", Arrival: "Poisson", SafeQPS: number(22.54), Confirmed: true, LimitingCriterion: "ttft_p99", Knee: number(25), Margin: number(0.11)},
			{Workload: "long", Arrival: "bursty", Note: "the lowest rate failed"},
		},
		Runs: []Run{
			{
				Name: "probe-01", Arrival: "Poisson", Info: results.Info{Started: syntheticStart, Labels: []string{"synthetic prompts"}},
				Verdict: &verdict.Result{Verdict: verdict.Fail, Criteria: []verdict.Criterion{{Name: "ttft_p99", Verdict: verdict.Fail}, {Name: "e2e_p99", Verdict: verdict.Pass}}},
				Points:  []Point{{OfferedPerSecond: number(30.123), AchievedPerSecond: number(27), ErrorShare: number(0.0123), TTFT: &verdict.Quantiles{P99: 2345}}},
			},
			{Name: "probe-02", Arrival: "bursty", Info: results.Info{Labels: []string{"synthetic prompts"}}, Points: []Point{{Step: "5"}}},
		},
	}
	require.Equal(t, `## LLM capacity envelope

| workload | arrivals | Safe QPS | output tokens/s | broke first | knee | margin | confirmed |
| --- | --- | ---: | ---: | --- | ---: | ---: | --- |
| chat\|x | Poisson | **22.5** | not measured | ttft\_p99 | 25 | 11% | yes |
| long | bursty | none found | not measured |  | not found | - | no<br>the lowest rate failed |

| run | arrivals | offered/s | achieved/s | verdict | TTFT p99 | ITL p99 | TPOT p99 | E2E p99 | goodput | errors | broke |
| --- | --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |
| probe-01 | Poisson | 30.1 | 27 | FAIL | 2.35 s | not measured | not measured | not measured | not measured | 1.23% | ttft\_p99 |
| probe-02 step 5 | bursty | not measured | not measured | NOT JUDGED | not measured | not measured | not measured | not measured | not measured | not measured |  |

> **synthetic prompts**

First run started 2026-03-01 09:00:00 UTC.
`, string(EnvelopeMarkdown(in)))
	require.NotContains(t, string(EnvelopeMarkdown(Input{})), "Safe QPS", "no search, no envelope")
}
