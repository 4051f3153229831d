package capacity

import (
	"fmt"
	"math"
	"slices"

	"github.com/safeqps/xk6-safeqps/gate/verdict"
	"github.com/safeqps/xk6-safeqps/trace/arrival"
)

// Status says how a search ended.
type Status string

// The ends of a search.
const (
	// Found: a rate passed at full length, and one within the tolerance above it did not pass.
	Found Status = "found"
	// AboveRange: the highest rate of the range passed at full length; the limit lies above it.
	AboveRange Status = "above_range"
	// BelowRange: the lowest rate of the range failed.
	BelowRange Status = "below_range"
	// Undecided: no rate passed, and the evidence did not suffice to say that they failed.
	Undecided Status = "undecided"
	// BudgetSpent: probes, time or money ended first. The bracket is the best so far.
	BudgetSpent Status = "budget_spent"
	// GeneratorLimited: the load generator was the bottleneck, so nothing more can be learned with it.
	GeneratorLimited Status = "generator_limited"
	// NotRecovered: the service did not return to its idle state, so a further probe would not be about its rate.
	NotRecovered Status = "not_recovered"
	// Interrupted: the search was stopped, or a probe could not be run. It can be resumed.
	Interrupted Status = "interrupted"
)

// level is what is known of one rate: the verdict of its longest, last probe.
type level struct {
	rate   float64
	status verdict.Status
	length float64
	probe  *Record
	// closed: going up from it came to nothing, so it is the upper end after all.
	closed bool
}

func (l *level) passed() bool { return l.status == verdict.Pass }

// confirmed reports a pass at full length.
func (l *level) confirmed() bool { return l != nil && l.passed() && l.length >= 1 }

// levels of all probes by rising rate. A repetition at the same rate replaces what was known before: it is longer, or a
// fresh confirmation.
func levels(probes []Record) []level {
	var all []level
	for i := range probes {
		p := &probes[i]
		if p.Verdict == verdict.Invalid {
			continue
		}
		l := level{rate: p.Rate, status: p.Verdict, length: p.Length, probe: p}
		if at := slices.IndexFunc(all, func(x level) bool { return x.rate == p.Rate }); at >= 0 {
			all[at] = l
		} else {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b level) int {
		if a.rate < b.rate {
			return -1
		}
		return 1
	})
	return all
}

// openBelow is the pressure on its limit below which a rate that stayed INCONCLUSIVE lacks evidence, and not room.
const openBelow = 0.5

// open reports a rate of which nothing is known: INCONCLUSIVE, and far from every limit.
func (l *level) open() bool {
	return !l.closed && l.status == verdict.Inconclusive && l.probe.Pressure != nil && *l.probe.Pressure < openBelow
}

// bracket is the lowest rate that did not pass, and the highest one below it that did; nil where there is none. Where
// verdicts contradict each other, as chance allows, the lower rate decides. Rates that are open, below every one that
// passed, are no upper end: more requests come at a higher rate.
func bracket(all []level) (low, high *level) {
	for i := range all {
		switch {
		case all[i].passed():
			low = &all[i]
		case low == nil && all[i].open():
		default:
			return low, &all[i]
		}
	}
	return low, nil
}

// planner decides what comes next, from the options and the probes that have ended, and from nothing else.
type planner struct {
	o         Options
	probes    []Record
	all       []level
	low, high *level
	// from is the lower end of what is searched while nothing has passed: the lowest rate that can pass, or the highest
	// open one, which openFrom is.
	from     float64
	openFrom *level
	// eps is half the tolerance on the logarithmic scale of rates.
	eps float64
}

// rounding keeps a bracket that is as wide as the tolerance from being missed by the last bit.
const rounding = 1 + 1e-9

func newPlanner(o Options, probes []Record) *planner {
	p := &planner{o: o, probes: probes, all: levels(probes), eps: math.Log1p(o.Tolerance) / 2}
	for p.enclose() {
	}
	return p
}

// enclose finds the bracket. It is true where it closed an open rate, so that the bracket has to be found again: that one
// had its full length, and no room is left above it.
func (p *planner) enclose() bool {
	p.low, p.high = bracket(p.all)
	p.from, p.openFrom = p.o.LowestRate(), nil
	for i := range p.all {
		if l := &p.all[i]; p.low == nil && l.open() && (p.high == nil || l.rate < p.high.rate) {
			p.openFrom, p.from = l, math.Max(p.from, l.rate)
		}
	}
	if p.cornered() && p.openFrom.length >= 1 {
		p.openFrom.closed = true
		return true
	}
	return false
}

