package trace

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"go.k6.io/k6/lib"
	"go.k6.io/k6/lib/executor"

	"github.com/safeqps/xk6-safeqps/llm"
)

// maxStepRows bounds the rows of a staircase: k6 numbers rows in 31 bits, and no test replays more than this.
const maxStepRows = 100_000_000

// The phases of a run, in order. They are the values of the tag `phase`.
const (
	phaseWarmup   = "warmup"
	phaseSteady   = "steady"
	phaseRecovery = "recovery"
)

// scenarioOptions are what scenario(), phases() and steps() have in common.
type scenarioOptions struct {
	common          map[string]any // as they are given to k6
	tags            map[string]string
	startTime       time.Duration
	preAllocatedVUs int64
	maxVUs          int64 // 0: to be estimated
}

// readScenarioOptions reads k6's own options of a scenario. What k6 checks again is checked here first, so that the error
// names the call.
func (o *options) readScenarioOptions() scenarioOptions {
	s := scenarioOptions{common: map[string]any{"executor": ExecutorType}}
	s.startTime, _ = o.duration("startTime", "a time after the test's start", notNegative)
	for _, name := range []string{"gracefulStop", "tolerance"} {
		fits, expected := notNegative, "how long iterations may run on"
		if name == "tolerance" {
			fits, expected = aboveZero, "how late a row may be started, above 0"
		}
		if d, ok := o.duration(name, expected, fits); ok {
			s.common[name] = d.String()
		}
	}
	if exec := o.text("exec"); exec != "" {
		s.common["exec"] = exec
	}
	if env := o.texts("env", `an object of strings, e.g. {"TIER": "gold"}`); env != nil {
		s.common["env"] = env
	}
	if o.has("options") {
		if o.object("options", "an object, as k6's scenarios have it") != nil {
			s.common["options"] = o.values["options"]
		}
	}
	s.tags = o.texts("tags", `an object of strings, e.g. {"tier": "gold"}`)
	s.preAllocatedVUs = o.whole("preAllocatedVUs", 0, 1, "a number of VUs")
	s.maxVUs = o.whole("maxVUs", 0, 1, "a number of VUs")
	if s.maxVUs > 0 && s.maxVUs < s.preAllocatedVUs {
		o.wrong("maxVUs", s.maxVUs, fmt.Sprintf("at least preAllocatedVUs, which is %d", s.preAllocatedVUs))
	}

	return s
}

// withVUs fills in the numbers of VUs that are not given, from an estimate over the rows of the windows, and says so.
func (s *scenarioOptions) withVUs(r *recording, what string, windows []*window, say func(string)) {
	if s.maxVUs == 0 {
		rows := 0
		for _, w := range windows {
			rows += w.length()
		}
		// The windows are replayed one after the other. Requests that run on from one into the next count for both.
		e := estimateVUs(rows, rowsOf(windows))
		if s.preAllocatedVUs == 0 {
			s.preAllocatedVUs = e.planned
		}
		s.maxVUs = max(e.max, s.preAllocatedVUs)
		say(fmt.Sprintf("%s of trace %s: maxVUs is not given and was estimated: preAllocatedVUs %d, maxVUs %d (%s)",
			what, r.id, s.preAllocatedVUs, s.maxVUs, e))
	}
	if s.preAllocatedVUs == 0 {
		s.preAllocatedVUs = s.maxVUs
	}
}

// rowsOf walks the rows of windows that follow each other, each starting when the one before it has ended.
func rowsOf(windows []*window) func(i int) (time.Duration, int32) {
	current, before, start := 0, 0, time.Duration(0)

	return func(i int) (time.Duration, int32) {
		for i-before >= windows[current].length() {
			before += windows[current].length()
			start += windows[current].ends
			current++
		}
		w := windows[current]
		row := w.from + i - before

		return start + w.due(i-before), w.rows[row%len(w.rows)].OutputTokens
	}
}

// scenario is a k6 scenario that replays a window.
func (s *scenarioOptions) scenario(r *recording, w *window, tags map[string]string) map[string]any {
	out := map[string]any{
		"trace": r.id, "preAllocatedVUs": s.preAllocatedVUs, "maxVUs": s.maxVUs,
		"from": w.from, "to": w.to, "duration": w.ends.String(),
	}
	for name, value := range s.common {
		out[name] = value
	}
	if w.origin > 0 {
		out["origin"] = w.origin.String()
	}
	if w.speed != 1 {
		out["speed"] = w.speed
	}
	if s.startTime > 0 {
		out["startTime"] = s.startTime.String()
	}
	all := map[string]string{}
	for _, from := range []map[string]string{s.tags, tags} {
		for name, value := range from {
			all[name] = value
		}
	}
	if len(all) > 0 {
		out["tags"] = all
	}

	return out
}

