package compare

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// offered is what a run asked of the service in a phase, whatever the service did with it.
type offered struct {
	scenarios map[string]bool
	arrivals  []float64 // seconds, of no particular zero
	// lost are arrivals that did not come to a whole answer. Each may have kept the script from sending what it would have
	// sent after it.
	lost int

	// What was asked of the requests that were sent. Where the script did not say, unknown is counted.
	promptAsked, completionAsked tally
	promptCounted                tally // by whoever counted the prompt tokens; unknown where there was no answer
	classes, models, apis        map[string]int
	rows                         map[int64]asks
}

// asks are the tokens that were asked of a row, or notStated.
type asks struct {
	prompt, completion int64
	twice              bool
}

const notStated = -1

// tally counts requests by a number of tokens.
type tally struct {
	counts  map[int64]int
	unknown int
}

func (t *tally) add(n results.Int) {
	if !n.Known {
		t.unknown++
		return
	}
	t.counts[n.Value]++
}

func newTally() tally { return tally{counts: map[int64]int{}} }

func newOffered() *offered {
	return &offered{
		scenarios: map[string]bool{}, promptAsked: newTally(), completionAsked: newTally(), promptCounted: newTally(),
		classes: map[string]int{}, models: map[string]int{}, apis: map[string]int{}, rows: map[int64]asks{},
	}
}

// see takes a request of the phase. Of a session, what follows the first request is left out: whether it is sent at all,
// and with how long a history, depends on the answers.
func (o *offered) see(r *results.Request) {
	o.scenarios[r.Scenario] = true
	if r.Turn > 1 || r.Round > 1 {
		return
	}
	o.arrivals = append(o.arrivals, float64(r.Arrival().UnixMilli())/1000)
	if r.Outcome != results.OK {
		o.lost++
	}
	if r.Outcome == results.Dropped {
		return // nothing was asked
	}
	o.promptAsked.add(r.PromptAsked)
	o.completionAsked.add(r.CompletionAsked)
	o.promptCounted.add(r.Prompt)
	o.classes[r.Class]++
	o.models[r.Model]++
	o.apis[r.API]++
	if r.Row < 0 {
		return
	}
	stated := func(n results.Int) int64 {
		if !n.Known {
			return notStated
		}
		return n.Value
	}
	_, twice := o.rows[r.Row]
	o.rows[r.Row] = asks{prompt: stated(r.PromptAsked), completion: stated(r.CompletionAsked), twice: twice}
}

// offeredDifferences says where two runs asked different things of the service in a phase. What is drawn anew in each run,
// arrivals and lengths, counts as different only beyond what chance does in one of two million pairs of equal runs
// (5 standard deviations), and a margin.
func offeredDifferences(phase string, a, b results.Info, x, y *offered) []Difference {
	var out []Difference
	sa, sb := scenariosOf(a.Options, x.scenarios), scenariosOf(b.Options, y.scenarios)
	declared := sa.text != "" && sb.text != ""
	switch {
	case declared && sa.text != sb.text:
		out = append(out, Difference{What: "scenarios of the phase " + phase, A: sa.text, B: sb.text, Workload: true})
	case declared && sa.open && sb.open:
		out = append(out, arrivalsDifference(phase, x, y, whole(a) && whole(b))...)
	case !declared && !slices.Contains(a.Labels, results.LabelClosedLoop):
		out = append(out, arrivalsDifference(phase, x, y, false)...)
	}
	if paired := pairedRows(x, y); len(paired) > 0 {
		out = append(out, rowDifferences(paired)...)
	} else {
		out = append(out, x.promptAsked.difference("prompt tokens asked", &y.promptAsked)...)
		out = append(out, x.completionAsked.difference("completion tokens asked", &y.completionAsked)...)
	}
	if len(x.promptAsked.counts) == 0 && len(y.promptAsked.counts) == 0 {
		out = append(out, x.promptCounted.countedDifference(&y.promptCounted)...)
	}
	out = append(out, shareDifference("class", x.classes, y.classes)...)
	out = append(out, modelDifference(x.models, y.models)...)
	return append(out, shareDifference("api", x.apis, y.apis)...)
}

// whole reports that a run came to its own end.
func whole(info results.Info) bool { return !info.Ended.IsZero() && info.Aborted == nil }

const (
	// sigmas is how many standard deviations two draws of the same workload may lie apart.
	sigmas = 5
	// rateMargin is the share by which two rates may differ beyond that.
	rateMargin = 0.1
	// shareMargin is the share of the requests that may differ in what was asked, beyond that.
	shareMargin = 0.05
	// rowsMargin is the share of the rows that may.
	rowsMargin = 0.01
	// tokenizers is the factor that two tokenizers and chat templates may count the same prompt differently by.
	tokenizers = 1.25
)

