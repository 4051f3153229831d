package results

import "time"

// ClockReading brackets, by the clock of the load generator's host, the moment at which the Date header of the service
// reached a second: it was after Date + Lower and not after Date + Upper. The same moment is seen by all instances of a
// test, so that two brackets of one Date bound how far their clocks are apart. Bounds are milliseconds.
type ClockReading struct {
	Date  time.Time `json:"date"`
	Lower float64   `json:"lower"`
	Upper float64   `json:"upper"`
}

// ClockOffset bounds one host's clock minus another's, in milliseconds.
type ClockOffset struct {
	Lower float64 `json:"lower"`
	Upper float64 `json:"upper"`
	// Turns is how many seconds of the service's clock both hosts saw begin.
	Turns int64 `json:"turns"`
}

// Middle is the offset in the middle of its bounds.
func (o ClockOffset) Middle() float64 { return (o.Lower + o.Upper) / 2 }

// Certain reports whether the clocks are not the same: both bounds lie on one side of zero.
func (o ClockOffset) Certain() bool { return o.Lower > 0 || o.Upper < 0 }

// Merged says of what a joined results directory was made.
type Merged struct {
	Instances []Instance `json:"instances"`
	// StartSkewMS is how far apart the instances certainly began the schedule, by the first instance's clock as far as the
	// offsets are known; nil where their rows do not tell. A single run of the test has none.
	StartSkewMS *float64 `json:"start_skew_ms,omitempty"`
	// DuplicateRows are rows that more than one instance had.
	DuplicateRows int64 `json:"duplicate_rows"`
	// Covered is the sum of the instances' segments, 1 for the whole test; nil where an instance names no segment.
	Covered *float64 `json:"covered,omitempty"`
}

// Instance is one of the load generators of a distributed test.
type Instance struct {
	Segment string `json:"segment,omitempty"`
	Host    Host   `json:"host,omitzero"`
	// Started and Ended are by the instance's own clock; Ended is zero if it was killed.
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
	Counts  Counts    `json:"counts"`

	// ClockOffset is this instance's clock minus the first one's. It is nil for the first, and where it could not be
	// measured: ClockUnknown then says why.
	ClockOffset  *ClockOffset `json:"clock_offset,omitempty"`
	ClockUnknown string       `json:"clock_unknown,omitempty"`
	// CorrectedMS was taken from the instance's times in the joined files; 0 where the clocks may be the same.
	CorrectedMS float64 `json:"corrected_ms,omitempty"`

	// InstanceHeadroom is about the whole run, Steps about each step of a staircase by its name.
	InstanceHeadroom
	Steps map[string]InstanceHeadroom `json:"steps,omitempty"`
}

// InstanceHeadroom is what an instance measured of its own load generator, by the names of the contract's criteria.
type InstanceHeadroom struct {
	// Headroom has the values; what was not measured is not in it.
	Headroom map[string]float64 `json:"headroom,omitempty"`
	// Undecided says, in words, why a value is not enough for a pass: what it is about was not seen for long.
	Undecided map[string]string `json:"undecided,omitempty"`
}

// Name is how people know the instance: its segment, and its host.
func (i *Instance) Name() string {
	switch {
	case i.Segment == "":
		return i.Host.Name
	case i.Host.Name == "":
		return i.Segment
	default:
		return i.Segment + " (" + i.Host.Name + ")"
	}
}
