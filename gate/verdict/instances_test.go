package verdict

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// joined is a run that was merged of three instances, each with what was measured of its own generator.
func joined(headroom ...map[string]float64) *recorded {
	r := new(recorded).add(1000, nil).seconds(steady, 60, func(_ int, s *results.Sample) {
		s.Client = map[string]float64{"cpu": 0.6} // the worst of each second
	})
	r.info.Merged = &results.Merged{}
	for i, measured := range headroom {
		r.info.Merged.Instances = append(r.info.Merged.Instances, results.Instance{
			Segment: []string{"0:1/3", "1/3:2/3", "2/3:1"}[i], Host: results.Host{Name: []string{"a", "b", "c"}[i]},
			InstanceHeadroom: results.InstanceHeadroom{Headroom: measured},
			ClockOffset:      &results.ClockOffset{Lower: -1, Upper: 1, Turns: 9},
		})
	}

	return r
}

const (
	joinedSLO = `
capacity_gate: {ttft_p95: "<= 800ms"}
client_headroom: {cpu: "<= 70%"}
`
	cpu = "client_headroom.cpu"
)

func TestEachInstancesHeadroomIsJudged(t *testing.T) {
	t.Parallel()
	of := func(shares ...float64) []map[string]float64 {
		var all []map[string]float64
		for _, share := range shares {
			all = append(all, map[string]float64{cpu: share})
		}

		return all
	}
	got := joined(of(0.3, 0.65, 0.5)...).judge(t, joinedSLO)
	require.Equal(t, Pass, got.Verdict, got.Criteria)
	require.InDelta(t, 0.65, *got.criterion(t, cpu).Measured, 1e-12)
	require.Contains(t, got.criterion(t, cpu).Note, "the worst of 3 instances, 1/3:2/3 (b)")
	require.Empty(t, got.Warnings)

	got = joined(of(0.3, 0.5, 0.9)...).judge(t, joinedSLO)
	require.Equal(t, Invalid, got.Verdict)
	require.Equal(t, Fail, got.criterion(t, cpu).Verdict)
	require.InDelta(t, 0.9, *got.criterion(t, cpu).Measured, 1e-12)
	require.Contains(t, got.criterion(t, cpu).Note, "over the limit in 2/3:1 (c)")
	require.NotContains(t, got.criterion(t, cpu).Note, "(b),")
	require.Equal(t, Invalid, got.criterion(t, "ttft_p95").Verdict)

	got = joined(of(0.8, 0.5, 0.9)...).judge(t, joinedSLO)
	require.Contains(t, got.criterion(t, cpu).Note, "over the limit in 0:1/3 (a), 2/3:1 (c)")
}

func TestAnInstanceThatWasNotMeasured(t *testing.T) {
	t.Parallel()
	got := joined(map[string]float64{cpu: 0.3}, nil, map[string]float64{cpu: 0.4}).judge(t, joinedSLO)
	require.Equal(t, Inconclusive, got.Verdict, "the contract asks for it")
	require.Contains(t, got.criterion(t, cpu).Note, "not measured in 1/3:2/3 (b)")

	got = joined(map[string]float64{cpu: 0.3}, nil, map[string]float64{cpu: 0.4}).judge(t, gate(`ttft_p95: "<= 800ms"`))
	require.Equal(t, Pass, got.Verdict, "a default")
	require.Contains(t, got.criterion(t, cpu).Note, "not measured in 1/3:2/3 (b)")

	got = joined(map[string]float64{cpu: 0.9}, nil, nil).judge(t, joinedSLO)
	require.Equal(t, Invalid, got.Verdict, "one is enough")

	got = joined(nil, nil, nil).judge(t, joinedSLO)
	require.Equal(t, Pass, got.Verdict)
	require.InDelta(t, 0.6, *got.criterion(t, cpu).Measured, 1e-12, "by the joined series")
	require.Contains(t, got.criterion(t, cpu).Note, "over all instances at once")
}

