package gate

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.k6.io/k6/metrics"

	"github.com/safeqps/xk6-safeqps/gate/abort"
	"github.com/safeqps/xk6-safeqps/gate/clock"
	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/llm"
	"github.com/safeqps/xk6-safeqps/llm/stream"
	"github.com/safeqps/xk6-safeqps/llm/wire"
	"github.com/safeqps/xk6-safeqps/trace"
)

// watchingOutput is an output in the middle of a run, whose clock the test moves.
type watchingOutput struct {
	*Output
	t     *testing.T
	begin time.Time
	tags  *metrics.TagSet
	stop  error
}

func newWatchingOutput(t *testing.T, yaml string) *watchingOutput {
	t.Helper()
	c, err := contract.Load("slo.yaml", []byte("capacity_gate: {success_rate: \">= 0.9\"}\n"+yaml), func(string) (string, bool) { return "", false })
	require.NoError(t, err)
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	dir := t.TempDir()
	w, err := results.Create(dir, results.Info{Started: begin}, results.Options{})
	require.NoError(t, err)
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	o := &watchingOutput{t: t, begin: begin, tags: metrics.NewRegistry().RootTagSet().With("phase", "steady").With("api", "chat"), Output: &Output{
		dir: dir, logger: quiet, writer: w, seconds: newSeconds(), clock: clock.NewWatch(), open: map[uint64]*llm.Started{},
		contract: c, watch: abort.NewWatch(c, begin),
	}}
	o.stopRun = func(err error) { o.stop = err }

	return o
}

func (o *watchingOutput) at(second float64) time.Time {
	return o.begin.Add(time.Duration(second * float64(time.Second)))
}

// answering is a stream whose pieces come at the given seconds; what comes later than now has not come.
type answering struct {
	o      *watchingOutput
	chunks []float64
	now    time.Time
}

func (a *answering) Read(p []byte) (int, error) {
	if len(a.chunks) == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	a.now = a.o.at(a.chunks[0])
	a.chunks = a.chunks[1:]

	return copy(p, `data: {"choices":[{"index":0,"delta":{"content":"x"}}]}`+"\n\n"), nil
}

// send starts a request, of which the chunks have come that are given.
func (o *watchingOutput) send(seq uint64, second float64, chunks ...float64) *llm.Started {
	s := &llm.Started{Seq: seq, Attempt: 1, Row: int64(seq), Sent: o.at(second), Tags: o.tags, Live: &stream.Live{}} //nolint:gosec // small
	o.AddMetricSamples([]metrics.SampleContainer{s})
	o.come(s, chunks...)

	return s
}

func (o *watchingOutput) come(s *llm.Started, chunks ...float64) {
	a := &answering{o: o, chunks: chunks}
	tl := &stream.Timeline{Sent: s.Sent, Live: s.Live}
	err := stream.Read(a, wire.NewDecoder(wire.Chat), tl, stream.Options{Now: func() time.Time { return a.now }})
	require.ErrorIs(o.t, err, io.ErrUnexpectedEOF)
}

// fail ends a request without any answer.
func (o *watchingOutput) fail(s *llm.Started, second float64) {
	o.AddMetricSamples([]metrics.SampleContainer{&llm.Exchange{
		Seq: s.Seq, Attempt: 1, Row: s.Row, Tags: s.Tags, Outcome: llm.OutcomeFailed, ErrorType: "timeout", Message: &wire.Message{},
		Timeline: stream.Timeline{Sent: s.Sent}, End: o.at(second),
	}})
}

func (o *watchingOutput) aborted() *abort.Tripped {
	var tripped *abort.Tripped
	if o.stop == nil || !errors.As(o.stop, &tripped) {
		return nil
	}

	return tripped
}

// TestTheWatchSeesRequestsInFlight: an answer of 30 s whose first chunk took two seconds is over a limit of one second after one
// second, and not after 30.
func TestTheWatchSeesRequestsInFlight(t *testing.T) {
	t.Parallel()
	o := newWatchingOutput(t, `abort: {ttft_p99: "> 1s for 3s"}`)
	at := 0
	for second := 1; second <= 30 && at == 0; second++ {
		o.send(uint64(second), float64(second)-0.5) //nolint:gosec // small
		if second > 2 {
			first := o.open[uint64(second-2)] //nolint:gosec // small
			o.come(first, float64(second)-0.5)
		}
		o.flush(o.at(float64(second)))
		if o.aborted() != nil {
			at = second
		}
	}
	require.Equal(t, 5, at, "sent at 0.5 s, over the limit in second 2, and for 3 s in second 5")
	require.Equal(t, "abort.ttft_p99", o.aborted().Rule)
	require.Contains(t, o.aborted().Saw, "ttft_p99 was 1.5s for 3s")
}

func TestTheWatchSeesFirstChunksAsTheyCome(t *testing.T) {
	t.Parallel()
	o := newWatchingOutput(t, `abort: {ttft_max: "> 1s for 1s", e2e_p99: "> 8s for 1s"}`)
	o.send(1, 0.5, 1.4, 1.9) // talks on, in time
	for second := 1; second <= 9; second++ {
		o.flush(o.at(float64(second)))
		require.Nil(t, o.aborted(), "second %d", second)
	}
	o.flush(o.at(10))
	require.Equal(t, "abort.e2e_p99", o.aborted().Rule, "over 8 s in second 9")
}

