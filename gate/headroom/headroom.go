// Package headroom measures how much room the load generator itself has left. A generator at its limit measures itself
// and not the service.
package headroom

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/shirou/gopsutil/v4/mem"
	"github.com/shirou/gopsutil/v4/process"
)

// Reading is the state of this process. Nil means that this system does not say.
type Reading struct {
	CPU       *float64 // share of the cores it may use, since the reading before, 0 to 1
	Memory    *float64 // resident memory, as a share of the machine's, 0 to 1
	OpenFiles *float64 // open file descriptors, as a share of the limit, 0 to 1
}

// Meter reads the state of this process.
type Meter struct {
	process *process.Process
	cores   float64
	at      time.Time
	cpu     float64 // seconds, at the reading before
}

// NewMeter starts to measure.
func NewMeter() (*Meter, error) {
	p, err := process.NewProcess(int32(os.Getpid())) // #nosec G115 -- a process id fits
	if err != nil {
		return nil, fmt.Errorf("measuring this process: %w", err)
	}
	m := &Meter{process: p, cores: float64(runtime.GOMAXPROCS(0))}
	m.at, m.cpu = time.Now(), m.cpuSeconds()

	return m, nil
}

func (m *Meter) cpuSeconds() float64 {
	t, err := m.process.Times()
	if err != nil {
		return -1
	}

	return t.User + t.System
}

// Read takes a reading. What can not be read is absent.
func (m *Meter) Read() Reading {
	var r Reading
	now, cpu := time.Now(), m.cpuSeconds()
	if elapsed := now.Sub(m.at).Seconds(); elapsed > 0 && cpu >= 0 && m.cpu >= 0 {
		share := (cpu - m.cpu) / (elapsed * m.cores)
		r.CPU = &share
	}
	m.at, m.cpu = now, cpu
	if used, err := m.process.MemoryInfo(); err == nil {
		if all, err := mem.VirtualMemory(); err == nil && all.Total > 0 {
			share := float64(used.RSS) / float64(all.Total)
			r.Memory = &share
		}
	}
	r.OpenFiles = m.openFiles()

	return r
}

func (m *Meter) openFiles() *float64 {
	open, err := m.process.NumFDs()
	if err != nil {
		return nil
	}
	limits, err := m.process.Rlimit()
	if err != nil {
		return nil
	}
	for _, l := range limits {
		if l.Resource == process.RLIMIT_NOFILE && l.Soft > 0 {
			share := float64(open) / float64(l.Soft)

			return &share
		}
	}

	return nil
}

// TimerWatch measures how late this process's timers fire: what a token's stamp can be late at least.
type TimerWatch struct {
	mu     sync.Mutex
	delays []time.Duration
	done   chan struct{}
}

// timerPeriod is short enough to see a second's worst moments, and costs a hundredth of a per cent of a core.
const timerPeriod = 20 * time.Millisecond

// WatchTimers watches until the context ends; Wait then waits for the watch's goroutine.
func WatchTimers(ctx context.Context) *TimerWatch {
	w := &TimerWatch{done: make(chan struct{})}
	go w.run(ctx)

	return w
}

func (w *TimerWatch) run(ctx context.Context) {
	defer close(w.done)
	for ctx.Err() == nil {
		due := time.Now().Add(timerPeriod)
		timer := time.NewTimer(timerPeriod)
		select {
		case <-ctx.Done():
			timer.Stop()

			return
		case <-timer.C:
		}
		late := time.Since(due)
		w.mu.Lock()
		w.delays = append(w.delays, late)
		w.mu.Unlock()
	}
}

// Take returns the delays seen since it was called last.
func (w *TimerWatch) Take() []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.delays
	w.delays = nil

	return out
}

// Wait waits for the end of the watch.
func (w *TimerWatch) Wait() { <-w.done }
