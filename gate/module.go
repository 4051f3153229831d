package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/grafana/sobek"
	"go.k6.io/k6/js/common"
	"go.k6.io/k6/js/modules"
	"go.k6.io/k6/metrics"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
	"github.com/safeqps/xk6-safeqps/llm/describe"
)

// moduleInstance is the module in one VU.
type moduleInstance struct {
	gate *Gate
	vu   modules.VU
}

func newModuleInstance(g *Gate, vu modules.VU) *moduleInstance {
	if err := registerMonitorMetrics(vu.InitEnv().Registry); err != nil {
		common.Throw(vu.Runtime(), err)
	}

	return &moduleInstance{gate: g, vu: vu}
}

// Exports implements modules.Instance.
func (m *moduleInstance) Exports() modules.Exports {
	exports := map[string]any{"open": m.open, "monitor": m.monitor, "handleSummary": m.handleSummary}

	return modules.Exports{Default: exports, Named: exports}
}

// open is gate.open(path, {baseline}).
func (m *moduleInstance) open(name string, options sobek.Value) (sobek.Value, error) {
	if m.vu.State() != nil {
		return nil, errors.New("gate.open: a contract can be opened in the init context only")
	}
	if name == "" {
		return nil, errors.New(`gate.open: got no path, expected the path of a contract such as "./slo.yaml"`)
	}
	baseline := ""
	if options != nil && !sobek.IsUndefined(options) && !sobek.IsNull(options) {
		values, ok := options.Export().(map[string]any)
		if !ok {
			return nil, fmt.Errorf(`gate.open: options: got %s, expected an object such as {baseline: "./results-before"}`, describe.Given(options))
		}
		for key, value := range values {
			text, isText := value.(string)
			if key != "baseline" || !isText {
				return nil, fmt.Errorf(`gate.open: option %q: got %s, expected {baseline: "path of a results directory"}`, key, describe.Value(value))
			}
			baseline = text
		}
	}
	data, err := m.read(name)
	if err != nil {
		return nil, fmt.Errorf("gate.open: %w", err)
	}
	c, err := contract.Load(name, data, m.environment())
	if err != nil {
		return nil, fmt.Errorf("gate.open:\n%w", err)
	}
	if err := overridePhases(c, m.environment()); err != nil {
		return nil, fmt.Errorf("gate.open: %w", err)
	}
	if c, err = m.resolve(c, name, baseline); err != nil {
		return nil, fmt.Errorf("gate.open: %w", err)
	}

	return m.contractObject(c)
}

// environment looks variables up where the script finds them, in __ENV.
func (m *moduleInstance) environment() func(string) (string, bool) {
	env := m.vu.Runtime().Get("__ENV")

	return func(name string) (string, bool) {
		if env == nil {
			return "", false
		}
		value := env.ToObject(m.vu.Runtime()).Get(name)
		if value == nil || sobek.IsUndefined(value) {
			return "", false
		}

		return value.String(), true
	}
}

// overridePhases lets a capacity search set the lengths of its probes: LLM_WARMUP, LLM_STEADY and LLM_RECOVERY replace
// the contract's phases.
func overridePhases(c *contract.Contract, env func(string) (string, bool)) error {
	for name, phase := range map[string]*contract.Duration{
		"LLM_WARMUP": &c.Phases.Warmup, "LLM_STEADY": &c.Phases.Steady, "LLM_RECOVERY": &c.Phases.Recovery,
	} {
		text, ok := env(name)
		if !ok {
			continue
		}
		length, err := time.ParseDuration(text)
		if err != nil || length < 0 {
			return fmt.Errorf("%s: got %q, expected a time such as 30s", name, text)
		}
		*phase = contract.Duration(length)
	}

	return nil
}

