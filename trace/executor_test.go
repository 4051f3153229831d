package trace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.k6.io/k6/errext"
	"go.k6.io/k6/lib"
	"go.k6.io/k6/lib/types"
	"gopkg.in/guregu/null.v3"
	"pgregory.net/rapid"

	"github.com/safeqps/xk6-safeqps/trace/format"
)

// every gives a trace of n rows, one gap apart, and a scenario that replays it with so many VUs.
func every(tb testing.TB, gap time.Duration, n int, vus int64) *Config {
	tb.Helper()
	s := &schedule{rows: make([]format.Row, n), period: time.Duration(n) * gap}
	for i := range s.rows {
		s.rows[i].Due = time.Duration(i) * gap
	}
	publish(tb.Name(), s)
	c := NewConfig("replay")
	c.Trace = tb.Name()
	c.PreAllocatedVUs = null.IntFrom(vus)
	// The machine that runs the tests may be busy; what lateness does has a test of its own.
	c.Tolerance = types.NullDurationFrom(time.Minute)

	return c
}

func upTo(n int) []int {
	rows := make([]int, n)
	for i := range rows {
		rows[i] = i
	}

	return rows
}

func TestEachRowStartsOnceAndNotBeforeItsDueTime(t *testing.T) {
	t.Parallel()
	c := every(t, time.Millisecond, 40, 60)
	var mu sync.Mutex
	var iterations []Iteration
	var locals []int
	r := newRig(t, c, segment{}, func(ctx context.Context, vu *goVU) error {
		it, ok := FromContext(ctx)
		require.True(t, ok)
		mu.Lock()
		defer mu.Unlock()
		require.False(t, time.Now().Before(it.Due))
		require.EqualValues(t, it.Row, vu.global, "iterationInTest is the row")
		iterations = append(iterations, it)
		locals = append(locals, int(vu.local))

		return nil
	})
	samples, err := r.run(t.Context())
	require.NoError(t, err)
	require.Empty(t, samples)

	slices.SortFunc(iterations, func(a, b Iteration) int { return a.Row - b.Row })
	require.Len(t, iterations, 40)
	for i, it := range iterations {
		require.Equal(t, i, it.Row)
		require.Equal(t, time.Duration(i)*time.Millisecond, it.Due.Sub(iterations[0].Due), "due times are absolute")
	}
	slices.Sort(locals)
	require.Equal(t, upTo(40), locals)
	require.EqualValues(t, 40, r.state.GetFullIterationCount())
	require.EqualValues(t, 0, r.state.GetPartialIterationCount())
}

func TestFromContextWithoutTheExecutor(t *testing.T) {
	t.Parallel()
	_, ok := FromContext(t.Context())
	require.False(t, ok)
}

func TestStalledServerKeepsTheLoopOpen(t *testing.T) {
	t.Parallel()
	c := every(t, time.Millisecond, 50, 3)
	c.Tags = map[string]string{"phase": "steady"}
	s, _ := lookUp(c.Trace)
	s.rows[7].Class = "long"
	var mu sync.Mutex
	var started []int
	var begin time.Time
	r := newRig(t, c, segment{}, func(ctx context.Context, _ *goVU) error {
		it, _ := FromContext(ctx)
		mu.Lock()
		started = append(started, it.Row)
		begin = it.Due.Add(-time.Duration(it.Row) * time.Millisecond)
		mu.Unlock()
		<-ctx.Done() // the server never answers

		return nil
	})
	c.GracefulStop = types.NullDurationFrom(0)
	c.Duration = types.NullDurationFrom(500 * time.Millisecond)
	samples, err := r.run(t.Context())
	require.NoError(t, err)

	slices.Sort(started)
	require.Equal(t, []int{0, 1, 2}, started)
	require.Equal(t, upTo(50)[3:], droppedRows(samples, DropNoVU))
	require.Len(t, samples, 47)
	for _, s := range samples {
		d := s.(*Dropped)
		require.Equal(t, begin.Add(time.Duration(d.Row)*time.Millisecond), d.Due)
		require.Equal(t, "replay", d.Scenario)
		require.Len(t, d.GetSamples(), 1)
		sample := d.GetSamples()[0]
		require.Equal(t, "dropped_iterations", sample.Metric.Name)
		require.InDelta(t, 1, sample.Value, 0)
		want := map[string]string{"phase": "steady", "scenario": "replay"}
		if d.Row == 7 {
			want["class"] = "long"
			require.Equal(t, "long", d.Class)
		}
		require.Equal(t, want, sample.Tags.Map())
	}
	require.EqualValues(t, 3, r.state.GetPartialIterationCount())
	require.EqualValues(t, 0, r.state.GetFullIterationCount())
	require.Len(t, messages(r, "rows are dropped"), 1, "said once")
	require.Equal(t, []string{"47 of 50 rows were dropped: 47 because all VUs that maxVUs allows were at work: raise maxVUs, and " +
		"preAllocatedVUs with it"}, messages(r, "rows were dropped"))
	require.Equal(t, "50/50 rows, 47 dropped (47 no VU)", r.executor.GetProgress().Render(0, 0).Right[2])
}

