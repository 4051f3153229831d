package trace

import (
	"encoding/json"
	"math"
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

// Whatever the trace's arrivals, each part of a step has the rows of its rate, and they come within it.
func TestStretchedKeepsTheRate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r := &recording{schedule: drawnSchedule(rt)}
		from := rapid.IntRange(0, 30).Draw(rt, "from")
		rate, length := rapid.Float64Range(0.1, 40).Draw(rt, "rate"), time.Duration(rapid.IntRange(1, 5000).Draw(rt, "ms"))*time.Millisecond
		w, err := r.stretched(from, rate, length, false)
		require.NoError(rt, err)
		require.NoError(rt, w.check())
		require.Equal(rt, []int{from, int(math.Round(rate * length.Seconds()))}, []int{w.from, w.length()})
		require.Equal(rt, length, w.ends)
		for i := range w.length() {
			require.LessOrEqual(rt, w.due(i), length+1)
			if i > 0 {
				require.InDelta(rt, float64(r.offset(from+i)-r.offset(from+i-1)), float64(w.due(i)-w.due(i-1))*w.speed, 1+w.speed, "gaps keep their proportions")
			}
		}
		same, err := r.stretched(from, rate, length, true)
		switch {
		case w.length() == 0:
			require.ErrorContains(rt, err, "asks for no row")
		case r.offset(w.to) == r.offset(from):
			require.ErrorContains(rt, err, "are all due at once")
		default:
			require.NoError(rt, err)
			require.Equal(rt, w, same)
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
