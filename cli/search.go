package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/capacity"
	"github.com/safeqps/xk6-safeqps/gate/report"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
	"github.com/safeqps/xk6-safeqps/trace/arrival"
)

// runCapacity runs the searches of all cells, and leaves the answer in --out.
func runCapacity(ctx context.Context, env environment, f *capacityFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	all, err := cells(f.workloads, f.arrivals)
	if err != nil {
		return err
	}
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	searches := make([]*searching, 0, len(all))
	for _, c := range all {
		one, err := f.prepare(env, c, len(all) > 1, binary)
		if err != nil {
			return err
		}
		searches = append(searches, one)
	}
	unlock, err := lock(env, f.out)
	if err != nil {
		return err
	}
	defer unlock()
	if err := f.own(searches, len(all) > 1); err != nil {
		return wrongUse(err)
	}
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	found := make([]*searching, 0, len(searches))
	for _, one := range searches {
		if len(searches) > 1 {
			fmt.Fprintf(env.stderr, "%s:\n", one.name())
		}
		if n := len(found); n > 0 && found[n-1].ownArrivals() && found[n-1].workload == one.workload {
			fmt.Fprintf(env.stderr, "  left out: %s replays a recorded trace, which brings its own arrivals\n", orDash(one.workload))

			continue
		}
		if err := f.search(ctx, env, one); err != nil {
			if ctx.Err() != nil {
				return withExit(errors.New("interrupted; run the same command again and the search goes on"), ExitInconclusive)
			}

			return wrongUse(err)
		}
		found = append(found, one)
	}

	return f.finish(env, found, len(all) > 1)
}

// searching is one search: what it is about, how it is run, and what it found.
type searching struct {
	cell
	prober  *prober
	options capacity.Options
	result  capacity.Result
}

// ownArrivals reports that a recorded trace brought the arrivals, whatever --arrival asked for.
func (s *searching) ownArrivals() bool {
	return slices.ContainsFunc(s.result.Probes, func(r capacity.Record) bool { return r.OwnArrivals })
}

// process is the arrival process that the result is about.
func (s *searching) process() string {
	if s.ownArrivals() {
		return capacity.TraceArrivals
	}

	return s.arrival
}

// prepare reads what one search needs, before any of them begins.
func (f *capacityFlags) prepare(env environment, c cell, several bool, binary string) (*searching, error) {
	p := &prober{binary: binary, script: f.script, dir: f.out, env: map[string]string{}, arrival: c.arrival, idleWait: f.idleWait, log: env.stderr}
	if several {
		p.dir = filepath.Join(f.out, c.name())
	}
	maps.Copy(p.env, f.variables)
	maps.Copy(p.env, c.env)
	var err error
	if p.contract, err = f.agreed(env, p.env); err != nil {
		return nil, err
	}
	one := &searching{cell: c, prober: p}
	one.options, err = f.options(p.contract)

	return one, err
}

// own is an error where --out holds something else than these searches: its files would be taken for theirs, and replaced.
func (f *capacityFlags) own(searches []*searching, several bool) error {
	const why = "a search would replace what is not its own; name another directory"
	mine, begun := map[string]bool{}, false
	for _, one := range searches {
		dir := one.prober.dir
		mine[filepath.Clean(dir)] = true
		if holdsSearch(dir) {
			begun = true

			continue
		}
		name, err := foreign(dir)
		if err != nil {
			return err
		}
		if name != "" {
			return fmt.Errorf("--out: %s holds %s and no search (no %s): %s", dir, name, capacity.StateFile, why)
		}
	}
	if several && holdsSearch(f.out) {
		return fmt.Errorf("--out: %s holds the search of a single workload and arrival process: %s", f.out, why)
	}
	states, err := filepath.Glob(filepath.Join(globEscaped(f.out), "*", capacity.StateFile))
	if err != nil {
		return err //nolint:wrapcheck // of a pattern that is escaped
	}
	for _, state := range states {
		if dir := filepath.Dir(state); !mine[filepath.Clean(dir)] {
			return fmt.Errorf("--out: %s holds the search %s, which is none of these, and %s would lose it: %s, or name its workload and "+
				"arrival process, too", f.out, filepath.Base(dir), capacity.EnvelopeFile, why)
		}
	}
	if begun {
		return nil
	}
	name, err := foreign(f.out)
	if err == nil && name != "" {
		err = fmt.Errorf("--out: %s holds %s and no search: %s", f.out, name, why)
	}

	return err
}

