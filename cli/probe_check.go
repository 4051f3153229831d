package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/capacity"
	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
	"github.com/safeqps/xk6-safeqps/trace"
)

// arrivals are what came of a probe's script in its steady phase.
type arrivals struct {
	capacity.Offered
	n, silent int  // arrivals, and those of them whose iterations sent no request
	requests  int  // of the others; sessions and RAG scripts send several for one arrival
	enough    bool // to tell the rate

	scenarios      []string // that the steady phase came from
	scheduled      bool     // all arrivals are rows with a due time
	steady, warmup stretch
	longestGap     float64 // seconds, between arrivals of one of the two phases
	own            bool    // a recorded trace brought the arrivals
}

// stretch is a phase as it was measured.
type stretch struct {
	n       int
	seconds float64 // from the first arrival to the last
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
	var steady, warmup []float64
	a, seen := &arrivals{scheduled: true}, map[arrival]bool{}
	_, err := run.Requests(func(r *results.Request) error {
		inSteady := r.Phase == string(contract.PhaseSteady)
		if (!inSteady && r.Phase != phaseWarmup) || r.Attempt > 1 {
			return nil
		}
		silent := r.Outcome == results.Dropped && r.ErrorType == string(trace.DropNoRequest)
		if inSteady && !silent {
			a.requests++
		}
		if r.Row >= 0 {
			if seen[arrival{r.Scenario, r.Row}] {
				return nil
			}
			seen[arrival{r.Scenario, r.Row}] = true
		}
		at := float64(r.Arrival().UnixNano()) / float64(time.Second)
		if !inSteady {
			warmup = append(warmup, at)

			return nil
		}
		steady = append(steady, at)
		a.scheduled = a.scheduled && r.Row >= 0 && !r.Due.IsZero()
		if !slices.Contains(a.scenarios, r.Scenario) {
			a.scenarios = append(a.scenarios, r.Scenario)
		}
		if silent {
			a.silent++
		}

		return nil
	})
	if err != nil {
		return nil, err //nolint:wrapcheck // names the file
	}
	slices.Sort(a.scenarios)
	a.steady, a.warmup = a.see(steady), a.see(warmup)
	if a.n = len(steady); a.n > 1 {
		a.Offered, a.enough = capacity.OfferedRate(steady, a.steady.seconds*float64(a.n)/float64(a.n-1))
	}

	return a, nil
}

// see measures a phase, and keeps the longest gap.
func (a *arrivals) see(times []float64) stretch {
	if len(times) == 0 {
		return stretch{}
	}
	slices.Sort(times)
	for i := 1; i < len(times); i++ {
		a.longestGap = math.Max(a.longestGap, times[i]-times[i-1])
	}

	return stretch{len(times), times[len(times)-1] - times[0]}
}

// askedFor is an error where the script did something else than it was asked for: then the probe says nothing about its
// rate.
func (p *prober) askedFor(run *results.Run, req capacity.ProbeRequest, came *arrivals) error {
	if err := p.phasesAskedFor(run, req); err != nil {
		return err
	}
	log := filepath.Join(run.Dir, logFile)
	if err := openLoop(run, came); err != nil {
		return err
	}
	switch most := came.n / 5; {
	case came.n == came.silent && run.Info.Aborted == nil:
		return fmt.Errorf("the script sent no request in its steady phase: see %s", log)
	case came.silent > most:
		return fmt.Errorf("%d of %d iterations of the steady phase ended without a request: see %s", came.silent, came.n, log)
	}
	const gross = 0.2
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
		sent, wrong = came.Rate, came.Differs(req.Rate, gross)
	default: // too few to tell their rate, so that the executors' own decides, and whether it was kept
		var known bool
		sent, known = configuredRate(run.Info.Options, came.scenarios)
		few := float64(came.requests) < (1-gross)*req.Rate*p.steady(req).Seconds()
		wrong = known && run.Info.Aborted == nil && few && sent < (1-gross)*req.Rate
	}
	if !wrong {
		return cmp.Or(p.phasesMeasured(run, req, came), p.arrivalsAskedFor(run, came))
	}

	return fmt.Errorf("the script sent %.4g requests/s, %.4g were asked for: it has to take its rate from __ENV.LLM_RATE "+
		"(arrivals per second, each of which may send several requests), as examples/capacity.js does", sent, req.Rate)
}

