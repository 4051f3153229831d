package report

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// The bounds that keep a report small and its charts legible: more bins than a chart has pixels in half a column are
// noise, and a page of 12,000 bins with two dozen columns is about 2 MB.
const (
	maxBins      = 360 // of one run
	minBins      = 60
	maxBinsInAll = 12000
	maxEvents    = 100
	searchDepth  = 3 // of directories between the one given and a results directory
)

// steadyPhase is the phase that contracts are judged on.
const steadyPhase = "steady"

// Collect reads results directories and aggregates each, once however often it is named. A directory that holds no run.json stands for the results
// directories in it, as the one of a capacity search does. A run without verdict.json is judged by the contract that
// it carries. A directory that cannot be read is an error. It takes about 80 bytes of memory for a request, of one run
// at a time.
func Collect(dirs []string) (Input, error) {
	found, err := resultsDirs(dirs)
	if err != nil {
		return Input{}, err
	}
	in := Input{Generated: time.Now().UTC().Truncate(time.Second)}
	bins := min(maxBins, max(minBins, maxBinsInAll/len(found)))
	for i, name := range distinctNames(found) {
		run, err := collectRun(found[i], bins)
		if err != nil {
			return Input{}, err
		}
		run.Name = name
		in.Runs = append(in.Runs, run)
	}
	return in, nil
}

// resultsDirs finds the results directories among, and below, the given ones.
func resultsDirs(dirs []string) ([]string, error) {
	if len(dirs) == 0 {
		return nil, errors.New("report: no results directory was given")
	}
	var found []string
	for _, dir := range dirs {
		below, err := searchDir(dir, searchDepth)
		if err != nil {
			return nil, err
		}
		if len(below) == 0 {
			return nil, fmt.Errorf("report: %s is no results directory and holds none: no %s was found", dir, results.RunFile)
		}
		found = append(found, below...)
	}
	return distinctDirs(found)
}

// distinctDirs has each directory once, by the first of its names: a run that is told twice is no second run.
func distinctDirs(dirs []string) ([]string, error) {
	seen := make(map[string]bool)
	var distinct []string
	for _, dir := range dirs {
		place, err := results.Place(dir)
		if err != nil {
			return nil, fmt.Errorf("report: %w", err)
		}
		if !seen[place] {
			seen[place] = true
			distinct = append(distinct, dir)
		}
	}
	return distinct, nil
}

func searchDir(dir string, depth int) ([]string, error) {
	_, err := os.Stat(filepath.Join(dir, results.RunFile))
	if err == nil {
		return []string{dir}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("report: %w", err)
	}
	if depth == 0 {
		return nil, nil
	}
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	var found []string
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		below, err := searchDir(filepath.Join(dir, entry.Name()), depth-1)
		if err != nil {
			return nil, err
		}
		found = append(found, below...)
	}
	return found, nil
}

// distinctNames shortens paths to what tells them apart: the last elements, as many as it takes.
func distinctNames(dirs []string) []string {
	parts := make([][]string, len(dirs))
	longest := 1
	for i, dir := range dirs {
		path := filepath.Clean(dir)
		if absolute, err := filepath.Abs(dir); err == nil {
			path = absolute // "." has a name, too
		}
		parts[i] = strings.Split(filepath.ToSlash(path), "/")
		longest = max(longest, len(parts[i]))
	}
	names := make([]string, len(dirs))
	for keep := 1; keep <= longest; keep++ {
		seen := make(map[string]bool)
		for i, p := range parts {
			names[i] = strings.Join(p[max(0, len(p)-keep):], "/")
			seen[names[i]] = true
		}
		if len(seen) == len(names) {
			break
		}
	}
	return names
}

func collectRun(dir string, bins int) (Run, error) {
	source, err := results.Open(dir)
	if err != nil {
		return Run{}, err
	}
	run := Run{Dir: dir, Info: source.Info}
	if run.Verdict, err = verdictOf(source); err != nil {
		return Run{}, err
	}
	c := collector{run: &run, source: source}
	if err := c.read(); err != nil {
		return Run{}, err
	}
	c.choosePart()
	c.arrivals()
	if err := c.points(); err != nil {
		return Run{}, err
	}
	c.groups()
	c.tokens()
	c.series(bins)
	return run, nil
}

// verdictOf reads verdict.json, or judges a run that has none, such as a killed one. It is nil for a run without a
// contract.
func verdictOf(run *results.Run) (*verdict.Result, error) {
	_, err := os.Stat(filepath.Join(run.Dir, results.VerdictFile))
	if err == nil {
		return verdict.Read(run.Dir)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("report: %w", err)
	}
	c, err := verdict.CarriedContract(run)
	if c == nil || err != nil {
		return nil, err
	}
	return verdict.Judge(run, c)
}

// collector turns the files of one run into its aggregates.
type collector struct {
	run     *Run
	source  *results.Run
	rows    []row
	samples []results.Sample

	classes, steps, phases names
	errors, drops          map[string]int64
	hasGoodput             bool
	inPart                 []int // indices into rows, by arrival
}