func messages(r *rig, containing string) []string {
	var found []string
	for _, e := range r.logs.AllEntries() {
		if strings.Contains(e.Message, containing) {
			found = append(found, e.Message)
		}
	}

	return found
}

func TestRowThatTheGeneratorWouldStartLateIsDropped(t *testing.T) {
	t.Parallel()
	c := every(t, time.Millisecond, 5, 1)
	c.MaxVUs = null.IntFrom(10)
	c.Tolerance = types.NullDurationFrom(1) // a nanosecond: everything is late
	r := newRig(t, c, segment{}, func(context.Context, *goVU) error {
		t.Error("a row was started late")

		return nil
	})
	samples, err := r.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, upTo(5), droppedRows(samples, DropLate))
	require.Len(t, samples, 5)
	require.Equal(t, []string{"5 of 5 rows were dropped: 5 because the load generator itself was behind by more than tolerance: take a " +
		"faster or less busy machine, or several"}, messages(r, "rows were dropped"))
	require.Equal(t, "5/5 rows, 5 dropped (5 late)", r.executor.GetProgress().Render(0, 0).Right[2])
	require.EqualValues(t, 1, r.madeVUs.Load(), "more VUs would not help")
}

func TestWorkerThatComesLateDropsItsRow(t *testing.T) {
	t.Parallel()
	c := every(t, time.Millisecond, 5, 10)
	r := newRig(t, c, segment{}, nil)
	e := r.executor.(*Executor)
	run := &run{
		config: c, state: r.state, window: e.window, tolerance: time.Second, ctx: t.Context(),
		drops: newDropQueue(r.samples), dropTags: e.tagsOfDrops(),
	}
	run.start(&worker{}, job{row: 3, due: time.Now().Add(-2 * time.Second)}) // would panic: it has no VU
	run.drops.close()
	require.Equal(t, 3, (<-r.samples).(*Dropped).Row)
	require.EqualValues(t, 0, run.started.Load())
	require.EqualValues(t, 1, run.dropped.total())
}

func TestUnionOfSegmentsIsEachRowOnce(t *testing.T) {
	t.Parallel()
	sequences := []string{"0,1", "0,1/2,1", "0,1/4,2/4,3/4,1", "0,1/3,1/2,1", "0,0.1,0.35,1"}
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		sequence := rapid.SampledFrom(sequences).Draw(rt, "sequence")
		rows := rapid.IntRange(1, 60).Draw(rt, "rows")
		vus := rapid.Int64Range(1, 12).Draw(rt, "vus")
		from := rapid.IntRange(0, rows).Draw(rt, "from")
		s := &schedule{rows: make([]format.Row, rows)}
		id := fmt.Sprintf("%s-%d", t.Name(), n)
		publish(id, s)

		var mu sync.Mutex
		var all []int
		points := strings.Split(sequence, ",")
		for i := range len(points) - 1 {
			c := NewConfig("replay")
			c.Trace, c.PreAllocatedVUs, c.From = id, null.IntFrom(vus), null.IntFrom(int64(from))
			c.Tolerance = types.NullDurationFrom(time.Minute)
			seg := segment{part: points[i] + ":" + points[i+1], sequence: sequence}
			options := seg.options(t)
			tuple, err := lib.NewExecutionTuple(options.ExecutionSegment, options.ExecutionSegmentSequence)
			require.NoError(t, err)
			if !c.HasWork(tuple) {
				continue // k6 leaves it out
			}
			r := newRig(t, c, seg, func(ctx context.Context, vu *goVU) error {
				it, _ := FromContext(ctx)
				mu.Lock()
				defer mu.Unlock()
				require.EqualValues(t, it.Row, vu.global)
				all = append(all, it.Row)

				return nil
			})
			samples, err := r.run(t.Context())
			require.NoError(t, err)
			all = append(all, droppedRows(samples, "")...) // the rows come all at once, for few VUs
		}
		slices.Sort(all)
		require.Equal(rt, upTo(rows)[from:], append([]int{}, all...))
	})
}

