package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/spf13/cobra"
	"go.k6.io/k6/errext"
	"go.k6.io/k6/errext/exitcodes"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/report"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// newGate is `k6 x llm gate`: what can be done with a contract, before a run and after it.
func newGate(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gate",
		Short: "Check and explain a contract, and judge a run by it",
		Args:  unknownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newGateCheck(env), newGateExplain(env), newGateVerdict(env))

	return cmd
}

func newGateCheck(env environment) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "check CONTRACT",
		Short:   "Check a contract: every problem at once, with file, line, column and key",
		Example: "  k6 x llm gate check slo.yaml\n  k6 x llm gate check slo.yaml --json",
		Args:    exactArgs("CONTRACT"),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := loadContract(env, args[0])
			if asJSON {
				return printChecked(env, args[0], c, err)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(env.stdout, "%s is a valid contract: %d criteria, %d abort rules, confidence %g\n",
				c.File, len(c.Criteria()), len(c.Abort), c.Confidence)
			for _, u := range c.Unwatched() {
				fmt.Fprintf(env.stdout, "warning: %s:%d:%d: %s\n", c.File, u.Rule.Pos.Line, u.Rule.Pos.Column, u)
			}

			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: ok, and the problems")

	return cmd
}

// checkedContract is what `gate check` prints for programs.
type checkedContract struct {
	File     string           `json:"file"`
	OK       bool             `json:"ok"`
	Problems []checkedProblem `json:"problems"`
	// Of a valid contract.
	Criteria   int     `json:"criteria,omitempty"`
	AbortRules int     `json:"abort_rules,omitempty"`
	Confidence float64 `json:"confidence,omitempty"`
}

