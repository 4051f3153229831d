package results

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
)

// FileRecord is what one file held when its run ended, as run.json says. A file that holds something else is not the
// evidence of that run: lines were lost, repeated or changed since.
type FileRecord struct {
	// Lines counts the lines of a .jsonl file; it is absent for others.
	Lines  int64  `json:"lines,omitempty"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// tally adds up the content of a file while it is written or read.
type tally struct {
	lines, bytes int64
	sum          hash.Hash
}

func newTally() *tally { return &tally{sum: sha256.New()} }

// add takes the next part of the content, which holds this many line feeds.
func (t *tally) add(content []byte, lines int64) {
	t.lines += lines
	t.bytes += int64(len(content))
	_, _ = t.sum.Write(content) //nolint:errcheck // a hash never fails
}

func (t *tally) record() FileRecord {
	return FileRecord{Lines: t.lines, Bytes: t.bytes, SHA256: hex.EncodeToString(t.sum.Sum(nil))}
}

func recordOf(content []byte) FileRecord {
	t := newTally()
	t.add(content, 0)
	return t.record()
}

// histogramName is the name under which run.json records a metric's histograms.
func histogramName(metric string) string { return HistogramDir + "/" + metric + ".json" }

// Recorded says whether run.json holds what the files of this run held when it ended. A run that was killed has no such
// record, nor has one of a version before there was any: of those nobody can tell whether lines were lost since.
func (run *Run) Recorded() bool { return run.Info.Files != nil }

// NotRecorded is what a reader has to know of a run that came to its end and recorded nothing about its files.
const NotRecorded = "run.json does not say what the files held when the run ended (an earlier version wrote it): " +
	"whether lines were lost or repeated since can not be told"

// recorded is the record of one file; nil where the run has none at all. A run that recorded its files recorded every
// one that it wrote.
func (run *Run) recorded(name, path string) (*FileRecord, error) {
	if !run.Recorded() {
		return nil, nil //nolint:nilnil // there is nothing to compare with
	}
	record, ok := run.Info.Files[name]
	if !ok {
		return nil, fmt.Errorf("results: %s: run.json does not say that the run wrote it", path)
	}
	return &record, nil
}

// check compares a file with its record.
func (r *FileRecord) check(path string, got FileRecord) error {
	const changed = "results: %s: it is not the file that the run wrote: "
	switch {
	case r.Lines != got.Lines || (r.Bytes != got.Bytes && got.Lines > 0):
		return fmt.Errorf(changed+"expected %d lines, %d bytes (run.json), got %d lines, %d bytes",
			path, r.Lines, r.Bytes, got.Lines, got.Bytes)
	case r.Bytes != got.Bytes:
		return fmt.Errorf(changed+"expected %d bytes (run.json), got %d bytes", path, r.Bytes, got.Bytes)
	case r.SHA256 != got.SHA256:
		return fmt.Errorf(changed+"expected sha256:%s (run.json), got sha256:%s, of the same length", path, r.SHA256, got.SHA256)
	}
	return nil
}

// checkLines compares a file of lines with its record, once all of it was read; rest is what follows the last line feed.
func (r *FileRecord) checkLines(path string, read *tally, rest []byte) error {
	if len(rest) > 0 {
		read.add(rest, 0)
	}
	return r.check(path, read.record())
}

// CheckHistograms is an error where any histogram is not what the run wrote. A verdict reads only those that its contract
// needs, and evidence of which a part was changed is no evidence.
func (run *Run) CheckHistograms() error {
	for _, metric := range slotMetrics {
		if _, err := run.histogramFile(metric); err != nil {
			return err
		}
	}
	return nil
}

// histogramFile is the content of a metric's file, nil where the metric was never measured.
func (run *Run) histogramFile(metric string) ([]byte, error) {
	path := filepath.Join(run.Dir, HistogramDir, metric+".json")
	content, err := os.ReadFile(path) // #nosec G304 -- the directory is the user's choice
	if errors.Is(err, fs.ErrNotExist) {
		if _, ok := run.Info.Files[histogramName(metric)]; ok {
			return nil, fmt.Errorf("results: %s: it is missing, and run.json says that the run wrote it", path)
		}
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	record, err := run.recorded(histogramName(metric), path)
	if record == nil || err != nil {
		return content, err
	}
	return content, record.check(path, recordOf(content))
}
