package trace

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	"go.k6.io/k6/lib"
	"go.k6.io/k6/metrics"

	"github.com/safeqps/xk6-safeqps/llm"
)

// goRunner is a k6 runner whose iterations are a Go function: what the executor asks of a VU, without JavaScript. The
// methods that the executor does not use are those of a nil lib.Runner.
type goRunner struct {
	lib.Runner
	iterate   func(ctx context.Context, vu *goVU) error
	initDelay chan struct{}   // if set, making a VU takes one token
	silent    map[uint64]bool // rows whose iterations send nothing
}

// goVU is one VU of it, initialized and active.
type goVU struct {
	runner        *goRunner
	id            uint64
	params        *lib.VUActivationParams
	busy          chan struct{}
	local, global uint64
}

func (r *goRunner) NewVU(
	_ context.Context, idLocal, _ uint64, _ chan<- metrics.SampleContainer,
) (lib.InitializedVU, error) {
	return &goVU{runner: r, id: idLocal}, nil
}

func (v *goVU) GetID() uint64 { return v.id }

func (v *goVU) Activate(params *lib.VUActivationParams) lib.ActiveVU {
	active := &goVU{runner: v.runner, id: v.id, params: params, busy: make(chan struct{}, 1)}
	context.AfterFunc(params.RunContext, func() {
		active.busy <- struct{}{}
		params.DeactivateCallback(v)
	})

	return active
}

func (v *goVU) RunOnce() error {
	select {
	case <-v.params.RunContext.Done():
		return v.params.RunContext.Err()
	case v.busy <- struct{}{}:
	}
	defer func() { <-v.busy }()
	v.local, v.global = v.params.GetNextIterationCounters()
	if !v.runner.silent[v.global] {
		llm.CountSend(v.params.RunContext)
	}

	return v.runner.iterate(v.params.RunContext, v)
}

// rig is an executor that is ready to run, with what k6 would put around it.
type rig struct {
	executor lib.Executor
	state    *lib.ExecutionState
	logs     *logtest.Hook
	runner   *goRunner
	samples  chan metrics.SampleContainer
	got      []metrics.SampleContainer
	reader   sync.WaitGroup
	madeVUs  atomic.Int64
}

// segment is one instance's share of a test; the zero value is the whole test.
type segment struct{ part, sequence string }

func (s segment) options(tb testing.TB) lib.Options {
	tb.Helper()
	var options lib.Options
	var err error
	if s.part != "" {
		options.ExecutionSegment, err = lib.NewExecutionSegmentFromString(s.part)
		require.NoError(tb, err)
	}
	if s.sequence != "" {
		sequence, err := lib.NewExecutionSegmentSequenceFromString(s.sequence)
		require.NoError(tb, err)
		options.ExecutionSegmentSequence = &sequence
	}
	options.SystemTags = &metrics.DefaultSystemTagSet

	return options
}

// newRig makes the planned VUs and initializes the executor, as k6's scheduler does.
func newRig(tb testing.TB, c *Config, s segment, iterate func(context.Context, *goVU) error) *rig {
	tb.Helper()
	r, err := tryRig(tb, c, s, iterate)
	require.NoError(tb, err)

	return r
}

func tryRig(tb testing.TB, c *Config, s segment, iterate func(context.Context, *goVU) error) (*rig, error) {
	tb.Helper()
	if errs := c.Validate(); len(errs) > 0 {
		return nil, errs[0]
	}
	options := s.options(tb)
	tuple, err := lib.NewExecutionTuple(options.ExecutionSegment, options.ExecutionSegmentSequence)
	require.NoError(tb, err)
	logger, logs := logtest.NewNullLogger()
	logger.SetOutput(io.Discard)
	registry := metrics.NewRegistry()
	runner := &goRunner{iterate: iterate}
	test := &lib.TestRunState{
		TestPreInitState: &lib.TestPreInitState{
			Logger: logger, Registry: registry, BuiltinMetrics: metrics.RegisterBuiltinMetrics(registry),
		},
		Options: options, Runner: runner, RunTags: registry.RootTagSet(),
	}
	needs := c.GetExecutionRequirements(tuple)
	state := lib.NewExecutionState(test, tuple, lib.GetMaxPlannedVUs(needs), lib.GetMaxPossibleVUs(needs))
	r := &rig{state: state, logs: logs, runner: runner, samples: make(chan metrics.SampleContainer, 100)}
	makeVU := func(ctx context.Context, _ *logrus.Entry) (lib.InitializedVU, error) {
		if runner.initDelay != nil {
			select {
			case <-runner.initDelay:
			case <-ctx.Done():
				return nil, fmt.Errorf("making a VU: %w", ctx.Err())
			}
		}
		r.madeVUs.Add(1)
		local, global := state.GetUniqueVUIdentifiers()

		return runner.NewVU(ctx, local, global, r.samples)
	}
	for range lib.GetMaxPlannedVUs(needs) {
		vu, err := makeVU(tb.Context(), nil)
		require.NoError(tb, err)
		state.AddInitializedVU(vu)
	}
	state.SetInitVUFunc(makeVU)
	r.executor, err = c.NewExecutor(state, logrus.NewEntry(logger))
	if err != nil {
		return nil, err
	}

	return r, r.executor.Init(tb.Context())
}

// run runs the executor to its end and gives back what it has sent to k6's outputs.
func (r *rig) run(ctx context.Context) ([]metrics.SampleContainer, error) {
	r.reader.Go(func() {
		for s := range r.samples {
			r.got = append(r.got, s)
		}
	})
	err := r.executor.Run(ctx, r.samples)
	close(r.samples)
	r.reader.Wait()

	return r.got, err
}

// droppedRows are the rows of the samples that are of dropped rows.
func droppedRows(samples []metrics.SampleContainer, reason DropReason) []int {
	var rows []int
	for _, s := range samples {
		if d, ok := s.(*Dropped); ok && (reason == "" || d.Reason == reason) {
			rows = append(rows, d.Row)
		}
	}

	return rows
}
