package cli

import (
	"strings"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"go.k6.io/k6/cmd/state"
)

// showLines makes the commands print errors of several lines as they are. k6 logs the error of a command; off a terminal its
// text format puts a message into one line, with its line breaks escaped.
func showLines(cmd *cobra.Command, gs *state.GlobalState) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			// k6 has chosen its format by now, and not before.
			if text, ok := gs.Logger.Formatter.(*logrus.TextFormatter); ok {
				gs.Logger.SetFormatter(&linesFormatter{text})
			}

			return run(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		showLines(sub, gs)
	}
}

// linesFormatter writes messages of several lines as they are, and others as k6's own text format does.
type linesFormatter struct{ text *logrus.TextFormatter }

// Format implements logrus.Formatter.
func (f *linesFormatter) Format(entry *logrus.Entry) ([]byte, error) {
	if !strings.Contains(strings.TrimRight(entry.Message, "\n"), "\n") {
		return f.text.Format(entry) //nolint:wrapcheck // an implementation of an interface
	}

	return append([]byte(strings.TrimRight(entry.Message, "\n")), '\n'), nil
}
