package trace

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/grafana/sobek"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	"go.k6.io/k6/js/modules"
	"go.k6.io/k6/js/modulestest"
	"go.k6.io/k6/lib"
	"go.k6.io/k6/lib/fsext"

	"github.com/safeqps/xk6-safeqps/trace/format"
)

// project is a script's directory, and the k6 process that runs the script.
type project struct {
	files  fsext.Fs
	module modules.Module
	logs   *logtest.Hook
}

// conversation is a trace in Mooncake's form: 8 rows, one each 100 ms, of which the even ones share their first block.
const conversation = `{"timestamp": 1000, "input_length": 600, "output_length": 10, "hash_ids": [1, 2]}
{"timestamp": 1100, "input_length": 20, "output_length": 20, "hash_ids": [3]}
{"timestamp": 1200, "input_length": 700, "output_length": 30, "hash_ids": [1, 4]}
{"timestamp": 1300, "input_length": 30, "output_length": 40, "hash_ids": [5]}
{"timestamp": 1400, "input_length": 800, "output_length": 50, "hash_ids": [1, 6]}
{"timestamp": 1500, "input_length": 40, "output_length": 60, "hash_ids": [7]}
{"timestamp": 1600, "input_length": 900, "output_length": 70, "hash_ids": [1, 8]}
{"timestamp": 1700, "input_length": 50, "output_length": 80, "hash_ids": [9]}
`

func newProject(t *testing.T) *project {
	t.Helper()
	p := &project{files: fsext.NewMemMapFs(), module: New(), logs: &logtest.Hook{}}
	p.write(t, "conversation.jsonl", conversation)

	return p
}

func (p *project) write(t *testing.T, name, content string) {
	t.Helper()
	require.NoError(t, fsext.WriteFile(p.files, "/project/"+name, []byte(content), 0o600))
}

// vu is one VU of the process that has come to the init context.
func (p *project) vu(t testing.TB) *modulestest.Runtime {
	t.Helper()
	rt := modulestest.NewRuntime(t)
	logger, _ := logtest.NewNullLogger()
	logger.SetOutput(io.Discard)
	logger.AddHook(p.logs)
	rt.VU.InitEnvField.Logger = logger
	rt.VU.InitEnvField.FileSystems = map[string]fsext.Fs{"file": p.files}
	rt.VU.InitEnvField.CWD = &url.URL{Scheme: "file", Path: "/project"}
	require.NoError(t, rt.VU.Runtime().Set("trace", p.module.NewModuleInstance(rt.VU).Exports().Default))

	return rt
}

func (p *project) said(containing string) []string {
	var found []string
	for _, e := range p.logs.AllEntries() {
		if strings.Contains(e.Message, containing) {
			found = append(found, e.Message)
		}
	}

	return found
}

// run runs JavaScript and gives its value.
func js(t testing.TB, rt *modulestest.Runtime, code string) sobek.Value {
	t.Helper()
	v, err := rt.VU.Runtime().RunString(code)
	require.NoError(t, err, code)

	return v
}

// asJSON runs JavaScript and gives its value as JSON, as k6 consolidates options.
func asJSON(t *testing.T, rt *modulestest.Runtime, code string) string {
	t.Helper()

	return js(t, rt, "JSON.stringify("+code+")").String()
}

// scenariosOf runs JavaScript and reads its value as k6 reads options.scenarios.
func scenariosOf(t *testing.T, rt *modulestest.Runtime, code string) map[string]*Config {
	t.Helper()
	var scenarios lib.ScenarioConfigs
	require.NoError(t, json.Unmarshal([]byte(asJSON(t, rt, code)), &scenarios))
	require.Empty(t, scenarios.Validate())
	configs := map[string]*Config{}
	for name, c := range scenarios {
		configs[name] = c.(*Config)
	}

	return configs
}

func toIteration(ctx context.Context, rt *modulestest.Runtime, state *lib.State) {
	rt.MoveToVUContext(state)
	rt.VU.CtxField = ctx
}

func TestTraceIsReadOnceInAProcess(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	first := js(t, p.vu(t), `trace.open("conversation.jsonl", {seed: 7, speed: 2}).id`).String()
	require.Regexp(t, `^conversation\.jsonl-[0-9a-f]{12}$`, first)
	require.NoError(t, p.files.Remove("/project/conversation.jsonl"))
	second := p.vu(t)
	require.Equal(t, first, js(t, second, `trace.open("./conversation.jsonl", {speed: 2, seed: 7}).id`).String())
	require.EqualValues(t, 8, js(t, second, `trace.open("/project/conversation.jsonl", {seed: 7, speed: 2}).length`).ToInteger())

	said := p.said("trace " + first)
	require.Len(t, said, 1, "once")
	require.Contains(t, said[0], "8 rows over 350ms, seed 7, 20 requests/s on average; speed: ")
	_, err := second.VU.Runtime().RunString(`trace.open("conversation.jsonl")`)
	require.ErrorContains(t, err, "conversation.jsonl", "other options are another trace")
}

