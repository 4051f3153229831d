package trace

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/grafana/sobek"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	"go.k6.io/k6/errext"
	"go.k6.io/k6/js/modulestest"
	"go.k6.io/k6/lib"
	"go.k6.io/k6/lib/executor"
	"pgregory.net/rapid"
)

// iterate runs next() in iterations of a scenario, and gives the rows and the prompts.
func iterate(t *testing.T, p *project, rt *modulestest.Runtime, scenarios lib.ScenarioConfigs, name string, iterations ...uint64) (rows []int, prompts []string) {
	t.Helper()

	return iterateIn(t, p, rt, lib.Options{Scenarios: scenarios}, name, iterations...)
}

func iterateIn(t *testing.T, p *project, rt *modulestest.Runtime, options lib.Options, name string, iterations ...uint64) (rows []int, prompts []string) {
	t.Helper()
	logger, _ := logtest.NewNullLogger()
	logger.AddHook(p.logs)
	current := uint64(0)
	toIteration(lib.WithScenarioState(t.Context(), &lib.ScenarioState{Name: name}), rt, &lib.State{
		Logger: logger, GetScenarioGlobalVUIter: func() uint64 { return current }, Options: options,
	})
	for _, current = range iterations {
		var got struct {
			Row      int                        `json:"row"`
			Messages []struct{ Content string } `json:"messages"`
		}
		require.NoError(t, json.Unmarshal([]byte(js(t, rt, "JSON.stringify(w.next())").String()), &got))
		rows, prompts = append(rows, got.Row), append(prompts, got.Messages[0].Content)
	}

	return rows, prompts
}

func scenarioConfigs(t *testing.T, text string) lib.ScenarioConfigs {
	t.Helper()
	var scenarios lib.ScenarioConfigs
	require.NoError(t, json.Unmarshal([]byte(text), &scenarios))

	return scenarios
}

