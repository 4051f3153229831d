package trace

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.k6.io/k6/metrics"
)

// DropReason says why a row was not started.
type DropReason string

// The reasons.
const (
	// DropNoVU: every VU was at work, and maxVUs allows no more.
	DropNoVU DropReason = "no_vu"
	// DropVUStarting: every VU was at work, and a further one was still being made.
	DropVUStarting DropReason = "vu_starting"
	// DropLate: the load generator itself was so far behind that starting the row would have sent it late in silence.
	DropLate DropReason = "late"
	// DropMaxDuration: the row was due after the scenario's maxDuration.
	DropMaxDuration DropReason = "max_duration"
	// DropNoRequest: the row's iteration ended and had sent no request: it threw, or the script left the row out.
	DropNoRequest DropReason = "no_request"
	// DropStopped: the test, or the scenario's gracefulStop, ended after the row's due time and before it had sent its request.
	DropStopped DropReason = "stopped"
)

// dropKinds are the reasons in the order in which they are told, each with a word for the progress line and, where a
// setting would have prevented it, what it means and what to do.
//
//nolint:gochecknoglobals // a constant table
var dropKinds = [...]struct {
	reason        DropReason
	short, advice string
}{
	{DropNoVU, "no VU", "all VUs that maxVUs allows were at work: raise maxVUs, and preAllocatedVUs with it"},
	{DropVUStarting, "VU starting", "further VUs were still being made: raise preAllocatedVUs"},
	{DropLate, "late", "the load generator itself was behind by more than tolerance: take a faster or less busy machine, or several"},
	{DropNoRequest, "no request", "their iterations ended without a request: see their errors above, and let every iteration send its own"},
	{DropMaxDuration, "past maxDuration", ""},
	{DropStopped, "stopped", ""},
}

// dropCounts counts dropped rows by their reason. The zero value is ready.
type dropCounts [len(dropKinds)]atomic.Int64

func (c *dropCounts) add(reason DropReason) {
	for i := range dropKinds {
		if dropKinds[i].reason == reason {
			c[i].Add(1)
		}
	}
}

func (c *dropCounts) total() int64 {
	var total int64
	for i := range c {
		total += c[i].Load()
	}

	return total
}

// String is for the progress line: "12 dropped (10 no VU, 2 late)".
func (c *dropCounts) String() string {
	var parts []string
	for i := range c {
		if n := c[i].Load(); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, dropKinds[i].short))
		}
	}
	text := fmt.Sprintf("%d dropped", c.total())
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, ", ") + ")"
	}

	return text
}

// advice says why rows were dropped and which setting would have prevented it; "" where none would.
func (c *dropCounts) advice() string {
	var parts []string
	for i := range c {
		if n := c[i].Load(); n > 0 && dropKinds[i].advice != "" {
			parts = append(parts, fmt.Sprintf("%d because %s", n, dropKinds[i].advice))
		}
	}

	return strings.Join(parts, "; ")
}

// Dropped is a row that was offered and came to no request. It carries one sample of k6's own metric dropped_iterations,
// unless its iteration was started, with the scenario's tags; and what an output needs to record the row.
type Dropped struct {
	Row      int
	Due      time.Time
	Scenario string
	Class    string // of the row; empty if it has none
	Reason   DropReason
	Tags     *metrics.TagSet
	Sample   metrics.Sample // of no metric where the iteration was started
}

// GetSamples implements metrics.SampleContainer.
func (d *Dropped) GetSamples() []metrics.Sample {
	if d.Sample.Metric == nil {
		return nil
	}

	return []metrics.Sample{d.Sample}
}

// dropQueue takes dropped rows from the dispatcher and hands them to k6 on a goroutine of its own: k6's channel of
// samples blocks when it is full, and a dispatcher that waits there is late for the rows that follow. The queue holds at
// most the rows of the trace.
type dropQueue struct {
	out    chan<- metrics.SampleContainer
	mu     sync.Mutex
	queued []*Dropped
	wake   chan struct{} // capacity 1
	done   chan struct{}
}

func newDropQueue(out chan<- metrics.SampleContainer) *dropQueue {
	q := &dropQueue{out: out, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go q.run()

	return q
}

func (q *dropQueue) add(d *Dropped) {
	q.mu.Lock()
	q.queued = append(q.queued, d)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// close hands over what is queued and waits for it. Nothing may be added after it.
func (q *dropQueue) close() {
	close(q.wake)
	<-q.done
}

func (q *dropQueue) run() {
	defer close(q.done)
	for range q.wake {
		q.flush()
	}
	q.flush()
}

func (q *dropQueue) flush() {
	q.mu.Lock()
	batch := q.queued
	q.queued = nil
	q.mu.Unlock()
	for _, d := range batch {
		// Not metrics.PushIfNotDone: a row that was dropped before an abort is kept. k6 reads until Run has returned.
		q.out <- d
	}
}
