package merge

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"path/filepath"
	"slices"
	"strings"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// ErrTwice is returned where something would count more than once: a directory, a run, a part of the test, or rows.
var ErrTwice = errors.New("the same evidence would count twice")

// ErrJoined is returned for a directory that was joined before. It has lost what is to be told of its instances: their segments,
// how far apart they began, and what is missing.
var ErrJoined = errors.New("a joined directory is no instance")

// ownEvidence refuses a directory that was joined before.
func ownEvidence(run *results.Run) error {
	merged := run.Info.Merged
	if merged == nil {
		return nil
	}
	names := make([]string, len(merged.Instances))
	for i := range merged.Instances {
		names[i] = merged.Instances[i].Name()
	}

	return fmt.Errorf("merge: %w: %s was joined of %d instances; give their own directories in its place, those of %s", ErrJoined,
		run.Dir, len(names), strings.Join(names, ", "))
}

// distinctPlaces refuses a directory under two names, and the output among the inputs: it would be emptied before it is read.
func distinctPlaces(dirs []string, out string) error {
	names := map[string]string{}
	for _, dir := range dirs {
		place, err := results.Place(dir)
		if err != nil {
			return fmt.Errorf("merge: %w", err)
		}
		if other, ok := names[place]; ok {
			return fmt.Errorf("merge: %w: %s and %s are one directory (%s)", ErrTwice, other, dir, place)
		}
		names[place] = dir
	}
	if place, err := results.Place(out); err == nil {
		if dir, ok := names[place]; ok {
			return fmt.Errorf("merge: the joined evidence cannot be written to %s: it is %s, which is to be read", out, dir)
		}
	}

	return nil
}

// distinctRuns refuses a copy of a run: two processes do not start in the same nanosecond, on one host, for one segment.
func distinctRuns(runs []*results.Run) error {
	for i, run := range runs {
		for _, other := range runs[:i] {
			a, b := run.Info, other.Info
			if a.Started.Equal(b.Started) && a.Host == b.Host && a.Segment == b.Segment {
				return fmt.Errorf("merge: %w: %s and %s are of one run (both began at %s, on the same host, for the same segment)",
					ErrTwice, other.Dir, run.Dir, a.Started.Format("2006-01-02T15:04:05.999999999Z07:00"))
			}
			if overlap(a.Segment, b.Segment) {
				return fmt.Errorf("merge: %w: the segments of %s (%s) and %s (%s) overlap; %s", ErrTwice, other.Dir, b.Segment, run.Dir,
					a.Segment, segmentAdvice)
			}
		}
	}

	return nil
}

const segmentAdvice = "give each instance its own --execution-segment and all of them the same --execution-segment-sequence"

// span reads an execution segment, such as "1/3:2/3"; false for none.
func span(segment string) (from, to *big.Rat, ok bool) {
	begin, end, cut := strings.Cut(segment, ":")
	from, ok1 := new(big.Rat).SetString(begin)
	to, ok2 := new(big.Rat).SetString(end)

	return from, to, cut && ok1 && ok2
}

func overlap(a, b string) bool {
	from, to, ok := span(a)
	otherFrom, otherTo, otherOK := span(b)

	return ok && otherOK && from.Cmp(otherTo) < 0 && otherFrom.Cmp(to) < 0
}

// sameTest is an error where two runs differ in what makes the test: instances of one have all of it in common.
func sameTest(a, b *results.Run) error {
	differences, err := agreementDifferences(a, b)
	if err != nil {
		return fmt.Errorf("merge: %w", err)
	}
	if a.Info.Workload != b.Info.Workload {
		differences = append(differences, fmt.Sprintf("workload %q and %q", a.Info.Workload, b.Info.Workload))
	}
	differences = append(differences, differing("digest", a.Info.Digests, b.Info.Digests)...)
	differences = append(differences, differing("seed", a.Info.Seeds, b.Info.Seeds)...)
	differences = append(differences, differing("rate", a.Info.Rates, b.Info.Rates)...)
	offered, err := scenarioDifferences(a, b)
	if err != nil {
		return fmt.Errorf("merge: %w", err)
	}
	differences = append(differences, offered...)
	if len(differences) == 0 {
		return nil
	}

	return fmt.Errorf("%w: %s and %s differ in %s", ErrDifferent, a.Dir, b.Dir, strings.Join(differences, "; "))
}

func differing[V comparable](what string, a, b map[string]V) []string {
	var out []string
	for _, key := range eitherKey(a, b) {
		x, inA := a[key]
		y, inB := b[key]
		switch {
		case inA != inB:
			out = append(out, fmt.Sprintf("%s of %s, which only one of them has", what, key))
		case x != y:
			out = append(out, fmt.Sprintf("%s of %s: %v and %v", what, key, x, y))
		}
	}

	return out
}

