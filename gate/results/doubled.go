package results

import (
	"fmt"
	"hash/maphash"
)

// doubled finds lines of requests.jsonl that stand there twice, where no record in run.json tells: the run was killed. The
// requests of one row, the turns of a session or its attempts, differ in their times, to the nanosecond.
type doubled struct {
	seed maphash.Seed
	seen map[uint64]struct{} // digests of lines: less than 40 bytes for one
}

func newDoubled() *doubled {
	return &doubled{seed: maphash.MakeSeed(), seen: make(map[uint64]struct{})}
}

// check is an error for a line that was seen before. Arrivals without a row that were dropped are alike, and so can be requests
// that were cut short at one instant.
func (d *doubled) check(line []byte, r *Request) error {
	if r.Row < 0 || r.Outcome == InFlight {
		return nil
	}
	digest := maphash.Bytes(d.seed, line)
	if _, before := d.seen[digest]; before {
		return fmt.Errorf("row %d stands here again, in the same words as before: the line was doubled", r.Row)
	}
	d.seen[digest] = struct{}{}
	return nil
}
