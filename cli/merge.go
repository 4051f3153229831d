package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/safeqps/xk6-safeqps/gate/merge"
	"github.com/safeqps/xk6-safeqps/gate/report"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// newMerge is `k6 x llm merge`: the instances of a distributed test, joined and judged as one.
func newMerge(env environment) *cobra.Command {
	var out, path, baseline string
	var asJSON, overwrite bool
	cmd := &cobra.Command{
		Use:   "merge DIR DIR...",
		Short: "Join the evidence of the instances of one distributed test, and judge it as one",
		Long: "Joins requests, series and histograms of several results directories into --out and judges the whole by the\n" +
			"contract that the runs carried. A threshold that one instance saw is not the whole: this verdict is.\n\n" +
			"Exit codes: 0 PASS, 1 FAIL, 2 INCONCLUSIVE or INVALID, 3 wrong use.",
		Example: "  k6 x llm merge results/1 results/2 results/3 --out results/all",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return wrongUse(fmt.Errorf("got %d directories, expected the results directories of two or more instances", len(args)))
			}

			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if out == "" {
				return wrongUse(errors.New("--out: got nothing, expected a directory for the joined evidence"))
			}
			if err := free(out, overwrite); err != nil {
				return wrongUse(err)
			}
			first, err := results.Open(args[0])
			if err != nil {
				return wrongUse(err)
			}
			agreed, err := contractOf(env, first, path)
			if err != nil {
				return err
			}
			if agreed, err = withBaseline(env, agreed, baseline); err != nil {
				return err
			}
			joined, err := merge.Merge(args, out, merge.Options{Overwrite: overwrite, Contract: agreed, Warn: env.warn})
			if err != nil {
				return wrongUse(err)
			}
			printInstances(env, joined)
			run, err := results.Open(out)
			if err != nil {
				return wrongUse(err)
			}
			judged, err := verdict.Judge(run, agreed)
			if err != nil {
				return wrongUse(err)
			}
			if err := report.Write(out, judged); err != nil {
				return wrongUse(err)
			}
			if err := printVerdict(env, judged, asJSON, false); err != nil {
				return err
			}

			return exitWith(judged.Verdict)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "directory for the joined evidence (required)")
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "replace the results in --out")
	cmd.Flags().StringVar(&path, "contract", "", "judge by this contract; default: the one that the runs carried")
	cmd.Flags().StringVar(&baseline, "baseline", "", "results directory that limits against a baseline refer to")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print verdict.json")

	return cmd
}

// free refuses a directory that holds something. Merging would refuse it as well, but in the words of `--out llm=DIR`.
func free(dir string, overwrite bool) error {
	occupied, err := results.Occupied(dir)
	if err != nil || overwrite || !occupied {
		return nil //nolint:nilerr // making it tells the rest
	}

	return fmt.Errorf("--out: directory %s is not empty: give another one, or --overwrite to replace the results in it", dir)
}

// printInstances tells what was joined, and how the instances' clocks stood.
func printInstances(env environment, joined merge.Report) {
	segments := make([]string, len(joined.Instances))
	for i := range joined.Instances {
		segments[i] = joined.Instances[i].Segment
	}
	fmt.Fprintf(env.stderr, "%d instances (%s): %d arrivals, %d rows in more than one", len(joined.Instances),
		strings.Join(segments, ", "), joined.Counts.Offered, joined.DuplicateRows)
	if joined.StartSkewMS != nil {
		fmt.Fprintf(env.stderr, ", began at least %.0f ms apart", *joined.StartSkewMS)
	}
	fmt.Fprintln(env.stderr)
	for i := range joined.Instances[1:] {
		instance := &joined.Instances[i+1]
		if offset := instance.ClockOffset; offset != nil {
			fmt.Fprintf(env.stderr, "clock of %s: %+.3f ms to %+.3f ms against the first instance's, by %d turns of the service's Date",
				instance.Name(), offset.Lower, offset.Upper, offset.Turns)
			if instance.CorrectedMS != 0 {
				fmt.Fprintf(env.stderr, "; its times are corrected by %+.3f ms", -instance.CorrectedMS)
			}
			fmt.Fprintln(env.stderr)
		} else {
			fmt.Fprintf(env.stderr, "clock of %s: not compared with the first instance's: %s\n", instance.Name(), instance.ClockUnknown)
		}
	}
}