func TestIDNamesContentAndOptions(t *testing.T) {
	t.Parallel()
	id := func(content, options string) string {
		p := newProject(t)
		p.write(t, "t.jsonl", content)

		return js(t, p.vu(t), `trace.open("t.jsonl", `+options+`).id`).String()
	}
	same := id(conversation, `{seed: 1}`)
	require.Equal(t, same, id(conversation, `{seed: 1}`), "in every process")
	require.NotEqual(t, same, id(conversation, `{seed: 2}`))
	require.NotEqual(t, same, id(conversation[:strings.LastIndex(conversation[:len(conversation)-1], "\n")+1], `{seed: 1}`))
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.write(t, "bad.jsonl", conversation+"{nonsense\n")
	p.write(t, "one.jsonl", strings.SplitAfter(conversation, "\n")[0])
	for _, test := range []struct{ code, want string }{
		{`trace.open()`, "the path of a trace file"},
		{`trace.open("nowhere.jsonl")`, "nowhere.jsonl"},
		{`trace.open("file://")`, "expected a file, got a directory"},
		{`trace.open("/project")`, "expected a file, got a directory"},
		{`trace.open("conversation.jsonl", 3)`, "trace.open: got 3, expected an object of options"},
		{`trace.open("conversation.jsonl", {sped: 2})`, `option "sped"`},
		{`trace.open("conversation.jsonl", {sped: 2})`, "one of: format"},
		{`trace.open("conversation.jsonl", {speed: "fast"})`, `option "speed": got "fast", expected how many times as fast as recorded: a number above 0`},
		{`trace.open("conversation.jsonl", {speed: 0})`, `option "speed": got 0`},
		{`trace.open("conversation.jsonl", {speed: 2, rate: 3})`, `option "rate": got 3, expected speed or rate, not both`},
		{`trace.open("conversation.jsonl", {limit: 1.5})`, `option "limit": got 1.5, expected a number of rows: a whole number from 1 to 2^53`},
		{`trace.open("conversation.jsonl", {window: {from: "x"}})`, `option "window.from": got "x"`},
		{`trace.open("conversation.jsonl", {window: {form: 1}})`, `option "window.form"`},
		{`trace.open("conversation.jsonl", {window: {from: "1h"}})`, "no row in the window"},
		{`trace.open("conversation.jsonl", {loop: "yes"})`, `option "loop": got "yes"`},
		{`trace.open("conversation.jsonl", {loop: 0})`, `option "loop": got 0`},
		{`trace.open("one.jsonl", {loop: true})`, "no length to repeat"},
		{`trace.open("conversation.jsonl", {zeroOutput: "sometimes"})`, `option "zeroOutput": got "sometimes"`},
		{`trace.open("conversation.jsonl", {format: "xml"})`, `unknown trace format "xml"`},
		{`trace.open("conversation.jsonl", {fields: {timestamp: [1]}})`, `option "fields.timestamp": got an array`},
		{`trace.open("conversation.jsonl", {classes: {long: "x"}})`, `option "classes.long": got "x"`},
		{`trace.open("conversation.jsonl", {seed: -1})`, `option "seed": got -1`},
		{`trace.open("conversation.jsonl", {api: "grpc"})`, `option "api": got "grpc"`},
		{`trace.open("conversation.jsonl", {streamShare: 2})`, `option "streamShare": got 2, expected a share from 0 to 1`},
		{`trace.open("conversation.jsonl", {tokenIds: {low: 5}})`, `option "tokenIds.`},
		{`trace.open("conversation.jsonl", {tokenIds: {vocabulary: 7}})`, `option "tokenIds.vocabulary": got 7`},
		{`trace.open("conversation.jsonl", {prompts: 3})`, `option "prompts": got 3`},
		{`trace.open("conversation.jsonl", {prompts: {fit: "o200k_base"}})`, `option "prompts.file"`},
		{`trace.open("conversation.jsonl", {prompts: "none.txt"})`, "none.txt"},
		{`trace.open("conversation.jsonl", {calibration: {perWord: 0}})`, `option "calibration.perWord": got 0, expected tokens per word, from 0.2 to 16`},
		{`trace.open("conversation.jsonl", {calibration: {perWord: -1}})`, `option "calibration.perWord": got -1, expected tokens per word, from 0.2 to 16`},
		{`trace.open("conversation.jsonl", {calibration: {perWord: 0.19}})`, `got 0.19, expected tokens per word, from 0.2 to 16`},
		{`trace.open("conversation.jsonl", {calibration: {perWord: 1e9}})`, `got 1000000000, expected tokens per word, from 0.2 to 16`},
		{`trace.open("conversation.jsonl", {calibration: {perWord: NaN}})`, `got NaN, expected tokens per word, from 0.2 to 16`},
		{`trace.open("conversation.jsonl", {calibration: {perWord: Infinity}})`, `got +Inf, expected tokens per word, from 0.2 to 16`},
		{`trace.open("conversation.jsonl", {calibration: {perWord: "1"}})`, `got "1", expected tokens per word, from 0.2 to 16`},
		{`trace.open("conversation.jsonl", {calibration: {overhead: -2}})`, `option "calibration.overhead": got -2, expected tokens of a prompt without words, from -1 to 100000`},
		{`trace.open("conversation.jsonl", {calibration: {overhead: 1e9}})`, `expected tokens of a prompt without words, from -1 to 100000`},
		{`trace.open("conversation.jsonl", {calibration: {overhead: NaN}})`, `got NaN, expected tokens of a prompt without words`},
		{`trace.open("conversation.jsonl", {calibration: {perWord: 1, worstError: -1}})`, `option "calibration.worstError": got -1`},
		{`trace.open("conversation.jsonl", {calibration: {perWord: 1, observations: 0.5}})`, `option "calibration.observations": got 0.5`},
		{`trace.open("bad.jsonl")`, "bad.jsonl:9"},
		{`trace.generate({duration: "1m", mix: "chat"})`, `option "rate": got nothing`},
		{`trace.generate({rate: 3, mix: "chat"})`, `option "duration": got nothing`},
		{`trace.generate({rate: 3, duration: "1m"})`, `option "mix": got nothing`},
		{`trace.generate({rate: 3, duration: "1m", mix: "short=0.5"})`, "add up to 1"},
		{`trace.generate({rate: 3, duration: "1m", mix: "chat", burstiness: 0})`, `option "burstiness": got 0`},
		{`trace.generate({rate: 3, stages: [{duration: 5, target: 1}], mix: "chat"})`, "rate or stages"},
		{`trace.generate({stages: [{duration: 5}], mix: "chat"})`, `option "stages[0].target": got nothing`},
		{`trace.generate({stages: [{target: 5}], mix: "chat"})`, `option "stages[0].duration": got nothing`},
		{`trace.generate({stages: [{target: 5, duration: "1m", hold: 2}], mix: "chat"})`, `option "stages[0].hold"`},
		{`trace.generate({rate: 3, count: 5, mix: "chat", prefix: {share: 2, tokens: 5}})`, "prefix.share"},
		{`trace.generate({rate: 3, count: 5, mix: "chat", loop: 3})`, `option "loop": got 3`},
		{`trace.generate({rate: 3, count: 5, mix: "chat", vus: 3})`, `option "vus"`},
	} {
		_, err := p.vu(t).VU.Runtime().RunString(test.code)
		require.ErrorContains(t, err, test.want, test.code)
	}
}

