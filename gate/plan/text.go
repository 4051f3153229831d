package plan

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
)

// JSON is the plan with indentation, and a newline at its end.
func (p *Plan) JSON() ([]byte, error) {
	content, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return append(content, '\n'), nil
}

// Text is the plan for a terminal.
func (p *Plan) Text() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, name+"\t"+format+"\n", args...) //nolint:errcheck // a strings.Builder does not fail
	}
	d := p.Demand
	line("demand", "%.4g req/s at the peak", d.PeakRate)
	if p.PlannedRate != d.PeakRate {
		line("after growth", "%.4g req/s, %+.3g %% a month for %.3g months", p.PlannedRate, 100*d.Growth, d.Months)
	}
	if p.Capacity.Workload != "" || p.Capacity.Arrivals != "" {
		line("measured with", "workload %s, %s arrivals", orNone(p.Capacity.Workload), orNone(p.Capacity.Arrivals))
	}
	line("one replica", "%.4g req/s Safe QPS, %.4g usable with %.3g %% headroom", p.Capacity.SafeQPS, p.UsableQPS, 100*d.Headroom)
	line("by Safe QPS", "%d replicas", p.BySafeQPS)
	if p.ByLittle != nil {
		line("by Little's law", "%d replicas: %.4g requests in flight, %.4g on a replica at its Safe QPS",
			*p.ByLittle, *p.InFlight, *p.Capacity.MeanInFlight)
	}
	doubtful := ""
	const large = 0.2
	if p.Disagreement != nil && math.Abs(*p.Disagreement) > large {
		doubtful = fmt.Sprintf("; the two counts differ by %.0f %%: see the notes", 100*math.Abs(*p.Disagreement))
	}
	line("replicas", "%d, of which %d spare%s", p.Replicas, d.Spares, doubtful)
	line("load at the peak", "%.0f %% of Safe QPS; %.0f %% without the spares", 100*p.LoadAtPeak, 100*p.LoadDegraded)
	if p.MonthsLeft != nil {
		line("lasts", "%.1f months until the peak needs all of the Safe QPS without the spares", *p.MonthsLeft)
	}
	line("GPUs", "%.4g", p.GPUs)
	if p.CostPerDay != nil {
		line("cost per day", "%.2f", *p.CostPerDay)
	}
	if p.CostPerMillionOutputTokens != nil {
		line("per million output tokens", "%.3f", *p.CostPerMillionOutputTokens)
	}
	if p.CostPerMillionTokens != nil {
		line("per million tokens", "%.3f, prompt and output", *p.CostPerMillionTokens)
	}
	_ = w.Flush() //nolint:errcheck // a strings.Builder does not fail
	for _, note := range p.Notes {
		b.WriteString("note: " + note + "\n")
	}
	return b.String()
}

func orNone(name string) string {
	if name == "" {
		return "without a name"
	}
	return name
}
