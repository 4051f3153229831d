package format

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Read reads a trace. name is what errors and the Trace call the file; r gives its bytes, gzipped or not.
//
// A line that cannot be read is a *LineError, unless Options.SkipBadRows. Rows are sorted by arrival,
// stably; then time zero, Window and Limit apply, in this order. A file or window without rows is an error.
func Read(name string, r io.Reader, o Options) (*Trace, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	src, err := newSource(name, r)
	if err != nil {
		return nil, err
	}
	p, err := newPlan(src, o)
	if err != nil {
		return nil, err
	}
	b := newBuilder(name, p, o)
	for {
		line, number, err := src.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if number <= p.headerLines || isBlank(line) {
			continue
		}
		if err := b.add(number, line); err != nil {
			return nil, err
		}
	}
	b.notes.Gzip, b.notes.BOM, b.notes.CRLF, b.notes.NoFinalNewline = src.gzip, src.bom, src.crlf, src.noFinalNewline
	t, err := b.finish(src.sum())
	if err != nil {
		return nil, err
	}
	if err := p.mapped.check(true); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}

func isBlank(line []byte) bool {
	for _, c := range line {
		if c != ' ' && c != '\t' {
			return false
		}
	}
	return true
}

// maxBadExamples is how many skipped lines are remembered with their reason.
const maxBadExamples = 5

// builder turns fields into rows. Until finish, Row.Due holds the file's own time in nanoseconds.
type builder struct {
	name  string
	plan  *plan
	o     Options
	rows  []Row
	notes Notes

	ids      arena
	scratch  []uint64
	extras   []Extra
	interned map[string]string
	// lastOfSession is the file time of each session's latest row, for rows that have a delay only.
	lastOfSession map[string]time.Duration
	// rootOfChat is the first chat of each Qwen-Bailian conversation, by chat id.
	rootOfChat map[string]string
}

func newBuilder(name string, p *plan, o Options) *builder {
	return &builder{
		name: name, plan: p, o: o, interned: map[string]string{},
		lastOfSession: map[string]time.Duration{}, rootOfChat: map[string]string{},
	}
}

func (b *builder) add(line int, text []byte) error {
	b.notes.Lines++
	fromDelay := b.notes.FromDelay
	row, extra, err := b.row(text)
	if err != nil {
		b.notes.FromDelay = fromDelay
		var lineErr *LineError
		if !errors.As(err, &lineErr) {
			lineErr = &LineError{Reason: err.Error()}
		}
		lineErr.File, lineErr.Line = b.name, line
		if !b.o.SkipBadRows {
			return lineErr
		}
		b.notes.BadRows++
		if len(b.notes.BadRowExamples) < maxBadExamples {
			b.notes.BadRowExamples = append(b.notes.BadRowExamples, lineErr.Error())
		}
		return nil
	}
	if extra.Session != "" && b.plan.format != Bailian && b.plan.format != BurstGPTv3 {
		b.lastOfSession[extra.Session] = row.Due
	}
	if row.OutputTokens == 0 {
		if b.o.ZeroOutput != KeepZeroOutput {
			b.notes.FromDelay = fromDelay
			b.notes.ZeroOutputDropped++
			return nil
		}
	}
	// No server can be asked with a prompt of no tokens. A row that brings its own prompt may say what it likes of its length.
	if row.InputTokens == 0 && extra.Text == "" && extra.Messages == nil && extra.Payload == nil {
		b.notes.FromDelay = fromDelay
		b.notes.ZeroInputDropped++
		return nil
	}
	if row.OutputTokens == 0 {
		b.notes.ZeroOutputKept++
	}
	// Only a row that is kept takes memory in the arenas.
	if len(row.HashIDs) > 0 {
		row.HashIDs = b.ids.keep(row.HashIDs)
	}
	if !extra.empty() {
		if len(b.extras) == cap(b.extras) {
			b.extras = make([]Extra, 0, 1024)
		}
		b.extras = append(b.extras, extra)
		row.Extra = &b.extras[len(b.extras)-1]
	}
	b.rows = append(b.rows, row)
	if row.InputTokens == Unknown {
		b.notes.UnknownInput++
	}
	if row.OutputTokens == Unknown {
		b.notes.UnknownOutput++
	}
	return nil
}

func (e *Extra) empty() bool {
	return e.Session == "" && e.Turn == 0 && e.Delay == 0 && e.Elapsed == 0 && e.Text == "" && e.Messages == nil && e.Payload == nil
}

