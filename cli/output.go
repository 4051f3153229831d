package cli

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/spf13/cobra"
)

// checkedOutput remembers the first error of an output. Commands print in many places, and a table that was cut is no answer.
type checkedOutput struct {
	to io.Writer

	mu  sync.Mutex
	err error
}

// Write implements io.Writer.
func (o *checkedOutput) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.err == nil {
			o.err = err
		}
	}

	return n, err //nolint:wrapcheck // an implementation of an interface
}

// orLost is a command's error with its exit code; that the output could not be written goes before any answer.
func (o *checkedOutput) orLost(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.err == nil || errors.Is(err, o.err):
		return wrongUse(err)
	case err == nil:
		return wrongUse(fmt.Errorf("writing the output: %w", o.err))
	default:
		return errors.Join(wrongUse(fmt.Errorf("writing the output: %w", o.err)), err)
	}
}

// answerTo makes the commands end with an exit code of this family, whatever they end with.
func answerTo(cmd *cobra.Command, out *checkedOutput) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error { return out.orLost(run(cmd, args)) }
	}
	for _, sub := range cmd.Commands() {
		answerTo(sub, out)
	}
}
