package report

import (
	"bytes"
	"fmt"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// The terminal's colours of the verdicts (ECMA-48 SGR).
var colours = map[verdict.Status]string{
	verdict.Pass: "\x1b[32m", verdict.Fail: "\x1b[31m", verdict.Inconclusive: "\x1b[33m", verdict.Invalid: "\x1b[35m",
}

const colourOff = "\x1b[0m"

// Text is the verdict as a table for a terminal; colour adds its colours.
func Text(r *verdict.Result, colour bool) []byte {
	paint := func(s verdict.Status, text string) string {
		if !colour {
			return text
		}
		return colours[s] + text + colourOff
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "verdict: %s  (confidence %s%%)\n\n", paint(r.Verdict, string(r.Verdict)), digits(100*r.Confidence))
	b.WriteString(table(r, paint))
	b.WriteString("\n")
	if len(r.Steps) > 0 {
		b.WriteString(stepsTable(r, paint))
		b.WriteString("\n")
	}
	if text := legend(r); text != "" {
		b.WriteString("  " + text + "\n")
	}
	b.WriteString("  " + countsLine(r.Counts, r.DroppedBy) + "\n")
	for i := range r.Phases {
		if line := rates(&r.Phases[i]); line != "" {
			fmt.Fprintf(&b, "  %s: %s\n", phaseName(&r.Phases[i]), line)
		}
	}
	for _, label := range r.Labels {
		fmt.Fprintf(&b, "  label: %s\n", oneLine(label))
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(&b, "  warning: %s\n", oneLine(warning))
	}
	return b.Bytes()
}

// oneLine keeps text that came from elsewhere, such as a server's message, from breaking the table or the terminal.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

func phaseName(p *verdict.Phase) string {
	if p.Name == "" {
		return "(no phase)"
	}
	return p.Name
}

// table aligns its columns by their plain text, and paints the verdicts afterwards.
func table(r *verdict.Result, paint func(verdict.Status, string) string) string {
	var plain bytes.Buffer
	w := tabwriter.NewWriter(&plain, 0, 0, 2, ' ', 0)
	write := func(cells ...string) {
		// A tabwriter into a buffer does not fail.
		_, _ = fmt.Fprintln(w, "  "+strings.Join(cells, "\t")) //nolint:errcheck // see above
	}
	write("criterion", "limit", "measured", "verdict", "evidence")
	for i := range r.Criteria {
		c := &r.Criteria[i]
		write(oneLine(c.Name), oneLine(c.Limit), measured(c), status(c), evidence(c))
	}
	_ = w.Flush() //nolint:errcheck // see above
	lines := strings.SplitAfter(plain.String(), "\n")
	column := strings.Index(lines[0], "verdict")
	for i := range r.Criteria {
		c := &r.Criteria[i]
		line := lines[i+1]
		at := byteOfRune(line, column)
		if word := status(c); !c.Ignored && strings.HasPrefix(line[at:], word) {
			line = line[:at] + paint(c.Verdict, word) + line[at+len(word):]
		}
		if c.Note != "" {
			line += "    " + oneLine(c.Note) + "\n"
		}
		lines[i+1] = line
	}
	return strings.Join(lines, "")
}

// stepsTable has a line for each rate of a staircase. Its painted column is the last but one: what follows needs no
// alignment.
func stepsTable(r *verdict.Result, paint func(verdict.Status, string) string) string {
	width := len("step")
	for i := range r.Steps {
		width = max(width, utf8.RuneCountInString(oneLine(r.Steps[i].Name)))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "  %-*s  %-9s  %-12s  %s\n", width, "step", "offered", "verdict", "because of")
	for i := range r.Steps {
		s := &r.Steps[i]
		word := string(s.Verdict)
		line := fmt.Sprintf("  %-*s  %-9s  %s%s  %s", width, oneLine(s.Name), stepRate(s), paint(s.Verdict, word),
			strings.Repeat(" ", max(0, len("INCONCLUSIVE")-len(word))), oneLine(stepReason(s)))
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// byteOfRune is the offset of a line's n-th rune: a tabwriter counts runes.
func byteOfRune(line string, n int) int {
	offset := 0
	for range n {
		_, size := utf8.DecodeRuneInString(line[offset:])
		offset += size
	}
	return offset
}
