package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

const segmentsContract = `
capacity_gate:
  success_rate: ">= 0.5"
  ttft_p50: "<= 20s"`

// inTime has a script begin at the instant AT, for a busy machine starts processes seconds apart.
const inTime = `
	import { sleep } from 'k6';
	export function setup() {
		sleep(Math.max(0, Number(__ENV.AT) - Date.now()) / 1000);
	}`

// instance is an instance of a script that begins soon.
func instance(t *testing.T, script, segment, sequence string, args ...string) (*exec.Cmd, string) {
	t.Helper()
	cmd, dir := gatedRun(t, segmentsContract, append(args, "--execution-segment", segment, "--execution-segment-sequence", sequence)...)
	require.NoError(t, os.WriteFile(filepath.Join(cmd.Dir, "script.js"), []byte(script+inTime), 0o600))

	return cmd, dir
}

// soon is when instances that are started now begin.
func soon() string { return fmt.Sprintf("AT=%d", time.Now().Add(8*time.Second).UnixMilli()) }

// Three instances against the simulated engine, and one alone with the same trace. What they did is the same to the last
// row; how long it took is not, since these are two runs: gate/merge takes one run apart and joins it again for that.
func TestThreeInstancesAreOneTest(t *testing.T) {
	t.Parallel()
	alone, single := gatedRun(t, segmentsContract, "-e", "URL=http://"+startEngine(t, nil).host, "-e", "RATE=20")
	require.Equal(t, 0, finish(t, alone).exit)

	sim := startEngine(t, nil)
	segments := []string{"0:1/3", "1/3:2/3", "2/3:1"}
	dirs, ends := make([]string, len(segments)), make([]ran, len(segments))
	var running sync.WaitGroup
	at := soon()
	for i, segment := range segments {
		var cmd *exec.Cmd
		cmd, dirs[i] = instance(t, gated, segment, "0,1/3,2/3,1", "-e", "URL=http://"+sim.host, "-e", "RATE=20", "-e", at)
		running.Go(func() { ends[i] = finish(t, cmd) })
	}
	running.Wait()
	for _, r := range ends {
		require.Equal(t, 0, r.exit, r.stderr)
	}
	out := filepath.Join(t.TempDir(), "merged")
	merge := append(append([]string{"x", "llm", "merge"}, dirs...), "--out", out)
	r := runK6(t, merge...)
	require.Equal(t, 0, r.exit, r.stderr+r.stdout)
	require.Contains(t, r.stderr, "160 arrivals, 0 rows in more than one, began at least ")
	require.Contains(t, r.stdout, "verdict: PASS")

	keepsSchema(t, out)
	sameRows(t, single, dirs)
	sameVerdict(t, single, out)
	sumOfParts(t, dirs, out)
	oneClock(t, dirs, out)

	again := runK6(t, merge...)
	require.Equal(t, 3, again.exit, "not twice into one place")
	require.Contains(t, again.stderr, "--out: directory "+out+" is not empty: give another one, or --overwrite to replace the results in it")
	require.NotContains(t, again.stderr, "overwrite=true", "that is no flag of this command")
	require.Equal(t, 3, runK6(t, "x", "llm", "merge", dirs[0]).exit)
	twice := runK6(t, "x", "llm", "merge", dirs[0], dirs[0]+"/", "--out", out+"-twice")
	require.Equal(t, 3, twice.exit)
	require.Contains(t, twice.stderr, "are one directory")
	require.NoDirExists(t, out+"-twice")
}

func TestASegmentWithoutItsSequenceIsRefused(t *testing.T) {
	t.Parallel()
	cmd, _ := gatedRun(t, segmentsContract, "-e", "URL=http://"+startEngine(t, nil).host, "--execution-segment", "0:1/3")
	r := finish(t, cmd)
	require.NotEqual(t, 0, r.exit)
	require.Contains(t, r.stderr, "execution segment sequence")
}

// stockRate is a load of one of k6's own executors.
const stockRate = `
	import llm from 'k6/x/llm';
	import gate from 'k6/x/llm/gate';
	const contract = gate.open('./slo.yaml');
	export const options = {
		scenarios: {
			load: {
				executor: 'constant-arrival-rate', rate: Number(__ENV.RATE), duration: '3s', preAllocatedVUs: 60, tags: { phase: 'steady' },
			},
			...gate.monitor(contract),
		},
	};
	const client = new llm.Client({ baseURL: __ENV.URL + '/v1', model: 'sim' });
	export default function () {
		client.chat({ messages: [{ role: 'user', content: 'hi' }], max_tokens: 2 });
	}`