// arena hands out slices of shared blocks, so that a million short id lists are not a million allocations.
type arena struct{ free []uint64 }

const arenaBlock = 1 << 16

func (a *arena) keep(ids []uint64) []uint64 {
	if len(ids) > len(a.free) {
		a.free = make([]uint64, max(arenaBlock, len(ids)))
	}
	kept := a.free[:len(ids):len(ids)]
	a.free = a.free[len(ids):]
	copy(kept, ids)
	return kept
}

func (b *builder) intern(s string) string {
	if s == "" {
		return ""
	}
	if kept, ok := b.interned[s]; ok {
		return kept
	}
	s = strings.Clone(s)
	b.interned[s] = s
	return s
}

// fieldError is a LineError that lacks only its place. got is the file's text, shortened.
func (b *builder) fieldError(field int, err error, got string) error {
	key := b.plan.parser.column(field)
	if key == "" {
		key = fieldNames[field]
	}
	reason := err.Error()
	if got != "" {
		reason = fmt.Sprintf("%s: got %s", reason, quoted(got))
	}
	return &LineError{Key: key, Reason: reason}
}

// quoted shows a file's text, shortened.
func quoted(got string) string {
	if len(got) > 60 {
		got = got[:60] + "…"
	}
	return strconv.Quote(got)
}

// row reads one line. The row's HashIDs are in the builder's scratch space.
func (b *builder) row(line []byte) (Row, Extra, error) {
	var f fields
	if err := b.plan.parser.parse(line, &f); err != nil {
		return Row{}, Extra{}, err
	}
	if err := b.agrees(&f); err != nil {
		return Row{}, Extra{}, err
	}
	extra, err := b.extra(&f)
	if err != nil {
		return Row{}, Extra{}, err
	}
	row := Row{Class: b.intern(f[fClass].text)}
	if row.Due, err = b.due(&f, &extra); err != nil {
		return Row{}, Extra{}, err
	}
	literal := extra.Text != "" || extra.Messages != nil || extra.Payload != nil
	if row.InputTokens, err = b.count(&f, fInput, literal); err != nil {
		return Row{}, Extra{}, err
	}
	// AIPerf alone lets a row leave its output length to the server.
	mayOmitOutput := literal || b.plan.format == AIPerf || b.plan.format == Native
	if row.OutputTokens, err = b.count(&f, fOutput, mayOmitOutput); err != nil {
		return Row{}, Extra{}, err
	}
	b.scratch, err = parseHashIDs(f[fHashIDs].text, b.scratch[:0])
	if err != nil {
		return Row{}, Extra{}, b.fieldError(fHashIDs, err, "")
	}
	if n := len(b.scratch); n > 0 {
		if row.InputTokens == Unknown {
			return Row{}, Extra{}, b.fieldError(fHashIDs, errors.New("ids without an input length"), "")
		}
		if want := blocks(row.InputTokens, b.plan.block); n != want {
			return Row{}, Extra{}, b.fieldError(fHashIDs, fmt.Errorf("expected %d ids for %d input tokens in blocks of %d, got %d",
				want, row.InputTokens, b.plan.block, n), "")
		}
		row.HashIDs = b.scratch
	}
	return row, extra, nil
}

// agrees is an error for a row that says another unit or block size than the file is read by. What the user stated overrides
// what the file says.
func (b *builder) agrees(f *fields) error {
	if c := f[fTimeUnit]; c.set && b.o.Unit == "" && Unit(c.text) != b.plan.unit {
		return b.disagrees(fTimeUnit, c, string(b.plan.unit))
	}
	if c := f[fBlockSize]; c.set && b.o.BlockSize == 0 {
		if n, err := parseCount(c.text); err != nil || int(n) != b.plan.block {
			return b.disagrees(fBlockSize, c, strconv.Itoa(b.plan.block))
		}
	}
	return nil
}

func (b *builder) disagrees(field int, c cell, whole string) error {
	return &LineError{
		Key:    b.plan.parser.column(field),
		Reason: fmt.Sprintf("got %s, expected %q as for the whole file, %s", quoted(c.text), whole, stateYourself(field)),
	}
}

// stateYourself is the way out where what a file says of itself is wrong: Options.Unit and Options.BlockSize override it.
func stateYourself(field int) string {
	if field == fTimeUnit {
		return "or state the unit yourself (unit)"
	}
	return "or state the block size yourself"
}

