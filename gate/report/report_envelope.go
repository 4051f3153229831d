package report

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// EnvelopeMarkdown is a report of several runs as GitHub-flavoured Markdown: the capacity envelope, if a search found
// one, and each run's rate, verdict and tails. Markdown has the details of a single run.
func EnvelopeMarkdown(in Input) []byte {
	var b bytes.Buffer
	if len(in.Capacity) > 0 {
		b.WriteString("## LLM capacity envelope\n")
		capacityTable(&b, in.Capacity)
	} else {
		b.WriteString("## LLM capacity report\n")
	}
	b.WriteString("\n| run | arrivals | offered/s | achieved/s | verdict | TTFT p99 | ITL p99 | TPOT p99 | E2E p99 | goodput | errors | broke |\n" +
		"| --- | --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n")
	var labels []string
	for i := range in.Runs {
		r := &in.Runs[i]
		word, broke := notJudged, ""
		if r.Verdict != nil {
			word, broke = string(r.Verdict.Verdict), strings.Join(failing(r.Verdict.Criteria), ", ")
		}
		for j := range r.Points {
			p := &r.Points[j]
			name := r.Name
			if p.Step != "" {
				name += " step " + p.Step
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", cell(name), cell(r.Arrival),
				quantityOf(p.OfferedPerSecond, ""), quantityOf(p.AchievedPerSecond, ""), word, p.bound(p.TTFT),
				p.bound(p.ITL), p.bound(p.TPOT), p.bound(p.E2E),
				quantityOf(p.Goodput, string(contract.UnitRatio)), quantityOf(p.ErrorShare, string(contract.UnitRatio)), cell(broke))
		}
		labels = append(labels, r.Info.Labels...)
	}
	if len(labels) > 0 {
		b.WriteString("\n")
	}
	for _, label := range JoinLabels(labels) {
		b.WriteString("> **" + cell(label) + "**\n")
	}
	if len(in.Runs) > 0 && !in.Runs[0].Info.Started.IsZero() {
		fmt.Fprintf(&b, "\nFirst run started %s.\n", when(in.Runs[0].Info.Started))
	}
	return b.Bytes()
}

// capacityTable is the envelope, and what it holds for. Notes are sentences: they stand below the table.
func capacityTable(b *bytes.Buffer, all []Capacity) {
	b.WriteString("\n| workload | arrivals | Safe QPS | completed/s | output tokens/s | prompt tokens/s | broke first | knee | margin | confirmed |\n" +
		"| --- | --- | ---: | ---: | ---: | ---: | --- | ---: | ---: | --- |\n")
	var notes strings.Builder
	for i := range all {
		c := &all[i]
		safe, confirmed := "none found", "no"
		if c.SafeQPS != nil {
			safe = "**" + threeDigits(*c.SafeQPS) + "**"
		}
		if c.Confirmed {
			confirmed = "yes"
		}
		if c.Note != "" {
			fmt.Fprintf(&notes, "- %s: %s\n", cell(nameOf(c)), cell(c.Note))
		}
		completed := quantityOf(c.CompletedRate, "")
		if c.RequestsPerArrival != nil {
			completed += " (× " + threeDigits(*c.RequestsPerArrival) + " requests)"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", cell(cmp.Or(c.Workload, scriptsOwn)),
			cell(cmp.Or(c.Arrival, scriptsOwn)), safe, completed, quantityOf(c.OutputTokensPerSecond, ""),
			quantityOf(c.PromptTokensPerSecond, ""), cell(c.LimitingCriterion), orWord(c.Knee, "", "not found"),
			orWord(c.Margin, string(contract.UnitRatio), "-"), confirmed)
	}
	if notes.Len() > 0 {
		b.WriteString("\n" + notes.String())
	}
	for _, h := range holdsFor(all) {
		of, parts := "The envelope", make([]string, 0, len(h.Configuration))
		if h.Of != "" {
			of = cell(h.Of) + ":"
		}
		for _, f := range h.Configuration {
			parts = append(parts, cell(f.Key)+" "+cell(f.Value))
		}
		if len(parts) == 0 {
			parts = []string{"a configuration that nobody stated"}
		}
		fmt.Fprintf(b, "\n%s holds for %s", of, strings.Join(parts, ", "))
		if !h.Created.IsZero() {
			b.WriteString("; found " + when(h.Created))
		}
		b.WriteString(".\n")
	}
}

// when writes an instant.
func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }

// bound is a p99, marked where it is a lower bound.
func (p Point) bound(q *verdict.Quantiles) string {
	text := quantile(q, "p99")
	if q != nil && p.Survivors() {
		text = "≥ " + text
	}
	return text
}

func orWord(v *float64, unit, word string) string {
	if v == nil {
		return word
	}
	return brief(*v, unit)
}
