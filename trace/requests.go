package trace

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/grafana/sobek"
	"go.k6.io/k6/errext"
	"go.k6.io/k6/lib"

	"github.com/safeqps/xk6-safeqps/llm"
	"github.com/safeqps/xk6-safeqps/llm/describe"
	"github.com/safeqps/xk6-safeqps/llm/tokens"
	"github.com/safeqps/xk6-safeqps/trace/workload"
)

// next is the request of the row that this iteration is. Under the executor trace-arrival-rate that is the row that is
// due, with its due time. Under another executor it is the row of the scenario's iteration number, counted from where the
// scenario's own rows begin (allot), and there is no due time.
func (t *jsTrace) next(opts sobek.Value) (sobek.Value, error) {
	state := t.module.vu.State()
	if state == nil {
		return nil, errors.New("next() is for iterations; in the init context, Trace.at(row) gives the request of a row")
	}
	if current, ok := FromContext(t.module.vu.Context()); ok {
		if current.Trace != t.id {
			return nil, fmt.Errorf("next(): this scenario replays the trace %s, and next() was asked of the trace %s",
				current.Trace, t.id)
		}

		return t.request("Trace.next", current.Row, current.Due, opts)
	}
	if state.GetScenarioGlobalVUIter == nil {
		return nil, errors.New("next() is for iterations: in setup() and teardown(), Trace.at(row) gives the request of a row")
	}
	if reason := t.refusal(&state.Options); reason != "" {
		// As test.abort() does. An error of next() alone would be one of each iteration, as fast as a closed loop can fail.
		t.module.vu.Runtime().Interrupt(&errext.InterruptError{Reason: "next(): " + reason})

		return sobek.Undefined(), nil
	}

	iteration := int(state.GetScenarioGlobalVUIter()) // #nosec G115 -- an iteration number
	t.take(iteration)

	return t.request("Trace.next", t.stockRow(iteration), time.Time{}, opts)
}

// refusal is why k6's own executors cannot take rows of this trace by the number of an iteration; "" where they can.
func (t *jsTrace) refusal(o *lib.Options) string {
	if loneSegment(o) {
		if scenario := lib.GetScenarioState(t.module.vu.Context()); scenario != nil {
			return fmt.Sprintf("scenario %s: %s", scenario.Name, errNoSequence)
		}

		return errNoSequence.Error()
	}
	if !t.common {
		return fmt.Sprintf("this VU has opened the trace %s, which is none of those that the script opened when it was first run: "+
			"k6 runs the init code once in each VU, so an option such as seed: Date.now() gives every VU another trace; "+
			"hand it over in a variable, which is the same in all VUs: seed: Number(__ENV.LLM_SEED || 0)", t.id)
	}

	return ""
}

// stockRow is the row of an iteration of this VU's scenario, which is one of k6's own executors.
func (t *jsTrace) stockRow(iteration int) int {
	who, first, row := "the script", 0, iteration
	if scenario := lib.GetScenarioState(t.module.vu.Context()); scenario != nil {
		who = "the scenario " + scenario.Name
		if t.allotted == nil {
			t.allotted = allot(t.id, len(t.rows), t.module.vu.State().Options.Scenarios)
		}
		if a, ok := t.allotted[scenario.Name]; ok {
			first, row = a.first, a.row(iteration)
			if len(t.allotted) > 1 || first > 0 {
				t.say(fmt.Sprintf("trace %s: the scenario %s takes rows of its own, from %d on", t.id, a.scenario, first))
			}
		}
	}
	// Whether others take the rows before its first one is not known: only its own way through the trace is.
	if n := len(t.rows); row/n > first/n && !t.endless {
		t.say(fmt.Sprintf("trace %s: %s has passed the last of the trace's %d rows, and goes on with the first: the trace is repeated", t.id, who, n))
	}

	return row
}

// at is the request of any row, without a due time.
func (t *jsTrace) at(row, opts sobek.Value) (sobek.Value, error) {
	f, ok := asNumber(exportOf(row))
	if n := int(f); ok && f >= 0 && f == float64(n) {
		if n >= len(t.rows) && !t.endless {
			return nil, &llm.OptionError{
				What: "Trace.at", Option: "row", Found: describe.Given(row),
				Expected: fmt.Sprintf("a row from 0 to %d", len(t.rows)-1),
			}
		}

		return t.request("Trace.at", n, time.Time{}, opts)
	}

	return nil, &llm.OptionError{
		What: "Trace.at", Option: "row", Found: describe.Given(row), Expected: "the number of a row, from 0",
	}
}

// request is the body of a row's request in the provider's names, and what k6/x/llm takes out of it: row, class, and the
// number of prompt tokens that is aimed at; and the due time, if the request has one.
func (t *jsTrace) request(what string, row int, due time.Time, opts sobek.Value) (sobek.Value, error) {
	plan, api := t.plan, t.api
	if exportOf(opts) != nil {
		o, err := optionsFrom(what, opts)
		if err != nil {
			return nil, err
		}
		api = o.readAPI(api)
		if c := o.object("calibration", calibrationForm); c != nil {
			calibration := c.readCalibration()
			o.done(c)
			if o.err == nil {
				if plan, err = t.calibrated(calibration); err != nil {
					return nil, fmt.Errorf("%s: %w", what, err)
				}
			}
		}
		if err := o.finish(); err != nil {
			return nil, err
		}
	}
	if state := t.module.vu.State(); state != nil && t.asked.CompareAndSwap(false, true) {
		if name, bin, unit := t.misreadStages(state.Options.Scenarios); unit > 0 {
			state.Logger.Warnf("trace %s: the scenario %s has stages in bins of %s and a timeUnit of %s, which is %.3g times the trace's load: "+
				"give it timeUnit: %q", t.id, name, bin, unit, bin.Seconds()/unit.Seconds(), bin.String())
		}
	}
	r, err := plan.At(row)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	literal, err := r.Body(api)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	body := maps.Clone(literal)
	body["row"] = row
	if r.Class != "" {
		body["class"] = r.Class
	}
	if r.InputTokens > 0 {
		body["promptTokens"] = r.InputTokens
	}
	if !due.IsZero() {
		// A float64 holds the milliseconds since 1970 to a quarter of a microsecond.
		body["dueTime"] = float64(due.UnixNano()) / float64(time.Millisecond)
	}

	return t.module.value(body), nil
}

// calibrated is the plan of this trace under another calibration, which setup() may have found. There is one of each in a
// process.
func (r *recording) calibrated(c tokens.Calibration) (*workload.Plan, error) {
	r.plansMu.RLock()
	p, ok := r.plans[c]
	r.plansMu.RUnlock()
	if ok {
		return p, nil
	}
	r.plansMu.Lock()
	defer r.plansMu.Unlock()
	if p, ok = r.plans[c]; ok {
		return p, nil
	}
	o := r.planOptions
	o.Calibration = c
	p, err := workload.NewPlan(r.trace, o)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the trace and the row
	}
	if r.plans == nil {
		r.plans = map[tokens.Calibration]*workload.Plan{}
	}
	r.plans[c] = p

	return p, nil
}