// roomAbove is how far above an open rate a failure has to be for the search to look between them.
const roomAbove = 2

// cornered reports that there is no room above the open rate that the search began from.
func (p *planner) cornered() bool {
	l := p.openFrom
	return l != nil && (l.rate == p.o.Max || p.high != nil && p.high.rate <= roomAbove*l.rate)
}

// narrow reports that a rate that passes is near enough to an upper end of the bracket. A rate that stayed INCONCLUSIVE
// does not bound the limit from above, it says that the limit is about there: then half the tolerance is asked for.
func (p *planner) narrow(low, high float64) bool {
	allowed := 2 * p.eps
	if p.high != nil && high == p.high.rate && p.high.status == verdict.Inconclusive {
		allowed = p.eps
	}
	return math.Log(high/low) <= allowed*rounding
}

// next is the request for the next probe, or the end of the search.
func (p *planner) next() (ProbeRequest, Status) {
	if status := p.ended(); status != "" {
		return ProbeRequest{}, status
	}
	request := p.choose()
	remaining := p.o.MaxProbes - len(p.probes)
	spent, budget := p.spent(), p.o.budgetSeconds()
	if p.low != nil && !p.low.confirmed() {
		confirm := p.request(p.low.rate, PurposeConfirm, p.fullLength(p.low.rate))
		// A pass of the next probe is an answer itself where it has the full length.
		lastChance := remaining <= 1 || (remaining <= confirmReserve && request.Length < 1) ||
			spent+p.seconds(request)+p.seconds(confirm) > budget
		if lastChance {
			request = confirm
		}
	}
	if remaining == 1 { // a short pass could not be confirmed any more
		full := request
		full.Length = math.Max(request.Length, p.fullLength(request.Rate))
		if spent+p.seconds(full) <= budget {
			request = full
		}
	}
	if remaining <= 0 || spent+p.seconds(request) > budget {
		return ProbeRequest{}, BudgetSpent
	}
	return request, ""
}

// confirmReserve is how many of the last probes are kept for confirming the best rate so far, and for one step down.
const confirmReserve = 2

// ended is the status of a search that is over, whatever its budget.
func (p *planner) ended() Status {
	if len(p.probes) == 0 {
		return ""
	}
	last := &p.probes[len(p.probes)-1]
	resumed := last.N == p.o.resumedAfter // what kept the search from going on may be mended since
	if last.Verdict == verdict.Invalid {
		if last.Repeats != 0 && !resumed {
			return GeneratorLimited
		}
		return ""
	}
	if p.undecided() == nil {
		switch {
		case p.high == nil && p.low != nil && p.low.rate == p.o.Max && p.low.confirmed():
			return AboveRange
		case p.high != nil && p.high.rate <= p.from*rounding:
			if p.high.status == verdict.Fail {
				return BelowRange
			}
			return Undecided
		case p.high != nil && p.low.confirmed() && p.narrow(p.low.rate, p.high.rate):
			return Found
		}
	}
	if last.Recovered != nil && !*last.Recovered && !resumed {
		return NotRecovered
	}
	return ""
}

// invalid is the last probe where it was INVALID. It is repeated once: a machine that was busy for a moment is not a
// generator without capacity.
func (p *planner) invalid() *Record {
	if n := len(p.probes); n > 0 && p.probes[n-1].Verdict == verdict.Invalid {
		return &p.probes[n-1]
	}
	return nil
}

// undecided is the last probe where it was INCONCLUSIVE and a longer one may decide it. A rate is extended once: what is
// then still INCONCLUSIVE lies so near the limit that no more can be said of it at a bearable length.
func (p *planner) undecided() *Record {
	if len(p.probes) == 0 {
		return nil
	}
	last := &p.probes[len(p.probes)-1]
	if last.Verdict != verdict.Inconclusive || last.Extends != 0 || p.extension(last) <= last.Length*rounding {
		return nil
	}
	if p.openFrom != nil && p.openFrom.probe.N == last.N && !p.cornered() && !p.decides(last) {
		return nil // a higher rate brings more requests sooner
	}
	return last
}