func TestOpenOutsideTheInitContext(t *testing.T) {
	t.Parallel()
	rt := newProject(t).vu(t)
	toIteration(t.Context(), rt, &lib.State{})
	for _, code := range []string{`trace.open("conversation.jsonl")`, `trace.generate({rate: 1, count: 1, mix: "chat"})`} {
		_, err := rt.VU.Runtime().RunString(code)
		require.ErrorContains(t, err, "init context")
	}
}

func TestScenario(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	rt := p.vu(t)
	js(t, rt, `var w = trace.open("conversation.jsonl")`)
	id := js(t, rt, "w.id").String()
	require.JSONEq(t, `{"executor": "trace-arrival-rate", "trace": "`+id+`", "preAllocatedVUs": 3, "maxVUs": 5,
		"from": 0, "to": 8, "duration": "700ms", "maxDuration": "1m0s", "gracefulStop": "2m0s", "tolerance": "50ms",
		"exec": "chat", "env": {"A": "1"}, "tags": {"tier": "gold"}, "startTime": "1.5s", "options": {"browser": {}}}`,
		asJSON(t, rt, `w.scenario({preAllocatedVUs: 3, maxVUs: 5, maxDuration: "1m", gracefulStop: "2m", tolerance: 50,
			exec: "chat", env: {A: 1}, tags: {tier: "gold"}, startTime: 1500, options: {browser: {}}})`))
	require.Empty(t, p.said("estimated"))

	c := scenariosOf(t, rt, `{replay: w.scenario()}`)["replay"]
	require.EqualValues(t, leastVUs, c.PreAllocatedVUs.Int64)
	require.EqualValues(t, 2*leastVUs, c.MaxVUs.Int64)
	require.Len(t, p.said("maxVUs is not given and was estimated: preAllocatedVUs 10, maxVUs 20 (at most 8 requests in flight"), 1)
	js(t, p.vu(t), `trace.open("conversation.jsonl").scenario()`)
	require.Len(t, p.said("estimated"), 1, "said once, whatever the number of VUs")

	c = scenariosOf(t, rt, `{replay: w.scenario({maxVUs: 4})}`)["replay"]
	require.EqualValues(t, 4, c.PreAllocatedVUs.Int64)
	c = scenariosOf(t, rt, `{replay: w.scenario({preAllocatedVUs: 40})}`)["replay"]
	require.EqualValues(t, 40, c.MaxVUs.Int64)

	c = scenariosOf(t, rt, `{replay: w.scenario({duration: "250ms"})}`)["replay"]
	require.EqualValues(t, 3, c.To.Int64, "rows due before 250 ms")
	require.Equal(t, 250*time.Millisecond, c.Duration.TimeDuration())
}

func TestScenarioOfALoop(t *testing.T) {
	t.Parallel()
	rt := newProject(t).vu(t)
	c := scenariosOf(t, rt, `{replay: trace.open("conversation.jsonl", {loop: true}).scenario({duration: "2s"})}`)["replay"]
	require.EqualValues(t, 20, c.To.Int64, "one row each 100 ms, also across the seam")
	w, err := c.window()
	require.NoError(t, err)
	for i := range 20 {
		require.Equal(t, time.Duration(i)*100*time.Millisecond, w.due(i))
	}
	_, err = rt.VU.Runtime().RunString(`trace.open("conversation.jsonl", {loop: true}).scenario()`)
	require.ErrorContains(t, err, `option "duration": got nothing`)
	_, err = rt.VU.Runtime().RunString(`trace.open("conversation.jsonl").scenario({duration: "2s"})`)
	require.ErrorContains(t, err, "at most the trace's 700ms, or loop: true")
	require.EqualValues(t, 24, js(t, rt, `trace.open("conversation.jsonl", {loop: 3}).length`).ToInteger())
}

