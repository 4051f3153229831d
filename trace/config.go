package trace

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"go.k6.io/k6/lib"
	"go.k6.io/k6/lib/executor"
	"go.k6.io/k6/lib/types"
	"gopkg.in/guregu/null.v3"
)

// ExecutorType is the name of the executor in a scenario.
const ExecutorType = "trace-arrival-rate"

// DefaultTolerance is how late the load generator may start a row before it drops it instead.
const DefaultTolerance = 100 * time.Millisecond

// init registers the executor: k6 has no other moment for it, and knows its executors before it reads any script.
func init() { //nolint:gochecknoinits // see above
	lib.RegisterExecutorConfigType(ExecutorType, func(name string, rawJSON []byte) (lib.ExecutorConfig, error) {
		config := NewConfig(name)
		err := lib.StrictJSONUnmarshal(rawJSON, config)

		return config, err //nolint:wrapcheck // k6 names the scenario
	})
}

// Config is a scenario of the executor `trace-arrival-rate`. `workload.scenario()`, `phases()` and `steps()` write it.
// It goes through JSON (options, archives, the cloud) and so names its trace by id: the trace itself is looked up when
// the script's init code has run.
type Config struct {
	executor.BaseConfig

	// Trace is the id of an opened or generated trace (its property `id`).
	Trace string `json:"trace"`
	// PreAllocatedVUs are ready before the first arrival; further ones, up to MaxVUs, are made when they are needed,
	// and rows that are due meanwhile are dropped.
	PreAllocatedVUs null.Int `json:"preAllocatedVUs"`
	MaxVUs          null.Int `json:"maxVUs"`
	// From and To bound the rows: From inclusive, To exclusive. A To beyond the trace's end repeats the trace.
	From null.Int `json:"from"`
	To   null.Int `json:"to"`
	// Origin is the instant of the trace that is the scenario's time zero.
	Origin types.NullDuration `json:"origin"`
	// Speed is the pace of replay: 2 halves every gap.
	Speed null.Float `json:"speed"`
	// Duration is how long the scenario lasts at least, before the graceful stop. By default that is the due time of the
	// last row. Rows due after it are started all the same.
	Duration types.NullDuration `json:"duration"`
	// MaxDuration, if set, ends the scenario: rows due after it are dropped, and counted.
	MaxDuration types.NullDuration `json:"maxDuration"`
	// Tolerance is how late the load generator may be with a row before it drops it.
	Tolerance types.NullDuration `json:"tolerance"`
}

var _ lib.ExecutorConfig = &Config{}

// NewConfig is a configuration with its default values.
func NewConfig(name string) *Config {
	return &Config{
		BaseConfig: executor.NewBaseConfig(name, ExecutorType),
		Speed:      null.NewFloat(1, false),
		Tolerance:  types.NewNullDuration(DefaultTolerance, false),
	}
}

// Validate implements lib.ExecutorConfig. It does without the trace, which need not be open where an archive is read.
func (c *Config) Validate() []error {
	errs := c.BaseConfig.Validate()
	expect := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	expect(c.Trace != "", `trace: got nothing, expected the id of an opened trace, as workload.scenario() gives it`)
	expect(c.PreAllocatedVUs.Valid, "preAllocatedVUs: got nothing, expected a number of VUs")
	expect(c.PreAllocatedVUs.Int64 >= 0, "preAllocatedVUs: got %d, expected 0 or more", c.PreAllocatedVUs.Int64)
	if c.MaxVUs.Valid {
		expect(c.MaxVUs.Int64 >= max(1, c.PreAllocatedVUs.Int64),
			"maxVUs: got %d, expected at least 1 and at least preAllocatedVUs (%d)", c.MaxVUs.Int64, c.PreAllocatedVUs.Int64)
	} else {
		expect(c.PreAllocatedVUs.Int64 != 0, "preAllocatedVUs: got 0, expected 1 or more where maxVUs is not given")
	}
	expect(c.From.Int64 >= 0, "from: got %d, expected a row, 0 or more", c.From.Int64)
	expect(!c.To.Valid || c.To.Int64 >= c.From.Int64, "to: got %d, expected a row, %d (from) or more", c.To.Int64, c.From.Int64)
	expect(c.To.Int64 <= math.MaxInt32 && c.From.Int64 <= math.MaxInt32, "from, to: expected at most %d", math.MaxInt32)
	expect(c.Speed.Float64 > 0 && !math.IsInf(c.Speed.Float64, 0), "speed: got %v, expected a number above 0", c.Speed.Float64)
	for _, d := range []struct {
		name  string
		value types.NullDuration
	}{{"origin", c.Origin}, {"duration", c.Duration}, {"maxDuration", c.MaxDuration}, {"tolerance", c.Tolerance}} {
		expect(d.value.Duration >= 0, "%s: got %s, expected 0 or more", d.name, d.value.Duration)
	}
	expect(!c.MaxDuration.Valid || c.MaxDuration.Duration > 0, "maxDuration: got 0, expected more")
	expect(!c.Tolerance.Valid || c.Tolerance.Duration > 0, "tolerance: got 0, expected more")

	return errs
}

