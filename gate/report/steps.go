package report

import (
	"fmt"
	"strings"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// stepRate is the rate of a step's arrivals; "-" where it had fewer than two.
func stepRate(s *verdict.Step) string {
	if s.OfferedPerSecond == nil {
		return "-"
	}
	return digits(*s.OfferedPerSecond) + "/s"
}

// stepReason names the criteria that kept a step from passing: those that have its verdict. "" for a step that passed.
func stepReason(s *verdict.Step) string {
	if s.Verdict == verdict.Pass {
		return ""
	}
	var parts []string
	for i := range s.Criteria {
		c := &s.Criteria[i]
		client := c.Section == string(contract.SectionClientHeadroom)
		decided := c.Verdict == s.Verdict && !client
		if s.Verdict == verdict.Invalid {
			decided = client && c.Verdict != verdict.Pass && c.Verdict != verdict.Inconclusive
		}
		if c.Ignored || !decided {
			continue
		}
		parts = append(parts, fmt.Sprintf("%s %s, limit %s", c.Name, measured(c), strings.TrimSpace(c.Limit)))
	}
	if len(parts) == 0 {
		return "the run did not come to its end"
	}
	return strings.Join(parts, "; ")
}

// stepOf is the verdict on one step; nil where it has none, as in a verdict.json of an earlier version.
func stepOf(v *verdict.Result, step string) *verdict.Step {
	if v == nil {
		return nil
	}
	for i := range v.Steps {
		if v.Steps[i].Name == step {
			return &v.Steps[i]
		}
	}
	return nil
}

// stepsLead says in a sentence between which steps of a staircase the limit lies; "" where there is no staircase.
func stepsLead(v *verdict.Result) string {
	var passed, failed *verdict.Step
	open := 0
	for i := range v.Steps {
		step := &v.Steps[i]
		if step.OfferedPerSecond == nil { // no rate
			open++
			continue
		}
		switch step.Verdict {
		case verdict.Pass:
			if passed == nil || *step.OfferedPerSecond > *passed.OfferedPerSecond {
				passed = step
			}
		case verdict.Fail:
			if failed == nil || *step.OfferedPerSecond < *failed.OfferedPerSecond {
				failed = step
			}
		default:
			open++
		}
	}
	if len(v.Steps) == 0 {
		return ""
	}
	text := "No step passed; "
	if passed != nil {
		text = fmt.Sprintf("Highest step that passed: %s (%s); ", passed.Name, stepRate(passed))
	}
	if failed == nil {
		text += "none failed"
	} else {
		text += fmt.Sprintf("lowest that failed: %s (%s, %s)", failed.Name, stepRate(failed), stepReason(failed))
	}
	if open > 0 {
		text += fmt.Sprintf("; %d undecided", open)
	}
	text += ". "
	if passed != nil && failed != nil && *passed.OfferedPerSecond > *failed.OfferedPerSecond {
		text += "A step passed above one that failed. "
	}
	return text
}
