package compare

import (
	"fmt"

	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// checkGenerators takes the answer back where the load generator of a side was the bottleneck, by that run's verdict: what was
// measured is the generator's as much as the service's. The warnings come first. A side without a verdict and without a contract
// to judge it by is taken as it is.
func (r *Report) checkGenerators(a, b *results.Run) error {
	var warnings []string
	for _, side := range []struct {
		name string
		run  *results.Run
	}{{"A", a}, {"B", b}} {
		judged, err := verdict.Of(side.run)
		if err != nil {
			return fmt.Errorf("compare: %s: %w", side.name, err)
		}
		if judged == nil {
			continue
		}
		broken := judged.BrokenHeadroom()
		switch {
		case judged.Verdict == verdict.Invalid:
			r.Invalid = append(r.Invalid, InvalidSide{Side: side.name, Dir: side.run.Dir, Broken: broken})
			warnings = append(warnings, fmt.Sprintf("%s (%s) is INVALID: the load generator was the bottleneck: %s. What it measured is not the "+
				"service's, and the rows are of both: repeat that run with more headroom", side.name, side.run.Dir, broken))
		case broken != "":
			// Such as the drops of a service that all VUs wait for: a run that failed is a FAIL whatever the generator did.
			warnings = append(warnings, fmt.Sprintf("%s (%s) is a %s, and the load generator was at its limit: %s",
				side.name, side.run.Dir, judged.Verdict, broken))
		}
	}
	if len(r.Invalid) > 0 {
		r.Answer = NotEnough
	}
	r.Warnings = append(warnings, r.Warnings...)
	return nil
}
