package verdict

import (
	"fmt"
	"path/filepath"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

// CarriedContract is the contract that a run carries in its run.json, checked as contract.Decode does; nil where it carries
// none. The error names the file.
func CarriedContract(run *results.Run) (*contract.Contract, error) {
	if len(run.Info.Contract) == 0 {
		return nil, nil //nolint:nilnil // a script need not open one
	}
	c, err := contract.Decode(run.Info.Contract)
	if err != nil {
		return nil, fmt.Errorf("%s: contract: %w", filepath.Join(run.Dir, results.RunFile), err)
	}
	return c, nil
}
