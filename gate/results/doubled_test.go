package results

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Of a run that recorded nothing about its files, as a killed one did not, a line of a row that stands there twice is the same request.
func TestALineThatStandsThereTwiceIsRefused(t *testing.T) {
	one, other := string(AppendRequest(nil, numbered(1))), string(AppendRequest(nil, numbered(2)))
	for _, c := range []struct {
		lines string
		at    int // 0 for none
	}{
		{one + one, 2},
		{one + other + one, 3},
		{one + other + one + other, 3},
		{one + other, 0},
		{`{"row":1,"attempt":1,"outcome":"ok","start":"2026-01-31T12:00:01Z"}` + "\n" + // the turns of a session are of one row
			`{"row":1,"attempt":1,"outcome":"ok","start":"2026-01-31T12:00:02Z"}` + "\n", 0},
		{`{"row":1,"outcome":"failed"}` + "\n" + `{"row":1,"outcome":"failed","attempt":2}` + "\n", 0},
		{`{"row":1,"outcome":"ok","scenario":"a"}` + "\n" + `{"row":1,"outcome":"ok","scenario":"b"}` + "\n", 0},
		{strings.Repeat(`{"outcome":"dropped","due":"2026-01-31T12:00:01Z"}`+"\n", 3), 0}, // k6's executors drop several at once
		{strings.Repeat(`{"row":1,"outcome":"in_flight","start":"2026-01-31T12:00:01Z"}`+"\n", 2), 0},
		{strings.Repeat(`{"row":1,"outcome":"dropped","due":"2026-01-31T12:00:01Z"}`+"\n", 2), 2},
	} {
		dir := unchecked(t, RequestsFile, c.lines)
		run, err := Open(dir)
		require.NoError(t, err)
		_, err = run.Requests(func(*Request) error { return nil })
		if c.at == 0 {
			require.NoError(t, err, c.lines)

			continue
		}
		require.EqualError(t, err, fmt.Sprintf("results: %s:%d: row 1 stands here again, in the same words as before: the line was doubled",
			filepath.Join(dir, RequestsFile), c.at))
	}
}

// BenchmarkRequestsOfAKilledRun tells what it costs to look for doubled lines, beside BenchmarkRequests.
func BenchmarkRequestsOfAKilledRun(b *testing.B) {
	const n = 1_000_000
	dir := b.TempDir()
	w, err := Create(filepath.Join(dir, "run"), Info{Started: noon}, Options{})
	require.NoError(b, err)
	var lines []byte
	for i := range int64(n) {
		lines = AppendRequest(lines, numbered(i))
	}
	require.NoError(b, w.Close(noon.Add(time.Minute), nil))
	require.NoError(b, os.WriteFile(filepath.Join(dir, "run", RequestsFile), lines, 0o600))
	run, err := Open(filepath.Join(dir, "run"))
	require.NoError(b, err)
	run.Info.Files = nil
	b.ReportAllocs()
	for b.Loop() {
		_, err := run.Requests(func(*Request) error { return nil })
		require.NoError(b, err)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/request")
}