func TestScenarioErrors(t *testing.T) {
	t.Parallel()
	rt := newProject(t).vu(t)
	js(t, rt, `var w = trace.open("conversation.jsonl")`)
	for _, test := range []struct{ code, want string }{
		{`w.scenario({vus: 3})`, `Trace.scenario: option "vus"`},
		{`w.scenario({maxVUs: 0})`, `option "maxVUs": got 0`},
		{`w.scenario({maxVUs: 2, preAllocatedVUs: 3})`, `option "maxVUs": got 2, expected at least preAllocatedVUs, which is 3`},
		{`w.scenario({duration: 0})`, `option "duration": got 0`},
		{`w.scenario({startTime: "-1s"})`, `option "startTime": got "-1s"`},
		{`w.scenario({tolerance: 0})`, `option "tolerance": got 0`},
		{`w.scenario({exec: 7})`, `option "exec": got 7, expected a string`},
		{`w.scenario({tags: {a: {}}})`, `option "tags.a": got an object`},
		{`w.scenario("x")`, "an object of options"},
		{`w.phases(Promise.resolve(1))`, "Trace.phases: got a Promise, expected"},
		{`w.phases(Symbol("x"))`, "Trace.phases: got a Symbol, expected"},
		{`w.phases(new Map())`, "Trace.phases: got a Map, expected"},
		{`w.steps(Promise.resolve(1))`, "Trace.steps: got a Promise, expected"},
		{`w.steps([class {}], {hold: "1s"})`, `option "rates[0]": got a function, expected`},
		{`w.at(new Map())`, `option "row": got a Map, expected`},
		{`w.scenario({exec: Promise.resolve(1)})`, `option "exec": got a Promise, expected a string`},
		{`trace.generate({rate: 1, count: 1, mix: () => 1})`, "mix: expected an object of classes or a string, got a function"},
		{`trace.generate({rate: 1, count: 1, mix: {long: Promise.resolve(1)}})`, "got a Promise"},
		{`w.phases()`, `{warmup: "2m", steady: "10m", recovery: "2m"}`},
		{`w.phases({warmup: 0})`, `{warmup: "2m", steady: "10m", recovery: "2m"}`},
		{`w.phases({ramp: "1s", steady: "1s"})`, `Trace.phases: option "ramp"`},
		{`w.phases({steady: true})`, `option "steady": got true`},
		{`w.phases({steady: "1s"}, {startTme: 1})`, `option "startTme"`},
		{`w.phases({steady: "1s"}, {name: "a b"})`, `option "name": got "a b"`},
		{`w.steps()`, "got nothing, expected an array of rates"},
		{`w.steps([])`, "an array of rates"},
		{`w.steps([1, 0], {hold: "1s"})`, `option "rates[1]": got 0`},
		{`w.steps([1])`, `option "hold": got nothing`},
		{`w.steps([1], {hold: "1s", settle: "-1s"})`, `option "settle": got "-1s"`},
		{`w.steps([0.1], {hold: "1s"})`, "asks for no row"},
		{`w.steps([1e308], {hold: "1s"})`, "asks for more than"},
		{`w.scenario((() => { const o = {}; o.options = o; return o; })())`, "nested more than 32 deep"},
		{`trace.generate({rate: 1e9, count: 1e9, mix: "chat"})`, "expected at most 50000000"},
		{`w.stages()`, `option "bin": got nothing`},
		{`w.stages({bin: "1us"})`, "at most 100000 bins"},
		{`w.at()`, `option "row": got nothing`},
		{`w.at(8)`, `option "row": got 8, expected a row from 0 to 7`},
		{`w.at(1.5)`, `option "row": got 1.5`},
		{`w.at(1, {api: "x"})`, `Trace.at: option "api"`},
		{`w.next()`, "next() is for iterations"},
	} {
		_, err := rt.VU.Runtime().RunString(test.code)
		require.ErrorContains(t, err, test.want, test.code)
	}
}

func TestPhasesDivideTheTraceByTime(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	rt := p.vu(t)
	scenarios := scenariosOf(t, rt, `trace.open("conversation.jsonl").phases(
		{warmup: "200ms", steady: "450ms", recovery: 50}, {startTime: "5s", tags: {tier: "gold"}, maxVUs: 7, exec: "go"})`)
	require.Len(t, scenarios, 3)
	want := []struct {
		name              string
		from, to          int64
		start, ends, zero time.Duration
	}{
		{"warmup", 0, 2, 5 * time.Second, 200 * time.Millisecond, 0},
		{"steady", 2, 7, 5200 * time.Millisecond, 450 * time.Millisecond, 200 * time.Millisecond},
		{"recovery", 7, 7, 5650 * time.Millisecond, 50 * time.Millisecond, 650 * time.Millisecond},
	}
	for _, x := range want {
		c := scenarios[x.name]
		require.NotNil(t, c, x.name)
		require.Equal(t, []int64{x.from, x.to}, []int64{c.From.Int64, c.To.Int64}, x.name)
		require.Equal(t, x.start, c.GetStartTime(), x.name)
		require.Equal(t, x.ends, c.Duration.TimeDuration(), x.name)
		require.Equal(t, x.zero, c.Origin.TimeDuration(), x.name)
		require.Equal(t, map[string]string{"tier": "gold", "phase": x.name}, c.GetTags())
		require.Equal(t, "go", c.GetExec())
		require.EqualValues(t, 7, c.MaxVUs.Int64)
	}
	w, err := scenarios["steady"].window()
	require.NoError(t, err)
	require.Equal(t, time.Duration(0), w.due(0), "row 2, at 200 ms of the trace")
	require.Equal(t, 400*time.Millisecond, w.lastDue())
	require.Len(t, p.said("no row is due in the phase recovery"), 1)
	require.Empty(t, p.said("repeated"))
}

func TestPhasesWithoutLengths(t *testing.T) {
	t.Parallel()
	rt := newProject(t).vu(t)
	js(t, rt, `var w = trace.open("conversation.jsonl")`)
	for _, code := range []string{"w.phases()", "w.phases({})", "w.phases({warmup: 0})"} {
		_, err := rt.VU.Runtime().RunString(code)
		require.ErrorContains(t, err, `no length above 0, expected lengths such as {warmup: "2m"`, code)
	}
}

func TestWhatATraceIsStays(t *testing.T) {
	t.Parallel()
	rt := newProject(t).vu(t)
	js(t, rt, `var w = trace.open("conversation.jsonl", {seed: 4})`)
	for _, name := range []string{"id", "length", "seed"} {
		_, err := rt.VU.Runtime().RunString(`"use strict"; w.` + name + ` = 5`)
		require.ErrorContains(t, err, "TypeError", name)
	}
	require.Equal(t, "[8,4]", asJSON(t, rt, "[w.length, w.seed]"))
	require.Contains(t, asJSON(t, rt, "Object.keys(w)"), `"length"`)
}

