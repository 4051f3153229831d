// Package trace is the k6 module `k6/x/llm/trace` and the executor `trace-arrival-rate`: it decides when each request
// starts, and what it asks for. The packages below it do the work and know nothing of k6: format (trace files), arrival
// (arrival processes) and workload (rows to requests).
//
// A script opens or generates a trace in its init context, which gives a Trace object. Its scenario(), phases() and
// steps() are k6 scenarios; in an iteration, its next() is the request of the row that is due. A trace is read once in a
// process and shared by all VUs; what a VU sends is a function of the trace, its options and the row alone.
package trace

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/grafana/sobek"
	"github.com/sirupsen/logrus"
	"go.k6.io/k6/js/common"
	"go.k6.io/k6/js/modules"

	"github.com/safeqps/xk6-safeqps/llm"
	"github.com/safeqps/xk6-safeqps/llm/describe"
)

// rootModule is what k6 keeps one of in each process.
type rootModule struct {
	mu     sync.Mutex
	opened map[string]func() (*recording, error)
	first  map[string]bool // the ids of what the script opened when it was first run
	said   map[string]bool
}

// New returns the module for registration with k6.
func New() modules.Module {
	return &rootModule{opened: map[string]func() (*recording, error){}, first: map[string]bool{}, said: map[string]bool{}}
}

// NewModuleInstance implements modules.Module.
func (m *rootModule) NewModuleInstance(vu modules.VU) modules.Instance {
	return &moduleInstance{root: m, vu: vu}
}

// moduleInstance is the module in one VU.
type moduleInstance struct {
	root *rootModule
	vu   modules.VU
}

// Exports implements modules.Instance.
func (m *moduleInstance) Exports() modules.Exports {
	exports := map[string]any{"open": m.open, "generate": m.generate, "calibrate": m.calibrate}

	return modules.Exports{Default: exports, Named: exports}
}

// value makes a JavaScript value of maps, slices and plain values. A Go map as such would show its keys in another order
// each time, and JSON.stringify would give other bytes.
func (m *moduleInstance) value(v any) sobek.Value {
	rt := m.vu.Runtime()
	switch v := v.(type) {
	case map[string]any:
		obj := rt.NewObject()
		for _, name := range sortedKeys(v) {
			m.set(obj, name, m.value(v[name]))
		}

		return obj
	case map[string]string:
		obj := rt.NewObject()
		for _, name := range sortedKeys(v) {
			m.set(obj, name, v[name])
		}

		return obj
	case []any:
		items := make([]any, len(v))
		for i := range v {
			items[i] = m.value(v[i])
		}

		return rt.NewArray(items...)
	default:
		return rt.ToValue(v)
	}
}

// set sets a property of an object that was made here, and so has no setter that could fail.
func (m *moduleInstance) set(obj *sobek.Object, name string, v any) {
	if err := obj.Set(name, v); err != nil {
		common.Throw(m.vu.Runtime(), err)
	}
}

// fix sets a property that scripts can read and not write.
func (m *moduleInstance) fix(obj *sobek.Object, name string, v any) {
	rt := m.vu.Runtime()
	if err := obj.DefineDataProperty(name, rt.ToValue(v), sobek.FLAG_FALSE, sobek.FLAG_FALSE, sobek.FLAG_TRUE); err != nil {
		common.Throw(rt, err)
	}
}

// once gives the recording of a key, made by the first VU that asks for it.
func (m *rootModule) once(key string, build func() (*recording, error)) (*recording, error) {
	m.mu.Lock()
	get, ok := m.opened[key]
	if !ok {
		get = sync.OnceValues(build)
		m.opened[key] = get
	}
	m.mu.Unlock()

	return get()
}

// isCommon says whether the script opened this trace when k6 first ran its init code, before that of any VU. What a VU opens
// beside those is a trace of its own, by options that are not the same in all VUs.
func (m *rootModule) isCommon(id string, rt *sobek.Runtime) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	// k6 numbers VUs from 1. It runs the init code with 0 at first, and once more for setup() and such.
	if vu := rt.GlobalObject().Get("__VU"); vu == nil || vu.ToInteger() == 0 {
		m.first[id] = true
	}

	return m.first[id]
}

