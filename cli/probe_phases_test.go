package cli

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/safeqps/xk6-safeqps/gate/capacity"
	"github.com/safeqps/xk6-safeqps/gate/compare"
	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// probeOf writes the evidence of a probe whose arrivals have the times, in seconds, of each phase; with rows of a trace, or
// as k6's own executors leave them.
func probeOf(t *testing.T, rows bool, options string, phases map[string][]float64) (*results.Run, *arrivals) {
	t.Helper()
	began := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	dir := filepath.Join(t.TempDir(), "run")
	w, err := results.Create(dir, results.Info{Started: began, Options: json.RawMessage(options)}, results.Options{})
	require.NoError(t, err)
	n := int64(0)
	for _, phase := range []string{"warmup", "steady"} {
		for _, seconds := range phases[phase] {
			at := began.Add(time.Duration(seconds * float64(time.Second)))
			q := results.Request{Row: -1, Scenario: phase, Phase: phase, Start: at, Outcome: results.OK, E2E: results.Num(10)}
			if rows {
				q.Row, q.Due = n, at
			}
			n++
			require.NoError(t, w.Request(&q))
		}
	}
	require.NoError(t, w.Close(began.Add(time.Hour), nil))
	run, err := results.Open(dir)
	require.NoError(t, err)
	came, err := arrivalsOf(run)
	require.NoError(t, err)

	return run, came
}

// gammaArrivals at a rate from one time to another; the shape +Inf is constant.
func gammaArrivals(shape, rate, from, to float64, seed uint64) []float64 {
	gaps := distuv.Gamma{Alpha: shape, Beta: shape * rate, Src: rand.NewPCG(seed, 2)}
	var all []float64
	for at := from; ; {
		if math.IsInf(shape, 1) {
			at += 1 / rate
		} else {
			at += gaps.Rand()
		}
		if at >= to {
			return all
		}
		all = append(all, at)
	}
}

const stock = `{"scenarios": {"warmup": {"executor": "constant-arrival-rate", "gracefulStop": "5s"}, "steady": {"executor": "constant-arrival-rate"}}}`

func TestThePhasesThatWereMeasured(t *testing.T) {
	t.Parallel()
	constant := math.Inf(1)
	p := &prober{contract: &contract.Contract{Phases: contract.Phases{Warmup: contract.Duration(5 * time.Second), Steady: contract.Duration(12 * time.Second)}}}
	for name, c := range map[string]struct {
		warmup, steady []float64
		length         float64
		says           string
	}{
		"as asked for":    {gammaArrivals(constant, 10, 0, 5, 1), gammaArrivals(constant, 10, 5, 17, 1), 1, ""},
		"half of it":      {gammaArrivals(constant, 10, 0, 5, 1), gammaArrivals(constant, 10, 5, 11, 1), 1, "steady phase was 5.9 s long from its first arrival to its last, 12s were asked for"},
		"not extended":    {gammaArrivals(constant, 10, 0, 5, 1), gammaArrivals(constant, 10, 5, 17, 1), 1.5, "18s were asked for"},
		"extended":        {gammaArrivals(constant, 10, 0, 5, 1), gammaArrivals(constant, 10, 5, 23, 1), 1.5, ""},
		"not shortened":   {gammaArrivals(constant, 10, 0, 5, 1), gammaArrivals(constant, 10, 5, 17, 1), 0.15, "2s were asked for"},
		"no warmup":       {nil, gammaArrivals(constant, 10, 5, 17, 1), 1, "nothing arrived with the tag phase: warmup"},
		"half the warmup": {gammaArrivals(constant, 10, 0, 2.5, 1), gammaArrivals(constant, 10, 5, 17, 1), 1, "warmup phase was 2."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run, came := probeOf(t, true, "{}", map[string][]float64{"warmup": c.warmup, "steady": c.steady})
			req := capacity.ProbeRequest{Rate: 10, Length: c.length}
			err := p.phasesMeasured(run, req, came)
			if c.says == "" {
				require.NoError(t, err)

				return
			}
			require.ErrorContains(t, err, c.says)
			run.Info.Aborted = &results.Aborted{Rule: capacity.StoppedEarlyRule}
			if cut := p.phasesMeasured(run, req, came); name == "half of it" || name == "not extended" {
				require.NoError(t, cut, "a probe that was stopped early is shorter")
			}
		})
	}
	// What an iteration sends later than its first request makes a phase of k6's own executors longer than it was.
	run, came := probeOf(t, false, stock, map[string][]float64{
		"warmup": gammaArrivals(constant, 10, 0, 5, 1), "steady": append(gammaArrivals(constant, 10, 5, 17, 1), 18, 20, 22, 24, 26),
	})
	require.NoError(t, p.phasesMeasured(run, capacity.ProbeRequest{Rate: 10, Length: 1}, came))
}