// globEscaped keeps a path from being read as a pattern.
func globEscaped(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

func holdsSearch(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, capacity.StateFile))

	return err == nil
}

// foreign is the first name in a directory that a search would write; "" where there is none.
func foreign(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err //nolint:wrapcheck // names the directory
	}
	written := []string{
		results.RunFile, results.VerdictFile, results.HTMLFile, results.MarkdownFile, results.RatesFile, report.ReportFile, capacity.ResultFile, capacity.EnvelopeFile,
	}
	for _, entry := range entries {
		name := entry.Name()
		if slices.Contains(written, name) || strings.HasPrefix(name, "probe-") || strings.HasPrefix(name, proofDir) {
			return name, nil
		}
	}

	return "", nil
}

// warnOfShortProbes tells of rates that are not tried, because no probe could pass at them.
func warnOfShortProbes(env environment, o capacity.Options) {
	if lowest := o.LowestRate(); lowest > o.Min {
		fmt.Fprintf(env.stderr, "  the contract needs %d requests to pass, so the search begins at %.4g requests/s: for lower rates\n"+
			"  its steady phase has to be longer (%.0f s for %.4g requests/s)\n",
			o.MinRequests, lowest, math.Ceil(o.FullSeconds*lowest/o.Min), o.Min)
	}
}

// lock makes --out and keeps a second search out of it: it would delete the probe that the first one is running.
func lock(env environment, dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { // #nosec G301 -- evidence is for others to read
		return nil, wrongUse(fmt.Errorf("--out: %w", err))
	}
	l, err := results.LockDir(dir)
	switch {
	case errors.Is(err, results.ErrInUse):
		return nil, wrongUse(fmt.Errorf("--out: another search is running in %s", dir))
	case err != nil:
		return nil, wrongUse(fmt.Errorf("--out: %w", err))
	case l.Missing != nil:
		env.warn(l.Missing)
	}

	return l.Release, nil
}

// search runs or resumes one search and keeps its state and result.
func (f *capacityFlags) search(ctx context.Context, env environment, one *searching) error {
	p := one.prober
	if err := os.MkdirAll(p.dir, 0o755); err != nil { // #nosec G301 -- evidence is for others to read
		return fmt.Errorf("--out: %w", err)
	}
	state, err := capacity.LoadState(p.dir)
	if err != nil {
		return err //nolint:wrapcheck // names the file
	}
	one.options.Seed = f.seedOf(one, state)
	if one.options.Fingerprints, err = p.fingerprints(ctx, one.options.Min); err != nil {
		return err
	}
	if err := state.Resumes(one.options); err != nil {
		return err //nolint:wrapcheck // names what differs
	}
	if err := p.countCut(env, state); err != nil {
		return err
	}
	warnOfShortProbes(env, one.options)
	if len(state.Probes) > 0 {
		fmt.Fprintf(env.stderr, "  resuming after %d probes\n", len(state.Probes))
	}
	one.result, err = capacity.Search(ctx, one.options, p.run, state, func(progress capacity.Progress) error {
		showProgress(env, progress)

		return progress.State.Save(p.dir)
	})
	if err != nil {
		return err //nolint:wrapcheck // says which probe
	}
	if len(one.result.Probes) == 0 {
		return fmt.Errorf("the budget (--max-time, --max-cost) allows no probe: the first one takes up to %s, and attempts that were cut took %s",
			roughly(one.options.FullSeconds+one.options.OverheadSeconds), roughly(one.result.CutSeconds))
	}
	if err := p.proveClient(ctx, env, &one.result, f.proveClient); err != nil {
		return err
	}
	content, err := one.result.JSON()
	if err != nil {
		return err //nolint:wrapcheck // nothing to add
	}

	return results.WriteFile(filepath.Join(p.dir, capacity.ResultFile), content) //nolint:wrapcheck // names the file
}

// seedOf is the seed of a search. Unless one is named it is drawn, and kept: another search of the same service must not
// send the prompts that its prefix cache holds. Each search of an envelope has its own.
func (f *capacityFlags) seedOf(one *searching, state *capacity.State) uint64 {
	seed := f.seed
	if !f.seedGiven {
		if state.Schema != "" {
			return state.Options.Seed
		}
		seed = rand.Uint64() // #nosec G404 -- it decides arrivals and prompts, and keeps no secret
	}

	return arrival.Derive(seed, one.name())
}

