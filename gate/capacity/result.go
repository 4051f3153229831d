package capacity

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// ResultFile is the name of the result in the directory of a search.
const ResultFile = "capacity.json"

// ResultSchema is the version of a result.
const ResultSchema = "safeqps-capacity/1"

// Bound is one end of the bracket.
type Bound struct {
	Rate float64 `json:"rate"`
	// Verdict of the probe that the bound rests on, its number, its length in units of the contract's steady phase, and
	// the criterion that failed or came nearest to its limit.
	Verdict           verdict.Status `json:"verdict"`
	Probe             int            `json:"probe"`
	Length            float64        `json:"length"`
	LimitingCriterion string         `json:"limiting_criterion,omitempty"`
}

// Bracket is what encloses the Safe QPS.
type Bracket struct {
	// Low is the highest rate that passed below every rate that did not; absent where none passed.
	Low *Bound `json:"low,omitempty"`
	// High is the lowest rate that did not pass: FAIL, or INCONCLUSIVE as far as it may be extended. Absent where all passed.
	High *Bound `json:"high,omitempty"`
	// Width is High/Low - 1; absent where an end is.
	Width *float64 `json:"width,omitempty"`
}

// Violation is a pair of verdicts that contradict each other: the lower rate failed, the higher one passed.
type Violation struct {
	FailedRate  float64 `json:"failed_rate"`
	FailedProbe int     `json:"failed_probe"`
	PassedRate  float64 `json:"passed_rate"`
	PassedProbe int     `json:"passed_probe"`
}

// Result is the answer of a search, as JSON for programs.
type Result struct {
	Schema string `json:"schema"`
	Status Status `json:"status"`
	// SafeQPS is the highest rate that passed at full length, below every rate that did not pass. Where none did, Confirmed
	// is false, and SafeQPS is the highest rate that passed a shorter probe: a candidate. Absent where none passed.
	SafeQPS *float64 `json:"safe_qps"`
	// AskedQPS is the rate of the probe that SafeQPS rests on. SafeQPS is less where its phase saw clearly fewer arrivals:
	// then that is the rate that passed. AnswerProbe is the number of that probe; 0 where there is none.
	AskedQPS    *float64 `json:"asked_qps,omitempty"`
	AnswerProbe int      `json:"answer_probe,omitempty"`
	// Confirmed: SafeQPS passed at the contract's full length, with a cold prefix cache and answers of their own length.
	Confirmed bool `json:"confirmed"`
	// ToleranceMet: a rate within the tolerance above SafeQPS failed, or one within half of it stayed INCONCLUSIVE.
	ToleranceMet bool    `json:"tolerance_met"`
	Tolerance    float64 `json:"tolerance"`
	// LimitingCriterion broke first: it failed, or stayed undecided, at the bracket's upper end; "" where there is none.
	LimitingCriterion string  `json:"limiting_criterion"`
	Bracket           Bracket `json:"bracket"`

	// Measured at SafeQPS, by the probe that the answer rests on. RequestsPerArrival is absent where it is one; then SafeQPS,
	// CompletedRate and all other rates count arrivals.
	RequestsPerArrival    *float64                     `json:"requests_per_arrival,omitempty"`
	CompletedRate         *float64                     `json:"completed_rate,omitempty"`
	OutputTokensPerSecond *float64                     `json:"output_tokens_per_second,omitempty"`
	PromptTokensPerSecond *float64                     `json:"prompt_tokens_per_second,omitempty"`
	MeanInFlight          *float64                     `json:"mean_in_flight,omitempty"`
	Latencies             map[string]verdict.Quantiles `json:"latencies,omitempty"`

	// Knee of tail latency against rate, and Margin: how far SafeQPS lies below it, as a share of it; negative above it.
	Knee   *Knee    `json:"knee,omitempty"`
	Margin *float64 `json:"margin,omitempty"`

	// ClientProof is a repetition of the answer with twice the load generators; absent where none was asked for.
	ClientProof *ClientProof `json:"client_proof,omitempty"`

	Probes     []Record    `json:"probes"`
	Violations []Violation `json:"violations,omitempty"`
	// ElapsedSeconds of all probes, of the attempts that were cut (CutSeconds) and of the client proof; and what FullSeconds
	// for each of the probes would have taken.
	ElapsedSeconds     float64 `json:"elapsed_seconds"`
	CutSeconds         float64 `json:"cut_seconds,omitempty"`
	FixedLengthSeconds float64 `json:"fixed_length_seconds"`
	// Cost of ElapsedSeconds, in the currency of the price; absent where no price is known.
	Cost *float64 `json:"cost,omitempty"`
	// Labels of the probe that SafeQPS rests on; every use of the result must repeat them.
	Labels []string `json:"labels,omitempty"`
	Notes  []string `json:"notes,omitempty"`
}

