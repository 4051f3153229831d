package results

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Run is a results directory that is read.
type Run struct {
	Dir  string
	Info Info
}

// Open reads run.json. The other files are read when they are asked for.
func Open(dir string) (*Run, error) {
	path := filepath.Join(dir, RunFile)
	content, err := os.ReadFile(path) // #nosec G304 -- the directory is the user's choice
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("results: %s is no results directory: it has no %s", dir, RunFile)
	}
	if err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	run := &Run{Dir: dir}
	if err := DecodeJSON(content, &run.Info); err != nil {
		return nil, fmt.Errorf("results: %s: %w", path, err)
	}
	if err := checkSchema(path, run.Info.Schema); err != nil {
		return nil, err
	}
	if err := run.Info.check(); err != nil {
		return nil, fmt.Errorf("results: %s: %w", path, err)
	}
	return run, nil
}

func checkSchema(path, schema string) error {
	if schema == Schema || strings.HasPrefix(schema, Schema+".") {
		return nil
	}
	return fmt.Errorf("results: %s: schema is %q, this version reads %q", path, schema, Schema)
}

// Torn counts the incomplete last lines that were found and left out: 0 or 1 per file. A process that is killed
// while it writes leaves one.
type Torn int

// maxLine is the longest line that is accepted; a line of requests.jsonl has about 500 bytes.
const maxLine = 1 << 20

// Requests calls yield for each line of requests.jsonl, in the order of the file, which is that of the requests'
// ends. The request is only valid during the call. An error of yield ends the reading and is returned as it is.
func (run *Run) Requests(yield func(*Request) error) (Torn, error) {
	var request Request
	parser := requestParser{run: run.Info.lifetime()}
	parse := func(line []byte) error { return parser.parse(line, &request) }
	if !run.Recorded() {
		twice := newDoubled()
		parse = func(line []byte) error {
			if err := parser.parse(line, &request); err != nil {
				return err
			}
			return twice.check(line, &request)
		}
	}
	return run.lines(RequestsFile, parse, func() error { return yield(&request) })
}

// Series calls yield for each line of series.jsonl.
func (run *Run) Series(yield func(*Sample) error) (Torn, error) {
	var sample Sample
	return run.lines(SeriesFile, func(line []byte) error {
		sample = Sample{}
		if err := DecodeJSON(line, &sample); err != nil {
			return err
		}
		return sample.check(run.Info.lifetime())
	}, func() error { return yield(&sample) })
}

// Events returns the lines of events.jsonl.
func (run *Run) Events() ([]Event, Torn, error) {
	var (
		events []Event
		event  Event
	)
	torn, err := run.lines(EventsFile, func(line []byte) error {
		event = Event{}
		if err := DecodeJSON(line, &event); err != nil {
			return err
		}
		return event.check(run.Info.lifetime())
	}, func() error {
		events = append(events, event)
		return nil
	})
	return events, torn, err
}

// Histograms returns the histograms of one metric: nil where it was never measured.
func (run *Run) Histograms(metric string) ([]*Histogram, error) {
	return run.readHistograms(metric)
}

// lines calls parse, and then yield, for each line of a file. What is wrong with a line is told with its number,
// unless it is the last one and its newline is missing. At the end the file is compared with what run.json says of it: what
// was yielded before counts only if no error follows.
func (run *Run) lines(name string, parse func([]byte) error, yield func() error) (Torn, error) {
	path := filepath.Join(run.Dir, name)
	file, err := os.Open(path) // #nosec G304 -- the directory is the user's choice
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("results: %s is missing from %s", name, run.Dir)
	}
	if err != nil {
		return 0, fmt.Errorf("results: %w", err)
	}
	defer file.Close() //nolint:errcheck // only read from
	record, err := run.recorded(name, path)
	if err != nil {
		return 0, err
	}
	read := newTally()

	reader := bufio.NewReaderSize(file, maxLine)
	for number := 1; ; number++ {
		line, err := reader.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return 0, fmt.Errorf("results: %s:%d: the line is longer than %d bytes", path, number, maxLine)
		case errors.Is(err, io.EOF):
			if record != nil {
				return 0, record.checkLines(path, read, line)
			}
			return lastLine(line, parse, yield)
		case err != nil:
			return 0, fmt.Errorf("results: %s: %w", path, err)
		}
		if record != nil {
			read.add(line, 1)
		}
		if err := parse(bytes.TrimSuffix(line, []byte{'\n'})); err != nil {
			return 0, fmt.Errorf("results: %s:%d: %w", path, number, err)
		}
		if err := yield(); err != nil {
			return 0, err
		}
	}
}

// lastLine treats what stands after the last newline: nothing, a line that only lacks its newline, or a torn one.
func lastLine(line []byte, parse func([]byte) error, yield func() error) (Torn, error) {
	if len(line) == 0 {
		return 0, nil
	}
	if parse(line) != nil {
		return 1, nil //nolint:nilerr // a torn line is counted, not an error
	}
	return 0, yield()
}