func TestDropsOfAllInstancesCountTogether(t *testing.T) {
	t.Parallel()
	const slo = `
capacity_gate: {ttft_p95: "<= 800ms"}
client_headroom: {dropped: "<= 3"}
`
	r := joined(map[string]float64{"client_headroom.dropped": 2}, map[string]float64{"client_headroom.dropped": 0},
		map[string]float64{"client_headroom.dropped": 2})
	for _, i := range []int{1, 2, 4, 5} {
		r.requests[i] = results.Request{Row: int64(i), Phase: steady, Due: r.requests[i].Due, Outcome: results.Dropped}
	}
	got := r.judge(t, slo)
	require.Equal(t, Invalid, got.Verdict)
	require.InDelta(t, 4, *got.criterion(t, "client_headroom.dropped").Measured, 1e-12)
}

// A share is over the limit in an instance even where it is not in the whole.
func TestAShareOfDropsIsJudgedForEachInstance(t *testing.T) {
	t.Parallel()
	const dropped = "client_headroom.dropped"
	r := joined(map[string]float64{dropped: 0.03}, map[string]float64{dropped: 0}, map[string]float64{dropped: 0})
	for i := range 10 {
		r.requests[i] = results.Request{Row: int64(i), Phase: steady, Due: r.requests[i].Due, Outcome: results.Dropped}
	}
	got := r.judge(t, "capacity_gate: {ttft_p95: \"<= 800ms\"}\nclient_headroom: {dropped: \"<= 2%\"}\n")
	require.Equal(t, Invalid, got.Verdict)
	require.InDelta(t, 0.03, *got.criterion(t, dropped).Measured, 1e-12)
	require.Contains(t, got.criterion(t, dropped).Note, "over the limit in 0:1/3 (a)")
}

func TestHeadroomOfOneInstance(t *testing.T) {
	t.Parallel()
	r := new(recorded).add(1000, nil).seconds(steady, 60, func(i int, s *results.Sample) {
		s.Client = map[string]float64{"cpu": float64(i) / 100}
	})
	got, steps, err := Headroom(r.write(t), load(t, joinedSLO))
	require.NoError(t, err)
	require.InDelta(t, 0.56, got.Headroom[cpu], 0.011, "the 95th percentile of 0 to 59 %")
	require.InDelta(t, 0, got.Headroom["client_headroom.dropped"], 0)
	require.Contains(t, got.Headroom, "client_headroom.schedule_error")
	require.NotContains(t, got.Headroom, "client_headroom.memory", "not measured")
	require.NotContains(t, got.Headroom, "ttft_p95")
	require.Empty(t, got.Undecided)
	require.Empty(t, steps)
}

// What was seen of a gauge for a moment only decides nothing, whatever the limit that a reader of the joined evidence sets.
func TestHeadroomThatWasHardlySeen(t *testing.T) {
	t.Parallel()
	for _, value := range []float64{0.1, 0.9} { // below the limit, and above
		r := new(recorded).add(1000, nil).seconds(steady, 60, func(i int, s *results.Sample) {
			if i < 3 {
				s.Client = map[string]float64{"cpu": value}
			}
		})
		got, _, err := Headroom(r.write(t), load(t, joinedSLO))
		require.NoError(t, err)
		require.InDelta(t, value, got.Headroom[cpu], 0)
		require.Equal(t, map[string]string{cpu: "it was not seen for 57 s"}, got.Undecided)
	}
	relative := load(t, "capacity_gate: {ttft_p95: \"<= 800ms\"}\nclient_headroom: {cpu: \"<= baseline + 10%\"}\n")
	r := new(recorded).add(1000, nil).seconds(steady, 60, func(_ int, s *results.Sample) { s.Client = map[string]float64{"cpu": 0.1} })
	got, _, err := Headroom(r.write(t), relative)
	require.NoError(t, err)
	require.Empty(t, got.Undecided, "a limit that waits for a baseline leaves nothing open that was measured")
}