// ClientProof compares the answer's probe with one at the same rate by two load generators. If two measure lower
// latencies than one did, a part of what one measured was its own.
type ClientProof struct {
	Rate float64 `json:"rate"`
	// Probe that is compared, and Verdict on the evidence of the two.
	Probe   int            `json:"probe"`
	Verdict verdict.Status `json:"verdict"`
	// Answer of the comparison of two generators (B) with one (A); see the compare package.
	Answer string `json:"answer"`
	// Limited: some latency was lower with two generators, at the confidence of the comparison. Lower names them. It is false
	// where every latency that was measured was found not to be, and absent where that is not known.
	Limited *bool    `json:"limited,omitempty"`
	Lower   []string `json:"lower,omitempty"`
	// Seconds that it took.
	Seconds float64 `json:"seconds,omitempty"`
	// Dir has the evidence of the two and the comparison, within the directory of the search.
	Dir string `json:"dir"`
}

// Proved adds the proof, and says in the notes what follows from it.
func (r *Result) Proved(p *ClientProof) {
	r.ClientProof = p
	if r.Cost != nil && r.ElapsedSeconds > 0 {
		cost := *r.Cost * (1 + p.Seconds/r.ElapsedSeconds)
		r.Cost = &cost
	}
	r.ElapsedSeconds += p.Seconds
	switch {
	case p.Limited != nil && *p.Limited:
		r.note("with two load generators %s came out lower at %s: one generator measured a part of itself, and the service "+
			"carries this rate or more; give the generator more capacity and search again", strings.Join(p.Lower, ", "), rate(p.Rate))
	case p.Verdict == verdict.Invalid:
		r.note("two load generators did not have room for the client proof: their evidence is INVALID, and proves nothing")
	case p.Limited == nil:
		r.note("whether the load generator had a part in the answer is not known: the comparison of two at %s with one says %s, "+
			"verdict %s; a longer steady phase brings more evidence", rate(p.Rate), p.Answer, p.Verdict)
	default:
		r.note("two load generators at %s measured no lower latencies than one (%s, verdict %s)", rate(p.Rate), p.Answer, p.Verdict)
	}
}

// Answer is the probe that SafeQPS rests on; false where there is none.
func (r *Result) Answer() (Record, bool) {
	if r.AnswerProbe < 1 || r.AnswerProbe > len(r.Probes) {
		return Record{}, false
	}
	return r.Probes[r.AnswerProbe-1], true
}

// JSON is the result with indentation, and a newline at its end.
func (r *Result) JSON() ([]byte, error) {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("capacity: %w", err)
	}
	return append(content, '\n'), nil
}

func newResult(o Options, probes []Record, status Status) Result {
	r := Result{
		Schema: ResultSchema, Status: status, Tolerance: o.Tolerance, Probes: probes,
		ElapsedSeconds:     totalSeconds(probes) + cutSeconds(o.cut),
		CutSeconds:         cutSeconds(o.cut),
		FixedLengthSeconds: float64(len(probes)) * (o.FullSeconds + o.OverheadSeconds),
	}
	if r.Probes == nil {
		r.Probes = []Record{}
	}
	r.Cost = o.cost(r.ElapsedSeconds)
	p := newPlanner(o, probes)
	all, low, high := p.all, p.low, p.high
	r.Bracket.Low, r.Bracket.High = bound(low), bound(high)
	answer := confirmedLow(all, low)
	if answer != nil {
		asked, safe := answer.rate, answer.rate
		if came := answer.probe.OfferedRate; came != nil && *came < asked*(1-uneven) {
			safe = *came
		}
		r.SafeQPS, r.AskedQPS, r.AnswerProbe, r.Confirmed = &safe, &asked, answer.probe.N, answer.confirmed()
		r.CompletedRate, r.RequestsPerArrival = answer.probe.CompletedRate, answer.probe.RequestsPerArrival
		r.OutputTokensPerSecond = answer.probe.OutputTokensPerSecond
		r.PromptTokensPerSecond = answer.probe.PromptTokensPerSecond
		r.MeanInFlight, r.Latencies = answer.probe.MeanInFlight, answer.probe.Latencies
	}
	if high != nil {
		r.LimitingCriterion = high.probe.LimitingCriterion
	}
	if low != nil && high != nil {
		width := high.rate/low.rate - 1
		r.Bracket.Width = &width
		r.ToleranceMet = p.narrow(answer.rate, high.rate)
	}
	if knee, ok := FindKnee(kneePoints(probes)); ok {
		r.Knee = &knee
		if r.SafeQPS != nil {
			margin := 1 - *r.SafeQPS/knee.Rate
			r.Margin = &margin
		}
	}
	r.Violations = violations(all)
	r.notes(o, low, high)
	return r
}

