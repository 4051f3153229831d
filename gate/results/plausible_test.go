package results

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// unchecked is a directory of a run that started at noon and lasted a minute, with these lines in one of its files.
func unchecked(t *testing.T, file, lines string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	w, err := Create(dir, Info{Started: noon}, Options{})
	require.NoError(t, err)
	require.NoError(t, w.Close(noon.Add(time.Minute), nil))
	forgetFiles(t, dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(lines), 0o600))
	return dir
}

func TestAbsurdNumbersOfARequestAreRefused(t *testing.T) {
	good := strings.TrimSuffix(string(AppendRequest(nil, numbered(1))), "\n")
	const duration = "expected milliseconds from 0 to 1e+10"
	const count = "expected a count from 0 to 1e+12"
	for _, c := range []struct{ key, value, want string }{
		{"ttft", "-1", duration},
		{"ttft", "-0.001", duration},
		{"ttft", "1e308", duration},
		{"ttft", "10000000001", duration},
		{"ttft", "1e999", "expected a number"},
		{"ttft", `"NaN"`, "expected a number"},
		{"ttft", "NaN", "expected a number"},
		{"ttft", "null", "expected a number"},
		{"ttft_text", "-3", duration},
		{"tpot", "-3", duration},
		{"e2e", "1e11", duration},
		{"elapsed", "-3", duration},
		{"itl_p50", "-3", duration},
		{"itl_p99", "1e300", duration},
		{"itl_max", "-3", duration},
		{"schedule_delay", "-1e11", "expected milliseconds from -1e+10 to 1e+10"},
		{"schedule_delay", "1e11", "expected milliseconds from -1e+10 to 1e+10"},
		{"output_tps", "-1", "expected tokens per second from 0 to 1e+12"},
		{"output_tps", "1e13", "expected tokens per second from 0 to 1e+12"},
		{"cost", "-1", "expected a number from 0 to 1e+15"},
		{"cost", "1e16", "expected a number from 0 to 1e+15"},
		{"row", "-1", "expected a count from 0 to 9007199254740991"},
		{"row", "9007199254740993", "expected a count from 0 to 9007199254740991"},
		{"attempt", "-1", "expected a count from 0 to 1000000"},
		{"attempt", "1e3", "expected an integer"},
		{"status", "-200", "expected an HTTP status from 0 to 999"},
		{"status", "1000", "expected an HTTP status from 0 to 999"},
		{"itl_n", "-1", count},
		{"chunks", "-1", count},
		{"prompt", "-1", count},
		{"prompt_asked", "-1", count},
		{"completion", "1000000000001", count},
		{"completion_asked", "-1", count},
		{"cached", "-9223372036854775808", count},
		{"reasoning", "99999999999999999999", "expected an integer"},
	} {
		dir := unchecked(t, RequestsFile, good+"\n"+`{"outcome":"ok","`+c.key+`":`+c.value+"}\n"+good+"\n")
		run, err := Open(dir)
		require.NoError(t, err)
		_, err = run.Requests(func(*Request) error { return nil })
		require.EqualError(t, err, fmt.Sprintf("results: %s:2: %s: found %q, %s",
			filepath.Join(dir, RequestsFile), c.key, c.value, c.want))
	}
	for _, c := range []struct{ key, value string }{
		{"ttft", "0"},
		{"ttft", "10000000000"},
		{"schedule_delay", "-12.5"},
		{"row", "9007199254740991"},
		{"status", "999"},
		{"completion", "1000000000000"},
	} {
		run, err := Open(unchecked(t, RequestsFile, `{"outcome":"ok","`+c.key+`":`+c.value+"}\n"))
		require.NoError(t, err)
		_, err = run.Requests(func(*Request) error { return nil })
		require.NoError(t, err, c)
	}
}