func TestSegmentWithoutSequenceIsRefused(t *testing.T) {
	t.Parallel()
	c := every(t, time.Millisecond, 5, 10)
	_, err := tryRig(t, c, segment{part: "0:1/2"}, nil)
	require.ErrorIs(t, err, errNoSequence)
	require.ErrorContains(t, err, "--execution-segment-sequence")

	_, err = tryRig(t, c, segment{part: "0:1"}, nil)
	require.NoError(t, err, "the whole test is no segment")
	_, err = tryRig(t, c, segment{part: "0:1/2", sequence: "0,1/2,1"}, nil)
	require.NoError(t, err)
}

func TestWindowOfATrace(t *testing.T) {
	t.Parallel()
	c := every(t, 10*time.Millisecond, 10, 20)
	c.From, c.To = null.IntFrom(4), null.IntFrom(13) // beyond the end: the trace once more
	c.Origin = types.NullDurationFrom(35 * time.Millisecond)
	c.Speed = null.FloatFrom(2)
	var mu sync.Mutex
	due := map[int]time.Time{}
	r := newRig(t, c, segment{}, func(ctx context.Context, _ *goVU) error {
		it, _ := FromContext(ctx)
		mu.Lock()
		defer mu.Unlock()
		due[it.Row] = it.Due

		return nil
	})
	_, err := r.run(t.Context())
	require.NoError(t, err)
	require.Len(t, due, 9)
	for row := 4; row < 13; row++ {
		require.Equal(t, time.Duration(row-4)*5*time.Millisecond, due[row].Sub(due[4]))
	}
	w, err := c.window()
	require.NoError(t, err)
	require.Equal(t, 2500*time.Microsecond, w.due(0))
	require.Equal(t, 42500*time.Microsecond, w.lastDue())
}

func TestGracefulStop(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name              string
		graceful          time.Duration
		full, interrupted uint64
		unsent            bool
	}{
		{"too short", time.Millisecond, 1, 1, false},
		{"too short, before a request was sent", time.Millisecond, 1, 1, true},
		{"long enough", time.Minute, 2, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := every(t, 0, 2, 2)
			c.Duration = types.NullDurationFrom(500 * time.Millisecond)
			c.GracefulStop = types.NullDurationFrom(test.graceful)
			stopping := make(chan struct{})
			r := newRig(t, c, segment{}, nil)
			if test.unsent {
				r.runner.silent = map[uint64]bool{1: true}
			}
			r.runner.iterate = func(ctx context.Context, _ *goVU) error {
				if it, _ := FromContext(ctx); it.Row == 0 {
					return nil
				}
				if test.interrupted > 0 {
					<-ctx.Done()

					return ctx.Err()
				}
				<-stopping // by then no row is left to start, and the bar shows it

				return nil
			}
			if test.interrupted == 0 {
				go func() {
					defer close(stopping)
					for bar(r).Status() != string(statusStopping) {
						time.Sleep(time.Millisecond)
					}
				}()
			}
			samples, err := r.run(t.Context())
			require.NoError(t, err)
			if test.unsent {
				require.Equal(t, []int{1}, droppedRows(samples, DropStopped), "a row that nobody sent is none that the service left open")
			} else {
				require.Empty(t, droppedRows(samples, DropStopped))
			}
			require.Equal(t, test.full, r.state.GetFullIterationCount())
			require.Equal(t, test.interrupted, r.state.GetPartialIterationCount())
			require.Equal(t, string(statusDone), bar(r).Status())
			require.EqualValues(t, 0, r.state.GetCurrentlyActiveVUsCount())
			for range 2 { // all VUs are back
				_, err := r.state.GetPlannedVU(r.executor.GetLogger(), false)
				require.NoError(t, err)
			}
		})
	}
}

// bar is what k6 would draw.
func bar(r *rig) interface{ Status() string } {
	rendered := r.executor.GetProgress().Render(0, 0)

	return &rendered
}