// confirmedLow is the highest level up to low that passed at full length, or low itself where none did.
func confirmedLow(all []level, low *level) *level {
	if low == nil {
		return nil
	}
	answer := low
	for i := range all {
		if all[i].rate <= low.rate && all[i].confirmed() {
			answer = &all[i]
		}
	}
	return answer
}

func bound(l *level) *Bound {
	if l == nil {
		return nil
	}
	return &Bound{
		Rate: l.rate, Verdict: l.status, Probe: l.probe.N, Length: l.length, LimitingCriterion: l.probe.LimitingCriterion,
	}
}

// violations of monotony: for each rate that failed, the highest one above it that passed.
func violations(all []level) []Violation {
	var out []Violation
	for i := range all {
		if all[i].status != verdict.Fail {
			continue
		}
		for j := len(all) - 1; j > i; j-- {
			if all[j].passed() {
				out = append(out, Violation{
					FailedRate: all[i].rate, FailedProbe: all[i].probe.N, PassedRate: all[j].rate, PassedProbe: all[j].probe.N,
				})
				break
			}
		}
	}
	return out
}

func (r *Result) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

func (r *Result) notes(o Options, low, high *level) {
	switch r.Status {
	case Found:
	case AboveRange:
		r.note("the service passed at %s, the end of the range: its Safe QPS is that or more", rate(o.Max))
	case BelowRange:
		what := "the beginning of the range"
		if lowest := o.LowestRate(); lowest > o.Min {
			what = fmt.Sprintf("the lowest rate that brings the %d requests which the contract needs to pass: for lower ones "+
				"lengthen its steady phase", o.MinRequests)
		}
		r.note("the service did not pass at %s, %s; its Safe QPS, if any, is less", rate(high.rate), what)
	case Undecided:
		r.noteUndecided(high)
	case BudgetSpent:
		r.note("the budget ended the search: what follows is the best bracket so far")
	case GeneratorLimited:
		last := r.Probes[len(r.Probes)-1]
		r.note("probe %d at %s is INVALID: the load generator was the bottleneck, so nothing follows about the service at "+
			"this rate or above; give the generator more capacity and resume", last.N, rate(last.Rate))
	case NotRecovered:
		last := r.Probes[len(r.Probes)-1]
		r.note("after probe %d at %s the service did not return to its idle state: it does not recover from this load, and "+
			"a further probe would measure what is left of it", last.N, rate(last.Rate))
	case Interrupted:
		r.note("the search was interrupted; resumed, it goes on after its last finished probe")
	}
	if low != nil && !low.confirmed() {
		r.note("%s passed a probe of %s of the full length only: it is a candidate, not a confirmed Safe QPS",
			rate(low.rate), percent(low.length))
	}
	if low != nil && high != nil && !r.ToleranceMet {
		half := ""
		if high.status == verdict.Inconclusive {
			half = " (half of it, since the upper end did not fail)"
		}
		r.note("the bracket goes from %s to %s: the tolerance of %s is not met%s",
			rate(*r.AskedQPS), rate(high.rate), percent(o.Tolerance), half)
	}
	if high != nil && high.status == verdict.Inconclusive {
		needed := "and no number of requests is known to decide it"
		if n := high.probe.Needed; n != nil {
			needed = fmt.Sprintf("about %d more requests would decide it", *n)
		}
		r.note("%s did not fail: it stayed INCONCLUSIVE over %s of the full length, %s",
			rate(high.rate), percent(high.length), needed)
	}
	if r.CutSeconds > 0 {
		r.note("attempts at probes were cut, %d of them: their %.0f s of load count in time and cost", len(o.cut), r.CutSeconds)
	}
	r.noteReversals()
	r.noteUneven()
	r.noteWarm()
	r.noteForced()
	r.noteSampled()
	for _, v := range r.Violations {
		r.note("%s failed (probe %d), although %s passed (probe %d): the lower rate decides",
			rate(v.FailedRate), v.FailedProbe, rate(v.PassedRate), v.PassedProbe)
	}
	for i := range r.Probes {
		p := &r.Probes[i]
		if r.Status != NotRecovered && p.Recovered != nil && !*p.Recovered {
			r.note("after probe %d at %s the service did not return to its idle state", p.N, rate(p.Rate))
		}
	}
}

