package report

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// GitHub is the verdict as workflow commands, which GitHub Actions shows as annotations: an error for each criterion
// that failed, a warning for each that could not be decided and for each warning, a notice for a run that passed.
func GitHub(r *verdict.Result) []byte {
	var b bytes.Buffer
	for i := range r.Criteria {
		c := &r.Criteria[i]
		if c.Ignored || c.Verdict == verdict.Pass {
			continue
		}
		command := "warning"
		if c.Verdict == verdict.Fail {
			command = "error"
		}
		message := fmt.Sprintf("measured %s, limit %s: %s", measured(c), c.Limit, evidence(c))
		if c.Note != "" {
			message += "; " + c.Note
		}
		annotate(&b, command, string(c.Verdict)+" "+c.Name, message)
	}
	for _, warning := range r.Warnings {
		annotate(&b, "warning", "LLM capacity gate", warning)
	}
	command := map[verdict.Status]string{verdict.Pass: "notice", verdict.Fail: "error"}[r.Verdict]
	if command == "" {
		command = "warning"
	}
	summary := countsLine(r.Counts, r.DroppedBy)
	if len(r.Labels) > 0 {
		summary += "\n" + strings.Join(r.Labels, "\n")
	}
	annotate(&b, command, "LLM capacity gate: "+string(r.Verdict), summary)
	return b.Bytes()
}

// The escaping of workflow commands, as in actions/toolkit, packages/core/src/command.ts.
var (
	escapeData     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	escapeProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

func annotate(b *bytes.Buffer, command, title, message string) {
	fmt.Fprintf(b, "::%s title=%s::%s\n", command, escapeProperty.Replace(title), escapeData.Replace(message))
}