func TestPhasesRepeatATraceThatIsTooShort(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	scenarios := scenariosOf(t, p.vu(t), `trace.open("conversation.jsonl").phases({warmup: "1s", steady: "2s"}, {name: "chat"})`)
	require.Len(t, scenarios, 2)
	require.EqualValues(t, 10, scenarios["chat_warmup"].To.Int64)
	require.EqualValues(t, 10, scenarios["chat_steady"].From.Int64)
	require.EqualValues(t, 30, scenarios["chat_steady"].To.Int64)
	require.Len(t, p.said("they take 3s, the trace lasts 700ms: it is repeated"), 1)
	require.Len(t, p.said("phases of trace"), 2, "and the VUs")
	w, err := scenarios["chat_steady"].window()
	require.NoError(t, err)
	require.Equal(t, 1900*time.Millisecond, w.lastDue())
}

func TestStepsKeepEachRate(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	rt := p.vu(t)
	scenarios := scenariosOf(t, rt,
		`trace.open("conversation.jsonl").steps([20, 2.5, 20], {settle: "400ms", hold: "1600ms", startTime: "1s"})`)
	require.Len(t, scenarios, 6)
	row, start := int64(0), time.Second
	for _, step := range []struct {
		name, tag     string
		rate          float64
		before, after int64 // rows in each part
	}{{"step1", "20", 20, 8, 32}, {"step2", "2.5", 2.5, 1, 4}, {"step3", "20#2", 20, 8, 32}} {
		for _, part := range []struct {
			name string
			rows int64
			ends time.Duration
		}{{"warmup", step.before, 400 * time.Millisecond}, {"steady", step.after, 1600 * time.Millisecond}} {
			c := scenarios[step.name+"_"+part.name]
			require.NotNil(t, c, step.name)
			require.Equal(t, map[string]string{"step": step.tag, "phase": part.name}, c.GetTags())
			require.Equal(t, []int64{row, row + part.rows}, []int64{c.From.Int64, c.To.Int64}, "each row once")
			require.Equal(t, start, c.GetStartTime())
			require.Equal(t, part.ends, c.Duration.TimeDuration())
			w, err := c.window()
			require.NoError(t, err)
			for i := range w.length() {
				require.InDelta(t, float64(i)/step.rate, w.due(i).Seconds(), 1e-8, "the trace's rows are evenly spaced")
			}
			row, start = row+part.rows, start+part.ends
		}
	}
	require.Len(t, p.said("they take 85 rows, the trace has 8: it is repeated"), 1)

	scenarios = scenariosOf(t, rt, `trace.open("conversation.jsonl").steps([20], {hold: "1s", name: "search"})`)
	require.Len(t, scenarios, 1)
	require.Equal(t, map[string]string{"step": "20", "phase": "steady"}, scenarios["search_step1_steady"].GetTags())
}

// The phase that is measured has the step's rate by itself, however uneven the trace is.
func TestStepsHoldTheirRate(t *testing.T) {
	t.Parallel()
	rt := newProject(t).vu(t)
	scenarios := scenariosOf(t, rt, `trace.generate({rate: 3, duration: "400s", burstiness: 0.2, mix: "chat", seed: 8})
		.steps([2, 4, 8], {hold: "60s", settle: "15s"})`)
	row := int64(0)
	for i, rate := range []int64{2, 4, 8} {
		for _, part := range []struct {
			phase   string
			seconds int64
		}{{"warmup", 15}, {"steady", 60}} {
			c := scenarios[fmt.Sprintf("step%d_%s", i+1, part.phase)]
			require.Equal(t, []int64{row, row + rate*part.seconds}, []int64{c.From.Int64, c.To.Int64})
			row = c.To.Int64
			w, err := c.window()
			require.NoError(t, err)
			require.LessOrEqual(t, w.lastDue(), time.Duration(part.seconds)*time.Second)
		}
	}
	scenarios = scenariosOf(t, rt, `trace.open("conversation.jsonl").steps([0.1], {hold: "10s", settle: "1s"})`)
	require.Zero(t, scenarios["step1_warmup"].To.Int64, "a tenth of a row is none")
	require.EqualValues(t, 1, scenarios["step1_steady"].To.Int64)
}

func TestStagesForAStockExecutor(t *testing.T) {
	t.Parallel()
	rt := newProject(t).vu(t)
	require.JSONEq(t, `[{"duration": "0s", "target": 3}, {"duration": "300ms", "target": 3},
		{"duration": "0s", "target": 3}, {"duration": "300ms", "target": 3},
		{"duration": "0s", "target": 2}, {"duration": "300ms", "target": 2}]`,
		asJSON(t, rt, `trace.open("conversation.jsonl").stages({bin: "300ms"})`))
	require.JSONEq(t, `[{"duration": "0s", "target": 8}, {"duration": "1s", "target": 8}]`,
		asJSON(t, rt, `trace.open("conversation.jsonl").stages({bin: 1000})`))
}

func TestRequestsAreAFunctionOfTheRow(t *testing.T) {
	t.Parallel()
	const code = `(() => { const w = trace.open("conversation.jsonl", {seed: 3});
		return Array.from({length: 8}, (_, i) => w.at(i)) })()`
	one, other := asJSON(t, newProject(t).vu(t), code), asJSON(t, newProject(t).vu(t), code)
	require.True(t, one == other, "in every process")

	var requests []struct {
		Messages     []struct{ Role, Content string }
		MaxTokens    int `json:"max_tokens"`
		PromptTokens int
		Row          int
		Stream       bool
		Class        *string
		DueTime      *float64
	}
	require.NoError(t, json.Unmarshal([]byte(one), &requests))
	require.Equal(t, 600, requests[0].PromptTokens)
	require.Equal(t, 10, requests[0].MaxTokens)
	require.True(t, requests[0].Stream)
	require.Nil(t, requests[0].Class)
	require.Nil(t, requests[0].DueTime)
	words := func(i int) []string { return strings.Fields(requests[i].Messages[0].Content) }
	require.Len(t, words(0), 600, "one token a word")
	require.Equal(t, words(0)[:512], words(2)[:512], "the same block")
	require.NotEqual(t, words(0)[512:520], words(2)[512:520])
	require.NotEqual(t, words(1)[:8], words(3)[:8])
	require.Equal(t, 5, requests[5].Row)
}

