package trace

import (
	"cmp"
	"fmt"
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
	if len(windows) == 0 {
		return s.otherArrivals(scenarios)
	}
	var labels []format.Label
	add := func(kind, text string, args ...any) {
		labels = append(labels, format.Label{Kind: kind, Detail: fmt.Sprintf(text, args...)})
	}
	slowest, fastest := paces(windows)
	if s.recorded && fastest != slowest {
		add(labelSteps, "at %s to %s times its own pace", slowest, fastest)
	} else if s.recorded && fastest != "1" {
		add(labelSteps, "at %s times its own pace", fastest)
	}
	if n := covered(windows); s.recorded && n < len(s.rows) {
		add(labelPart, "%d of %d rows", n, len(s.rows))
	}
	last := 0
	for _, w := range windows {
		last = max(last, w.to)
	}
	if last > len(s.rows) {
		add(labelLoop, "%.3g passes through its %d rows", float64(last)/float64(len(s.rows)), len(s.rows))
	}

	return labels
}

// IdealPrefixHitRatio is the share of the prompt tokens that an endless prefix cache, empty at first, would serve of what the
// scenarios replay, served in the order of due times. Where scenarios carry the tag `phase: steady`, it is the share of
// their tokens; the other rows fill the cache. Of a trace that no scenario replays, it is that of its rows in order; where there
// are several scenarios of k6's own executors, that of the rows that these take, one scenario after the other.
//
// It is nil where it is not known: if not exactly one trace is open, or the prompts are not this module's; and if several
// scenarios of k6's own executors, of which nobody knows which row comes when, take rows that share prefixes.
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
	type placed struct {
		replay
		at time.Duration
	}
	var rows []placed
	measured := false
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
		for i := range w.length() {
			due := w.due(i)
			if limit > 0 && due > limit {
				break
			}
			measured = measured || steady
			rows = append(rows, placed{replay{w.from + i, steady}, c.GetStartTime() + due})
		}
	}
	slices.SortStableFunc(rows, func(a, b placed) int { return cmp.Compare(a.at, b.at) })
	order := make([]replay, len(rows), max(len(rows), len(s.rows)))
	for i, r := range rows {
		order[i] = replay{r.row, r.counts || !measured}
	}
	if stock := allot(id, len(s.rows), scenarios); len(order) == 0 && len(stock) > 1 {
		if order, ok = stockOrder(stock); !ok && s.shares {
			return nil
		}
	}
	if len(order) == 0 {
		for i := range s.rows {
			order = append(order, replay{i, true})
		}
	}

	return s.ideal(order)
}

// replay is a row that is replayed; counts says whether its tokens are of the ratio.
type replay struct {
	row    int
	counts bool
}

// otherArrivals is what is said of a trace that no scenario replays: its requests start when others say.
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
	speeds := make([]float64, len(windows))
	for i, w := range windows {
		speeds[i] = w.speed
	}
	text := func(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }

	return text(slices.Min(speeds)), text(slices.Max(speeds))
}

// covered is how many rows of a trace the windows replay, each counted once.
func covered(windows []*window) int {
	n := len(windows[0].rows)
	type part struct{ from, to int }
	parts := make([]part, 0, 2*len(windows))
	for _, w := range windows {
		switch from := w.from % n; {
		case w.length() >= n:
			return n
		case from+w.length() > n: // it goes on at the trace's beginning
			parts = append(parts, part{from, n}, part{0, from + w.length() - n})
		default:
			parts = append(parts, part{from, from + w.length()})
		}
	}
	slices.SortFunc(parts, func(a, b part) int { return a.from - b.from })
	total, end := 0, 0
	for _, p := range parts {
		if p.to > end {
			total += p.to - max(p.from, end)
			end = p.to
		}
	}

	return total
}
