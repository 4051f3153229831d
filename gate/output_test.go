package gate

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.k6.io/k6/errext"
	"go.k6.io/k6/lib"
	"go.k6.io/k6/metrics"

	"github.com/safeqps/xk6-safeqps/gate/clock"
	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/llm"
	"github.com/safeqps/xk6-safeqps/llm/wire"
	"github.com/safeqps/xk6-safeqps/trace/format"
)

// TestAGaugeThatIsNoMeasurementIsAGap: one broken exporter neither ends a run nor makes its evidence unreadable.
func TestAGaugeThatIsNoMeasurementIsAGap(t *testing.T) {
	t.Parallel()
	dir, begin := t.TempDir(), time.Now().Truncate(time.Second)
	w, err := results.Create(dir, results.Info{Started: begin}, results.Options{})
	require.NoError(t, err)
	o := &Output{dir: dir, logger: logrus.New(), writer: w, seconds: newSeconds()}
	registry := metrics.NewRegistry()
	push := func(name string, value float64) {
		metric, err := registry.NewMetric(name, metrics.Gauge)
		require.NoError(t, err)
		o.sample(metrics.Sample{TimeSeries: metrics.TimeSeries{Metric: metric, Tags: registry.RootTagSet()}, Time: begin, Value: value})
	}
	push("llm_server_queue_depth", 3)
	push("llm_server_queue_depth", math.Inf(1))
	push("llm_server_running", math.NaN())
	push("llm_server_kv_cache_usage", -0.5)
	push("llm_server_gpu_memory", 1e308)
	push("llm_client_memory", -1)
	for _, s := range o.seconds.all() {
		require.NoError(t, w.Sample(s))
	}
	require.NoError(t, w.Close(begin.Add(time.Second), nil))
	require.False(t, o.broken)

	run, err := results.Open(dir)
	require.NoError(t, err)
	var samples []results.Sample
	_, err = run.Series(func(s *results.Sample) error {
		samples = append(samples, *s)

		return nil
	})
	require.NoError(t, err)
	require.Len(t, samples, 1)
	require.Equal(t, map[string]float64{"queue_depth": 3}, samples[0].Server)
	require.Nil(t, samples[0].Client)
	events, _, err := run.Events()
	require.NoError(t, err)
	messages := make([]string, 0, len(events))
	for _, e := range events {
		require.Equal(t, results.EventScrapeGap, e.Kind)
		messages = append(messages, e.Message)
	}
	require.Equal(t, []string{
		"llm_server_queue_depth was +Inf, which is no measurement", "llm_server_running was NaN, which is no measurement",
		"llm_server_kv_cache_usage was -0.5, which is no measurement", "llm_server_gpu_memory was 1e+308, which is no measurement",
		"llm_client_memory was -1, which is no measurement",
	}, messages)
}

// TestAForcedLengthIsALabel: a request that forces the length of its answer does so whether or not a trace says it, and
// the label is there even where the run is killed.
func TestAForcedLengthIsALabel(t *testing.T) {
	t.Parallel()
	dir, begin := t.TempDir(), time.Now().Truncate(time.Second)
	w, err := results.Create(dir, results.Info{Started: begin, Labels: []string{"mine"}}, results.Options{})
	require.NoError(t, err)
	o := &Output{dir: dir, logger: logrus.New(), writer: w, seconds: newSeconds(), clock: clock.NewWatch()}
	exchange := func(forced bool) {
		e := &llm.Exchange{
			Attempt: 1, Row: -1, Tags: metrics.NewRegistry().RootTagSet(), Outcome: llm.OutcomeOK, Message: &wire.Message{},
			ForcedLength: forced, End: begin,
		}
		e.Timeline.Sent = begin
		o.exchange(e)
	}
	labels := func() []string {
		run, err := results.Open(dir)
		require.NoError(t, err)

		return run.Info.Labels
	}
	exchange(false)
	require.Equal(t, []string{"mine"}, labels())
	exchange(true)
	require.Equal(t, []string{"mine", results.LabelIgnoreEOS}, labels(), "before the end of the run")
	exchange(true)
	exchange(false)
	require.NoError(t, w.Close(begin.Add(time.Second), nil))
	require.Equal(t, []string{"mine", results.LabelIgnoreEOS}, labels())
	require.False(t, o.broken)
}

