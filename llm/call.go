package llm

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/safeqps/xk6-safeqps/llm/stream"
	"github.com/safeqps/xk6-safeqps/llm/wire"
)

const (
	// After the end of an answer the body is read on until it ends too, so that the connection can be used again: the
	// terminal chunk of the transfer often comes in a write of its own. A server that keeps the connection open is not
	// waited for longer than this, and not read further than that.
	drainTime  = 500 * time.Millisecond
	drainBytes = 256 << 10

	// A refusal's status has said what happened; its body may explain it, and is read no longer and no further than this.
	refusalTime  = time.Second
	refusalBytes = 64 << 10

	// maxBodyBytes bounds an answer that is not streamed.
	maxBodyBytes = 64 << 20
)

// call is one request on its way. It stands between k6's own HTTP machinery, which does redirects, cookies, limits,
// debugging and the http_req_* metrics, and the VU's own transport: as a round tripper it knows the moment at which the
// request leaves, and as the body that k6 reads it sees each read of the answer.
type call struct {
	next     http.RoundTripper
	vuCtx    context.Context //nolint:containedctx // ends the request when the iteration is interrupted
	secret   http.Header     // set on the way out only, so that no debug output shows it
	secrets  wire.Secrets    // what nothing may repeat of it
	host     string          // the secret goes to this host alone, whatever redirects say
	ex       *Exchange
	dec      *wire.Decoder
	idle     time.Duration
	abort    *abortAfter
	header   http.Header // of the answer
	err      error       // what ended the answer; nil for a complete one
	consumed bool

	cancel   context.CancelCauseFunc
	watch    *stream.IdleWatch
	cleanups []func()
}

// RoundTrip implements http.RoundTripper.
func (c *call) RoundTrip(req *http.Request) (*http.Response, error) {
	c.ex.Status, c.header = 0, nil // those of a redirect that led here say nothing of what is found
	if via := req.Response; via != nil && req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		c.ex.Status = via.StatusCode
		c.err = noRedirect(via.StatusCode, fmt.Sprintf("the redirect leads to the scheme %q, expected http or https", req.URL.Scheme))

		return nil, c.err
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	c.cancel = cancel
	out := req.Clone(ctx)
	if out.URL.Host == c.host {
		for name, values := range c.secret {
			out.Header[name] = values
		}
	}

	c.cleanups = append(c.cleanups, func() { cancel(nil) })
	stopInterrupt := context.AfterFunc(c.vuCtx, func() { cancel(errTestEnds) })
	c.cleanups = append(c.cleanups, func() { stopInterrupt() })

	if c.ex.Timeline.Sent.IsZero() {
		c.ex.Timeline.Sent = time.Now()
		c.startTimers()
	}
	resp, err := c.next.RoundTrip(out)
	if err != nil {
		c.err = c.cause(ctx, err)

		return nil, c.err
	}
	c.ex.Status = resp.StatusCode
	c.ex.HeaderAt, c.ex.Date = time.Now(), resp.Header.Get("Date")
	c.header = resp.Header
	resp.Body = &answer{ReadCloser: resp.Body, call: c, ctx: ctx, resp: resp}

	return resp, nil
}

// startTimers starts the clocks of silence and of patience. They run from the send.
func (c *call) startTimers() {
	if c.idle > 0 {
		c.watch = stream.WatchIdle(c.idle, func() { c.cancel(errIdle) })
		c.cleanups = append(c.cleanups, c.watch.Stop)
	}
	if c.abort != nil && c.abort.after >= 0 {
		patience := time.AfterFunc(c.abort.after, func() { c.cancel(errAbandoned) })
		c.cleanups = append(c.cleanups, func() { patience.Stop() })
	}
}

// close frees what the call holds. The body has been read or given up by then.
func (c *call) close() {
	for i := len(c.cleanups) - 1; i >= 0; i-- {
		c.cleanups[i]()
	}
}

// cause replaces the error of a cancelled request by the reason for which it was cancelled.
func (c *call) cause(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case cause == nil || errors.Is(err, cause):
		return err
	case errors.Is(cause, errIdle):
		// A kind of timeout, for k6's error_code too.
		return fmt.Errorf("%w: %w", errIdle, context.DeadlineExceeded)
	default:
		return cause
	}
}

