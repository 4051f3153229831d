package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Options say how a results directory is written.
type Options struct {
	// Overwrite allows a directory that is not empty. The files of an earlier run are removed, other files stay.
	Overwrite bool
	// Whole makes the evidence appear in the directory when it is complete, by Close, and not before. Until then the directory
	// keeps what it held, and a process that dies leaves nothing that could be taken for results.
	Whole bool
	// Warn is told where the directory could not be locked; nil tells nobody.
	Warn func(error)
	// HistogramInterval is the time between two writings of the histograms; 0 means 5 s. Of a killed run the
	// histograms can be this old.
	HistogramInterval time.Duration
}

const defaultHistogramInterval = 5 * time.Second

// Writer fills a results directory. Its methods may be called from several goroutines. It starts none: the owner
// calls Flush about once a second, and Close at the end.
//
// A failure to write lines is final for the file it happened to. The failing call and every later one that touches
// the file return the same error, which names the file and the cause; the lines already in the file stay whole. The
// histograms are tried again at their next interval, since each writing holds all that was seen.
type Writer struct {
	dir      string // of the files
	place    string // where they belong: another directory while a whole is not complete
	made     bool   // the place was made for them
	lock     *Lock
	gone     error // the files are not where they were written
	interval time.Duration

	mu       sync.Mutex
	info     Info
	requests *appendFile
	series   *appendFile
	events   *appendFile
	counts   Counts

	groups         map[groupKey]*histogramGroup
	histogramCount int
	histogramsDone time.Time // when they were last written
	histogramErr   error
	histogramFiles map[string]FileRecord // of those that were written, by name
	capReported    bool
	closed         bool
}

// Create makes the directory, with its parents, and writes the first run.json. A directory that is not empty is
// refused unless Overwrite is set, and one that another writer has is ErrInUse: it is locked until Close or Discard. The
// schema, and the start time if it is zero, are filled in. After an error the directory holds nothing of the new run.
func Create(dir string, info Info, options Options) (*Writer, error) {
	_, err := os.Stat(dir)
	made := errors.Is(err, fs.ErrNotExist)
	if err := os.MkdirAll(dir, dirMode); err != nil { // #nosec G301 -- see fileMode
		return nil, fmt.Errorf("results: %w", err)
	}
	lock, err := LockDir(dir)
	if err != nil {
		return nil, err
	}
	if lock.Missing != nil && options.Warn != nil {
		options.Warn(lock.Missing)
	}
	if err := refuseOccupied(dir, options); err != nil {
		lock.Release()
		return nil, err
	}
	info.Schema = Schema
	info.Files = nil // those of this run are known at its end
	if info.Started.IsZero() {
		info.Started = time.Now()
	}
	w := &Writer{
		dir: dir, place: dir, made: made, lock: lock, interval: options.HistogramInterval, info: info, groups: make(map[groupKey]*histogramGroup),
		histogramFiles: make(map[string]FileRecord),
	}
	if w.interval == 0 {
		w.interval = defaultHistogramInterval
	}
	if err := w.begin(options); err != nil {
		lock.Release()
		return nil, err
	}
	if err := w.open(); err != nil {
		return nil, errors.Join(err, w.discard())
	}
	return w, nil
}

func refuseOccupied(dir string, options Options) error {
	if options.Overwrite {
		return nil
	}
	occupied, err := Occupied(dir)
	if err == nil && occupied {
		err = fmt.Errorf("results: directory %s is not empty: give another one, or overwrite=true to replace the results in it", dir)
	}
	return err
}

func (w *Writer) open() error {
	for _, f := range []struct {
		to   **appendFile
		name string
	}{{&w.requests, RequestsFile}, {&w.series, SeriesFile}, {&w.events, EventsFile}} {
		file, err := createAppendFile(filepath.Join(w.dir, f.name))
		if err != nil {
			return err
		}
		*f.to = file
	}
	if w.dir != w.place {
		return nil // it is no run before it is whole
	}
	return w.writeInfo()
}

var errClosed = errors.New("results: the writer is closed")