// decides reports that an extension of a probe brings the requests that it lacks.
func (p *planner) decides(r *Record) bool {
	return r.Needed != nil && r.Requests > 0 && r.Length*(1+extensionMargin*float64(*r.Needed)/float64(r.Requests)) <= p.o.longest()
}

// extensionMargin is what an extended probe is made longer by than the requests it needs: their share over the limit is
// an estimate.
const extensionMargin = 1.2

// extension is the length at which an INCONCLUSIVE probe is repeated; its own length where that would not decide it. It
// is at least the full one, so that a pass confirms the rate.
func (p *planner) extension(r *Record) float64 {
	if p.o.FixedLengths {
		return r.Length
	}
	full := p.fullLength(r.Rate)
	if r.Needed == nil || r.Requests <= 0 {
		return math.Max(full, r.Length)
	}
	needed := r.Length * (1 + extensionMargin*float64(*r.Needed)/float64(r.Requests))
	if needed > p.o.MaxLength {
		return math.Max(full, r.Length)
	}
	return math.Max(full, needed)
}

func (p *planner) request(rate float64, purpose Purpose, length float64) ProbeRequest {
	n := len(p.probes) + 1
	r := ProbeRequest{N: n, Rate: rate, Purpose: purpose, Length: length, StopEarly: !p.o.FixedLengths, Dir: probeDir(n)}
	r.seed(p.o.Seed, n)
	return r
}

// seed derives the n-th seed from another one.
func (r *ProbeRequest) seed(from uint64, n int) {
	r.Seed = arrival.DeriveIndex(from, uint64(n)) //nolint:gosec // a small positive number
	r.LLMSeed = r.Seed >> 11
}

func probeDir(n int) string { return fmt.Sprintf("probe-%02d", n) }

// seconds that a probe takes, going by the slowest so far: its phases, and what start, drain and the way back to idle take
// beside them.
func (p *planner) seconds(r ProbeRequest) float64 {
	_, most := p.overhead()
	return r.Length*p.o.FullSeconds + most
}

// overhead of the probes beside their steady phases, as far as they came to their planned end.
func (p *planner) overhead() (mean, most float64) {
	n := 0.0
	most = p.o.OverheadSeconds
	for i := range p.probes {
		r := &p.probes[i]
		if r.StoppedEarly != "" {
			continue
		}
		beside := math.Max(r.Seconds-r.Length*p.o.FullSeconds, p.o.OverheadSeconds)
		mean, most = mean+beside, math.Max(most, beside)
		n++
	}
	if n == 0 {
		return p.o.OverheadSeconds, most
	}
	return mean / n, most
}

// spent is the time that the search has taken so far, with that of the attempts that were cut.
func (p *planner) spent() float64 { return totalSeconds(p.probes) + cutSeconds(p.o.cut) }

func totalSeconds(probes []Record) float64 {
	seconds := 0.0
	for i := range probes {
		seconds += probes[i].Seconds
	}
	return seconds
}

// spare is how many times MinRequests a probe brings. With MinRequests, a single request over a limit, or two that are not
// independent, would leave it INCONCLUSIVE.
const spare = 2

// atLeastRequests is the length that gives enough requests at a rate.
func (p *planner) atLeastRequests(length, rate float64) float64 {
	if p.o.FixedLengths {
		return 1
	}
	return math.Min(math.Max(length, spare*float64(p.o.MinRequests)/(rate*p.o.FullSeconds)), p.o.MaxLength)
}

func (p *planner) fullLength(rate float64) float64 { return p.atLeastRequests(1, rate) }
func (p *planner) screenLength(rate float64) float64 {
	return p.atLeastRequests(p.o.ScreenLength, rate)
}

// nearLimit is the width of the bracket, in tolerances, below which a short probe would decide nothing.
const nearLimit = 3