func (b *builder) count(f *fields, field int, optional bool) (int32, error) {
	c := f[field]
	if !c.set {
		if optional {
			return Unknown, nil
		}
		return 0, b.fieldError(field, b.plan.mapped.missing(field), "")
	}
	n, err := parseCount(c.text)
	if err != nil {
		return 0, b.fieldError(field, err, c.text)
	}
	return n, nil
}

// due is the row's time in the file's own time.
func (b *builder) due(f *fields, extra *Extra) (time.Duration, error) {
	if c := f[fTimestamp]; c.set {
		ns, fraction, err := parseTimestamp(c.text, b.plan.unit)
		if err != nil {
			return 0, b.fieldError(fTimestamp, err, c.text)
		}
		b.notes.FractionDigits = max(b.notes.FractionDigits, fraction)
		return time.Duration(ns), nil
	}
	last, known := b.lastOfSession[extra.Session]
	if !f[fDelay].set || extra.Session == "" || !known {
		return 0, b.fieldError(fTimestamp, b.plan.mapped.missing(fTimestamp), "")
	}
	due := last + extra.Delay
	if due < last {
		return 0, b.fieldError(fDelay, errTooLarge, f[fDelay].text)
	}
	b.notes.FromDelay++
	return due, nil
}

func (b *builder) extra(f *fields) (Extra, error) {
	e := Extra{Session: b.intern(f[fSession].text)}
	if f[fChatID].set {
		// As its authors do, a chat is of its parent's conversation; a parent outside the file starts one.
		chat := b.intern(f[fChatID].text)
		root, known := b.rootOfChat[f[fParentID].text]
		if !known {
			root = chat
		}
		b.rootOfChat[chat] = root
		e.Session = root
	}
	if c := f[fTurn]; c.set {
		turn, err := parseCount(c.text)
		if err != nil {
			return e, b.fieldError(fTurn, err, c.text)
		}
		e.Turn = int(turn)
	}
	// Delays have AIPerf's milliseconds, elapsed times are BurstGPT's seconds or our milliseconds.
	for _, d := range []struct {
		field int
		to    *time.Duration
		unit  Unit
	}{{fDelay, &e.Delay, Milliseconds}, {fElapsed, &e.Elapsed, b.elapsedUnit()}} {
		c := f[d.field]
		if !c.set {
			continue
		}
		ns, _, _, err := parseDecimal(c.text, d.unit.exponent())
		if err != nil {
			return e, b.fieldError(d.field, err, c.text)
		}
		*d.to = time.Duration(ns)
	}
	// Literal prompts are copied off the line, which holds more than them.
	e.Text = strings.Clone(f[fText].text)
	for _, m := range []struct {
		field int
		to    *json.RawMessage
		open  string
	}{{fMessages, &e.Messages, "["}, {fPayload, &e.Payload, "{"}} {
		c := f[m.field]
		if !c.set {
			continue
		}
		// A CSV cell or a JSON string may hold anything.
		if !strings.HasPrefix(c.text, m.open) || !json.Valid([]byte(c.text)) {
			return e, b.fieldError(m.field, fmt.Errorf("expected JSON that starts with %s", m.open), "")
		}
		*m.to = json.RawMessage(c.text)
	}
	return e, nil
}

func (b *builder) elapsedUnit() Unit {
	if b.plan.format == BurstGPT || b.plan.format == BurstGPTv3 {
		return Seconds
	}
	return Milliseconds
}

// parseHashIDs appends the numbers of a JSON array to ids. Empty, absent and [] mean that there are none.
func parseHashIDs(text string, ids []uint64) ([]uint64, error) {
	s := strings.TrimSpace(text)
	if s == "" {
		return ids, nil
	}
	bad := errors.New("expected an array of whole numbers from 0 to 2^64-1")
	if s[0] != '[' || s[len(s)-1] != ']' {
		return ids, bad
	}
	s = s[1 : len(s)-1]
	if strings.TrimSpace(s) == "" {
		return ids, nil
	}
	for i := 0; ; {
		for i < len(s) && (s[i] == ' ' || s[i] == '\t') {
			i++
		}
		start, id := i, uint64(0)
		for ; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
			digit := uint64(s[i] - '0')
			if id > (1<<64-1-digit)/10 {
				return ids, bad
			}
			id = id*10 + digit
		}
		if i == start {
			return ids, bad
		}
		ids = append(ids, id)
		for i < len(s) && (s[i] == ' ' || s[i] == '\t') {
			i++
		}
		if i == len(s) {
			return ids, nil
		}
		if s[i] != ',' {
			return ids, bad
		}
		i++
	}
}

