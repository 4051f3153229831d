package trace

import (
	"context"
	"runtime"
	"time"
)

// A Go timer fires up to a millisecond late, since the runtime's poller waits in whole milliseconds. So the timer is
// used up to this long before a due time, and the rest is slept in the kernel.
const kernelSleep = 1500 * time.Microsecond

// alarm waits for absolute instants.
type alarm struct {
	timer *time.Timer
}

// newAlarm prepares the calling goroutine to wait precisely. It binds the goroutine to its thread, which the runtime
// ends together with the goroutine.
func newAlarm() *alarm {
	runtime.LockOSThread()
	sharpenSleep()
	timer := time.NewTimer(time.Hour)
	timer.Stop()

	return &alarm{timer: timer}
}

// until returns true at the given instant, or at once if that has passed, and false as soon as the context is done. It
// does not spin: that would take a processor away from the VUs.
func (a *alarm) until(ctx context.Context, due time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		default:
		}
		left := time.Until(due)
		if left <= 0 {
			return true
		}
		if left <= kernelSleep {
			// One call may return early: where a signal arrives, and by the clock's grain.
			sleepInKernel(left)

			continue
		}
		a.timer.Reset(left - kernelSleep)
		select {
		case <-a.timer.C:
		case <-ctx.Done():
			a.timer.Stop()

			return false
		}
	}
}
