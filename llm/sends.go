package llm

import (
	"context"
	"sync/atomic"
)

type sendsKey struct{}

// WithSends gives a VU's iterations a count of the requests that they make. An executor that hands out arrivals puts it
// into the VU's context, and so finds those that came to nothing.
func WithSends(ctx context.Context, sends *atomic.Int64) context.Context {
	return context.WithValue(ctx, sendsKey{}, sends)
}

// CountSend counts one request, where anyone wants to know.
func CountSend(ctx context.Context) {
	if sends, ok := ctx.Value(sendsKey{}).(*atomic.Int64); ok {
		sends.Add(1)
	}
}
