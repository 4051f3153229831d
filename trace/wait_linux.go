package trace

import (
	"time"

	"golang.org/x/sys/unix"
)

// sharpenSleep takes the calling thread's timer slack from Linux's 50 µs to its minimum: with slack, the kernel puts a
// wake-up off to merge it with others (prctl(2), PR_SET_TIMERSLACK). A kernel that refuses leaves the sleep as it was.
func sharpenSleep() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
}

// sleepInKernel sleeps about as long as it is told, perhaps less.
func sleepInKernel(d time.Duration) {
	request := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&request, nil) // EINTR: the caller looks at the clock again
}
