package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/safeqps/xk6-safeqps/gate/capacity"
	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

// capacityFlags are the flags of `k6 x llm capacity`.
type capacityFlags struct {
	script, contract, out, tolerance string
	min, max, estimate               float64
	maxTime, idleWait                time.Duration
	maxProbes                        int
	gpuHourPrice, gpus, maxCost      float64
	seed                             uint64
	env                              map[string]string
	workloads, arrivals              []string
	asJSON, fixedLengths             bool
}

// newCapacity is `k6 x llm capacity`: the search for Safe QPS.
func newCapacity(env environment) *cobra.Command {
	f := &capacityFlags{}
	cmd := &cobra.Command{
		Use:   "capacity",
		Short: "Find the Safe QPS: the highest rate at which the contract holds",
		Long: "Each probe is a full `k6 run` of your own script, with the rate in LLM_RATE (requests per second), the length of\n" +
			"the steady phase in LLM_STEADY and a seed in LLM_SEED; gate.open() takes the length over by itself. The search\n" +
			"brackets, bisects to the tolerance, and confirms the rate at the contract's full length. A probe that has\n" +
			"certainly failed is stopped early, one that is INCONCLUSIVE is repeated for longer. Its evidence is in\n" +
			"DIR/probe-NN. Run the same command again after a crash or Ctrl-C, and the search goes on.\n\n" +
			"Exit codes: 0 found and confirmed, 1 no rate in the range passes, 2 not decided, 3 wrong use.",
		Example: "  k6 x llm capacity --script examples/capacity.js --contract examples/slo.yaml --out search --min 1 --max 64\n" +
			"  k6 x llm capacity --script s.js --contract c.yaml --out search --workload chat:MIX=chat --workload rag:MIX=rag \\\n" +
			"    --arrival constant --arrival poisson --arrival bursty",
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return runCapacity(cmd.Context(), env, f) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.script, "script", "", "k6 script that sends LLM_RATE requests per second (required)")
	flags.StringVar(&f.contract, "contract", "", "contract that the probes are judged by (required)")
	flags.StringVar(&f.out, "out", "", "directory of the search (required)")
	flags.Float64Var(&f.min, "min", 1, "lowest rate, requests per second")
	flags.Float64Var(&f.max, "max", 1000, "highest rate")
	flags.Float64Var(&f.estimate, "estimate", 0, "where to begin, if you have an idea")
	flags.StringVar(&f.tolerance, "tolerance", "5%", "how near the answer has to be")
	flags.IntVar(&f.maxProbes, "max-probes", 0, "bound on the probes of one search; default: 10")
	flags.DurationVar(&f.maxTime, "max-time", 0, "bound on the time of one search's probes")
	flags.DurationVar(&f.idleWait, "idle-wait", time.Minute, "how long the service may take to come back to idle after a probe")
	flags.Float64Var(&f.gpuHourPrice, "gpu-hour-price", 0, "price of a GPU hour, for the cost of the search")
	flags.Float64Var(&f.gpus, "gpus", 1, "GPUs of the service under test")
	flags.Float64Var(&f.maxCost, "max-cost", 0, "bound on the cost of one search; needs --gpu-hour-price")
	flags.StringArrayVar(&f.workloads, "workload", nil, "NAME or NAME:KEY=VALUE,…: search with LLM_WORKLOAD=NAME and these variables; may be repeated")
	flags.StringArrayVar(&f.arrivals, "arrival", nil, "constant, poisson, bursty (k = 0.25) or a Gamma shape: search with LLM_BURSTINESS; may be repeated")
	flags.Uint64Var(&f.seed, "seed", 0, "seed of the probes' seeds")
	flags.BoolVar(&f.fixedLengths, "fixed-lengths", false, "run every probe at full length and stop none early")
	flags.StringToStringVarP(&f.env, "env", "e", nil, "variables for the script, as k6 run -e")
	flags.BoolVar(&f.asJSON, "json", false, "print the result as JSON")

	return cmd
}

// burstiness are the names of arrival processes that --arrival knows.
var burstiness = map[string]string{"constant": "constant", "poisson": "1", "bursty": "0.25"} //nolint:gochecknoglobals // a constant table

// cell is one search: a workload under an arrival process.
type cell struct {
	workload, arrival string
	env               map[string]string
}

