package results

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The tests that kill a writer, or fill its disk, run this binary again as that writer.
const (
	childEnv     = "SAFEQPS_RESULTS_TEST_CHILD"
	childKilled  = "killed"
	childNoSpace = "no-space"
	sizeLimit    = 64 << 10
)

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case childKilled:
		writeUntilKilled(os.Args[1])
	case childNoSpace:
		writeUntilFull(os.Args[1])
	default:
		os.Exit(m.Run())
	}
}

func childCommand(t *testing.T, mode, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], dir)
	cmd.Env = append(os.Environ(), childEnv+"="+mode)
	cmd.Stderr = os.Stderr
	return cmd
}

func numbered(i int64) *Request {
	return &Request{Row: i, Phase: "steady", Outcome: OK, Due: noon, Start: noon, TTFT: Num(float64(i)), E2E: Num(100)}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func readAll(t *testing.T, dir string) ([]Request, Torn) {
	t.Helper()
	run, err := Open(dir)
	require.NoError(t, err)
	var all []Request
	torn, err := run.Requests(func(r *Request) error {
		all = append(all, *r)
		return nil
	})
	require.NoError(t, err)
	return all, torn
}

func TestWriterRoundTrip(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "results")
	ratio := 0.25
	w, err := Create(dir, Info{
		Started: noon, Contract: json.RawMessage(`{"confidence":0.95}`), Seeds: map[string]uint64{"arrivals": 1<<64 - 1},
		Labels: []string{LabelIgnoreEOS}, IdealPrefixHitRatio: &ratio, Segment: "0:1/3",
	}, Options{})
	require.NoError(t, err)

	full := fullRequest()
	dropped := Request{Row: 8, Outcome: Dropped, Due: noon, Phase: "steady"}
	require.NoError(t, w.Request(&full))
	require.NoError(t, w.Request(&dropped))
	require.NoError(t, w.RecordITL("steady", "5", "long", []float64{10, 20, 30}))
	offered, depth := int64(5), 0.0
	sample := Sample{Time: noon, Phase: "steady", Offered: &offered, Server: map[string]float64{"queue_depth": depth}}
	require.NoError(t, w.Sample(sample))
	saw := 0.25
	event := Event{Time: noon, Kind: EventAbort, Message: "error rate", Rule: "abort.error_rate", Saw: &saw}
	require.NoError(t, w.Event(event))
	// full is a retry: it is no arrival.
	require.Equal(t, Counts{Offered: 1, Dropped: 1, Retries: 1}, w.Counts())
	require.NoError(t, w.Close(noon.Add(time.Minute), func(i *Info) { i.Aborted = &Aborted{Rule: "x", Saw: "y", At: noon} }))
	require.NoError(t, w.Close(noon, nil), "a second Close does nothing")
	require.ErrorIs(t, w.Request(&full), errClosed)

	run, err := Open(dir)
	require.NoError(t, err)
	require.Equal(t, Schema, run.Info.Schema)
	require.Equal(t, noon.Add(time.Minute), run.Info.Ended)
	require.Equal(t, &Aborted{Rule: "x", Saw: "y", At: noon}, run.Info.Aborted)
	require.Equal(t, uint64(1<<64-1), run.Info.Seeds["arrivals"])
	require.JSONEq(t, `{"confidence":0.95}`, string(run.Info.Contract))
	require.InDelta(t, 0.25, *run.Info.IdealPrefixHitRatio, 0)

	all, torn := readAll(t, dir)
	require.Zero(t, torn)
	require.Equal(t, []Request{full, dropped}, all)

	var samples []Sample
	_, err = run.Series(func(s *Sample) error {
		samples = append(samples, *s)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []Sample{sample}, samples)
	require.Nil(t, samples[0].Started, "what was not measured stays absent")

	events, _, err := run.Events()
	require.NoError(t, err)
	require.Equal(t, []Event{event}, events)

	itl, err := run.Histograms(MetricITL)
	require.NoError(t, err)
	require.Len(t, itl, 1)
	require.Equal(t, HistogramKey{MetricITL, "steady", "5", "long"}, itl[0].HistogramKey)
	require.Equal(t, int64(3), itl[0].Count())
	none, err := run.Histograms("never")
	require.NoError(t, err)
	require.Nil(t, none)
}

func TestNonEmptyDirectoryIsNotOverwritten(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir, Info{Started: noon}, Options{})
	require.NoError(t, err, "an empty directory is fine")
	require.NoError(t, w.Request(numbered(1)))
	require.NoError(t, w.Close(noon, nil))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine.txt"), []byte("x"), 0o600))
	derived := []string{VerdictFile, MarkdownFile, JUnitFile, HTMLFile, ReportFile, RatesFile}
	for _, name := range derived {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600))
	}

	_, err = Create(dir, Info{Started: noon}, Options{})
	require.EqualError(t, err, "results: directory "+dir+
		" is not empty: give another one, or overwrite=true to replace the results in it")
	all, _ := readAll(t, dir)
	require.Len(t, all, 1, "the refusal left the old run alone")

	w, err = Create(dir, Info{Started: noon}, Options{Overwrite: true})
	require.NoError(t, err)
	require.NoError(t, w.Close(noon, nil))
	all, _ = readAll(t, dir)
	require.Empty(t, all)
	for _, name := range derived {
		require.NoFileExists(t, filepath.Join(dir, name), "what was said of the old run must not stay")
	}
	require.NoFileExists(t, filepath.Join(dir, HistogramDir, "ttft.json"))
	require.FileExists(t, filepath.Join(dir, "mine.txt"))
}