// The scenarios' own lengths count, where they tell them: no burst, and no early end, makes them others.
func TestTheLengthsOfScenarios(t *testing.T) {
	t.Parallel()
	p := &prober{contract: &contract.Contract{Phases: contract.Phases{Warmup: contract.Duration(5 * time.Second), Steady: contract.Duration(12 * time.Second)}}}
	scenarios := func(warmup, steady string) string {
		return `{"scenarios": {"warmup": {"executor": "ramping-arrival-rate", "stages": [{"duration": "1s"}, {"duration": "` + warmup + `"}], "tags": {"phase": "warmup"}},
			"steady": {"executor": "trace-arrival-rate", "startTime": "5s", "duration": "` + steady + `", "tags": {"phase": "steady"}}}}`
	}
	burst := map[string][]float64{"warmup": {0.1}, "steady": {6, 6.001, 6.002}}
	req := capacity.ProbeRequest{Rate: 10, Length: 1}
	for _, c := range []struct{ warmup, steady, says string }{
		{"4s", "12s", ""},
		{"4s", "6s", "the scenarios of the script's steady phase send for 6 s, 12s were asked for"},
		{"4s", "20s", "the scenarios of the script's steady phase send for 20 s, 12s were asked for"},
		{"1s", "12s", "the scenarios of the script's warmup phase send for 2 s, 5s were asked for"},
	} {
		run, came := probeOf(t, true, scenarios(c.warmup, c.steady), burst)
		for range 2 {
			if err := p.phasesMeasured(run, req, came); c.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.says)
			}
			run.Info.Aborted = &results.Aborted{Rule: capacity.StoppedEarlyRule} // what was to be sent is known all the same
		}
	}
	run, came := probeOf(t, true, scenarios("4s", "12s"), burst)
	came.scenarios = []string{"another"}
	require.ErrorContains(t, p.phasesMeasured(run, req, came), "from its first arrival to its last", "the phase came from elsewhere")
}

// Chance, and bursts, make no phase another one.
func TestBurstsAreNoOtherPhases(t *testing.T) {
	t.Parallel()
	p := &prober{contract: &contract.Contract{Phases: contract.Phases{Warmup: contract.Duration(10 * time.Second), Steady: contract.Duration(60 * time.Second)}}}
	for _, shape := range []float64{0.25, 1, 4} {
		for seed := range uint64(20) {
			for _, rate := range []float64{1, 10} {
				run, came := probeOf(t, true, "{}", map[string][]float64{
					"warmup": gammaArrivals(shape, rate, 0, 10, seed), "steady": gammaArrivals(shape, rate, 10, 70, seed+1000),
				})
				require.NoError(t, p.phasesMeasured(run, capacity.ProbeRequest{Rate: rate, Length: 1}, came), "k = %v, seed %d, rate %v", shape, seed, rate)
			}
		}
	}
}

