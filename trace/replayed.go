package trace

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"go.k6.io/k6/lib"

	"github.com/safeqps/xk6-safeqps/trace/format"
)

// The kinds of labels for what scenarios make of a trace. Repetition is of the kind that format.Loop has.
const (
	labelSteps    = "steps"    // replayed at another pace
	labelPart     = "part"     // not all rows are replayed
	labelLoop     = "loop"     // some rows are replayed more than once
	labelArrivals = "arrivals" // requests do not start when the trace says
)

// Replayed says how what the scenarios replay differs from the traces that this process has opened: rescaled, in part,
// repeated, or with other arrivals. Info.Labels has what was done to a trace before.
//
// That a trace gives requests to scenarios which do not replay it is known once it has given one.
//
// A generated trace is made to measure: that only a part of it is replayed, or that it is rescaled, says nothing.
func Replayed(scenarios lib.ScenarioConfigs) []format.Label {
	var labels []format.Label
	for _, info := range Infos() {
		labels = append(labels, replayed(info.ID, scenarios)...)
	}

	return labels
}

func replayed(id string, scenarios lib.ScenarioConfigs) []format.Label {
	s, ok := lookUp(id)
	if !ok {
		return nil
	}
	var windows []*window
	for _, config := range scenarios {
		c, ok := config.(*Config)
		if !ok || c.Trace != id {
			continue
		}
		if w, err := c.window(); err == nil { // k6 tells of one that cannot be replayed
			windows = append(windows, w)
		}
	}
	var labels []format.Label
	add := func(kind, text string, args ...any) {
		labels = append(labels, format.Label{Kind: kind, Detail: fmt.Sprintf(text, args...)})
	}
	if slowest, fastest := paces(windows); s.recorded && fastest != slowest {
		add(labelSteps, "at %s to %s times its own pace", slowest, fastest)
	} else if s.recorded && fastest != "1" {
		add(labelSteps, "at %s times its own pace", fastest)
	}
	others := s.othersRows(id, scenarios)
	covered, again := s.covered(windows, others.rows)
	if s.recorded && len(windows) > 0 && covered < len(s.rows) {
		add(labelPart, "%d of %d rows", covered, len(s.rows))
	}
	last := 0
	for _, w := range windows {
		last = max(last, w.to)
	}
	switch passes := float64(last+len(others.rows)) / float64(len(s.rows)); {
	case again > 0 && !others.counted:
		add(labelLoop, "its %d rows more than once", len(s.rows))
	case passes > 1 && (last > len(s.rows) || again > 0):
		add(labelLoop, "%.3g passes through its %d rows", passes, len(s.rows))
	case again > 0:
		add(labelLoop, "%d of its %d rows again", again, len(s.rows))
	}
	if len(windows) == 0 || len(others.rows) > 0 {
		labels = append(labels, s.otherArrivals(scenarios)...)
	}

	return labels
}

// othersRows are the rows that scenarios of k6's own executors take. They are counted where every instance of a distributed test
// comes to the same number.
type othersRows struct {
	rows    []int
	counted bool
}

// othersRows knows of none before one was taken: nothing shows who will.
func (s *schedule) othersRows(id string, scenarios lib.ScenarioConfigs) othersRows {
	o := othersRows{counted: true}
	if !s.asked.Load() {
		return o
	}
	for _, use := range s.stockUses(id, scenarios) {
		o.rows = append(o.rows, use.rows...)
		o.counted = o.counted && use.known
	}

	return o
}

// IdealPrefixHitRatio is the share of the prompt tokens that an endless prefix cache, empty at first, would serve of what the
// scenarios replay, served in the order of due times, or of iterations of k6's own executors. Where scenarios carry the tag
// `phase: steady`, it is the share of their tokens; the other rows fill the cache. Of a trace that no scenario takes rows of, it is
// that of its rows in order.
//
// Which scenarios of k6's own executors take rows, and a closed loop how many, is known after the run.
//
// It is nil where it is not known: if not exactly one trace is open, or the prompts are not this module's; and if rows share
// prefixes or are repeated and nobody knows which of them come, or when.
func IdealPrefixHitRatio(scenarios lib.ScenarioConfigs) *float64 {
	infos := Infos()
	if len(infos) != 1 {
		return nil
	}

	return idealPrefixHitRatio(infos[0].ID, scenarios)
}