// arrivalsDifference compares the arrivals of an open loop: their numbers, where both runs had the same schedule and came
// to its end, and otherwise their rates.
func arrivalsDifference(phase string, a, b *offered, counts bool) []Difference {
	na, nb := float64(len(a.arrivals)), float64(len(b.arrivals))
	ta, tb := a.seconds(), b.seconds()
	if na < 2 || nb < 2 || !(ta > 0 && tb > 0) {
		return nil
	}
	text := func(n, t float64) string { return fmt.Sprintf("%.0f in %.4g s (%.4g/s)", n, t, n/t) }
	difference := Difference{What: "arrivals of the phase " + phase, A: text(na, ta), B: text(nb, tb), Workload: true}
	if counts {
		ta, tb = 1, 1
	}
	chance := sigmas * math.Hypot(math.Sqrt(na*a.dispersion())/ta, math.Sqrt(nb*b.dispersion())/tb)
	lost := float64(a.lost)/ta + float64(b.lost)/tb
	if math.Abs(na/ta-nb/tb) <= chance+rateMargin*max(na/ta, nb/tb)+lost {
		return nil
	}
	return []Difference{difference}
}

func (o *offered) seconds() float64 {
	if len(o.arrivals) == 0 {
		return 0
	}
	return slices.Max(o.arrivals) - slices.Min(o.arrivals)
}

// dispersion is the index of dispersion of the arrivals: the variance of their number in a bin over its mean, 1 for a
// Poisson process, and here for anything smoother (Cox and Lewis, The Statistical Analysis of Series of Events, 1966).
func (o *offered) dispersion() float64 {
	const most, fewest = 20, 5 // bins, and arrivals in one on average
	bins := min(most, len(o.arrivals)/fewest)
	if bins < 2 {
		return 1
	}
	first, width := slices.Min(o.arrivals), o.seconds()/float64(bins)
	counts := make([]float64, bins)
	for _, at := range o.arrivals {
		counts[min(int((at-first)/width), bins-1)]++
	}
	squares, expected := 0.0, float64(len(o.arrivals))/float64(bins)
	for _, n := range counts {
		squares += (n - expected) * (n - expected)
	}
	return max(1, squares/float64(bins-1)/expected)
}

// pairedRows are the rows that both runs sent once; nil where that is less than half of either.
func pairedRows(a, b *offered) [][2]asks {
	once := func(o *offered) int {
		n := 0
		for _, row := range o.rows {
			if !row.twice {
				n++
			}
		}
		return n
	}
	var out [][2]asks
	for row, x := range a.rows {
		if y, both := b.rows[row]; both && !x.twice && !y.twice {
			out = append(out, [2]asks{x, y})
		}
	}
	if 2*len(out) < min(once(a), once(b)) || 2*len(a.rows) < len(a.arrivals) || 2*len(b.rows) < len(b.arrivals) {
		return nil
	}
	return out
}

func rowDifferences(rows [][2]asks) []Difference {
	var out []Difference
	for _, kind := range []struct {
		name string
		of   func(asks) int64
	}{
		{"prompt", func(a asks) int64 { return a.prompt }},
		{"completion", func(a asks) int64 { return a.completion }},
	} {
		different := 0
		var sums, stated [2]float64
		for _, pair := range rows {
			if kind.of(pair[0]) != kind.of(pair[1]) {
				different++
			}
			for i := range pair {
				if n := kind.of(pair[i]); n != notStated {
					sums[i] += float64(n)
					stated[i]++
				}
			}
		}
		if float64(different) <= rowsMargin*float64(len(rows)) {
			continue
		}
		average := func(i int) string {
			if stated[i] == 0 {
				return "none"
			}
			return fmt.Sprintf("%.4g on average", sums[i]/stated[i])
		}
		out = append(out, Difference{
			What: kind.name + " tokens asked of the same rows", A: average(0),
			B: fmt.Sprintf("%s; %d of %d rows differ", average(1), different, len(rows)), Workload: true,
		})
	}
	return out
}

// beyondChance reports that two distributions of so many requests lie further apart than draws of the same one do. The bound
// is that of Kolmogorov and Smirnov: 2·exp(-2·d²·m), with m the harmonic part of the two numbers.
func beyondChance(distance float64, na, nb int, slack float64) bool {
	if na == 0 || nb == 0 {
		return false
	}
	return distance > deviation(na, nb)+shareMargin+slack
}

func deviation(na, nb int) float64 {
	level := math.Erfc(sigmas / math.Sqrt2)
	return math.Sqrt(math.Log(2/level) / 2 / harmonic(na, nb))
}

func harmonic(na, nb int) float64 { return float64(na) * float64(nb) / float64(na+nb) }

// difference of what was asked. Not to ask for a length is a length of its own.
func (t *tally) difference(what string, other *tally) []Difference {
	x, y := t.asked(), other.asked()
	alone := len(x) == 1 && len(y) == 1 && !maps.Equal(keySet(x), keySet(y))
	if !alone && !beyondChance(distance(x, y, 1), total(x), total(y), 0) {
		return nil
	}
	return []Difference{{What: what, A: tokens(x), B: tokens(y), Workload: true}}
}

func (t *tally) asked() map[int64]int {
	out := maps.Clone(t.counts)
	if out == nil {
		out = map[int64]int{}
	}
	if t.unknown > 0 {
		out[notStated] = t.unknown
	}
	return out
}