// noteUndecided says what is open, and whether more requests would settle it.
func (r *Result) noteUndecided(high *level) {
	what, how := "what did not pass lacks evidence", "lengthen the steady phase"
	if name := high.probe.LimitingCriterion; name != "" {
		what = fmt.Sprintf("%s stayed INCONCLUSIVE at %s", name, rate(high.rate))
	}
	if high.probe.Needed == nil {
		how = fmt.Sprintf("its note in %s/verdict.json says why; if that is too few requests, lengthen the steady phase", high.probe.Dir)
	}
	r.note("no rate was decided: none passed, and %s; %s", what, how)
}

// uneven is the share by which the arrivals of a phase may differ from the rate that was asked for.
const uneven = 0.1

// noteUneven tells where the arrivals of the answer's probe were not as many as its rate says.
func (r *Result) noteUneven() {
	answer, ok := r.Answer()
	if !ok || answer.OfferedRate == nil || math.Abs(*answer.OfferedRate/answer.Rate-1) <= uneven {
		return
	}
	what := "and the answer holds for this part of it"
	if *answer.OfferedRate < answer.Rate {
		what = "and that is the answer"
	}
	r.note("the steady phase of probe %d had %s where %s were asked for: the arrivals are not even, %s; a longer phase "+
		"averages more of them", answer.N, rate(*answer.OfferedRate), rate(answer.Rate), what)
}

// noteWarm takes the confirmation from an answer that the prefix cache gave, and tells of the verdict's warnings.
func (r *Result) noteWarm() {
	answer, ok := r.Answer()
	if !ok {
		return
	}
	for _, warning := range answer.Warnings {
		r.note("the verdict of probe %d, which the answer rests on, warns: %s", answer.N, warning)
	}
	if answer.WarmCache {
		r.Confirmed = false
		r.note("the answer is not confirmed, since the prefix cache knew the prompts of probe %d: the script has to take its "+
			"seed from LLM_SEED, and nobody else may have sent them", answer.N)
	}
}

// noteForced takes the confirmation from an answer that rests on answers of a forced length.
func (r *Result) noteForced() {
	answer, ok := r.Answer()
	if !ok {
		return
	}
	r.Labels = answer.Labels
	if slices.Contains(answer.Labels, results.LabelIgnoreEOS) {
		r.Confirmed = false
		r.note("the answer is not confirmed, since answers were forced to their length (ignore_eos): the rate compares " +
			"configurations that were searched alike, and claims no capacity")
	}
}

// noteSampled says what the number in flight is worth where it was not measured from the requests.
func (r *Result) noteSampled() {
	if answer, ok := r.Answer(); ok && answer.InFlightSampled {
		r.note("the ends of some requests of probe %d are not known: the number in flight is the mean of one reading a second, "+
			"which can be off", answer.N)
	}
}

// noteReversals tells of rates that passed a probe and did not pass a later one.
func (r *Result) noteReversals() {
	for i := range r.Probes {
		for j := i + 1; j < len(r.Probes); j++ {
			a, b := &r.Probes[i], &r.Probes[j]
			if a.Rate == b.Rate && a.Verdict == verdict.Pass && b.Verdict != verdict.Pass && b.Verdict != verdict.Invalid {
				r.note("%s passed probe %d (%s of the full length) and was %s in probe %d (%s): the later one decides",
					rate(a.Rate), a.N, percent(a.Length), b.Verdict, b.N, percent(b.Length))
			}
		}
	}
}

func rate(v float64) string { return fmt.Sprintf("%.4g req/s", v) }

func percent(share float64) string {
	if math.Abs(share) < 0.1 {
		return fmt.Sprintf("%.1f %%", 100*share)
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}
