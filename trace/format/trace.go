package format

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"
)

// Unknown is the value of a token count that the file does not give. It is not zero: a row of a prompt
// text without a length has an unknown number of input tokens until a tokenizer counts them.
const Unknown int32 = -1

// Row is one request of a trace. It takes 64 bytes, plus 8 for each hash id.
type Row struct {
	// Due is when the request arrives, since the trace's time zero. It is never negative, and rows are in
	// order of Due; rows with the same Due keep the order of the file.
	Due time.Duration
	// InputTokens is the length of the prompt in tokens, or Unknown.
	InputTokens int32
	// OutputTokens is the length of the answer in tokens, or Unknown.
	OutputTokens int32
	// HashIDs has one id for each prefix block of Trace.BlockSize tokens, in order, the last block perhaps
	// partly filled; nil when the file has none. Equal ids stand for equal blocks after equal prefixes.
	HashIDs []uint64
	// Class is the workload class of the row, in the file's own words; "" when it has none.
	Class string
	// Extra holds what few traces have; nil when there is nothing of it.
	Extra *Extra
}

// IsLiteral says whether the row brings its own prompt.
func (r *Row) IsLiteral() bool {
	return r.Extra != nil && (r.Extra.Payload != nil || r.Extra.Messages != nil || r.Extra.Text != "")
}

// Extra is the part of a row that most traces do not have.
type Extra struct {
	// Session groups the turns of one conversation; "" when the row has no session.
	Session string
	// Turn is the turn's number in its conversation, from 1; 0 when the file does not say.
	Turn int
	// Delay is the pause after the session's previous turn that the file asks for (AIPerf's "delay").
	Delay time.Duration
	// Elapsed is how long the request took in production (BurstGPT v3's "Elapsed time"); 0 when unknown.
	Elapsed time.Duration
	// Text is a literal prompt (AIPerf's "text_input").
	Text string
	// Messages is a literal chat history: an OpenAI-style JSON array.
	Messages json.RawMessage
	// Payload is a complete request body, to be sent as it is.
	Payload json.RawMessage
}

// Name is the name of a trace file's form.
type Name string

// The forms that Read knows. Sources, in order: this project; kvcache-ai/Mooncake (FAST'25 release);
// vllm-project/vllm pull request 39795; ai-dynamo/aiperf (docs/benchmark-modes/trace-replay.md);
// alibaba-edu/qwen-bailian-usagetraces-anon; Azure/AzurePublicDataset (LLM inference traces 2023, 2024);
// HPMLL/BurstGPT (v1 and v3).
const (
	Native     Name = "safeqps"
	Mooncake   Name = "mooncake"
	TimedTrace Name = "timed_trace"
	AIPerf     Name = "aiperf"
	Bailian    Name = "bailian"
	Azure      Name = "azure"
	BurstGPT   Name = "burstgpt"
	BurstGPTv3 Name = "burstgpt_v3"
	JSONL      Name = "jsonl"
	CSV        Name = "csv"
)

// Names lists every form, for help texts and for checking what a user typed.
func Names() []Name {
	return []Name{Native, Mooncake, TimedTrace, AIPerf, Bailian, Azure, BurstGPT, BurstGPTv3, JSONL, CSV}
}

func (n Name) isCSV() bool {
	return n == Azure || n == BurstGPT || n == BurstGPTv3 || n == CSV
}

func (n Name) known() bool {
	for _, known := range Names() {
		if n == known {
			return true
		}
	}
	return false
}

// Unit is the unit of a file's timestamps.
type Unit string

// The units that a timestamp may have. WallClock is a date and time of day, RFC 3339 or with a space
// for the T, with any number of fractional digits and with or without a zone (without: UTC).
const (
	Nanoseconds  Unit = "ns"
	Microseconds Unit = "us"
	Milliseconds Unit = "ms"
	Seconds      Unit = "s"
	WallClock    Unit = "wall_clock"
)

// exponent is e in 1 unit = 10^e ns.
func (u Unit) exponent() int {
	switch u {
	case Seconds:
		return 9
	case Milliseconds:
		return 6
	case Microseconds:
		return 3
	case Nanoseconds, WallClock:
		return 0
	}
	return 0
}

// units lists every unit, for checking what a file or a user says.
func units() []Unit { return []Unit{Nanoseconds, Microseconds, Milliseconds, Seconds, WallClock} }