// Arrivals of k6's own executors have no numbers: that one instance ran after the other, or was told another rate, shows all
// the same.
func TestStockExecutorsInstancesAreOneTestOnlyTogether(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, nil)
	at := soon()
	run := func(segment, rate string) (*exec.Cmd, string) {
		return instance(t, stockRate, segment, "0,1/2,1", "-e", "URL=http://"+sim.host, "-e", "RATE="+rate, "-e", at)
	}
	first, firstDir := run("0:1/2", "20")
	second, secondDir := run("1/2:1", "20")
	var beside ran
	var running sync.WaitGroup
	running.Go(func() { beside = finish(t, second) })
	r := finish(t, first)
	running.Wait()
	require.Equal(t, 0, r.exit, r.stderr)
	require.Equal(t, 0, beside.exit, beside.stderr)
	later, laterDir := run("1/2:1", "20")
	r = finish(t, later)
	require.Equal(t, 0, r.exit, r.stderr)
	other, otherDir := run("1/2:1", "2")
	r = finish(t, other)
	require.Equal(t, 0, r.exit, r.stderr)

	merge := func(dir string) ran {
		return runK6(t, "x", "llm", "merge", firstDir, dir, "--out", filepath.Join(t.TempDir(), "merged"))
	}
	r = merge(secondDir)
	require.Equal(t, 0, r.exit, r.stderr+r.stdout)
	require.Contains(t, r.stderr, "0 rows in more than one, began at least ")
	r = merge(laterDir)
	require.Equal(t, 2, r.exit, r.stderr+r.stdout)
	require.Contains(t, r.stdout+r.stderr, "the load was not the schedule's, and nothing passes by it")
	r = merge(otherDir)
	require.Equal(t, 3, r.exit)
	require.Contains(t, r.stderr, "scenario load: rate: 20 and 2")
}

func firstAttempts(t *testing.T, dir string) []results.Request {
	t.Helper()
	run, err := results.Open(dir)
	require.NoError(t, err)
	var all []results.Request
	_, err = run.Requests(func(r *results.Request) error {
		if r.Attempt <= 1 {
			all = append(all, *r)
		}

		return nil
	})
	require.NoError(t, err)

	return all
}

// sameRows holds the union of the instances to the single run: each row once, with the same request, and as far from the
// instance's other rows as in the single schedule.
func sameRows(t *testing.T, single string, dirs []string) {
	t.Helper()
	want := map[int64]results.Request{}
	for _, r := range firstAttempts(t, single) {
		want[r.Row] = r
	}
	require.Len(t, want, 160)
	seen := map[int64]int{}
	for i, dir := range dirs {
		all := firstAttempts(t, dir)
		require.InDelta(t, 160/3, len(all), 1, "instance %d", i)
		for _, r := range all {
			seen[r.Row]++
			one := want[r.Row]
			require.Equal(t, one.Phase, r.Phase, "row %d", r.Row)
			require.Equal(t, one.Class, r.Class, "row %d", r.Row)
			require.Equal(t, one.PromptAsked, r.PromptAsked, "row %d", r.Row)
			require.Equal(t, one.CompletionAsked, r.CompletionAsked, "row %d", r.Row)
		}
		// Each phase is a scenario with a clock of its own.
		first := map[string]results.Request{}
		for _, r := range all {
			if f, ok := first[r.Phase]; !ok || r.Row < f.Row {
				first[r.Phase] = r
			}
		}
		for _, r := range all {
			f := first[r.Phase]
			// A due time is a number of JavaScript on its way, which resolves a quarter of a microsecond.
			require.InDelta(t, want[r.Row].Due.Sub(want[f.Row].Due), r.Due.Sub(f.Due), 1000, "row %d after row %d", r.Row, f.Row)
		}
	}
	require.Len(t, seen, 160)
	for row, times := range seen {
		require.Equal(t, 1, times, "row %d", row)
		require.Contains(t, want, row)
	}
}

func sameVerdict(t *testing.T, single, merged string) {
	t.Helper()
	one, err := verdict.Read(single)
	require.NoError(t, err)
	all, err := verdict.Read(merged)
	require.NoError(t, err)
	require.Equal(t, one.Verdict, all.Verdict)
	require.Equal(t, one.Counts, all.Counts)
	require.Len(t, all.Criteria, len(one.Criteria))
	for i, c := range one.Criteria {
		if c.Section == string(contract.SectionClientHeadroom) {
			continue // how busy each was
		}
		require.Equal(t, c.Name, all.Criteria[i].Name)
		require.Equal(t, c.Verdict, all.Criteria[i].Verdict, c.Name)
		if strings.HasPrefix(c.Name, "ttft") {
			// Two runs: of the same order is all that can be asked for.
			require.Less(t, *all.Criteria[i].Measured, 10**c.Measured)
			require.Greater(t, *all.Criteria[i].Measured, *c.Measured/10)
		}
	}
	for _, warning := range all.Warnings {
		require.NotContains(t, warning, "clock of")
		require.NotContains(t, warning, "rows were replayed")
		require.NotContains(t, warning, "segments make")
	}
}