// Two scenarios of k6's own executors that take their requests from one trace would fill the prefix cache for each other, if
// both began with its first row.
func TestStockScenariosHaveRowsOfTheirOwn(t *testing.T) {
	t.Parallel()
	const (
		file      = `trace.open("conversation.jsonl", {seed})` // of 8 rows
		generated = `trace.generate({rate: 10, duration: "20s", mix: "short=1@20/5", seed})`
		warmup    = `"warmup": {"executor": "constant-arrival-rate", "rate": 5, "duration": "2s", "preAllocatedVUs": 1}`
		steady    = `"steady": {"executor": "constant-arrival-rate", "rate": 3, "duration": "10s", "startTime": "2s", "preAllocatedVUs": 1}`
		ramp      = `"ramp": {"executor": "ramping-arrival-rate", "startTime": "1s", "preAllocatedVUs": 1, "timeUnit": "2s", "startRate": 2,
			"stages": [{"target": 6, "duration": "4s"}, {"target": 6, "duration": "3s"}, {"target": 0, "duration": "0s"}]}`
		shared  = `"all": {"executor": "shared-iterations", "vus": 2, "iterations": 7}`
		closed  = `"closed": {"executor": "constant-vus", "vus": 2, "duration": "1s"}`
		another = `"another": {"executor": "per-vu-iterations", "vus": 2, "iterations": 1, "startTime": "1s"}`
	)
	for i, test := range []struct {
		name, open, scenarios string
		want                  map[string][]int // rows of the first three iterations
	}{
		{"one alone", generated, `{` + steady + `}`, map[string][]int{"steady": {0, 1, 2}}},
		{"one alone in a closed loop", file, `{` + closed + `}`, map[string][]int{"closed": {0, 1, 2}}},
		// A scenario of 5/s may start in the instant of its end, too: 11 rows are its own.
		{"one after the other", generated, `{` + steady + `, ` + warmup + `}`, map[string][]int{"warmup": {0, 1, 2}, "steady": {11, 12, 13}}},
		// 31 and 11 rows; 4 s at 1 to 3/s and 3 s at 3/s are 17 requests, and rounding may make it one more.
		{
			"in the order of their beginnings", generated, `{` + ramp + `, ` + steady + `, ` + warmup + `}`,
			map[string][]int{"warmup": {0, 1, 2}, "ramp": {11, 12, 13}, "steady": {29, 30, 31}},
		},
		{
			"and of their names", generated, `{` + warmup + `, ` + shared + `}`,
			map[string][]int{"all": {0, 1, 2}, "warmup": {7, 8, 9}},
		},
		{
			"closed loops come last", generated, `{` + closed + `, ` + steady + `}`,
			map[string][]int{"steady": {0, 1, 2}, "closed": {31, 32, 33}},
		},
		{
			"closed loops take passes in turn", file, `{` + closed + `, ` + another + `}`,
			map[string][]int{"closed": {0, 1, 2}, "another": {8, 9, 10}},
		},
		{
			"after a part of a pass", file, `{` + closed + `, ` + another + `, ` + warmup + `}`,
			map[string][]int{"warmup": {0, 1, 2}, "closed": {16, 17, 18}, "another": {24, 25, 26}},
		},
		{
			"beside a replay", file, `{"replay": {"executor": "trace-arrival-rate", "trace": "ID", "preAllocatedVUs": 1, "to": 5}, ` + closed + `}`,
			map[string][]int{"closed": {5, 6, 7}},
		},
		{
			"beside a replay of another trace", file, `{"replay": {"executor": "trace-arrival-rate", "trace": "other", "preAllocatedVUs": 1}, ` + closed + `}`,
			map[string][]int{"closed": {0, 1, 2}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			seen := map[string]bool{}
			for name, want := range test.want {
				rt := p.vu(t) // each scenario's VUs, which know nothing of each other
				js(t, rt, fmt.Sprintf("var seed = %d, w = %s", 5000+i, test.open))
				text := test.scenarios
				if id := js(t, rt, "w.id").String(); test.name == "beside a replay" {
					text = `{"replay": {"executor": "trace-arrival-rate", "trace": "` + id + `", "preAllocatedVUs": 1, "to": 5}, ` + closed + `}`
				}
				rows, prompts := iterate(t, p, rt, scenarioConfigs(t, text), name, 0, 1, 2)
				require.Equal(t, want, rows, name)
				for _, prompt := range prompts {
					require.False(t, seen[prompt], "another scenario has sent this prompt")
					seen[prompt] = true
				}
			}
		})
	}

	// A closed loop goes on behind the passes of the others.
	p := newProject(t)
	rt := p.vu(t)
	js(t, rt, "var w = "+`trace.open("conversation.jsonl", {seed: 5099})`)
	rows, _ := iterate(t, p, rt, scenarioConfigs(t, `{`+closed+`, `+another+`}`), "closed", 6, 7, 8, 16)
	require.Equal(t, []int{6, 7, 16, 32}, rows)
	require.Len(t, p.said("the scenario closed takes rows of its own, from 0 on"), 1)
	require.Len(t, p.said("the scenario closed has passed the last of the trace's 8 rows, and goes on with the first: the trace is repeated"), 1)
	require.Empty(t, p.said("the scenario another"))

	// One that begins behind the last row has repeated nothing yet.
	p = newProject(t)
	rt = p.vu(t)
	js(t, rt, "var w = "+`trace.open("conversation.jsonl", {seed: 5100})`)
	rows, _ = iterate(t, p, rt, scenarioConfigs(t, `{`+closed+`, `+another+`}`), "another", 0, 7)
	require.Equal(t, []int{8, 15}, rows)
	require.Len(t, p.said("the scenario another takes rows of its own, from 8 on"), 1)
	require.Empty(t, p.said("repeated"))
}