func TestRequestOptions(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.write(t, "prompts.txt", "How are you today, my friend?\n")
	rt := p.vu(t)
	var body map[string]any
	read := func(code string) map[string]any {
		body = nil
		require.NoError(t, json.Unmarshal([]byte(asJSON(t, rt, code)), &body))

		return body
	}
	read(`trace.open("conversation.jsonl", {api: "completions"}).at(1)`)
	require.Len(t, strings.Fields(body["prompt"].(string)), 20)
	read(`trace.open("conversation.jsonl").at(1, {api: "responses"})`)
	require.EqualValues(t, 20, body["max_output_tokens"])
	read(`trace.open("conversation.jsonl", {tokenIds: {vocabulary: 128256}}).at(1)`)
	require.Len(t, body["prompt"], 20)
	read(`trace.open("conversation.jsonl", {streamShare: 0, ignoreEos: true}).at(1)`)
	require.Equal(t, false, body["stream"])
	require.Equal(t, true, body["ignore_eos"])
	read(`trace.open("conversation.jsonl", {prompts: "prompts.txt", ignoreHashIds: true}).at(1)`)
	require.Equal(t, "How are you today, my friend?", body["messages"].([]any)[0].(map[string]any)["content"])
	read(`trace.open("conversation.jsonl", {prompts: {file: "prompts.txt", fit: "o200k_base"}, ignoreHashIds: true}).at(1)`)
	require.True(t, strings.HasPrefix(body["messages"].([]any)[0].(map[string]any)["content"].(string), "How are you"))
	read(`trace.open("conversation.jsonl", {calibration: {perWord: 1, overhead: 11}}).at(1)`)
	require.Len(t, strings.Fields(body["messages"].([]any)[0].(map[string]any)["content"].(string)), 9)
	read(`trace.open("conversation.jsonl", {classes: {long: Infinity, short: 30, typical: 650}}).at(0)`)
	require.Equal(t, "typical", body["class"])
	read(`trace.open("conversation.jsonl", {classes: {long: Infinity, short: 30, typical: 650}}).at(3)`)
	require.Equal(t, "short", body["class"], "a bound is included")
	read(`trace.open("conversation.jsonl", {classes: {short: 30}}).at(0)`)
	require.NotContains(t, body, "class")
	read(`({...trace.open("conversation.jsonl").at(1), temperature: 0})`)
	require.EqualValues(t, 20, body["promptTokens"], "a request can be spread")
}

func TestNextIsTheRowThatIsDue(t *testing.T) {
	t.Parallel()
	rt := newProject(t).vu(t)
	js(t, rt, `var w = trace.open("conversation.jsonl"), other = trace.open("conversation.jsonl", {seed: 1})`)
	due := time.UnixMicro(1_700_000_000_123_456)
	iteration := &Iteration{Trace: js(t, rt, "w.id").String(), Row: 3, Due: due}
	want := asJSON(t, rt, "w.at(3)")
	toIteration(context.WithValue(t.Context(), iterationKey{}, iteration), rt, &lib.State{})

	require.InDelta(t, 1_700_000_000_123.456, js(t, rt, "w.next().dueTime").ToFloat(), 0.0005)
	require.JSONEq(t, want, asJSON(t, rt, "(({dueTime, ...rest}) => rest)(w.next())"))
	_, err := rt.VU.Runtime().RunString(`other.next()`)
	require.ErrorContains(t, err, "this scenario replays the trace")

	iteration.Row = 11 // of the second pass, as phases() and steps() have it
	require.EqualValues(t, 11, js(t, rt, "w.next().row").ToInteger())
	require.EqualValues(t, 30, js(t, rt, "w.next().promptTokens").ToInteger())
	require.NotEqual(t, js(t, rt, "w.at(3).messages[0].content").String(), js(t, rt, "w.next().messages[0].content").String(),
		"the second pass has prompts of its own")
}

func TestNextUnderAStockExecutor(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	rt := p.vu(t)
	js(t, rt, `var w = trace.open("conversation.jsonl")`)
	iteration := uint64(5)
	logger, _ := logtest.NewNullLogger()
	logger.AddHook(p.logs)
	toIteration(t.Context(), rt, &lib.State{Logger: logger, GetScenarioGlobalVUIter: func() uint64 { return iteration }})
	require.EqualValues(t, 5, js(t, rt, "w.next().row").ToInteger())
	require.True(t, sobek.IsUndefined(js(t, rt, "w.next().dueTime")))
	require.Empty(t, p.said("repeated"))
	iteration = 8
	require.EqualValues(t, 600, js(t, rt, "w.next().promptTokens").ToInteger())
	js(t, rt, "w.next()")
	require.Len(t, p.said("the script has passed the last of the trace's 8 rows, and goes on with the first: the trace is repeated"), 1)

	toIteration(t.Context(), rt, &lib.State{})
	_, err := rt.VU.Runtime().RunString(`w.next()`)
	require.ErrorContains(t, err, "setup()")
}