func (u Unit) known() bool { return slices.Contains(units(), u) }

// unitNames are the units as a message lists them.
func unitNames() string {
	names := make([]string, 0, len(units()))
	for _, u := range units() {
		names = append(names, string(u))
	}
	return strings.Join(names, ", ")
}

// ZeroOutput is the rule for rows whose answer has no tokens.
type ZeroOutput string

// The rules for rows without output tokens. The zero value of Options means DropZeroOutput: such a row is
// a request that failed in production (BurstGPT says so of its 0,0,0 rows) and no engine can be asked for
// an answer of no tokens. Either way they are counted in Notes.
const (
	DropZeroOutput ZeroOutput = "drop"
	KeepZeroOutput ZeroOutput = "keep"
)

// TimeZero is the rule for where a trace's time starts.
type TimeZero string

// The rules for time zero. FirstRow, the default: the first row that is kept arrives at 0.
// FileZero: timestamps count from the file's own zero, so the trace may start with a pause; it makes no
// sense for absolute timestamps, which are refused.
const (
	FirstRow TimeZero = "first"
	FileZero TimeZero = "zero"
)

// Window is a part of a trace's time, inclusive at both ends.
type Window struct {
	// From is the start, since time zero.
	From time.Duration
	// To is the end, since time zero; negative for no end.
	To time.Duration
}

func (w Window) String() string {
	if w.To < 0 {
		return fmt.Sprintf("%s to the end", w.From)
	}
	return fmt.Sprintf("%s to %s", w.From, w.To)
}

// Options say how to read a trace. The zero value detects everything and keeps every row but those
// without output.
type Options struct {
	// Format is the file's form; "" to detect it.
	Format Name
	// Unit is the unit of the timestamps; "" to detect it.
	Unit Unit
	// BlockSize is the number of tokens for which one hash id stands; 0 to detect it.
	BlockSize int
	// Fields maps this package's names to the file's, for the generic forms and to override a column of
	// the others: timestamp, input_length, output_length, hash_ids, class, session_id, turn, delay, elapsed,
	// text_input, messages, payload. The file's name is a CSV header or a dotted path into a JSON object
	// (gjson's syntax: a dot within a name is written as \.). A name that nothing in the file has is an error.
	Fields map[string]string
	// ZeroOutput is the rule for rows without output tokens; "" means DropZeroOutput.
	ZeroOutput ZeroOutput
	// SkipBadRows counts lines that cannot be read instead of failing on the first.
	SkipBadRows bool
	// TimeZero is the rule for time zero; "" means FirstRow.
	TimeZero TimeZero
	// Window keeps only the rows of a part of the trace's time; nil for all. Under FirstRow the first row
	// of the window becomes time zero. A window without rows is an error.
	Window *Window
	// Limit keeps only the first rows in order of time, after Window; 0 for all.
	Limit int
}

func (o Options) check() error {
	if o.Format != "" && !o.Format.known() {
		return fmt.Errorf("unknown trace format %q: expected one of %s", o.Format, joinNames(Names()))
	}
	if o.Unit != "" && !o.Unit.known() {
		return fmt.Errorf("unknown unit %q: expected ns, us, ms, s or wall_clock", o.Unit)
	}
	if o.BlockSize < 0 {
		return fmt.Errorf("block size %d: expected a positive number of tokens", o.BlockSize)
	}
	if o.Limit < 0 {
		return fmt.Errorf("limit %d: expected a number of rows, or 0 for all", o.Limit)
	}
	switch o.ZeroOutput {
	case "", DropZeroOutput, KeepZeroOutput:
	default:
		return fmt.Errorf("unknown rule for rows without output %q: expected drop or keep", o.ZeroOutput)
	}
	switch o.TimeZero {
	case "", FirstRow, FileZero:
	default:
		return fmt.Errorf("unknown time zero %q: expected first or zero", o.TimeZero)
	}
	for field := range o.Fields {
		if fieldIndex(field) < 0 {
			return fmt.Errorf("unknown field %q in the field map: expected one of %s",
				field, strings.Join(fieldNames[:lastMappable], ", "))
		}
	}
	return nil
}

func joinNames(names []Name) string {
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = string(n)
	}
	return strings.Join(parts, ", ")
}

