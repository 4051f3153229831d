package report

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/capacity"
)

// FromEnvelope is what a report shows of a Capacity Envelope.
func FromEnvelope(e *capacity.Envelope) []Capacity {
	found := make([]Capacity, 0, len(e.Entries))
	for i := range e.Entries {
		r := &e.Entries[i].Result
		c := Capacity{
			Workload: e.Entries[i].Workload, Arrival: e.Entries[i].Arrivals, SafeQPS: r.SafeQPS, Confirmed: r.Confirmed,
			CompletedRate: r.CompletedRate, RequestsPerArrival: r.RequestsPerArrival,
			OutputTokensPerSecond: r.OutputTokensPerSecond, PromptTokensPerSecond: r.PromptTokensPerSecond,
			LimitingCriterion: r.LimitingCriterion, Margin: r.Margin, Note: strings.Join(r.Notes, "; "),
			Created: e.Created, Configuration: e.Configuration,
		}
		if r.Knee != nil {
			c.Knee = &r.Knee.Rate
		}
		found = append(found, c)
	}
	return found
}

// scriptsOwn stands for a workload, or an arrival process, that the search did not name.
const scriptsOwn = "(the script's)"

// holds is what some rows of a capacity envelope hold for.
type holds struct {
	Created       time.Time
	Configuration []keyValue
	// Of names the rows; "" for all.
	Of string
}

// holdsFor gathers the rows of each envelope.
func holdsFor(all []Capacity) []holds {
	var out []holds
	for i := range all {
		c := &all[i]
		h := holds{Created: c.Created, Of: nameOf(c)}
		for _, key := range sortedKeys(c.Configuration) {
			h.Configuration = append(h.Configuration, keyValue{key, c.Configuration[key]})
		}
		same := func(o holds) bool {
			return o.Created.Equal(h.Created) && slices.Equal(o.Configuration, h.Configuration)
		}
		if at := slices.IndexFunc(out, same); at >= 0 {
			out[at].Of += "; " + h.Of
			continue
		}
		out = append(out, h)
	}
	if len(out) == 1 {
		out[0].Of = ""
	}
	return slices.DeleteFunc(out, func(h holds) bool { return h.Created.IsZero() && len(h.Configuration) == 0 })
}

// nameOf is a row's workload and arrival process.
func nameOf(c *Capacity) string {
	return cmp.Or(c.Workload, scriptsOwn) + ", " + cmp.Or(c.Arrival, scriptsOwn)
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
		envelope, err := envelopeIn(dir)
		if err != nil {
			return nil, err
		}
		if envelope != nil {
			found = append(found, FromEnvelope(envelope)...)
		}
	}
	return found, nil
}