func TestHeadroomOfEachStep(t *testing.T) {
	t.Parallel()
	r := staircase(climb{name: "10", rate: 10, settle: 5, hold: 60, ttft: constantly(100)},
		climb{name: "20", rate: 20, settle: 5, hold: 30, ttft: constantly(100)})
	for i := range r.samples {
		s := &r.samples[i]
		s.Client = map[string]float64{"cpu": map[string]float64{"10": 0.2, "20": 0.4}[s.Step]}
		if s.Step == "20" && i > 80 {
			s.Client = nil
		}
	}
	_, steps, err := Headroom(r.write(t), load(t, joinedSLO))
	require.NoError(t, err)
	require.Len(t, steps, 2)
	require.InDelta(t, 0.2, steps["10"].Headroom[cpu], 0)
	require.InDelta(t, 0.4, steps["20"].Headroom[cpu], 0)
	require.InDelta(t, 0, steps["20"].Headroom["client_headroom.schedule_error"], 1e-9)
	require.Empty(t, steps["10"].Undecided)
	require.Equal(t, map[string]string{cpu: "it was not seen for 19 s"}, steps["20"].Undecided)
}

func TestWhatAnInstanceLeftUndecidedIsNotPassed(t *testing.T) {
	t.Parallel()
	const why = "it was not seen for 57 s"
	blind := func(r *recorded, share float64, of ...int) *recorded {
		for _, i := range of {
			r.info.Merged.Instances[i].InstanceHeadroom = results.InstanceHeadroom{
				Headroom: map[string]float64{cpu: share}, Undecided: map[string]string{cpu: why},
			}
		}

		return r
	}
	seen := map[string]float64{cpu: 0.3}
	for name, slo := range map[string]string{"stated": joinedSLO, "a default": gate(`ttft_p95: "<= 800ms"`)} {
		got := blind(joined(seen, seen, seen), 0.1, 1).judge(t, slo)
		require.Equal(t, Inconclusive, got.Verdict, name)
		require.Contains(t, got.criterion(t, cpu).Note, "not decided in 1/3:2/3 (b): "+why)
	}
	got := blind(joined(seen, seen, seen), 0.9, 1).judge(t, joinedSLO)
	require.Equal(t, Invalid, got.Verdict, "over the limit it is all the same")
	got = blind(joined(seen, map[string]float64{cpu: 0.9}, seen), 0.1, 0, 2).judge(t, joinedSLO)
	require.Equal(t, Invalid, got.Verdict)
	require.Contains(t, got.criterion(t, cpu).Note, "not decided in 0:1/3 (a), 2/3:1 (c): "+why)

	r := joined(seen, seen, seen) // by a version that did not tell
	for i := range r.samples {
		if i > 2 {
			r.samples[i].Client = nil
		}
	}
	got = r.judge(t, joinedSLO)
	require.Equal(t, Inconclusive, got.Verdict, "the joined seconds tell")
	require.Contains(t, got.criterion(t, cpu).Note, why)
}