// k6 fills a segment up to a whole differently in each instance: then they send some rows twice and others never.
func TestStockScenariosNeedTheSegmentSequence(t *testing.T) {
	t.Parallel()
	segment := func(text string) *lib.ExecutionSegment {
		s, err := lib.NewExecutionSegmentFromString(text)
		require.NoError(t, err)

		return s
	}
	sequence, err := lib.NewExecutionSegmentSequenceFromString("0,1/3,2/3,1")
	require.NoError(t, err)
	none := lib.ExecutionSegmentSequence{}
	for _, test := range []struct {
		name     string
		segment  *lib.ExecutionSegment
		sequence *lib.ExecutionSegmentSequence
		refused  bool
	}{
		{"a third", segment("1/3:2/3"), nil, true},
		{"a third, of an empty sequence", segment("1/3:2/3"), &none, true},
		{"a third, of a sequence", segment("1/3:2/3"), &sequence, false},
		{"the whole", segment("0:1"), nil, false},
		{"no segment", nil, nil, false},
	} {
		rt := newProject(t).vu(t)
		js(t, rt, `var w = trace.open("conversation.jsonl")`)
		toIteration(lib.WithScenarioState(t.Context(), &lib.ScenarioState{Name: "load"}), rt, &lib.State{
			GetScenarioGlobalVUIter: func() uint64 { return 3 },
			Options:                 lib.Options{ExecutionSegment: test.segment, ExecutionSegmentSequence: test.sequence},
		})
		v, err := rt.VU.Runtime().RunString(`try { w.next().row } catch { "caught" }`)
		if !test.refused {
			require.NoError(t, err, test.name)
			require.EqualValues(t, 3, v.ToInteger(), test.name)

			continue
		}
		var interrupted *sobek.InterruptedError
		require.ErrorAs(t, err, &interrupted, "%s: the test ends, as by test.abort(): it would say it for each iteration otherwise", test.name)
		reason, ok := interrupted.Value().(*errext.InterruptError)
		require.True(t, ok)
		require.ErrorContains(t, reason, "scenario load: an execution segment needs the execution segment sequence too")
	}
}

// A script whose options change from one VU to the next has another trace in each, and the results name none of them.
func TestStockScenariosRefuseATraceOfTheVUsOwn(t *testing.T) {
	t.Parallel()
	const code = `var w = trace.open("conversation.jsonl", {seed})`
	p := newProject(t)
	open := func(vu, seed int) *modulestest.Runtime {
		rt := p.vu(t)
		js(t, rt, fmt.Sprintf("var __VU = %d, seed = %d, first = trace.open('conversation.jsonl', {seed: 5300}); %s", vu, seed, code))
		toIteration(t.Context(), rt, &lib.State{GetScenarioGlobalVUIter: func() uint64 { return 3 }})

		return rt
	}
	open(0, 5301)
	same := open(1, 5301)
	require.EqualValues(t, 3, js(t, same, "w.next().row").ToInteger())
	other := open(2, 5302)
	id := js(t, other, "w.id").String()
	require.EqualValues(t, 3, js(t, other, "first.next().row").ToInteger())
	_, err := other.VU.Runtime().RunString("w.next()")
	require.ErrorContains(t, err, "next(): this VU has opened the trace "+id+", which is none of those that the script opened when it was first run")
	require.ErrorContains(t, err, "Date.now()")
	var interrupted *sobek.InterruptedError
	require.ErrorAs(t, err, &interrupted, "the test ends")
	_, err = open(3, 5302).VU.Runtime().RunString("w.next()")
	require.ErrorContains(t, err, "this VU has opened the trace", "also where two VUs have the same")
	open(0, 5304) // that of setup(): k6 runs the init code again for it
	_, err = open(4, 5305).VU.Runtime().RunString("w.next()")
	require.ErrorContains(t, err, "this VU has opened the trace")
}