func (f *capacityFlags) cells() ([]cell, error) {
	workloads := []cell{{}}
	if len(f.workloads) > 0 {
		workloads = nil
	}
	for _, text := range f.workloads {
		name, rest, _ := strings.Cut(text, ":")
		c := cell{workload: name, env: map[string]string{"LLM_WORKLOAD": name}}
		if name == "" || strings.ContainsAny(name, `/\`) {
			return nil, wrongUse(fmt.Errorf("--workload: got %q, expected NAME or NAME:KEY=VALUE,…", text))
		}
		for pair := range strings.SplitSeq(rest, ",") {
			if pair == "" {
				continue
			}
			key, value, ok := strings.Cut(pair, "=")
			if !ok {
				return nil, wrongUse(fmt.Errorf("--workload: got %q, expected NAME:KEY=VALUE,…", text))
			}
			c.env[key] = value
		}
		workloads = append(workloads, c)
	}
	if len(f.arrivals) == 0 {
		return workloads, nil
	}
	var cells []cell
	for _, w := range workloads {
		for _, arrival := range f.arrivals {
			k, known := burstiness[arrival]
			if !known {
				if _, err := parseBurstiness(arrival); err != nil {
					return nil, wrongUse(fmt.Errorf("--arrival: got %q, expected constant, poisson, bursty or a number above 0", arrival))
				}
				k = arrival
			}
			c := cell{workload: w.workload, arrival: arrival, env: map[string]string{"LLM_BURSTINESS": k}}
			for key, value := range w.env {
				c.env[key] = value
			}
			cells = append(cells, c)
		}
	}

	return cells, nil
}

func (c cell) name() string {
	name := strings.Trim(c.workload+"-"+c.arrival, "-")
	if name == "" {
		return "the search"
	}

	return name
}

func runCapacity(ctx context.Context, env environment, f *capacityFlags) error {
	options, agreed, err := f.options(env)
	if err != nil {
		return err
	}
	cells, err := f.cells()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.out, 0o755); err != nil { //nolint:gosec // evidence is for others to read
		return wrongUse(fmt.Errorf("--out: %w", err))
	}
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	ctx, stop := untilInterrupted(ctx)
	defer stop()

	var found []searched
	for _, c := range cells {
		dir := f.out
		if len(cells) > 1 {
			dir = filepath.Join(f.out, c.name())
			if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // see above
				return wrongUse(fmt.Errorf("--out: %w", err))
			}
			fmt.Fprintf(env.stderr, "%s:\n", c.name())
		}
		p := &prober{binary: binary, script: f.script, dir: dir, contract: agreed, env: map[string]string{}, idleWait: f.idleWait}
		for _, variables := range []map[string]string{f.env, c.env} {
			for name, value := range variables {
				p.env[name] = value
			}
		}
		result, err := search(ctx, env, options, p)
		if err != nil {
			if ctx.Err() != nil {
				return withExit(errors.New("interrupted; run the same command again and the search goes on"), ExitInconclusive)
			}

			return err
		}
		found = append(found, searched{Workload: c.workload, Arrival: c.arrival, Result: result})
	}

	return f.finish(env, agreed, found)
}

// options checks the flags and reads script and contract.
func (f *capacityFlags) options(env environment) (capacity.Options, *contract.Contract, error) {
	var o capacity.Options
	for name, value := range map[string]string{"script": f.script, "contract": f.contract, "out": f.out} {
		if value == "" {
			return o, nil, wrongUse(fmt.Errorf("--%s: got nothing, expected a path", name))
		}
	}
	agreed, err := loadContract(env.with(f.env), f.contract)
	if err != nil {
		return o, nil, err
	}
	if agreed, err = withBaseline(agreed, ""); err != nil {
		return o, nil, err
	}
	script, err := os.ReadFile(f.script)
	if err != nil {
		return o, nil, wrongUse(fmt.Errorf("--script: %w", err))
	}
	tolerance, err := parseShare(f.tolerance)
	if err != nil {
		return o, nil, wrongUse(fmt.Errorf("--tolerance: got %q, expected a share such as 5%%", f.tolerance))
	}
	identity, err := json.Marshal(map[string]any{"contract": agreed, "env": f.env, "script": string(script)})
	if err != nil {
		return o, nil, fmt.Errorf("capacity: %w", err)
	}
	digest := sha256.Sum256(identity)
	overhead := time.Duration(agreed.Phases.Warmup + agreed.Phases.Recovery)
	o = capacity.Options{
		Min: f.min, Max: f.max, Tolerance: tolerance, Estimate: f.estimate,
		FullSeconds: time.Duration(agreed.Phases.Steady).Seconds(), OverheadSeconds: overhead.Seconds(),
		MinRequests: neededToPass(agreed), FixedLengths: f.fixedLengths, Seed: f.seed,
		Fingerprint: hex.EncodeToString(digest[:16]),
		MaxProbes:   f.maxProbes, MaxSeconds: f.maxTime.Seconds(), GPUHourPrice: f.gpuHourPrice, GPUs: f.gpus, MaxCost: f.maxCost,
	}

	return o, agreed, nil
}

// neededToPass is the fewest requests with which every criterion of the gate could pass.
func neededToPass(c *contract.Contract) int64 {
	most := 0
	for _, criterion := range c.Gate {
		if q, ok := criterion.EvidenceQuantile(); ok {
			if n, ok := contract.RequestsNeeded(q, c.Confidence); ok {
				most = max(most, n)
			}
		}
	}

	return int64(most)
}

func parseShare(text string) (float64, error) {
	var v float64
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	if _, err := fmt.Sscanf(number, "%g", &v); err != nil {
		return 0, fmt.Errorf("got %q: %w", text, err)
	}
	if percent {
		v /= 100
	}

	return v, nil
}

// search runs or resumes one search and keeps its state and result.
func search(ctx context.Context, env environment, options capacity.Options, p *prober) (capacity.Result, error) {
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
	content, err := result.JSON()
	if err != nil {
		return result, err //nolint:wrapcheck // nothing to add
	}

	return result, results.WriteFile(filepath.Join(p.dir, "capacity.json"), content) //nolint:wrapcheck // names the file
}

func showProgress(env environment, p capacity.Progress) {
	switch {
	case p.Next != nil:
		left := ""
		if p.LeftSeconds >= 0 {
			left = fmt.Sprintf(", %s of the budget left", (time.Duration(p.LeftSeconds) * time.Second).Round(time.Second))
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
	Workload string `json:"workload,omitempty"`
	Arrival  string `json:"arrival,omitempty"`
	capacity.Result
}

// envelope is what several searches give together: the service's capacity envelope.
type envelope struct {
	Schema string    `json:"schema"`
	Date   time.Time `json:"date"`
	// Decision is the contract's own: the configuration that the envelope holds for.
	Decision json.RawMessage `json:"decision,omitempty"`
	Cells    []searched      `json:"cells"`
}

// finish prints what was found, and turns it into an exit code.
func (f *capacityFlags) finish(env environment, agreed *contract.Contract, found []searched) error {
	var whole any = envelope{Schema: "safeqps-envelope/1", Date: time.Now().UTC(), Decision: agreed.Decision, Cells: found}
	if len(found) == 1 {
		whole = found[0]
	}
	if len(found) > 1 {
		content, err := json.MarshalIndent(whole, "", "  ")
		if err != nil {
			return fmt.Errorf("the envelope: %w", err)
		}
		if err := results.WriteFile(filepath.Join(f.out, "envelope.json"), append(content, '\n')); err != nil {
			return err //nolint:wrapcheck // names the file
		}
	}
	if f.asJSON {
		if err := printJSON(env.stdout, whole); err != nil {
			return err
		}

		return exitOfSearches(found)
	}
	if err := printSearches(env.stdout, found); err != nil {
		return err
	}

	return exitOfSearches(found)
}

// printSearches is the table for people.
func printSearches(w io.Writer, found []searched) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "workload\tarrivals\tSafe QPS\t\tbroke first\tknee\tmargin\toutput tokens/s\tprobes\ttime")
	for _, s := range found {
		safe := "none"
		if s.SafeQPS != nil {
			safe = fmt.Sprintf("%.4g", *s.SafeQPS)
		}
		state := strings.ReplaceAll(string(s.Status), "_", " ")
		if s.Confirmed {
			state = "confirmed"
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
		if s.Cost != nil {
			fmt.Fprintf(w, "the search cost %.2f at the given price\n", *s.Cost)
		}
		for _, note := range s.Notes {
			fmt.Fprintf(w, "note: %s\n", note)
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
		case !c.Confirmed:
			undecided = true
		}
	}
	if undecided {
		return withExit(errors.New("the search did not come to a confirmed answer"), ExitInconclusive)
	}

	return nil
}
