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
	values, err := r.Baseline()
	require.EqualError(t, err, "its verdict is INVALID, since the load generator was the bottleneck: "+r.BrokenHeadroom()+
		"; what it measured is not the service's: repeat the baseline run with more headroom, or give another baseline")
	require.Nil(t, values)

	// A slow service is a baseline as good as any, and so is one that little is known of.
	for _, status := range []Status{Pass, Fail, Inconclusive} {
		r := ofHeadroom(status, kept, open, ignored)
		require.Empty(t, r.BrokenHeadroom())
		values, err := r.Baseline()
		require.NoError(t, err)
		require.InDelta(t, 30, values["tpot_p95"], 0)
	}
	values, err = ofHeadroom(Fail, cpu).Baseline()
	require.NoError(t, err, "FAIL goes before INVALID")
	require.InDelta(t, 30, values["tpot_p95"], 0)
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