// Request adds one arrival, and its timings to the histograms. ITL samples are not in the record: RecordITL adds them.
func (w *Writer) Request(r *Request) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errClosed
	}
	if r.Outcome < OK || r.Outcome > InFlight {
		return fmt.Errorf("results: a request of row %d has no outcome", r.Row)
	}
	w.counts.Add(r.Outcome, r.Attempt)
	w.requests.buf = AppendRequest(w.requests.buf, r)
	if err := w.requests.committed(); err != nil {
		return err
	}
	group := w.group(r.Phase, r.Step, r.Class)
	for slot, value := range [...]Number{
		slotTTFT: r.TTFT, slotTTFTText: r.TTFTText, slotTPOT: r.TPOT, slotE2E: r.E2E, slotScheduleDelay: r.ScheduleDelay,
	} {
		if !value.Known {
			continue
		}
		if h := w.histogram(group, slot); h != nil {
			if err := h.record(value.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

// RequestOnly adds one arrival whose timings are in histograms that are added by themselves; see AddHistogram.
func (w *Writer) RequestOnly(r *Request) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errClosed
	}
	w.counts.Add(r.Outcome, r.Attempt)
	w.requests.buf = AppendRequest(w.requests.buf, r)
	return w.requests.committed()
}

// AddHistogram adds all that another run's histogram holds.
func (w *Writer) AddHistogram(h *Histogram) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errClosed
	}
	slot := slices.Index(slotMetrics[:], h.Metric)
	if slot < 0 {
		return fmt.Errorf("results: a histogram of the unknown metric %q", h.Metric)
	}
	into := w.histogram(w.group(h.Phase, h.Step, h.Class), slot)
	if into == nil {
		return nil // more combinations than are kept: an event says so
	}
	return into.Merge(h)
}

// HistogramMetrics are the metrics that have histograms.
func HistogramMetrics() []string { return slices.Clone(slotMetrics[:]) }

// RecordITL adds the gaps between chunks, in milliseconds, of one request of a phase, step and class.
func (w *Writer) RecordITL(phase, step, class string, gaps []float64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errClosed
	}
	if len(gaps) == 0 {
		return nil
	}
	h := w.histogram(w.group(phase, step, class), slotITL)
	if h == nil {
		return nil
	}
	for _, gap := range gaps {
		if err := h.record(gap); err != nil {
			return err
		}
	}
	return nil
}

// RecordTimerDelay adds how late one timer of the load generator fired, in milliseconds.
func (w *Writer) RecordTimerDelay(phase, step string, delay float64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errClosed
	}
	h := w.histogram(w.group(phase, step, ""), slotTimerDelay)
	if h == nil {
		return nil
	}
	return h.record(delay)
}

// The places of the metrics in a histogramGroup.
const (
	slotTTFT = iota
	slotTTFTText
	slotTPOT
	slotE2E
	slotScheduleDelay
	slotITL
	slotTimerDelay
	slots
)

var slotMetrics = [slots]string{
	slotTTFT: MetricTTFT, slotTTFTText: MetricTTFTText, slotTPOT: MetricTPOT, slotE2E: MetricE2E,
	slotScheduleDelay: MetricScheduleDelay, slotITL: MetricITL, slotTimerDelay: MetricTimerDelay,
}

type groupKey struct{ phase, step, class string }

// histogramGroup holds the histograms of one phase, step and class: one look-up finds them all.
type histogramGroup struct {
	key groupKey
	all [slots]*Histogram
}

func (w *Writer) group(phase, step, class string) *histogramGroup {
	key := groupKey{phase, step, class}
	g := w.groups[key]
	if g == nil {
		g = &histogramGroup{key: key}
		if w.histogramCount < maxHistograms {
			w.groups[key] = g
		}
	}
	return g
}

// histogram returns nil when there are too many already; the requests themselves are still kept one by one, and an
// event says so.
func (w *Writer) histogram(g *histogramGroup, slot int) *Histogram {
	if g.all[slot] != nil {
		return g.all[slot]
	}
	key := HistogramKey{slotMetrics[slot], g.key.phase, g.key.step, g.key.class}
	if w.histogramCount < maxHistograms {
		w.histogramCount++
		g.all[slot] = newHistogram(key)
		return g.all[slot]
	}
	if !w.capReported {
		w.capReported = true
		// A file that cannot be written says so at the next Flush.
		_ = w.appendJSON(w.events, Event{Time: time.Now().UTC(), Kind: EventHistogramCap, Message: fmt.Sprintf( //nolint:errcheck // see above
			"more than %d combinations of metric, phase, step and class: further ones (first: %s %q %q %q) have no histogram",
			maxHistograms, key.Metric, key.Phase, key.Step, key.Class)})
	}
	return nil
}

