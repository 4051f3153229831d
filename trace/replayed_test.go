package trace

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	"go.k6.io/k6/lib"

	"github.com/safeqps/xk6-safeqps/trace/format"
)

// What scenarios do to a recorded trace is said, whichever call made them; a generated one is made to measure.
func TestReplayedSaysHowATraceDiffersFromItsFile(t *testing.T) {
	t.Parallel()
	const stock = `{s: {executor: "constant-arrival-rate", rate: 5, duration: "1s", preAllocatedVUs: 1}}`
	for i, test := range []struct {
		name, open, scenarios string
		want                  []format.Label
	}{
		{"whole", `trace.open("conversation.jsonl", {seed})`, `({s: w.scenario()})`, nil},
		{"half", `trace.open("conversation.jsonl", {seed})`, `({s: w.scenario({duration: "400ms"})})`, []format.Label{
			{Kind: "part", Detail: "4 of 8 rows"},
		}},
		{
			"the whole in phases", `trace.open("conversation.jsonl", {seed})`, `w.phases({warmup: "300ms", steady: "500ms"})`, nil,
		},
		{"a part in phases", `trace.open("conversation.jsonl", {seed})`, `w.phases({warmup: "200ms", steady: "400ms"})`, []format.Label{
			{Kind: "part", Detail: "6 of 8 rows"},
		}},
		{"a loop", `trace.open("conversation.jsonl", {seed, loop: true})`, `({s: w.scenario({duration: "2s"})})`, []format.Label{
			{Kind: "loop", Detail: "2.5 passes through its 8 rows"},
		}},
		{"phases that are too long", `trace.open("conversation.jsonl", {seed})`, `w.phases({steady: "1600ms"})`, []format.Label{
			{Kind: "loop", Detail: "2 passes through its 8 rows"},
		}},
		{"a staircase", `trace.open("conversation.jsonl", {seed})`, `w.steps([5, 20], {hold: "400ms"})`, []format.Label{
			{Kind: "steps", Detail: "at 0.5 to 2 times its own pace"},
			{Kind: "loop", Detail: "1.25 passes through its 8 rows"},
		}},
		{"one step", `trace.open("conversation.jsonl", {seed})`, `w.steps([5], {hold: "400ms", settle: "400ms"})`, []format.Label{
			{Kind: "steps", Detail: "at 0.5 times its own pace"}, {Kind: "part", Detail: "4 of 8 rows"},
		}},
		{"its own pace", `trace.open("conversation.jsonl", {seed})`, `w.steps([10], {hold: "800ms"})`, nil},
		{
			"two parts in two scenarios", `trace.open("conversation.jsonl", {seed})`,
			`({a: {...w.scenario(), from: 0, to: 5, duration: "1s"}, b: {...w.scenario(), from: 3, to: 8, origin: "300ms", duration: "1s"}})`, nil,
		},
		{
			"written by hand", `trace.open("conversation.jsonl", {seed})`,
			`({a: {executor: "trace-arrival-rate", trace: w.id, preAllocatedVUs: 1, from: 6, to: 10, origin: "600ms", speed: 4}})`,
			[]format.Label{
				{Kind: "steps", Detail: "at 4 times its own pace"},
				{Kind: "part", Detail: "4 of 8 rows"},
				{Kind: "loop", Detail: "1.25 passes through its 8 rows"},
			},
		},
		{"stages", `trace.open("conversation.jsonl", {seed})`, `(w.stages({bin: "200ms"}), ` + stock + `)`, []format.Label{
			{Kind: "arrivals", Detail: "evened out in bins of 200ms"},
		}},
		{
			"stages under another timeUnit", `trace.open("conversation.jsonl", {seed})`,
			`({s: {executor: "ramping-arrival-rate", preAllocatedVUs: 1, stages: w.stages({bin: "200ms"})}})`,
			[]format.Label{
				{Kind: "arrivals", Detail: "evened out in bins of 200ms, at 0.2 times its load, since timeUnit is 1s"},
			},
		},
		{
			"stages under their timeUnit", `trace.open("conversation.jsonl", {seed})`,
			`({s: {executor: "ramping-arrival-rate", timeUnit: "200ms", preAllocatedVUs: 1, stages: w.stages({bin: "200ms"})}})`,
			[]format.Label{{Kind: "arrivals", Detail: "evened out in bins of 200ms"}},
		},
		{"a stock executor", `trace.open("conversation.jsonl", {seed})`, stock, []format.Label{
			{Kind: "arrivals", Detail: "those of the scenarios"},
		}},
		{
			"generated, in part", `trace.generate({rate: 50, duration: "2s", mix: "chat", seed})`, `w.phases({steady: "1s"})`, nil,
		},
		{
			"generated, in steps", `trace.generate({rate: 50, duration: "2s", mix: "chat", seed})`, `w.steps([10, 20], {hold: "1s"})`, nil,
		},
		{"generated, for a stock executor", `trace.generate({rate: 50, duration: "2s", mix: "chat", seed})`, stock, nil},
		{
			"generated, repeated", `trace.generate({rate: 50, burstiness: "constant", duration: "2s", mix: "chat", seed})`, `w.phases({steady: "3s"})`,
			[]format.Label{{Kind: "loop", Detail: "1.5 passes through its 100 rows"}},
		},
		{
			"generated, in stages", `trace.generate({rate: 50, duration: "2s", mix: "chat", seed})`, `(w.stages({bin: "1s"}), ` + stock + `)`,
			[]format.Label{{Kind: "arrivals", Detail: "evened out in bins of 1s"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			rt := p.vu(t)
			js(t, rt, fmt.Sprintf("var seed = %d, w = %s", 1000+i, test.open)) // another id in each case
			var scenarios lib.ScenarioConfigs
			require.NoError(t, json.Unmarshal([]byte(asJSON(t, rt, test.scenarios)), &scenarios))
			id := js(t, rt, "w.id").String()
			if len(test.want) > 0 && test.want[0].Kind == labelArrivals {
				require.Nil(t, replayed(id, scenarios), "nobody has asked it for a request")
			}
			logger, logs := logtest.NewNullLogger()
			toIteration(t.Context(), rt, &lib.State{
				Logger: logger, GetScenarioGlobalVUIter: func() uint64 { return 0 }, Options: lib.Options{Scenarios: scenarios},
			})
			js(t, rt, "w.next(); w.next()")
			var warnings []string
			for _, e := range logs.AllEntries() {
				if e.Level == logrus.WarnLevel {
					warnings = append(warnings, e.Message)
				}
			}
			if strings.Contains(test.name, "another timeUnit") {
				require.Equal(t, []string{"trace " + id + ": the scenario s has stages in bins of 200ms and a timeUnit of 1s, which is " +
					"0.2 times the trace's load: give it timeUnit: \"200ms\""}, warnings)
			} else {
				require.Empty(t, warnings)
			}
			require.Equal(t, test.want, replayed(id, scenarios))
			for _, label := range test.want {
				require.Contains(t, Replayed(scenarios), label)
			}
		})
	}
}

// What a prefix cache can serve is that of the rows that are replayed, in their order; and of the steady phase, where there is one.
func TestIdealPrefixHitRatioIsOfWhatIsReplayed(t *testing.T) {
	t.Parallel()
	// Rows of 600, 20, 700, 30, 800, 40, 900, 50 tokens; the even ones share a block of 512.
	const file = `trace.open("conversation.jsonl", {seed})`
	for i, test := range []struct {
		name, open, scenarios string
		hit, of               float64
	}{
		{"whole", file, `({s: w.scenario()})`, 3 * 512, 3140},
		{"its first part", file, `({s: w.scenario({duration: "400ms"})})`, 512, 1350},
		{"the steady phase", file, `w.phases({warmup: "200ms", steady: "200ms"})`, 512, 730},
		{"a recovery fills the cache too late", file, `w.phases({steady: "200ms", recovery: "200ms"})`, 0, 620},
		{"until its maxDuration", file, `({s: w.scenario({maxDuration: "300ms"})})`, 512, 1350},
		{"in two scenarios at once", file, `({b: w.scenario(), a: w.scenario()})`, 3*512 + 3140, 2 * 3140},
		{"one after the other", file, `({b: w.scenario(), a: {...w.scenario({startTime: "5s"}), tags: {phase: "steady"}}})`, 3140, 3140},
		{"a loop with text of its own", `trace.open("conversation.jsonl", {seed, loop: true})`, `({s: w.scenario({duration: "1600ms"})})`, 6 * 512, 2 * 3140},
		{
			"a loop with the same prefixes", `trace.open("conversation.jsonl", {seed, loop: true, samePrefixes: true})`,
			`({s: w.scenario({duration: "1600ms"})})`, 3*512 + 3140, 2 * 3140,
		},
		{"nothing shared", `trace.open("conversation.jsonl", {seed, ignoreHashIds: true})`, `({s: w.scenario()})`, 0, 3140},
		{"a stock executor", file, `({s: {executor: "constant-arrival-rate", rate: 5, duration: "1s", preAllocatedVUs: 1}})`, 2 * 512, 2150},
		{ // rows 0 to 3 and then 4 to 7, of which two share the block of rows 0 and 2
			"a replay, then a stock executor", file,
			`({w: w.scenario({duration: "400ms"}), s: {executor: "constant-arrival-rate", rate: 4, duration: "1s", startTime: "1s", preAllocatedVUs: 1, tags: {phase: "steady"}}})`,
			2 * 512, 1790,
		},
		{
			"a stock executor, then a replay", file,
			`({w: {...w.scenario({duration: "400ms"}), startTime: "5s"}, s: {executor: "constant-arrival-rate", rate: 4, duration: "1s", preAllocatedVUs: 1, tags: {phase: "steady"}}})`,
			512, 1790,
		},
		{
			"a replay during a stock executor", file,
			`({w: {...w.scenario({duration: "400ms"}), startTime: "500ms"}, s: {executor: "constant-arrival-rate", rate: 4, duration: "1s", preAllocatedVUs: 1}})`, -1, 1,
		},
		{
			"a replay before a closed loop", file, `({w: w.scenario({duration: "400ms"}), s: {executor: "constant-vus", vus: 1, duration: "1s", startTime: "1s"}})`, -1, 1,
		},
		{
			"one closed loop", file, `({s: {executor: "constant-vus", vus: 1, duration: "1s"}})`, -1, 1,
		},
		{ // the second pass finds all of the first
			"a stock executor past the end, with the same prefixes", `trace.open("conversation.jsonl", {seed, samePrefixes: true})`,
			`({s: {executor: "constant-arrival-rate", rate: 10, duration: "1s", preAllocatedVUs: 1}})`, 3*512 + 620, 3760,
		},
		{
			"replayed twice and then a closed loop", `trace.open("conversation.jsonl", {seed, ignoreHashIds: true})`,
			`({b: w.scenario(), a: w.scenario(), s: {executor: "constant-vus", vus: 1, duration: "1s", startTime: "2s"}})`, -1, 1,
		},
		{ // 4 and 3 rows, and one more that the first might have begun at its end: rows 0, 2, 4 and then 6 share a block
			"stock executors one after the other", file,
			`({a: {executor: "constant-arrival-rate", rate: 4, duration: "1s", preAllocatedVUs: 1}, ` +
				`b: {executor: "constant-arrival-rate", rate: 3, duration: "1s", startTime: "1s", preAllocatedVUs: 1, tags: {phase: "steady"}}})`,
			512, 40 + 900 + 50,
		},
		{
			"stock executors at once", file,
			`({a: {executor: "constant-arrival-rate", rate: 4, duration: "1s", preAllocatedVUs: 1}, ` +
				`b: {executor: "constant-arrival-rate", rate: 3, duration: "1s", startTime: "0.5s", preAllocatedVUs: 1}})`,
			-1, 1,
		},
		{
			"closed loops", file, `({a: {executor: "constant-vus", vus: 1, duration: "1s"}, b: {executor: "constant-vus", vus: 1, duration: "1s", startTime: "1s"}})`, -1, 1,
		},
		{
			"closed loops over what shares nothing", `trace.open("conversation.jsonl", {seed, ignoreHashIds: true})`,
			`({a: {executor: "constant-vus", vus: 1, duration: "1s"}, b: {executor: "constant-vus", vus: 1, duration: "1s", startTime: "1s"}})`, 0, 1,
		},
		{"prompts of a file", `trace.open("conversation.jsonl", {seed, ignoreHashIds: true, prompts: "prompts.txt"})`, `({s: w.scenario()})`, -1, 1},
		{"prompts of the trace", `trace.open("literal.jsonl", {seed})`, `({s: w.scenario()})`, -1, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			p.write(t, "prompts.txt", "one\ntwo\n")
			p.write(t, "literal.jsonl", `{"timestamp": 0, "input_length": 20, "output_length": 1, "text_input": "a"}`+"\n")
			rt := p.vu(t)
			js(t, rt, fmt.Sprintf("var seed = %d, w = %s", 3000+i, test.open))
			var scenarios lib.ScenarioConfigs
			require.NoError(t, json.Unmarshal([]byte(asJSON(t, rt, test.scenarios)), &scenarios))
			ratio := idealPrefixHitRatio(js(t, rt, "w.id").String(), scenarios)
			if test.hit < 0 {
				require.Nil(t, ratio)

				return
			}
			require.NotNil(t, ratio)
			require.InDelta(t, test.hit/test.of, *ratio, 1e-12)
		})
	}
	require.Nil(t, idealPrefixHitRatio("of no trace", nil))
}

