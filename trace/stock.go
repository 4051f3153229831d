package trace

import (
	"cmp"
	"math"
	"slices"
	"time"

	"go.k6.io/k6/lib"
	"go.k6.io/k6/lib/executor"
)

// allotment is which rows of a trace a scenario of one of k6's own executors takes with next(), by the number of its
// iteration. Two such scenarios that both began with the first row would send the same prompts, and the second would find them
// in the server's prefix cache.
type allotment struct {
	scenario string
	rows     int // of one pass through the trace
	first    int // row of iteration 0
	every    int // of so many passes it takes one: 1, or where closed loops take turns more

	// planned is how many iterations it starts, and lasts for how long; -1: the server's speed decides both.
	planned int
	lasts   time.Duration
	most    int // iterations that it could start: k6 rounds gaps to whole nanoseconds, and ends with a race
	starts  time.Duration
	steady  bool
}

// stockExecutors are k6's own ones that run iterations of a script. Other extensions bring others, as the gate's monitor.
//
//nolint:gochecknoglobals // a constant list
var stockExecutors = []string{
	"constant-arrival-rate", "ramping-arrival-rate", "shared-iterations", "per-vu-iterations", "constant-vus", "ramping-vus", "externally-controlled",
}

func (a *allotment) row(iteration int) int {
	return a.first + iteration/a.rows*a.every*a.rows + iteration%a.rows
}

// allot gives each scenario of k6's own executors rows of its own of the trace of this id and this many rows. It is a function
// of the scenarios alone, so that every VU of every instance of a distributed test comes to the same. A scenario that is
// alone takes the rows from the first one on.
//
// Rows that the executor trace-arrival-rate replays of the trace come first. Then each scenario whose number of iterations is
// known has as many rows as it can start iterations, in the order of start time and name. Of closed loops that is not known:
// they come last. One goes on from there; more than one take passes of the trace in turn. Nothing shows which scenarios will
// ask this trace: all of them get rows.
func allot(id string, rows int, scenarios lib.ScenarioConfigs) map[string]*allotment {
	next := 0
	var open, closed []*allotment
	for _, name := range sortedKeys(scenarios) {
		config := scenarios[name]
		if c, ok := config.(*Config); ok {
			if w, err := c.window(); c.Trace == id && err == nil {
				next = max(next, w.to)
			}

			continue
		}
		if !slices.Contains(stockExecutors, config.GetType()) {
			continue // it watches, or knows of no iterations
		}
		a := &allotment{scenario: name, rows: rows, every: 1, starts: config.GetStartTime(), steady: config.GetTags()["phase"] == phaseSteady}
		if a.plan(config); a.planned < 0 {
			closed = append(closed, a)
		} else {
			open = append(open, a)
		}
	}
	byStart := func(a, b *allotment) int {
		return cmp.Or(cmp.Compare(a.starts, b.starts), cmp.Compare(a.scenario, b.scenario))
	}
	slices.SortFunc(open, byStart)
	slices.SortFunc(closed, byStart)
	found := make(map[string]*allotment, len(open)+len(closed))
	for _, a := range open {
		a.first, next = next, next+a.most
		found[a.scenario] = a
	}
	if len(closed) > 1 {
		next = (next + rows - 1) / rows * rows // the beginning of a pass
	}
	for i, a := range closed {
		a.first, a.every = next+i*rows, len(closed)
		found[a.scenario] = a
	}

	return found
}

// plan finds how many iterations the scenario is to start, and over which time, if its configuration says so.
func (a *allotment) plan(config lib.ExecutorConfig) {
	a.planned = -1
	var planned, most float64
	switch c := config.(type) {
	case *executor.ConstantArrivalRateConfig:
		a.lasts = c.Duration.TimeDuration()
		gap := float64(c.TimeUnit.TimeDuration()) / float64(c.Rate.Int64)
		planned, most = float64(a.lasts)/gap, float64(a.lasts)/math.Floor(gap)+1
	case *executor.RampingArrivalRateConfig:
		unit, from := c.TimeUnit.TimeDuration().Seconds(), float64(c.StartRate.ValueOrZero())
		for _, stage := range c.Stages {
			to, length := float64(stage.Target.ValueOrZero()), stage.Duration.TimeDuration()
			planned += (from + to) / 2 * length.Seconds() / unit
			a.lasts += length
			from = to
		}
		most = planned + 1
	case executor.SharedIterationsConfig:
		a.lasts = c.MaxDuration.TimeDuration()
		planned = float64(c.Iterations.Int64)
		most = planned
	default:
		// Of per-vu-iterations the number in a distributed test depends on how its VUs are divided.
		return
	}
	const whole = 1e-6 // what sums of seconds miss a whole number by
	if planned >= 0 && most <= math.MaxInt32 {
		a.planned, a.most = int(planned+whole), int(most+whole)
	}
}