// Who sets the rate of what is measured decides, and no scenario beside it.
func TestAClosedLoopThatIsMeasuredIsALabel(t *testing.T) {
	t.Parallel()
	const (
		open   = `"open": {"executor": "constant-arrival-rate", "rate": 5, "duration": "1s", "preAllocatedVUs": 1, "tags": {"phase": "steady"}}`
		plain  = `"open": {"executor": "constant-arrival-rate", "rate": 5, "duration": "1s", "preAllocatedVUs": 1}`
		side   = `"side": {"executor": "constant-vus", "vus": 1, "duration": "1s"}`
		warmup = `"side": {"executor": "per-vu-iterations", "vus": 1, "tags": {"phase": "warmup"}}`
		steady = `"side": {"executor": "ramping-vus", "stages": [{"duration": "1s", "target": 1}], "tags": {"phase": "steady"}}`
	)
	for name, test := range map[string]struct {
		scenarios, scenario, phase string
		closed                     bool
	}{
		"alone":                               {side, "side", "", true},
		"beside a steady phase":               {open + ", " + side, "side", "", false},
		"its warmup":                          {open + ", " + warmup, "side", "warmup", false},
		"in the steady phase":                 {open + ", " + steady, "side", "steady", true},
		"the other of the steady phase":       {open + ", " + steady, "open", "steady", false},
		"one that sends nothing":              {plain + ", " + side, "open", "", false},
		"one without any phase":               {plain + ", " + side, "side", "", true},
		"a tag of the script":                 {open + ", " + side, "side", "steady", true},
		"no name of the scenario":             {open + ", " + side, "", "steady", false},
		"no name, and a loop of the phase":    {open + ", " + steady, "", "steady", true},
		"no name, and no phase":               {plain + ", " + side, "", "", true},
		"no name, and nothing but open loops": {plain, "", "", false},
	} {
		var scenarios lib.ScenarioConfigs
		require.NoError(t, json.Unmarshal([]byte("{"+test.scenarios+"}"), &scenarios), name)
		dir := t.TempDir()
		w, err := results.Create(dir, results.Info{Started: time.Now(), Labels: []string{"mine"}}, results.Options{})
		require.NoError(t, err)
		o := &Output{dir: dir, logger: logrus.New(), writer: w, seconds: newSeconds(), clock: clock.NewWatch(), scenarios: scenarios}
		tags := metrics.NewRegistry().RootTagSet()
		for key, value := range map[string]string{"scenario": test.scenario, "phase": test.phase} {
			if value != "" {
				tags = tags.With(key, value)
			}
		}
		want := []string{"mine"}
		if test.closed {
			want = append(want, results.LabelClosedLoop)
		}
		for range 2 {
			o.exchange(&llm.Exchange{Attempt: 1, Row: -1, Tags: tags, Outcome: llm.OutcomeOK, Message: &wire.Message{}})
		}
		run, err := results.Open(dir)
		require.NoError(t, err)
		require.Equal(t, want, run.Info.Labels, name)
		require.NoError(t, w.Close(time.Now(), nil))
	}
}

func outputInto(dir string) (*Output, *bytes.Buffer) {
	var printed bytes.Buffer
	logger := logrus.New()
	logger.SetOutput(io.Discard)

	return &Output{
		dir: dir, logger: logger, stdout: &printed, open: map[uint64]*llm.Started{}, seconds: newSeconds(), clock: clock.NewWatch(),
		replayed: func() []format.Label { return nil }, idealHits: func() *float64 { return nil },
	}, &printed
}

// Two runs into one directory would lose the evidence of both.
func TestADirectoryOfARunningTestIsRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	first, _ := outputInto(dir)
	require.NoError(t, first.Start())
	second, printed := outputInto(dir)
	second.options.Overwrite = true
	err := second.Start()
	require.ErrorIs(t, err, results.ErrInUse)
	require.ErrorContains(t, err, "output llm: results: directory "+dir+" is in use")
	require.NoError(t, second.summarise())
	require.Contains(t, printed.String(), "this run was not recorded")
	require.NoError(t, first.Stop())
	require.NoError(t, second.Start(), "it has ended")
	require.NoError(t, second.Stop())
}

// A run whose evidence was taken away ends as one that could not write it, and shows no other run's verdict as its own.
func TestARunWithoutItsEvidenceEndsWithItsOwnCode(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	first, printed := outputInto(dir)
	require.NoError(t, first.Start())
	ended := make(chan error, 1)
	first.SetTestRunStopCallback(func(err error) {
		select {
		case ended <- err:
		default:
		}
	})
	first.flusher.Stop()
	require.NoError(t, os.RemoveAll(dir))
	second, _ := outputInto(dir)
	agreed, err := contract.Load("slo.yaml", []byte(`capacity_gate: {ttft_p95: "<= 1s"}`), nil)
	require.NoError(t, err)
	second.contract = agreed
	require.NoError(t, second.Start())
	first.flush(time.Now())
	err = <-ended
	require.ErrorIs(t, err, results.ErrGone)
	var code errext.HasExitCode
	require.ErrorAs(t, err, &code)
	require.Equal(t, exitOutputLost, code.ExitCode())
	require.ErrorIs(t, first.Stop(), results.ErrGone)

	first.contract = second.contract
	require.NoError(t, first.summarise())
	require.Contains(t, printed.String(), "No verdict: what is in "+dir+" is not of this run")
	require.NoFileExists(t, filepath.Join(dir, results.VerdictFile))
	require.NoError(t, second.Stop())
	run, err := results.Open(dir)
	require.NoError(t, err)
	require.True(t, run.Recorded(), "the other run's evidence is whole")
	require.NoError(t, run.CheckHistograms())
}

// A disk without room for the end of a run has none for its beginning, and what was begun is no evidence.
func TestARunThatCouldNotBeginLeavesNothing(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	dir := filepath.Join(parent, "run")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "reserved.tmp"), 0o700)) // cannot be written
	require.NoError(t, os.WriteFile(filepath.Join(dir, "reserved.tmp", "x"), nil, 0o600))
	o, printed := outputInto(dir)
	o.options.Overwrite = true
	err := o.Start()
	var code errext.HasExitCode
	require.ErrorAs(t, err, &code)
	require.Equal(t, exitOutputLost, code.ExitCode())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, "reserved.tmp", entries[0].Name())
	require.NoError(t, o.summarise())
	require.Contains(t, printed.String(), "this run was not recorded")
}
