package stream

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unsafe"

	"github.com/tmaxmax/go-sse"
)

// events calls yield with each server-sent event of a stream: its name, its data, or the error that ends the stream.
//
// github.com/tmaxmax/go-sse parses them. In front of it stands a path for the one framing in which servers send nearly
// every token, an event of a single line `data: …` ended by a line feed and a blank line, with comments and blank lines
// between events. That path copies nothing. go-sse allocates about a kilobyte for each event; at a hundred streams of a
// hundred tokens a second that has the garbage collector run every other second, and each run stamps tokens tens of
// milliseconds late (`make bench`). Whatever else comes is handed to go-sse from the beginning of its event, and so is all
// that follows: FuzzEventsAreThoseOfGoSSE holds the two together.
//
// data is valid until yield returns.
func (s *plainScanner) events(yield func(name, data string) error) error {
	for {
		data, kind, err := s.next()
		switch {
		case err == nil && kind == plainEvent:
			if err := yield("", data); err != nil {
				return err
			}
		case err == nil && kind == otherFraming:
			return s.otherEvents(yield)
		case errors.Is(err, io.EOF):
			return nil // an event without its blank line is none
		default:
			return err
		}
	}
}

// otherEvents are those of another framing. A body that began with it, and held nothing of a stream of events, is told apart.
func (s *plainScanner) otherEvents(yield func(name, data string) error) error {
	if s.consumed {
		return sseEvents(s.rest(), s.limit, yield)
	}
	head := &headOf{r: s.rest()}
	seen := false
	err := sseEvents(head, s.limit, func(name, data string) error {
		seen = true

		return yield(name, data)
	})
	if err == nil && !seen && !head.hasField() {
		return &NoEventsError{Head: string(head.bytes)}
	}

	return err
}

// maxHeadBytes bounds what is kept of a body that may be no stream of events.
const maxHeadBytes = 4 << 10

// headOf keeps the beginning of what it reads.
type headOf struct {
	r     io.Reader
	bytes []byte
}

func (h *headOf) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	h.bytes = append(h.bytes, p[:min(n, maxHeadBytes-len(h.bytes))]...)

	return n, err //nolint:wrapcheck // an io.Reader passes io.EOF through
}

// hasField says whether a line is one of an event's, or may have become one: the body can have broken off within it. A body
// without any character says nothing of what it would have been.
func (h *headOf) hasField() bool {
	text := strings.Trim(strings.TrimPrefix(string(h.bytes), byteOrderMark), " \t\r\n")
	if text == "" {
		return true
	}
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
		name, _, colon := strings.Cut(line, ":")
		for _, field := range []string{"data", "event", "id", "retry"} {
			if (colon && name == "") || name == field || (line == text && strings.HasPrefix(field, line)) {
				return true
			}
		}
	}

	return false
}

const byteOrderMark = "\xEF\xBB\xBF"

// beginsAsJSON reads up to the first character of the body, and says whether it opens a JSON object or list. No line of a
// stream of events begins so.
func (s *plainScanner) beginsAsJSON() bool {
	for {
		pending := bytes.TrimPrefix(s.buf[s.start:s.end], []byte(byteOrderMark))
		if trimmed := bytes.TrimLeft(pending, " \t\r\n"); len(trimmed) > 0 {
			return trimmed[0] == '{' || trimmed[0] == '['
		}
		if len(pending) > 0 && len(bytes.TrimLeft(pending, "\n")) == 0 {
			s.start, s.scanned = s.end, 0 // blank lines, that some servers send until they have more to say
		}
		if s.fill() != nil {
			return false // whoever reads on finds the same error
		}
	}
}

// sseEvents leaves the parsing to go-sse.
func sseEvents(r io.Reader, maxEvent int, yield func(name, data string) error) error {
	for event, err := range sse.Read(&wholeEvents{r: r}, &sse.ReadConfig{MaxEventSize: maxEvent}) {
		switch {
		case errors.Is(err, bufio.ErrTooLong):
			return tooLong(maxEvent)
		case err != nil:
			return fmt.Errorf("reading the answer: %w", err)
		}
		if err := yield(event.Type, event.Data); err != nil {
			return err
		}
	}

	return nil
}