func TestSummary(t *testing.T) {
	t.Parallel()
	rt := newProject(t).vu(t)
	js(t, rt, `var s = trace.open("conversation.jsonl", {classes: {short_ones: 50, rest: Infinity}}).summary()`)
	require.EqualValues(t, 8, js(t, rt, "s.rows").ToInteger())
	require.InDelta(t, 10, js(t, rt, "s.rate.meanPerS").ToFloat(), 1e-9)
	require.InDelta(t, 0.7, js(t, rt, "s.spanS").ToFloat(), 1e-9)
	require.InDelta(t, 3.0/12, js(t, rt, "s.prefix.hitRatio").ToFloat(), 1e-9)
	require.JSONEq(t, `["rest", "short_ones"]`, asJSON(t, rt, "s.classes.map(c => c.class).sort()"))
}

func TestGenerate(t *testing.T) {
	t.Parallel()
	const code = `trace.generate({rate: 50, duration: "10s", burstiness: 0.5, seed: 4, mix: "short=0.9@100/10,long=0.1@2000/50"})`
	p := newProject(t)
	rt := p.vu(t)
	js(t, rt, `var w = `+code)
	require.EqualValues(t, 500, js(t, rt, "w.length").ToInteger())
	require.Regexp(t, `^generated-`, js(t, rt, "w.id").String())
	require.Equal(t, js(t, rt, "w.id").String(), js(t, newProject(t).vu(t), code+".id").String())
	require.Equal(t, "10s", js(t, rt, "w.scenario({maxVUs: 5}).duration").String(), "not the last arrival")
	require.Len(t, p.said("500 rows over 10s, seed 4"), 1)

	scenarios := scenariosOf(t, rt, `w.phases({warmup: "4s", steady: "6s"})`)
	require.EqualValues(t, 500, scenarios["steady"].To.Int64, "the generated time, and no row of a second pass")
	require.Empty(t, p.said("repeated"))
	lengths := asJSON(t, rt, `Array.from({length: 500}, (_, i) => w.at(i)).filter(r => r.class == "long").map(r => r.promptTokens)`)
	require.Contains(t, lengths, "[2000,2000")

	require.EqualValues(t, 20, js(t, rt, `trace.generate({rate: 5, count: 20, burstiness: Infinity, mix: "chat"}).length`).ToInteger())
	require.Equal(t, "[0,200,400]", asJSON(t, rt, `trace.generate({rate: 5, count: 3, burstiness: "constant", mix: "chat"})
		.stages({bin: 1}).filter(s => s.duration == "1ms").flatMap((s, i) => s.target == 1 ? [i] : [])`))
	require.EqualValues(t, 30, js(t, rt,
		`trace.generate({startRate: 0, stages: [{duration: "6s", target: 10}], mix: "chat"}).length`).ToInteger())
	require.Equal(t, "[[20,20],[30,40],[40,60],[50,80],[600,10],[700,30],[800,50],[900,70]]", asJSON(t, rt, `(() => {
		const w = trace.generate({rate: 5, count: 200, mix: {c: {from: "conversation.jsonl"}}}), pairs = new Map();
		for (let i = 0; i < w.length; i++) { const r = w.at(i); pairs.set(r.promptTokens, r.max_tokens); }
		return [...pairs].sort((a, b) => a[0] - b[0]); })()`), "rows are drawn, not columns")
	twice := scenariosOf(t, rt, `{replay: trace.generate({rate: 10, duration: "10s", mix: "chat", loop: true}).scenario({duration: "20s"})}`)
	window, err := twice["replay"].window()
	require.NoError(t, err)
	require.Equal(t, 200, window.length())
	require.Equal(t, 10*time.Second, window.due(100)-window.due(0), "a pass takes as long as was generated, not to its last arrival")
	require.Contains(t, asJSON(t, rt, `trace.generate({rate: 5, count: 200, mix: "a=1@10/10", prefix: {share: 1, tokens: 64, groups: 2}})
		.summary().prefix`), `"blocks":400`)
}

// Rows that were left out of a trace are told when it is opened.
func TestOpenTellsWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.write(t, "odd.jsonl", conversation+`{"timestamp": 1750, "input_length": 5, "output_length": 0}`+"\nnonsense\n")
	js(t, p.vu(t), `trace.open("odd.jsonl", {skipBadRows: true})`)
	require.Len(t, p.said("8 rows over 700ms, seed 0, 10 requests/s on average; 2 of 10 lines left out: "+
		"1 that could not be read, 1 without output tokens, such as odd.jsonl:10: not valid JSON"), 1)
}

// A number of requests at a rate takes count/rate, however early its last one comes.
func TestACountKeepsItsRate(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	rt := p.vu(t)
	for _, count := range []int{1, 4, 20} {
		js(t, rt, fmt.Sprintf(`var w = trace.generate({rate: 5, count: %d, mix: "chat", loop: true})`, count))
		looped := scenariosOf(t, rt, `{load: w.scenario({duration: "400s"})}`)
		require.EqualValues(t, 2000, looped["load"].To.Int64, "5/s for 400 s")
		phases := scenariosOf(t, rt, `w.phases({warmup: "40s", steady: "400s"})`)
		require.EqualValues(t, 2000, phases["steady"].To.Int64-phases["steady"].From.Int64)
		require.Len(t, p.said(fmt.Sprintf("%d rows over %s, seed 0, 5 requests/s on average", count, time.Duration(count)*200*time.Millisecond)), 1)
	}
	require.Equal(t, "4s", js(t, rt, `trace.generate({rate: 5, count: 20, mix: "chat"}).scenario({maxVUs: 5}).duration`).String())
}

