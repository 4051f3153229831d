package stream

import "io"

// wholeEvents reads a stream in pieces that end with an event, or fill what they are read into.
//
// go-sse looks for the end of an event from its beginning each time that a read returns. A body that is decompressed comes
// in pieces of some kilobytes, and looking through a large event after each of them costs the square of its size. Here every
// byte is looked at once. Nothing is held back: the read that completes an event returns at once. Blank lines between
// events say nothing, and go-sse would keep them until an event comes; they are left out.
type wholeEvents struct {
	r        io.Reader
	err      error
	inEvent  bool // a line of an event has begun
	inLine   bool // the line has a character
	carriage bool // the last byte was a carriage return, and a line feed now belongs to it
}

// maxEmptyReads is how often a reader may return nothing, as in package bufio.
const maxEmptyReads = 100

// Read implements io.Reader.
func (w *wholeEvents) Read(p []byte) (int, error) {
	n, empty := 0, 0
	for n < len(p) && w.err == nil {
		var got int
		got, w.err = w.r.Read(p[n:])
		if got == 0 && w.err == nil {
			if empty++; empty == maxEmptyReads {
				w.err = io.ErrNoProgress
			}
		}
		kept, ended := w.take(p[n : n+got])
		n += kept
		if ended {
			break
		}
	}

	return n, w.err
}

// take leaves the blank lines between events out, and says whether an event ended.
func (w *wholeEvents) take(b []byte) (kept int, ended bool) {
	for _, c := range b {
		second := c == '\n' && w.carriage
		w.carriage = c == '\r'
		switch {
		case c != '\n' && c != '\r':
			w.inEvent, w.inLine = true, true
		case !w.inEvent:
			continue
		case second:
		case w.inLine:
			w.inLine = false
		default: // a blank line
			w.inEvent, ended = false, true
		}
		b[kept] = c
		kept++
	}

	return kept, ended
}
