package verdict

import (
	"fmt"
	"slices"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// Step is the verdict on one rate of a staircase by itself: what the steady phase pools over all of them hides the one at
// which the service gave way.
type Step struct {
	// Name is the tag step.
	Name   string         `json:"name"`
	Counts results.Counts `json:"counts"`
	// OfferedPerSecond is the rate of the step's steady arrivals; absent for fewer than two.
	OfferedPerSecond *float64 `json:"offered_per_second,omitempty"`
	Verdict          Status   `json:"verdict"`
	// Criteria are those of the contract that are about the steady phase.
	Criteria []Criterion `json:"criteria"`
}

// staircase lists the steps that have steady arrivals, in the order of these; nothing where there are fewer than two.
func (j *judge) staircase() []string {
	t := j.table
	var order []string
	seen := make([]bool, len(t.steps.list))
	for _, i := range j.table.rows(selection{phase: steady}) {
		if s := t.step[i]; int(s) < len(seen) && !seen[s] && t.steps.list[s] != "" {
			seen[s] = true
			order = append(order, t.steps.list[s])
		}
	}
	if len(order) < 2 {
		return nil
	}
	return order
}

// of is a judge of one step. It shares what was read.
func (j *judge) of(step string) *judge {
	sub := *j
	sub.step = step
	sub.series.samples = slices.DeleteFunc(slices.Clone(j.series.samples), func(s results.Sample) bool { return s.Step != step })
	return &sub
}

// steps judges each rate of a staircase by itself.
func (j *judge) steps(out *Result) error {
	order := j.staircase()
	for n, name := range order {
		sub := j.of(name)
		var one Result
		for _, criterion := range j.contract.Criteria() {
			if string(criterion.Phase) != steady {
				continue
			}
			judged, err := sub.criterion(criterion)
			if err != nil {
				return fmt.Errorf("step %s: %w", name, err)
			}
			judged.Ignored = judged.Ignored || out.settled(judged)
			one.Criteria = append(one.Criteria, judged)
		}
		// What ended the run early ended the step that it was at; those before were whole.
		at := n == len(order)-1 && !j.goneOn(name)
		one.decide(out.partial || (at && out.unfinished()))
		step := Step{Name: name, Verdict: one.Verdict, Criteria: one.Criteria}
		for _, i := range sub.rows(steady, "") {
			step.Counts.Add(j.table.outcome[i], 1)
		}
		unseen := sub.unseenOf(steady, "")
		step.Counts = step.Counts.Plus(results.Counts{Offered: unseen, Started: unseen, InFlight: unseen})
		step.OfferedPerSecond = sub.offered(steady)
		out.Steps = append(out.Steps, step)
	}
	out.tellSteps()
	return nil
}

// goneOn says that the run had gone on from a step to the next one, whose settling has no steady arrivals.
func (j *judge) goneOn(from string) bool {
	t := j.table
	latest := -1
	for i := range t.arrival {
		if latest < 0 || t.arrival[i] > t.arrival[latest] {
			latest = i
		}
	}
	if latest < 0 || int(t.step[latest]) >= len(t.steps.list) {
		return false
	}
	step := t.steps.list[t.step[latest]]
	return step != "" && step != from
}

// offered is the rate of the arrivals of a phase. Between the steps of a staircase there are arrivals of another phase:
// the time is the sum of the steps' own.
func (j *judge) offered(phase string) *float64 {
	arrivals, seconds := 0, 0.0
	for _, part := range j.parts() {
		if rows := part.rows(phase, ""); len(rows) > 1 {
			arrivals += len(rows) - 1
			seconds += float64(j.table.arrival[rows[len(rows)-1]]-j.table.arrival[rows[0]]) / 1e9
		}
	}
	if seconds <= 0 {
		return nil
	}
	return pointer(float64(arrivals) / seconds)
}

// parts are the judges of the steps of a staircase, or the judge itself where there is none.
func (j *judge) parts() []*judge {
	if j.step != "" {
		return []*judge{j}
	}
	var parts []*judge
	for _, step := range j.staircase() {
		parts = append(parts, j.of(step))
	}
	if parts == nil {
		return []*judge{j}
	}
	return parts
}

// tellSteps makes a step that failed fail the run, and one that is not decided leave the run undecided: a pass says that the
// objectives are kept at each rate that was tried. So it is with the load generator's own limits.
func (r *Result) tellSteps() {
	for i := range r.Steps {
		step := &r.Steps[i]
		for k := range step.Criteria {
			c := &step.Criteria[k]
			pooled := r.find(c.Name)
			if pooled == nil || pooled.Verdict == Fail {
				continue
			}
			switch {
			case c.Verdict == Fail:
				pooled.Verdict = Fail
				pooled.note("it fails at step %s, which the steady phase as a whole hides", step.Name)
			case c.Verdict == Inconclusive && !c.Ignored && pooled.Verdict == Pass:
				pooled.Verdict = Inconclusive
				pooled.note("it is not decided at step %s, which the steady phase as a whole hides", step.Name)
			default:
				continue
			}
			pooled.Needed, pooled.NeededAtShare = nil, nil
		}
	}
}

// settled says that a criterion has nothing to decide in a step: none of its class came there, or the growth of the queue, which
// takes longer than the step to be found, was judged by the whole (queueGrowth).
func (r *Result) settled(inStep Criterion) bool {
	pooled := r.find(inStep.Name)
	if pooled == nil || inStep.Verdict != Inconclusive {
		return false
	}
	nothing := inStep.Class != "" && inStep.N+inStep.Undecided == 0 && pooled.N > 0
	return nothing || (inStep.Name == "queue_growth" && pooled.Verdict == Pass)
}

func (r *Result) find(name string) *Criterion {
	for i := range r.Criteria {
		if r.Criteria[i].Name == name {
			return &r.Criteria[i]
		}
	}
	return nil
}
