package capacity

import (
	"fmt"
	"slices"
	"strings"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// Watched says what a probe was able to measure.
type Watched struct {
	// Monitor: gate.monitor was among the scenarios.
	Monitor bool
	// Length of the probe, and the longest that a probe can have, in units of the full length.
	Length, Longest float64
}

// enoughSeconds of a steady phase have several readings of every gauge.
const enoughSeconds = 5

// Unmeasured is an error where a criterion was not measured that this probe had to measure: then nothing can pass, at any
// rate, and however long it runs. The error names the criterion, and what to do. It is nil where more requests may help.
func Unmeasured(v *verdict.Result, c *contract.Contract, w Watched) error {
	by := make(map[string]contract.Criterion)
	for _, criterion := range c.Criteria() {
		by[criterion.Name] = criterion
	}
	for i := range v.Criteria {
		open := &v.Criteria[i]
		criterion, known := by[open.Name]
		if !known || open.Ignored || open.Verdict != verdict.Inconclusive || open.Measured != nil || open.N > 0 || open.Undecided > 0 {
			continue
		}
		if why := unmeasured(v, criterion, w, c.Confidence); why != "" {
			note := ""
			if open.Note != "" && open.Note != "it was not measured" && open.Note != "nothing was measured" {
				note = " (" + open.Note + ")"
			}
			return fmt.Errorf("%s %s was not measured%s, so that no rate can pass, however long it runs: %s", open.Name, open.Limit, note, why)
		}
	}
	return nil
}

// unmeasured is what to do about a criterion without a measurement; "" where it may come yet.
func unmeasured(v *verdict.Result, c contract.Criterion, w Watched, confidence float64) string {
	cut := v.Aborted != nil || v.Ended.IsZero()
	steady := phaseOf(v, steadyPhase)
	gauge := slices.Contains(gauges, c.Metric)
	switch {
	case !cut && c.Phase == contract.PhaseRecovery && phaseOf(v, string(contract.PhaseRecovery)) == nil:
		return "the script has no recovery phase: take its scenarios from workload.phases(contract.phases), or leave recovery out of the contract"
	case gauge && !w.Monitor:
		return "the script needs ...gate.monitor(contract) in options.scenarios, or the contract has to do without the criterion (" + without(c) + ")"
	case cut:
		return ""
	case c.Class != "" && c.Stat.Kind == contract.StatThroughput:
		return "leave it out of by_class"
	case c.Class != "":
		return unmeasuredClass(v, c, w, confidence, steady)
	case gauge && c.Phase == contract.PhaseSteady && steady != nil && steady.Seconds >= enoughSeconds:
		return "neither this machine nor the service's metrics (server.metrics_url) tell it; the contract has to do without the criterion (" + without(c) + ")"
	case c.Metric == "goodput" && completedOf(steady) > 0:
		return "give the contract a request_slo, and the client slo: contract.slo"
	case c.Phase == contract.PhaseSteady && !gauge && completedOf(steady) >= fewestArrivals:
		return "no request had it; leave it out of the contract"
	}
	return ""
}

// gauges are the metrics that the monitor reads about once a second.
var gauges = []string{ //nolint:gochecknoglobals // a constant table
	"queue_growth", "cpu", "memory", "open_files", "timer_delay", "queue_depth", "running", "kv_cache_usage",
}

// without is how a contract does without a criterion.
func without(c contract.Criterion) string {
	if c.Section == contract.SectionClientHeadroom {
		key := c.Name[strings.LastIndexByte(c.Name, '.')+1:]
		return fmt.Sprintf("client_headroom: {%s: off}", key)
	}
	return "leave it out"
}

// unmeasuredClass is about a class that no request had. A rare one may come yet: with none among n requests, its share is
// below 6.9/n at 99.9 % (exp(-6.9) is 0.001). It is not awaited where even so many would not be enough in the longest probe.
func unmeasuredClass(v *verdict.Result, c contract.Criterion, w Watched, confidence float64, steady *verdict.Phase) string {
	const most = 6.9
	if completedOf(steady) < fewestArrivals || v.Counts.Offered == 0 {
		return ""
	}
	const advice = "give the workload the class, or leave it out of by_class"
	if strings.HasSuffix(noteOf(v, c.Name), "classes seen: none") {
		return advice
	}
	q, ok := c.EvidenceQuantile()
	if !ok {
		return ""
	}
	needed, ok := contract.RequestsNeeded(q, confidence)
	if !ok || most*w.Longest/w.Length >= float64(needed) {
		return ""
	}
	return advice
}

func noteOf(v *verdict.Result, name string) string {
	for i := range v.Criteria {
		if v.Criteria[i].Name == name {
			return v.Criteria[i].Note
		}
	}
	return ""
}

func phaseOf(v *verdict.Result, name string) *verdict.Phase {
	for i := range v.Phases {
		if v.Phases[i].Name == name {
			return &v.Phases[i]
		}
	}
	return nil
}

func completedOf(p *verdict.Phase) int64 {
	if p == nil {
		return 0
	}
	return p.Counts.Completed
}