func TestMaxDurationDropsWhatComesAfterIt(t *testing.T) {
	t.Parallel()
	c := every(t, 10*time.Millisecond, 10, 10)
	c.MaxDuration = types.NullDurationFrom(30 * time.Millisecond)
	var mu sync.Mutex
	var started []int
	r := newRig(t, c, segment{}, func(ctx context.Context, _ *goVU) error {
		it, _ := FromContext(ctx)
		mu.Lock()
		defer mu.Unlock()
		started = append(started, it.Row)

		return nil
	})
	samples, err := r.run(t.Context())
	require.NoError(t, err)
	slices.Sort(started)
	require.Equal(t, upTo(4), started, "a row that is due at maxDuration is not after it")
	require.Equal(t, upTo(10)[4:], droppedRows(samples, DropMaxDuration))
}

func TestRowThatTheEndOfTheTestCutsOffIsDropped(t *testing.T) {
	t.Parallel()
	c := every(t, 0, 1, 1)
	r := newRig(t, c, segment{}, nil)
	e := r.executor.(*Executor)
	ctx, cancel := context.WithCancel(t.Context())
	run := &run{
		config: c, state: r.state, window: e.window, tolerance: time.Minute, ctx: ctx, cancel: cancel,
		drops: newDropQueue(r.samples), dropTags: e.tagsOfDrops(),
	}
	vu, err := r.state.GetPlannedVU(r.executor.GetLogger(), false)
	require.NoError(t, err)
	run.addVU(vu)
	cancel()
	w := run.idle.pop()
	w.jobs <- job{row: 0, due: time.Now()}
	run.stop()
	run.drops.close()
	require.Equal(t, DropStopped, (<-r.samples).(*Dropped).Reason)
	require.EqualValues(t, 0, run.started.Load())
	require.EqualValues(t, 0, r.state.GetPartialIterationCount())
}

func TestRowDueAtTheEndIsStarted(t *testing.T) {
	t.Parallel()
	c := every(t, 10*time.Millisecond, 3, 10)
	c.Duration = types.NullDurationFrom(5 * time.Millisecond) // less than the rows need
	r := newRig(t, c, segment{}, func(context.Context, *goVU) error { return nil })
	samples, err := r.run(t.Context())
	require.NoError(t, err)
	require.Empty(t, samples)
	require.EqualValues(t, 3, r.state.GetFullIterationCount())
}

func TestAbortEndsTheTest(t *testing.T) {
	t.Parallel()
	c := every(t, 0, 3, 3)
	s, _ := lookUp(c.Trace)
	s.rows = append(s.rows, format.Row{Due: time.Hour}) // never started, and not dropped either: the test has no such row any more
	others := make(chan struct{}, 2)
	r := newRig(t, c, segment{}, func(ctx context.Context, _ *goVU) error {
		if it, _ := FromContext(ctx); it.Row != 1 {
			others <- struct{}{}
			<-ctx.Done()

			return ctx.Err()
		}
		<-others
		<-others

		return fmt.Errorf("script: %w", &errext.InterruptError{Reason: errext.AbortTest})
	})
	samples, err := r.run(t.Context())
	require.True(t, errext.IsInterruptError(err), "k6 exits with 108 for it")
	require.Empty(t, samples)
	require.EqualValues(t, 3, r.state.GetPartialIterationCount())
	require.Equal(t, string(statusInterrupted), bar(r).Status())
}

func TestCancelledTest(t *testing.T) {
	t.Parallel()
	c := every(t, time.Hour, 2, 1)
	ctx, cancel := context.WithCancel(t.Context())
	r := newRig(t, c, segment{}, func(ctx context.Context, _ *goVU) error {
		cancel()
		<-ctx.Done()

		return ctx.Err()
	})
	samples, err := r.run(ctx)
	require.NoError(t, err)
	require.Empty(t, samples)
	require.EqualValues(t, 1, r.state.GetPartialIterationCount())
	require.Equal(t, string(statusInterrupted), bar(r).Status())
}

