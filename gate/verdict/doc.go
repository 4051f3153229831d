// Package verdict judges a run by its evidence: it turns a results directory and a contract into PASS, FAIL,
// INCONCLUSIVE or INVALID, for each criterion and overall. docs/statistics.md explains the tests, gives their sources
// and shows how often they err on services whose true capacity is known.
package verdict

import "fmt"

// Status is the verdict on one criterion or on a run.
type Status string

// The verdicts.
const (
	Pass Status = "PASS"
	Fail Status = "FAIL"
	// Inconclusive: the evidence suffices for neither.
	Inconclusive Status = "INCONCLUSIVE"
	// Invalid: the load generator was the bottleneck, so the run says nothing good about the service.
	Invalid Status = "INVALID"
)

// ExitCode is the exit code of a command that ends with this verdict: 0 pass, 1 fail, 2 neither.
func (s Status) ExitCode() int {
	switch s {
	case Pass:
		return 0
	case Fail:
		return 1
	default:
		return 2
	}
}

// check is for verdict.json: other words are errors.
func (s Status) check() error {
	switch s {
	case Pass, Fail, Inconclusive, Invalid:
		return nil
	}
	return fmt.Errorf("verdict: unknown verdict %q", string(s))
}