// Once the run is over it is known which scenarios took rows, and how many: one that never asked changes nothing.
func TestIdealPrefixHitRatioIsOfTheScenariosThatTookRows(t *testing.T) {
	t.Parallel()
	const (
		open  = `"s": {"executor": "constant-arrival-rate", "rate": 4, "duration": "1s", "preAllocatedVUs": 1}`
		loop  = `"s": {"executor": "constant-vus", "vus": 1, "duration": "1s"}`
		ping  = `"ping": {"executor": "constant-vus", "vus": 1, "duration": "1s", "exec": "ping"}`
		other = `"other": {"executor": "constant-vus", "vus": 1, "duration": "1s"}`
	)
	half, halves := lib.ExecutionSegment{}, lib.ExecutionSegmentSequence{}
	require.NoError(t, half.UnmarshalText([]byte("0:1/2")))
	require.NoError(t, halves.UnmarshalText([]byte("0,1/2,1")))
	for i, test := range []struct {
		name, scenarios string
		segment         *lib.ExecutionSegment
		iterations      []uint64
		hit, of         float64
	}{
		{"a side scenario that sends nothing", `{` + open + `, ` + ping + `}`, nil, []uint64{0, 1, 2, 3}, 512, 1350},
		{ // that the trace was asked at all tells that the run has begun
			"beside a replay", `{"w": {"executor": "trace-arrival-rate", "trace": "ID", "preAllocatedVUs": 1, "to": 4}, ` + ping + `}`, nil, nil, 512, 1350,
		},
		{"a scenario that was cut short", `{` + open + `}`, nil, []uint64{0, 1, 2}, 512, 1320},
		{"a closed loop", `{` + loop + `}`, nil, []uint64{0, 2, 1, 3, 4}, 2 * 512, 2150},
		{"a closed loop that left rows out", `{` + loop + `}`, nil, []uint64{0, 2, 4}, 2 * 512, 2100},
		{"a closed loop in a part of the test", `{` + loop + `}`, &half, []uint64{0, 1, 2}, -1, 1},
		{"a part of the test", `{` + open + `, ` + ping + `}`, &half, []uint64{0, 2}, 512, 1350},
		{"in a part of the test the other may have asked elsewhere", `{` + open + `, ` + other + `}`, &half, []uint64{0, 2}, -1, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			rt := p.vu(t)
			js(t, rt, fmt.Sprintf(`var w = trace.open("conversation.jsonl", {seed: %d})`, 6000+i))
			scenarios := scenarioConfigs(t, strings.ReplaceAll(test.scenarios, "ID", js(t, rt, "w.id").String()))
			if test.iterations == nil {
				logger, _ := logtest.NewNullLogger()
				toIteration(t.Context(), rt, &lib.State{Logger: logger, Options: lib.Options{Scenarios: scenarios}})
				js(t, rt, "w.at(0)")
			}
			iterateIn(t, p, rt, lib.Options{Scenarios: scenarios, ExecutionSegment: test.segment, ExecutionSegmentSequence: &halves}, "s", test.iterations...)
			ratio := idealPrefixHitRatio(js(t, rt, "w.id").String(), scenarios)
			if test.hit < 0 {
				require.Nil(t, ratio)

				return
			}
			require.NotNil(t, ratio)
			require.InDelta(t, test.hit/test.of, *ratio, 1e-12)
		})
	}
}