func TestTimesOutsideOfTheRunAreRefused(t *testing.T) {
	// noon is 12:00:00.123456789; the clock may be set by a minute, and a schedule of the user's may begin before.
	for _, c := range []struct{ file, key, line, want string }{
		{RequestsFile, "start", `{"outcome":"ok","start":"1970-01-01T00:00:00.000000000Z"}`, "from the run's start at 2026-01-31T12:00:00.123456789Z on"},
		{RequestsFile, "start", `{"outcome":"ok","start":"2026-01-31T11:59:00.000000000Z"}`, "from the run's start at 2026-01-31T12:00:00.123456789Z on"},
		{RequestsFile, "start", `{"outcome":"ok","start":"2026-01-31T12:02:01.000000000Z"}`, "until the run's end at 2026-01-31T12:01:00.123456789Z"},
		{RequestsFile, "due", `{"outcome":"ok","due":"2026-01-31T10:59:59.000000000Z"}`, "from the run's start at 2026-01-31T12:00:00.123456789Z on"},
		{RequestsFile, "due", `{"outcome":"ok","due":"9999-01-31T10:59:59.000000000Z"}`, "until the run's end at 2026-01-31T12:01:00.123456789Z"},
		{SeriesFile, "t", `{"t":"2025-01-31T12:00:00Z"}`, "from the run's start at 2026-01-31T12:00:00.123456789Z on"},
		{EventsFile, "t", `{"t":"2027-01-31T12:00:00Z","kind":"a"}`, "until the run's end at 2026-01-31T12:01:00.123456789Z"},
	} {
		dir := unchecked(t, c.file, c.line+"\n")
		err := readEverything(dir)
		require.ErrorContains(t, err, filepath.Join(dir, c.file)+":1: "+c.key+": found ")
		require.ErrorContains(t, err, ", expected a time "+c.want)
	}
	for _, line := range []string{
		`{"outcome":"ok","start":"2026-01-31T11:59:01.000000000Z"}`,
		`{"outcome":"ok","start":"2026-01-31T12:01:59.000000000Z"}`,
		`{"outcome":"ok","due":"2026-01-31T11:01:00.000000000Z"}`,
	} {
		require.NoError(t, readEverything(unchecked(t, RequestsFile, line+"\n")), line)
	}
}

func TestAbsurdNumbersOfASecondOrAnEventAreRefused(t *testing.T) {
	const count = "expected a count from 0 to 1e+12"
	for _, c := range []struct{ file, line, want string }{
		{SeriesFile, `"offered":-1`, "offered: found -1, " + count},
		{SeriesFile, `"in_flight":-1`, "in_flight: found -1, " + count},
		{SeriesFile, `"completion_tokens":1000000000001`, "completion_tokens: found 1000000000001, " + count},
		{SeriesFile, `"offered":"NaN"`, "offered: found a string, expected a whole number"},
		{SeriesFile, `"offered":1e308`, "offered: found number 1e308, expected a whole number"},
		{SeriesFile, `"server":{"queue_depth":-1}`, "server.queue_depth: found -1, expected a number from 0 to 1e+15"},
		{SeriesFile, `"server":{"running":1e308}`, "server.running: found 1e+308, expected a number from 0 to 1e+15"},
		{SeriesFile, `"server":{"kv_cache_usage":7.5}`, "server.kv_cache_usage: found 7.5, expected a share from 0 to 1"},
		{SeriesFile, `"client":{"cpu":-0.5}`, "client.cpu: found -0.5, expected a number from 0 to 1e+15"},
		{SeriesFile, `"client":{"cpu":"NaN"}`, "found a string, expected a number"},
		{EventsFile, `"count":-1`, "count: found -1, " + count},
		{EventsFile, `"saw":1e308`, "saw: found 1e+308, expected a number from -1e+15 to 1e+15"},
	} {
		dir := unchecked(t, c.file, `{"t":"2026-01-31T12:00:01Z",`+c.line+"}\n")
		err := readEverything(dir)
		require.ErrorContains(t, err, filepath.Join(dir, c.file)+":1: ")
		require.ErrorContains(t, err, c.want)
	}
	dir := unchecked(t, SeriesFile, `{"t":"yesterday"}`+"\n")
	require.ErrorContains(t, readEverything(dir), filepath.Join(dir, SeriesFile)+`:1: found "yesterday", expected a time such as `)
}

