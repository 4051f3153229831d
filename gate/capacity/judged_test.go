package capacity

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

func ptr[T any](v T) *T { return &v }

func criterion(name, limit string, value, measured float64, unit string, status verdict.Status) verdict.Criterion {
	return verdict.Criterion{
		Name: name, Section: "capacity_gate", Limit: limit, LimitValue: &value, Measured: &measured, Unit: unit, Verdict: status,
	}
}

func TestFromVerdictPicksTheLimitingCriterion(t *testing.T) {
	v := &verdict.Result{
		Verdict: verdict.Fail,
		Criteria: []verdict.Criterion{
			criterion("ttft_p95", "<= 800ms", 800, 780, "ms", verdict.Pass),
			criterion("success_rate", ">= 99.5%", 0.995, 0.98, "ratio", verdict.Fail),
			criterion("e2e_p99", "<= 30s", 30_000, 45_000, "ms", verdict.Fail),
			criterion("output_tokens_per_second", ">= 700 tokens/s", 700, 350, "tokens/s", verdict.Fail),
			{Name: "cpu", Section: "client_headroom", Limit: "<= 70%", LimitValue: ptr(0.7), Measured: ptr(7.0), Verdict: verdict.Fail},
		},
		Phases: []verdict.Phase{
			{Name: "warmup", Counts: results.Counts{Offered: 7}},
			{
				Name: "steady", Counts: results.Counts{Offered: 1200}, RequestsPerSecond: ptr(19.5), OutputTokensPerSecond: ptr(350.0),
				PromptTokensPerSecond: ptr(900.0), Metrics: map[string]verdict.Quantiles{"ttft": {P99: 4}},
			},
		},
	}
	r := FromVerdict(v)
	require.Equal(t, verdict.Fail, r.Verdict)
	require.Equal(t, "success_rate", r.LimitingCriterion)
	require.InDelta(t, 4, *r.Pressure, 1e-9)
	require.Equal(t, int64(1200), r.Requests)
	require.InDelta(t, 19.5, *r.CompletedRate, 0)
	require.InDelta(t, 350, *r.OutputTokensPerSecond, 0)
	require.InDelta(t, 900, *r.PromptTokensPerSecond, 0)
	require.InDelta(t, 4, r.Latencies["ttft"].P99, 0)
	require.Nil(t, r.Needed)

	v.Criteria[1].Verdict = verdict.Pass
	r = FromVerdict(v)
	require.Equal(t, "output_tokens_per_second", r.LimitingCriterion)
	require.InDelta(t, 2, *r.Pressure, 1e-9)

	v.Verdict = verdict.Invalid
	require.Equal(t, "cpu", FromVerdict(v).LimitingCriterion)

	v.Criteria = v.Criteria[:1]
	v.Verdict = verdict.Pass
	r = FromVerdict(v)
	require.Equal(t, "ttft_p95", r.LimitingCriterion)
	require.InDelta(t, 0.975, *r.Pressure, 1e-9)
}

func TestFromVerdictOfAnOpenOne(t *testing.T) {
	open := criterion("ttft_p99", "<= 2s", 2000, 1900, "ms", verdict.Inconclusive)
	open.NeededAtShare, open.Needed = ptr(int64(500)), ptr(int64(100))
	state := verdict.Criterion{Name: "queue_growth", Section: "capacity_gate", Verdict: verdict.Inconclusive, Needed: ptr(int64(900))}
	v := &verdict.Result{Verdict: verdict.Inconclusive, Criteria: []verdict.Criterion{open, state}}
	r := FromVerdict(v)
	require.Equal(t, int64(900), *r.Needed)
	require.Equal(t, "ttft_p99", r.LimitingCriterion)
	v.Criteria = v.Criteria[:1]
	require.Equal(t, int64(500), *FromVerdict(v).Needed, "at the present share, not if all further requests pass")
	v.Criteria = append(v.Criteria, state)
	v.Criteria[1].Needed = nil
	require.Nil(t, FromVerdict(v).Needed, "one criterion cannot say")
}

// Where only the load generator's criteria are open, one of them is what the verdict hangs on.
func TestFromVerdictOfAGeneratorThatWasNotSeen(t *testing.T) {
	v := &verdict.Result{Verdict: verdict.Inconclusive, Criteria: []verdict.Criterion{
		criterion("ttft_p95", "<= 1s", 1000, 100, "ms", verdict.Pass),
		{Name: "client_headroom.timer_delay_p99", Section: "client_headroom", Verdict: verdict.Inconclusive},
	}}
	r := FromVerdict(v)
	require.Equal(t, "client_headroom.timer_delay_p99", r.LimitingCriterion)
	require.Nil(t, r.Pressure)
}

// A probe that was stopped early failed by the criterion that the rule saw, not by the rule.
func TestTheLimitingCriterionOfAProbeThatWasStoppedEarly(t *testing.T) {
	v := &verdict.Result{
		Verdict: verdict.Fail,
		Aborted: &results.Aborted{Rule: StoppedEarlyRule, Saw: "ttft_p75: 40 of 41 over the limit: certain"},
		Prefix:  &verdict.PrefixCache{Warm: true}, Warnings: []string{"warm cache"}, Labels: []string{"synthetic prompts"},
		Criteria: []verdict.Criterion{
			criterion("ttft_p75", "<= 300ms", 300, 900, "ms", verdict.Inconclusive),
			{Name: StoppedEarlyRule, Section: "abort", Verdict: verdict.Fail},
		},
	}
	r := FromVerdict(v)
	require.Equal(t, "ttft_p75", r.LimitingCriterion)
	require.InDelta(t, 3, *r.Pressure, 1e-9)
	require.True(t, r.WarmCache)
	require.Equal(t, []string{"synthetic prompts"}, r.Labels)
	require.Equal(t, []string{"warm cache"}, r.Warnings)

	v.Aborted.Saw = "something else"
	require.Equal(t, StoppedEarlyRule, FromVerdict(v).LimitingCriterion)
}
