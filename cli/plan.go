package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/safeqps/xk6-safeqps/gate/capacity"
	"github.com/safeqps/xk6-safeqps/gate/plan"
)

// planFlags are the flags of `k6 x llm plan`.
type planFlags struct {
	workload, arrival string
	trace             string
	window            time.Duration
	headroom, growth  string
	demand            plan.Demand
	read              readFlags
	asJSON            bool
}

// newPlan is `k6 x llm plan`: replicas and money for a demand.
func newPlan(env environment) *cobra.Command {
	f := &planFlags{}
	cmd := &cobra.Command{
		Use:   "plan SEARCH",
		Short: "Turn a Safe QPS and a demand into replicas, headroom and cost",
		Long: "Reads what a capacity search found (its directory, capacity.json or envelope.json) and sizes a fleet for a demand:\n" +
			"a peak rate, or a trace whose busiest window is the peak. Replicas are counted by Safe QPS and by Little's law; both\n" +
			"are shown, and should agree. What the search measured counts as one replica.\n\n" +
			"Exit codes: 0 a plan, 2 a plan that rests on a Safe QPS that was not confirmed, 3 wrong use.",
		Example: "  k6 x llm plan search --rate 120 --headroom 20% --spares 1 --gpu-hour-price 2.5\n" +
			"  k6 x llm plan search --trace production.jsonl --window 5m --growth 8% --months 6",
		Args: exactArgs("SEARCH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			// An absent flag has a meaning of its own, and zero in the API means the same. A zero that was typed is a mistake.
			for _, given := range []struct {
				flag  string
				value float64
			}{{"mean-rate", f.demand.MeanRate}, {"gpus", f.demand.GPUsPerReplica}} {
				if cmd.Flags().Changed(given.flag) && !(given.value > 0) {
					return wrongUse(fmt.Errorf("--%s: got %v, expected more than 0", given.flag, given.value))
				}
			}

			return runPlan(env, args[0], f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.Float64Var(&f.demand.PeakRate, "rate", 0, "peak of the demand, requests per second; or --trace")
	flags.StringVar(&f.trace, "trace", "", "trace of the demand: the peak is its busiest --window, the mean its own")
	flags.DurationVar(&f.window, "window", time.Minute, "length of the window that the peak of a trace is taken over")
	flags.Float64Var(&f.demand.MeanRate, "mean-rate", 0, "mean rate over a day, for the cost per token; default: the peak, or the trace's mean")
	flags.StringVar(&f.headroom, "headroom", "20%", "share of the Safe QPS that is left unused")
	flags.StringVar(&f.growth, "growth", "0%", "growth of the demand per month; where it is negative, today's peak counts")
	flags.Float64Var(&f.demand.Months, "months", 0, "months that the plan has to last")
	flags.IntVar(&f.demand.Spares, "spares", 1, "replicas that may fail at the peak: 1 is N-1")
	flags.Float64Var(&f.demand.GPUHourPrice, "gpu-hour-price", 0, "price of a GPU hour, in any currency")
	flags.Float64Var(&f.demand.GPUsPerReplica, "gpus", 1, "GPUs of one replica")
	flags.StringVar(&f.workload, "workload", "", "workload of an envelope; default: any")
	flags.StringVar(&f.arrival, "arrival", "", "arrival process of an envelope, as it was searched; default: the one with the lowest Safe QPS")
	flags.StringVar(&f.read.format, "format", "", "form of the trace; default: detected")
	flags.StringVar(&f.read.unit, "unit", "", "unit of the trace's timestamps: s, ms, us, ns or wall_clock; default: detected")
	fieldMapVar(flags, &f.read.fields, fieldMapUsage)
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")

	return cmd
}

func runPlan(env environment, path string, f *planFlags) error {
	if f.trace != "" && f.demand.PeakRate != 0 {
		return wrongUse(errors.New("got --rate and --trace, expected one of --rate and --trace"))
	}
	var err error
	if f.demand.Headroom, err = parseShare(f.headroom); err != nil {
		return wrongUse(fmt.Errorf("--headroom: got %q, expected a share such as 20%%", f.headroom))
	}
	if f.demand.Growth, err = parseShare(f.growth); err != nil {
		return wrongUse(fmt.Errorf("--growth: got %q, expected a share per month such as 8%%", f.growth))
	}
	if err := f.takeTrace(); err != nil {
		return err
	}
	if f.demand.PeakRate == 0 {
		return wrongUse(errors.New("no demand: give its peak with --rate, or a trace of it with --trace"))
	}
	replica, err := f.replica(path)
	if err != nil {
		return wrongUse(err)
	}
	made, err := plan.Make(replica, f.demand)
	if err != nil {
		return wrongUse(err)
	}
	if f.asJSON {
		err = printJSON(env.stdout, made)
	} else {
		_, err = fmt.Fprint(env.stdout, made.Text())
	}
	if err != nil {
		return fmt.Errorf("printing the plan: %w", err)
	}
	if !replica.Confirmed {
		return withExit(errors.New("the Safe QPS under this plan was not confirmed"), ExitInconclusive)
	}

	return nil
}

// takeTrace takes the demand from a trace.
func (f *planFlags) takeTrace() error {
	if f.trace == "" {
		return nil
	}
	f.read.zeroOutput, f.read.timeZero = "keep", "first"
	t, err := f.read.read(f.trace)
	if err != nil {
		return err
	}
	due := make([]time.Duration, len(t.Rows))
	for i := range t.Rows {
		due[i] = t.Rows[i].Due
	}
	if f.demand.PeakRate, err = plan.PeakRate(due, f.window); err != nil {
		return wrongUse(fmt.Errorf("--trace %s: %w", f.trace, err))
	}
	if f.demand.MeanRate == 0 {
		f.demand.MeanRate = min(plan.MeanRate(due), f.demand.PeakRate)
	}

	return nil
}

// replica reads what a search found.
func (f *planFlags) replica(path string) (plan.Capacity, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path, err = inSearch(path)
		if err != nil {
			return plan.Capacity{}, err
		}
	}
	content, err := os.ReadFile(path) // #nosec G304 -- the user's own file
	if err != nil {
		return plan.Capacity{}, fmt.Errorf("plan: %w", err)
	}
	var head struct {
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal(content, &head); err != nil {
		return plan.Capacity{}, fmt.Errorf("plan: %s: %w", path, err)
	}
	switch head.Schema {
	case capacity.EnvelopeSchema:
		envelope, err := capacity.ReadEnvelope(content)
		if err != nil {
			return plan.Capacity{}, fmt.Errorf("%s: %w", path, err)
		}

		return plan.FromEnvelope(envelope, f.workload, f.arrival) //nolint:wrapcheck // says what is missing
	case capacity.ResultSchema:
		if f.workload != "" || f.arrival != "" {
			return plan.Capacity{}, fmt.Errorf("plan: %s is one search: --workload and --arrival choose from an envelope.json", path)
		}
		var found capacity.Result
		if err := json.Unmarshal(content, &found); err != nil {
			return plan.Capacity{}, fmt.Errorf("plan: %s: %w", path, err)
		}

		return plan.FromResult(&found) //nolint:wrapcheck // says what is missing
	}

	return plan.Capacity{}, fmt.Errorf("plan: %s: schema is %q, expected %q or %q", path, head.Schema,
		capacity.ResultSchema, capacity.EnvelopeSchema)
}

// inSearch is the answer in the directory of a search: the envelope of several, or the one result.
func inSearch(dir string) (string, error) {
	for _, name := range []string{capacity.EnvelopeFile, capacity.ResultFile} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}

	return "", fmt.Errorf("plan: %s holds neither %s nor %s: it is not the directory of a finished search", dir, capacity.EnvelopeFile, capacity.ResultFile)
}
