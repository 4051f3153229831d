// Package gate is the k6 module `k6/x/llm/gate` and the output `--out llm=DIR`: it turns a YAML contract into thresholds,
// watches server and client, keeps the evidence, and gives the verdict. The packages below it do the work and know
// nothing of k6: contract, results, verdict, scrape, headroom, abort and report.
package gate

import (
	"sync"

	"go.k6.io/k6/js/modules"
	"go.k6.io/k6/output"
)

// Load is what the gate asks the client module: what this process is doing.
type Load interface {
	InFlight() int64 // requests being served
	Started() uint64 // requests started so far
}

// Gate is what k6 keeps one of in each process. It ties the three parts that k6 registers apart: the module, whose
// handleSummary prints the verdict, the output, which has the evidence, and the monitor.
type Gate struct {
	load Load

	mu     sync.Mutex
	out    *Output         // the output of this run, if there is one
	warned map[string]bool // by the init context, which each VU has
}

// New returns the gate for registration with k6.
func New(load Load) *Gate {
	g := &Gate{load: load, warned: map[string]bool{}}
	registerMonitor(g)

	return g
}

// NewModuleInstance implements modules.Module.
func (g *Gate) NewModuleInstance(vu modules.VU) modules.Instance { return newModuleInstance(g, vu) }

// NewOutput is the constructor of `--out llm=DIR`.
func (g *Gate) NewOutput(params output.Params) (output.Output, error) {
	out, err := newOutput(params)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.out = out

	return &thresholdsOutput{Output: out}, nil
}

func (g *Gate) output() *Output {
	g.mu.Lock()
	defer g.mu.Unlock()

	return g.out
}

// isNews says whether a warning was not given yet.
func (g *Gate) isNews(warning string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	told := g.warned[warning]
	g.warned[warning] = true

	return !told
}