func TestTheWatchSeesRequestsThatFail(t *testing.T) {
	t.Parallel()
	o := newWatchingOutput(t, `abort: {ttft_p99: "> 10s for 2s"}`)
	at := 0
	for second := 1; second <= 9 && at == 0; second++ {
		o.fail(o.send(uint64(second), float64(second)-0.9), float64(second)-0.1) //nolint:gosec // small
		o.flush(o.at(float64(second)))
		if o.aborted() != nil {
			at = second
		}
	}
	require.Equal(t, 3, at)
}

func TestTheWatchSeesGapsAsTheyCome(t *testing.T) {
	t.Parallel()
	o := newWatchingOutput(t, `abort: {itl_p50: "> 500ms for 2s"}`)
	chunks := []float64{0.5}
	s := o.send(1, 0.2)
	for second := 1; second <= 3; second++ {
		chunks = append(chunks, float64(second)+0.5)
		s.Live = &stream.Live{} // the answer as it is by now
		o.come(s, chunks...)
		o.flush(o.at(float64(second) + 0.9))
	}
	require.Contains(t, o.aborted().Saw, "itl_p50 was 1s for 2s")
}

func TestTheWatchSeesAStreamThatStalls(t *testing.T) {
	t.Parallel()
	o := newWatchingOutput(t, `abort: {itl_max: "> 3s for 1s"}`)
	o.send(1, 0.2, 0.5, 0.6)
	for second := 1; second <= 4; second++ {
		o.flush(o.at(float64(second)))
		require.Nil(t, o.aborted(), "second %d", second)
	}
	o.flush(o.at(5))
	require.Contains(t, o.aborted().Saw, "itl_max was 3.4s for 1s", "silent since 0.6 s")
}

func TestTheWatchSeesTheLoadGenerator(t *testing.T) {
	t.Parallel()
	o := newWatchingOutput(t, "abort: {client_headroom: true}\nclient_headroom: {dropped: \"<= 1\"}")
	drop := func(phase string) {
		o.AddMetricSamples([]metrics.SampleContainer{&trace.Dropped{Due: o.at(1), Tags: o.tags.With("phase", phase), Reason: "no_vu"}})
	}
	drop("warmup")
	drop("warmup")
	drop("steady")
	o.flush(o.at(1))
	require.Nil(t, o.aborted())
	drop("steady")
	o.flush(o.at(2))
	require.Equal(t, "client_headroom: dropped was 2, its limit is <= 1", o.aborted().Saw)

	o = newWatchingOutput(t, "abort: {client_headroom: true}\nclient_headroom: {schedule_delay_p50: \"<= 5ms\"}")
	s := o.send(1, 1)
	s.Due = o.at(0.99)
	o.flush(o.at(2))
	require.Contains(t, o.aborted().Saw, "schedule_delay_p50 was 10ms", "known as soon as it is sent")
}

func TestUnwatchedRulesAreLabelled(t *testing.T) {
	t.Parallel()
	for yaml, want := range map[string][]string{
		`abort: {unhealthy: true}`: {"abort rule not watched: abort.unhealthy, the contract has neither server.health_url nor server.metrics_url; " +
			"give one of them, or gate.monitor(contract, {healthURL: …})"},
		"abort: {unhealthy: true}\nserver: {metrics_url: \"http://127.0.0.1:8000/metrics\"}": nil,
		`abort: {error_rate: "> 20% for 5s"}`:                                                nil,
	} {
		c, err := contract.Load("slo.yaml", []byte("capacity_gate: {success_rate: \">= 0.9\"}\n"+yaml), func(string) (string, bool) { return "", false })
		require.NoError(t, err)
		var info results.Info
		labelUnwatched(&info, c)
		require.Equal(t, want, info.Labels, yaml)
	}
	var info results.Info
	labelUnwatched(&info, nil)
	require.Empty(t, info.Labels)
}

// BenchmarkWatchOpen is what a second costs with so many requests in flight, each of a hundred chunks so far.
func BenchmarkWatchOpen(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c, err := contract.Load("slo.yaml", []byte("capacity_gate: {success_rate: \">= 0.9\"}\nabort: {ttft_p99: \"> 1s for 1h\", itl_p99: \"> 1s for 1h\"}"),
				func(string) (string, bool) { return "", false })
			require.NoError(b, err)
			begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			o := &Output{open: map[uint64]*llm.Started{}, watch: abort.NewWatch(c, begin)}
			tags := metrics.NewRegistry().RootTagSet().With("phase", "steady")
			for seq := range uint64(n) { //nolint:gosec // small
				live := &stream.Live{}
				a := &answering{o: &watchingOutput{begin: begin}, chunks: make([]float64, 100)}
				_ = stream.Read(a, wire.NewDecoder(wire.Chat), &stream.Timeline{Sent: begin, Live: live}, stream.Options{Now: func() time.Time { return a.now }})
				o.open[seq] = &llm.Started{Seq: seq, Attempt: 1, Sent: begin, Tags: tags, Live: live}
			}
			now := begin
			for b.Loop() {
				now = now.Add(time.Second)
				o.watchOpen(now)
				require.Nil(b, o.watch.Tick(now, nil))
			}
		})
	}
}