// countedDifference is about prompts whose length the script does not state. The service's own count is as good but for its
// tokenizer, and for the requests without an answer, which may have been the long ones.
func (t *tally) countedDifference(other *tally) []Difference {
	unknown := func(t *tally) float64 { return float64(t.unknown) / float64(max(1, total(t.counts)+t.unknown)) }
	if !beyondChance(distance(t.counts, other.counts, tokenizers), total(t.counts), total(other.counts), unknown(t)+unknown(other)) {
		return nil
	}
	return []Difference{{What: "prompt tokens as counted", A: tokens(t.counts), B: tokens(other.counts), Workload: true}}
}

func total[K comparable](counts map[K]int) int {
	n := 0
	for _, count := range counts {
		n += count
	}
	return n
}

func keySet[K comparable](counts map[K]int) map[K]bool {
	out := make(map[K]bool, len(counts))
	for key := range counts {
		out[key] = true
	}
	return out
}

// distance is the greatest difference between two distribution functions, as Kolmogorov and Smirnov have it; values that
// differ by no more than the factor count as the same.
func distance(a, b map[int64]int, factor float64) float64 {
	return max(exceeds(a, b, factor), exceeds(b, a, factor))
}

// exceeds is the largest share of a up to some length that b has only beyond the factor times that length.
func exceeds(a, b map[int64]int, factor float64) float64 {
	ka, kb := slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b))
	na, nb := float64(total(a)), float64(total(b))
	most, sa, sb, j := 0.0, 0.0, 0.0, 0
	for _, k := range ka {
		sa += float64(a[k]) / na
		for j < len(kb) && float64(kb[j]) <= max(float64(k), factor*float64(k)) {
			sb += float64(b[kb[j]]) / nb
			j++
		}
		most = max(most, sa-sb)
	}
	return most
}

// tokens sums up a distribution of lengths.
func tokens(counts map[int64]int) string {
	if len(counts) == 0 {
		return ""
	}
	keys := slices.Sorted(maps.Keys(counts))
	name := func(k int64) string {
		if k == notStated {
			return "none"
		}
		return fmt.Sprint(k)
	}
	first, last := keys[0], keys[len(keys)-1]
	if first == last {
		return name(first)
	}
	median, below, all := first, 0, total(counts)
	for _, k := range keys {
		if median = k; 2*(below+counts[k]) >= all {
			break
		}
		below += counts[k]
	}
	return fmt.Sprintf("median %s (%s to %s)", name(median), name(first), name(last))
}

// shareDifference compares how requests are split by a name.
func shareDifference(what string, a, b map[string]int) []Difference {
	if !splitDiffers(a, b) {
		return nil
	}
	return []Difference{{What: what, A: split(a), B: split(b), Workload: true}}
}

// modelDifference is as shareDifference, but for the names: an A/B is often of two models, or of one under two names. It is
// how the requests are split over them that the workload says.
func modelDifference(a, b map[string]int) []Difference {
	if !splitDiffers(a, b) {
		return nil
	}
	sameNames := maps.Equal(keySet(a), keySet(b))
	return []Difference{{What: "model", A: split(a), B: split(b), Workload: sameNames || splitDiffers(byRank(a), byRank(b))}}
}

// byRank names the parts of a split by their order of size.
func byRank(counts map[string]int) map[string]int {
	out := map[string]int{}
	for i, n := range slices.SortedFunc(maps.Values(counts), func(x, y int) int { return cmp.Compare(y, x) }) {
		out[fmt.Sprint(i)] = n
	}
	return out
}

// splitDiffers compares the shares by their total variation. Of k parts it is up to half of √(k/m) by chance alone, which
// McDiarmid's inequality (1989) bounds the deviations from.
func splitDiffers(a, b map[string]int) bool {
	na, nb := total(a), total(b)
	if na == 0 || nb == 0 {
		return false
	}
	all := keySet(a)
	maps.Copy(all, keySet(b))
	if len(a) == 1 && len(b) == 1 && len(all) == 2 {
		return true
	}
	variation := 0.0
	for key := range all {
		variation += math.Abs(float64(a[key])/float64(na)-float64(b[key])/float64(nb)) / 2
	}
	return beyondChance(variation, na, nb, math.Sqrt(float64(len(all))/harmonic(na, nb))/2)
}

// split writes shares, the largest first.
func split(counts map[string]int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(x, y string) int {
		return cmp.Or(cmp.Compare(counts[y], counts[x]), cmp.Compare(x, y))
	})
	if len(names) == 1 {
		return orNone(names[0])
	}
	const shown = 5
	all, parts := float64(total(counts)), make([]string, 0, len(names))
	for i, name := range names {
		if i == shown {
			parts = append(parts, fmt.Sprintf("%d more", len(names)-shown))
			break
		}
		parts = append(parts, orNone(name)+" "+percent(float64(counts[name])/all))
	}
	return strings.Join(parts, ", ")
}
