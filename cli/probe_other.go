//go:build !linux

package cli

import "os/exec"

// runWithParent runs a command. Here nothing ends it when this process is killed: see docs/limits.md.
func runWithParent(cmd *exec.Cmd) error {
	return cmd.Run() //nolint:wrapcheck // the caller says what it ran
}
