package verdict

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// TestNoVerdictOnEvidenceThatWasChanged: a run that ended knows what its files held.
func TestNoVerdictOnEvidenceThatWasChanged(t *testing.T) {
	slo := load(t, gate(`ttft_p95: "<= 800ms"`))
	for _, c := range []struct {
		name, file, want string
		change           func([]byte) []byte
	}{
		{"a request deleted", results.RequestsFile, "expected 1000 lines", func(b []byte) []byte { return b[bytes.IndexByte(b, '\n')+1:] }},
		{"a request repeated", results.RequestsFile, "got 1001 lines", func(b []byte) []byte {
			return append(bytes.Clone(b[:bytes.IndexByte(b, '\n')+1]), b...)
		}},
		{"the series emptied", results.SeriesFile, "expected 100 lines", func([]byte) []byte { return nil }},
		{"the series cut", results.SeriesFile, "got 50 lines", func(b []byte) []byte { return b[:len(b)/2] }},
		{"a histogram that no criterion is about", results.HistogramDir + "/e2e.json", "expected sha256:", func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"p50"`), []byte(`"p51"`), 1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := new(recorded).add(1000, nil).seconds(steady, 100, func(_ int, s *results.Sample) { s.Started = count(10) })
			run := r.write(t)
			_, err := Judge(run, slo)
			require.NoError(t, err)
			path := filepath.Join(run.Dir, c.file)
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, c.change(content), 0o600))
			got, err := Judge(run, slo)
			require.Nil(t, got)
			require.ErrorContains(t, err, "results: "+path+": it is not the file that the run wrote: ")
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestAnOldRunIsJudgedAndSaysThatItsFilesAreUnchecked(t *testing.T) {
	run := new(recorded).add(1000, nil).write(t)
	run.Info.Files = nil
	got, err := Judge(run, load(t, gate(`ttft_p95: "<= 800ms"`)))
	require.NoError(t, err)
	require.Equal(t, Pass, got.Criteria[0].Verdict)
	require.Contains(t, got.Warnings, results.NotRecorded)

	got, err = Judge(new(recorded).add(1000, nil).write(t), load(t, gate(`ttft_p95: "<= 800ms"`)))
	require.NoError(t, err)
	require.NotContains(t, got.Warnings, results.NotRecorded)

	killed := &recorded{killed: true}
	got, err = Judge(killed.add(1000, nil).write(t), load(t, gate(`ttft_p95: "<= 800ms"`)))
	require.NoError(t, err)
	require.NotContains(t, got.Warnings, results.NotRecorded, "it has no end to record anything at")
}

func TestAbsurdNumbersOfAVerdictAreRefused(t *testing.T) {
	for _, c := range []struct{ content, want string }{
		{`"confidence":1.5`, `confidence: found 1.5, expected a number from 0 to 1`},
		{`"confidence":"NaN"`, `confidence: found a string, expected a number`},
		{`"counts":{"offered":-1}`, `counts.offered: found -1, expected a count, 0 or more`},
		{`"counts":{"dropped":-2}`, `counts.dropped: found -2, expected a count, 0 or more`},
		{`"criteria":[{"name":"a","verdict":"PASS","n":-1}]`, `criteria[0].n: found -1, expected a count, 0 or more`},
		{`"criteria":[{"name":"a","verdict":"PASS","n":1,"over":2}]`, `criteria[0].over: found 2, expected a count from 0 to n = 1`},
		{`"criteria":[{"name":"a","verdict":"PASS","undecided":-2}]`, `criteria[0].undecided: found -2, expected a count, 0 or more`},
		{`"criteria":[{"name":"a","verdict":"PASS","measured":1e308}]`, `criteria[0].measured: found 1e+308, expected a number from -1e+15 to 1e+15`},
		{`"criteria":[{"name":"a","verdict":"PASS","limit_value":-1e300}]`, `criteria[0].limit_value: found -1e+300, expected a number from -1e+15 to 1e+15`},
		{`"criteria":[{"name":"a","verdict":"PASS","over_high":1.2}]`, `criteria[0].over_high: found 1.2, expected a number from 0 to 1`},
		{`"criteria":[{"name":"a","verdict":"PASS","inflation":-1}]`, `criteria[0].inflation: found -1, expected a number from 0 to 1e+15`},
		{`"phases":[{"name":"steady","seconds":-1}]`, `phases[0].seconds: found -1, expected a number from 0 to 1e+15`},
		{`"phases":[{"name":"steady","metrics":{"ttft":{"n":1,"p99":-4}}}]`, `phases[0].metrics.ttft.p99: found -4, expected a number from 0 to 1e+15`},
		{`"phases":[{"name":"steady","requests_per_second":1e300}]`, `phases[0].requests_per_second: found 1e+300, expected a number from 0 to 1e+15`},
		{`"prefix_cache":{"measured":-1}`, `prefix_cache.measured: found -1, expected a number from 0 to 1`},
	} {
		path := filepath.Join(t.TempDir(), "verdict.json")
		require.NoError(t, os.WriteFile(path, []byte(`{"schema":"`+Schema+`","verdict":"PASS",`+c.content+`}`), 0o600))
		_, err := Read(path)
		require.EqualError(t, err, "verdict: "+path+": "+c.want)
	}

	// What Judge writes is always read.
	r := new(recorded).add(1000, func(i int, q *results.Request) {
		q.ScheduleDelay = results.Num(-0.5)
		if i%7 == 0 {
			q.Outcome, q.TTFT, q.E2E = results.Failed, results.Number{}, results.Number{}
		}
	})
	got := r.judge(t, gate(`ttft_p95: "<= 800ms"`, `success_rate: ">= 0.9"`))
	dir := t.TempDir()
	require.NoError(t, got.Write(dir))
	again, err := Read(dir)
	require.NoError(t, err)
	require.Equal(t, marshal(t, got), marshal(t, again))
	require.InDelta(t, -0.5, again.Phases[0].Metrics["schedule_delay"].P50, 0)
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	content, err := json.Marshal(v)
	require.NoError(t, err)
	return string(content)
}

// TestDropsAreToldByTheirReason: which setting helps depends on why an arrival was not started.
func TestDropsAreToldByTheirReason(t *testing.T) {
	reasons := []string{"no_vu", "vu_starting", "vu_starting", "late", "late", "late", "max_duration", "stopped", "", ""}
	r := new(recorded).add(100, func(i int, q *results.Request) {
		if i < len(reasons) {
			*q = results.Request{Row: int64(i), Phase: steady, Due: q.Due, Outcome: results.Dropped, ErrorType: reasons[i]}
		}
	})
	got := r.judge(t, gate(`ttft_p95: "<= 800ms"`))
	require.Equal(t, map[string]int64{"no_vu": 1, "vu_starting": 2, "late": 3, "max_duration": 1, "stopped": 1, "unknown": 2}, got.DroppedBy)
	require.Equal(t, int64(10), got.Counts.Dropped)
	require.Contains(t, got.Warnings, "1 arrivals were dropped because all VUs that maxVUs allows were at work: raise maxVUs, and preAllocatedVUs with it")
	require.Contains(t, got.Warnings, "2 arrivals were dropped because further VUs were still being made: raise preAllocatedVUs")
	require.Contains(t, got.Warnings, "3 arrivals were dropped because the load generator was behind its schedule: take a faster or less busy machine, or several")
	require.Contains(t, got.Warnings, "2 arrivals were dropped, and the executor does not say why; mostly no VU is free: raise preAllocatedVUs and maxVUs")
	for _, w := range got.Warnings {
		require.NotContains(t, w, "maxDuration", "what the script asked for needs no advice")
	}

	require.Nil(t, new(recorded).add(10, nil).judge(t, gate(`ttft_p95: "<= 800ms"`)).DroppedBy)
}

// TestAPhaseTellsWhatWasOffered: completions in a short phase lag behind the arrivals, which are what was asked for.
func TestAPhaseTellsWhatWasOffered(t *testing.T) {
	r := new(recorded).add(100, func(i int, q *results.Request) {
		q.Due = epoch.Add(time.Duration(i) * 50 * time.Millisecond)
		if i%4 == 0 {
			*q = results.Request{Row: int64(i), Phase: steady, Due: q.Due, Outcome: results.Dropped, ErrorType: "late"}
		}
	}).seconds(steady, 5, func(_ int, s *results.Sample) { s.Completed = count(11) })
	got := r.judge(t, gate(`ttft_p95: "<= 800ms"`))
	require.InDelta(t, 20.0, *got.Phases[0].OfferedPerSecond, 1e-9, "dropped arrivals were offered too")
	require.InDelta(t, 11.0, *got.Phases[0].RequestsPerSecond, 0)

	got = new(recorded).add(1, nil).judge(t, gate(`ttft_p95: "<= 800ms"`))
	require.Nil(t, got.Phases[0].OfferedPerSecond, "one arrival has no rate")
}