func TestAbsurdNumbersOfARunAreRefused(t *testing.T) {
	for _, c := range []struct{ content, want string }{
		{`"ended":"2026-01-31T11:00:00Z"`, "ended: found 2026-01-31T11:00:00Z, expected a time from the run's start at 2026-01-31T12:00:00Z on"},
		{`"ideal_prefix_hit_ratio":-0.1`, "ideal_prefix_hit_ratio: found -0.1, expected a number from 0 to 1"},
		{`"ideal_prefix_hit_ratio":1.1`, "ideal_prefix_hit_ratio: found 1.1, expected a number from 0 to 1"},
		{`"ideal_prefix_hit_ratio":"NaN"`, "ideal_prefix_hit_ratio: found a string, expected a number"},
		{`"host":{"cpus":-1}`, "host.cpus: found -1, expected a count from 0 to 1e+12"},
		{`"phases":[{"name":"steady","start":"2020-01-31T11:00:00Z"}]`, "phases[0].start: found 2020-01-31T11:00:00Z, expected a time from"},
		{`"steps":[{"name":"5","start":"2026-01-31T12:00:00Z","end":"2020-01-31T11:00:00Z"}]`, "steps[0].end: found 2020-01-31T11:00:00Z, expected a time from"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, RunFile)
		require.NoError(t, os.WriteFile(path, []byte(`{"schema":"`+Schema+`","started":"2026-01-31T12:00:00Z",`+c.content+"}"), 0o600))
		_, err := Open(dir)
		require.ErrorContains(t, err, "results: "+path+": "+c.want)
	}
}

func TestAbsurdNumbersOfAHistogramAreRefused(t *testing.T) {
	for _, c := range []struct{ old, by, want string }{
		{`"count": 3`, `"count": -3`, "histogram 1: count: found -3, expected a count from 0 to 1e+12"},
		{`"count": 3`, `"count": 2`, "histogram 1 holds 3 values, its count says 2"},
		{`"count": 3,`, `"count": 3, "above_range": -1,`, "histogram 1: above_range: found -1, expected a count from 0 to 3"},
		{`"count": 3,`, `"count": 3, "above_range": 4,`, "histogram 1: above_range: found 4, expected a count from 0 to 3"},
		{`"hdr": "`, `"hdr": "A`, "histogram 1: "},
	} {
		dir := finished(t)
		forgetFiles(t, dir)
		path := filepath.Join(dir, HistogramDir, "ttft.json")
		edit(t, path, func(b []byte) []byte { return []byte(strings.Replace(string(b), c.old, c.by, 1)) })
		run, err := Open(dir)
		require.NoError(t, err)
		_, err = run.Histograms(MetricTTFT)
		require.ErrorContains(t, err, "results: "+path+": "+c.want)
	}
	dir := finished(t)
	forgetFiles(t, dir)
	path := filepath.Join(dir, HistogramDir, "ttft.json")
	edit(t, path, func(b []byte) []byte {
		text := string(b)
		from, to := strings.Index(text, "["), strings.LastIndex(text, "]")
		return []byte(text[:to] + "," + text[from+1:])
	})
	run, err := Open(dir)
	require.NoError(t, err)
	_, err = run.Histograms(MetricTTFT)
	require.ErrorContains(t, err, "results: "+path+`: histogram 2: it is the second of phase "steady", step "", class "", expected one`)
}

func TestGauge(t *testing.T) {
	for _, c := range []struct {
		name        string
		value, want float64
		ok          bool
	}{
		{"queue_depth", 0, 0, true},
		{"queue_depth", 0.5, 0.5, true},
		{"queue_depth", 7.5, 7.5, true},
		{"gpu_memory", 1e15, 1e15, true},
		{"gpu_memory", 1.1e15, 0, false},
		{"queue_depth", -0.1, 0, false},
		{"queue_depth", math.Inf(1), 0, false},
		{"queue_depth", math.Inf(-1), 0, false},
		{"queue_depth", math.NaN(), 0, false},
		{"kv_cache_usage", 1, 1, true},
		{"kv_cache_usage", 1.0000001, 1, true},
		{"prefix_hit_ratio", 1.01, 1, true},
		{"prefix_hit_ratio", 1.02, 1, false},
		{"gpu_utilisation", 7.5, 1, false},
		{"kv_cache_usage", math.NaN(), 0, false},
		{"cpu", 1.2, 1.2, true}, // a load generator that is over its limit must show it
	} {
		got, ok := Gauge(c.name, c.value)
		require.Equal(t, c.ok, ok, c)
		if ok {
			require.InDelta(t, c.want, got, 0, c)
		}
	}
	require.Equal(t, "llm_server_running was -5, which is no measurement", NoMeasurement("llm_server_running", -5))
}