// say logs a message that every VU's init code comes to, once.
func (m *rootModule) say(logger logrus.FieldLogger, message string) {
	m.mu.Lock()
	before := m.said[message]
	m.said[message] = true
	m.mu.Unlock()
	if !before {
		logger.Info(message)
	}
}

// open is `trace.open(path, options)`.
func (m *moduleInstance) open(name string, opts sobek.Value) (*sobek.Object, error) {
	if name == "" || name == "undefined" {
		return nil, &llm.OptionError{What: "trace.open", Found: "no path", Expected: "the path of a trace file"}
	}

	return m.make("trace.open", name, opts, func(o *options, f files) (*recording, string, error) {
		read, ask := o.readReadOptions(), o.readRequestOptions()
		if err := o.finish(); err != nil {
			return nil, "", err
		}
		r, err := openFile(name, f, read, ask)
		if err != nil {
			return nil, "", fmt.Errorf("trace.open: %w", err)
		}

		return r, path.Base(strings.ReplaceAll(name, `\`, "/")), nil
	})
}

// generate is `trace.generate(options)`.
func (m *moduleInstance) generate(opts sobek.Value) (*sobek.Object, error) {
	return m.make("trace.generate", "", opts, func(o *options, f files) (*recording, string, error) {
		r, err := generate(o, f)

		return r, "generated", err
	})
}

// make gives the Trace object of a recording, which is made if no VU has made it before. build also says by what name the
// recording's id is to begin.
func (m *moduleInstance) make(
	what, name string, opts sobek.Value, build func(*options, files) (*recording, string, error),
) (*sobek.Object, error) {
	env := m.vu.InitEnv()
	if env == nil {
		return nil, fmt.Errorf("%s is for the init context, that is the script's global scope: "+
			"open the trace there, and call next() in the iteration", what)
	}
	o, err := optionsFrom(what, opts)
	if err != nil {
		return nil, err
	}
	f := files{env: env, digest: sha256.New()}
	// fmt sorts the keys of maps, so that equal options are equal texts.
	given := fmt.Sprintf("%#v", o.values)
	key := fmt.Sprintf("%s\x00%s\x00%s", what, f.absolute(name), given)
	r, err := m.root.once(key, func() (*recording, error) {
		r, stem, err := build(o, f)
		if err != nil {
			return nil, err
		}
		r.publish(stem, what+given, f)
		m.root.say(env.Logger, r.String())

		return r, nil
	})
	if err != nil {
		return nil, err
	}

	return m.traceObject(r), nil
}

// String describes the recording for the log.
func (r *recording) String() string {
	text := fmt.Sprintf("trace %s: %d rows over %s, seed %d", r.id, len(r.rows), r.lasts.Round(time.Millisecond), r.seed)
	if rate, ok := r.trace.OfferedRate(); ok {
		text += fmt.Sprintf(", %.4g requests/s on average", rate)
	}
	if left := r.trace.Notes.LeftOut(); left != "" {
		text += "; " + left
	}
	for _, l := range r.trace.Labels {
		text += "; " + l.Kind + ": " + l.Detail
	}
	if n := r.plan.TooShort(); n > 0 {
		text += fmt.Sprintf("; %d rows ask for a prompt shorter than the chat template: theirs will be longer than asked", n)
	}

	return text
}

// jsTrace is a Trace object in one VU.
type jsTrace struct {
	*recording
	module   *moduleInstance
	common   bool                  // opened alike when the script was first run
	allotted map[string]*allotment // by scenario, once it was asked for
}

func (m *moduleInstance) traceObject(r *recording) *sobek.Object {
	t := &jsTrace{recording: r, module: m, common: m.root.isCommon(r.id, m.vu.Runtime())}
	obj := m.vu.Runtime().NewObject()
	m.fix(obj, "id", r.id)
	m.fix(obj, "length", len(r.rows))
	m.fix(obj, "seed", r.seed)
	m.set(obj, "scenario", t.scenario)
	m.set(obj, "phases", t.phases)
	m.set(obj, "steps", t.steps)
	m.set(obj, "stages", t.stages)
	m.set(obj, "next", t.next)
	m.set(obj, "at", t.at)
	m.set(obj, "summary", t.summarize)

	return obj
}

// say logs a message once in a process; outside the init context, where the VU has no logger of the test, by the VU's.
func (t *jsTrace) say(message string) {
	switch {
	case t.module.vu.InitEnv() != nil:
		t.module.root.say(t.module.vu.InitEnv().Logger, message)
	case t.module.vu.State() != nil:
		t.module.root.say(t.module.vu.State().Logger, message)
	}
}

func (t *jsTrace) scenario(opts sobek.Value) (sobek.Value, error) {
	o, err := optionsFrom("Trace.scenario", opts)
	if err != nil {
		return nil, err
	}
	s := o.readScenarioOptions()
	duration, given := o.duration("duration", "how long the trace is replayed, above 0", aboveZero)
	if d, ok := o.duration("maxDuration", "after how long the scenario ends, above 0", aboveZero); ok {
		s.common["maxDuration"] = d.String()
	}
	if err := o.finish(); err != nil {
		return nil, err
	}
	w, err := t.whole(duration, given)
	if err != nil {
		return nil, err
	}
	s.withVUs(t.recording, "scenario", []*window{w}, t.say)

	return t.module.value(s.scenario(t.recording, w, nil)), nil
}

func (t *jsTrace) phases(lengths, opts sobek.Value) (sobek.Value, error) {
	l, err := optionsFrom("Trace.phases", lengths)
	if err != nil {
		return nil, err
	}
	o, err := optionsFrom("Trace.phases", opts)
	if err != nil {
		return nil, err
	}

	scenarios, err := t.recording.phases(l, o, t.say)
	if err != nil {
		return nil, err
	}

	return t.module.value(scenarios), nil
}

const ratesForm = "an array of rates in requests per second, e.g. [1, 2, 4, 8]"

func (t *jsTrace) steps(rates, opts sobek.Value) (sobek.Value, error) {
	list, ok := exportOf(rates).([]any)
	if !ok || len(list) == 0 {
		return nil, &llm.OptionError{What: "Trace.steps", Found: describe.Given(rates), Expected: ratesForm}
	}
	numbers := make([]float64, len(list))
	for i, v := range list {
		if numbers[i], ok = asNumber(v); !ok || !positive(numbers[i]) {
			return nil, &llm.OptionError{
				What: "Trace.steps", Option: fmt.Sprintf("rates[%d]", i), Found: describe.Value(v), Expected: "a rate above 0",
			}
		}
	}
	o, err := optionsFrom("Trace.steps", opts)
	if err != nil {
		return nil, err
	}

	scenarios, err := t.recording.steps(numbers, o, t.say)
	if err != nil {
		return nil, err
	}

	return t.module.value(scenarios), nil
}

func exportOf(v sobek.Value) any {
	if common.IsNullish(v) {
		return nil
	}

	return v.Export()
}

func (t *jsTrace) stages(opts sobek.Value) (sobek.Value, error) {
	o, err := optionsFrom("Trace.stages", opts)
	if err != nil {
		return nil, err
	}
	bin, given := o.duration("bin", "the width of a bin, above 0", aboveZero)
	if !given {
		o.wrong("bin", nil, "the width of a bin, above 0: "+durationForm)
	}
	if err := o.finish(); err != nil {
		return nil, err
	}
	if t.span()/bin > maxBins {
		return nil, &llm.OptionError{
			What: "Trace.stages", Option: "bin", Found: bin.String(),
			Expected: fmt.Sprintf("a width that gives at most %d bins of the trace's %s", maxBins, t.span()),
		}
	}

	return t.module.value(t.recording.stages(bin)), nil
}

const maxBins = 100_000

// summarize gives the numbers of format.Summary under their JSON names, in JavaScript's spelling.
func (t *jsTrace) summarize() (sobek.Value, error) {
	data, err := json.Marshal(t.summary())
	if err != nil {
		return nil, fmt.Errorf("summary of trace %s: %w", t.id, err)
	}
	var out any
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("summary of trace %s: %w", t.id, err)
	}

	return t.module.value(camelCase(out)), nil
}

func camelCase(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, value := range v {
			words := strings.Split(name, "_")
			for i, word := range words[1:] {
				words[i+1] = strings.ToUpper(word[:1]) + word[1:]
			}
			out[strings.Join(words, "")] = camelCase(value)
		}

		return out
	case []any:
		for i := range v {
			v[i] = camelCase(v[i])
		}
	}

	return v
}
