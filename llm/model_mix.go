package llm

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/safeqps/xk6-safeqps/llm/describe"
)

// modelMix chooses among models by weight: several models behind one gateway, or one model and its LoRA adapters. What a
// request gets is a function of the seed and of the request's number alone, so that a row of a trace asks for the same
// model in every run and in every instance of a distributed run.
type modelMix struct {
	models []weightedModel // in the order of their names
	seed   uint64
}

type weightedModel struct {
	name  string
	share float64 // of all requests
}

// The numbers by which a request can be known. Each has draws of its own.
const (
	byRow       uint64 = 1
	byIteration uint64 = 2
)

// choose draws the model of a request by its number.
func (m *modelMix) choose(kind, number uint64) string {
	draw := rand.New(rand.NewPCG(m.seed^kind<<62, number)).Float64() // #nosec G404 -- a run must repeat
	for _, model := range m.models {
		if draw < model.share {
			return model.name
		}
		draw -= model.share
	}
	// Shares may add up to a little less than 1.
	for i := len(m.models) - 1; i >= 0; i-- {
		if m.models[i].share > 0 {
			return m.models[i].name
		}
	}

	return ""
}

const modelForm = `the name of a model, or weights such as {"base": 3, "base:legal": 1}`

// parseModel reads the option model: a name, or an object of weights.
func parseModel(o *optionsOf) (name string, mix *modelMix, err error) {
	seed, _, err := o.whole("seed", 0, "a whole number, 0 or more")
	if err != nil {
		return "", nil, err
	}
	v, ok := o.get("model")
	if !ok {
		return "", nil, nil
	}
	wrong := func(found string) error {
		return &OptionError{What: o.what, Option: "model", Found: found, Expected: modelForm}
	}
	switch v := v.(type) {
	case string:
		return v, nil, nil
	case map[string]any:
		if len(v) == 0 {
			return "", nil, wrong("an object without models")
		}
		mix = &modelMix{seed: uint64(seed)} // #nosec G115 -- not negative
		total := 0.0
		for _, model := range slices.Sorted(maps.Keys(v)) {
			weight, ok := number(v[model])
			switch {
			case model == "":
				return "", nil, wrong("a model without a name")
			case !ok || weight < 0:
				return "", nil, o.wrong(fmt.Sprintf("model.%s", model), v[model], "a weight, 0 or more")
			}
			total += weight
			mix.models = append(mix.models, weightedModel{model, weight})
		}
		switch {
		case total == 0:
			return "", nil, wrong("weights that are all 0")
		case math.IsInf(total, 0):
			return "", nil, wrong("weights whose sum is beyond any number")
		}
		for i := range mix.models {
			mix.models[i].share /= total
		}

		return "", mix, nil
	default:
		return "", nil, wrong(describe.Value(v))
	}
}

// modelOf is the model that a request asks for where it names none: the client's, or the one that the client's mix has for
// the request's row. A request that is no row has its iteration's, as what one iteration does is one user's.
func (c *client) modelOf(row int64) string {
	mix := c.options.models
	switch {
	case mix == nil:
		return c.options.model
	case row >= 0:
		return mix.choose(byRow, uint64(row)) //nolint:gosec // not negative
	}
	iteration := uint64(0)
	if state := c.module.vu.State(); state != nil && state.GetScenarioGlobalVUIter != nil {
		iteration = state.GetScenarioGlobalVUIter()
	}

	return mix.choose(byIteration, iteration)
}
