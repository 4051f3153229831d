package stream

import (
	"sync/atomic"
	"time"
)

// Live shows a timeline to another goroutine while its answer is still coming. The reader of the answer pays one atomic store
// for a chunk: it waits for nobody.
type Live struct {
	written atomic.Pointer[written] // replaced where the timeline's arrays grow, before the number of chunks says so
	chunks  atomic.Int64
	text    atomic.Int64 // the first chunk of text since Sent, plus one; 0: none
}

// written are a timeline's arrays. Their elements up to the number of chunks do not change any more.
type written struct {
	sent    time.Time
	chunks  []time.Duration
	answers []int
}

// Timeline is what has come so far: without the last byte, and without the server's own count of tokens. A nil Live has shown
// nothing yet.
func (l *Live) Timeline() Timeline {
	if l == nil {
		return Timeline{}
	}
	n := l.chunks.Load()
	w := l.written.Load()
	if w == nil {
		return Timeline{}
	}
	t := Timeline{Sent: w.sent, chunks: w.chunks[:n]}
	if w.answers != nil {
		t.answers = w.answers[:n]
	}
	if text := l.text.Load(); text > 0 {
		t.hasText, t.firstText = true, time.Duration(text-1)
	}

	return t
}

// show publishes the chunk that was added to a timeline last.
func (l *Live) show(t *Timeline) {
	w := l.written.Load()
	if w == nil || cap(w.chunks) != cap(t.chunks) || cap(w.answers) != cap(t.answers) {
		l.written.Store(&written{sent: t.Sent, chunks: t.chunks[:cap(t.chunks)], answers: t.answers[:cap(t.answers)]})
	}
	if t.hasText && l.text.Load() == 0 {
		l.text.Store(int64(t.firstText) + 1)
	}
	l.chunks.Store(int64(len(t.chunks)))
}