func TestFlushWritesLinesAtOnceAndHistogramsAtTheirInterval(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir, Info{Started: noon}, Options{HistogramInterval: 10 * time.Second})
	require.NoError(t, err)
	histogramCount := func() int64 {
		run, err := Open(dir)
		require.NoError(t, err)
		hs, err := run.Histograms(MetricTTFT)
		require.NoError(t, err)
		require.Len(t, hs, 1)
		return hs[0].Count()
	}
	require.NoError(t, w.Request(numbered(1)))
	all, _ := readAll(t, dir)
	require.Empty(t, all, "buffered")
	require.NoError(t, w.Flush(noon))
	all, _ = readAll(t, dir)
	require.Len(t, all, 1)
	require.Equal(t, int64(1), histogramCount())

	require.NoError(t, w.Request(numbered(2)))
	require.NoError(t, w.Flush(noon.Add(9*time.Second)))
	all, _ = readAll(t, dir)
	require.Len(t, all, 2)
	require.Equal(t, int64(1), histogramCount())
	require.NoError(t, w.Flush(noon.Add(10*time.Second)))
	require.Equal(t, int64(2), histogramCount())

	run, err := Open(dir)
	require.NoError(t, err)
	require.True(t, run.Info.Ended.IsZero(), "a run that goes on has no end")
	require.NoError(t, w.Close(noon, nil))
}

func TestBufferIsBounded(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir, Info{Started: noon}, Options{})
	require.NoError(t, err)
	for i := range int64(20_000) {
		require.NoError(t, w.Request(numbered(i)))
		require.LessOrEqual(t, len(w.requests.buf), bufferLimit)
	}
	info, err := os.Stat(filepath.Join(dir, RequestsFile))
	require.NoError(t, err)
	require.Positive(t, info.Size(), "the buffer was written without a Flush")
	require.NoError(t, w.Close(noon, nil))
	all, _ := readAll(t, dir)
	require.Len(t, all, 20_000)
	require.Equal(t, int64(19_999), all[19_999].Row)
}

func writeUntilKilled(dir string) {
	w, err := Create(dir, Info{Started: noon}, Options{})
	fail(err)
	for second := range int64(3) {
		for i := range int64(100) {
			fail(w.Request(numbered(second*100 + i)))
			fail(w.RecordITL("steady", "", "", []float64{5}))
		}
		fail(w.Flush(noon.Add(time.Duration(second) * time.Second)))
	}
	for i := range int64(100) { // a second that is never flushed
		fail(w.Request(numbered(300 + i)))
	}
	fmt.Println("flushed")
	select {}
}

func TestKilledRunKeepsWhatWasFlushed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	cmd := childCommand(t, childKilled, dir)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "flushed\n", line)
	require.NoError(t, cmd.Process.Kill())
	require.ErrorContains(t, cmd.Wait(), "killed")

	all, torn := readAll(t, dir)
	require.Zero(t, torn)
	require.Len(t, all, 300)
	for i, r := range all {
		require.Equal(t, *numbered(int64(i)), r)
	}
	run, err := Open(dir)
	require.NoError(t, err)
	require.True(t, run.Info.Ended.IsZero())
	itl, err := run.Histograms(MetricITL)
	require.NoError(t, err)
	require.Equal(t, int64(100), itl[0].Count(), "the histograms are those of the first flush")
}

// writeUntilFull runs against a limit on the size of files: the kernel then cuts a write short and refuses the rest,
// exactly as a full disk does.
func writeUntilFull(dir string) {
	w, err := Create(dir, Info{Started: noon}, Options{})
	fail(err)
	signal.Ignore(syscall.SIGXFSZ)
	fail(syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: sizeLimit, Max: sizeLimit}))
	var errs []string
	for i := int64(0); len(errs) < 3; i++ {
		err := w.Request(numbered(i))
		if err == nil && i%50 == 49 {
			err = w.Flush(noon)
		}
		if err != nil {
			errs = append(errs, err.Error())
		}
	}
	if err := w.Close(noon, nil); err != nil {
		errs = append(errs, err.Error())
	}
	fail(json.NewEncoder(os.Stdout).Encode(errs))
	os.Exit(0)
}

