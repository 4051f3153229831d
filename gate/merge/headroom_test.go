package merge_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/merge"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

const headroomSLO = `
capacity_gate: {ttft_p50: "<= 800ms"}
client_headroom: {cpu: "<= 70%"}
phases: {warmup: 10s, steady: 60s, recovery: 10s}
`

// startedAll is a test in which no arrival was dropped.
func startedAll(seed uint64) run {
	whole := generate(seed)
	whole.arrivals = slices.DeleteFunc(whole.arrivals, func(a arrival) bool { return a.Outcome == results.Dropped })

	return whole
}

// aloneAndJoined are the verdicts on the test as one run, and as two instances.
func aloneAndJoined(t *testing.T, slo string, whole run, strain func(r *run, instance int)) (alone, joined *verdict.Result) {
	t.Helper()
	parts := whole.split(2)
	for i := range parts {
		strain(&parts[i], i)
	}
	strain(&whole, 1)
	_, out := join(t, slo, parts...)

	return judge(t, whole.write(t, slo), slo), judge(t, out, slo)
}

// A short step is a small part of the whole run, in which its strain does not show.
func TestAStrainedStepIsInvalidAloneAndJoined(t *testing.T) {
	t.Parallel()
	const change = 68 // s: two of the 60 steady seconds are the second step
	stepAt := func(at time.Duration) string {
		switch {
		case phaseAt(at) != "steady":
			return ""
		case at < change*time.Second:
			return "1"
		default:
			return "2"
		}
	}
	whole := startedAll(11)
	for i := range whole.arrivals {
		a := &whole.arrivals[i]
		a.Step = stepAt(a.Arrival().Sub(epoch))
	}
	cpuIn := func(step string) func(*run) {
		return func(r *run) {
			inner := r.second
			r.second = func(i int, s *results.Sample) {
				inner(i, s)
				if s.Step == step {
					s.Client["cpu"] = 0.97
				}
			}
		}
	}
	for name, c := range map[string]struct {
		strain func(*run)
		first  int // instance that is strained
		want   []verdict.Status
	}{
		"nothing":                   {strain: func(*run) {}, want: []verdict.Status{verdict.Pass, verdict.Pass}},
		"cpu in the short step":     {strain: cpuIn("2"), want: []verdict.Status{verdict.Pass, verdict.Invalid}},
		"cpu of one instance there": {strain: cpuIn("2"), first: 1, want: []verdict.Status{verdict.Pass, verdict.Invalid}},
		"cpu in the long step":      {strain: cpuIn("1"), want: []verdict.Status{verdict.Invalid, verdict.Pass}},
		"schedule of the short step": {strain: func(r *run) {
			r.arrivals = slices.Clone(r.arrivals)
			for i := range r.arrivals {
				if a := &r.arrivals[i]; a.Step == "2" {
					a.Start = a.Start.Add(a.Due.Sub(epoch.Add(change*time.Second)) / 20)
				}
			}
		}, want: []verdict.Status{verdict.Pass, verdict.Invalid}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overall := slices.MaxFunc(c.want, func(a, b verdict.Status) int { return len(a) - len(b) })
			alone, joined := aloneAndJoined(t, headroomSLO, whole, func(r *run, instance int) {
				r.second = func(i int, s *results.Sample) { s.Step = stepAt(time.Duration(i) * time.Second) }
				if instance >= c.first {
					c.strain(r)
				}
			})
			for what, judged := range map[string]*verdict.Result{"alone": alone, "joined": joined} {
				require.Equal(t, overall, judged.Verdict, what)
				require.Len(t, judged.Steps, 2, what)
				for i, step := range judged.Steps {
					require.Equal(t, c.want[i], step.Verdict, "%s: step %s", what, step.Name)
				}
			}
		})
	}
}

// A gauge that was read for three seconds says nothing of the rest, in one instance as in all.
func TestAGaugeThatWasNotSeenDecidesNothingAloneAndJoined(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]int{"both": 0, "one": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alone, joined := aloneAndJoined(t, headroomSLO, startedAll(11), func(r *run, instance int) {
				if instance >= first {
					r.second = func(i int, s *results.Sample) {
						if i > 12 {
							s.Client = nil
						}
					}
				}
			})
			for what, judged := range map[string]*verdict.Result{"alone": alone, "joined": joined} {
				require.Equal(t, verdict.Inconclusive, judged.Verdict, what)
				i := slices.IndexFunc(judged.Criteria, func(c verdict.Criterion) bool { return c.Name == "client_headroom.cpu" })
				require.Equal(t, verdict.Inconclusive, judged.Criteria[i].Verdict, what)
				require.Contains(t, judged.Criteria[i].Note, "it was not seen for 57 s", what)
			}
		})
	}
}

// What was joined has lost what is to be told of its instances: how far apart they began, what is missing, and which rows and
// segments were theirs.
func TestAJoinedDirectoryIsNoInstance(t *testing.T) {
	t.Parallel()
	parts := generate(5).split(3)
	dirs := make([]string, len(parts))
	for i := range parts {
		dirs[i] = parts[i].write(t, easy)
	}
	half := t.TempDir()
	_, err := merge.Merge(dirs[:2], half, merge.Options{})
	require.NoError(t, err)
	for _, inputs := range [][]string{{half, dirs[2]}, {dirs[2], half}, {half, dirs[0]}} {
		out := t.TempDir() + "/merged"
		_, err = merge.Merge(inputs, out, merge.Options{})
		require.ErrorIs(t, err, merge.ErrJoined)
		require.EqualError(t, err, "merge: "+merge.ErrJoined.Error()+": "+half+" was joined of 2 instances; give their own directories in its "+
			"place, those of 0/3:1/3 (host of 0/3:1/3), 1/3:2/3 (host of 1/3:2/3)")
		require.NoDirExists(t, out)
	}
}
