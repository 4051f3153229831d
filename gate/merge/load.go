package merge

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// scenario is the load that a scenario of one of k6's own executors is to offer. What is not given there is null.
type scenario struct {
	Executor  string   `json:"executor"`
	Rate      float64  `json:"rate"`
	StartRate float64  `json:"startRate"`
	StartVUs  *float64 `json:"startVUs"`
	TimeUnit  *period  `json:"timeUnit"`
	Stages    []stage  `json:"stages"`
}

type stage struct {
	Duration *period `json:"duration"`
	Target   float64 `json:"target"`
}

// period is a duration in k6's form: "1m30s".
type period time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *period) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*p = period(d)

	return err //nolint:wrapcheck // names the text
}

func (p *period) seconds(otherwise float64) float64 {
	if p == nil {
		return otherwise
	}

	return time.Duration(*p).Seconds()
}

// scenarios reads the scenarios of a run. A run whose options were not kept has none.
func scenarios(run *results.Run) (map[string]scenario, error) {
	raw, err := rawScenarios(run)
	if err != nil {
		return nil, err
	}
	out := make(map[string]scenario, len(raw))
	for name, text := range raw {
		var named struct {
			Executor string `json:"executor"`
		}
		var s scenario
		if err = json.Unmarshal(text, &named); err == nil && slices.Contains(stock, named.Executor) {
			err = json.Unmarshal(text, &s)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: options: scenario %s: %w", filepath.Join(run.Dir, results.RunFile), name, err)
		}
		out[name] = s
	}

	return out, nil
}

// The executors of k6 that offer a load. One that an external program controls has no schedule.
const (
	constantRate = "constant-arrival-rate"
	rampingRate  = "ramping-arrival-rate"
	rampingVUs   = "ramping-vus"
)

//nolint:gochecknoglobals // a constant list
var stock = []string{constantRate, rampingRate, rampingVUs, "constant-vus", "per-vu-iterations", "shared-iterations"}

// reach bounds the time from the scenario's start to the first iteration of an instance with a share of the test, for k6
// deals the iterations of a rate, or the VUs, out to the segments in turn: one of a third has its first among the first
// three of the test. It is twice that here, since segments that differ in size can be served later. False is returned for a
// scenario without a schedule, and for one that does not come so far.
func (s scenario) reach(share float64) (time.Duration, bool) {
	first := 2 / share
	seconds := math.Inf(1)
	switch {
	case s.Executor == constantRate && s.Rate > 0:
		seconds = first * s.TimeUnit.seconds(1) / s.Rate
	case s.Executor == rampingRate:
		seconds = s.timeOf(first, s.StartRate/s.TimeUnit.seconds(1), 1/s.TimeUnit.seconds(1), iterations)
	case s.Executor == rampingVUs:
		start := 1.0 // k6's default
		if s.StartVUs != nil {
			start = *s.StartVUs
		}
		seconds = s.timeOf(first, start, 1, vus)
	case s.Executor != constantRate && slices.Contains(stock, s.Executor):
		return 0, true // all of its VUs begin at once
	}
	if seconds > math.MaxInt32 { // also of what is infinite
		return 0, false
	}

	return time.Duration(seconds * float64(time.Second)), true
}

// timeOf is when the stages, which begin at a level and have their targets in units of it, have come to an amount.
func (s scenario) timeOf(amount, level, unit float64, within func(amount, level, target, length float64) (seconds, left float64)) float64 {
	elapsed := 0.0
	for _, stage := range s.Stages {
		target, length := stage.Target*unit, stage.Duration.seconds(0)
		var seconds float64
		if seconds, amount = within(amount, level, target, length); seconds <= length {
			return elapsed + seconds
		}
		level, elapsed = target, elapsed+length
	}

	return math.Inf(1)
}

// iterations is when a rate that goes from level to target has made an amount of iterations, and how many it leaves over.
func iterations(amount, level, target, length float64) (seconds, left float64) {
	if all := length * (level + target) / 2; all < amount {
		return math.Inf(1), amount - all
	}
	slope := (target - level) / length

	return 2 * amount / (level + math.Sqrt(level*level+2*slope*amount)), 0
}

// vus is when a number of VUs that goes from level to target has come to an amount.
func vus(amount, level, target, length float64) (seconds, left float64) {
	switch {
	case level >= amount:
		return 0, amount
	case target < amount:
		return math.Inf(1), amount
	default:
		return length * (amount - level) / (target - level), amount
	}
}