func TestFurtherVUsAreMadeWithoutHoldingUpTheRows(t *testing.T) {
	t.Parallel()
	c := every(t, time.Millisecond, 4, 1)
	s, _ := lookUp(c.Trace)
	s.rows = append(s.rows, format.Row{Due: time.Second}, format.Row{Due: time.Second})
	c.MaxVUs = null.IntFrom(3)
	c.GracefulStop = types.NullDurationFrom(100 * time.Millisecond)
	var mu sync.Mutex
	var started []int
	r := newRig(t, c, segment{}, nil)
	r.runner.initDelay = make(chan struct{})
	r.runner.iterate = func(ctx context.Context, _ *goVU) error {
		it, _ := FromContext(ctx)
		mu.Lock()
		started = append(started, it.Row)
		mu.Unlock()
		if it.Row == 0 {
			// A VU is asked for as soon as none is left. While it is being made, rows 1 to 3 come and go.
			go func() {
				for r.executor.GetProgress().Render(0, 0).Right[2] != "4/6 rows, 3 dropped (3 VU starting)" {
					time.Sleep(time.Millisecond)
				}
				r.runner.initDelay <- struct{}{}
				r.runner.initDelay <- struct{}{}
			}()
		}
		<-ctx.Done()

		return nil
	}
	samples, err := r.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{1, 2, 3}, droppedRows(samples, DropVUStarting))
	require.Equal(t, []string{"3 of 6 rows were dropped: 3 because further VUs were still being made: raise preAllocatedVUs"},
		messages(r, "rows were dropped"))
	slices.Sort(started)
	require.Equal(t, []int{0, 4, 5}, started)
	require.EqualValues(t, 3, r.madeVUs.Load(), "no more than maxVUs")
}

func TestVUIsMadeBeforeItIsMissed(t *testing.T) {
	t.Parallel()
	c := every(t, 500*time.Millisecond, 2, 1)
	c.MaxVUs = null.IntFrom(3)
	c.GracefulStop = types.NullDurationFrom(time.Minute)
	second := make(chan struct{})
	r := newRig(t, c, segment{}, func(ctx context.Context, _ *goVU) error {
		if it, _ := FromContext(ctx); it.Row == 1 {
			close(second)
		}
		<-second // row 0 is at work until row 1 has a VU

		return nil
	})
	samples, err := r.run(t.Context())
	require.NoError(t, err)
	require.Empty(t, samples)
}

func TestNoVUIsMadeOnceTheRowsAreOver(t *testing.T) {
	t.Parallel()
	c := every(t, 0, 30, 1)
	c.MaxVUs = null.IntFrom(30)
	r := newRig(t, c, segment{}, nil)
	r.runner.initDelay = make(chan struct{}) // nobody gives a token: the VU that is being made is given up
	r.runner.iterate = func(context.Context, *goVU) error {
		for !strings.HasPrefix(r.executor.GetProgress().Render(0, 0).Right[2], "30/30") {
			time.Sleep(time.Millisecond)
		}

		return nil
	}
	samples, err := r.run(t.Context())
	require.NoError(t, err)
	require.Len(t, droppedRows(samples, DropVUStarting), 29)
	require.EqualValues(t, 1, r.madeVUs.Load())
	require.Empty(t, messages(r, "could not be initialized"))
}

func TestScriptErrorsAreLoggedAndTheTestGoesOn(t *testing.T) {
	t.Parallel()
	c := every(t, time.Millisecond, 3, 3)
	r := newRig(t, c, segment{}, func(ctx context.Context, _ *goVU) error {
		switch it, _ := FromContext(ctx); it.Row {
		case 0:
			return errors.New("first")
		case 1:
			return exception{errors.New("second")}
		}

		return nil
	})
	_, err := r.run(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3, r.state.GetFullIterationCount())
	require.Equal(t, []string{"first"}, messages(r, "first"))
	require.Equal(t, []string{"at line 1"}, messages(r, "at line 1"))
}

type exception struct{ error }

func (exception) StackTrace() string              { return "at line 1" }
func (exception) AbortReason() errext.AbortReason { return 0 }

func TestProgressShowsRowsAndVUs(t *testing.T) {
	t.Parallel()
	c := every(t, time.Millisecond, 10, 2)
	c.GracefulStop = types.NullDurationFrom(time.Minute)
	seen := make(chan []string, 1)
	var waiting atomic.Int64
	all := make(chan struct{})
	r := newRig(t, c, segment{}, nil)
	r.runner.iterate = func(ctx context.Context, _ *goVU) error {
		if waiting.Add(1) == 2 {
			for !strings.HasPrefix(r.executor.GetProgress().Render(0, 0).Right[2], "10/10") {
				time.Sleep(time.Millisecond)
			}
			seen <- r.executor.GetProgress().Render(0, 0).Right
			close(all)
		}
		<-all
		progress, columns := lib.GetScenarioState(ctx).ProgressFn()
		require.LessOrEqual(t, progress, 1.0)
		require.Len(t, columns, 3)
		require.Equal(t, ExecutorType, lib.GetScenarioState(ctx).Executor)
		require.Equal(t, "replay", lib.GetScenarioState(ctx).Name)

		return nil
	}
	_, err := r.run(t.Context())
	require.NoError(t, err)
	right := <-seen
	require.Equal(t, "2/2 VUs", right[0])
	require.Equal(t, "10/10 rows, 8 dropped (8 no VU)", right[2])
	final := r.executor.GetProgress().Render(0, 0)
	require.Contains(t, final.String(), strings.Repeat("=", 38), "the bar is full")
	require.Equal(t, "0/2 VUs", final.Right[0])
}

