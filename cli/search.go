package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gofrs/flock"

	"github.com/safeqps/xk6-safeqps/gate/capacity"
	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/report"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// What a search leaves in its directory, beside capacity.StateFile and the probes.
const (
	capacityFile = "capacity.json"
	envelopeFile = "envelope.json"
	lockFile     = ".lock"
)

// runCapacity runs the searches of all cells, and leaves the answer in --out.
func runCapacity(ctx context.Context, env environment, f *capacityFlags) error {
	options, agreed, err := f.options(env)
	if err != nil {
		return err
	}
	cells, err := f.cells()
	if err != nil {
		return err
	}
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	warnOfShortProbes(env, options)
	unlock, err := lock(f.out)
	if err != nil {
		return err
	}
	defer unlock()
	ctx, stop := untilInterrupted(ctx)
	defer stop()

	var found []searched
	for _, c := range cells {
		dir := f.out
		if len(cells) > 1 {
			dir = filepath.Join(f.out, c.name())
			if err := os.MkdirAll(dir, 0o755); err != nil { // #nosec G301 -- evidence is for others to read
				return wrongUse(fmt.Errorf("--out: %w", err))
			}
			fmt.Fprintf(env.stderr, "%s:\n", c.name())
		}
		p := &prober{binary: binary, script: f.script, dir: dir, contract: agreed, env: map[string]string{}, idleWait: f.idleWait, log: env.stderr}
		for _, variables := range []map[string]string{f.env, c.env} {
			for name, value := range variables {
				p.env[name] = value
			}
		}
		result, err := f.search(ctx, env, options, p)
		if err != nil {
			if ctx.Err() != nil {
				return withExit(errors.New("interrupted; run the same command again and the search goes on"), ExitInconclusive)
			}

			return err
		}
		found = append(found, searched{Workload: c.workload, Arrival: c.arrival, burstiness: c.env["LLM_BURSTINESS"], Result: result})
	}

	return f.finish(env, agreed, found)
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
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { // #nosec G301 -- evidence is for others to read
		return nil, wrongUse(fmt.Errorf("--out: %w", err))
	}
	l := flock.New(filepath.Join(dir, lockFile))
	locked, err := l.TryLock()
	if err != nil {
		return nil, wrongUse(fmt.Errorf("--out: %w", err))
	}
	if !locked {
		return nil, wrongUse(fmt.Errorf("--out: another search is running in %s", dir))
	}

	return func() { _ = l.Unlock() }, nil
}

// search runs or resumes one search and keeps its state and result.
func (f *capacityFlags) search(ctx context.Context, env environment, options capacity.Options, p *prober) (capacity.Result, error) {
	var err error
	if options.Fingerprint, err = p.fingerprint(); err != nil {
		return capacity.Result{}, err
	}
	state, err := capacity.LoadState(p.dir)
	if err != nil {
		return capacity.Result{}, wrongUse(err)
	}
	if len(state.Probes) > 0 {
		fmt.Fprintf(env.stderr, "  resuming after %d probes\n", len(state.Probes))
	}
	result, err := capacity.Search(ctx, options, p.run, state, func(progress capacity.Progress) error {
		showProgress(env, progress)
		if progress.Last == nil {
			return nil
		}

		return progress.State.Save(p.dir)
	})
	if err != nil {
		return result, wrongUse(err)
	}
	if f.proveClient {
		if err := p.proveClient(ctx, env, &result); err != nil {
			return result, wrongUse(err)
		}
	}
	content, err := result.JSON()
	if err != nil {
		return result, err //nolint:wrapcheck // nothing to add
	}

	return result, results.WriteFile(filepath.Join(p.dir, capacityFile), content) //nolint:wrapcheck // names the file
}

