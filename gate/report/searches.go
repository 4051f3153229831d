package report

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/safeqps/xk6-safeqps/gate/capacity"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

// NameSearches gives the runs of capacity searches the workload and the arrival process of their search: the script that ran
// is the same for all of them. They come from the envelope; before a search has written one, the directory of the search
// stands for the workload. A run that is of no search stays as it is. An envelope that cannot be read is an error.
func NameSearches(in *Input) error {
	known := make(map[string]capacity.EnvelopeEntry)
	for i := range in.Runs {
		r := &in.Runs[i]
		dir, err := searchOf(r.Dir)
		if err != nil {
			return err
		}
		if dir == "" {
			continue
		}
		entry, ok := known[dir]
		if !ok {
			if entry, err = entryOf(dir); err != nil {
				return err
			}
			known[dir] = entry
		}
		r.Workload, r.Process = entry.Workload, entry.Arrivals
	}
	return nil
}

// searchOf is the directory of the search that a run is a probe of; "" where it is none.
func searchOf(run string) (string, error) {
	dir, err := results.Place(run)
	if err != nil {
		return "", fmt.Errorf("report: %w", err)
	}
	for range searchDepth {
		dir = filepath.Dir(dir)
		for _, name := range []string{capacity.StateFile, capacity.ResultFile} {
			_, err := os.Stat(filepath.Join(dir, name))
			if err == nil {
				return dir, nil
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return "", fmt.Errorf("report: %w", err)
			}
		}
	}
	return "", nil
}

// entryOf is the entry of a search in the envelope, which lies in its directory, or in the one above where there were several
// searches.
func entryOf(search string) (capacity.EnvelopeEntry, error) {
	name := filepath.Base(search)
	if e, err := envelopeIn(search); err != nil || (e != nil && len(e.Entries) == 1) {
		return firstOf(e), err
	}
	e, err := envelopeIn(filepath.Dir(search))
	if err != nil {
		return capacity.EnvelopeEntry{}, err
	}
	if e != nil {
		if entry := called(e.Entries, name); entry != nil {
			return *entry, nil
		}
	}
	return capacity.EnvelopeEntry{Workload: name}, nil
}

func firstOf(e *capacity.Envelope) capacity.EnvelopeEntry {
	if e == nil {
		return capacity.EnvelopeEntry{}
	}
	return e.Entries[0]
}

// called is the entry of the search in the directory of that name; nil where there is none. Envelopes of earlier versions do
// not say the directory: it was named after what the search was asked for, which for a recorded trace they do not say either.
func called(entries []capacity.EnvelopeEntry, name string) *capacity.EnvelopeEntry {
	var likely *capacity.EnvelopeEntry
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Dir != "":
			if e.Dir == name {
				return e
			}
		case strings.Trim(e.Workload+"-"+e.Arrivals, "-") == name:
			return e
		case e.Arrivals == capacity.TraceArrivals && (name == e.Workload || strings.HasPrefix(name, e.Workload+"-")):
			if likely == nil || len(e.Workload) > len(likely.Workload) {
				likely = e
			}
		}
	}
	return likely
}

// envelopeIn reads the envelope in a directory; nil where there is none.
func envelopeIn(dir string) (*capacity.Envelope, error) {
	path := filepath.Join(dir, capacity.EnvelopeFile)
	content, err := os.ReadFile(path) // #nosec G304 -- the user's choice
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // see above
	}
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	envelope, err := capacity.ReadEnvelope(content)
	if err != nil {
		return nil, fmt.Errorf("report: %s: %w", path, err)
	}
	return envelope, nil
}

// workload is what tells the run's requests from those of others: what its search calls it, or else the script.
func (r *Run) workload() string { return cmp.Or(r.Workload, r.Info.Workload) }

// safeLine is a Safe QPS in the charts against the rate. Where there are several, it has the name of its search, and the letter
// of its curve.
type safeLine struct {
	Value  float64 `json:"value"`
	Label  string  `json:"label,omitempty"`
	Letter string  `json:"letter,omitempty"`
}

func safeLines(all []Capacity, curves []curve) []safeLine {
	var lines []safeLine
	for i := range all {
		c := &all[i]
		if c.SafeQPS != nil {
			lines = append(lines, safeLine{Value: *c.SafeQPS, Label: nameOf(c), Letter: letterOf(c, curves)})
		}
	}
	if len(lines) == 1 {
		lines[0] = safeLine{Value: lines[0].Value}
	}
	return lines
}

// letterOf is the letter of the one curve that is of a search; "" where none is, or several are.
func letterOf(c *Capacity, curves []curve) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	letter := ""
	for i := range curves {
		if curves[i].search != [2]string{c.Workload, c.Arrival} {
			continue
		}
		if letter != "" {
			return ""
		}
		letter = letters[i%len(letters):][:1]
	}
	return letter
}