// answer is the body that k6 reads. k6 copies it to nowhere; as an io.WriterTo it takes that copy over and reads the
// answer itself.
type answer struct {
	io.ReadCloser
	call *call
	ctx  context.Context //nolint:containedctx // the request's own, to know why a read failed
	resp *http.Response
}

// WriteTo implements io.WriterTo.
func (a *answer) WriteTo(io.Writer) (int64, error) {
	c := a.call
	c.consumed = true
	err := c.consume(a.resp, a.ReadCloser)
	if err == nil {
		err = c.dec.Finish()
	}
	var wireErr *wire.Error
	ended := err == nil || errors.As(err, &wireErr) || errors.Is(err, stream.ErrStopped)
	if !ended {
		err = c.cause(a.ctx, err)
		if c.answerIsWhole() && !errors.Is(err, errAbandoned) {
			err, ended = nil, true // the connection broke after the answer had ended
		}
	}
	c.err = err
	switch {
	case errors.Is(err, stream.ErrStopped):
		c.err = errAbandoned
		c.cancel(errAbandoned)
	case ended:
		c.drain(a.ReadCloser)
	case !errors.Is(err, errAbandoned):
		return c.ex.Timeline.Bytes(), c.err
	}

	// What the answer says about itself (an error in the stream, a missing end) is not a failure of HTTP.
	return c.ex.Timeline.Bytes(), nil
}

// answerIsWhole reports whether the model had said that it was done.
func (c *call) answerIsWhole() bool {
	return c.dec.Finish() == nil
}

func (c *call) drain(body io.Reader) {
	bound := time.AfterFunc(drainTime, func() { c.cancel(errDrained) })
	defer bound.Stop()
	if !stream.Drain(body, drainBytes) {
		c.cancel(errDrained)
	}
}

// consume reads the answer into the exchange and the decoder.
func (c *call) consume(resp *http.Response, body io.Reader) error {
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return c.consumeRefusal(resp, body)
	}
	unwrap, err := decompressor(resp.Header.Get("Content-Encoding"))
	if err != nil {
		return err
	}
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	declared := err == nil && kind == "text/event-stream"
	if err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json")) {
		err = c.consumeWhole(body, unwrap)
	} else {
		err = stream.Read(body, c.dec, &c.ex.Timeline, stream.Options{OnEvent: c.onEvent(), Unwrap: unwrap, Whole: c.whole})
	}
	var (
		none    *stream.NoEventsError
		notGzip *notGzipError
	)
	switch {
	case errors.As(err, &notGzip):
		return c.dec.Reject("the answer has the content encoding gzip and is not gzipped", notGzip.head)
	case errors.As(err, &none):
		return c.dec.Reject("the answer is neither a stream of events nor JSON", none.Head)
	case err == nil && c.ex.Timeline.Bytes() == 0 && (!declared || resp.StatusCode != http.StatusOK):
		return c.dec.Reject(fmt.Sprintf("HTTP %d without an answer", resp.StatusCode), "")
	default:
		return err
	}
}

func (c *call) consumeWhole(body io.Reader, unwrap func(io.Reader) (io.Reader, error)) error {
	counted := &countedReader{r: body}
	body = counted
	if unwrap != nil {
		var err error
		if body, err = unwrap(body); err != nil {
			c.ex.Timeline.Finished(time.Now(), counted.n)

			return fmt.Errorf("decompressing the answer: %w", err)
		}
	}
	err := c.whole(body)
	c.ex.Timeline.Finished(time.Now(), counted.n)

	return err
}

type countedReader struct {
	r io.Reader
	n int64
}

func (c *countedReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)

	return n, err //nolint:wrapcheck // an io.Reader passes io.EOF through
}

// whole takes an answer that is no stream.
func (c *call) whole(body io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(body, maxBodyBytes+1))
	switch {
	case err != nil:
		return fmt.Errorf("reading the answer: %w", err)
	case len(data) > maxBodyBytes:
		return &wire.Error{Type: wire.ErrDecode, Message: fmt.Sprintf("the answer is larger than %d bytes", maxBodyBytes)}
	case len(data) == 0:
		return nil
	}

	return c.dec.Body(data)
}

