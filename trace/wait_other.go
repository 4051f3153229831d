//go:build !linux

package trace

import "time"

func sharpenSleep() {}

// sleepInKernel sleeps about as long as it is told. Only Linux's nanosleep is precise enough to be worth a call of its
// own; elsewhere the runtime's timers decide.
func sleepInKernel(d time.Duration) { time.Sleep(d) }
