// Package report shows a verdict to people and to programs: a table for the terminal, Markdown for a pull request,
// JUnit for a CI system, annotations for GitHub. Each repeats the labels that qualify the result.
package report

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// Write puts verdict.json, report.md and junit.xml into a results directory.
func Write(dir string, r *verdict.Result) error {
	if err := r.Write(dir); err != nil {
		return err
	}
	if err := results.WriteFile(filepath.Join(dir, results.MarkdownFile), Markdown(r)); err != nil {
		return err
	}
	junit, err := JUnit(r)
	if err != nil {
		return err
	}
	return results.WriteFile(filepath.Join(dir, results.JUnitFile), junit)
}

// measured writes a measured value with its unit, to three or four significant digits; "-" where there is none.
func measured(c *verdict.Criterion) string {
	if c.Measured == nil {
		return "-"
	}
	return quantity(*c.Measured, c.Unit)
}

func quantity(v float64, unit string) string {
	switch contract.Unit(unit) {
	case contract.UnitMilliseconds:
		if math.Abs(v) >= 1000 {
			return digits(v/1000) + "s"
		}
		return digits(v) + "ms"
	case contract.UnitRatio:
		return digits(100*v) + "%"
	case contract.UnitTokensPerSecond, contract.UnitRequestsPerSecond:
		return digits(v) + " " + unit
	case contract.UnitState:
		if v == 0 {
			return "no"
		}
		return "yes"
	default:
		return digits(v)
	}
}

// digits writes four significant digits without an exponent, and all digits before the point; see beyondDigits for numbers
// that have an exponent.
func digits(v float64) string {
	switch {
	case v == 0:
		return "0"
	case beyondDigits(v):
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	decimals := max(0, 3-int(math.Floor(math.Log10(math.Abs(v)))))
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// hopeless is how many times its requests a run may need before it is not a matter of a longer one.
const hopeless = 100

// worthTelling is the inflation from which it is shown.
const worthTelling = 1.5

// evidence says in a few words what a verdict rests on.
func evidence(c *verdict.Criterion) string {
	var parts []string
	switch {
	case c.OverLow != nil && c.OverHigh != nil && c.N > 0:
		parts = append(parts, fmt.Sprintf("%d of %d over (%s to %s)", c.Over, c.N,
			quantity(*c.OverLow, string(contract.UnitRatio)), quantity(*c.OverHigh, string(contract.UnitRatio))))
	case c.MeanLow != nil && c.MeanHigh != nil:
		parts = append(parts, fmt.Sprintf("mean of %d (%s to %s)", c.N, quantity(*c.MeanLow, c.Unit), quantity(*c.MeanHigh, c.Unit)))
	case c.N > 0 && c.Over > 0:
		parts = append(parts, fmt.Sprintf("%d of %d over", c.Over, c.N))
	case c.N > 0:
		parts = append(parts, fmt.Sprintf("%d seen", c.N))
	}
	if c.Inflation >= worthTelling {
		parts = append(parts, fmt.Sprintf("worth %.0f independent ones", math.Floor(float64(c.N)/c.Inflation)))
	}
	if c.Undecided > 0 {
		parts = append(parts, fmt.Sprintf("%d undecided", c.Undecided))
	}
	switch {
	case c.Needed != nil && *c.Needed > hopeless*c.N:
		parts = append(parts, "far from decided: no bearable number more would do")
	case c.Needed != nil:
		parts = append(parts, fmt.Sprintf("needs %d more, none over", *c.Needed))
	case c.NeededAtShare != nil:
		parts = append(parts, fmt.Sprintf("needs about %d more", *c.NeededAtShare))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, "; ")
}

// status is the verdict of a criterion, as shown.
func status(c *verdict.Criterion) string {
	if c.Ignored {
		return "not measured"
	}
	return string(c.Verdict)
}

// dropWords are the reasons of dropped arrivals as they are shown, in that order.
var dropWords = [...]struct{ reason, words string }{
	{"no_vu", "no VU"},
	{"vu_starting", "VU starting"},
	{"late", "late"},
	{"no_request", "no request"},
	{"max_duration", "past maxDuration"},
	{"stopped", "at the end of the test"},
	{"unknown", "reason not recorded"},
}

// droppedBy splits the dropped arrivals by reason: " (10 no VU, 2 late)"; "" where nothing is known.
func droppedBy(by map[string]int64) string {
	var parts []string
	rest := int64(0)
	for _, n := range by {
		rest += n
	}
	for _, d := range dropWords {
		if n := by[d.reason]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, d.words))
			rest -= n
		}
	}
	if rest > 0 { // reasons of a later version
		parts = append(parts, fmt.Sprintf("%d other", rest))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

func countsLine(c results.Counts, by map[string]int64) string {
	line := fmt.Sprintf("offered %d, started %d, dropped %d%s, completed %d, failed %d, cancelled %d, in flight %d",
		c.Offered, c.Started, c.Dropped, droppedBy(by), c.Completed, c.Failed, c.Cancelled, c.InFlight)
	if c.Retries > 0 {
		line += fmt.Sprintf(", retries %d", c.Retries)
	}
	return line
}

// rates is the line of rates of a phase; "" where none was measured.
func rates(p *verdict.Phase) string {
	var parts []string
	for _, r := range []struct {
		before string
		value  *float64
		after  string
	}{
		{"offered ", p.OfferedPerSecond, "/s"},
		{"completed ", p.RequestsPerSecond, "/s"},
		{"", p.PromptTokensPerSecond, " prompt tokens/s"},
		{"", p.OutputTokensPerSecond, " output tokens/s"},
	} {
		if r.value != nil {
			parts = append(parts, r.before+digits(*r.value)+r.after)
		}
	}
	return strings.Join(parts, ", ")
}

// legend explains the words of the evidence column that a verdict uses; "" where it uses none.
func legend(r *verdict.Result) string {
	var share, mean, dependent, undecided, needed, neededAtShare bool
	for i := range r.Criteria {
		c := &r.Criteria[i]
		bounded := c.OverLow != nil && c.OverHigh != nil && c.N > 0
		share = share || bounded
		mean = mean || (!bounded && c.MeanLow != nil && c.MeanHigh != nil)
		dependent = dependent || c.Inflation >= worthTelling
		undecided = undecided || c.Undecided > 0
		needed = needed || (c.Needed != nil && *c.Needed <= hopeless*c.N)
		neededAtShare = neededAtShare || (c.Needed == nil && c.NeededAtShare != nil)
	}
	var parts []string
	for _, p := range []struct {
		used bool
		text string
	}{
		{share, `"N of M over (a to b)": N of M requests were over the limit, a to b bounds their true share`},
		{mean, `"mean of N (a to b)": a to b bounds the true mean`},
		{dependent, `"worth K independent ones": slow requests came in clusters, and prove no more than K that do not depend on each other`},
		{undecided, `"undecided": dropped, or cut short by the end`},
		{needed, `"needs K more, none over": so many further requests give PASS if none is over the limit`},
		{neededAtShare, `"needs about K more": so many further requests decide if as large a share of them is over the limit`},
	} {
		if p.used {
			parts = append(parts, p.text)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "evidence: " + strings.Join(parts, "; ") + " (docs/statistics.md)"
}

// shownMetrics are the latencies of a phase, in the order in which they are shown.
var shownMetrics = []string{
	results.MetricTTFT, results.MetricTTFTText, results.MetricTPOT, results.MetricE2E, results.MetricScheduleDelay,
}
