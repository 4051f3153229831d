package results

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// unfinishedDir is where evidence is written that is to appear as a whole; see Options.
const unfinishedDir = ".unfinished"

const dirMode = 0o755 // see fileMode

// begin makes the directory ready for the files.
func (w *Writer) begin(options Options) error {
	unfinished := filepath.Join(w.place, unfinishedDir)
	if err := os.RemoveAll(unfinished); err != nil { // of a writer that was killed
		return fmt.Errorf("results: %w", err)
	}
	if options.Whole {
		w.dir = unfinished
	} else if err := clearResults(w.place); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(w.dir, HistogramDir), dirMode); err != nil { // #nosec G301 -- see fileMode
		return fmt.Errorf("results: %w", err)
	}
	return nil
}

// clearResults removes the files of a run; run.json first, since a directory without it is none of results. Other files stay.
func clearResults(dir string) error {
	for _, name := range []string{
		RunFile, RequestsFile, SeriesFile, EventsFile, VerdictFile, MarkdownFile, HTMLFile, JUnitFile, ReportFile, RatesFile,
	} {
		if err := removeIfThere(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	names, err := histogramNames(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := removeIfThere(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// histogramNames are the files of histograms, below dir.
func histogramNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(dir, HistogramDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("results: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) == ".json" {
			names = append(names, filepath.Join(HistogramDir, entry.Name()))
		}
	}
	return names, nil
}

// putInPlace replaces what was in the directory by the whole that was written, run.json last: whoever reads in between finds
// no results.
func (w *Writer) putInPlace() error {
	names, err := histogramNames(w.dir)
	if err != nil {
		return err
	}
	if err := clearResults(w.place); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(w.place, HistogramDir), dirMode); err != nil { // #nosec G301 -- see fileMode
		return fmt.Errorf("results: %w", err)
	}
	for _, name := range append(names, RequestsFile, SeriesFile, EventsFile, RunFile) {
		if err := os.Rename(filepath.Join(w.dir, name), filepath.Join(w.place, name)); err != nil {
			return fmt.Errorf("results: %w", err)
		}
	}
	if err := os.RemoveAll(w.dir); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return nil
}

// Discard removes what was written, and the directory where it was made for it: for what could not begin, or was not to be
// half done. What an earlier run
// had left in the directory is kept by a writer of a whole alone. After Close it does nothing.
func (w *Writer) Discard() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	return w.discard()
}

func (w *Writer) discard() error {
	defer w.lock.Release()
	for _, file := range []*appendFile{w.requests, w.series, w.events} {
		if file != nil {
			_ = file.file.Close() //nolint:errcheck // nobody will read it; closed already after a Close that failed
		}
	}
	if w.gone != nil {
		return nil // what is there now is another one's
	}
	var err error
	if w.dir == w.place {
		err = clearResults(w.place)
		_ = os.Remove(filepath.Join(w.place, HistogramDir)) //nolint:errcheck // it may hold other files
	} else if err = os.RemoveAll(w.dir); err != nil {
		err = fmt.Errorf("results: %w", err)
	}
	w.lock.Release()
	if w.made {
		_ = os.Remove(w.place) //nolint:errcheck // only if it is empty
	}
	return err
}