// The worst instance of a step is the one that was the worst in that step. Where the instances told of the whole run only, as of
// a directory that an earlier version joined, the joined evidence of the step counts.
func TestEachStepIsJudgedByItsOwnHeadroom(t *testing.T) {
	t.Parallel()
	const dropped, schedule = "client_headroom.dropped", "client_headroom.schedule_error"
	of := func(share float64) results.InstanceHeadroom {
		return results.InstanceHeadroom{Headroom: map[string]float64{cpu: share, dropped: 0, schedule: 0}}
	}
	climbed := func(whole float64, steps ...map[string]results.InstanceHeadroom) *recorded {
		r := staircase(climb{name: "10", rate: 10, hold: 60, ttft: constantly(100)}, climb{name: "20", rate: 20, hold: 12, ttft: constantly(100)})
		for i := range r.samples {
			s := &r.samples[i]
			s.Client = map[string]float64{"cpu": map[string]float64{"10": 0.5, "20": 0.6}[s.Step]}
		}
		r.info.Merged = &results.Merged{}
		for i, own := range steps {
			r.info.Merged.Instances = append(r.info.Merged.Instances, results.Instance{
				Segment: []string{"0:1/2", "1/2:1"}[i], InstanceHeadroom: of(whole), Steps: own,
			})
		}

		return r
	}
	verdicts := func(r *recorded, slo string) (Status, []Status, []float64) {
		out := r.judge(t, slo)
		var all []Status
		var measured []float64
		for _, step := range out.Steps {
			all = append(all, step.Verdict)
			for _, c := range step.Criteria {
				if c.Name == cpu {
					measured = append(measured, *c.Measured)
				}
			}
		}

		return out.Verdict, all, measured
	}
	steps := func(first, second float64) map[string]results.InstanceHeadroom {
		return map[string]results.InstanceHeadroom{"10": of(first), "20": of(second)}
	}
	whole, each, measured := verdicts(climbed(0.3, steps(0.3, 0.2), steps(0.2, 0.97)), joinedSLO)
	require.Equal(t, Invalid, whole)
	require.Equal(t, []Status{Pass, Invalid}, each)
	require.Equal(t, []float64{0.3, 0.97}, measured)

	whole, each, measured = verdicts(climbed(0.97, steps(0.97, 0.2), steps(0.97, 0.1)), joinedSLO)
	require.Equal(t, Invalid, whole)
	require.Equal(t, []Status{Invalid, Pass}, each)
	require.Equal(t, []float64{0.97, 0.2}, measured)

	open := steps(0.3, 0.3)
	open["20"] = results.InstanceHeadroom{Headroom: open["20"].Headroom, Undecided: map[string]string{cpu: "it was not seen for 11 s"}}
	whole, each, _ = verdicts(climbed(0.3, steps(0.3, 0.3), open), joinedSLO)
	require.Equal(t, Inconclusive, whole)
	require.Equal(t, []Status{Pass, Inconclusive}, each)

	for limit, want := range map[string][]Status{"70%": {Pass, Pass}, "55%": {Pass, Invalid}, "45%": {Invalid, Invalid}} {
		_, each, measured = verdicts(climbed(0.3, nil, nil), strings.Replace(joinedSLO, "70%", limit, 1))
		require.Equal(t, want, each, limit)
		require.Equal(t, []float64{0.5, 0.6}, measured, "of the joined seconds")
	}
}

