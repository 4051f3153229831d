// Package cli is the command family `k6 x llm …`. Each command is a thin shell over a package that does the work: it
// reads flags, prints a table for people or --json for programs, and turns results into exit codes.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"go.k6.io/k6/cmd/state"
	"go.k6.io/k6/errext"
	"go.k6.io/k6/errext/exitcodes"
)

// The exit codes of every command; 0 is a pass.
const (
	ExitFail         exitcodes.ExitCode = 1
	ExitInconclusive exitcodes.ExitCode = 2
	ExitWrongUse     exitcodes.ExitCode = 3
)

// New builds the command `llm` for k6 to hang under `k6 x`.
func New(gs *state.GlobalState) *cobra.Command {
	root := &cobra.Command{
		Use:   "llm",
		Short: "Measure what an LLM service can carry",
		Long: "Tools around the k6/x/llm modules.\n\n" +
			"Exit codes: 0 pass, 1 fail, 2 inconclusive, 3 wrong use.",
		SilenceUsage: true,
		Args:         unknownCommand,
		RunE:         func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return wrongUse(fmt.Errorf("%w; see `k6 x %s --help`", err, strings.TrimPrefix(cmd.CommandPath(), "k6 x ")))
	})
	out := &checkedOutput{to: gs.Stdout}
	env := environment{stdout: out, stderr: gs.Stderr, colour: gs.Stdout.IsTTY && !gs.Flags.NoColor, lookup: func(name string) (string, bool) {
		value, ok := gs.Env[name]

		return value, ok
	}}
	root.AddCommand(newSim(env), newTrace(env), newGate(env), newCapacity(env), newCompare(env), newMerge(env),
		newReport(env), newPlan(env))
	answerTo(root, out)
	showLines(root, gs)

	return root
}

// environment is what commands know of the world outside.
type environment struct {
	stdout, stderr io.Writer
	colour         bool
	lookup         func(name string) (string, bool)
}

// mute leaves out what is said to people beside the result, where that is for programs.
func (e environment) mute(yes bool) environment {
	if yes {
		e.stderr = io.Discard
	}

	return e
}

// warn tells people of what is no failure.
func (e environment) warn(err error) { fmt.Fprintf(e.stderr, "warning: %v\n", err) }

// with looks variables up in a map before the environment.
func (e environment) with(variables map[string]string) environment {
	outer := e.lookup
	e.lookup = func(name string) (string, bool) {
		if value, ok := variables[name]; ok {
			return value, true
		}

		return outer(name)
	}

	return e
}

// without hides variables.
func (e environment) without(names []string) environment {
	outer := e.lookup
	e.lookup = func(name string) (string, bool) {
		if slices.Contains(names, name) {
			return "", false
		}

		return outer(name)
	}

	return e
}

// unknownCommand refuses arguments of a command that only groups others.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	names := make([]string, 0, len(cmd.Commands()))
	for _, sub := range cmd.Commands() {
		names = append(names, sub.Name())
	}

	return wrongUse(fmt.Errorf("unknown command %q, expected one of: %s", args[0], strings.Join(names, ", ")))
}

// exactArgs demands named arguments.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}

		if len(names) == 0 {
			return wrongUse(fmt.Errorf("got %q, expected no arguments, only flags", strings.Join(args, " ")))
		}

		return wrongUse(fmt.Errorf("got %s, expected %d: %s", argumentCount(len(args)), len(names), strings.Join(names, " ")))
	}
}

func argumentCount(n int) string {
	if n == 1 {
		return "1 argument"
	}

	return fmt.Sprintf("%d arguments", n)
}

// wrongUse marks an error as the caller's.
func wrongUse(err error) error {
	if err == nil {
		return nil
	}

	return errext.WithExitCodeIfNone(err, ExitWrongUse)
}

// withExit gives an error the exit code that a program reads.
func withExit(err error, code exitcodes.ExitCode) error {
	return errext.WithExitCodeIfNone(err, code)
}

// untilInterrupted is a context that ends at Ctrl-C or SIGTERM.
func untilInterrupted(parent context.Context) (context.Context, context.CancelFunc) {
	if parent == nil {
		parent = context.Background()
	}

	return signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
}