// maxVUs is the limit of VUs in the whole test. As with k6's executors, it is preAllocatedVUs unless given.
func (c *Config) maxVUs() int64 {
	if c.MaxVUs.Valid {
		return c.MaxVUs.Int64
	}

	return c.PreAllocatedVUs.Int64
}

// window finds the scenario's part of its trace. It fails where the trace is not open.
func (c *Config) window() (*window, error) {
	s, ok := lookUp(c.Trace)
	if !ok {
		return nil, fmt.Errorf(
			"trace %q is not open: call trace.open() or trace.generate() in the script's global scope with the same options, "+
				"and give options.scenarios what workload.scenario() returns", c.Trace)
	}
	w := &window{
		schedule: s, from: int(c.From.Int64), to: len(s.rows),
		origin: c.Origin.TimeDuration(), speed: c.Speed.Float64,
	}
	if c.To.Valid {
		w.to = int(c.To.Int64)
	} else {
		w.to = max(w.from, w.to)
	}
	if err := w.check(); err != nil {
		return nil, fmt.Errorf("trace %q: %w", c.Trace, err)
	}

	return w, nil
}

// duration is how long the scenario lasts before its graceful stop; known is false where that depends on a trace that is
// not open.
func (c *Config) duration() (d time.Duration, known bool) {
	d, known = c.Duration.TimeDuration(), c.Duration.Valid
	if w, err := c.window(); err == nil {
		d, known = max(d, w.lastDue()), true
	}
	if limit := c.MaxDuration.TimeDuration(); c.MaxDuration.Valid && (!known || limit < d) {
		d, known = limit, true
	}

	return d, known
}

// GetExecutionRequirements implements lib.ExecutorConfig.
func (c *Config) GetExecutionRequirements(et *lib.ExecutionTuple) []lib.ExecutionStep {
	planned := et.ScaleInt64(c.PreAllocatedVUs.Int64)
	duration, _ := c.duration()

	return []lib.ExecutionStep{
		{
			PlannedVUs:      uint64(max(0, planned)),                           //nolint:gosec // not negative
			MaxUnplannedVUs: uint64(max(0, et.ScaleInt64(c.maxVUs())-planned)), //nolint:gosec // not negative
		},
		{TimeOffset: duration + c.GetGracefulStop()},
	}
}

// GetDescription implements lib.ExecutorConfig.
func (c *Config) GetDescription(et *lib.ExecutionTuple) string {
	what := "trace " + c.Trace
	if w, err := c.window(); err == nil {
		what = fmt.Sprintf("%d rows of trace %s", w.length(), c.Trace)
	}
	if d, known := c.duration(); known {
		what += " over " + d.Round(time.Millisecond).String()
	}
	vus, maxVUs := et.ScaleInt64(c.PreAllocatedVUs.Int64), et.ScaleInt64(c.maxVUs())
	facts := []string{fmt.Sprintf("maxVUs: %d", maxVUs)}
	if vus < maxVUs {
		facts[0] = fmt.Sprintf("maxVUs: %d-%d", vus, maxVUs)
	}
	if c.Exec.Valid {
		facts = append(facts, "exec: "+c.Exec.String)
	}
	if c.StartTime.Duration > 0 {
		facts = append(facts, "startTime: "+c.StartTime.TimeDuration().String())
	}
	if c.GracefulStop.Duration > 0 {
		facts = append(facts, "gracefulStop: "+c.GracefulStop.TimeDuration().String())
	}

	return fmt.Sprintf("%s (%s)", what, strings.Join(facts, ", "))
}

// HasWork implements lib.ExecutorConfig.
func (c *Config) HasWork(et *lib.ExecutionTuple) bool { return et.ScaleInt64(c.maxVUs()) > 0 }

// errNoSequence is why a lone segment is refused: k6 fills the rest of the test in on its own, differently for each
// instance, and then the instances replay some rows twice and others never.
var errNoSequence = errors.New("an execution segment needs the execution segment sequence too, " +
	"or rows would be replayed twice and others never: give every instance the same --execution-segment-sequence, " +
	"e.g. --execution-segment=1/4:2/4 --execution-segment-sequence=0,1/4,2/4,3/4,1")

// checkSegment fails for a segment without the sequence that it is of.
func checkSegment(scenario string, options lib.Options) error {
	alone := options.ExecutionSegmentSequence == nil || len(*options.ExecutionSegmentSequence) == 0
	if options.ExecutionSegment.FloatLength() < 1 && alone {
		return fmt.Errorf("scenario %s: %w", scenario, errNoSequence)
	}

	return nil
}

// NewExecutor implements lib.ExecutorConfig.
func (c *Config) NewExecutor(state *lib.ExecutionState, logger *logrus.Entry) (lib.Executor, error) {
	if err := checkSegment(c.Name, state.Test.Options); err != nil {
		return nil, err
	}

	return &Executor{BaseExecutor: executor.NewBaseExecutor(c, state, logger), config: c, state: state}, nil
}