func TestProgressOfAnUnknownBar(t *testing.T) {
	t.Parallel()
	type option func(*struct{ progress int })
	unknown := &struct{ progress int }{}
	modified := false
	ok := showProgress(unknown, func(...option) { modified = true }, 0, func() (float64, []string) { return 0, nil })
	require.False(t, ok)
	require.False(t, modified)
}

func TestTraceThatIsNotOpen(t *testing.T) {
	t.Parallel()
	c := NewConfig("replay")
	c.Trace, c.PreAllocatedVUs = "nowhere", null.IntFrom(1)
	_, err := tryRig(t, c, segment{}, nil)
	require.ErrorContains(t, err, `trace "nowhere" is not open`)
	require.Equal(t, "trace nowhere (maxVUs: 1, gracefulStop: 30s)", c.GetDescription(wholeTest(t)))
}

func wholeTest(tb testing.TB) *lib.ExecutionTuple {
	tb.Helper()
	tuple, err := lib.NewExecutionTuple(nil, nil)
	require.NoError(tb, err)

	return tuple
}

func TestConfigThroughJSON(t *testing.T) {
	t.Parallel()
	const text = `{"replay": {"executor": "trace-arrival-rate", "trace": "t", "preAllocatedVUs": 2, "maxVUs": 7,
		"startTime": "3s", "gracefulStop": "5s", "exec": "chat", "env": {"A": "b"}, "tags": {"phase": "steady"},
		"from": 1, "to": 20, "origin": "1.5s", "speed": 0.5, "duration": "40s", "maxDuration": "1m", "tolerance": 20}}`
	var scenarios lib.ScenarioConfigs
	require.NoError(t, json.Unmarshal([]byte(text), &scenarios))
	require.Empty(t, scenarios.Validate())
	c := scenarios["replay"].(*Config)
	require.Equal(t, 20*time.Millisecond, c.Tolerance.TimeDuration())
	require.Equal(t, 1500*time.Millisecond, c.Origin.TimeDuration())
	require.Equal(t, "chat", c.GetExec())
	require.Equal(t, map[string]string{"phase": "steady"}, c.GetTags())

	again, err := json.Marshal(scenarios) // as k6 archives it
	require.NoError(t, err)
	var read lib.ScenarioConfigs
	require.NoError(t, json.Unmarshal(again, &read))
	require.Equal(t, scenarios, read)

	err = json.Unmarshal([]byte(`{"a": {"executor": "trace-arrival-rate", "vus": 3}}`), &scenarios)
	require.ErrorContains(t, err, "vus")
}

func TestConfigErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ json, want string }{
		{`{"preAllocatedVUs": 1}`, "trace: got nothing"},
		{`{"trace": "t"}`, "preAllocatedVUs: got nothing"},
		{`{"trace": "t", "preAllocatedVUs": -1}`, "preAllocatedVUs: got -1"},
		{`{"trace": "t", "preAllocatedVUs": 0}`, "preAllocatedVUs: got 0"},
		{`{"trace": "t", "preAllocatedVUs": 0, "maxVUs": 1}`, ""},
		{`{"trace": "t", "preAllocatedVUs": 3, "maxVUs": 2}`, "maxVUs: got 2"},
		{`{"trace": "t", "preAllocatedVUs": 3, "from": -1}`, "from: got -1"},
		{`{"trace": "t", "preAllocatedVUs": 3, "from": 5, "to": 4}`, "to: got 4"},
		{`{"trace": "t", "preAllocatedVUs": 3, "to": 3000000000}`, "at most"},
		{`{"trace": "t", "preAllocatedVUs": 3, "speed": 0}`, "speed: got 0"},
		{`{"trace": "t", "preAllocatedVUs": 3, "speed": -1}`, "speed: got -1"},
		{`{"trace": "t", "preAllocatedVUs": 3, "duration": "-1s"}`, "duration: got -1s"},
		{`{"trace": "t", "preAllocatedVUs": 3, "maxDuration": 0}`, "maxDuration: got 0"},
		{`{"trace": "t", "preAllocatedVUs": 3, "tolerance": 0}`, "tolerance: got 0"},
		{`{"trace": "t", "preAllocatedVUs": 3, "startTime": "-1s"}`, "startTime"},
		{`{"trace": "t", "preAllocatedVUs": 3}`, ""},
	} {
		t.Run(test.json, func(t *testing.T) {
			t.Parallel()
			c := NewConfig("replay")
			require.NoError(t, json.Unmarshal([]byte(test.json), c))
			errs := c.Validate()
			if test.want == "" {
				require.Empty(t, errs)

				return
			}
			require.NotEmpty(t, errs)
			require.ErrorContains(t, errors.Join(errs...), test.want)
		})
	}
}