// Scenarios of k6's own executors repeat a trace, too, and fill up what a replay leaves out.
func TestRowsOfStockScenariosAreOfTheLabels(t *testing.T) {
	t.Parallel()
	const (
		loop    = `"s": {"executor": "constant-vus", "vus": 1, "duration": "1s"}`
		another = `"z": {"executor": "constant-vus", "vus": 1, "duration": "1s"}`
		rate    = `"s": {"executor": "constant-arrival-rate", "rate": 12, "duration": "1s", "preAllocatedVUs": 1}`
		replay  = `"w": {"executor": "trace-arrival-rate", "trace": "ID", "preAllocatedVUs": 1, "to": 5}`
	)
	half, halves := lib.ExecutionSegment{}, lib.ExecutionSegmentSequence{}
	require.NoError(t, half.UnmarshalText([]byte("0:1/2")))
	require.NoError(t, halves.UnmarshalText([]byte("0,1/2,1")))
	numbers := func(n uint64) (list []uint64) {
		for i := range n {
			list = append(list, i)
		}

		return list
	}
	arrivals := format.Label{Kind: labelArrivals, Detail: "those of the scenarios"}
	for i, test := range []struct {
		name, scenarios string
		segment         *lib.ExecutionSegment
		iterations      map[string][]uint64
		want            []format.Label
	}{
		{"one pass", `{` + loop + `}`, nil, map[string][]uint64{"s": numbers(8)}, []format.Label{arrivals}},
		{
			"more than one", `{` + loop + `}`, nil,
			map[string][]uint64{"s": numbers(12)},
			[]format.Label{{Kind: labelLoop, Detail: "1.5 passes through its 8 rows"}, arrivals},
		},
		{
			"a second scenario that begins with the first row again", `{` + loop + `, ` + another + `}`, nil,
			map[string][]uint64{"s": numbers(3), "z": numbers(2)},
			[]format.Label{{Kind: labelLoop, Detail: "2 of its 8 rows again"}, arrivals},
		},
		{"a second scenario that takes none", `{` + loop + `, ` + another + `}`, nil, map[string][]uint64{"z": numbers(8)}, []format.Label{arrivals}},
		{
			"behind a replay", `{` + loop + `, ` + replay + `}`, nil,
			map[string][]uint64{"s": numbers(2)},
			[]format.Label{{Kind: labelPart, Detail: "7 of 8 rows"}, arrivals},
		},
		{"behind a replay, to the end", `{` + loop + `, ` + replay + `}`, nil, map[string][]uint64{"s": numbers(3)}, []format.Label{arrivals}},
		{
			"behind a replay, and once more", `{` + loop + `, ` + replay + `}`, nil,
			map[string][]uint64{"s": numbers(7)},
			[]format.Label{{Kind: labelLoop, Detail: "1.5 passes through its 8 rows"}, arrivals},
		},
		{
			"a part of the test", `{` + rate + `}`, &half,
			map[string][]uint64{"s": {0, 2}},
			[]format.Label{{Kind: labelLoop, Detail: "1.5 passes through its 8 rows"}, arrivals},
		},
		{ // each instance would give another number
			"a closed loop in a part of the test", `{` + loop + `}`, &half,
			map[string][]uint64{"s": {0, 2, 4, 6, 8}},
			[]format.Label{{Kind: labelLoop, Detail: "its 8 rows more than once"}, arrivals},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			var scenarios lib.ScenarioConfigs
			id := ""
			for _, name := range sortedKeys(test.iterations) {
				rt := p.vu(t)
				js(t, rt, fmt.Sprintf(`var w = trace.open("conversation.jsonl", {seed: %d})`, 6100+i))
				id = js(t, rt, "w.id").String()
				scenarios = scenarioConfigs(t, strings.ReplaceAll(test.scenarios, "ID", id))
				iterateIn(t, p, rt, lib.Options{Scenarios: scenarios, ExecutionSegment: test.segment, ExecutionSegmentSequence: &halves}, name, test.iterations[name]...)
			}
			require.Equal(t, test.want, replayed(id, scenarios))
		})
	}
}
