package compare

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
)

// JSON is the report with indentation, and a newline at its end.
func (r *Report) JSON() ([]byte, error) {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	return append(content, '\n'), nil
}

var header = []string{"metric", "", "A", "B", "change", "interval", "p (adjusted)", "answer"}

func (r *Report) table() [][]string {
	rows := make([][]string, 0, len(r.Rows))
	for i := range r.Rows {
		row := &r.Rows[i]
		change, interval := "-", "-"
		if row.Change != nil {
			change = row.show(*row.Change)
		}
		if row.Low != nil && row.High != nil {
			interval = row.show(*row.Low) + " to " + row.show(*row.High)
		}
		answer := string(row.Answer)
		if row.Note != "" {
			answer += " (" + row.Note + ")"
		}
		rows = append(rows, []string{
			row.Metric, row.Statistic, value(row.A), value(row.B), change, interval, value(row.PAdjusted), answer,
		})
	}
	return rows
}

func (r *Row) show(v float64) string {
	if r.Metric == errorMetric {
		return fmt.Sprintf("%+.2f pp", 100*v)
	}
	return fmt.Sprintf("%+.1f %%", 100*(v-1))
}

const errorMetric = "error_share"

func value(v *float64) string {
	if v == nil {
		return "-"
	}
	if math.Abs(*v) >= 1e4 && math.Abs(*v) < 1e15 { // no exponent among milliseconds
		return fmt.Sprintf("%.0f", *v)
	}
	return fmt.Sprintf("%.4g", *v)
}

// head is the answer and what it rests on.
func (r *Report) head() []string {
	answer := map[Answer]string{
		Better: "better", Worse: "worse", Same: fmt.Sprintf("the same within ±%.3g %%", 100*r.Margin),
		NotEnough: "neither shown to differ nor to be the same: not enough evidence",
		Mixed:     "better in some metrics and worse in others",
	}[r.Answer]
	switch len(r.Invalid) {
	case 0:
	case 1:
		answer += fmt.Sprintf(", since the verdict on %s is INVALID", r.Invalid[0].Side)
	default:
		answer += ", since the verdicts on A and B are INVALID"
	}
	paired := "independent runs"
	if r.PairedRows > 0 {
		paired = fmt.Sprintf("%d rows replayed by both", r.PairedRows)
	}
	return []string{
		"B is " + answer, "A: " + r.A, "B: " + r.B,
		fmt.Sprintf("phase %s, %d blocks of %.3g s, %.3g %% confidence, %s; latencies in milliseconds",
			r.Phase, r.Blocks, r.BlockSeconds, 100*r.Confidence, paired),
	}
}

func (r *Report) foot() []string {
	lines := make([]string, 0, len(r.PooledITL)+len(r.Differences)+len(r.Labels)+len(r.Warnings))
	for _, p := range r.PooledITL {
		lines = append(lines, fmt.Sprintf("ITL %s over all gaps: %.4g ms and %.4g ms (%+.1f %%)", p.Statistic, p.A, p.B, 100*(p.Ratio-1)))
	}
	for _, d := range r.Differences {
		what := "differs"
		if d.Workload {
			what = "the workload differs"
		}
		lines = append(lines, fmt.Sprintf("%s: %s (A: %s, B: %s)", what, d.What, d.A, d.B))
	}
	for _, label := range r.Labels {
		lines = append(lines, "label: "+label)
	}
	for _, warning := range r.Warnings {
		lines = append(lines, "warning: "+warning)
	}
	return lines
}

// Text is the report for a terminal.
func (r *Report) Text() string {
	var b strings.Builder
	b.WriteString(strings.Join(r.head(), "\n") + "\n\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{header}, r.table()...) {
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t")) //nolint:errcheck // a strings.Builder does not fail
	}
	_ = w.Flush() //nolint:errcheck // a strings.Builder does not fail
	if foot := r.foot(); len(foot) > 0 {
		b.WriteString("\n" + strings.Join(foot, "\n") + "\n")
	}
	return b.String()
}

// Markdown is the report for a pull request.
func (r *Report) Markdown() string {
	var b strings.Builder
	head := r.head()
	b.WriteString("**" + head[0] + "**\n\n")
	for _, line := range head[1:] {
		b.WriteString("- " + line + "\n")
	}
	b.WriteString("\n")
	for i, row := range append([][]string{header}, r.table()...) {
		b.WriteString("| " + strings.ReplaceAll(strings.Join(row, "\t"), "|", "\\|") + " |\n")
		if i == 0 {
			b.WriteString(strings.Repeat("| --- ", len(header)) + "|\n")
		}
	}
	out := strings.ReplaceAll(b.String(), "\t", " | ")
	if foot := r.foot(); len(foot) > 0 {
		out += "\n- " + strings.Join(foot, "\n- ") + "\n"
	}
	return out
}
