package gate

import (
	"fmt"
	"strconv"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/abort"
	"github.com/safeqps/xk6-safeqps/gate/capacity"
	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

// stopEarlyVariable is the environment variable by which a capacity search asks a probe to end once it has certainly
// failed. Its value is how many requests the steady phase is planned to have.
const stopEarlyVariable = "LLM_STOP_EARLY_PLANNED"

// earlyStop watches the criteria that are about a share of requests.
type earlyStop struct {
	planned    int64
	confidence float64
	criteria   []*earlyCriterion
}

type earlyCriterion struct {
	contract.Criterion
	allowed float64
	marks   []float64 // 1 for each request over the limit, in the order of their ends
	over    int64
}

// newEarlyStop reads the environment variable; nil where it is not set.
func newEarlyStop(c *contract.Contract, environment map[string]string) (*earlyStop, error) {
	text, ok := environment[stopEarlyVariable]
	if !ok || c == nil {
		return nil, nil //nolint:nilnil // nobody asked for it
	}
	planned, err := strconv.ParseInt(text, 10, 64)
	if err != nil || planned < 1 {
		return nil, fmt.Errorf("output llm: %s: got %q, expected a number of requests", stopEarlyVariable, text)
	}
	e := &earlyStop{planned: planned, confidence: c.Confidence}
	for _, criterion := range c.Gate {
		q, ok := criterion.EvidenceQuantile()
		if !ok || criterion.Metric == "itl" || criterion.Class != "" {
			continue // judged by other samples, or by a part of them
		}
		e.criteria = append(e.criteria, &earlyCriterion{Criterion: criterion, allowed: 1 - q})
	}

	return e, nil
}

// request takes a request of the steady phase that has ended.
func (e *earlyStop) request(r *results.Request) {
	if r.Attempt > 1 || (r.Phase != "" && r.Phase != string(contract.PhaseSteady)) ||
		(r.Outcome != results.OK && r.Outcome != results.Failed) {
		return
	}
	failed := r.Outcome == results.Failed
	for _, c := range e.criteria {
		if r.Tokenless() && c.ofTokens() {
			continue
		}
		mark := 0.0
		if failed || c.exceeded(r) {
			mark = 1
			c.over++
		}
		c.marks = append(c.marks, mark)
	}
}

// ofTokens says that the criterion times tokens, which an embedding has none of.
func (c *earlyCriterion) ofTokens() bool {
	return c.Metric == "ttft" || c.Metric == "ttft_text" || c.Metric == "tpot"
}

// exceeded is true for a completed request that is over the limit, or lacks the measurement that the limit needs.
func (c *earlyCriterion) exceeded(r *results.Request) bool {
	var value results.Number
	switch c.Metric {
	case "ttft":
		value = r.TTFT
	case "ttft_text":
		value = r.TTFTText
	case "tpot":
		value = r.TPOT
	case "e2e":
		value = r.E2E
	case "goodput":
		return r.Goodput == results.FlagNo
	default: // success_rate, error_rate, http_5xx: a completed request is a good one
		return false
	}
	if !value.Known {
		return c.Metric != "tpot" // an answer of one token has none
	}
	met, known := c.Met(value.Value)

	return known && !met
}

// firstLook is the part of a probe's planned requests (a twentieth) before which nothing is decided: docs/capacity-search.md shows how
// often early decisions err.
const firstLook = 20

// certain is the first criterion that has certainly failed.
func (e *earlyStop) certain(now time.Time) *abort.Tripped {
	for _, c := range e.criteria {
		if c.over == 0 || int64(len(c.marks))*firstLook < e.planned {
			continue
		}
		why := capacity.EarlyFail(capacity.EarlySample{
			Over: c.over, N: int64(len(c.marks)), Planned: e.planned, Inflation: capacity.EarlyInflation(c.marks),
		}, c.allowed, e.confidence)
		if why != capacity.NotYet {
			return &abort.Tripped{
				Rule: capacity.StoppedEarlyRule, At: now,
				Saw: fmt.Sprintf("%s: %d of %d over the limit: %s", c.Name, c.over, len(c.marks), why),
			}
		}
	}

	return nil
}