// agreementDifferences names what differs in the contracts of two runs, and in what they are to decide.
func agreementDifferences(a, b *results.Run) ([]string, error) {
	var out []string
	for _, of := range []struct {
		what string
		a, b json.RawMessage
	}{{"contract", a.Info.Contract, b.Info.Contract}, {"decision", a.Info.Decision, b.Info.Decision}} {
		if (len(of.a) == 0) != (len(of.b) == 0) {
			out = append(out, of.what+", which only one of them has")

			continue
		}
		if len(of.a) == 0 {
			continue
		}
		var values [2]any
		for i, text := range []json.RawMessage{of.a, of.b} {
			if err := json.Unmarshal(text, &values[i]); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", filepath.Join([]*results.Run{a, b}[i].Dir, results.RunFile), of.what, err)
			}
		}
		for _, d := range differencesIn(values[0], values[1]) {
			out = append(out, fmt.Sprintf("%s: %s", of.what, d))
		}
	}

	return out, nil
}

// options is what is read of k6's options, as run.json has them.
type options struct {
	Scenarios map[string]json.RawMessage `json:"scenarios"`
}

// rawScenarios are the scenarios of a run. One whose options were not kept has none.
func rawScenarios(run *results.Run) (map[string]json.RawMessage, error) {
	if len(run.Info.Options) == 0 {
		return nil, nil
	}
	var o options
	if err := json.Unmarshal(run.Info.Options, &o); err != nil {
		return nil, fmt.Errorf("%s: options: %w", filepath.Join(run.Dir, results.RunFile), err)
	}

	return o.Scenarios, nil
}

// generatorOptions say how a load generator is equipped. They change nothing in the load that is offered: what an instance
// could not start is counted as dropped.
//
//nolint:gochecknoglobals // a constant list
var generatorOptions = []string{"preAllocatedVUs", "maxVUs"}

// judgedTags are the tags of a scenario that say what its requests are judged as.
//
//nolint:gochecknoglobals // a constant list
var judgedTags = []string{"phase", "step", "class"}

// watching is the executor of gate.monitor. It offers no load; the contract that it carries is compared by itself.
const watching = "llm-monitor"

// scenarioDifferences names what differs in the load that two runs were told to offer. Values of env are not named, since
// they may be secrets.
func scenarioDifferences(a, b *results.Run) ([]string, error) {
	if (len(a.Info.Options) == 0) != (len(b.Info.Options) == 0) {
		return []string{"options, which only one of them has"}, nil
	}
	both := make([]map[string]any, 2)
	for i, run := range []*results.Run{a, b} {
		raw, err := rawScenarios(run)
		if err != nil {
			return nil, err
		}
		both[i] = map[string]any{}
		for name, text := range raw {
			var s map[string]any
			if err := json.Unmarshal(text, &s); err != nil {
				return nil, fmt.Errorf("%s: options: scenario %s: %w", filepath.Join(run.Dir, results.RunFile), name, err)
			}
			if s["executor"] != watching {
				both[i][name] = offered(s)
			}
		}
	}
	var out []string
	for _, name := range eitherKey(both[0], both[1]) {
		x, inA := both[0][name]
		y, inB := both[1][name]
		if inA != inB {
			out = append(out, fmt.Sprintf("scenario %s, which only one of them has", name))

			continue
		}
		for _, d := range differencesIn(x, y) {
			if strings.HasPrefix(d.path, "env.") || d.path == "env" {
				out = append(out, fmt.Sprintf("scenario %s: %s", name, d.path))
			} else {
				out = append(out, fmt.Sprintf("scenario %s: %s", name, d))
			}
		}
	}

	return out, nil
}

// offered is a scenario without what may differ between the instances of one test.
func offered(s map[string]any) map[string]any {
	maps.DeleteFunc(s, func(option string, _ any) bool { return slices.Contains(generatorOptions, option) })
	if tags, ok := s["tags"].(map[string]any); ok {
		maps.DeleteFunc(tags, func(tag string, _ any) bool { return !slices.Contains(judgedTags, tag) })
	}

	return s
}

// rowsTwice counts the rows that more than one instance had. A row is one of a scenario's trace: other scenarios number
// theirs from zero, too. One instance may have several requests of a row, such as the turns of a session, and retries.
func rowsTwice(runs []*results.Run) (int64, error) {
	type row struct {
		scenario string
		number   int64
	}
	const several = -1
	owner := map[row]int{}
	var twice int64
	for i, run := range runs {
		if _, err := run.Requests(func(r *results.Request) error {
			if r.Row < 0 {
				return nil // not of a trace
			}
			key := row{r.Scenario, r.Row}
			switch first, seen := owner[key]; {
			case !seen:
				owner[key] = i
			case first != i && first != several:
				owner[key] = several
				twice++
			}

			return nil
		}); err != nil {
			return 0, err //nolint:wrapcheck // names the file
		}
	}

	return twice, nil
}