func showProgress(env environment, p capacity.Progress) {
	switch {
	case p.Next != nil:
		left := ""
		if p.AboutSeconds > 0 {
			left = fmt.Sprintf("; about %s left", roughly(p.AboutSeconds))
		}
		fmt.Fprintf(env.stderr, "  probe %d: %s at %.4g requests/s%s\n", p.Next.N, strings.ReplaceAll(string(p.Next.Purpose), "_", " "),
			p.Next.Rate, left)
	case p.Last != nil:
		early := ""
		if p.Last.StoppedEarly != "" {
			early = ", stopped early"
		}
		why := ""
		if p.Last.LimitingCriterion != "" {
			why = " (" + p.Last.LimitingCriterion + ")"
		}
		fmt.Fprintf(env.stderr, "    %s%s in %.0f s%s; bracket %s\n", p.Last.Verdict, why, p.Last.Seconds, early, bracketText(p.Low, p.High))
	}
}

// roughly is a duration for people: seconds below two minutes, minutes above.
func roughly(seconds float64) string {
	const minute = 60
	if seconds < 2*minute {
		return fmt.Sprintf("%.0f s", seconds)
	}

	return fmt.Sprintf("%.0f min", seconds/minute)
}

func bracketText(low, high float64) string {
	end := func(v float64) string {
		if v == 0 {
			return "?"
		}

		return fmt.Sprintf("%.4g", v)
	}

	return end(low) + " to " + end(high)
}

// answer is what a search prints as JSON.
type answer struct {
	Workload string `json:"workload,omitempty"`
	Arrival  string `json:"arrival,omitempty"`
	capacity.Result
}

// envelopeOf joins the answers, and says what they hold for: the contract's decision, and what the probes ran with.
func envelopeOf(in *report.Input, found []*searching, several bool) (*capacity.Envelope, error) {
	configuration, agreed := map[string]string{}, found[0].prober.contract
	if len(agreed.Decision) > 0 {
		var decision map[string]json.RawMessage
		if err := json.Unmarshal(agreed.Decision, &decision); err != nil {
			return nil, fmt.Errorf("the contract's decision: %w", err)
		}
		for key, raw := range decision {
			var text string
			if json.Unmarshal(raw, &text) != nil {
				text = string(raw) // a number, a list, a mapping: as it stands
			}
			configuration[key] = text
		}
	}
	envelope := capacity.NewEnvelope(time.Now(), configuration)
	for i := range in.Runs {
		for name, version := range in.Runs[i].Info.Versions {
			if _, taken := configuration[name]; !taken {
				configuration[name] = version
			}
		}
		envelope.Labels = append(envelope.Labels, in.Runs[i].Info.Labels...)
	}
	envelope.Labels = report.JoinLabels(envelope.Labels)
	for _, one := range found {
		entry := capacity.EnvelopeEntry{Workload: one.workload, Arrivals: one.process(), Result: one.result}
		if k, err := strconv.ParseFloat(one.env["LLM_BURSTINESS"], 64); err == nil && !one.ownArrivals() {
			entry.Burstiness = &k
		}
		if several {
			entry.Dir = one.name()
		}
		envelope.Entries = append(envelope.Entries, entry)
	}

	return envelope, nil
}

// finish writes and prints what was found, and turns it into an exit code.
func (f *capacityFlags) finish(env environment, found []*searching, several bool) error {
	var evidence []string // of these searches, and of nothing else that may lie there
	for _, one := range found {
		for i := range one.result.Probes {
			evidence = append(evidence, filepath.Join(one.prober.dir, one.result.Probes[i].Dir))
		}
		if proof := one.result.ClientProof; proof != nil {
			evidence = append(evidence, filepath.Join(one.prober.dir, proof.Dir))
		}
	}
	in, err := report.Collect(evidence)
	if err != nil {
		return wrongUse(err)
	}
	envelope, err := envelopeOf(&in, found, several)
	if err != nil {
		return err
	}
	content, err := envelope.JSON()
	if err != nil {
		return err //nolint:wrapcheck // nothing to add
	}
	if err := results.WriteFile(filepath.Join(f.out, capacity.EnvelopeFile), content); err != nil {
		return err //nolint:wrapcheck // names the file
	}
	if err := report.NameSearches(&in); err != nil {
		return wrongUse(err)
	}
	in.Capacity = report.FromEnvelope(envelope)
	w, err := writeReport(f.out, in)
	if err != nil {
		return err
	}
	switch {
	case f.asJSON && !several:
		err = printJSON(env.stdout, answer{found[0].workload, found[0].process(), found[0].result})
	case f.asJSON:
		err = printJSON(env.stdout, envelope)
	default:
		if err = printAnswer(env, found); err == nil {
			err = printSearches(env.stdout, found)
		}
		fmt.Fprintf(env.stdout, "\nreport: %s\n", w.page())
	}
	if err != nil {
		return err
	}

	return exitOfSearches(found)
}

