package trace

import (
	"container/heap"
	"fmt"
	"time"

	"github.com/safeqps/xk6-safeqps/trace/format"
)

// What a request is assumed to take where the number of VUs is not given. They are on the slow side of what services are
// held to, since a VU too many costs 0.1 MB and a VU too few a dropped row.
const (
	assumedTTFT         = time.Second
	assumedTPOT         = 50 * time.Millisecond
	assumedOutputTokens = 512 // of a row that does not say

	leastVUs = 10
	mostVUs  = 10_000
)

func assumedDuration(outputTokens int32) time.Duration {
	if outputTokens == format.Unknown {
		outputTokens = assumedOutputTokens
	}

	return assumedTTFT + time.Duration(outputTokens)*assumedTPOT
}

// vuEstimate is how many VUs a scenario needs, guessed.
type vuEstimate struct {
	peak         int // most requests in flight at once, if each takes what is assumed
	planned, max int64
}

// estimateVUs applies Little's law to the arrivals themselves rather than to their mean rate, so that bursts count: the
// requests in flight are those that have arrived and, by the assumed durations, not ended. All of the peak is made
// beforehand, and as much again may be made on the way, for a service that is slower than assumed.
func estimateVUs(rows int, row func(i int) (due time.Duration, outputTokens int32)) vuEstimate {
	var e vuEstimate
	var ends durations
	for i := range rows {
		due, output := row(i)
		for len(ends) > 0 && ends[0] <= due {
			heap.Pop(&ends)
		}
		heap.Push(&ends, due+assumedDuration(output))
		e.peak = max(e.peak, len(ends))
	}
	e.planned = min(max(leastVUs, int64(e.peak)), mostVUs)
	e.max = min(2*e.planned, mostVUs)

	return e
}

func (e vuEstimate) String() string {
	text := fmt.Sprintf("at most %d requests in flight if each takes %s and %s for each token of its answer",
		e.peak, assumedTTFT, assumedTPOT)
	if e.peak > mostVUs {
		text += fmt.Sprintf("; held to %d VUs", int64(mostVUs))
	}

	return text
}

// durations is a heap of times, the earliest on top.
type durations []time.Duration

func (d durations) Len() int           { return len(d) }
func (d durations) Less(i, j int) bool { return d[i] < d[j] }
func (d durations) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *durations) Push(x any)        { *d = append(*d, x.(time.Duration)) } //nolint:forcetypeassert // ours
func (d *durations) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]

	return last
}