func TestEstimateCountsBursts(t *testing.T) {
	t.Parallel()
	at := func(rows ...format.Row) func(int) (time.Duration, int32) {
		return func(i int) (time.Duration, int32) { return rows[i].Due, rows[i].OutputTokens }
	}
	// 100 tokens take 1 s + 5 s.
	e := estimateVUs(4, at(
		format.Row{OutputTokens: 100}, format.Row{Due: 5 * time.Second, OutputTokens: 100},
		format.Row{Due: 6 * time.Second, OutputTokens: 100}, format.Row{Due: 12 * time.Second, OutputTokens: 100}))
	require.Equal(t, vuEstimate{peak: 2, planned: leastVUs, max: 2 * leastVUs}, e)
	burst := estimateVUs(300, func(int) (time.Duration, int32) { return time.Minute, format.Unknown })
	require.Equal(t, vuEstimate{peak: 300, planned: 300, max: 600}, burst)
	e = estimateVUs(30_000, func(int) (time.Duration, int32) { return 0, 1 })
	require.Equal(t, vuEstimate{peak: 30_000, planned: mostVUs, max: mostVUs}, e)
	require.Contains(t, e.String(), "held to 10000 VUs")
	require.Equal(t, 1050*time.Millisecond, assumedDuration(1))
	require.Equal(t, 26600*time.Millisecond, assumedDuration(format.Unknown))
}

func TestInfosNamesWhatWasOpened(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	rt := p.vu(t)
	id := js(t, rt, `trace.open("conversation.jsonl", {seed: 99, rate: 3}).id`).String()
	var found *Info
	for _, info := range Infos() {
		if info.ID == id {
			found = &info
		}
	}
	require.NotNil(t, found)
	require.Equal(t, "conversation.jsonl", found.Name)
	require.Equal(t, 8, found.Rows)
	require.EqualValues(t, 99, found.Seed)
	require.Len(t, found.Digest, 64)
	require.Equal(t, "rate", found.Labels[0].Kind)
	require.InDelta(t, 3, found.Rate, 1e-6, "7 gaps are taken for the rate: the eighth row is not yet in a gap of its own")

	id = js(t, rt, `trace.open("conversation.jsonl", {seed: 98, rate: 8, loop: true}).id`).String()
	looped := 0.0
	for _, info := range Infos() {
		if info.ID == id {
			looped = info.Rate
		}
	}
	require.InDelta(t, 8, looped, 1e-6, "a loop offers what was asked for, however few its rows")

	id = js(t, rt, `trace.generate({rate: 12.5, duration: "40s", mix: "short=1@10/10", seed: 5}).id`).String()
	for _, info := range Infos() {
		if info.ID == id {
			require.InDelta(t, 12.5, info.Rate, 1e-9)
			found = nil
		}
	}
	require.Nil(t, found)
}

// countingServer answers as a service whose chat template takes 9 tokens, and whose tokenizer makes 5 tokens of 4 words.
func countingServer(t *testing.T, withTokenizer bool) (address string, authorized *int) {
	t.Helper()
	authorized = new(int)
	count := func(text string) int { return int(math.Round(float64(len(strings.Fields(text)))*1.25)) + 9 }
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Messages []struct{ Content string }
			Prompt   *string
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)

			return
		}
		if r.Header.Get("Authorization") == "Bearer secret" {
			*authorized++
		}
		text := ""
		switch {
		case len(body.Messages) > 0:
			text = body.Messages[0].Content
		case body.Prompt != nil:
			text = *body.Prompt
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/tokenize" && withTokenizer:
			n := count(text)
			if body.Prompt != nil {
				n -= 9
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"count": n, "max_model_len": 4096, "tokens": make([]int, n)})
		case r.URL.Path == "/v1/chat/completions":
			_ = json.NewEncoder(w).Encode(map[string]any{
				"choices": []any{map[string]any{"message": map[string]any{"content": "x"}, "finish_reason": "length"}},
				"usage":   map[string]any{"prompt_tokens": count(text), "completion_tokens": 1},
			})
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)

	return s.URL, authorized
}

func TestCalibrate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		tokenizer bool
		source    string
	}{{"by the tokenizer", true, "vllm /tokenize"}, {"by usage", false, "usage"}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			address, authorized := countingServer(t, test.tokenizer)
			rt := newProject(t).vu(t)
			js(t, rt, `var w = trace.open("conversation.jsonl"), address = "`+address+`"`)
			_, err := rt.VU.Runtime().RunString(`trace.calibrate({baseURL: address})`)
			require.ErrorContains(t, err, "call it in setup()")
			toIteration(t.Context(), rt, &lib.State{Transport: http.DefaultTransport})
			js(t, rt, `var c = JSON.parse(JSON.stringify(trace.calibrate({baseURL: address, model: "m", apiKey: "secret"})))`)
			require.InDelta(t, 1.25, js(t, rt, "c.perWord").ToFloat(), 0.01)
			require.InDelta(t, 9, js(t, rt, "c.overhead").ToFloat(), 1)
			require.Equal(t, test.source, js(t, rt, "c.source").String())
			require.Positive(t, *authorized)

			prompt := js(t, rt, `w.at(2, {calibration: c}).messages[0].content`).String() // 700 tokens
			require.InDelta(t, 700, float64(len(strings.Fields(prompt)))*1.25+9, 7, "within 1 %")
		})
	}
}

func TestCalibrateErrors(t *testing.T) {
	t.Parallel()
	rt := newProject(t).vu(t)
	toIteration(t.Context(), rt, &lib.State{Transport: http.DefaultTransport})
	for _, test := range []struct{ code, want string }{
		{`trace.calibrate()`, `trace.calibrate: option "baseURL": got nothing`},
		{`trace.calibrate({baseURL: "localhost:80"})`, `option "baseURL": got "localhost:80"`},
		{`trace.calibrate({baseURL: "http://h", by: "magic"})`, `option "by": got "magic"`},
		{`trace.calibrate({baseURL: "http://h", key: 1})`, `option "key"`},
	} {
		_, err := rt.VU.Runtime().RunString(test.code)
		require.ErrorContains(t, err, test.want, test.code)
	}
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	_, err := rt.VU.Runtime().RunString(`trace.calibrate({baseURL: "` + s.URL + `", by: "usage"})`)
	require.ErrorContains(t, err, "404")
}