func TestRequirementsAndDescription(t *testing.T) {
	t.Parallel()
	c := every(t, time.Second, 11, 4)
	c.MaxVUs = null.IntFrom(10)
	c.Exec = null.StringFrom("chat")
	c.StartTime = types.NullDurationFrom(2 * time.Second)
	require.Equal(t, []lib.ExecutionStep{
		{PlannedVUs: 4, MaxUnplannedVUs: 6},
		{TimeOffset: 40 * time.Second},
	}, c.GetExecutionRequirements(wholeTest(t)))
	require.Equal(t,
		"11 rows of trace TestRequirementsAndDescription over 10s (maxVUs: 4-10, exec: chat, startTime: 2s, gracefulStop: 30s)",
		c.GetDescription(wholeTest(t)))

	c.Duration = types.NullDurationFrom(15 * time.Second)
	require.Equal(t, 45*time.Second, c.GetExecutionRequirements(wholeTest(t))[1].TimeOffset)
	c.MaxDuration = types.NullDurationFrom(3 * time.Second)
	require.Equal(t, 33*time.Second, c.GetExecutionRequirements(wholeTest(t))[1].TimeOffset)
	c.Trace = "not open yet"
	require.Equal(t, 33*time.Second, c.GetExecutionRequirements(wholeTest(t))[1].TimeOffset)
	c.Duration = types.NullDuration{}
	require.Equal(t, 33*time.Second, c.GetExecutionRequirements(wholeTest(t))[1].TimeOffset)
}

func TestWindowErrors(t *testing.T) {
	t.Parallel()
	s := &schedule{rows: []format.Row{{}, {Due: time.Second}}}
	for _, test := range []struct {
		window window
		want   string
	}{
		{window{schedule: s, from: 2, to: 1, speed: 1}, "0 <= from <= to"},
		{window{schedule: s, to: 3, speed: 1}, "cannot be repeated"},
		{window{schedule: s, to: 2, origin: time.Millisecond, speed: 1}, "row 0 is due 1ms before"},
		{window{schedule: s, from: 1, to: 2, origin: time.Second, speed: 1}, ""},
		{window{schedule: s, from: 5, to: 5, origin: time.Second, speed: 1}, "cannot be repeated"},
	} {
		err := test.window.check()
		if test.want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, test.want)
		}
	}
}

