// Package results is the evidence of a run on disk: the results directory that `k6 run --out llm=DIR` fills and
// that every judgement and report reads.
//
// A directory holds
//
//	run.json         what was run: contract, decision, versions, seeds, digests, labels, start and end (Info)
//	requests.jsonl   one line per arrival, dropped ones too (Request)
//	series.jsonl     one line per second: flow counts, tokens, gauges of server and client (Sample)
//	events.jsonl     what happened beside the requests: aborts, gaps in scraping (Event)
//	histograms/      one file per metric, each with an HDR histogram per phase, step and class
//
// and later verdict.json, report.md, junit.xml, report.html, report.json and rates.md, which other packages derive from it.
//
// The files are written so that a process that is killed leaves all it had seen up to the last flush: the
// .jsonl files are only ever appended to, whole lines at a time; the others are replaced by a rename. The
// schema is described in docs/results.md.
package results

import "fmt"

// Schema is the version of the layout and of every line in it. A reader accepts the same major version, and
// ignores keys that it does not know.
const Schema = "safeqps-results/1"

// The names of the files in a results directory.
const (
	RunFile      = "run.json"
	RequestsFile = "requests.jsonl"
	SeriesFile   = "series.jsonl"
	EventsFile   = "events.jsonl"
	HistogramDir = "histograms"

	// These are written by the packages that judge and report.
	VerdictFile  = "verdict.json"
	MarkdownFile = "report.md"
	HTMLFile     = "report.html"
	JUnitFile    = "junit.xml"
	ReportFile   = "report.json"
	// RatesFile is the table of a report over several runs. It is not MarkdownFile where that is the
	// verdict on that run.
	RatesFile = "rates.md"
)

// Number is a measurement that may be absent. The zero Number is absent; it is never written as 0.
type Number struct {
	Value float64
	Known bool
}

// Num is a Number that was measured.
func Num(v float64) Number { return Number{Value: v, Known: true} }

// Int is a count that may be absent. The zero Int is absent.
type Int struct {
	Value int64
	Known bool
}

// IntOf is an Int that was counted.
func IntOf(v int64) Int { return Int{Value: v, Known: true} }

// Flag is a yes or no that may be absent. The zero Flag is absent.
type Flag uint8

// The values of a Flag.
const (
	FlagAbsent Flag = iota
	FlagNo
	FlagYes
)

// FlagOf is a Flag that is known.
func FlagOf(b bool) Flag {
	if b {
		return FlagYes
	}
	return FlagNo
}

// Outcome says how an arrival ended.
type Outcome uint8

// The outcomes of an arrival.
const (
	// OK: the answer came whole.
	OK Outcome = iota + 1
	// Failed: the service, or the way to it, did not give a whole answer; ErrorType says why.
	Failed
	// Cancelled: the modelled user left before the answer was whole.
	Cancelled
	// Dropped: the arrival was due and the load generator could not start it.
	Dropped
	// InFlight: the run ended before the request did. It is neither good nor bad, beyond what it had shown.
	InFlight
)

var outcomeNames = [...]string{OK: "ok", Failed: "failed", Cancelled: "cancelled", Dropped: "dropped", InFlight: "in_flight"}

// String returns the outcome's name in requests.jsonl.
func (o Outcome) String() string {
	if o >= OK && o <= InFlight {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// ParseOutcome is the inverse of String.
func ParseOutcome(name string) (Outcome, error) {
	for o := OK; o <= InFlight; o++ {
		if outcomeNames[o] == name {
			return o, nil
		}
	}
	return 0, fmt.Errorf("unknown outcome %q (expected ok, failed, cancelled, dropped or in_flight)", name)
}
