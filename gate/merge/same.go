package merge

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// ErrTwice is returned where something would count more than once: a directory, a run, a part of the test, or rows.
var ErrTwice = errors.New("the same evidence would count twice")

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
	var differences []string
	if a.Info.Workload != b.Info.Workload {
		differences = append(differences, fmt.Sprintf("workload %q and %q", a.Info.Workload, b.Info.Workload))
	}
	differences = append(differences, differing("digest", a.Info.Digests, b.Info.Digests)...)
	differences = append(differences, differing("seed", a.Info.Seeds, b.Info.Seeds)...)
	differences = append(differences, differing("rate", a.Info.Rates, b.Info.Rates)...)
	if len(differences) == 0 {
		return nil
	}

	return fmt.Errorf("%w: %s and %s differ in %s", ErrDifferent, a.Dir, b.Dir, strings.Join(differences, "; "))
}

func differing[V comparable](what string, a, b map[string]V) []string {
	var out []string
	all := maps.Clone(a)
	if all == nil {
		all = map[string]V{}
	}
	maps.Copy(all, b)
	for _, key := range slices.Sorted(maps.Keys(all)) {
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
