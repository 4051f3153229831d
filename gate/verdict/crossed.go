package verdict

import (
	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

// EventThreshold is the kind of the events that tell of k6's own thresholds: Rule is one that was crossed when the run
// ended, as contract.Threshold writes it.
const EventThreshold = "threshold"

// CrossedThreshold is one of k6's thresholds that was crossed when the run ended. It decides nothing here: k6 compares a
// point estimate with a number.
type CrossedThreshold struct {
	// Threshold is the metric and the expression: "http_req_duration p(95)<500".
	Threshold string `json:"threshold"`
	// Own is true where no contract asks for it: neither the one that the run carried nor the one that judges it.
	Own bool `json:"own"`
}

// crossed tells which of k6's thresholds were crossed, each once: the instances of a distributed test have the same.
func (j *judge) crossed(out *Result, events []results.Event) {
	asked := map[string]bool{}
	for _, t := range contract.Thresholds(j.contract) {
		asked[t.String()] = true
	}
	carried, err := CarriedContract(j.run)
	switch {
	case err != nil: // another one judges
		out.warn("the contract that the run carries can not be read, so that its thresholds count as the script's own: %v", err)
	case carried != nil:
		for _, t := range contract.Thresholds(carried) {
			asked[t.String()] = true
		}
	}
	told := map[string]bool{}
	for _, e := range events {
		if e.Kind != EventThreshold || told[e.Rule] {
			continue
		}
		told[e.Rule] = true
		out.Crossed = append(out.Crossed, CrossedThreshold{Threshold: e.Rule, Own: !asked[e.Rule]})
		if !asked[e.Rule] {
			out.warn("a threshold of the script's own was crossed: %s. It is no part of the contract, and of this verdict", e.Rule)
		}
	}
}