// whole is the window of a whole replay, or of its first part.
func (r *recording) whole(duration time.Duration, given bool) (*window, error) {
	w := &window{schedule: r.schedule, to: len(r.rows), speed: 1}
	if !given {
		if r.endless {
			return nil, &llm.OptionError{
				What: "Trace.scenario", Option: "duration", Found: "nothing", Expected: "a time, since loop: true has no end of its own",
			}
		}
		w.ends = r.lasts

		return w, nil
	}
	w.to, w.ends = r.rowsBefore(duration), duration
	if duration > r.lasts && !r.endless {
		return nil, &llm.OptionError{
			What: "Trace.scenario", Option: "duration", Found: duration.String(),
			Expected: fmt.Sprintf("at most the trace's %s, or loop: true among the options of the trace", r.lasts),
		}
	}

	return w, nil
}

// rowsBefore is how many rows are due before an instant of the trace's time. Rows past the end are the trace once more.
func (s *schedule) rowsBefore(t time.Duration) int {
	passes := 0
	if last := s.rows[len(s.rows)-1].Due; s.period > 0 && t > last {
		passes = int((t - s.rows[0].Due) / s.period)
	}
	n := passes * len(s.rows)
	low, high := 0, len(s.rows) // of the pass that the instant falls into
	for low < high {
		middle := (low + high) / 2
		if s.offset(n+middle) < t {
			low = middle + 1
		} else {
			high = middle
		}
	}

	return n + low
}

// span is the time from the trace's time zero to its last row.
func (s *schedule) span() time.Duration { return s.rows[len(s.rows)-1].Due }

// phases divides a trace by time: so long of it for each phase, one after the other. It gives k6 scenarios.
func (r *recording) phases(lengths, opts *options, say func(string)) (map[string]any, error) {
	prefix := opts.scenarioName()
	s := opts.readScenarioOptions()
	type phase struct {
		name   string
		length time.Duration
	}
	var list []phase
	for _, name := range []string{phaseWarmup, phaseSteady, phaseRecovery} {
		if d, ok := lengths.duration(name, "the length of the phase", notNegative); ok && d > 0 {
			list = append(list, phase{name, d})
		}
	}
	if lengths.err == nil && len(list) == 0 {
		lengths.err = &llm.OptionError{
			What: lengths.what, Found: "no length above 0", Expected: `lengths such as {warmup: "2m", steady: "10m", recovery: "2m"}`,
		}
	}
	if err := firstError(lengths.finish(), opts.finish()); err != nil {
		return nil, err
	}

	windows := make([]*window, len(list))
	total := time.Duration(0)
	for i, p := range list {
		w := &window{schedule: r.schedule, from: r.rowsBefore(total), origin: total, speed: 1, ends: p.length}
		total += p.length
		w.to = r.rowsBefore(total)
		windows[i] = w
		if err := w.check(); err != nil {
			return nil, fmt.Errorf("phase %s: %w", p.name, err)
		}
		if w.length() == 0 {
			say(fmt.Sprintf("phases of trace %s: no row is due in the phase %s", r.id, p.name))
		}
	}
	if windows[len(windows)-1].to > len(r.rows) && !r.endless {
		say(fmt.Sprintf("phases of trace %s: they take %s, the trace lasts %s: it is repeated", r.id, total, r.lasts))
	}
	s.withVUs(r, "phases", windows, say)
	out := map[string]any{}
	for i, p := range list {
		out[prefix+p.name] = s.scenario(r, windows[i], map[string]string{"phase": p.name})
		s.startTime += p.length
	}

	return out, nil
}

// scenarioName is the option `name` as a prefix of scenario names.
func (o *options) scenarioName() string {
	name := o.text("name")
	if name == "" {
		return ""
	}
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			o.wrong("name", name, "letters, digits, underscores and dashes, as in a k6 scenario's name")
		}
	}

	return name + "_"
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}

	return nil
}