// phasesAskedFor is an error where the contract of the script has other phases than the probe was to have.
func (p *prober) phasesAskedFor(run *results.Run, req capacity.ProbeRequest) error {
	own, err := verdict.CarriedContract(run)
	if own == nil || err != nil {
		return err // without one, what the script has of phases is its own
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

// scenario is what k6's options say of one.
type scenario struct {
	Executor     string  `json:"executor"`
	Trace        string  `json:"trace"`
	Rate         float64 `json:"rate"`
	TimeUnit     string  `json:"timeUnit"`
	GracefulStop string  `json:"gracefulStop"`
	StartTime    string  `json:"startTime"`
	Duration     string  `json:"duration"`
	Stages       []struct {
		Duration string `json:"duration"`
	} `json:"stages"`
	Tags map[string]string `json:"tags"`
}

// perSecond is the rate at which a scenario of constant-arrival-rate starts iterations; false for others.
func (s scenario) perSecond() (float64, bool) {
	unit, err := time.ParseDuration(cmp.Or(s.TimeUnit, "1s")) // k6's default
	if s.Executor != constantRate || err != nil || unit <= 0 {
		return 0, false
	}

	return s.Rate / unit.Seconds(), true
}

// lasts says when a scenario begins and when its last iteration does, in seconds of the run; false where its options leave
// that open.
func (s scenario) lasts() (from, to float64, ok bool) {
	begins, err := time.ParseDuration(cmp.Or(s.StartTime, "0s"))
	if err != nil {
		return 0, 0, false
	}
	texts := []string{s.Duration}
	if len(s.Stages) > 0 {
		texts = nil
		for _, stage := range s.Stages {
			texts = append(texts, stage.Duration)
		}
	}
	ends := begins
	for _, text := range texts {
		length, err := time.ParseDuration(text)
		if err != nil {
			return 0, 0, false
		}
		ends += length
	}

	return begins.Seconds(), ends.Seconds(), true
}

// scheduledLength is how long the scenarios with the tag of a phase were to send for it, in seconds; false where they do not
// say it. among are the scenarios that the phase came from, where that is known.
func scheduledLength(options json.RawMessage, phase string, among []string) (float64, bool) {
	first, last := math.Inf(1), math.Inf(-1)
	all := scenariosOf(options)
	for _, s := range all {
		if s.Tags["phase"] != phase {
			continue
		}
		from, to, ok := s.lasts()
		if !ok {
			return 0, false
		}
		first, last = math.Min(first, from), math.Max(last, to)
	}
	elsewhere := slices.ContainsFunc(among, func(name string) bool { return all[name].Tags["phase"] != phase })

	return last - first, last > first && !elsewhere
}

func scenariosOf(options json.RawMessage) map[string]scenario {
	var o struct {
		Scenarios map[string]scenario `json:"scenarios"`
	}
	if json.Unmarshal(options, &o) != nil {
		return nil
	}

	return o.Scenarios
}

// monitored reports that gate.monitor was among the scenarios.
func monitored(options json.RawMessage) bool {
	for _, s := range scenariosOf(options) {
		if s.Executor == monitorExecutor {
			return true
		}
	}

	return false
}

const monitorExecutor = "llm-monitor"

// configuredRate is the rate at which k6's own executors start iterations in these scenarios, per second; false where another
// one drives one of them.
func configuredRate(options json.RawMessage, names []string) (float64, bool) {
	all, total := scenariosOf(options), 0.0
	for _, name := range names {
		rate, ok := all[name].perSecond()
		if !ok {
			return 0, false
		}
		total += rate
	}

	return total, len(names) > 0
}

// openLoop is an error where requests of the steady phase waited for answers to earlier ones: then the service set its own
// rate, and a rate that passes says nothing.
func openLoop(run *results.Run, came *arrivals) error {
	all := scenariosOf(run.Info.Options)
	if slices.Contains(came.scenarios, "") && slices.Contains(run.Info.Labels, results.LabelClosedLoop) {
		came.scenarios = slices.Sorted(maps.Keys(all)) // k6 was told to leave the tag out: each may have sent them
	}
	for _, name := range came.scenarios {
		switch executor := all[name].Executor; executor {
		case "constant-vus", "ramping-vus", "shared-iterations", "per-vu-iterations", "externally-controlled":
			return fmt.Errorf("the scenario %s of the steady phase has the executor %s, a closed loop: each request waits for an answer, so "+
				"that the service sets the rate, and none can be searched; take the scenarios of workload.phases(contract.phases) at "+
				"__ENV.LLM_RATE, as examples/capacity.js does, or constant-arrival-rate", name, executor)
		}
	}

	return nil
}

// phasesMeasured is an error where a phase was not as long as it was to be: by its scenarios' own lengths, or clearly so by its
// first and its last arrival where they do not tell.
func (p *prober) phasesMeasured(run *results.Run, req capacity.ProbeRequest, came *arrivals) error {
	// What lies before the first arrival and after the last is a matter of chance: a few mean gaps, or a few of the longest
	// where arrivals come in bursts. Starting takes a moment, too.
	const moment, gaps = 1.0, 3
	allowed := moment + gaps*(came.longestGap+1/req.Rate)
	late := allowed
	if !came.scheduled { // what an iteration sends after its first request counts, too
		late += longestStop(run.Info.Options)
	}
	cut := run.Info.Aborted != nil || run.Info.Ended.IsZero()
	for _, phase := range []struct {
		name    string
		was     stretch
		asks    time.Duration
		mayLack bool
		among   []string
	}{
		{phaseWarmup, came.warmup, time.Duration(p.contract.Phases.Warmup), cut && came.steady.n == 0, nil},
		{string(contract.PhaseSteady), came.steady, p.steady(req), cut, came.scenarios},
	} {
		asks := phase.asks.Seconds()
		scheduled, known := scheduledLength(run.Info.Options, phase.name, phase.among)
		switch {
		case known && math.Abs(scheduled-asks) <= moment:
		case known:
			return fmt.Errorf("the scenarios of the script's %s phase send for %.4g s, %s were asked for: they have to take their length "+
				"from contract.phases.%s of gate.open", phase.name, scheduled, phase.asks, phase.name)
		case phase.was.n == 0 && asks > allowed && !phase.mayLack:
			return fmt.Errorf("nothing arrived with the tag phase: %s, and a %s phase of %s was asked for: take the scenarios of "+
				"workload.phases(contract.phases), or give the script's own such tags, and lengths from contract.phases of gate.open", phase.name, phase.name, phase.asks)
		case phase.was.n == 0:
		case phase.was.seconds < asks-allowed && !phase.mayLack, phase.was.seconds > asks+late:
			return fmt.Errorf("the script's %s phase was %.1f s long from its first arrival to its last, %s were asked for: take its length "+
				"from contract.phases.%s of gate.open", phase.name, phase.was.seconds, phase.asks, phase.name)
		}
	}

	return nil
}

// longestStop is how long iterations may go on after their scenario has ended, in seconds.
func longestStop(options json.RawMessage) float64 {
	const byDefault = 30 * time.Second // k6's
	longest := time.Duration(0)
	for _, s := range scenariosOf(options) {
		stop, err := time.ParseDuration(s.GracefulStop)
		if err != nil {
			stop = byDefault
		}
		longest = max(longest, stop)
	}

	return longest.Seconds()
}

// arrivalsAskedFor is an error where --arrival names a process that clearly did not run. A recorded trace brings its own.
func (p *prober) arrivalsAskedFor(run *results.Run, came *arrivals) error {
	all := scenariosOf(run.Info.Options)
	ids, traced := traceScenarios(run.Info.Options)
	came.own = traced && !slices.ContainsFunc(ids, func(id string) bool { return run.Info.Digests[id] == "" })
	if p.arrival == "" || came.own {
		return nil
	}
	const advice = "the script has to take it from __ENV.LLM_BURSTINESS, as examples/capacity.js does; or leave --arrival out"
	shape, err := shapeOf(p.arrival)
	if err != nil {
		return err
	}
	// k6's own executors space their arrivals evenly; of what they start only the start is known, which jitters.
	even := len(came.scenarios) > 0 && !slices.ContainsFunc(came.scenarios, func(name string) bool {
		return all[name].Executor != constantRate && all[name].Executor != "ramping-arrival-rate"
	})
	switch {
	case even && (capacity.Offered{Gaps: came.n}).Contradicts(shape):
		return fmt.Errorf("--arrival %s was asked for, and the executor %s spaces arrivals evenly: %s", p.arrival, all[came.scenarios[0]].Executor, advice)
	case came.scheduled && came.enough && len(came.scenarios) == 1 && came.Contradicts(shape):
		return fmt.Errorf("--arrival %s was asked for, and is not what came: the gaps between %d arrivals have a coefficient of variation of %.2f "+
			"(constant 0, Poisson 1, bursty more): %s", p.arrival, came.n, came.GapVariation, advice)
	}

	return nil
}

const constantRate = "constant-arrival-rate"

// phaseWarmup is the tag of the phase before the steady one.
const phaseWarmup = "warmup"

// traceScenarios are the ids of the traces that drive a run's scenarios; false where something else drives one of them.
func traceScenarios(options json.RawMessage) ([]string, bool) {
	var ids []string
	for _, s := range scenariosOf(options) {
		switch {
		case s.Executor == monitorExecutor:
		case s.Executor == "trace-arrival-rate" && s.Trace != "":
			if !slices.Contains(ids, s.Trace) {
				ids = append(ids, s.Trace)
			}
		default:
			return nil, false
		}
	}

	return ids, len(ids) > 0
}

// tookTheRate reports that one of k6's own executors starts iterations at the rate.
func tookTheRate(options json.RawMessage, rate float64) bool {
	for _, s := range scenariosOf(options) {
		const rounding = 0.05 // k6 takes whole numbers
		own, ok := s.perSecond()
		if ok && math.Abs(own/rate-1) <= math.Max(rounding, 0.5*own/(rate*s.Rate)) {
			return true
		}
	}

	return false
}
