package compare

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// Difference between what two runs say about themselves.
type Difference struct {
	What string `json:"what"`
	A    string `json:"a"`
	B    string `json:"b"`
	// Workload is true where the difference makes two workloads of them: then latencies say nothing about the services.
	Workload bool `json:"workload"`
}

// DifferentWorkloadsError refuses a comparison.
type DifferentWorkloadsError struct {
	Differences []Difference
}

func (e *DifferentWorkloadsError) Error() string {
	parts := make([]string, len(e.Differences))
	for i, d := range e.Differences {
		parts[i] = fmt.Sprintf("%s (A: %s, B: %s)", d.What, d.A, d.B)
	}
	return "compare: the runs are of different workloads: " + strings.Join(parts, "; ")
}

// Differences of two runs, in a fixed order. Digests other than the contract's and the script's, seeds, the workload's name, segment and
// labels, and the contract's phases are the workload's; versions, host and the decision may be what the comparison is about. The script is not the
// workload: another address in it makes no other one, and what it asked for is compared by itself.
func Differences(a, b results.Info) []Difference {
	var out []Difference
	add := func(what, x, y string, workload bool) {
		if x == y {
			return
		}
		out = append(out, Difference{What: what, A: orNone(x), B: orNone(y), Workload: workload})
	}
	add("workload", a.Workload, b.Workload, true)
	for _, key := range keys(a.Digests, b.Digests) {
		add("digest of "+key, a.Digests[key], b.Digests[key], key != "contract" && key != results.DigestOfScript)
	}
	for _, key := range keys(a.Seeds, b.Seeds) {
		add("seed "+key, seed(a.Seeds, key), seed(b.Seeds, key), true)
	}
	add("phases of the contract", phases(a.Contract), phases(b.Contract), true)
	add("segment", a.Segment, b.Segment, true)
	add("labels", labels(a.Labels), labels(b.Labels), true)
	for _, key := range keys(a.Versions, b.Versions) {
		add("version of "+key, a.Versions[key], b.Versions[key], false)
	}
	add("host", host(a.Host), host(b.Host), false)
	add("decision", string(a.Decision), string(b.Decision), false)
	return out
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func keys[V any](a, b map[string]V) []string {
	var out []string
	for key := range a {
		out = append(out, key)
	}
	for key := range b {
		if _, both := a[key]; !both {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

func seed(seeds map[string]uint64, key string) string {
	if v, ok := seeds[key]; ok {
		return fmt.Sprint(v)
	}
	return ""
}

// phases is the part of a contract that shapes the load, in a fixed notation.
func phases(contract json.RawMessage) string {
	var c struct {
		Phases any `json:"phases"`
	}
	if len(contract) == 0 || json.Unmarshal(contract, &c) != nil || c.Phases == nil {
		return ""
	}
	content, err := json.Marshal(c.Phases)
	if err != nil {
		return ""
	}
	return string(content)
}

func labels(l []string) string {
	sorted := slices.Clone(l)
	slices.Sort(sorted)
	return strings.Join(sorted, "; ")
}

func host(h results.Host) string {
	if h == (results.Host{}) {
		return ""
	}
	return fmt.Sprintf("%s (%s/%s, %d CPUs)", h.Name, h.OS, h.Arch, h.CPUs)
}

// prefixMargin is how many hundredths of the prompt tokens two runs may differ by in what came from before them.
const prefixMargin = 0.05

// prefixDifference says where one run found its prompts in the service's prefix cache and the other did not. That is a
// difference of the workload, as the service saw it: of two equal runs the second one is served by what the first one left.
// What the workload's own reuse explains is none, so that a cache that was switched on can be compared. Where the reuse is
// not known, nobody can tell, and a difference is a warning.
func prefixDifference(a, b *verdict.PrefixCache) (differences []Difference, warnings []string) {
	warm := func(c *verdict.PrefixCache) bool { return c != nil && c.Warm }
	switch {
	case warm(a) != warm(b), warm(a) && warm(b) && math.Abs(a.Before()-b.Before()) > prefixMargin:
		return []Difference{{What: "prefix cache before the run", A: before(a), B: before(b), Workload: true}}, nil
	case warm(a) && warm(b):
		return nil, []string{fmt.Sprintf("the prefix cache held prompts from before both runs (A: %s, B: %s of the prompt tokens)",
			before(a), before(b))}
	case a == nil || b == nil || (a.Ideal != nil && b.Ideal != nil) || math.Abs(a.Measured-b.Measured) <= prefixMargin:
		return nil, nil
	}
	return nil, []string{fmt.Sprintf("of the prompt tokens %s of A and %s of B came from the prefix cache, and how much the workload's own "+
		"reuse explains is not known: it may have held prompts from before a run", percent(a.Measured), percent(b.Measured))}
}

func before(c *verdict.PrefixCache) string {
	if c == nil {
		return "not measured"
	}
	return percent(c.Before())
}

func percent(share float64) string { return fmt.Sprintf("%.3g %%", 100*share) }

func workloadDifferences(all []Difference) []Difference {
	return slices.DeleteFunc(slices.Clone(all), func(d Difference) bool { return !d.Workload })
}