func TestWhatIsToldOfInstances(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit func(*results.Merged)
		want []string
	}{
		"nothing": {edit: func(*results.Merged) {}},
		"rows in more than one": {
			edit: func(m *results.Merged) { m.DuplicateRows = 7 },
			want: []string{"7 rows were replayed by more than one instance: give every instance the same --execution-segment-sequence"},
		},
		"a clock that is ahead": {
			edit: func(m *results.Merged) {
				m.Instances[1].ClockOffset = &results.ClockOffset{Lower: 2400, Upper: 2600, Turns: 9}
				m.Instances[1].CorrectedMS = 2500
			},
			want: []string{"the clock of 1/3:2/3 (b) is 2400 ms to 2600 ms ahead of the first instance's: its times were corrected by 2500 ms"},
		},
		"a clock that is behind": {
			edit: func(m *results.Merged) {
				m.Instances[1].ClockOffset = &results.ClockOffset{Lower: -1600, Upper: -1500, Turns: 9}
				m.Instances[1].CorrectedMS = -1550
			},
			want: []string{"the clock of 1/3:2/3 (b) is 1500 ms to 1600 ms behind the first instance's: its times were corrected by 1550 ms"},
		},
		"less than a second": {
			edit: func(m *results.Merged) {
				m.Instances[1].ClockOffset = &results.ClockOffset{Lower: 900, Upper: 1100, Turns: 9}
			},
		},
		"a clock that is not known": {
			edit: func(m *results.Merged) {
				m.Instances[2].ClockOffset, m.Instances[2].ClockUnknown = nil, "its sun dial"
			},
			want: []string{"the clock of 2/3:1 (c) could not be compared with the first instance's (its sun dial): " +
				"its times stand as its own clock showed them"},
		},
		"started apart": {
			edit: func(m *results.Merged) { m.StartSkewMS = pointer(1500) },
			want: []string{"the instances began at least 1500 ms apart: the load was not the schedule's"},
		},
		"a part of the test": {
			edit: func(m *results.Merged) { share := 0.75; m.Covered = &share },
			want: []string{"the instances' segments make 75% of the test: directories are missing, and what is in them may have failed"},
		},
		"the whole, in floating point": {
			edit: func(m *results.Merged) { share := 0.9999999999999999; m.Covered = &share },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			headroom := map[string]float64{cpu: 0.1}
			r := joined(headroom, headroom, headroom)
			r.info.Merged.Instances = slices.Clone(r.info.Merged.Instances)
			c.edit(r.info.Merged)
			out := r.judge(t, joinedSLO)
			require.Equal(t, c.want, out.Warnings)
			expected := Pass
			if name == "a part of the test" {
				expected = Inconclusive
			}
			require.Equal(t, expected, out.Verdict)
		})
	}
}

// A verdict is on the load of the schedule. Up to two seconds are what starting instances one after the other takes.
func TestInstancesThatBeganFarApartDoNotPass(t *testing.T) {
	t.Parallel()
	headroom := map[string]float64{cpu: 0.1}
	for name, c := range map[string]struct {
		skew    float64 // ms
		seconds int     // of the steady phase
		steps   bool    // of half of it each
		slo     string  // joinedSLO for none
		want    Status
		told    string
	}{
		"below two seconds":          {skew: 1999, seconds: 60, want: Pass},
		"below 2 %":                  {skew: 3900, seconds: 200, want: Pass},
		"above both":                 {skew: 4100, seconds: 200, want: Inconclusive, told: "more than 2 s, and more than 2% of the 196 s of the steady phase"},
		"later than all of the rest": {skew: 389000, seconds: 60, want: Inconclusive, told: "and more than 2% of the 0 s of the steady phase"},
		"of the shortest step":       {skew: 3900, seconds: 300, steps: true, want: Inconclusive, told: "and more than 2% of the 146 s of the shortest step"},
		"a failure stays one":        {skew: 30000, seconds: 200, slo: "capacity_gate: {ttft_p95: \"<= 1ms\"}", want: Fail, told: "more than 2 s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := joined(headroom, headroom, headroom)
			r.info.Merged.StartSkewMS = &c.skew
			for i := range r.requests {
				q := &r.requests[i]
				at := epoch.Add(time.Duration(i) * time.Duration(c.seconds) * time.Second / time.Duration(len(r.requests)-1))
				q.Due, q.Start = at, at
				if c.steps {
					q.Step = []string{"10", "20"}[2*i/len(r.requests)]
				}
			}
			slo := c.slo
			if slo == "" {
				slo = joinedSLO
			}
			out := r.judge(t, slo)
			require.Equal(t, c.want, out.Verdict, "%v", out.Warnings)
			told := strings.Join(out.Warnings, "\n")
			require.Contains(t, told, fmt.Sprintf("the instances began at least %.0f ms apart: the load was not the schedule's", c.skew))
			require.Contains(t, told, c.told)
			require.Equal(t, c.told != "", strings.Contains(told, "more than 2 s"))
			for _, step := range out.Steps {
				require.Equal(t, c.want, step.Verdict)
			}
		})
	}
}