// consumeRefusal reads what an answer without a success status says for itself. Whatever becomes of its body, the status
// decides.
func (c *call) consumeRefusal(resp *http.Response, body io.Reader) error {
	bound := time.AfterFunc(refusalTime, func() { c.cancel(errDrained) })
	defer bound.Stop()
	data := explanation(resp.Header.Get("Content-Encoding"), body)
	c.ex.Timeline.Finished(time.Now(), int64(len(data)))
	if resp.StatusCode >= 300 && resp.StatusCode <= 399 && resp.StatusCode != http.StatusNotModified {
		return noRedirect(resp.StatusCode, c.whyNotFollowed(resp))
	}

	return wire.ErrorFromResponse(resp.StatusCode, data, c.secrets...)
}

// explanation is as much of a refusal's body as can be read.
func explanation(encoding string, body io.Reader) []byte {
	unwrap, err := decompressor(encoding)
	if err != nil {
		return nil
	}
	body = io.LimitReader(body, refusalBytes)
	if unwrap != nil {
		if body, err = unwrap(body); err != nil {
			return nil
		}
	}
	data, _ := io.ReadAll(io.LimitReader(body, refusalBytes)) //nolint:errcheck // what came is all that there is

	return data
}

// noRedirect is a redirect that led to no answer. No API answers with one.
func noRedirect(status int, why string) *wire.Error {
	return &wire.Error{Type: wire.ErrDecode, Status: status, Message: why}
}

// whyNotFollowed says why k6 gave a redirect back. The query of where it leads is left out: it may hold a key.
func (c *call) whyNotFollowed(resp *http.Response) string {
	location := resp.Header.Get("Location")
	if location == "" {
		return "the redirect names no Location"
	}
	target, _, _ := strings.Cut(location, "?")

	return fmt.Sprintf("the redirect to %s was not followed: more came than maxRedirects allows", shortened(c.secrets.Hide(target)))
}

// shortened bounds what an error repeats of a header.
func shortened(text string) string {
	const most = 200
	if len(text) <= most {
		return text
	}

	return strings.ToValidUTF8(text[:most], "") + "…"
}

// onEvent watches for progress and for a user who leaves after so many tokens. Events without output (pings, comments,
// empty deltas) are no progress.
func (c *call) onEvent() func(time.Time, wire.Delta) bool {
	patience := 0
	if c.abort != nil {
		patience = c.abort.tokens
	}
	if c.watch == nil && patience == 0 {
		return nil
	}
	tl := &c.ex.Timeline

	return func(at time.Time, delta wire.Delta) bool {
		if !delta.Output && !delta.Done {
			return true
		}
		if c.watch != nil {
			c.watch.Progress(at)
		}

		return patience == 0 || delta.Done || max(tl.Tokens(), tl.Chunks()) < patience
	}
}

// decompressor undoes a content encoding. We ask for none (`Accept-Encoding: identity`), since a compressor holds tokens
// back; a server that compresses all the same is understood where the encoding is gzip.
func decompressor(encoding string) (func(io.Reader) (io.Reader, error), error) {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
		return nil, nil //nolint:nilnil // nothing to undo
	case "gzip", "x-gzip":
		return gunzip, nil
	default:
		return nil, &wire.Error{
			Type:    wire.ErrDecode,
			Message: fmt.Sprintf("the answer has the content encoding %q, although identity was asked for", encoding),
		}
	}
}

// notGzipError is a body that says it is gzipped, and is not.
type notGzipError struct{ head string }

func (e *notGzipError) Error() string { return "it is not gzipped" }

func gunzip(r io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(r)
	if magic, err := buffered.Peek(2); err == nil && (magic[0] != 0x1f || magic[1] != 0x8b) {
		head, _ := buffered.Peek(buffered.Buffered()) //nolint:errcheck // what is buffered can be looked at

		return nil, &notGzipError{string(head)}
	}

	return gzip.NewReader(buffered) //nolint:wrapcheck // the caller says what it was for
}