// row is what the report needs of a first attempt.
type row struct {
	arrival             int64 // unix nanoseconds
	ttft, tpot, e2e     results.Number
	delay               results.Number
	promptAsked, prompt int32 // -1 where unknown
	outputAsked, output int32
	class, step, phase  uint16
	outcome             results.Outcome
	goodput             results.Flag
}

// names numbers a few distinct names in the order in which they come. Beyond maxNames, all are put with the last.
type names struct {
	list   []string
	number map[string]uint16
}

const (
	maxNames   = 4096
	otherNames = "(others)"
)

func (n *names) index(name string) uint16 {
	if i, ok := n.number[name]; ok {
		return i
	}
	if n.number == nil {
		n.number = make(map[string]uint16)
	}
	if len(n.list) >= maxNames {
		return n.number[otherNames]
	}
	if len(n.list) == maxNames-1 {
		name = otherNames
	}
	i := uint16(len(n.list)) // #nosec G115 -- below maxNames
	n.number[name] = i
	n.list = append(n.list, name)
	return i
}

func tokenCount(n results.Int) int32 {
	const most = 1<<31 - 1
	if !n.Known || n.Value < 0 {
		return -1
	}
	return int32(min(n.Value, most)) //nolint:gosec // bounded by min
}

func (c *collector) read() error {
	if !c.run.Info.Ended.IsZero() && !c.source.Recorded() {
		c.run.Notes = append(c.run.Notes, results.NotRecorded)
	}
	torn, err := c.source.Requests(func(r *results.Request) error {
		if r.Attempt > 1 {
			return nil // a retry is no arrival
		}
		c.rows = append(c.rows, row{
			arrival: r.Arrival().UnixNano(), ttft: r.TTFT, tpot: r.TPOT, e2e: r.E2E, delay: r.ScheduleDelay,
			promptAsked: tokenCount(r.PromptAsked), prompt: tokenCount(r.Prompt),
			outputAsked: tokenCount(r.CompletionAsked), output: tokenCount(r.Completion),
			class: c.classes.index(r.Class), step: c.steps.index(r.Step), phase: c.phases.index(r.Phase),
			outcome: r.Outcome, goodput: r.Goodput,
		})
		c.hasGoodput = c.hasGoodput || r.Goodput != results.FlagAbsent
		switch r.Outcome {
		case results.Failed:
			c.countError(r)
		case results.Dropped:
			c.countDrop(r)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.torn(results.RequestsFile, torn)
	torn, err = c.source.Series(func(s *results.Sample) error {
		c.samples = append(c.samples, *s)
		return nil
	})
	if err != nil {
		return err
	}
	c.torn(results.SeriesFile, torn)
	slices.SortStableFunc(c.samples, func(a, b results.Sample) int { return a.Time.Compare(b.Time) })
	events, torn, err := c.source.Events()
	if err != nil {
		return err
	}
	c.torn(results.EventsFile, torn)
	if err := c.source.CheckHistograms(); err != nil {
		return err
	}
	c.run.EventsTotal = len(events)
	c.run.Events = events[:min(len(events), maxEvents)]
	return nil
}

func (c *collector) torn(file string, torn results.Torn) {
	if torn > 0 {
		c.run.Notes = append(c.run.Notes, "the last line of "+file+" is torn and was left out")
	}
}

// countError counts by phase and type; choosePart picks the phase.
func (c *collector) countError(r *results.Request) {
	if c.errors == nil {
		c.errors = make(map[string]int64)
	}
	c.errors[r.Phase+"\x00"+r.ErrorType]++
}

// countDrop counts by phase and reason; choosePart picks the phase.
func (c *collector) countDrop(r *results.Request) {
	if c.drops == nil {
		c.drops = make(map[string]int64)
	}
	c.drops[r.Phase+"\x00"+r.ErrorType]++
}

// choosePart decides what the aggregates are about: the steady phase, or all of a run that has none.
func (c *collector) choosePart() {
	steady, tagged := c.phases.number[steadyPhase]
	if tagged {
		c.run.Part = steadyPhase
	}
	for i := range c.rows {
		if tagged && c.rows[i].phase != steady {
			continue
		}
		c.inPart = append(c.inPart, i)
		c.run.Counts.Add(c.rows[i].outcome, 1)
	}
	slices.SortStableFunc(c.inPart, func(a, b int) int { return cmp.Compare(c.rows[a].arrival, c.rows[b].arrival) })
	c.run.ErrorTypes, c.run.DroppedBy = c.inPhase(c.errors, tagged), c.inPhase(c.drops, tagged)
}

// inPhase takes what was counted of the chosen part, by kind; nil where there is none.
func (c *collector) inPhase(counted map[string]int64, tagged bool) map[string]int64 {
	var out map[string]int64
	for key, count := range counted {
		phase, kind, _ := strings.Cut(key, "\x00")
		if tagged && phase != steadyPhase {
			continue
		}
		if out == nil {
			out = make(map[string]int64)
		}
		if kind == "" {
			kind = "unknown"
		}
		out[kind] += count
	}
	return out
}
