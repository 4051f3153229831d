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