// sumOfParts holds the joined evidence to the sum of its parts.
func sumOfParts(t *testing.T, dirs []string, out string) {
	t.Helper()
	whole, err := results.Open(out)
	require.NoError(t, err)
	gaps := func(dir string) int64 {
		run, err := results.Open(dir)
		require.NoError(t, err)
		all, err := run.Histograms(results.MetricITL)
		require.NoError(t, err)
		merged, err := results.MergeHistograms(all, func(results.HistogramKey) bool { return true })
		require.NoError(t, err)

		return merged.Count()
	}
	parts := int64(0)
	for _, dir := range dirs {
		parts += gaps(dir)
		run, err := results.Open(dir)
		require.NoError(t, err)
		require.Contains(t, strings.Join(run.Info.Labels, "\n"), "one instance of several")
	}
	require.Equal(t, parts, gaps(out))
	require.NotContains(t, strings.Join(whole.Info.Labels, "\n"), "one instance of several")
	require.InDelta(t, 1, *whole.Info.Merged.Covered, 1e-12)
}

// oneClock: on one machine the true offset is zero, and the measured bounds hold it.
func oneClock(t *testing.T, dirs []string, out string) {
	t.Helper()
	whole, err := results.Open(out)
	require.NoError(t, err)
	require.Len(t, whole.Info.Merged.Instances, len(dirs))
	for i, instance := range whole.Info.Merged.Instances {
		require.Zero(t, instance.CorrectedMS)
		if i == 0 {
			require.Nil(t, instance.ClockOffset)

			continue
		}
		require.NotNil(t, instance.ClockOffset, instance.ClockUnknown)
		require.LessOrEqual(t, instance.ClockOffset.Lower, 0.0)
		require.GreaterOrEqual(t, instance.ClockOffset.Upper, 0.0)
		require.Less(t, instance.ClockOffset.Upper-instance.ClockOffset.Lower, 1000.0, "closer than the header's resolution")
		require.GreaterOrEqual(t, instance.ClockOffset.Turns, int64(3))
	}
}

// One load generator at its limit spoils the whole, and is named.
func TestTheStrainedInstanceIsNamed(t *testing.T) {
	t.Parallel()
	slo := filepath.Join(t.TempDir(), "slo.yaml")
	require.NoError(t, os.WriteFile(slo, []byte("capacity_gate: {success_rate: \">= 0.5\"}\nclient_headroom: {cpu: \"<= 80%\"}\n"), 0o600))
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	instance := func(i int64, cpu float64) string {
		dir := filepath.Join(t.TempDir(), "run")
		w, err := results.Create(dir, results.Info{
			Started: start, Segment: []string{"0:1/3", "1/3:2/3", "2/3:1"}[i], Host: results.Host{Name: "pod"},
		}, results.Options{})
		require.NoError(t, err)
		for row := i; row < 300; row += 3 {
			at := start.Add(time.Duration(row) * 100 * time.Millisecond)
			require.NoError(t, w.Request(&results.Request{
				Row: row, Phase: "steady", Due: at, Start: at, Outcome: results.OK, TTFT: results.Num(5), E2E: results.Num(9),
			}))
		}
		for second := range 30 {
			require.NoError(t, w.Sample(results.Sample{
				Time: start.Add(time.Duration(second) * time.Second), Phase: "steady", Client: map[string]float64{"cpu": cpu},
			}))
		}
		require.NoError(t, w.Close(start.Add(30*time.Second), nil))

		return dir
	}
	merge := func(cpus ...float64) ran {
		args := []string{"x", "llm", "merge", "--contract", slo, "--out", filepath.Join(t.TempDir(), "merged")}
		for i, cpu := range cpus {
			args = append(args, instance(int64(i), cpu))
		}

		return runK6(t, args...)
	}
	r := merge(0.2, 0.3, 0.4)
	require.Equal(t, 0, r.exit, r.stderr+r.stdout)
	r = merge(0.2, 0.95, 0.3)
	require.Equal(t, 2, r.exit, r.stderr+r.stdout)
	require.Contains(t, r.stdout, "verdict: INVALID")
	require.Contains(t, r.stdout, "over the limit in 1/3:2/3 (pod)")
}

// The monitor keeps the gauge right where nothing starts or ends, and adds no series to the client's own.
func TestInFlightIsOneSeriesOfTheProcess(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, nil)
	cmd, dir := gatedRun(t, "\ncapacity_gate:\n  success_rate: \">= 0.5\"", "-e", "URL=http://"+sim.host, "-e", "RATE=2",
		"--tag", "testrun_name=before", "--out", "json=samples.json")
	r := finish(t, cmd)
	require.Equal(t, 0, r.exit, r.stderr)
	samples := readSamples(t, filepath.Join(filepath.Dir(dir), "samples.json"))["llm_in_flight"]
	for _, s := range samples {
		require.Equal(t, map[string]string{"testrun_name": "before"}, s.Data.Tags)
	}
	require.GreaterOrEqual(t, len(samples), 2*16+5, "two of each request, and one each second")
	require.Zero(t, samples[len(samples)-1].Data.Value)
}