func (b *builder) finish(digest string) (*Trace, error) {
	if len(b.rows) == 0 {
		switch {
		case b.notes.BadRows > 0:
			return nil, fmt.Errorf("%s: none of %d lines can be read, such as: %s", b.name, b.notes.Lines, b.notes.BadRowExamples[0])
		case b.notes.ZeroInputDropped > 0:
			return nil, fmt.Errorf("%s: no row has input and output tokens (%d dropped)", b.name,
				b.notes.ZeroInputDropped+b.notes.ZeroOutputDropped)
		case b.notes.ZeroOutputDropped > 0:
			return nil, fmt.Errorf("%s: no row has output tokens (%d dropped)", b.name, b.notes.ZeroOutputDropped)
		}
		return nil, fmt.Errorf("%s: the file has no rows", b.name)
	}
	t := &Trace{
		Name: b.name, Rows: b.rows, Format: b.plan.format, Unit: b.plan.unit,
		FormatReason: b.plan.formatReason, UnitReason: b.plan.unitReason, Digest: digest,
	}
	latest := time.Duration(0)
	for i := range t.Rows {
		if t.Rows[i].Due < latest {
			b.notes.Unsorted++
		}
		latest = max(latest, t.Rows[i].Due)
	}
	if b.notes.Unsorted > 0 {
		slices.SortStableFunc(t.Rows, func(x, y Row) int {
			switch {
			case x.Due < y.Due:
				return -1
			case x.Due > y.Due:
				return 1
			}
			return 0
		})
	}
	if t.HasHashIDs() {
		t.BlockSize, t.BlockSizeReason = b.plan.block, b.plan.blockReason
	}
	b.notes.SharedTimestamps, b.notes.MaxPerTimestamp, b.notes.DuplicateRows = duplicates(t.Rows)
	if len(b.plan.ignored) > 0 {
		b.notes.IgnoredKeys = b.plan.ignored
	}
	if err := b.setTimeZero(t); err != nil {
		return nil, err
	}
	t.Notes = b.notes
	var err error
	if b.o.Window != nil {
		if t, err = TimeWindow(t, *b.o.Window, b.o.TimeZero == FileZero); err != nil {
			return nil, fmt.Errorf("%s: %w", b.name, err)
		}
	}
	if b.o.Limit > 0 {
		t = Limit(t, b.o.Limit)
	}
	return t, nil
}

// setTimeZero makes the rows' times relative.
func (b *builder) setTimeZero(t *Trace) error {
	first := t.Rows[0].Due
	// A time of 2001 or later is a Unix time: nobody's relative trace starts after 31 years.
	absolute := t.Unit == WallClock || first >= 1e9*time.Second
	if b.o.TimeZero == FileZero {
		if absolute {
			return fmt.Errorf("%s: timestamps are absolute (the first is %s): time zero must be the first row",
				b.name, time.Unix(0, int64(first)).UTC().Format(time.RFC3339Nano))
		}
		return nil
	}
	for i := range t.Rows {
		t.Rows[i].Due -= first
	}
	if absolute {
		t.Origin = time.Unix(0, int64(first)).UTC()
	} else {
		b.notes.FirstTimestamp = first
	}
	return nil
}

// duplicates counts, in rows sorted by time, the rows whose timestamp an earlier row has, the most rows
// on one timestamp, and the rows that equal an earlier one.
func duplicates(rows []Row) (shared, most, equal int) {
	type key struct {
		input, output int32
		class, sess   string
		ids           uint64
	}
	seen := map[key]bool{}
	for start := 0; start < len(rows); {
		end := start + 1
		for end < len(rows) && rows[end].Due == rows[start].Due {
			end++
		}
		most = max(most, end-start)
		if end-start > 1 {
			shared += end - start - 1
			clear(seen)
			for _, r := range rows[start:end] {
				k := key{input: r.InputTokens, output: r.OutputTokens, class: r.Class, ids: fold(r.HashIDs)}
				if r.Extra != nil {
					if r.Extra.Text != "" || r.Extra.Messages != nil || r.Extra.Payload != nil {
						continue // prompts of their own; comparing megabytes of text is not worth a note
					}
					k.sess = r.Extra.Session
				}
				if seen[k] {
					equal++
				}
				seen[k] = true
			}
		}
		start = end
	}
	return shared, most, equal
}

// fold is FNV-1a over ids: equal lists give equal values, and only lists of one timestamp are compared.
func fold(ids []uint64) uint64 {
	h := uint64(14695981039346656037)
	for _, id := range ids {
		h = (h ^ id) * 1099511628211
	}
	return h
}
