package stream_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/llm/stream"
	"github.com/safeqps/xk6-safeqps/llm/wire"
)

func liveEvent(field, text string, answer int) string {
	return fmt.Sprintf("data: {\"choices\":[{\"index\":%d,\"delta\":{%q:%q}}]}\n\n", answer, field, text)
}

// TestLiveShowsWhatHasCome: after each event, what another goroutine would read is the timeline up to then.
func TestLiveShowsWhatHasCome(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string]int{"one answer": 1, "two answers side by side": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{pieces: []piece{{40 * time.Millisecond, liveEvent("reasoning_content", "x", 0)}}, now: epoch}
			for n := range 200 { // more than the arrays begin with
				s.pieces = append(s.pieces, piece{time.Duration(n) * time.Millisecond, liveEvent("content", "x", n%answers)})
			}
			tl := &stream.Timeline{Sent: epoch, Live: &stream.Live{}}
			before := tl.Live.Timeline()
			require.Zero(t, before.Chunks())
			seen := 0
			err := stream.Read(s, wire.NewDecoder(wire.Chat), tl, stream.Options{
				Now: func() time.Time { return s.now },
				OnEvent: func(time.Time, wire.Delta) bool {
					seen++
					live := tl.Live.Timeline()
					require.Equal(t, seen, live.Chunks())
					require.Equal(t, tl.Offsets(), live.Offsets())
					require.Equal(t, gapsOf(tl), gapsOf(&live))
					_, text := live.TTFTText()
					require.Equal(t, seen > 1, text)

					return true
				},
			})
			require.NoError(t, err)
			require.Equal(t, 201, seen)
			live := tl.Live.Timeline()
			first, ok := live.TTFT()
			require.True(t, ok)
			require.Equal(t, 40*time.Millisecond, first)
			text, _ := live.TTFTText()
			require.Equal(t, 40*time.Millisecond, text, "the first text came at once after the reasoning")
			require.Equal(t, epoch, live.Sent)
		})
	}
	var nobody *stream.Live
	empty := nobody.Timeline()
	require.Zero(t, empty.Chunks())
}

// TestLiveIsReadWhileItIsWritten is for the race detector, and for what a reader may never see: a chunk that is not there.
func TestLiveIsReadWhileItIsWritten(t *testing.T) {
	t.Parallel()
	const chunks = 5000
	s := &script{now: epoch}
	for n := range chunks {
		s.pieces = append(s.pieces, piece{time.Millisecond, liveEvent("content", "x", n%3)})
	}
	tl := &stream.Timeline{Sent: epoch, Live: &stream.Live{}}
	live := tl.Live
	var readers sync.WaitGroup
	readers.Go(func() {
		for n := 0; n < chunks; {
			now := live.Timeline()
			if !assertWhole(t, &now, n) {
				return
			}
			n = now.Chunks()
		}
	})
	require.NoError(t, stream.Read(s, wire.NewDecoder(wire.Chat), tl, stream.Options{Now: func() time.Time { return s.now }}))
	readers.Wait()
}

func assertWhole(t *testing.T, tl *stream.Timeline, atLeast int) bool {
	t.Helper()
	if tl.Chunks() < atLeast {
		t.Errorf("%d chunks after %d", tl.Chunks(), atLeast)

		return false
	}
	for i, at := range tl.Offsets() {
		if at != time.Duration(i+1)*time.Millisecond {
			t.Errorf("chunk %d at %s", i, at)

			return false
		}
	}
	for at, gap := range tl.Gaps {
		if gap > 3*time.Millisecond || gap <= 0 {
			t.Errorf("a gap of %s at %s", gap, at)

			return false
		}
	}

	return true
}