func TestAlarm(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	go func() { // of its own: an alarm takes its thread with it
		defer close(done)
		a := newAlarm()
		for _, d := range []time.Duration{-time.Second, 0, 300 * time.Microsecond, 4 * time.Millisecond} {
			due := time.Now().Add(d)
			require.True(t, a.until(t.Context(), due))
			require.False(t, time.Now().Before(due))
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		require.False(t, a.until(ctx, time.Now().Add(time.Hour)))
		require.False(t, a.until(ctx, time.Now().Add(-time.Hour)), "done counts before due")
	}()
	<-done
}

func TestIdleWorkersIsAStack(t *testing.T) {
	t.Parallel()
	var s idleWorkers
	require.True(t, s.empty())
	require.Nil(t, s.pop())
	a, b := &worker{}, &worker{}
	s.push(a)
	s.push(b)
	require.False(t, s.empty())
	require.Same(t, b, s.pop())
	require.Same(t, a, s.pop())
	require.Nil(t, s.pop())
}

// TestIdleWorkersLosesNobody has many workers push while one dispatcher pops, as in a run.
func TestIdleWorkersLosesNobody(t *testing.T) {
	t.Parallel()
	var s idleWorkers
	const workers, rounds = 8, 1000
	var running sync.WaitGroup
	for range workers {
		w := &worker{jobs: make(chan job, 1)}
		s.push(w)
		running.Go(func() {
			for range w.jobs {
				s.push(w)
			}
		})
	}
	for range rounds {
		for {
			if w := s.pop(); w != nil {
				w.jobs <- job{}

				break
			}
			time.Sleep(time.Microsecond)
		}
	}
	seen := map[*worker]bool{}
	for len(seen) < workers {
		if w := s.pop(); w != nil {
			require.False(t, seen[w])
			seen[w] = true
			close(w.jobs)
		}
	}
	running.Wait()
	require.True(t, s.empty())
}

// An iteration that sends nothing is an arrival that the service never saw: it is told as what it is, and not as one of
// k6's dropped iterations.
func TestRowsWithoutARequestAreTold(t *testing.T) {
	t.Parallel()
	c := every(t, time.Millisecond, 20, 20)
	r := newRig(t, c, segment{}, func(context.Context, *goVU) error { return nil })
	r.runner.silent = map[uint64]bool{3: true, 11: true}
	samples, err := r.run(t.Context())
	require.NoError(t, err)
	require.ElementsMatch(t, []int{3, 11}, droppedRows(samples, DropNoRequest), "in the order in which the iterations ended")
	for _, s := range samples {
		require.Empty(t, s.GetSamples())
		require.Equal(t, "replay", s.(*Dropped).Tags.Map()["scenario"])
	}
	require.EqualValues(t, 20, r.state.GetFullIterationCount())
	require.Len(t, messages(r, "2 of 20 rows were dropped: 2 because their iterations ended without a request"), 1)
}

// An iteration that is cut off before it has sent anything leaves its row behind; one that has sent is told by its request.
func TestRowsCutOffBeforeTheirRequestAreTold(t *testing.T) {
	t.Parallel()
	for name, abort := range map[string]bool{"gracefulStop": false, "test.abort()": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := every(t, 0, 6, 6)
			c.Duration = types.NullDurationFrom(100 * time.Millisecond)
			c.GracefulStop = types.NullDurationFrom(time.Millisecond)
			others := make(chan struct{}, 6)
			r := newRig(t, c, segment{}, func(ctx context.Context, _ *goVU) error {
				it, _ := FromContext(ctx)
				if it.Row == 0 && abort {
					for range 5 {
						<-others
					}

					return fmt.Errorf("script: %w", &errext.InterruptError{Reason: errext.AbortTest})
				}
				others <- struct{}{}
				<-ctx.Done()

				return ctx.Err()
			})
			r.runner.silent = map[uint64]bool{0: true, 2: true, 5: true}
			samples, err := r.run(t.Context())
			require.Equal(t, abort, errext.IsInterruptError(err))
			require.ElementsMatch(t, []int{0, 2, 5}, droppedRows(samples, DropStopped))
			require.Len(t, samples, 3, "each row once")
			for _, s := range samples {
				require.Empty(t, s.GetSamples(), "k6 counts them as interrupted iterations")
			}
			require.EqualValues(t, 6, r.state.GetPartialIterationCount())
			require.Equal(t, "6/6 rows, 3 dropped (3 stopped)", r.executor.GetProgress().Render(0, 0).Right[2])
		})
	}
}

func TestDropCounts(t *testing.T) {
	t.Parallel()
	var c dropCounts
	require.Equal(t, "0 dropped", c.String())
	require.Empty(t, c.advice())
	for reason, n := range map[DropReason]int{DropNoVU: 5, DropVUStarting: 4, DropLate: 3, DropMaxDuration: 2, DropStopped: 1} {
		for range n {
			c.add(reason)
		}
	}
	require.EqualValues(t, 15, c.total())
	require.Equal(t, "15 dropped (5 no VU, 4 VU starting, 3 late, 2 past maxDuration, 1 stopped)", c.String())
	require.Equal(t, "5 because all VUs that maxVUs allows were at work: raise maxVUs, and preAllocatedVUs with it; "+
		"4 because further VUs were still being made: raise preAllocatedVUs; "+
		"3 because the load generator itself was behind by more than tolerance: take a faster or less busy machine, or several", c.advice())
}