// Whatever the scenarios and however many iterations closed loops get to, no row is taken twice.
func TestStockScenariosNeverShareARow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "rows")
		scenarios, iterations := map[string]any{}, map[string]int{}
		for i := range rapid.IntRange(1, 5).Draw(t, "scenarios") {
			name := fmt.Sprintf("s%d", rapid.IntRange(0, 9).Draw(t, "name")*10+i)
			start := fmt.Sprintf("%ds", rapid.IntRange(0, 3).Draw(t, "start"))
			rate, seconds := rapid.IntRange(1, 7).Draw(t, "rate"), rapid.IntRange(1, 5).Draw(t, "seconds")
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				scenarios[name] = map[string]any{"executor": "constant-arrival-rate", "rate": rate, "duration": fmt.Sprintf("%ds", seconds), "preAllocatedVUs": 1, "startTime": start}
				iterations[name] = rate*seconds + 1
			case 1:
				scenarios[name] = map[string]any{
					"executor": "ramping-arrival-rate", "startRate": rate, "preAllocatedVUs": 1, "startTime": start,
					"stages": []any{map[string]any{"target": rate, "duration": fmt.Sprintf("%ds", seconds)}},
				}
				iterations[name] = rate*seconds + 1
			case 2:
				scenarios[name] = map[string]any{"executor": "shared-iterations", "iterations": rate * seconds, "startTime": start}
				iterations[name] = rate * seconds
			default:
				scenarios[name] = map[string]any{"executor": "constant-vus", "vus": 1, "duration": "1s", "startTime": start}
				iterations[name] = rapid.IntRange(0, 60).Draw(t, "iterations")
			}
		}
		text, err := json.Marshal(scenarios)
		require.NoError(t, err)
		var configs lib.ScenarioConfigs
		require.NoError(t, json.Unmarshal(text, &configs))
		taken := map[int]string{}
		for name, a := range allot("none", n, configs) {
			for i := range iterations[name] {
				row := a.row(i)
				require.Empty(t, taken[row], "row %d", row)
				taken[row] = name
			}
		}
		require.Len(t, allot("none", n, configs), len(scenarios))
	})
}

// A trace that has no length in time serves scenarios of k6's own executors all the same: they have arrivals of their own.
func TestStockScenariosRepeatATraceOfOneInstant(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.write(t, "batch.jsonl", `{"timestamp": 0, "input_length": 20, "output_length": 1}
{"timestamp": 0, "input_length": 30, "output_length": 1}
`)
	rt := p.vu(t)
	js(t, rt, `var w = trace.open("batch.jsonl", {seed: 5200})`)
	scenarios := scenarioConfigs(t, `{"a": {"executor": "shared-iterations", "iterations": 2}, "b": {"executor": "shared-iterations", "iterations": 2}}`)
	rows, first := iterate(t, p, rt, scenarios, "a", 0, 1)
	require.Equal(t, []int{0, 1}, rows)
	rt = p.vu(t)
	js(t, rt, `var w = trace.open("batch.jsonl", {seed: 5200})`)
	rows, second := iterate(t, p, rt, scenarios, "b", 0, 1)
	require.Equal(t, []int{2, 3}, rows)
	require.NotEqual(t, first[0], second[0])
}

// sender is an executor of another extension, as the gate's monitor is: it sends no requests of a trace.
type sender struct{ executor.BaseConfig }

func (sender) GetDescription(*lib.ExecutionTuple) string                            { return "" }
func (sender) GetExecutionRequirements(*lib.ExecutionTuple) []lib.ExecutionStep     { return nil }
func (sender) NewExecutor(*lib.ExecutionState, *logrus.Entry) (lib.Executor, error) { return nil, nil } //nolint:nilnil // never asked for
func (sender) HasWork(*lib.ExecutionTuple) bool                                     { return true }

// A scenario that watches does not make a closed loop one of several.
func TestOtherExecutorsTakeNoRows(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"closed": {"executor": "constant-vus", "vus": 2, "duration": "1s"}}`,
		`{"open": {"executor": "constant-arrival-rate", "rate": 5, "duration": "2s", "preAllocatedVUs": 1}}`,
	} {
		alone, watched := scenarioConfigs(t, text), scenarioConfigs(t, text)
		watched["llm_monitor"] = sender{executor.NewBaseConfig("llm_monitor", "llm-monitor")}
		require.Equal(t, allot("t", 8, alone), allot("t", 8, watched))
		require.Len(t, allot("t", 8, watched), 1)
	}
}
