package clock

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// Why an offset is not known.
var (
	ErrNoReadings    = errors.New("the service's Date was not seen to turn")
	ErrNoCommon      = errors.New("no turn of the service's Date was seen by both")
	ErrContradictory = errors.New("what was seen of the service's Date contradicts itself: it has several clocks, or one of the hosts' was set")
)

// window is how many turns are taken together at least. Clocks of hosts drift apart by some microseconds a second; over a
// long run, what was true at its beginning contradicts what is true at its end.
const window = 60

// Offset bounds the clock of one host minus that of another, by what both saw of the same service. The bounds hold for
// the whole of the time in which both saw it.
func Offset(of, reference []results.ClockReading) (results.ClockOffset, error) {
	ofTurns, err := join(of)
	if err != nil {
		return results.ClockOffset{}, err
	}
	refTurns, err := join(reference)
	if err != nil {
		return results.ClockOffset{}, fmt.Errorf("the first instance: %w", err)
	}
	var common []int64
	for second := range ofTurns {
		if _, ok := refTurns[second]; ok {
			common = append(common, second)
		}
	}
	if len(common) == 0 {
		return results.ClockOffset{}, ErrNoCommon
	}
	slices.Sort(common)
	out := results.ClockOffset{Lower: math.Inf(1), Upper: math.Inf(-1), Turns: int64(len(common))}
	windows := max(1, len(common)/window)
	for i := range windows {
		part := common[i*len(common)/windows : (i+1)*len(common)/windows]
		lower, upper := math.Inf(-1), math.Inf(1)
		for _, second := range part {
			a, b := ofTurns[second], refTurns[second]
			lower, upper = max(lower, a.Lower-b.Upper), min(upper, a.Upper-b.Lower)
		}
		if lower > upper {
			return results.ClockOffset{}, ErrContradictory
		}
		out.Lower, out.Upper = min(out.Lower, lower), max(out.Upper, upper)
	}
	out.Lower, out.Upper = math.Floor(out.Lower*microsPerMilli)/microsPerMilli, math.Ceil(out.Upper*microsPerMilli)/microsPerMilli

	return out, nil
}

// join takes the closest bracket of each turn.
func join(readings []results.ClockReading) (map[int64]results.ClockReading, error) {
	if len(readings) == 0 {
		return nil, ErrNoReadings
	}
	turns := map[int64]results.ClockReading{}
	for _, r := range readings {
		second := r.Date.Unix()
		if old, ok := turns[second]; ok {
			r.Lower, r.Upper = max(r.Lower, old.Lower), min(r.Upper, old.Upper)
		}
		if r.Lower > r.Upper {
			return nil, ErrContradictory
		}
		turns[second] = r
	}

	return turns, nil
}
