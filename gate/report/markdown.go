package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"strings"

	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// Markdown is the verdict as GitHub-flavoured Markdown, made to be a comment on a pull request.
func Markdown(r *verdict.Result) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "## LLM capacity gate: %s\n\n", r.Verdict)
	for _, label := range r.Labels {
		fmt.Fprintf(&b, "> **%s**\n", cell(label))
	}
	if len(r.Labels) > 0 {
		b.WriteString("\n")
	}
	b.WriteString("| criterion | limit | measured | evidence | verdict |\n| --- | --- | --- | --- | --- |\n")
	for i := range r.Criteria {
		c := &r.Criteria[i]
		shown := status(c)
		if c.Verdict != verdict.Pass && !c.Ignored {
			shown = "**" + shown + "**"
		}
		proof := cell(evidence(c))
		if c.Note != "" {
			proof += "<br>" + cell(c.Note)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", cell(c.Name), cell(c.Limit), cell(measured(c)), proof, shown)
	}
	if len(r.Steps) > 0 {
		b.WriteString("\n| step | offered | verdict | because of |\n| --- | ---: | --- | --- |\n")
		for i := range r.Steps {
			step := &r.Steps[i]
			shown := string(step.Verdict)
			if step.Verdict != verdict.Pass {
				shown = "**" + shown + "**"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", cell(step.Name), stepRate(step), shown, cell(stepReason(step)))
		}
	}
	fmt.Fprintf(&b, "\nConfidence %s%%. Arrivals: %s.\n", digits(100*r.Confidence), countsLine(r.Counts, r.DroppedBy))
	if len(r.Warnings) > 0 {
		b.WriteString("\n### Warnings\n\n")
		for _, warning := range r.Warnings {
			fmt.Fprintf(&b, "- %s\n", cell(warning))
		}
	}
	phasesTable(&b, r)
	runDetails(&b, r)
	return b.Bytes()
}

func phasesTable(b *bytes.Buffer, r *verdict.Result) {
	if len(r.Phases) == 0 {
		return
	}
	b.WriteString("\n### Phases\n\nLatencies of the requests that have them, failed ones left out; warmup is shown and not judged.\n\n" +
		"| phase | metric | n | p50 | p95 | p99 | max |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |\n")
	for i := range r.Phases {
		p := &r.Phases[i]
		for _, metric := range shownMetrics {
			q, ok := p.Metrics[metric]
			if !ok {
				continue
			}
			fmt.Fprintf(b, "| %s | %s | %d | %s | %s | %s | %s |\n", cell(phaseName(p)), metric, q.N,
				quantity(q.P50, "ms"), quantity(q.P95, "ms"), quantity(q.P99, "ms"), quantity(q.Max, "ms"))
		}
	}
	for i := range r.Phases {
		if line := rates(&r.Phases[i]); line != "" {
			fmt.Fprintf(b, "\n%s: %s.\n", cell(phaseName(&r.Phases[i])), line)
		}
	}
}

func runDetails(b *bytes.Buffer, r *verdict.Result) {
	if r.Prefix != nil {
		fmt.Fprintf(b, "\nPrefix cache: %s of the prompt tokens (as %s says)", quantity(r.Prefix.Measured, "ratio"),
			map[string]string{"usage": "the answers' usage", "server": "the server's own ratio"}[r.Prefix.Source])
		if r.Prefix.Ideal != nil {
			fmt.Fprintf(b, "; the workload's own reuse explains %s", quantity(*r.Prefix.Ideal, "ratio"))
		}
		b.WriteString(".\n")
	}
	if r.Workload != "" {
		fmt.Fprintf(b, "\nWorkload: %s.\n", cell(r.Workload))
	}
	if !r.Started.IsZero() {
		fmt.Fprintf(b, "\nRun started %s.\n", r.Started.UTC().Format("2006-01-02 15:04:05 MST"))
	}
	if len(r.Decision) == 0 {
		return
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, r.Decision, "", "  ") != nil {
		return
	}
	fmt.Fprintf(b, "\n<details><summary>Decision</summary>\n\n%s\n\n</details>\n", fenced(pretty.String()))
}

// fenced puts text into a code block that it cannot end.
func fenced(text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + "json\n" + text + "\n" + fence
}

// cell makes text safe inside a table, and outside of it: it can neither end the cell nor mark anything up.
func cell(text string) string {
	text = html.EscapeString(text)
	text = strings.NewReplacer(
		"\r", " ", "\n", " ", "|", `\|`, "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`, "]", `\]`,
		"&#34;", `"`, "&#39;", "'",
	).Replace(text)
	return text
}
