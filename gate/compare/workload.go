package compare

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/safeqps/xk6-safeqps/gate/results"
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

// Differences of two runs, in a fixed order. Digests other than the contract's, seeds, the workload's name, segment and
// labels, and the contract's phases are the workload's; versions, host and the decision may be what the comparison is about.
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
		add("digest of "+key, a.Digests[key], b.Digests[key], key != "contract")
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

func workloadDifferences(all []Difference) []Difference {
	return slices.DeleteFunc(slices.Clone(all), func(d Difference) bool { return !d.Workload })
}
