package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/capacity"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

// searched makes the directories of probes, with a state beside them, as searches leave them.
func searched(t *testing.T, searches ...string) (runs []Run) {
	t.Helper()
	rate := 5.0
	for _, dir := range searches {
		for _, probe := range []string{"probe-01", "probe-02", filepath.Join("prove-client", "generator-1")} {
			path := filepath.Join(dir, probe)
			require.NoError(t, os.MkdirAll(path, 0o700))
			runs = append(runs, Run{Dir: path, Arrival: arrivalPoisson, Info: results.Info{Workload: "cap.js"}, Points: []Point{{OfferedPerSecond: &rate}}})
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, capacity.StateFile), []byte("{}"), 0o600))
	}
	return runs
}

func enveloped(t *testing.T, dir string, entries ...capacity.EnvelopeEntry) {
	t.Helper()
	e := capacity.NewEnvelope(syntheticStart, nil)
	e.Entries = entries
	content, err := e.JSON()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, capacity.EnvelopeFile), content, 0o600))
}

// The script's name is the same for all workloads of a search: what tells their runs apart is the search that they are of.
func TestRunsOfASearchAreOfItsWorkload(t *testing.T) {
	labels := func(runs []Run) (out []string) {
		in := Input{Runs: runs}
		require.NoError(t, NameSearches(&in))
		for _, c := range curvesOf(in.Runs) {
			out = append(out, c.Label)
			require.Len(t, c.Points, 3)
		}
		return out
	}
	base := t.TempDir()
	of := func(parts ...string) string { return filepath.Join(append([]string{base}, parts...)...) }

	runs := searched(t, of("env", "a"), of("env", "b"))
	require.Equal(t, []string{"a · Poisson", "b · Poisson"}, labels(runs), "before the envelope is there, by the directories")
	enveloped(t, of("env"), capacity.EnvelopeEntry{Workload: "chat", Dir: "a"}, capacity.EnvelopeEntry{Workload: "rag", Dir: "b"})
	require.Equal(t, []string{"chat · Poisson", "rag · Poisson"}, labels(runs))
	t.Chdir(of("env", "a"))
	runs[0].Dir = "probe-01"
	require.Equal(t, []string{"chat · Poisson", "rag · Poisson"}, labels(runs), "whatever its name is")

	// An envelope of an earlier version does not say which directory is whose.
	runs = searched(t, of("old", "a-poisson"), of("old", "a-0.5"), of("old", "b-poisson"))
	enveloped(t, of("old"), capacity.EnvelopeEntry{Workload: "a", Arrivals: "poisson"}, capacity.EnvelopeEntry{Workload: "a", Arrivals: "0.5"},
		capacity.EnvelopeEntry{Workload: "b", Arrivals: capacity.TraceArrivals})
	require.Equal(t, []string{"a · Poisson (0.5)", "a · Poisson (poisson)", "b · Poisson"}, labels(runs), "two searches are two curves")

	// A search of one workload that was not named.
	runs = searched(t, of("single"))
	enveloped(t, of("single"), capacity.EnvelopeEntry{Arrivals: "poisson"})
	require.Equal(t, []string{"Poisson"}, labels(runs))
	require.Equal(t, "poisson", runs[0].Process)
	plain := searched(t, of("plain"))
	require.NoError(t, os.Remove(of("plain", capacity.StateFile)))
	require.Equal(t, []string{"Poisson"}, labels(plain))
	require.Empty(t, plain[0].Workload, "no search")

	require.NoError(t, os.WriteFile(of("single", capacity.EnvelopeFile), []byte(`{"schema":"x"}`), 0o600))
	require.ErrorContains(t, NameSearches(&Input{Runs: runs}), of("single", capacity.EnvelopeFile))
}

// Where several searches have an answer, each line of a Safe QPS says whose it is.
func TestEachSafeQPSHasItsName(t *testing.T) {
	base := t.TempDir()
	rates := []float64{17.4, 20, 3}
	in := Input{
		Runs: searched(t, filepath.Join(base, "a"), filepath.Join(base, "b")),
		Capacity: []Capacity{
			{Workload: "rag", SafeQPS: &rates[1]}, {Workload: "chat", SafeQPS: &rates[0]}, {Workload: "none"}, {Workload: "gone", SafeQPS: &rates[2]},
		},
	}
	enveloped(t, base, capacity.EnvelopeEntry{Workload: "chat", Dir: "a"}, capacity.EnvelopeEntry{Workload: "rag", Dir: "b"})
	require.NoError(t, NameSearches(&in))
	type line struct {
		Value         float64
		Label, Letter string
	}
	drawn := func(in Input) (data struct{ Safe []line }) {
		embedded := regexp.MustCompile(`(?s)<script[^>]*application/json[^>]*>(.*?)</script>`).FindStringSubmatch(render(t, in))
		require.NotNil(t, embedded)
		require.NoError(t, json.Unmarshal([]byte(embedded[1]), &data))
		return data
	}
	require.Equal(t, []line{
		{20, "rag, (the script's)", "B"}, {17.4, "chat, (the script's)", "A"}, {3, "gone, (the script's)", ""},
	}, drawn(in).Safe)
	in.Capacity = in.Capacity[:1]
	require.Equal(t, []line{{Value: 20}}, drawn(in).Safe, "the only one needs no name")
}
