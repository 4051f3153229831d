package trace

import (
	"math/bits"
	"sync"

	"go.k6.io/k6/lib"
)

// takenRows are the iterations in which scenarios of k6's own executors took rows of a trace, in this process.
type takenRows struct {
	mu   sync.Mutex
	by   map[string][]uint64 // by scenario: a bit for each iteration
	part bool                // other processes run the rest of the test, and nobody here knows what is taken there
}

func (t *takenRows) add(scenario string, iteration int, segment *lib.ExecutionSegment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = map[string][]uint64{}
	}
	t.part = t.part || segment.FloatLength() < 1
	set := t.by[scenario]
	for len(set) <= iteration/64 {
		set = append(set, 0)
	}
	set[iteration/64] |= 1 << (iteration % 64)
	t.by[scenario] = set
}

// of are the iterations in which a scenario took a row, in their order.
func (t *takenRows) of(scenario string) []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []int
	for i, word := range t.by[scenario] {
		for ; word != 0; word &= word - 1 {
			list = append(list, 64*i+bits.TrailingZeros64(word))
		}
	}

	return list
}

// partial reports whether this process runs a part of the test only, as far as a scenario that took a row shows it.
func (t *takenRows) partial() bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.part
}

// take notes that this iteration takes a row.
func (t *jsTrace) take(iteration int) {
	if scenario := lib.GetScenarioState(t.module.vu.Context()); scenario != nil {
		t.taken.add(scenario.Name, iteration, t.module.vu.State().Options.ExecutionSegment)
	}
}

// stockUse is what a scenario of k6's own executors takes of a trace.
type stockUse struct {
	*allotment
	rows  []int // in the order of iterations
	known bool  // these are all its rows, over the whole test
}

// stockUses are the scenarios of k6's own executors that take rows. Before the trace was asked for a request, all that could
// count as such, with the rows that they are to take. Then those that did; and where this process runs a part of the test,
// those that run the same function as one that did, since they may have asked in another process.
func (s *schedule) stockUses(id string, scenarios lib.ScenarioConfigs) []stockUse {
	allotted := allot(id, len(s.rows), scenarios)
	begun, part := s.asked.Load(), s.taken.partial()
	asking := map[string]bool{} // functions
	for name := range allotted {
		if len(s.taken.of(name)) > 0 {
			asking[scenarios[name].GetExec()] = true
		}
	}
	var uses []stockUse
	for _, name := range sortedKeys(allotted) {
		a := allotted[name]
		use := stockUse{allotment: a}
		iterations := s.taken.of(name)
		switch {
		case begun && !part && len(iterations) == 0, begun && part && !asking[scenarios[name].GetExec()]:
			continue
		case (part || !begun) && a.planned >= 0:
			use.known = true
			for i := range a.planned {
				use.rows = append(use.rows, a.row(i))
			}
		default:
			use.known = begun && !part
			for _, i := range iterations {
				use.rows = append(use.rows, a.row(i))
			}
		}
		uses = append(uses, use)
	}

	return uses
}
