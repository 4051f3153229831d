package capacity

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

func TestWhatWasNotMeasuredIsNotWaitedFor(t *testing.T) {
	agreed, err := contract.Load("slo.yaml", []byte(`
capacity_gate:
  ttft_p95: "<= 1s"
  tpot_p95: "<= 1s"
  goodput: ">= 95%"
  queue_growth: no_sustained_growth
  by_class: {long: {ttft_p95: "<= 6s"}, rare: {ttft_p50: "<= 6s"}}
client_headroom: {timer_delay_p99: "<= 50ms", cpu: "<= 70%"}
recovery: {queue_depth: "<= 3"}
phases: {warmup: 1s, steady: 30s, recovery: 2s}
`), func(string) (string, bool) { return "", false })
	require.NoError(t, err)
	run := func(change func(v *verdict.Result)) *verdict.Result {
		v := &verdict.Result{
			Verdict: verdict.Inconclusive, Ended: time.Unix(1, 0), Counts: results.Counts{Offered: 300, Completed: 300},
			Phases: []verdict.Phase{
				{Name: "steady", Seconds: 29, Counts: results.Counts{Offered: 300, Completed: 300}}, {Name: "recovery"},
			},
		}
		change(v)
		return v
	}
	open := func(name, note string) verdict.Criterion {
		return verdict.Criterion{Name: name, Limit: "<= 1", Verdict: verdict.Inconclusive, Note: note}
	}
	const timer, rare = "client_headroom.timer_delay_p99", "rare/ttft_p50"
	for name, c := range map[string]struct {
		criterion verdict.Criterion
		w         Watched
		change    func(v *verdict.Result)
		says      string
	}{
		"no monitor": {
			open(timer, ""),
			Watched{},
			nil,
			"client_headroom.timer_delay_p99 <= 1 was not measured, so that no rate can pass, however long it runs: the script needs " +
				"...gate.monitor(contract) in options.scenarios, or the contract has to do without the criterion (client_headroom: {timer_delay_p99: off})",
		},
		"no monitor, cut":    {open(timer, ""), Watched{}, func(v *verdict.Result) { v.Aborted = &results.Aborted{} }, "gate.monitor"},
		"monitor, cut":       {open(timer, ""), Watched{Monitor: true}, func(v *verdict.Result) { v.Aborted = &results.Aborted{} }, ""},
		"cannot be read":     {open("client_headroom.cpu", ""), Watched{Monitor: true}, nil, "neither this machine"},
		"too short for it":   {open("client_headroom.cpu", ""), Watched{Monitor: true}, func(v *verdict.Result) { v.Phases[0].Seconds = 2 }, ""},
		"queue":              {open("queue_growth", "no queue depth was recorded"), Watched{}, nil, "(no queue depth was recorded)"},
		"recovery":           {open("recovery.queue_depth", ""), Watched{}, func(v *verdict.Result) { v.Phases = v.Phases[:1] }, "no recovery phase"},
		"recovery, no gauge": {open("recovery.queue_depth", ""), Watched{}, nil, "gate.monitor"},
		"goodput":            {open("goodput", ""), Watched{Monitor: true}, nil, "request_slo"},
		"nothing completed":  {open("goodput", ""), Watched{Monitor: true}, func(v *verdict.Result) { v.Phases[0].Counts.Completed = 0 }, ""},
		"no tokens":          {open("tpot_p95", ""), Watched{Monitor: true}, nil, "no request had it"},
		"few requests":       {open("tpot_p95", ""), Watched{Monitor: true}, func(v *verdict.Result) { v.Phases[0].Counts.Completed = 19 }, ""},
		"no classes":         {open("long/ttft_p95", `no request has the class "long"; classes seen: none`), Watched{Monitor: true, Length: 0.15, Longest: 1.5}, nil, "by_class"},
		"another class":      {open("long/ttft_p95", "classes seen: short"), Watched{Monitor: true, Length: 1, Longest: 1.5}, nil, "give the workload the class"},
		"class may come":     {open("long/ttft_p95", "classes seen: short"), Watched{Monitor: true, Length: 0.15, Longest: 1.5}, nil, ""},
		"few are enough":     {open(rare, "classes seen: short"), Watched{Monitor: true, Length: 1, Longest: 1.5}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.w.Length, c.w.Longest = max(c.w.Length, 0.15), 1.5
			v := run(func(v *verdict.Result) {
				v.Criteria = []verdict.Criterion{{Name: "ttft_p95", Verdict: verdict.Inconclusive, N: 300}, c.criterion}
				if c.change != nil {
					c.change(v)
				}
			})
			err := Unmeasured(v, agreed, c.w)
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
			v.Criteria[1].Ignored = true
			require.NoError(t, Unmeasured(v, agreed, c.w), "a default does not count")
			v.Criteria[1].Ignored, v.Criteria[1].Undecided = false, 5
			require.NoError(t, Unmeasured(v, agreed, c.w), "requests that are cut short may have had it")
		})
	}
}