// checkedProblem is one problem; a file that cannot be read has no place in it.
type checkedProblem struct {
	File     string `json:"file"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Key      string `json:"key,omitempty"`
	Found    string `json:"found,omitempty"`
	Expected string `json:"expected,omitempty"`
	Message  string `json:"message"`
}

func printChecked(env environment, path string, c *contract.Contract, err error) error {
	out := checkedContract{File: path, OK: err == nil, Problems: []checkedProblem{}}
	var problems contract.Errors
	switch {
	case err == nil:
		out.Criteria, out.AbortRules, out.Confidence = len(c.Criteria()), len(c.Abort), c.Confidence
	case errors.As(err, &problems):
		for _, p := range problems {
			out.Problems = append(out.Problems, checkedProblem{
				File: p.File, Line: p.Pos.Line, Column: p.Pos.Column, Key: p.Key, Found: p.Found, Expected: p.Expected, Message: p.Error(),
			})
		}
		err = wrongUse(fmt.Errorf("%s is not a valid contract", path)) // the problems are in the JSON
	default:
		out.Problems = append(out.Problems, checkedProblem{File: path, Message: err.Error()})
	}
	if printed := printJSON(env.stdout, out); printed != nil {
		return printed
	}

	return err
}

func newGateExplain(env environment) *cobra.Command {
	var asJSON bool
	var baseline string
	cmd := &cobra.Command{
		Use:     "explain CONTRACT",
		Short:   "Show what each line of a contract becomes: k6 thresholds, monitor or verdict, and how many requests it needs",
		Example: "  k6 x llm gate explain slo.yaml\n  k6 x llm gate explain slo.yaml --baseline results-before --json",
		Args:    exactArgs("CONTRACT"),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := loadContract(env, args[0])
			if err != nil {
				return err
			}
			if c, err = withBaseline(env, c, baseline); err != nil {
				return err
			}
			if asJSON {
				return contract.ExplainJSON(env.stdout, c) //nolint:wrapcheck // nothing to add
			}

			return contract.Explain(env.stdout, c) //nolint:wrapcheck // nothing to add
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&baseline, "baseline", "", "results directory that limits against a baseline refer to")

	return cmd
}

func newGateVerdict(env environment) *cobra.Command {
	var asJSON, github bool
	var path, baseline string
	cmd := &cobra.Command{
		Use:   "verdict DIR",
		Short: "Judge a results directory: PASS, FAIL, INCONCLUSIVE or INVALID for each criterion and overall",
		Long: "Judges the evidence of `k6 run --out llm=DIR` by the contract of that run, or by another one, and writes\n" +
			"verdict.json, report.md and junit.xml into the directory. A run that was killed is judged by what it left.\n\n" +
			"Exit codes: 0 PASS, 1 FAIL, 2 INCONCLUSIVE or INVALID, 3 wrong use.",
		Example: "  k6 x llm gate verdict results\n  k6 x llm gate verdict results --contract slo.yaml --github",
		Args:    exactArgs("DIR"),
		RunE: func(_ *cobra.Command, args []string) error {
			run, err := results.Open(args[0])
			if err != nil {
				return wrongUse(err)
			}
			c, err := contractOf(env, run, path)
			if err != nil {
				return err
			}
			if c, err = withBaseline(env, c, baseline); err != nil {
				return err
			}
			if os.Getenv("GOGC") == "" {
				// Each criterion goes through copies of a column: a third of the memory of a large run is garbage otherwise.
				debug.SetGCPercent(50)
			}
			judged, err := verdict.Judge(run, c)
			if err != nil {
				return wrongUse(err)
			}
			if err := report.Write(run.Dir, judged); err != nil {
				return wrongUse(err)
			}
			if err := printVerdict(env, judged, asJSON, github); err != nil {
				return err
			}

			return exitWith(judged.Verdict)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print verdict.json")
	cmd.Flags().BoolVar(&github, "github", false, "print annotations for GitHub Actions as well; with --json on standard error")
	cmd.Flags().StringVar(&path, "contract", "", "judge by this contract; default: the one that the run carried")
	cmd.Flags().StringVar(&baseline, "baseline", "", "results directory that limits against a baseline refer to")

	return cmd
}

func printVerdict(env environment, judged *verdict.Result, asJSON, github bool) error {
	text := report.Text(judged, env.colour)
	if asJSON {
		var err error
		if text, err = json.MarshalIndent(judged, "", "  "); err != nil {
			return fmt.Errorf("verdict: %w", err)
		}
		text = append(text, '\n')
	}
	annotations := env.stdout
	if asJSON { // one object stands there; GitHub reads both streams
		annotations = env.stderr
	}
	_, err := env.stdout.Write(text)
	if err == nil && github {
		_, err = annotations.Write(report.GitHub(judged))
	}
	if err != nil {
		return fmt.Errorf("printing the verdict: %w", err)
	}

	return nil
}

// exitWith ends the command with the verdict's own exit code.
func exitWith(status verdict.Status) error {
	code := status.ExitCode()
	if code == 0 {
		return nil
	}

	return errext.WithExitCodeIfNone(fmt.Errorf("the verdict is %s", status), exitcodes.ExitCode(code)) // #nosec G115 -- 0 to 2
}

func loadContract(env environment, path string) (*contract.Contract, error) {
	data, err := os.ReadFile(path) // #nosec G304 -- the user's own file
	if err != nil {
		return nil, wrongUse(fmt.Errorf("contract: %w", err))
	}
	c, err := contract.Load(path, data, env.lookup)
	if err != nil {
		return nil, wrongUse(fmt.Errorf("the contract has errors:\n%w", err))
	}

	return c, nil
}

// contractOf is the contract that a run is judged by: the one named, or the one that it carried.
func contractOf(env environment, run *results.Run, path string) (*contract.Contract, error) {
	if path != "" {
		return loadContract(env, path)
	}
	c, err := verdict.CarriedContract(run)
	switch {
	case err != nil:
		return nil, wrongUse(fmt.Errorf("%w; name another one with --contract", err))
	case c == nil:
		return nil, wrongUse(fmt.Errorf("%s carries no contract (the script has no gate.monitor(contract)): name one with --contract", run.Dir))
	}

	return c, nil
}

// withBaseline gives limits against a baseline their numbers. A baseline that is named replaces the one that a run's contract
// was resolved by, and has to be there even where no limit refers to it.
func withBaseline(env environment, c *contract.Contract, named string) (*contract.Contract, error) {
	baseline := named
	switch {
	case named != "":
		c = c.Unresolved()
	case c.Baseline == "" || len(c.BaselineNames()) == 0:
		return c, nil
	case filepath.IsAbs(c.Baseline):
		baseline = c.Baseline
	default:
		baseline = filepath.Join(filepath.Dir(c.File), c.Baseline)
	}
	before, err := verdict.Read(baseline)
	if err != nil {
		return nil, wrongUse(fmt.Errorf("baseline: %w; expected the results directory of a run that was judged, or its verdict.json: `k6 x llm gate verdict` judges it", err))
	}
	measured, warning, err := before.Baseline()
	if err != nil {
		return nil, wrongUse(fmt.Errorf("baseline %s: %w", baseline, err))
	}
	if warning != "" {
		env.warn(fmt.Errorf("baseline %s: %s", baseline, warning))
	}
	resolved, err := c.Resolve(measured)
	if err != nil {
		return nil, wrongUse(fmt.Errorf("baseline %s: %w", baseline, err))
	}

	return resolved, nil
}
