package capacity

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// StateFile is the name of the stored state in the directory of a search.
const StateFile = "state.json"

// StateSchema is the version of the state.
const StateSchema = "safeqps-capacity-state/1"

// State is a search so far: its options, and the probes that have ended. Store it after each probe, and a search that was
// killed can be resumed; everything that the search knows follows from it.
type State struct {
	Schema  string   `json:"schema"`
	Options Options  `json:"options"`
	Probes  []Record `json:"probes"`
	// Begun is the number of the probe that was begun last, and Attempt how often that has been: more than once where the
	// search was cut in it.
	Begun   int `json:"begun,omitempty"`
	Attempt int `json:"attempt,omitempty"`
	// Cut are the attempts at probes that did not come to their end. Their load was made, and counts in time and cost.
	Cut []Cut `json:"cut,omitempty"`
}

// Cut is an attempt at a probe that did not come to its end.
type Cut struct {
	N       int `json:"n"`
	Attempt int `json:"attempt"`
	// Seconds of load that its evidence has.
	Seconds float64 `json:"seconds"`
}

// Unfinished is the directory of the probe that was cut last, while its time is not in Cut yet; false where there is none.
func (s *State) Unfinished() (dir string, ok bool) {
	if s.Begun != len(s.Probes)+1 || s.Attempt < 1 || slices.ContainsFunc(s.Cut, func(c Cut) bool { return c.N == s.Begun && c.Attempt == s.Attempt }) {
		return "", false
	}
	return probeDir(s.Begun), true
}

// AddCut keeps the time of the unfinished attempt.
func (s *State) AddCut(seconds float64) {
	s.Cut = append(s.Cut, Cut{N: s.Begun, Attempt: s.Attempt, Seconds: seconds})
}

func cutSeconds(all []Cut) float64 {
	seconds := 0.0
	for _, c := range all {
		seconds += c.Seconds
	}
	return seconds
}

// begin counts the attempts at a probe. A repeated one has a seed of its own: the service's prefix cache holds the prompts
// of the attempt that was cut.
func (s *State) begin(r *ProbeRequest) {
	if s.Begun != r.N {
		s.Begun, s.Attempt = r.N, 0
	}
	s.Attempt++
	if s.Attempt > 1 {
		r.Attempt = s.Attempt
		r.seed(r.Seed, s.Attempt)
	}
}

// Resumes is an error where the state is not one of a search with these options.
func (s *State) Resumes(o Options) error {
	tried := *s
	return tried.adopt(o.withDefaults())
}

// adopt makes the state one of a search with these options, or says why it is not.
func (s *State) adopt(o Options) error {
	if s.Schema == "" && len(s.Probes) == 0 {
		s.Schema, s.Options = StateSchema, o
		return nil
	}
	if s.Schema != StateSchema {
		return fmt.Errorf("capacity: the state's schema is %q, this version reads %q", s.Schema, StateSchema)
	}
	if len(s.Probes) > 0 { // without one, nothing was found that could be another search's
		if err := o.differs(s.Options.withDefaults()); err != nil {
			return err
		}
	}
	for i := range s.Probes {
		if s.Probes[i].N != i+1 {
			return fmt.Errorf("capacity: probe %d of the state has number %d", i+1, s.Probes[i].N)
		}
		if !(s.Probes[i].Rate > 0) || !finite(s.Probes[i].Rate) {
			return fmt.Errorf("capacity: probe %d of the state has rate %v", i+1, s.Probes[i].Rate)
		}
		if err := s.Probes[i].check(); err != nil {
			return fmt.Errorf("capacity: probe %d of the state: %w", i+1, err)
		}
	}
	for _, c := range s.Cut {
		if !(c.Seconds >= 0) || !finite(c.Seconds) {
			return fmt.Errorf("capacity: attempt %d at probe %d of the state took %v seconds", c.Attempt, c.N, c.Seconds)
		}
	}
	s.Options = o
	return nil
}

// Save replaces the state file in the directory of a search, by a rename: a crash leaves the old one or the new one.
func (s *State) Save(dir string) error {
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("capacity: %w", err)
	}
	if err := results.WriteFile(filepath.Join(dir, StateFile), append(content, '\n')); err != nil {
		return fmt.Errorf("capacity: %w", err)
	}
	return nil
}

// LoadState reads the state of a search; it is empty, and no error, where there is none yet.
func LoadState(dir string) (*State, error) {
	path := filepath.Join(dir, StateFile)
	content, err := os.ReadFile(path) // #nosec G304 -- the user's choice
	if errors.Is(err, fs.ErrNotExist) {
		return &State{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("capacity: %w", err)
	}
	var s State
	if err := json.Unmarshal(content, &s); err != nil {
		return nil, fmt.Errorf("capacity: %s is not whole, or was edited (%w): put it back from a copy, or begin in another directory", path, err)
	}
	if s.Schema != StateSchema {
		return nil, fmt.Errorf("capacity: %s: schema is %q, this version reads %q", path, s.Schema, StateSchema)
	}
	return &s, nil
}
