// Package stream turns the bytes of one streamed answer into a token timeline.
//
// The time of a chunk is the time at which the read that completed its event returned from the body: it is taken
// before any parsing, and events that arrive in one read share it. What an event means is the business of a [Decoder]
// (package wire has one for each API).
package stream

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/safeqps/xk6-safeqps/llm/wire"
)

// DefaultMaxEventBytes bounds one server-sent event. Reasoning models and tool calls send events of more than a
// megabyte; the buffer grows to what an event needs, so a high bound costs nothing.
const DefaultMaxEventBytes = 32 << 20

// ErrEventTooLong is returned for an event larger than [Options].MaxEventBytes.
var ErrEventTooLong = errors.New("a server-sent event is larger than the limit")

// Decoder gives events their meaning.
type Decoder interface {
	// Event decodes one server-sent event: its name ("" without an `event:` line) and its data, which is valid until
	// Event returns: what is kept of it must be copied.
	Event(name, data string) (wire.Delta, error)
}

// Options adjust [Read]. The zero value is ready to use.
type Options struct {
	// MaxEventBytes bounds one event; 0 means [DefaultMaxEventBytes].
	MaxEventBytes int
	// OnEvent, where set, is called after each decoded event, with the time at which it arrived. It returns false to
	// stop reading: then Read returns [ErrStopped].
	OnEvent func(at time.Time, delta wire.Delta) bool
	// Now is the clock; nil means [time.Now].
	Now func() time.Time
	// Whole, where set, is given a body that begins as JSON does, in place of events: a server that does not stream, or reports
	// an error, may do so under any content type.
	Whole func(body io.Reader) error
	// Unwrap, where set, decompresses the body. It is applied above the clock: stamps are those of the compressed
	// reads.
	Unwrap func(io.Reader) (io.Reader, error)
}

// NoEventsError is returned by [Read] for a body that ended and held nothing of a stream of events: not one line that such a
// stream may have.
type NoEventsError struct {
	Head string // its beginning
}

func (e *NoEventsError) Error() string { return "the answer is no stream of events" }

// ErrStopped is returned by [Read] when OnEvent asked for the end.
var ErrStopped = errors.New("reading was stopped by the caller")

// Read consumes an event stream until the decoder reports its end, the body ends, or an error occurs, and records in
// the timeline when each chunk arrived. It returns nil at a terminal marker and at the end of the body: whether the
// answer was complete is for the decoder to say. An error of the decoder is returned as it is; an error of the body is
// wrapped.
func Read(body io.Reader, dec Decoder, tl *Timeline, o Options) error {
	src := &stampedReader{r: body, now: o.Now, tl: tl}
	if src.now == nil {
		src.now = time.Now
	}

	maxEvent := o.MaxEventBytes
	if maxEvent == 0 {
		maxEvent = DefaultMaxEventBytes
	}

	var plain io.Reader = src
	if o.Unwrap != nil {
		var err error
		if plain, err = o.Unwrap(src); err != nil {
			return fmt.Errorf("decompressing the answer: %w", err)
		}
	}
	scanner := &plainScanner{r: plain, limit: maxEvent}
	if o.Whole != nil && scanner.beginsAsJSON() {
		return o.Whole(scanner.rest())
	}

	err := scanner.events(func(name, data string) error {
		delta, err := dec.Event(name, data)
		if delta.Output {
			tl.chunk(delta)
		}
		switch {
		case err != nil:
			return err
		case o.OnEvent != nil && !o.OnEvent(tl.lastByte, delta):
			return ErrStopped
		case delta.Done:
			return errDone
		}

		return nil
	})
	if errors.Is(err, errDone) {
		return nil
	}

	return err
}

// errDone ends the reading at a terminal marker.
var errDone = errors.New("the answer is complete")

// Drain reads what is left of a body after the end of an answer, up to limit bytes, and reports whether it reached the
// end: only then can the connection be used again. What the body fails with is of no interest any more.
func Drain(body io.Reader, limit int64) bool {
	n, err := io.Copy(io.Discard, io.LimitReader(body, limit))

	return err == nil && n < limit
}

// stampedReader notes in the timeline when each read of the body returned.
type stampedReader struct {
	r   io.Reader
	now func() time.Time
	tl  *Timeline
}

func (s *stampedReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if n > 0 {
		s.tl.lastByte = s.now()
		s.tl.bytes += int64(n)
	}

	return n, err //nolint:wrapcheck // an io.Reader passes io.EOF through
}