// Label says how a trace differs from its file. Results must carry it: a rescaled or truncated trace is
// not the workload that was recorded.
type Label struct {
	// Kind is window, limit, speed, rate, loop or lengths_only.
	Kind string `json:"kind"`
	// Detail says it in words, with the numbers.
	Detail string `json:"detail"`
}

// Trace is a trace file in memory.
type Trace struct {
	// Name is the file's name as it was given to Read.
	Name string
	// Rows are the requests in order of arrival.
	Rows []Row
	// BlockSize is the number of tokens that one hash id stands for; 0 when the trace has no hash ids.
	BlockSize int
	// Format is the file's form, Unit the unit of its timestamps.
	Format Name
	Unit   Unit
	// FormatReason, UnitReason and BlockSizeReason say why: stated, documented, or what in the file told.
	FormatReason, UnitReason, BlockSizeReason string
	// Origin is the clock time of time zero; the zero Time when the file's timestamps are relative.
	Origin time.Time
	// Length is how long the trace was made to last, from time zero, where it was generated for a time. 0: a recording,
	// which says nothing of the time before its first arrival and after its last.
	Length time.Duration
	// Notes count what was odd in the file.
	Notes Notes
	// Labels say what was done to the trace since, in order.
	Labels []Label
	// Digest is the SHA-256 (hex) of the file's bytes after decompression, so a trace and its gzipped copy
	// have the same. It is "" for a trace that was not read from a file.
	Digest string
}

// Span is the time from the first arrival to the last.
func (t *Trace) Span() time.Duration {
	if len(t.Rows) == 0 {
		return 0
	}
	return t.Rows[len(t.Rows)-1].Due - t.Rows[0].Due
}

// MeanRate is the mean arrival rate in requests per second: (n-1)/span, the reciprocal of the mean gap.
// n/span would count one arrival more than there are gaps. It is not ok for fewer than two rows or
// when all rows arrive at once.
func (t *Trace) MeanRate() (perSecond float64, ok bool) {
	span := t.Span()
	if span <= 0 {
		return 0, false
	}
	return float64(len(t.Rows)-1) / span.Seconds(), true
}

// OfferedRate is the mean arrival rate in requests per second over the whole of what is known: rows/length for a trace that
// was made for a length, and else MeanRate.
func (t *Trace) OfferedRate() (perSecond float64, ok bool) {
	if t.Length > 0 && t.Length >= t.Span() && len(t.Rows) > 0 {
		return float64(len(t.Rows)) / t.Length.Seconds(), true
	}
	return t.MeanRate()
}

// HasHashIDs says whether any row carries hash ids.
func (t *Trace) HasHashIDs() bool {
	for i := range t.Rows {
		if t.Rows[i].HashIDs != nil {
			return true
		}
	}
	return false
}

// Notes count what a reader met that a user should know. They are about the file, not about what a
// transform left of it.
type Notes struct {
	// Lines is the number of data lines: header and empty lines are not counted.
	Lines int
	// Gzip, BOM, CRLF and NoFinalNewline describe the file's bytes.
	Gzip, BOM, CRLF, NoFinalNewline bool
	// FirstTimestamp is the first row's timestamp since the file's zero, when it was made time zero
	// and was not 0; for absolute timestamps see Trace.Origin.
	FirstTimestamp time.Duration
	// FractionDigits is the largest number of fractional digits of a timestamp.
	FractionDigits int
	// Unsorted is the number of rows that stood after a row of later time; they were sorted in.
	Unsorted int
	// SharedTimestamps is the number of rows whose timestamp an earlier row has too; MaxPerTimestamp
	// the most rows on one timestamp.
	SharedTimestamps, MaxPerTimestamp int
	// DuplicateRows is the number of rows that equal an earlier one in timestamp, lengths, class,
	// session and hash ids. They are kept.
	DuplicateRows int
	// ZeroOutputDropped and ZeroOutputKept count rows without output tokens.
	ZeroOutputDropped, ZeroOutputKept int
	// ZeroInputDropped counts rows whose prompt has no tokens, and that bring none of their own: nothing can be asked.
	ZeroInputDropped int
	// UnknownInput and UnknownOutput count kept rows whose length the file does not give.
	UnknownInput, UnknownOutput int
	// FromDelay is the number of rows without a timestamp, whose due time is their session's previous row
	// plus their delay. In AIPerf the delay starts when the previous answer ends: these are lower bounds.
	FromDelay int
	// BadRows is the number of lines skipped under SkipBadRows, BadRowExamples the first few errors.
	BadRows        int
	BadRowExamples []string
	// IgnoredKeys counts the keys of the file that mean nothing to this package.
	IgnoredKeys map[string]int
}