// choose is the next probe without regard to the budget.
func (p *planner) choose() ProbeRequest {
	if last := p.invalid(); last != nil {
		request := p.request(last.Rate, last.Purpose, last.Length)
		request.Extends, request.Repeats = last.Extends, last.N
		return request
	}
	if last := p.undecided(); last != nil {
		request := p.request(last.Rate, PurposeExtend, p.extension(last))
		request.Extends = last.N
		return request
	}
	if p.cornered() { // before it counts as an upper end, it gets its full length
		request := p.request(p.openFrom.rate, PurposeExtend, p.fullLength(p.openFrom.rate))
		request.Extends = p.openFrom.probe.N
		return request
	}
	low, high := p.from, p.o.Max
	if p.low != nil {
		low = p.low.rate
	}
	if p.high != nil {
		high = p.high.rate
	}
	switch {
	case p.low != nil && p.high == nil && low == high: // the highest rate of the range passed a short probe
		return p.request(low, PurposeConfirm, p.fullLength(low))
	case p.low != nil && p.high != nil && p.narrow(low, high):
		return p.request(low, PurposeConfirm, p.fullLength(low))
	case p.high == nil && p.low != nil && p.narrow(low, high):
		return p.request(high, PurposeConfirm, p.fullLength(high))
	case p.low == nil && p.high != nil && p.narrow(low, high):
		return p.request(low, PurposeConfirm, p.fullLength(low))
	}
	if steps := p.failedConfirmations(); steps > 0 {
		return p.stepDown(low, high, steps)
	}
	rate := p.place(low, high)
	purpose := PurposeBisect
	if p.low == nil || p.high == nil {
		purpose = PurposeBracket
	}
	length := p.screenLength(rate)
	_, solid := p.crossing()
	switch {
	case p.high != nil && p.narrow(rate, high):
		purpose, length = PurposeConfirm, p.fullLength(rate) // if it passes, it is the answer
	case solid && math.Log(high/low) <= nearLimit*2*p.eps:
		length = p.fullLength(rate)
	}
	return p.request(rate, purpose, length)
}

// failedConfirmations is 0 unless the last rate was to be confirmed and did not pass; then it is 1, and one more for each
// step down that did not pass either.
func (p *planner) failedConfirmations() int {
	steps := 0
	for i := len(p.probes) - 1; i >= 0; i-- {
		r := &p.probes[i]
		switch {
		case r.Verdict == verdict.Invalid: // it was repeated
		case r.Verdict == verdict.Pass:
			return steps
		case r.Purpose == PurposeStepDown:
			steps++
		case r.Purpose == PurposeConfirm:
			return steps + 1
		case r.Purpose != PurposeExtend:
			return steps
		}
	}
	return steps
}

// stepDown goes half a tolerance below the rate that did not pass, then a whole one, then two, but not below the highest
// rate that has passed.
func (p *planner) stepDown(low, high float64, steps int) ProbeRequest {
	rate := high * math.Exp(-p.eps*math.Exp2(float64(steps-1)))
	if estimate, ok := p.crossing(); ok {
		rate = math.Min(rate, estimate*math.Exp(-p.eps))
	}
	rate = math.Max(rate, low)
	return p.request(rate, PurposeStepDown, p.fullLength(rate))
}

// place chooses a rate within (low, high), which are rates that were probed, or the ends of the range; low itself only where
// that is the range's lowest rate, and was not probed.
func (p *planner) place(low, high float64) float64 {
	if len(p.probes) == 0 && p.o.Estimate > 0 {
		return math.Min(math.Max(p.o.Estimate, low), high)
	}
	middle := math.Sqrt(low * high)
	if p.high == nil && p.low != nil {
		return p.rise(low, high, middle)
	}
	estimate, ok := p.estimate()
	if !ok {
		if p.belowRange() {
			return low
		}
		return middle
	}
	// Half a tolerance above the estimate, where a probe fails and is short; then, with that as the bracket's upper end,
	// a tolerance below it (half of one below an undecided end), where a pass ends the search.
	rate := estimate * math.Exp(0.95*p.eps)
	if rate*math.Exp(p.eps) > high {
		rate = math.Min(estimate*math.Exp(-0.95*p.eps), high*math.Exp(-p.eps))
		if p.high != nil && estimate > high*math.Exp(-3*p.eps) {
			rate = high * math.Exp(-2*p.eps)
			if p.high.status == verdict.Inconclusive {
				rate = high * math.Exp(-p.eps)
			}
		}
	}
	rate = math.Min(math.Max(rate, low*math.Exp(p.eps)), high*math.Exp(-p.eps))
	return p.project(rate, low, high)
}

// rise goes up from a rate that passed, where none has failed: twofold at least, so that the range's end is reached.
func (p *planner) rise(low, high, middle float64) float64 {
	if p.o.Estimate > 0 { // the estimate was too low; it is not likely to be so by much
		passed := 0
		for i := range p.probes {
			if p.probes[i].Verdict == verdict.Pass {
				passed++
			}
		}
		return math.Min(low*math.Exp2(math.Exp2(float64(passed-1))), high)
	}
	return math.Min(math.Max(middle, 2*low), high)
}