func showProgress(env environment, p capacity.Progress) {
	switch {
	case p.Next != nil:
		left := ""
		if p.AtMostSeconds > 0 {
			left = fmt.Sprintf("; about %s left at most", roughly(p.AtMostSeconds))
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

// searched is the answer for one workload under one arrival process.
type searched struct {
	Workload   string `json:"workload,omitempty"`
	Arrival    string `json:"arrival,omitempty"`
	burstiness string
	capacity.Result
}

// envelopeOf joins the answers, and says what they hold for: the contract's decision, and what the probes ran with.
func envelopeOf(agreed *contract.Contract, in *report.Input, found []searched) (*capacity.Envelope, error) {
	configuration := map[string]string{}
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
	for i := range found {
		entry := capacity.EnvelopeEntry{Workload: found[i].Workload, Arrivals: found[i].Arrival, Result: found[i].Result}
		if k, err := strconv.ParseFloat(found[i].burstiness, 64); err == nil {
			entry.Burstiness = &k
		}
		envelope.Entries = append(envelope.Entries, entry)
	}

	return envelope, nil
}

// finish writes and prints what was found, and turns it into an exit code.
func (f *capacityFlags) finish(env environment, agreed *contract.Contract, found []searched) error {
	in, err := report.Collect([]string{f.out})
	if err != nil {
		return wrongUse(err)
	}
	envelope, err := envelopeOf(agreed, &in, found)
	if err != nil {
		return err
	}
	content, err := envelope.JSON()
	if err != nil {
		return err //nolint:wrapcheck // nothing to add
	}
	if err := results.WriteFile(filepath.Join(f.out, envelopeFile), content); err != nil {
		return err //nolint:wrapcheck // names the file
	}
	in.Capacity = report.FromEnvelope(envelope)
	page, _, err := writeReport(f.out, in)
	if err != nil {
		return err
	}
	switch {
	case f.asJSON && len(found) == 1:
		err = printJSON(env.stdout, found[0])
	case f.asJSON:
		err = printJSON(env.stdout, envelope)
	default:
		if err = f.printAnswer(env, found); err == nil {
			err = printSearches(env.stdout, found)
		}
		fmt.Fprintf(env.stdout, "\nreport: %s\n", page)
	}
	if err != nil {
		return err
	}

	return exitOfSearches(found)
}

// printAnswer prints the verdict that the answer of a single search rests on.
func (f *capacityFlags) printAnswer(env environment, found []searched) error {
	if len(found) != 1 {
		return nil
	}
	answer, ok := found[0].Answer()
	if !ok {
		return nil
	}
	dir := filepath.Join(f.out, answer.Dir)
	judged, err := verdict.Read(dir)
	if err != nil {
		return err //nolint:wrapcheck // names the file
	}
	fmt.Fprintf(env.stdout, "%s, at %.4g requests/s:\n", dir, answer.Rate)
	if _, err := env.stdout.Write(report.Text(judged, env.colour)); err != nil {
		return fmt.Errorf("printing the verdict: %w", err)
	}
	fmt.Fprintln(env.stdout)

	return nil
}

// printSearches is the table for people.
func printSearches(w io.Writer, found []searched) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "workload\tarrivals\tSafe QPS\t\tbroke first\tknee\tmargin\toutput tokens/s\tprobes\ttime")
	for _, s := range found {
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
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", orDash(s.Workload), orDash(s.Arrival), safe, state,
			orDash(s.LimitingCriterion), knee, margin, numberOrDash(s.OutputTokensPerSecond), len(s.Probes),
			(time.Duration(s.ElapsedSeconds) * time.Second).Round(time.Second))
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("printing the result: %w", err)
	}
	for _, s := range found {
		about := ""
		if name := strings.Trim(s.Workload+" "+s.Arrival, " "); name != "" && len(found) > 1 {
			about = name + ": "
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

func exitOfSearches(found []searched) error {
	undecided := false
	for _, c := range found {
		switch {
		case c.Status == capacity.BelowRange:
			return withExit(errNoRatePasses, ExitFail)
		case !c.Confirmed, c.ClientProof != nil && c.ClientProof.Limited:
			undecided = true
		}
	}
	if undecided {
		return withExit(errors.New("the search did not come to a confirmed answer"), ExitInconclusive)
	}

	return nil
}