// LeftOut says which rows of the file are not in the trace, for a line of a log; "" where all are.
func (n Notes) LeftOut() string {
	var parts []string
	for _, p := range []struct {
		count int
		what  string
	}{
		{n.BadRows, "that could not be read"}, {n.ZeroOutputDropped, "without output tokens"}, {n.ZeroInputDropped, "without input tokens"},
	} {
		if p.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.count, p.what))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	text := fmt.Sprintf("%d of %d lines left out: %s", n.BadRows+n.ZeroOutputDropped+n.ZeroInputDropped, n.Lines, strings.Join(parts, ", "))
	if len(n.BadRowExamples) > 0 {
		text += ", such as " + n.BadRowExamples[0]
	}
	return text
}

// Oddity is one thing that a user of a trace should know.
type Oddity struct {
	// Kind is a stable snake_case name.
	Kind string `json:"kind"`
	// Count is how many rows it concerns; 0 when it concerns the file.
	Count int `json:"count,omitempty"`
	// Detail says it in words.
	Detail string `json:"detail"`
}

// Oddities lists the notes that are not ordinary, in a fixed order.
func (n Notes) Oddities() []Oddity {
	var list []Oddity
	flag := func(on bool, kind, detail string) {
		if on {
			list = append(list, Oddity{Kind: kind, Detail: detail})
		}
	}
	count := func(c int, kind, detail string) {
		if c > 0 {
			list = append(list, Oddity{Kind: kind, Count: c, Detail: detail})
		}
	}
	flag(n.Gzip, "gzip", "the file is gzipped")
	flag(n.BOM, "bom", "the file starts with a byte order mark")
	flag(n.CRLF, "crlf", "lines end in CR LF")
	flag(n.NoFinalNewline, "no_final_newline", "the last line has no line end")
	flag(n.FirstTimestamp > 0, "first_timestamp",
		fmt.Sprintf("the first row is at %s of the file's time and was made time zero", n.FirstTimestamp))
	flag(n.FractionDigits > 6, "fraction_digits",
		fmt.Sprintf("timestamps have up to %d fractional digits", n.FractionDigits))
	count(n.Unsorted, "unsorted", "rows stood after a row of later time and were sorted (stably)")
	count(n.SharedTimestamps, "shared_timestamps",
		fmt.Sprintf("rows share an earlier row's timestamp; the most on one is %d", n.MaxPerTimestamp))
	count(n.DuplicateRows, "duplicate_rows", "rows equal an earlier row; kept")
	count(n.ZeroOutputDropped, "zero_output_dropped", "rows without output tokens, dropped")
	count(n.ZeroOutputKept, "zero_output_kept", "rows without output tokens, kept")
	count(n.ZeroInputDropped, "zero_input_dropped", "rows without input tokens, dropped")
	count(n.UnknownInput, "unknown_input", "rows whose input length the file does not give")
	count(n.UnknownOutput, "unknown_output", "rows whose output length the file does not give")
	count(n.FromDelay, "due_from_delay",
		"rows have a delay in place of a timestamp: due at their session's previous row plus the delay, which is the earliest they could be")
	if n.BadRows > 0 {
		list = append(list, Oddity{
			Kind: "bad_rows", Count: n.BadRows,
			Detail: "lines could not be read and were skipped, such as: " + strings.Join(n.BadRowExamples, "; "),
		})
	}
	keys := make([]string, 0, len(n.IgnoredKeys))
	for k := range n.IgnoredKeys {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		count(n.IgnoredKeys[k], "ignored_key", fmt.Sprintf("rows have a key %q, which is not used", k))
	}
	return list
}

// ErrEmptyWindow is wrapped by the error for a window that holds no row.
var ErrEmptyWindow = errors.New("no row in the window")

// LineError is a line that cannot be read.
type LineError struct {
	// File and Line say where; lines count from 1.
	File string
	Line int
	// Key is the field at fault; "" when the whole line is.
	Key string
	// Reason says what is wrong.
	Reason string
}

func (e *LineError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason)
	}
	return fmt.Sprintf("%s:%d: %s: %s", e.File, e.Line, e.Key, e.Reason)
}
