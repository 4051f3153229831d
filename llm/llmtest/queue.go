package llmtest

// sequenceQueue is the waiting queue. Cancelled sequences stay in it as tombstones until they reach the head or make up
// half of it, so that a cancellation does not search the queue.
type sequenceQueue struct {
	items []*Sequence
	head  int
	live  int
}

func (q *sequenceQueue) len() int { return q.live }

func (q *sequenceQueue) pushBack(s *Sequence) {
	q.items = append(q.items, s)
	q.live++
}

func (q *sequenceQueue) pushFront(s *Sequence) {
	if q.head == 0 {
		const room = 64
		moved := make([]*Sequence, room+len(q.items), 2*room+2*len(q.items))
		copy(moved[room:], q.items)
		q.items, q.head = moved, room
	}
	q.head--
	q.items[q.head] = s
	q.live++
}

// front is the first sequence that still waits; the queue must not be empty.
func (q *sequenceQueue) front() *Sequence {
	for q.items[q.head].Status != Waiting {
		q.items[q.head] = nil
		q.head++
	}
	return q.items[q.head]
}

func (q *sequenceQueue) popFront() {
	q.front()
	q.items[q.head] = nil
	q.head++
	q.live--
	q.compact()
}

// drop counts out a sequence whose Status has just left Waiting: it is a tombstone now.
func (q *sequenceQueue) drop() {
	q.live--
	if held := len(q.items) - q.head; held > 64 && q.live < held/2 {
		kept := q.items[:0]
		for _, s := range q.items[q.head:] {
			if s.Status == Waiting {
				kept = append(kept, s)
			}
		}
		clear(q.items[len(kept):])
		q.items, q.head = kept, 0
	}
}

func (q *sequenceQueue) compact() {
	if q.head < 64 || q.head < len(q.items)/2 {
		return
	}
	n := copy(q.items, q.items[q.head:])
	clear(q.items[n:])
	q.items, q.head = q.items[:n], 0
}
