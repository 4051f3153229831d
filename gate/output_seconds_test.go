package gate

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.k6.io/k6/metrics"

	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/llm"
)

// timeline feeds the series of a run with what happens so many seconds after its begin.
type timeline struct {
	*seconds
	begin time.Time
	root  *metrics.TagSet
}

func newTimeline() *timeline {
	return &timeline{newSeconds(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), metrics.NewRegistry().RootTagSet()}
}

func (l *timeline) moment(second float64) time.Time {
	return l.begin.Add(time.Duration(second * float64(time.Second)))
}

func (l *timeline) tags(phase, step string) *metrics.TagSet {
	return l.root.With("phase", phase).With("step", step)
}

func (l *timeline) start(second float64, phase, step string) {
	l.started(&llm.Started{Attempt: 1, Sent: l.moment(second), Tags: l.tags(phase, step)})
}

func (l *timeline) end(second float64, outcome results.Outcome) {
	l.ended(&llm.Exchange{Attempt: 1, End: l.moment(second)}, &results.Request{Outcome: outcome})
}

// reading is one of the monitor's.
func (l *timeline) reading(second float64, phase string) {
	l.gauge(metrics.Sample{
		TimeSeries: metrics.TimeSeries{Tags: l.tags(phase, "")}, Time: l.moment(second), Value: 7,
	}, "running", true)
}

// inFlight writes the lines as SECOND PHASE/STEP IN_FLIGHT.
func (l *timeline) inFlight(lines []results.Sample) []string {
	out := make([]string, len(lines))
	for i := range lines {
		s := &lines[i]
		known := "-"
		if s.InFlight != nil {
			known = fmt.Sprint(*s.InFlight)
		}
		out[i] = fmt.Sprintf("%.0f %s/%s %s", s.Time.Sub(l.begin).Seconds(), s.Phase, s.Step, known)
	}

	return out
}

// TestInFlightIsKnownInEverySecond: a service that hangs starts and ends nothing, and just then the level counts.
func TestInFlightIsKnownInEverySecond(t *testing.T) {
	t.Parallel()
	l := newTimeline()
	for second := range 12 {
		l.reading(float64(second)+0.3, "steady") // the monitor reads the service each second
	}
	l.dropped(l.moment(1.5), "steady", "", 1)
	for range 7 {
		l.start(2.5, "steady", "")
	}
	l.end(8.5, results.OK)
	l.end(8.6, results.Failed)
	l.end(9.5, results.Cancelled)
	l.end(10.5, results.InFlight) // interrupted by the end of its iteration
	early := l.before(l.moment(5))
	require.Equal(t, []string{"0 steady/ -", "1 steady/ -", "2 steady/ 7", "3 steady/ 7", "4 steady/ 7"}, l.inFlight(early))
	require.Equal(t, []string{
		"5 steady/ 7", "6 steady/ 7", "7 steady/ 7", "8 steady/ 5", "9 steady/ 4", "10 steady/ 3", "11 steady/ 3",
	}, l.inFlight(l.all()))
}

// TestInFlightIsThatOfItsOwnSecond: requests end and start on other VUs, whose samples can overtake each other.
func TestInFlightIsThatOfItsOwnSecond(t *testing.T) {
	t.Parallel()
	l := newTimeline()
	l.start(0.1, "steady", "")
	l.start(1.1, "steady", "")
	l.end(0.9, results.OK) // told after the start that it came before
	l.reading(2.3, "steady")
	require.Equal(t, []string{"0 steady/ 0", "1 steady/ 1"}, l.inFlight(l.before(l.moment(2))))
	l.end(0.95, results.OK) // told after its second was handed out
	require.Equal(t, []string{"2 steady/ 0"}, l.inFlight(l.all()))
	l.started(&llm.Started{Attempt: 2, Sent: l.moment(3.5), Tags: l.tags("steady", "")})
	require.Equal(t, []string{"3 / 0"}, l.inFlight(l.all()), "a retry is no arrival")
}

// TestAHoleInTheSeriesIsFilled: without a monitor, a second in which nothing starts or ends has nothing to tell but the level.
func TestAHoleInTheSeriesIsFilled(t *testing.T) {
	t.Parallel()
	l := newTimeline()
	l.dropped(l.moment(0.5), "warmup", "", 1) // before anything was started: no second is made
	l.start(3.5, "steady", "r4")
	l.start(3.6, "steady", "r4")
	require.Equal(t, []string{"0 warmup/ -", "3 steady/r4 2"}, l.inFlight(l.before(l.moment(5))))
	require.Empty(t, l.before(l.moment(6)), "nobody knows yet whether it is a hole")
	l.start(7.5, "steady", "r4")
	lines := l.before(l.moment(8))
	require.Equal(t, []string{"4 steady/r4 2", "5 steady/r4 2", "6 steady/r4 2"}, l.inFlight(lines[:3]))
	for _, s := range lines[:3] {
		for _, n := range []*int64{s.Offered, s.Started, s.Dropped, s.Completed, s.Failed, s.Cancelled} {
			require.NotNil(t, n)
			require.Zero(t, *n)
		}
		require.Nil(t, s.PromptTokens)
		require.Nil(t, s.Server)
	}
	require.Equal(t, []string{"7 steady/r4 3"}, l.inFlight(lines[3:]))
	l.start(9.5, "steady", "r8") // which step the hole belongs to is not known
	l.end(11.5, results.OK)
	require.Equal(t, []string{"8 steady/ 3", "9 steady/r8 4", "10 / 4", "11 / 3"}, l.inFlight(l.all()))
	l.start(13.5, "recovery", "")
	require.Equal(t, []string{"12 / 3", "13 recovery/ 4"}, l.inFlight(l.all()))
	l.start(14+results.LongestQuiet.Seconds(), "steady", "")
	require.Len(t, l.all(), 1, "a machine that slept")
}