func TestFullDiskIsOneClearErrorAndNoHalfLine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	out, err := childCommand(t, childNoSpace, dir).Output()
	require.NoError(t, err)
	var errs []string
	require.NoError(t, json.Unmarshal(out, &errs))
	want := fmt.Sprintf("results: cannot write %s: file too large; what was measured from here on is lost",
		filepath.Join(dir, RequestsFile))
	require.Equal(t, []string{want, want, want, want}, errs, "the same error each time, at Close too")

	all, torn := readAll(t, dir)
	require.Zero(t, torn)
	for i, r := range all {
		require.Equal(t, int64(i), r.Row)
	}
	size := 0
	for i := range all {
		size += len(AppendRequest(nil, &all[i]))
	}
	next := len(AppendRequest(nil, numbered(int64(len(all)))))
	require.LessOrEqual(t, size, sizeLimit)
	require.Greater(t, size+next, sizeLimit, "all the lines that fit are kept")
}

func TestReaderToleratesOnlyATornLastLine(t *testing.T) {
	good, more := string(AppendRequest(nil, numbered(1))), string(AppendRequest(nil, numbered(2)))
	for _, c := range []struct {
		name, content string
		lines         int
		torn          Torn
		err           string
	}{
		{name: "empty"},
		{name: "whole", content: good + more, lines: 2},
		{name: "torn", content: good + good[:40], lines: 1, torn: 1},
		{name: "only a torn one", content: `{"row"`, torn: 1},
		{name: "zeros after a power loss", content: good + "\x00\x00\x00", lines: 1, torn: 1},
		{name: "newline missing", content: good + strings.TrimSuffix(more, "\n"), lines: 2},
		{name: "broken in the middle", content: good + good[:40] + "\n" + good, err: ":2: due: column 41: the line ends"},
		{name: "broken last with its newline", content: good + "{}\n", err: ":2: outcome is missing"},
		{name: "blank line", content: good + "\n" + good, err: ":2: column 1: the line ends"},
		{name: "endless line", content: strings.Repeat("x", maxLine+1), err: ":1: the line is longer than 1048576 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			w, err := Create(dir, Info{Started: noon}, Options{})
			require.NoError(t, err)
			require.NoError(t, w.Close(noon, nil))
			forgetFiles(t, dir)
			path := filepath.Join(dir, RequestsFile)
			require.NoError(t, os.WriteFile(path, []byte(c.content), 0o600))
			run, err := Open(dir)
			require.NoError(t, err)
			lines := 0
			torn, err := run.Requests(func(*Request) error {
				lines++
				return nil
			})
			if c.err != "" {
				require.ErrorContains(t, err, path+c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.lines, lines)
			require.Equal(t, c.torn, torn)
		})
	}
}

func TestOpenNamesWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(dir)
	require.EqualError(t, err, "results: "+dir+" is no results directory: it has no run.json")
	path := filepath.Join(dir, RunFile)
	require.NoError(t, os.WriteFile(path, []byte(`{"schema":"safeqps-results/2"}`), 0o600))
	_, err = Open(dir)
	require.EqualError(t, err, `results: `+path+`: schema is "safeqps-results/2", this version reads "safeqps-results/1"`)
	require.NoError(t, os.WriteFile(path, []byte(`{"schema":"safeqps-results/1.1","new":1}`), 0o600))
	run, err := Open(dir)
	require.NoError(t, err, "a later minor version")
	_, err = run.Requests(func(*Request) error { return nil })
	require.EqualError(t, err, "results: requests.jsonl is missing from "+dir)
	require.NoError(t, os.WriteFile(path, []byte(`{"schema":`), 0o600))
	_, err = Open(dir)
	require.ErrorContains(t, err, path)
}

func TestCounts(t *testing.T) {
	var c Counts
	for outcome, n := range map[Outcome]int{OK: 5, Failed: 4, Cancelled: 3, Dropped: 2, InFlight: 1} {
		for range n {
			c.Add(outcome, 1)
		}
	}
	c.Add(Failed, 2)
	want := Counts{Offered: 15, Started: 13, Dropped: 2, Completed: 5, Failed: 4, Cancelled: 3, InFlight: 1, Retries: 1}
	require.Equal(t, want, c)
	require.NoError(t, c.Check())
	require.Equal(t, int64(30), c.Plus(c).Offered)
	require.NoError(t, c.Plus(c).Check())

	lost := c
	lost.Completed--
	require.EqualError(t, lost.Check(), "ledger: started 13 is not completed 4 + failed 4 + cancelled 3 + in flight 1")
	lost = c
	lost.Dropped++
	require.EqualError(t, lost.Check(), "ledger: offered 15 is not started 13 + dropped 3")
}

func BenchmarkWriterRequest(b *testing.B) {
	w, err := Create(b.TempDir(), Info{}, Options{})
	require.NoError(b, err)
	r := fullRequest()
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Request(&r); err != nil {
			b.Fatal(err)
		}
	}
	require.NoError(b, w.Close(noon, nil))
}