// resolve gives relative limits their numbers, from the verdict of the run that is the baseline.
func (m *moduleInstance) resolve(c *contract.Contract, name, baseline string) (*contract.Contract, error) {
	named := baseline != "" // then it has to be there, even where no limit refers to it
	if !named && c.Baseline != "" {
		baseline = c.Baseline
		if !path.IsAbs(filepath.ToSlash(baseline)) {
			baseline = path.Join(path.Dir(filepath.ToSlash(name)), filepath.ToSlash(baseline))
			if !path.IsAbs(baseline) && strings.HasPrefix(name, ".") {
				baseline = "./" + baseline
			}
		}
	}
	if baseline == "" || (!named && len(c.BaselineNames()) == 0) {
		return c, nil
	}
	file := baseline
	if !strings.HasSuffix(file, ".json") {
		file = strings.TrimRight(file, "/") + "/verdict.json"
	}
	data, err := m.read(file)
	if err != nil {
		return nil, fmt.Errorf("baseline: %w; expected the results directory of a run that was judged, or its verdict.json: `k6 x llm gate verdict` judges it", err)
	}
	before, err := verdict.Parse(file, data)
	if err != nil {
		return nil, fmt.Errorf("baseline: %w", err)
	}
	measured, warning, err := before.Baseline()
	if err != nil {
		return nil, fmt.Errorf("baseline %s: %w", baseline, err)
	}
	if warning != "" && m.gate.isNews(baseline+warning) {
		m.vu.InitEnv().Logger.Warnf("baseline %s: %s", baseline, warning)
	}
	resolved, err := c.Resolve(measured)
	if err != nil {
		return nil, fmt.Errorf("baseline %s: %w", file, err)
	}

	return resolved, nil
}

// read reads a file as k6 does: relative to the script, through the file system that `k6 archive` carries.
func (m *moduleInstance) read(name string) ([]byte, error) {
	env := m.vu.InitEnv()
	full := env.GetAbsFilePath(name)
	file, err := env.FileSystems["file"].Open(full)
	if err != nil {
		return nil, fmt.Errorf("can not open %s: %w", name, err)
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(file)
	if err != nil {
		return nil, fmt.Errorf("can not read %s: %w", name, err)
	}

	return data, nil
}

// contractObject is the contract as a script sees it.
func (m *moduleInstance) contractObject(c *contract.Contract) (sobek.Value, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("gate.open: %w", err)
	}
	phases := map[string]any{}
	for name, length := range map[string]contract.Duration{
		"warmup": c.Phases.Warmup, "steady": c.Phases.Steady, "recovery": c.Phases.Recovery,
	} {
		if length > 0 {
			phases[name] = length.String()
		}
	}
	var decision any
	if len(c.Decision) > 0 {
		if err := json.Unmarshal(c.Decision, &decision); err != nil {
			return nil, fmt.Errorf("gate.open: decision: %w", err)
		}
	}
	rt := m.vu.Runtime()
	o := rt.NewObject()
	for _, f := range []struct {
		name  string
		value any
	}{
		{"file", c.File},
		{"phases", phases},
		{"confidence", c.Confidence},
		{"decision", decision},
		{"slo", requestSLO(c.RequestSLO)},
		{"thresholds", func(own sobek.Value) (sobek.Value, error) { return m.thresholds(c, own) }},
		{"toJSON", func() (any, error) {
			var plain any

			return plain, json.Unmarshal(text, &plain)
		}},
	} {
		if err := o.Set(f.name, f.value); err != nil {
			return nil, fmt.Errorf("gate.open: %w", err)
		}
	}
	if err := o.DefineDataProperty(contractKey, rt.ToValue(string(text)), sobek.FLAG_FALSE, sobek.FLAG_FALSE, sobek.FLAG_FALSE); err != nil {
		return nil, fmt.Errorf("gate.open: %w", err)
	}

	return o, nil
}

// contractKey is the hidden property that carries the checked contract from open() to monitor().
const contractKey = "__contract"

func requestSLO(s *contract.RequestSLO) any {
	if s == nil {
		return nil
	}
	out := map[string]any{}
	for name, limit := range map[string]*float64{"ttft": s.TTFT, "tpot": s.TPOT, "itl": s.ITL, "e2e": s.E2E} {
		if limit != nil {
			out[name] = *limit
		}
	}

	return out
}