// Sample adds one second of the run.
func (w *Writer) Sample(s Sample) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errClosed
	}
	s.Time = s.Time.UTC()
	return w.appendJSON(w.series, s)
}

// Event adds something that happened.
func (w *Writer) Event(e Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errClosed
	}
	e.Time = e.Time.UTC()
	return w.appendJSON(w.events, e)
}

func (w *Writer) appendJSON(file *appendFile, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("results: %s: %w", file.path, err)
	}
	file.buf = append(append(file.buf, line...), '\n')
	return file.committed()
}

// Counts returns the ledger of the arrivals that were added so far.
func (w *Writer) Counts() Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts
}

// UpdateInfo changes run.json.
func (w *Writer) UpdateInfo(change func(*Info)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errClosed
	}
	change(&w.info)
	if w.dir != w.place {
		return nil // Close writes it
	}
	if err := w.checkPlace(); err != nil {
		return err
	}
	return w.writeInfo()
}

func (w *Writer) writeInfo() error {
	content, err := json.MarshalIndent(w.info, "", "  ")
	if err != nil {
		return fmt.Errorf("results: %s: %w", RunFile, err)
	}
	return WriteFile(filepath.Join(w.dir, RunFile), append(content, '\n'))
}

// Flush hands everything that was added to the operating system, so that it outlives this process; the histograms
// only if their interval has passed at now.
func (w *Writer) Flush(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errClosed
	}
	if err := w.checkPlace(); err != nil {
		return err
	}
	errs := make([]error, 0, 4)
	errs = append(errs, w.requests.flush(), w.series.flush(), w.events.flush())
	if now.Sub(w.histogramsDone) >= w.interval {
		w.histogramsDone = now
		w.histogramErr = w.writeHistograms()
	}
	return errors.Join(append(errs, w.histogramErr)...)
}

// writeHistograms writes the files of those metrics that have new values.
func (w *Writer) writeHistograms() error {
	for slot, metric := range slotMetrics {
		var (
			histograms []*Histogram
			changed    bool
		)
		for _, g := range w.groups {
			if h := g.all[slot]; h != nil {
				histograms = append(histograms, h)
				changed = changed || h.changed
			}
		}
		if !changed {
			continue
		}
		record, err := writeHistograms(w.dir, metric, histograms)
		if err != nil {
			return err
		}
		w.histogramFiles[histogramName(metric)] = record
		for _, h := range histograms {
			h.changed = false
		}
	}
	return nil
}

// Close writes all that is left, and run.json with the end of the run. finish may change the last run.json; it may
// be nil. A second Close does nothing.
func (w *Writer) Close(ended time.Time, finish func(*Info)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	defer w.lock.Release()
	if err := w.checkPlace(); err != nil { // what is there now is another one's
		_ = w.closeFiles() //nolint:errcheck // nobody can read them any more
		return err
	}
	w.info.Ended = ended
	if finish != nil {
		finish(&w.info)
	}
	err := errors.Join(w.closeFiles(), w.writeHistograms())
	w.recordFiles()
	err = errors.Join(err, w.writeInfo())
	switch {
	case w.dir == w.place:
		return err
	case err != nil:
		return errors.Join(err, w.discard())
	}
	return w.putInPlace()
}

// ErrGone is returned once the files of a run were removed or replaced while it wrote them: it has no evidence any more.
var ErrGone = errors.New("it was removed or replaced while the run wrote it: the evidence is lost")

// checkPlace is an error once a file is not the one that others find under its name.
func (w *Writer) checkPlace() error {
	for _, file := range []*appendFile{w.requests, w.series, w.events} {
		if w.gone == nil && !file.inPlace() {
			w.gone = fmt.Errorf("results: %s: %w", file.path, ErrGone)
		}
	}
	return w.gone
}

// recordFiles puts into run.json what the files hold. What could not be written is not in them.
func (w *Writer) recordFiles() {
	w.info.Files = maps.Clone(w.histogramFiles)
	for name, file := range map[string]*appendFile{RequestsFile: w.requests, SeriesFile: w.series, EventsFile: w.events} {
		w.info.Files[name] = file.written.record()
	}
}

func (w *Writer) closeFiles() error {
	var errs []error
	for _, file := range []*appendFile{w.requests, w.series, w.events} {
		if file != nil {
			errs = append(errs, file.close())
		}
	}
	return errors.Join(errs...)
}
