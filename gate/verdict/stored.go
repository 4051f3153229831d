package verdict

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

// Of reads the verdict of a run, or judges one that has none, such as a killed one, by the contract that it carried. It is nil
// for a run without a contract.
func Of(run *results.Run) (*Result, error) {
	_, err := os.Stat(filepath.Join(run.Dir, results.VerdictFile))
	if err == nil {
		return Read(run.Dir)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("verdict: %w", err)
	}
	c, err := CarriedContract(run)
	if c == nil || err != nil {
		return nil, err
	}
	return Judge(run, c)
}

// BrokenHeadroom says which criteria on the load generator were not kept, each with what was measured and the limit; "" where
// all were. A run of the verdict INVALID has some. One that is a FAIL may have some as well.
func (r *Result) BrokenHeadroom() string {
	var broken []string
	for _, c := range r.brokenHeadroom() {
		broken = append(broken, c.Name+" ("+c.found()+")")
	}
	return strings.Join(broken, ", ")
}

func (r *Result) brokenHeadroom() []*Criterion {
	var broken []*Criterion
	for i := range r.Criteria {
		c := &r.Criteria[i]
		if c.Section == string(contract.SectionClientHeadroom) && !c.Ignored && (c.Verdict == Fail || c.Verdict == Invalid) {
			broken = append(broken, c)
		}
	}
	return broken
}

// found is what was measured, beside the limit; where nothing was, as of a rule that stopped the run, the note tells.
func (c *Criterion) found() string {
	if c.Measured == nil {
		return c.Note
	}
	return fmt.Sprintf("measured %s, limit %s", contract.FormatQuantity(fourDigits(*c.Measured), contract.Unit(c.Unit)), c.Limit)
}

// fourDigits leaves four significant digits, and all of those before the point.
func fourDigits(v float64) float64 {
	if v == 0 || math.Abs(v) >= 1000 {
		return math.Round(v)
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	if err != nil {
		return v
	}
	return rounded
}

// Baseline returns the measured values that limits of another run's contract refer to. Those of a run whose load generator was
// a bottleneck are none, be it INVALID or a FAIL: they are the generator's as much as the service's, and a limit that is made of
// them is too wide. FAIL and INCONCLUSIVE by themselves are allowed: a slow service is a baseline, too, with a warning where it was
// so slow that arrivals were dropped. The warning is "" where there is none.
func (r *Result) Baseline() (values map[string]float64, warning string, err error) {
	broken := r.BrokenHeadroom()
	switch {
	case r.Verdict != Invalid && broken == "":
		return r.Measured(), "", nil
	case r.Verdict == Fail && r.droppedBySlowness():
		return r.Measured(), "its verdict is FAIL, and arrivals were dropped, since all VUs were at work: " + broken +
			"; the service had less load than the schedule's, and limits made of what it measured are those of that load", nil
	}
	why := "its verdict is INVALID, since the load generator was the bottleneck"
	if r.Verdict != Invalid {
		why = fmt.Sprintf("its verdict is %s, and the load generator was a bottleneck, too", r.Verdict)
	}
	if broken != "" {
		why += ": " + broken
	}
	return nil, "", errors.New(why + "; what it measured is not the service's: repeat the baseline run with more headroom, or give another baseline")
}

// droppedBySlowness says whether no more was wrong with the load generator than that requests took all of its VUs, so that
// further arrivals were dropped, and that the schedule lacks these.
func (r *Result) droppedBySlowness() bool {
	const droppedName, scheduleName = string(contract.SectionClientHeadroom) + ".dropped", string(contract.SectionClientHeadroom) + ".schedule_error"
	dropped := r.find(droppedName)
	if dropped == nil {
		dropped = r.find("dropped") // as a limit of the service, which goes before the default
	}
	if dropped == nil || dropped.N == 0 {
		return false
	}
	for _, c := range r.brokenHeadroom() {
		switch {
		case c.Name == droppedName:
		case c.Name == scheduleName && c.Measured != nil && c.LimitValue != nil:
			if *c.Measured > float64(dropped.Over)/float64(dropped.N)+*c.LimitValue {
				return false // more is missing than was dropped
			}
		default:
			return false
		}
	}
	busy := int64(0)
	for reason, n := range r.DroppedBy {
		switch reason {
		case "no_vu", "vu_starting", dropUnknown: // k6's own executors, which do not say why, drop where no VU is free
			busy += n
		case "max_duration", "stopped": // the run ended
		default:
			return false
		}
	}
	return busy > 0
}
