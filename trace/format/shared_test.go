package format

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sharedTrace reads a slice of a public trace, which lies beside the repository and is not part of it.
func sharedTrace(t *testing.T, name string, o Options) *Trace {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(dir)
		require.NotEqual(t, dir, parent, "no go.mod above the test")
		dir = parent
	}
	f, err := os.Open(filepath.Join(dir, "..", "shared", "traces", name))
	if err != nil {
		t.Skipf("the public trace slices are not here: %v", err)
	}
	defer func() { require.NoError(t, f.Close()) }()
	trace, err := Read(name, f, o)
	require.NoError(t, err)
	return trace
}

func TestSharedMooncake(t *testing.T) {
	trace := sharedTrace(t, "mooncake_conversation.jsonl", Options{})
	require.Equal(t, Mooncake, trace.Format)
	require.Equal(t, Milliseconds, trace.Unit)
	require.Len(t, trace.Rows, 1100)
	require.Equal(t, 366*time.Second, trace.Span())
	for i, r := range trace.Rows {
		require.Len(t, r.HashIDs, (int(r.InputTokens)+511)/512, "row %d", i)
	}
	require.Equal(t, Notes{Lines: 1100, SharedTimestamps: 977, MaxPerTimestamp: 17}, trace.Notes)
	s := Summarize(trace)
	require.Equal(t, 123, s.Batches.Timestamps)
	require.InDelta(t, 3000, s.Batches.MedianIntervalMs, 1)
	require.InDelta(t, 1099.0/366, s.Rate.Mean, 1e-9)
	require.Equal(t, int32(122889), s.Input.Max)
	// Of the whole set the ratio is 0.37; its first six minutes meet a cold cache.
	require.Equal(t, 6458, s.Prefix.BlocksSeen)
	require.Equal(t, 30372, s.Prefix.Blocks)
	require.InDelta(t, 0.2126, s.Prefix.HitRatio, 1e-4)
	require.InDelta(t, 0.2162, s.Prefix.TokenHitRatio, 1e-4)
	require.Equal(t, s.Prefix.BlocksSeen, s.Prefix.BlocksHit, "its ids name whole prefixes")
}

func TestSharedAzure(t *testing.T) {
	trace := sharedTrace(t, "azure2023_conv.csv", Options{})
	require.Equal(t, Azure, trace.Format)
	require.Equal(t, WallClock, trace.Unit)
	require.Len(t, trace.Rows, 7500)
	require.True(t, trace.Notes.CRLF)
	require.Equal(t, 7, trace.Notes.FractionDigits)
	require.Equal(t, time.Date(2023, 11, 16, 18, 15, 46, 680590000, time.UTC), trace.Origin)
	// 18:15:46.6805900 to 18:39:49.8893520
	require.Equal(t, 24*time.Minute+3208762*time.Microsecond, trace.Span())
	require.Equal(t, Row{Due: 4314579 * time.Microsecond, InputTokens: 396, OutputTokens: 109}, trace.Rows[1])
	s := Summarize(trace)
	require.InDelta(t, 5.196, s.Rate.Mean, 1e-3)
	require.InDelta(t, 1.0586, s.Gaps.CV, 1e-4)
	require.InDelta(t, 0.892, *s.Gaps.BurstinessMoment, 1e-3)
	require.Equal(t, int32(14050), s.Input.Max)
}

func TestSharedBurstGPT(t *testing.T) {
	trace := sharedTrace(t, "burstgpt_v1.csv", Options{ZeroOutput: KeepZeroOutput})
	require.Equal(t, BurstGPT, trace.Format)
	require.Equal(t, Seconds, trace.Unit)
	require.Len(t, trace.Rows, 97)
	require.Zero(t, trace.Notes.ZeroOutputKept)
	require.Equal(t, 5, trace.Notes.ZeroInputDropped)
	require.Equal(t, 1, trace.Notes.SharedTimestamps)
	require.Zero(t, trace.Notes.DuplicateRows)
	require.Equal(t, 5*time.Second, trace.Notes.FirstTimestamp)
	require.Equal(t, 28824*time.Second, trace.Span())

	require.Len(t, sharedTrace(t, "burstgpt_v1.csv", Options{}).Rows, 97)
}
