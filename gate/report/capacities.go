package report

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/safeqps/xk6-safeqps/gate/capacity"
)

// FromEnvelope is what a report shows of a Capacity Envelope.
func FromEnvelope(e *capacity.Envelope) []Capacity {
	found := make([]Capacity, 0, len(e.Entries))
	for i := range e.Entries {
		r := &e.Entries[i].Result
		c := Capacity{
			Workload: e.Entries[i].Workload, Arrival: e.Entries[i].Arrivals, SafeQPS: r.SafeQPS, Confirmed: r.Confirmed,
			OutputTokensPerSecond: r.OutputTokensPerSecond, LimitingCriterion: r.LimitingCriterion, Margin: r.Margin,
			Note: strings.Join(r.Notes, "; "),
		}
		if r.Knee != nil {
			c.Knee = &r.Knee.Rate
		}
		found = append(found, c)
	}
	return found
}

// JoinLabels has each label of several runs once. Of those that differ in their details only, the part after the colon,
// it has the part that they share: a search rescales its trace to another rate in each probe.
func JoinLabels(labels []string) []string {
	details := make(map[string][]string)
	for _, label := range labels {
		kind, _, _ := strings.Cut(label, ": ")
		if !slices.Contains(details[kind], label) {
			details[kind] = append(details[kind], label)
		}
	}
	var joined []string
	for _, label := range labels {
		kind, _, _ := strings.Cut(label, ": ")
		if len(details[kind]) > 1 {
			label = kind
		}
		if !slices.Contains(joined, label) {
			joined = append(joined, label)
		}
	}
	return joined
}

// Capacities reads the envelopes of those directories that are of a capacity search; the others have none.
func Capacities(dirs []string) ([]Capacity, error) {
	dirs, err := distinctDirs(dirs)
	if err != nil {
		return nil, err
	}
	var found []Capacity
	for _, dir := range dirs {
		path := filepath.Join(dir, capacity.EnvelopeFile)
		content, err := os.ReadFile(path) // #nosec G304 -- the user's choice
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("report: %w", err)
		}
		envelope, err := capacity.ReadEnvelope(content)
		if err != nil {
			return nil, fmt.Errorf("report: %s: %w", path, err)
		}
		found = append(found, FromEnvelope(envelope)...)
	}
	return found, nil
}