func idealPrefixHitRatio(id string, scenarios lib.ScenarioConfigs) *float64 {
	s, ok := lookUp(id)
	if !ok || s.ideal == nil {
		return nil
	}
	rows, spans := placedRows(id, scenarios)
	known := true
	for _, use := range s.stockUses(id, scenarios) {
		own := span{use.starts, use.starts + use.lasts}
		if use.planned < 0 {
			own.to = math.MaxInt64 // a closed loop ends when it ends
		}
		known = known && use.known && !slices.ContainsFunc(spans, own.overlaps)
		spans = append(spans, own)
		for _, row := range use.rows {
			rows = append(rows, placed{replay{row, use.steady}, use.starts})
		}
	}
	switch {
	case !known && (s.shares || repeats(rows)):
		return nil
	case !known || len(rows) == 0: // where nothing is shared, nothing hits, whatever comes
		rows = rows[:0]
		for i := range s.rows {
			rows = append(rows, placed{replay: replay{row: i}})
		}
	}
	slices.SortStableFunc(rows, func(a, b placed) int { return cmp.Compare(a.at, b.at) })
	measured := slices.ContainsFunc(rows, func(r placed) bool { return r.counts })
	order := make([]replay, len(rows))
	for i, r := range rows {
		order[i] = replay{r.row, r.counts || !measured}
	}

	return s.ideal(order)
}

// placed is a row that is replayed after so long.
type placed struct {
	replay
	at time.Duration
}

// span is when rows may come: to is exclusive.
type span struct{ from, to time.Duration }

func (s span) overlaps(other span) bool { return s.from < other.to && other.from < s.to }

// placedRows are the rows that the executor trace-arrival-rate replays, and when each of its scenarios does.
func placedRows(id string, scenarios lib.ScenarioConfigs) (rows []placed, spans []span) {
	for _, name := range sortedKeys(scenarios) {
		c, ok := scenarios[name].(*Config)
		if !ok || c.Trace != id {
			continue
		}
		w, err := c.window()
		if err != nil {
			continue // k6 tells of it
		}
		steady, limit := c.GetTags()["phase"] == phaseSteady, c.MaxDuration.TimeDuration()
		last := time.Duration(0)
		for i := range w.length() {
			due := w.due(i)
			if limit > 0 && due > limit {
				break
			}
			last = due
			rows = append(rows, placed{replay{w.from + i, steady}, c.GetStartTime() + due})
		}
		spans = append(spans, span{c.GetStartTime(), c.GetStartTime() + last + 1})
	}

	return rows, spans
}

func repeats(rows []placed) bool {
	seen := make(map[int]bool, len(rows))
	for _, r := range rows {
		if seen[r.row] {
			return true
		}
		seen[r.row] = true
	}

	return false
}

// replay is a row that is replayed; counts says whether its tokens are of the ratio.
type replay struct {
	row    int
	counts bool
}

// otherArrivals is what is said of rows that the executor trace-arrival-rate does not replay: they start when others say.
func (s *schedule) otherArrivals(scenarios lib.ScenarioConfigs) []format.Label {
	_, _, unit := s.misreadStages(scenarios)
	switch bin := time.Duration(s.bin.Load()); {
	case !s.asked.Load():
		return nil
	case unit > 0:
		return []format.Label{{Kind: labelArrivals, Detail: fmt.Sprintf("evened out in bins of %s, at %.3g times its load, since timeUnit is %s",
			bin, bin.Seconds()/unit.Seconds(), unit)}}
	case bin > 0:
		return []format.Label{{Kind: labelArrivals, Detail: fmt.Sprintf("evened out in bins of %s", bin)}}
	case s.recorded:
		return []format.Label{{Kind: labelArrivals, Detail: "those of the scenarios"}}
	default:
		return nil
	}
}

// paces are the lowest and the highest pace of windows for people, to three digits: rounding to whole nanoseconds is no
// other pace.
func paces(windows []*window) (slowest, fastest string) {
	if len(windows) == 0 {
		return "1", "1"
	}
	speeds := make([]float64, len(windows))
	for i, w := range windows {
		speeds[i] = w.speed
	}
	text := func(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }

	return text(slices.Min(speeds)), text(slices.Max(speeds))
}

// covered is how many rows of the trace are sent, each counted once; and how many of the others' requests are of a row that is
// among them already.
func (s *schedule) covered(windows []*window, others []int) (covered, again int) {
	n := len(s.rows)
	sent := make([]bool, n)
	for _, w := range windows {
		for i := range min(w.length(), n) {
			sent[(w.from+i)%n] = true
		}
	}
	for _, row := range others {
		if sent[row%n] {
			again++
		}
		sent[row%n] = true
	}
	for _, ok := range sent {
		if ok {
			covered++
		}
	}

	return covered, again
}
