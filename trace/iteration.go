package trace

import (
	"context"
	"time"
)

// Iteration is one arrival: the row of the trace that a VU is at work on, and the instant at which it was due.
type Iteration struct {
	Trace string    // its id
	Row   int       // as the trace counts, from 0; unique among all VUs and all execution segments
	Due   time.Time // with a monotonic reading, so that time.Since(Due) is not disturbed by a step of the wall clock
}

type iterationKey struct{}

// FromContext gives the iteration that the executor `trace-arrival-rate` has started in a VU's context; ok is false
// where another executor runs the VU. The VU's next iteration replaces the value, so it is to be asked on the VU's own
// goroutine.
func FromContext(ctx context.Context) (current Iteration, ok bool) {
	p, ok := ctx.Value(iterationKey{}).(*Iteration)
	if !ok {
		return Iteration{}, false
	}

	return *p, true
}