func tooLong(limit int) error { return fmt.Errorf("%w of %d bytes", ErrEventTooLong, limit) }

// plainScanner finds events of the plain framing in its buffer.
type plainScanner struct {
	r          io.Reader
	buf        []byte
	start, end int // of what was read and not yet consumed
	scanned    int // bytes after start that hold no line feed
	consumed   bool
	err        error
	limit      int
}

type framing int

const (
	plainEvent framing = iota
	otherFraming
)

const (
	initialBuffer = 4096
	prefix        = "data: "
)

// next returns the data of the next plain event, or says that something else comes. An error means that there is no
// further whole event.
func (s *plainScanner) next() (string, framing, error) {
	for {
		pending := s.buf[s.start:s.end]
		if len(pending) > 0 {
			switch {
			case pending[0] == '\n': // a blank line between events; go-sse takes a byte order mark after it for one
				s.start++
				s.scanned = 0

				continue
			case pending[0] == ':':
				line, other := s.line(pending)
				if other {
					return "", otherFraming, nil
				}
				if line >= 0 {
					s.consume(line + 1)

					continue
				}
			case !startsPlain(pending):
				return "", otherFraming, nil
			default:
				line, other := s.line(pending)
				if other {
					return "", otherFraming, nil
				}
				if line >= 0 && line+1 < len(pending) {
					if pending[line+1] != '\n' {
						return "", otherFraming, nil
					}
					data := pending[len(prefix):line]
					s.consume(line + 2)

					// #nosec G103 -- a view of the buffer, valid until the next read: nothing is copied on the hot path
					return unsafe.String(unsafe.SliceData(data), len(data)), plainEvent, nil
				}
			}
		}
		if err := s.fill(); err != nil {
			return "", plainEvent, err
		}
	}
}

// startsPlain is true for what is, or may become, a plain data line.
func startsPlain(pending []byte) bool {
	if len(pending) >= len(prefix) {
		return string(pending[:len(prefix)]) == prefix
	}

	return prefix[:len(pending)] == string(pending)
}

// line is where the first line of what is pending ends; -1 where its end has not come. other says that a carriage return has:
// that may be an end of its own, and no line feed may ever follow.
func (s *plainScanner) line(pending []byte) (end int, other bool) {
	i := bytes.IndexByte(pending[s.scanned:], '\n')
	if i < 0 {
		other = bytes.IndexByte(pending[s.scanned:], '\r') >= 0
		s.scanned = len(pending)

		return -1, other
	}
	i += s.scanned
	s.scanned = i

	return i, bytes.IndexByte(pending[:i], '\r') >= 0
}

func (s *plainScanner) consume(n int) {
	s.start += n
	s.scanned = 0
	s.consumed = true
}

// fill reads more. Data that was handed out before it is overwritten.
func (s *plainScanner) fill() error {
	if s.err != nil {
		return s.err
	}
	if s.start > 0 && (s.start == s.end || s.end == len(s.buf)) {
		copy(s.buf, s.buf[s.start:s.end])
		s.start, s.end = 0, s.end-s.start
	}
	if s.end == len(s.buf) {
		if len(s.buf) >= s.limit {
			return tooLong(s.limit)
		}
		grown := make([]byte, min(max(2*len(s.buf), initialBuffer), s.limit))
		copy(grown, s.buf[:s.end])
		s.buf = grown
	}
	n, err := s.r.Read(s.buf[s.end:])
	s.end += n
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("reading the answer: %w", err)
	}
	s.err = err // after what came with it
	if n > 0 {
		return nil
	}

	return err
}

// rest is the stream from the event at which the plain framing ended.
func (s *plainScanner) rest() io.Reader {
	pending := bytes.Clone(s.buf[s.start:s.end])
	if s.consumed {
		// Not the beginning of the stream, and a byte order mark here is no mark: go-sse has seen an empty comment before.
		pending = append([]byte(":\n\n"), pending...)
	}
	parts := []io.Reader{bytes.NewReader(pending)}
	if s.err == nil {
		parts = append(parts, s.r)
	} else if !errors.Is(s.err, io.EOF) {
		parts = append(parts, failed{errors.Unwrap(s.err)})
	}

	return io.MultiReader(parts...)
}

// failed is a reader that has failed before.
type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }
