package trace

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.k6.io/k6/lib"
	"pgregory.net/rapid"

	"github.com/safeqps/xk6-safeqps/trace/format"
)

// drawnSchedule is a schedule of some rows, of which many may share an instant.
func drawnSchedule(rt *rapid.T) *schedule {
	offsets := rapid.SliceOfN(rapid.IntRange(0, 50), 1, 20).Draw(rt, "offsets")
	slices.Sort(offsets)
	s := &schedule{rows: make([]format.Row, len(offsets))}
	for i, ms := range offsets {
		s.rows[i].Due = time.Duration(ms) * time.Millisecond
	}
	s.period = s.span() + time.Duration(rapid.IntRange(1, 10).Draw(rt, "gap"))*time.Millisecond

	return s
}

func TestRowsBeforeCountsThem(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := drawnSchedule(rt)
		at := time.Duration(rapid.IntRange(0, 300).Draw(rt, "at")) * time.Millisecond
		want := 0
		for s.offset(want) < at {
			want++
		}
		require.Equal(rt, want, s.rowsBefore(at))
	})
}

func TestRowsBeforeOfATraceWithoutLength(t *testing.T) {
	t.Parallel()
	s := &schedule{rows: make([]format.Row, 3)}
	require.Equal(t, 0, s.rowsBefore(0))
	require.Equal(t, 3, s.rowsBefore(time.Hour))
}

func TestCutLosesNoRow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := drawnSchedule(rt)
		from := rapid.IntRange(0, 30).Draw(rt, "from")
		w := &window{
			schedule: s, from: from, to: from + rapid.IntRange(1, 60).Draw(rt, "rows"), origin: s.offset(from),
			speed: rapid.Float64Range(0.1, 10).Draw(rt, "speed"), ends: time.Second,
		}
		at := time.Duration(rapid.IntRange(1, 200).Draw(rt, "at")) * time.Millisecond
		before, after := w.cut(at)
		require.Equal(rt, []int{w.from, w.to, before.to}, []int{before.from, after.to, after.from})
		require.Equal(rt, []time.Duration{at, time.Second - at}, []time.Duration{before.ends, after.ends})
		require.NoError(rt, before.check())
		require.NoError(rt, after.check())
		for i := range w.length() {
			if i < before.length() {
				require.Equal(rt, w.due(i), before.due(i))
				require.LessOrEqual(rt, before.due(i), at)
			} else {
				require.InDelta(rt, w.due(i)-at, after.due(i-before.length()), 20, "to the rounding of the origin")
			}
		}
	})
}

// TestDefaultsSurviveTheArchive: k6 writes options that are not set as null, and reads them again.
func TestDefaultsSurviveTheArchive(t *testing.T) {
	t.Parallel()
	var scenarios, again lib.ScenarioConfigs
	require.NoError(t, json.Unmarshal([]byte(`{"replay": {"executor": "trace-arrival-rate", "trace": "t", "preAllocatedVUs": 2}}`), &scenarios))
	data, err := json.Marshal(scenarios)
	require.NoError(t, err)
	require.Contains(t, string(data), `"speed":null`)
	require.NoError(t, json.Unmarshal(data, &again))
	c := again["replay"].(*Config)
	require.InDelta(t, 1, c.Speed.Float64, 0)
	require.Equal(t, DefaultTolerance, c.Tolerance.TimeDuration())
	require.Equal(t, 30*time.Second, c.GetGracefulStop())
	require.EqualValues(t, 2, c.maxVUs())
	require.False(t, c.To.Valid)
}
