package cli

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/capacity"
	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/trace"
)

// arrivals are what came of a probe's script in its steady phase.
type arrivals struct {
	capacity.Offered
	n, silent int  // arrivals, and those of them whose iterations sent no request
	requests  int  // of the others; sessions and RAG scripts send several for one arrival
	enough    bool // to tell the rate
}

// perArrival is how many requests an arrival sends; false where that is one.
func (a *arrivals) perArrival() (float64, bool) {
	const several = 1.05
	m := float64(a.requests) / float64(max(a.n-a.silent, 1))

	return m, m > several
}

// ofExecutor turns requests into arrivals where k6's own executor started them at a rate: they do not say which of them
// are of one arrival.
func (a *arrivals) ofExecutor(rate float64) {
	if !a.enough {
		return
	}
	a.n = max(1, int(math.Round(float64(a.n)*rate/a.Rate)))
	a.Rate = rate
}

func arrivalsOf(run *results.Run) (*arrivals, error) {
	type arrival struct {
		scenario string
		row      int64
	}
	var times []float64
	a, seen := &arrivals{}, map[arrival]bool{}
	_, err := run.Requests(func(r *results.Request) error {
		if r.Phase != string(contract.PhaseSteady) || r.Attempt > 1 {
			return nil
		}
		silent := r.Outcome == results.Dropped && r.ErrorType == string(trace.DropNoRequest)
		if !silent {
			a.requests++
		}
		if r.Row >= 0 {
			if seen[arrival{r.Scenario, r.Row}] {
				return nil
			}
			seen[arrival{r.Scenario, r.Row}] = true
		}
		times = append(times, float64(r.Arrival().UnixNano())/float64(time.Second))
		if silent {
			a.silent++
		}

		return nil
	})
	if err != nil {
		return nil, err //nolint:wrapcheck // names the file
	}
	if a.n = len(times); a.n > 1 {
		span := slices.Max(times) - slices.Min(times)
		a.Offered, a.enough = capacity.OfferedRate(times, span*float64(a.n)/float64(a.n-1))
	}

	return a, nil
}

// askedFor is an error where the script did something else than it was asked for: then the probe says nothing about its
// rate.
func (p *prober) askedFor(run *results.Run, req capacity.ProbeRequest, came *arrivals) error {
	if err := p.phasesAskedFor(run, req); err != nil {
		return err
	}
	log := filepath.Join(run.Dir, logFile)
	switch most := came.n / 5; {
	case came.n == came.silent && run.Info.Aborted == nil:
		return fmt.Errorf("the script sent no request in its steady phase: see %s", log)
	case came.silent > most:
		return fmt.Errorf("%d of %d iterations of the steady phase ended without a request: see %s", came.silent, came.n, log)
	}
	sent, wrong := 0.0, false
	ids, traced := traceScenarios(run.Info.Options)
	switch {
	case traced: // a trace is not even, and knows its mean rate
		const rounding = 0.05
		for _, id := range ids {
			sent += run.Info.Rates[id]
		}
		wrong = math.Abs(sent/req.Rate-1) > rounding
	case tookTheRate(run.Info.Options, req.Rate):
		came.ofExecutor(req.Rate)
	case came.enough:
		const gross = 0.2
		sent, wrong = came.Rate, came.Differs(req.Rate, gross)
	}
	if !wrong {
		return nil
	}

	return fmt.Errorf("the script sent %.4g requests/s, %.4g were asked for: it has to take its rate from __ENV.LLM_RATE "+
		"(arrivals per second, each of which may send several requests), as examples/capacity.js does", sent, req.Rate)
}

// phasesAskedFor is an error where the contract of the script has other phases than the probe was to have.
func (p *prober) phasesAskedFor(run *results.Run, req capacity.ProbeRequest) error {
	if len(run.Info.Contract) == 0 {
		return nil // the script opens none, and what it has of phases is its own
	}
	var own contract.Contract
	if err := json.Unmarshal(run.Info.Contract, &own); err != nil {
		return fmt.Errorf("%s: contract: %w", filepath.Join(run.Dir, results.RunFile), err)
	}
	for _, phase := range []struct {
		name      string
		ran, asks contract.Duration
	}{
		{"steady", own.Phases.Steady, contract.Duration(p.steady(req))},
		{"warmup", own.Phases.Warmup, p.contract.Phases.Warmup},
		{"recovery", own.Phases.Recovery, p.contract.Phases.Recovery},
	} {
		if phase.ran != phase.asks {
			return fmt.Errorf("the script's %s phase was %s long, %s were asked for: it has to open the contract of --contract with gate.open",
				phase.name, phase.ran, phase.asks)
		}
	}

	return nil
}

// traceScenarios are the ids of the traces that drive a run's scenarios; false where something else drives one of them.
func traceScenarios(options json.RawMessage) ([]string, bool) {
	var o struct {
		Scenarios map[string]struct {
			Executor string `json:"executor"`
			Trace    string `json:"trace"`
		} `json:"scenarios"`
	}
	if json.Unmarshal(options, &o) != nil {
		return nil, false
	}
	var ids []string
	for _, scenario := range o.Scenarios {
		switch {
		case scenario.Executor == "llm-monitor":
		case scenario.Executor == "trace-arrival-rate" && scenario.Trace != "":
			if !slices.Contains(ids, scenario.Trace) {
				ids = append(ids, scenario.Trace)
			}
		default:
			return nil, false
		}
	}

	return ids, len(ids) > 0
}

// tookTheRate reports that one of k6's own executors starts iterations at the rate.
func tookTheRate(options json.RawMessage, rate float64) bool {
	var o struct {
		Scenarios map[string]struct {
			Executor string  `json:"executor"`
			Rate     float64 `json:"rate"`
			TimeUnit string  `json:"timeUnit"`
		} `json:"scenarios"`
	}
	if json.Unmarshal(options, &o) != nil {
		return false
	}
	for _, scenario := range o.Scenarios {
		unit, err := time.ParseDuration(scenario.TimeUnit)
		if scenario.Executor != "constant-arrival-rate" || err != nil || unit <= 0 {
			continue
		}
		const rounding = 0.05 // k6 takes whole numbers
		if math.Abs(scenario.Rate/unit.Seconds()/rate-1) <= math.Max(rounding, 0.5/(rate*unit.Seconds())) {
			return true
		}
	}

	return false
}
