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
	for i := range r.Criteria {
		c := &r.Criteria[i]
		if c.Section == string(contract.SectionClientHeadroom) && !c.Ignored && (c.Verdict == Fail || c.Verdict == Invalid) {
			broken = append(broken, c.Name+" ("+c.found()+")")
		}
	}
	return strings.Join(broken, ", ")
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

// Baseline returns the measured values that limits of another run's contract refer to. Those of an INVALID run are none: they
// are the load generator's as much as the service's, and a limit that is made of them is too wide. FAIL and INCONCLUSIVE are
// allowed: a slow service is a baseline, too.
func (r *Result) Baseline() (map[string]float64, error) {
	if r.Verdict != Invalid {
		return r.Measured(), nil
	}
	why := "its verdict is INVALID, since the load generator was the bottleneck"
	if broken := r.BrokenHeadroom(); broken != "" {
		why += ": " + broken
	}
	return nil, errors.New(why + "; what it measured is not the service's: repeat the baseline run with more headroom, or give another baseline")
}