// printAnswer prints the verdict that the answer of a single search rests on.
func printAnswer(env environment, found []*searching) error {
	if len(found) != 1 {
		return nil
	}
	answer, ok := found[0].result.Answer()
	if !ok {
		return nil
	}
	dir := filepath.Join(found[0].prober.dir, answer.Dir)
	judged, err := verdict.Read(dir)
	if err != nil {
		return wrongUse(err)
	}
	fmt.Fprintf(env.stdout, "%s, at %.4g requests/s:\n", dir, answer.Rate)
	if _, err := env.stdout.Write(report.Text(judged, env.colour)); err != nil {
		return fmt.Errorf("printing the verdict: %w", err)
	}
	fmt.Fprintln(env.stdout)

	return nil
}

// printSearches is the table for people.
func printSearches(w io.Writer, found []*searching) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "workload\tarrivals\tSafe QPS\t\tbroke first\tknee\tmargin\toutput tokens/s\tprobes\ttime")
	for _, one := range found {
		s := &one.result
		safe, state := "none", strings.ReplaceAll(string(s.Status), "_", " ")
		switch {
		case s.SafeQPS == nil:
		case s.Confirmed && s.Status == capacity.AboveRange:
			safe, state = fmt.Sprintf("%.4g or more", *s.SafeQPS), "confirmed"
		case s.Confirmed:
			safe, state = fmt.Sprintf("%.4g", *s.SafeQPS), "confirmed"
		default:
			safe, state = fmt.Sprintf("%.4g", *s.SafeQPS), "candidate, "+state
		}
		knee, margin := "-", "-"
		if s.Knee != nil {
			knee = fmt.Sprintf("%.4g", s.Knee.Rate)
		}
		if s.Margin != nil {
			margin = fmt.Sprintf("%.0f%%", 100**s.Margin)
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", orDash(one.workload), orDash(one.process()), safe, state,
			orDash(s.LimitingCriterion), knee, margin, numberOrDash(s.OutputTokensPerSecond), len(s.Probes),
			(time.Duration(s.ElapsedSeconds) * time.Second).Round(time.Second))
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("printing the result: %w", err)
	}
	for _, one := range found {
		s, about := &one.result, ""
		if len(found) > 1 {
			about = one.name() + ": "
		}
		if s.Cost != nil {
			fmt.Fprintf(w, "%sthe search cost %.2f at the given price\n", about, *s.Cost)
		}
		for _, note := range s.Notes {
			fmt.Fprintf(w, "%snote: %s\n", about, note)
		}
	}

	return nil
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}

	return text
}

func numberOrDash(v *float64) string {
	if v == nil {
		return "-"
	}

	return fmt.Sprintf("%.4g", *v)
}

var errNoRatePasses = errors.New("no rate in the range passes")

// exitOfSearches is 0 only where every search came to its end with a confirmed answer.
func exitOfSearches(found []*searching) error {
	undecided := ""
	for _, one := range found {
		r := &one.result
		ended := r.Status == capacity.Found || r.Status == capacity.AboveRange
		switch {
		case r.Status == capacity.BelowRange:
			return withExit(errNoRatePasses, ExitFail)
		case !r.Confirmed:
			undecided = "the search did not come to a confirmed answer"
		case !ended && undecided == "":
			undecided = fmt.Sprintf("the search did not come to its end (%s): its answer is a lower bound", strings.ReplaceAll(string(r.Status), "_", " "))
		case r.ClientProof != nil && r.ClientProof.Limited != nil && *r.ClientProof.Limited && undecided == "":
			undecided = "the load generator had a part in the answer"
		}
	}
	if undecided != "" {
		return withExit(errors.New(undecided), ExitInconclusive)
	}

	return nil
}
