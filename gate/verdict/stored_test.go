package verdict

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

// ofHeadroom has one criterion on the service and some on the load generator.
func ofHeadroom(overall Status, headroom ...Criterion) *Result {
	r := &Result{Verdict: overall, Criteria: []Criterion{{Name: "tpot_p95", Section: "capacity_gate", Unit: "ms", Measured: pointer(30), Verdict: overall}}}
	for _, c := range headroom {
		c.Section = string(contract.SectionClientHeadroom)
		r.Criteria = append(r.Criteria, c)
	}
	return r
}

func TestAnInvalidRunIsNoBaseline(t *testing.T) {
	cpu := Criterion{Name: "client_headroom.cpu", Unit: "ratio", Limit: "<= 70%", Measured: pointer(0.98765432), Verdict: Fail}
	timer := Criterion{Name: "client_headroom.timer_delay_p99", Unit: "ms", Limit: "<= 10ms", Measured: pointer(12344.4), Verdict: Fail}
	kept := Criterion{Name: "client_headroom.memory", Unit: "ratio", Limit: "<= 90%", Measured: pointer(0.5), Verdict: Pass}
	open := Criterion{Name: "client_headroom.dropped", Unit: "count", Limit: "== 0", Verdict: Inconclusive}
	ignored := Criterion{Name: "client_headroom.open_files", Limit: "<= 80%", Verdict: Fail, Ignored: true}
	stopped := Criterion{Name: "abort.client_headroom", Limit: "not true", Verdict: Invalid, Note: "stopped the run: cpu was 99%"}

	r := ofHeadroom(Invalid, kept, cpu, open, ignored, timer, stopped)
	require.Equal(t, "client_headroom.cpu (measured 98.77%, limit <= 70%), client_headroom.timer_delay_p99 (measured 12.344s, limit <= 10ms), "+
		"abort.client_headroom (stopped the run: cpu was 99%)", r.BrokenHeadroom())
	values, _, err := r.Baseline()
	require.EqualError(t, err, "its verdict is INVALID, since the load generator was the bottleneck: "+r.BrokenHeadroom()+
		"; what it measured is not the service's: repeat the baseline run with more headroom, or give another baseline")
	require.Nil(t, values)

	// A slow service is a baseline as good as any, and so is one that little is known of.
	for _, status := range []Status{Pass, Fail, Inconclusive} {
		r := ofHeadroom(status, kept, open, ignored)
		require.Empty(t, r.BrokenHeadroom())
		values, warning, err := r.Baseline()
		require.NoError(t, err)
		require.Empty(t, warning)
		require.InDelta(t, 30, values["tpot_p95"], 0)
	}

	// FAIL goes before INVALID, and the load generator was the bottleneck all the same.
	for _, broken := range []Criterion{cpu, timer, stopped} {
		r := ofHeadroom(Fail, kept, broken)
		values, _, err := r.Baseline()
		require.EqualError(t, err, "its verdict is FAIL, and the load generator was a bottleneck, too: "+r.BrokenHeadroom()+
			"; what it measured is not the service's: repeat the baseline run with more headroom, or give another baseline")
		require.Nil(t, values)
	}
}

