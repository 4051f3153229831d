package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/safeqps/xk6-safeqps/gate/compare"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

// newCompare is `k6 x llm compare`: two runs of one workload, side by side.
func newCompare(env environment) *cobra.Command {
	var o compare.Options
	var margin, errorMargin, confidence string
	var asJSON, markdown bool
	cmd := &cobra.Command{
		Use:   "compare A B",
		Short: "Say whether B is better than A, worse, the same, or whether there is not enough evidence",
		Long: "Compares two results directories of the same workload: quantiles of TTFT, TPOT, ITL and E2E, throughput and errors,\n" +
			"with intervals from a bootstrap over blocks of time, and a paired test where both replayed the same rows. A side\n" +
			"whose verdict is INVALID gives no answer.\n\n" +
			"Exit codes: 0 better or the same, 1 worse or mixed, 2 not enough evidence, 3 wrong use.",
		Example: "  k6 x llm compare results/before results/after\n  k6 x llm compare a b --margin 10% --json",
		Args:    exactArgs("A", "B"),
		RunE: func(_ *cobra.Command, args []string) error {
			if asJSON && markdown {
				return wrongUse(errors.New("got both forms of output, expected one of --json and --markdown"))
			}
			for _, share := range []struct {
				flag, text string
				to         *float64
			}{{"margin", margin, &o.Margin}, {"error-margin", errorMargin, &o.ErrorMargin}, {"confidence", confidence, &o.Confidence}} {
				value, err := parseShare(share.text)
				if err != nil || value <= 0 {
					return wrongUse(fmt.Errorf("--%s: got %q, expected a share above 0 such as 5%% or 0.05", share.flag, share.text))
				}
				*share.to = value
			}
			found, err := compareDirs(args[0], args[1], o)
			if err != nil {
				return err
			}
			switch {
			case asJSON:
				err = printJSON(env.stdout, found)
			case markdown:
				_, err = fmt.Fprint(env.stdout, found.Markdown())
			default:
				_, err = fmt.Fprint(env.stdout, found.Text())
			}
			if err != nil {
				return fmt.Errorf("printing the comparison: %w", err)
			}

			return exitOfComparison(found.Answer)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Phase, "phase", "steady", "phase that is compared")
	flags.StringVar(&margin, "margin", "5%", "change within which two values count as the same")
	flags.StringVar(&errorMargin, "error-margin", "0.5%", "the same for the share of failed requests, as a difference of shares")
	flags.StringVar(&confidence, "confidence", "95%", "confidence of the intervals and of the answer")
	flags.Float64Var(&o.BlockSeconds, "block", 0, "mean length of the bootstrap's blocks in seconds; default: a fifteenth of the phase")
	flags.IntVar(&o.Resamples, "resamples", 1000, "resamples of the bootstrap")
	flags.Uint64Var(&o.Seed, "seed", 0, "seed of the bootstrap")
	flags.BoolVar(&o.Force, "force", false, "compare different workloads, too; the report says what differs")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	flags.BoolVar(&markdown, "markdown", false, "print Markdown, for a pull request")

	return cmd
}

func compareDirs(a, b string, o compare.Options) (*compare.Report, error) {
	before, err := results.Open(a)
	if err != nil {
		return nil, wrongUse(err)
	}
	after, err := results.Open(b)
	if err != nil {
		return nil, wrongUse(err)
	}
	found, err := compare.Compare(before, after, o)
	var different *compare.DifferentWorkloadsError
	if errors.As(err, &different) {
		return nil, wrongUse(fmt.Errorf("%w; --force compares all the same", err))
	}

	return found, wrongUse(err)
}

func exitOfComparison(answer compare.Answer) error {
	switch answer {
	case compare.Better, compare.Same:
		return nil
	case compare.NotEnough:
		return withExit(fmt.Errorf("the answer is: %s", answer), ExitInconclusive)
	case compare.Worse, compare.Mixed:
	}

	return withExit(fmt.Errorf("the answer is: %s", answer), ExitFail)
}
