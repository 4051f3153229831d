package cli

import (
	"os/exec"
	"runtime"
	"syscall"
)

// runWithParent runs a command that does not outlive this process, even one that is killed: the load would go on with
// nobody to end it, and a resumed search would measure both. The kernel sends the signal at the death of the thread that
// started the command (prctl(2), PR_SET_PDEATHSIG), so the thread is kept. SIGKILL, since the evidence of an interrupted
// probe is thrown away.
func runWithParent(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

	return cmd.Run() //nolint:wrapcheck // the caller says what it ran
}
