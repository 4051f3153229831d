package stream_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/llm/stream"
)

func TestIdleWatchFiresOnceWithoutProgress(t *testing.T) {
	t.Parallel()
	fired := make(chan struct{}, 2)
	w := stream.WatchIdle(time.Millisecond, func() { fired <- struct{}{} })
	defer w.Stop()
	<-fired
	require.Empty(t, fired)
}

func TestIdleWatchWaitsForTheLimitAfterProgress(t *testing.T) {
	t.Parallel()
	const limit = 20 * time.Millisecond
	fired := make(chan time.Time, 1)
	w := stream.WatchIdle(limit, func() { fired <- time.Now() })
	defer w.Stop()
	reported := time.Now().Add(3 * limit) // progress "from the future" keeps it quiet for at least that long
	w.Progress(reported)
	require.GreaterOrEqual(t, (<-fired).Sub(reported), limit, "silence is counted from the last progress")
}

func TestIdleWatchIsQuietOnceStopped(t *testing.T) {
	t.Parallel()
	fired := make(chan struct{}, 1)
	w := stream.WatchIdle(time.Hour, func() { fired <- struct{}{} })
	w.Stop()
	w.Stop()
	require.Empty(t, fired)
}
