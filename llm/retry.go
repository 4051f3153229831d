package llm

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/safeqps/xk6-safeqps/llm/wire"
)

// retryPolicy models a client that tries again. It is off unless asked for: a retry hides a failure from the one who
// waits, and adds load to a service that has just shown that it has too much.
type retryPolicy struct {
	max     int              // further attempts of one request
	on      []wire.ErrorType // the failures that are tried again
	backoff time.Duration    // before the first retry; doubles, with random jitter, from retry to retry
	budget  float64          // retries as a share of first attempts, in this process
}

// The defaults of the option retry. The budget is that of Google's SRE book (chapter "Handling Overload"): retries stay
// below a tenth of all requests, so that they can not multiply an overload.
const (
	defaultBackoff     = 500 * time.Millisecond
	defaultRetryBudget = 0.1
	maxRetryWait       = time.Minute // also for a server that asks for more with Retry-After
)

// retryable are the failures that a retry can mend.
//
//nolint:gochecknoglobals // a constant list
var retryable = []wire.ErrorType{
	wire.ErrHTTP429, wire.ErrHTTP5xx, errorConnect, errorTimeout, errorIdleTimeout, wire.ErrTruncated, wire.ErrStream,
}

func parseRetry(o *optionsOf) (*retryPolicy, error) {
	r, err := o.object("retry", `an object such as {"max": 2, "on": ["http_429", "http_5xx"], "backoff": "500ms", "budget": 0.1}`)
	if r == nil || err != nil {
		return nil, err
	}
	if err := r.only("max", "on", "backoff", "budget"); err != nil {
		return nil, err
	}
	p := &retryPolicy{
		on: []wire.ErrorType{wire.ErrHTTP429, wire.ErrHTTP5xx, errorConnect}, backoff: defaultBackoff, budget: defaultRetryBudget,
	}
	const maxForm = "how often a request is tried again: a whole number from 1 to 10"
	if p.max, _, err = r.whole("max", 1, maxForm); err != nil {
		return nil, err
	}
	if p.max < 1 || p.max > 10 {
		return nil, r.wrong("max", r.values["max"], maxForm)
	}
	if v, ok := r.get("on"); ok {
		if p.on, err = parseRetryOn(r, v); err != nil {
			return nil, err
		}
	}
	if d, ok, err := r.duration("backoff"); err != nil {
		return nil, err
	} else if ok {
		p.backoff = d
	}
	if f, ok, err := r.number("budget", 0, 1, "retries as a share of first attempts, from 0 to 1"); err != nil {
		return nil, err
	} else if ok {
		p.budget = f
	}

	return p, nil
}

func parseRetryOn(r *optionsOf, v any) ([]wire.ErrorType, error) {
	list, ok := v.([]any)
	form := "a list of: " + joinTypes(retryable)
	if !ok || len(list) == 0 {
		return nil, r.wrong("on", v, form)
	}
	var on []wire.ErrorType
	for _, item := range list {
		name, _ := item.(string)
		if !slices.Contains(retryable, wire.ErrorType(name)) {
			return nil, r.wrong("on", item, form)
		}
		on = append(on, wire.ErrorType(name))
	}

	return on, nil
}

func joinTypes(types []wire.ErrorType) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(t)
	}

	return strings.Join(names, ", ")
}

// send runs a prepared request to its end, and tries again where the client's policy says so. It never touches the
// JavaScript runtime and so may run on any goroutine. It is nil where the request was never sent.
func (c *client) send(ctx context.Context, p *prepared) *Exchange {
	ex := c.attempt(ctx, p, 1)
	policy := c.options.retry
	if policy == nil || ex == nil {
		return ex
	}
	c.module.root.firstAttempts.Add(1)
	pauses := &backoff.ExponentialBackOff{
		InitialInterval: policy.backoff, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: maxRetryWait,
	}
	pauses.Reset()
	for n := 2; n <= policy.max+1 && slices.Contains(policy.on, ex.ErrorType) && c.withinBudget(policy); n++ {
		if !wait(ctx, max(pauses.NextBackOff(), min(ex.retryAfter, maxRetryWait))) {
			break
		}
		again := c.attempt(ctx, p, n)
		if again == nil {
			break
		}
		c.module.root.retries.Add(1)
		ex = again
	}

	return ex
}

func (c *client) withinBudget(policy *retryPolicy) bool {
	root := c.module.root

	return float64(root.retries.Load()+1) <= policy.budget*float64(root.firstAttempts.Load())
}

// wait is false where the iteration ended first.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// retryAfter reads the header of that name: seconds, or a date.
func retryAfter(header http.Header, now time.Time) time.Duration {
	value := header.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil && at.After(now) {
		return at.Sub(now)
	}

	return 0
}

// attemptTag is the tag of a retry's samples.
func attemptTag(attempt int) string { return fmt.Sprint(attempt) }
