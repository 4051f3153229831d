package report

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

func TestEnvelopeMarkdown(t *testing.T) {
	in := Input{
		Capacity: []Capacity{
			{
				Workload: "chat|x", Arrival: "Poisson", SafeQPS: number(22.54), Confirmed: true, LimitingCriterion: "ttft_p99", Knee: number(25), Margin: number(0.11),
				CompletedRate: number(22.4), PromptTokensPerSecond: number(4567), RequestsPerArrival: number(3.14), Created: syntheticStart,
				Configuration: map[string]string{"gpus": "8", "engine": "v1|x"},
			},
			{Workload: "long", Arrival: "bursty", Note: "the lowest rate failed", Created: syntheticStart.Add(time.Hour)},
			{Note: "undecided"},
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

| workload | arrivals | Safe QPS | completed/s | output tokens/s | prompt tokens/s | broke first | knee | margin | confirmed |
| --- | --- | ---: | ---: | ---: | ---: | --- | ---: | ---: | --- |
| chat\|x | Poisson | **22.5** | 22.4 (× 3.14 requests) | not measured | 4,567 | ttft\_p99 | 25 | 11% | yes |
| long | bursty | none found | not measured | not measured | not measured |  | not found | - | no |
| (the script's) | (the script's) | none found | not measured | not measured | not measured |  | not found | - | no |

- long, bursty: the lowest rate failed
- (the script's), (the script's): undecided

chat\|x, Poisson: holds for engine v1\|x, gpus 8; found 2026-03-01 09:00:00 UTC.

long, bursty: holds for a configuration that nobody stated; found 2026-03-01 10:00:00 UTC.

| run | arrivals | offered/s | achieved/s | verdict | TTFT p99 | ITL p99 | TPOT p99 | E2E p99 | goodput | errors | broke |
| --- | --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |
| probe-01 | Poisson | 30.1 | 27 | FAIL | 2.35 s | not measured | not measured | not measured | not measured | 1.23% | ttft\_p99 |
| probe-02 step 5 | bursty | not measured | not measured | NOT JUDGED | not measured | not measured | not measured | not measured | not measured | not measured |  |

> **synthetic prompts**

First run started 2026-03-01 09:00:00 UTC.
`, string(EnvelopeMarkdown(in)))
	in.Capacity = []Capacity{{Created: syntheticStart, Configuration: map[string]string{"gpus": "8"}}}
	require.Contains(t, string(EnvelopeMarkdown(in)), "\nThe envelope holds for gpus 8; found 2026-03-01 09:00:00 UTC.\n")
	require.Equal(t, "## LLM capacity report\n\n| run |", string(EnvelopeMarkdown(Input{}))[:len("## LLM capacity report\n\n| run |")], "no search, no envelope")
}

// Numbers that no int64 holds, and no reader counts the digits of.
func TestNumbersBeyondAllMeasureAreShownAsWhatTheyAre(t *testing.T) {
	text := string(EnvelopeMarkdown(Input{Capacity: []Capacity{
		{Workload: "chat", Arrival: "Poisson", SafeQPS: number(1e308), OutputTokensPerSecond: number(1e19), Knee: number(-1e18)},
	}}))
	require.Contains(t, text, "| **1e+308** | not measured | 1e+19 |")
	require.Contains(t, text, "| -1e+18 |")
	for in, want := range map[float64]string{
		999_999_999_999_999: "999,999,999,999,999", 1e15: "1e+15", -1e15: "-1e+15", 1e-9: "0.000000001", 1e-10: "1e-10", 0: "0",
		5e-324: "4.94e-324", math.Inf(1): "+Inf",
	} {
		require.Equal(t, want, threeDigits(in))
	}
	require.Equal(t, "1e+308", digits(1e308))
	require.Equal(t, "1e-300", digits(1e-300))
	require.Equal(t, "100000000000000", digits(1e14))
}
