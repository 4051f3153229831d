package compare

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// schedule is what k6's scenarios say of the load.
type schedule struct {
	// text is the same for scenarios that ask the same; "" where the options do not tell.
	text string
	// open says that arrivals do not wait for answers.
	open bool
}

// monitor is the executor of the gate's own scenario, which sends nothing.
const monitor = "llm-monitor"

// noLoad are the keys of a scenario that do not say what is asked of the service: names, addresses, how many VUs stand
// ready for the arrivals, and when the load generator gives up. What those bring about is in the counts of dropped and
// cancelled requests.
var noLoad = []string{
	"executor", "exec", "env", "tags", "options", "trace", "origin", "gracefulStop", "gracefulRampDown", "preAllocatedVUs", "maxVUs",
	"maxDuration", "tolerance", "rate", "startRate", "timeUnit",
}

// scenariosOf describes those scenarios that sent a phase's requests. The trace of a replay is told by its digest and seed.
func scenariosOf(options json.RawMessage, sent map[string]bool) schedule {
	var k6 struct {
		Scenarios map[string]map[string]any `json:"scenarios"`
	}
	if len(options) == 0 || json.Unmarshal(options, &k6) != nil {
		return schedule{} // of another k6 than this one
	}
	out := schedule{open: true}
	var parts []string
	for name, scenario := range k6.Scenarios {
		executor := fmt.Sprint(scenario["executor"])
		if executor == monitor || !sent[name] {
			continue
		}
		parts = append(parts, describe(executor, scenario))
		switch executor {
		case "constant-arrival-rate", "ramping-arrival-rate", "trace-arrival-rate":
		default:
			out.open = false
		}
	}
	slices.Sort(parts) // names do not matter
	out.text = strings.Join(parts, "; ")
	return out
}

func describe(executor string, scenario map[string]any) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(scenario)) {
		if v := scenario[key]; v != nil && !slices.Contains(noLoad, key) && !nothing(key, v) {
			parts = append(parts, key+" "+shown(v))
		}
	}
	unit := time.Second
	if text, ok := scenario["timeUnit"].(string); ok {
		if d, err := time.ParseDuration(text); err == nil && d > 0 {
			unit = d
		}
	}
	for _, key := range []string{"rate", "startRate"} {
		if rate, ok := scenario[key].(float64); ok {
			parts = append(parts, fmt.Sprintf("%s %.6g/s", key, rate/unit.Seconds()))
		}
	}
	if _, staged := scenario["stages"]; staged && strings.HasSuffix(executor, "arrival-rate") && unit != time.Second {
		parts = append(parts, "targets per "+unit.String())
	}
	return executor + " (" + strings.Join(parts, ", ") + ")"
}

// nothing reports the values that k6 means by leaving a key out.
func nothing(key string, v any) bool {
	switch key {
	case "startTime":
		return shown(v) == "0s"
	case "speed":
		return v == 1.0
	}
	return false
}

// shown writes a value; durations in one notation.
func shown(v any) string {
	switch v := v.(type) {
	case string:
		if d, err := time.ParseDuration(v); err == nil {
			return d.String()
		}
		return v
	case float64:
		return fmt.Sprintf("%.6g", v)
	}
	content, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(content)
}
