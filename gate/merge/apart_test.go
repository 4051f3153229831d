package merge_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// Loads that were not offered at one time are no load of the schedule, whatever was measured under them.
func TestInstancesThatRanAfterOneAnotherDoNotPass(t *testing.T) {
	t.Parallel()
	const rate = `{"scenarios":{"steady":{"executor":"constant-arrival-rate","rate":33,"timeUnit":"1s"}}}`
	for name, edit := range map[string]func(*run){
		"rows": func(*run) {},
		"of k6's own executor": func(r *run) {
			for i := range r.arrivals {
				a := &r.arrivals[i]
				a.Row, a.Scenario, a.Due = -1, "steady", time.Time{}
			}
			r.edit = func(info *results.Info) { info.Options = []byte(rate) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for late, want := range map[time.Duration]verdict.Status{
				1800 * time.Millisecond: verdict.Pass, 30 * time.Second: verdict.Inconclusive,
			} {
				whole := generate(5)
				for i := range whole.arrivals {
					if a := &whole.arrivals[i]; a.Outcome == results.Dropped {
						a.Outcome, a.Start, a.Status, a.Goodput = results.OK, a.Due, 200, results.FlagYes
						a.TTFT, a.E2E = results.Num(10), results.Num(20)
					}
				}
				parts := whole.split(3)
				parts[1].late = late
				for i := range parts {
					edit(&parts[i])
				}
				report, out := join(t, easy, parts...)
				require.NotNil(t, report.StartSkewMS)
				require.InDelta(t, milliseconds(late), *report.StartSkewMS, 500)
				judged := judge(t, out, easy)
				require.Equal(t, want, judged.Verdict, "%s: %v", late, judged.Warnings)
			}
		})
	}
}

// A clock that is ahead is corrected, and makes no start late.
func TestAClockThatIsAheadIsNoLateStart(t *testing.T) {
	t.Parallel()
	const rate = `{"scenarios":{"steady":{"executor":"constant-arrival-rate","rate":33,"timeUnit":"1s"}}}`
	parts := generate(5).split(2)
	for i := range parts {
		ahead := time.Duration(i) * 30 * time.Second
		parts[i].ahead = ahead
		parts[i].clock = []results.ClockReading{{Date: epoch, Lower: milliseconds(ahead) - 20, Upper: milliseconds(ahead) + 20}}
		parts[i].edit = func(info *results.Info) { info.Options = []byte(rate) }
		for k := range parts[i].arrivals {
			a := &parts[i].arrivals[k]
			a.Row, a.Scenario = -1, "steady"
		}
	}
	report, _ := join(t, slo, parts...)
	require.InDelta(t, 30000, report.Instances[1].CorrectedMS, 20)
	require.InDelta(t, 0, *report.StartSkewMS, 0)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