// Arrivals that a slow service left no VU for are its own doing. A load generator that was late, or had another limit broken, is not.
func TestDropsOfASlowServiceAreABaseline(t *testing.T) {
	dropped := Criterion{Name: "client_headroom.dropped", Unit: "count", Limit: "== 0", LimitValue: pointer(0), Measured: pointer(30), N: 100, Over: 30, Verdict: Fail}
	schedule := Criterion{Name: "client_headroom.schedule_error", Unit: "ratio", Limit: "<= 2%", LimitValue: pointer(0.02), Measured: pointer(0.31), N: 100, Verdict: Fail}
	worse := schedule
	worse.Measured = pointer(0.33)
	cpu := Criterion{Name: "client_headroom.cpu", Unit: "ratio", Limit: "<= 80%", Measured: pointer(0.97), Verdict: Fail}

	agreed := ofHeadroom(Fail, schedule)
	agreed.DroppedBy = map[string]int64{"no_vu": 30}
	own := dropped
	own.Name, own.Section = "dropped", "capacity_gate"
	agreed.Criteria = append(agreed.Criteria, own)
	_, warning, err := agreed.Baseline()
	require.NoError(t, err, "the drops are a limit of the service's")
	require.Contains(t, warning, "client_headroom.schedule_error (measured 31%, limit <= 2%)")

	for name, c := range map[string]struct {
		overall Status
		reasons map[string]int64
		broken  []Criterion
		allowed bool
	}{
		"all VUs at work":               {Fail, map[string]int64{"no_vu": 30}, []Criterion{dropped}, true},
		"and the schedule with them":    {Fail, map[string]int64{"no_vu": 30}, []Criterion{dropped, schedule}, true},
		"k6's own executors":            {Fail, map[string]int64{"unknown": 30}, []Criterion{dropped}, true},
		"VUs that were being made":      {Fail, map[string]int64{"no_vu": 20, "vu_starting": 10}, []Criterion{dropped}, true},
		"and the run's end":             {Fail, map[string]int64{"no_vu": 20, "max_duration": 5, "stopped": 5}, []Criterion{dropped}, true},
		"the run's end alone":           {Fail, map[string]int64{"stopped": 30}, []Criterion{dropped}, false},
		"a late generator":              {Fail, map[string]int64{"no_vu": 29, "late": 1}, []Criterion{dropped}, false},
		"rows that the script left out": {Fail, map[string]int64{"no_vu": 29, "no_request": 1}, []Criterion{dropped}, false},
		"no reasons":                    {Fail, nil, []Criterion{dropped}, false},
		"a busy generator":              {Fail, map[string]int64{"no_vu": 30}, []Criterion{dropped, cpu}, false},
		"a schedule worse than that":    {Fail, map[string]int64{"no_vu": 30}, []Criterion{dropped, worse}, false},
		"a schedule without drops":      {Fail, map[string]int64{"no_vu": 1}, []Criterion{schedule}, false},
		"a service that did well":       {Invalid, map[string]int64{"no_vu": 30}, []Criterion{dropped}, false},
	} {
		r := ofHeadroom(c.overall, c.broken...)
		r.DroppedBy = c.reasons
		values, warning, err := r.Baseline()
		if !c.allowed {
			require.ErrorContains(t, err, r.BrokenHeadroom()+"; what it measured is not the service's", name)
			require.Nil(t, values, name)
			require.Empty(t, warning, name)

			continue
		}
		require.NoError(t, err, name)
		require.InDelta(t, 30, values["tpot_p95"], 0, name)
		require.Equal(t, "its verdict is FAIL, and arrivals were dropped, since all VUs were at work: "+r.BrokenHeadroom()+
			"; the service had less load than the schedule's, and limits made of what it measured are those of that load", warning, name)
	}
}

func TestTheVerdictOfARun(t *testing.T) {
	const busy = `client_headroom: {cpu: "<= 70%"}` + "\n"
	slow := new(recorded).add(100, nil).seconds(steady, 10, func(_ int, s *results.Sample) { s.Client = map[string]float64{"cpu": 0.99} })
	run := slow.write(t)
	none, err := Of(run)
	require.NoError(t, err)
	require.Nil(t, none, "without a contract nothing can be said")

	run.Info.Contract, err = json.Marshal(load(t, gate(`ttft_p95: "<= 800ms"`)+busy))
	require.NoError(t, err)
	judged, err := Of(run)
	require.NoError(t, err)
	require.Equal(t, Invalid, judged.Verdict, "judged on the spot")
	require.Equal(t, "client_headroom.cpu (measured 99%, limit <= 70%)", judged.BrokenHeadroom())
	require.NoFileExists(t, filepath.Join(run.Dir, results.VerdictFile))

	judged.Verdict = Inconclusive
	require.NoError(t, judged.Write(run.Dir))
	stored, err := Of(run)
	require.NoError(t, err)
	require.Equal(t, Inconclusive, stored.Verdict, "what was judged stands")
	require.NoError(t, results.WriteFile(filepath.Join(run.Dir, results.VerdictFile), []byte(`{"schema":"other"}`)))
	_, err = Of(run)
	require.ErrorContains(t, err, `schema is "other"`)
}