// thresholds is contract.thresholds(own): the contract's thresholds in k6's form, and after them the script's own.
func (m *moduleInstance) thresholds(c *contract.Contract, own sobek.Value) (sobek.Value, error) {
	rt := m.vu.Runtime()
	merged := rt.NewObject()
	list := map[string][]any{}
	var order []string
	add := func(metric string, threshold any) {
		if _, seen := list[metric]; !seen {
			order = append(order, metric)
		}
		list[metric] = append(list[metric], threshold)
	}
	for _, t := range contract.Thresholds(c) {
		if err := checkThreshold(t.Expression); err != nil {
			return nil, fmt.Errorf("%s: %s: k6 does not take the threshold %q: %w", c.File, t.Metric, t.Expression, err)
		}
		threshold := map[string]any{"threshold": t.Expression, "abortOnFail": t.AbortOnFail}
		if t.DelayAbortEval != "" {
			threshold["delayAbortEval"] = t.DelayAbortEval
		}
		add(t.Metric, threshold)
	}
	if own != nil && !sobek.IsUndefined(own) && !sobek.IsNull(own) {
		if _, ok := own.Export().(map[string]any); !ok {
			return nil, fmt.Errorf(`contract.thresholds: got %s, expected an object of lists such as {http_req_failed: ["rate<0.01"]}`,
				describe.Given(own))
		}
		object := own.ToObject(rt)
		for _, metric := range object.Keys() {
			list, ok := object.Get(metric).Export().([]any)
			if !ok {
				return nil, fmt.Errorf("contract.thresholds: %s: got %s, expected a list of thresholds, as in options.thresholds",
					metric, describe.Given(object.Get(metric)))
			}
			for _, threshold := range list {
				add(metric, threshold)
			}
		}
	}
	for _, metric := range order {
		if err := merged.Set(metric, list[metric]); err != nil {
			return nil, fmt.Errorf("contract.thresholds: %w", err)
		}
	}

	return merged, nil
}

// checkThreshold asks k6's own parser.
func checkThreshold(expression string) error {
	t := metrics.NewThresholds([]string{expression})

	return t.Parse() //nolint:wrapcheck // the caller names the threshold
}

// monitor is gate.monitor(contract, {interval, healthURL}): the scenario that watches the service and the load generator.
func (m *moduleInstance) monitor(of sobek.Value, options sobek.Value) (sobek.Value, error) {
	rt := m.vu.Runtime()
	if of == nil || sobek.IsUndefined(of) || sobek.IsNull(of) {
		return nil, errors.New("gate.monitor: got no contract, expected what gate.open() returns")
	}
	hidden := of.ToObject(rt).Get(contractKey)
	if hidden == nil || sobek.IsUndefined(hidden) {
		return nil, fmt.Errorf("gate.monitor: got %s, expected what gate.open() returns", describe.Given(of))
	}
	var agreed contract.Contract
	if err := json.Unmarshal([]byte(hidden.String()), &agreed); err != nil {
		return nil, fmt.Errorf("gate.monitor: %w", err)
	}
	watched, scenario := &agreed, map[string]any{"executor": MonitorType}
	if options != nil && !sobek.IsUndefined(options) && !sobek.IsNull(options) {
		if _, ok := options.Export().(map[string]any); !ok {
			return nil, fmt.Errorf(`gate.monitor: options: got %s, expected an object such as {interval: "2s"}`, describe.Given(options))
		}
		for _, key := range options.ToObject(rt).Keys() {
			value := options.ToObject(rt).Get(key).Export()
			switch key {
			case "interval":
				scenario[key] = value
			case "healthURL":
				urls, err := addresses(value)
				if err == nil {
					watched, err = watched.WithHealth(urls)
				}
				if err != nil {
					return nil, fmt.Errorf("gate.monitor: healthURL: %w", err)
				}
			default:
				return nil, fmt.Errorf("gate.monitor: unknown option %q, expected interval or healthURL", key)
			}
		}
	}
	text, err := json.Marshal(watched)
	if err != nil {
		return nil, fmt.Errorf("gate.monitor: %w", err)
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		return nil, fmt.Errorf("gate.monitor: %w", err)
	}
	scenario["contract"] = plain

	return rt.ToValue(map[string]any{MonitorScenario: scenario}), nil
}

// addresses reads one address or a list of them, one for each replica.
func addresses(value any) ([]string, error) {
	list, isList := value.([]any)
	if !isList {
		list = []any{value}
	}
	out := make([]string, 0, len(list))
	for _, item := range list {
		text, isText := item.(string)
		if !isText {
			return nil, fmt.Errorf(`got %s, expected an address such as "http://127.0.0.1:8000/health", or a list of them`, describe.Value(item))
		}
		out = append(out, text)
	}
	if len(out) == 0 {
		return nil, errors.New("got an empty list, expected at least one address")
	}

	return out, nil
}
