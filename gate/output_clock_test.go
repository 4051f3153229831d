package gate

import (
	"net/http"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.k6.io/k6/metrics"

	"github.com/safeqps/xk6-safeqps/gate/clock"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/llm"
	"github.com/safeqps/xk6-safeqps/llm/stream"
	"github.com/safeqps/xk6-safeqps/llm/wire"
)

func TestTheSeriesHasTheServicesClock(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w, err := results.Create(t.TempDir(), results.Info{Started: begin}, results.Options{})
	require.NoError(t, err)
	o := &Output{logger: logrus.New(), writer: w, seconds: newSeconds(), clock: clock.NewWatch(), open: map[uint64]*llm.Started{}}
	answer := func(status int, date, sent, header time.Duration) {
		o.exchange(&llm.Exchange{
			Attempt: 1, Outcome: llm.OutcomeOK, Status: status, Tags: metrics.NewRegistry().RootTagSet(), Message: &wire.Message{},
			Date: begin.Add(date).Format(http.TimeFormat), Timeline: stream.Timeline{Sent: begin.Add(sent)},
			HeaderAt: begin.Add(header), End: begin.Add(header),
		})
	}
	answer(200, 0, 900*time.Millisecond, 910*time.Millisecond)
	answer(503, 5*time.Second, 950*time.Millisecond, 960*time.Millisecond) // a proxy's own answer, with a clock of its own
	answer(200, time.Second, 1020*time.Millisecond, 1040*time.Millisecond)
	o.seconds.clock(o.clock)
	all := o.seconds.all()
	require.Len(t, all, 2)
	require.Empty(t, all[0].Clock)
	require.Equal(t, []results.ClockReading{{Date: begin.Add(time.Second), Lower: -100, Upper: 40}}, all[1].Clock)

	// What is learnt while nothing happens waits for the next second: none is made for it.
	o.clock.Answered(begin.Format(http.TimeFormat), begin.Add(990*time.Millisecond), begin.Add(995*time.Millisecond))
	o.seconds.clock(o.clock)
	require.Empty(t, o.seconds.all())
	answer(200, 3*time.Second, 3100*time.Millisecond, 3110*time.Millisecond)
	o.seconds.clock(o.clock)
	all = o.seconds.all()
	require.Len(t, all, 1)
	require.ElementsMatch(t, []results.ClockReading{
		{Date: begin.Add(time.Second), Lower: -10, Upper: 40}, {Date: begin.Add(3 * time.Second), Lower: -1980, Upper: 110},
	}, all[0].Clock)
	require.NoError(t, w.Close(begin.Add(5*time.Second), nil))
}
