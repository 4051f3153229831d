package results

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// finished writes a run of three requests, two seconds and one event that came to its end.
func finished(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	w, err := Create(dir, Info{Started: noon}, Options{})
	require.NoError(t, err)
	for i := range int64(3) {
		require.NoError(t, w.Request(numbered(i)))
		require.NoError(t, w.RecordITL("steady", "", "", []float64{5}))
	}
	n := int64(2)
	for i := range 2 {
		require.NoError(t, w.Sample(Sample{Time: noon.Add(time.Duration(i) * time.Second), Phase: "steady", Started: &n}))
	}
	require.NoError(t, w.Event(Event{Time: noon, Kind: EventScrapeGap, Message: "gap"}))
	require.NoError(t, w.Close(noon.Add(time.Minute), nil))
	return dir
}

// readEverything reads a directory as a verdict does, and returns the first error.
func readEverything(dir string) error {
	run, err := Open(dir)
	if err != nil {
		return err
	}
	if _, err := run.Requests(func(*Request) error { return nil }); err != nil {
		return err
	}
	if _, err := run.Series(func(*Sample) error { return nil }); err != nil {
		return err
	}
	if _, _, err := run.Events(); err != nil {
		return err
	}
	return run.CheckHistograms()
}

func edit(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	changed := change(bytes.Clone(content))
	require.NotEqual(t, string(content), string(changed))
	require.NoError(t, os.WriteFile(path, changed, 0o600))
}

// forgetFiles makes a directory one of a version that recorded nothing about its files.
func forgetFiles(t *testing.T, dir string) {
	t.Helper()
	edit(t, filepath.Join(dir, RunFile), func(content []byte) []byte {
		var info map[string]any
		require.NoError(t, json.Unmarshal(content, &info))
		delete(info, "files")
		without, err := json.Marshal(info)
		require.NoError(t, err)
		return without
	})
}

func TestTheEndOfARunRecordsWhatEachFileHolds(t *testing.T) {
	dir := finished(t)
	require.NoError(t, readEverything(dir))
	run, err := Open(dir)
	require.NoError(t, err)
	require.True(t, run.Recorded())
	want := map[string]FileRecord{}
	for name, lines := range map[string]int64{
		RequestsFile: 3, SeriesFile: 2, EventsFile: 1, "histograms/ttft.json": 0, "histograms/e2e.json": 0, "histograms/itl.json": 0,
	} {
		content, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		require.NoError(t, err)
		want[name] = FileRecord{Lines: lines, Bytes: int64(len(content)), SHA256: fmt.Sprintf("%x", sha256.Sum256(content))}
	}
	require.Equal(t, want, run.Info.Files)
}

func TestAFinishedRunRefusesFilesThatAreNotWhatItWrote(t *testing.T) {
	line := len(AppendRequest(nil, numbered(0)))
	without := func(n int) func([]byte) []byte {
		return func(b []byte) []byte {
			lines := bytes.SplitAfter(b, []byte{'\n'})
			return bytes.Join(append(lines[:n:n], lines[n+1:]...), nil)
		}
	}
	for _, c := range []struct {
		name, file string
		change     func([]byte) []byte
		err        string
	}{
		{"a line deleted", RequestsFile, without(1), fmt.Sprintf(
			"it is not the file that the run wrote: expected 3 lines, %d bytes (run.json), got 2 lines, %d bytes", 3*line, 2*line)},
		{"the last line deleted", RequestsFile, without(2), "expected 3 lines, "},
		{"a line duplicated", RequestsFile, func(b []byte) []byte { return append(b, b[:line]...) }, fmt.Sprintf(
			"expected 3 lines, %d bytes (run.json), got 4 lines, %d bytes", 3*line, 4*line)},
		{
			"one line in the place of another", RequestsFile, func(b []byte) []byte { return append(b[:2*line], b[:line]...) },
			"it is not the file that the run wrote: expected sha256:",
		},
		{"a digit changed", RequestsFile, func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"e2e":100`), []byte(`"e2e":101`), 1)
		}, "it is not the file that the run wrote: expected sha256:"},
		{"the last line torn", RequestsFile, func(b []byte) []byte { return b[:len(b)-20] }, fmt.Sprintf(
			"expected 3 lines, %d bytes (run.json), got 2 lines, %d bytes", 3*line, 3*line-20)},
		{"the last newline lost", RequestsFile, func(b []byte) []byte { return b[:len(b)-1] }, fmt.Sprintf(
			"got 2 lines, %d bytes", 3*line-1)},
		{"emptied", RequestsFile, func([]byte) []byte { return nil }, "got 0 lines, 0 bytes"},
		{"the series emptied", SeriesFile, func([]byte) []byte { return nil }, "expected 2 lines, "},
		{"the series cut", SeriesFile, without(1), "got 1 lines, "},
		{"an event deleted", EventsFile, without(0), "expected 1 lines, "},
		{"a histogram changed", "histograms/ttft.json", func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"phase": "steady"`), []byte(`"phase": "warmup"`), 1)
		}, "it is not the file that the run wrote: expected sha256:"},
		{"a histogram emptied", "histograms/e2e.json", func([]byte) []byte { return nil }, "got 0 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := finished(t)
			path := filepath.Join(dir, filepath.FromSlash(c.file))
			edit(t, path, c.change)
			err := readEverything(dir)
			require.ErrorContains(t, err, "results: "+path+": ")
			require.ErrorContains(t, err, c.err)
			require.ErrorContains(t, err, "expected ")
			require.ErrorContains(t, err, "got ")
		})
	}
	t.Run("a histogram is gone", func(t *testing.T) {
		dir := finished(t)
		path := filepath.Join(dir, HistogramDir, "itl.json")
		require.NoError(t, os.Remove(path))
		require.EqualError(t, readEverything(dir), "results: "+path+": it is missing, and run.json says that the run wrote it")
		run, err := Open(dir)
		require.NoError(t, err)
		_, err = run.Histograms(MetricITL)
		require.ErrorContains(t, err, path+": it is missing", "whoever reads only this one is told too")
	})
	t.Run("a histogram of another run", func(t *testing.T) {
		dir := finished(t)
		path := filepath.Join(dir, HistogramDir, "tpot.json")
		require.NoError(t, os.WriteFile(path, []byte(`{}`), 0o600))
		require.EqualError(t, readEverything(dir), "results: "+path+": run.json does not say that the run wrote it")
	})
	t.Run("a record is gone", func(t *testing.T) {
		dir := finished(t)
		edit(t, filepath.Join(dir, RunFile), func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"`+SeriesFile+`"`), []byte(`"other.jsonl"`), 1)
		})
		require.EqualError(t, readEverything(dir), "results: "+filepath.Join(dir, SeriesFile)+": run.json does not say that the run wrote it")
	})
}

func TestRunsWithoutARecordAreReadAsBefore(t *testing.T) {
	dir := finished(t)
	forgetFiles(t, dir)
	edit(t, filepath.Join(dir, RequestsFile), func(b []byte) []byte { return b[:len(b)-20] })
	require.NoError(t, readEverything(dir))
	run, err := Open(dir)
	require.NoError(t, err)
	require.False(t, run.Recorded())

	killed := filepath.Join(t.TempDir(), "killed")
	w, err := Create(killed, Info{Started: noon, Files: map[string]FileRecord{RequestsFile: {Lines: 9}}}, Options{})
	require.NoError(t, err, "what is known of another run's files says nothing about these")
	require.NoError(t, w.Request(numbered(1)))
	require.NoError(t, w.Flush(noon))
	require.NoError(t, readEverything(killed))
}