// project keeps a rate so near to the bracket's middle that the search never needs more than two rates more than bisection
// would: the projection of the ITP method with n0 = 2 (Oliveira, Takahashi, "An enhancement of the bisection method
// average performance preserving minmax optimality", ACM Transactions on Mathematical Software 47, 2020).
func (p *planner) project(rate, low, high float64) float64 {
	const slackProbes = 2
	most := math.Ceil(math.Log(math.Log(p.o.Max/p.o.LowestRate())/(2*p.eps))/math.Ln2) + slackProbes
	left := math.Max(most-float64(len(p.all)), 0)
	radius := math.Max(p.eps*math.Exp2(left)-math.Log(high/low)/2, 0)
	middle := math.Sqrt(low * high)
	offset := math.Log(rate / middle)
	return middle * math.Exp(math.Min(math.Max(offset, -radius), radius))
}

// safeShareOfCapacity is where, as a share of its saturated throughput, the Safe QPS of a service is looked for first. It
// only places a probe: latency limits are commonly reached somewhat below saturation.
const safeShareOfCapacity = 0.85

// estimate is where the Safe QPS seems to be, from all that the probes measured beside their verdicts.
func (p *planner) estimate() (float64, bool) {
	if rate, ok := p.crossing(); ok {
		return rate, true
	}
	if p.high == nil {
		return 0, false
	}
	if !p.high.probe.saturated() {
		return p.nearFailure()
	}
	capacity := p.capacity()
	rate := safeShareOfCapacity * capacity
	if p.low != nil {
		switch passed := p.low.rate; {
		case passed < rate*math.Exp(-p.eps):
		case passed < capacity*math.Exp(-4*p.eps): // nearer to saturation than was thought
			rate = math.Sqrt(passed * capacity)
		case passed < capacity: // an upper end is what is missing
			rate = capacity * math.Exp(p.eps)
		default: // more than the overload could complete
			rate = passed * math.Exp(4*p.eps)
		}
	}
	// What the short stretch of an overload completed can be far off; a bracket that contradicts it is right.
	return rate, rate > p.from && rate < p.high.rate
}

// capacity is the most that a saturated service completed, per second; 0 where none was saturated.
func (p *planner) capacity() float64 {
	capacity := 0.0
	for i := range p.probes {
		if p.probes[i].saturated() {
			capacity = math.Max(capacity, *p.probes[i].CompletedRate)
		}
	}
	return capacity
}

// belowRange reports a service whose capacity lies below the lowest rate of the range, by what it completed under an
// overload: that rate settles it, and those above it tell nothing.
func (p *planner) belowRange() bool {
	return p.low == nil && p.openFrom == nil && p.high != nil && p.high.probe.saturated() && p.capacity() < p.from
}

// nearPressure is the pressure below which a service that failed without being saturated is not far above its limit.
const nearPressure = 4

// nearFailure steps down from a rate that failed by little, two tolerances and then twice as far each time.
func (p *planner) nearFailure() (float64, bool) {
	above := p.high.probe.Pressure
	if p.low != nil || above == nil || *above > nearPressure {
		return 0, false
	}
	steps := 0
	for i := range p.all {
		if !p.all[i].probe.saturated() {
			steps++
		}
	}
	rate := p.high.rate * math.Exp(-2*p.eps*math.Exp2(float64(steps)))
	return rate, rate > p.from
}

// crossing is where the pressure on the limiting criterion reaches 1, interpolated on logarithmic scales between the two
// ends of the bracket. It is false where one of them has no pressure, or the upper end is saturated: there latency is a
// matter of how long the probe was.
func (p *planner) crossing() (float64, bool) {
	if p.low == nil || p.high == nil || p.high.probe.saturated() {
		return 0, false
	}
	below, above := p.low.probe.Pressure, p.high.probe.Pressure
	if below == nil || above == nil || !(*below > 0 && *below < 1 && *above > 1) || !finite(*above) {
		return 0, false
	}
	share := -math.Log(*below) / (math.Log(*above) - math.Log(*below))
	return p.low.rate * math.Exp(share*math.Log(p.high.rate/p.low.rate)), true
}