func TestAClosedLoopCannotBeSearched(t *testing.T) {
	t.Parallel()
	at := gammaArrivals(1, 10, 1, 5, 1)
	for options, says := range map[string]string{
		`{"scenarios": {"steady": {"executor": "constant-vus"}}}`:                                               "the scenario steady of the steady phase has the executor constant-vus, a closed loop",
		`{"scenarios": {"warmup": {"executor": "constant-vus"}, "steady": {"executor": "trace-arrival-rate"}}}`: "",
		stock: "",
	} {
		run, came := probeOf(t, false, options, map[string][]float64{"steady": at})
		if err := openLoop(run, came); says == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, says)
			came.scenarios, run.Info.Labels = []string{""}, []string{results.LabelClosedLoop}
			require.ErrorContains(t, openLoop(run, came), says, "without the tag scenario")
		}
	}
}

func TestArrivalsThatWereNotAskedFor(t *testing.T) {
	t.Parallel()
	const traced = `{"scenarios": {"steady": {"executor": "trace-arrival-rate", "trace": "t1"}}}`
	for name, c := range map[string]struct {
		asked string
		came  float64
		rows  bool
		says  string
	}{
		"what was asked for":    {"poisson", 1, true, ""},
		"another process":       {"constant", 1, true, "--arrival constant was asked for, and is not what came: the gaps between"},
		"evenly spaced":         {"bursty", math.Inf(1), true, "--arrival bursty was asked for"},
		"nothing was asked for": {"", 0.25, true, ""},
		"an executor's":         {"poisson", 1, false, "the executor constant-arrival-rate spaces arrivals evenly"},
		"an executor's, even":   {"constant", 1, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := traced
			if !c.rows {
				options = stock
			}
			run, came := probeOf(t, c.rows, options, map[string][]float64{"steady": gammaArrivals(c.came, 20, 0, 60, 3)})
			p := &prober{arrival: c.asked}
			err := p.arrivalsAskedFor(run, came)
			require.False(t, came.own)
			if c.says == "" {
				require.NoError(t, err)

				return
			}
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, "LLM_BURSTINESS")
			run.Info.Digests = map[string]string{"t1": "sha256:1"}
			if c.rows {
				require.NoError(t, p.arrivalsAskedFor(run, came), "a recorded trace brings its own")
				require.True(t, came.own)
			}
		})
	}
}

func TestSecondsOfLoad(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	dir := filepath.Join(t.TempDir(), "run")
	seconds, err := secondsOfLoad(dir)
	require.NoError(t, err)
	require.Zero(t, seconds, "cut before it began")
	w, err := results.Create(dir, results.Info{Started: began}, results.Options{})
	require.NoError(t, err)
	for i := range 26 {
		require.NoError(t, w.Sample(results.Sample{Time: began.Add(time.Duration(i) * time.Second)}))
	}
	require.NoError(t, w.Flush(began))
	seconds, err = secondsOfLoad(dir)
	require.NoError(t, err)
	require.InDelta(t, 26, seconds, 0, "killed")
	require.NoError(t, w.Close(began.Add(30*time.Second), nil))
	seconds, err = secondsOfLoad(dir)
	require.NoError(t, err)
	require.InDelta(t, 30, seconds, 0)
}

func TestWhatAClientProofProves(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	row := func(metric string, answer compare.Answer) compare.Row {
		return compare.Row{Metric: metric, Statistic: "p99", Answer: answer}
	}
	for i, c := range []struct {
		rows    []compare.Row
		status  verdict.Status
		limited *bool
	}{
		{[]compare.Row{row("ttft", compare.Same), row("e2e", compare.Worse)}, verdict.Pass, &no},
		{[]compare.Row{row("ttft", compare.Better), row("e2e", compare.NotEnough)}, verdict.Pass, &yes},
		{[]compare.Row{row("ttft", compare.Same), row("e2e", compare.NotEnough)}, verdict.Pass, nil},
		{[]compare.Row{row("ttft", compare.Same)}, verdict.Invalid, nil},
		{nil, verdict.Pass, nil},
	} {
		proof := proofOf(capacity.Record{}, c.status, &compare.Report{Rows: c.rows})
		require.Equal(t, c.limited, proof.Limited, fmt.Sprint(i))
	}
}