// steps is a staircase of rates. Each step settles and is held; each of these parts takes as many of the following rows as its
// rate and length ask for, and stretches the time that they take in the trace to its length: so the mean rate of each part is
// the one that was asked for, and its burstiness that of the trace. It gives k6 scenarios.
func (r *recording) steps(rates []float64, opts *options, say func(string)) (map[string]any, error) {
	prefix := opts.scenarioName()
	hold, _ := opts.duration("hold", "how long each rate is measured, above 0", aboveZero)
	settle, _ := opts.duration("settle", "how long each rate is kept before it is measured", notNegative)
	if !opts.has("hold") {
		opts.wrong("hold", nil, "how long each rate is measured, above 0: "+durationForm)
	}
	s := opts.readScenarioOptions()
	if err := opts.finish(); err != nil {
		return nil, err
	}
	if r.period <= 0 {
		return nil, fmt.Errorf("steps(): trace %s is of one row, or of one instant, and has no rate to rescale", r.id)
	}

	var windows []*window
	var tags []map[string]string
	seen := map[string]int{}
	cursor := 0
	for _, rate := range rates {
		name := strconv.FormatFloat(rate, 'f', -1, 64)
		if seen[name]++; seen[name] > 1 {
			name += "#" + strconv.Itoa(seen[name])
		}
		for _, part := range []struct {
			phase  string
			length time.Duration
		}{{phaseWarmup, settle}, {phaseSteady, hold}} {
			if part.length == 0 {
				continue
			}
			w, err := r.stretched(cursor, rate, part.length, part.phase == phaseSteady)
			if err != nil {
				return nil, fmt.Errorf("steps(): %w", err)
			}
			cursor = w.to
			windows = append(windows, w)
			tags = append(tags, map[string]string{"step": name, "phase": part.phase})
		}
	}
	if cursor > len(r.rows) && !r.endless {
		say(fmt.Sprintf("steps of trace %s: they take %d rows, the trace has %d: it is repeated", r.id, cursor, len(r.rows)))
	}
	s.withVUs(r, "steps", windows, say)
	out := map[string]any{}
	number := 0
	for i, w := range windows {
		if i == 0 || tags[i]["step"] != tags[i-1]["step"] {
			number++
		}
		out[fmt.Sprintf("%sstep%d_%s", prefix, number, tags[i]["phase"])] = s.scenario(r, w, tags[i])
		s.startTime += w.ends
	}

	return out, nil
}

// stretched is the window of as many rows, from one on, as a rate gives in a time: at the pace at which they, and the gap after
// them, take that time. What is measured must have a row, and rows that can be stretched.
func (r *recording) stretched(from int, rate float64, length time.Duration, measured bool) (*window, error) {
	asked := math.Round(rate * length.Seconds())
	if float64(from)+asked > maxStepRows {
		return nil, fmt.Errorf("a rate of %g for %s asks for more than %d rows in all", rate, length, maxStepRows)
	}
	rows := int(asked)
	start := r.offset(from)
	w := &window{schedule: r.schedule, from: from, to: from + rows, origin: start, speed: 1, ends: length}
	switch span := r.offset(w.to) - start; {
	case span > 0:
		w.speed = float64(span) / float64(length)
	case measured && rows == 0:
		return nil, fmt.Errorf("a rate of %g for %s asks for no row", rate, length)
	case measured:
		return nil, fmt.Errorf("%d rows of trace %s from row %d on are all due at once: their rate cannot be changed", rows, r.id, from)
	}

	return w, nil
}

// stages are the trace's arrivals per bin, for a stock ramping-arrival-rate whose timeUnit is the bin: a jump to the
// bin's number of arrivals, and the bin.
func (r *recording) stages(bin time.Duration) []any {
	r.bin.Store(int64(bin))
	targets := r.perBin(bin)
	stages := make([]any, 0, 2*len(targets))
	for _, target := range targets {
		stages = append(stages,
			map[string]any{"duration": "0s", "target": target},
			map[string]any{"duration": bin.String(), "target": target})
	}

	return stages
}

// perBin are the trace's arrivals in each bin.
func (s *schedule) perBin(bin time.Duration) []int {
	counts := make([]int, int(s.span()/bin)+1)
	before := 0
	for i := range counts {
		upTo := s.rowsBefore(time.Duration(i+1) * bin)
		if i == len(counts)-1 {
			upTo = len(s.rows) // not the rows of the trace's next pass
		}
		counts[i] = upTo - before
		before = upTo
	}

	return counts
}

// misreadStages finds a scenario that was given the stages of stages() and another timeUnit than their bin, which changes the
// load. unit is its timeUnit; 0: there is none.
func (s *schedule) misreadStages(scenarios lib.ScenarioConfigs) (name string, bin, unit time.Duration) {
	if bin = time.Duration(s.bin.Load()); bin <= 0 {
		return "", 0, 0
	}
	counts := s.perBin(bin)
	for _, name := range sortedKeys(scenarios) {
		c, ok := scenarios[name].(*executor.RampingArrivalRateConfig)
		if !ok || c.TimeUnit.TimeDuration() == bin || len(c.Stages) != 2*len(counts) {
			continue
		}
		same := true
		for i, stage := range c.Stages {
			same = same && stage.Target.Int64 == int64(counts[i/2]) && stage.Duration.TimeDuration() == time.Duration(i%2)*bin
		}
		if same {
			return name, bin, c.TimeUnit.TimeDuration()
		}
	}

	return "", 0, 0
}
