package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// requestParser reads lines of requests.jsonl. It keeps one copy of each of the few distinct texts (phases,
// classes, …), so that a million requests do not hold a million strings.
type requestParser struct {
	texts map[string]string
	run   lifetime
}

// maxInterned bounds the memory of repeated texts; beyond it each line has texts of its own.
const maxInterned = 4096

func (p *requestParser) intern(b []byte) string {
	if s, ok := p.texts[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(p.texts) < maxInterned {
		if p.texts == nil {
			p.texts = make(map[string]string)
		}
		p.texts[s] = s
	}
	return s
}

// parse reads one line, without its newline, into r. Unknown keys are skipped: they come from a later minor
// version of the schema.
func (p *requestParser) parse(line []byte, r *Request) error {
	*r = Request{Row: -1}
	s := scanner{data: line}
	if err := s.expect('{'); err != nil {
		return err
	}
	for first := true; ; first = false {
		if s.peek() == '}' && first {
			s.pos++
			break
		}
		key, err := s.text()
		if err != nil {
			return err
		}
		// The text may share its bytes with the scanner's buffer; each key is used before the next is read.
		name := p.intern(key)
		if err := s.expect(':'); err != nil {
			return err
		}
		if err := p.field(&s, name, r); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		switch s.peek() {
		case ',':
			s.pos++
			continue
		case '}':
			s.pos++
		default:
			return s.unexpected("',' or '}'")
		}
		break
	}
	if s.peek() != 0 || s.pos < len(s.data) {
		return s.unexpected("the end of the line")
	}
	if r.Outcome == 0 {
		return errors.New("outcome is missing")
	}
	return nil
}

func (p *requestParser) field(s *scanner, key string, r *Request) error {
	switch key {
	case keyRow:
		return s.wholeInto(&r.Row, maxRow)
	case keyAttempt:
		var attempt int64
		err := s.wholeInto(&attempt, maxAttempt)
		r.Attempt = int(attempt)
		return err
	case keyStatus:
		var status int64
		literal := s.literal()
		err := parseInt(literal, &status)
		if err == nil && (status < 0 || status > maxStatus) {
			err = fmt.Errorf("found %q, expected an HTTP status from 0 to %d", literal, maxStatus)
		}
		r.Status = int(status)
		return err
	case keyScenario:
		return p.textInto(s, &r.Scenario)
	case keyPhase:
		return p.textInto(s, &r.Phase)
	case keyStep:
		return p.textInto(s, &r.Step)
	case keyClass:
		return p.textInto(s, &r.Class)
	case keyModel:
		return p.textInto(s, &r.Model)
	case keyAPI:
		return p.textInto(s, &r.API)
	case keyTurn:
		return s.wholeInto(&r.Turn, maxAttempt)
	case keyRound:
		return s.wholeInto(&r.Round, maxAttempt)
	case keyErrorType:
		return p.textInto(s, &r.ErrorType)
	case keyCancelPhase:
		return p.textInto(s, &r.CancelPhase)
	case keyTokenSource:
		return p.textInto(s, &r.TokenSource)
	case keyRequestID:
		text, err := s.text()
		r.RequestID = string(text) // unique: not worth keeping
		return err
	case keyDue:
		return p.timeInto(s, &r.Due, scheduleSlack)
	case keyStart:
		return p.timeInto(s, &r.Start, clockSlack)
	case keyOutcome:
		text, err := s.text()
		if err != nil {
			return err
		}
		r.Outcome, err = ParseOutcome(string(text))
		return err
	case keyTTFT:
		return s.millisInto(&r.TTFT, 0)
	case keyTTFTText:
		return s.millisInto(&r.TTFTText, 0)
	case keyTPOT:
		return s.millisInto(&r.TPOT, 0)
	case keyE2E:
		return s.millisInto(&r.E2E, 0)
	case keyElapsed:
		return s.millisInto(&r.Elapsed, 0)
	case keyScheduleDelay:
		return s.millisInto(&r.ScheduleDelay, -maxMillis) // some send before the due time
	case keyOutputTPS:
		return s.numberInto(&r.OutputTPS, "tokens per second", 0, maxRate)
	case keyITLP50:
		return s.millisInto(&r.ITLP50, 0)
	case keyITLP99:
		return s.millisInto(&r.ITLP99, 0)
	case keyITLMax:
		return s.millisInto(&r.ITLMax, 0)
	case keyITLCount:
		return s.wholeInto(&r.ITLCount, maxCount)
	case keyChunks:
		return s.wholeInto(&r.Chunks, maxCount)
	case keyPromptAsked:
		return s.countInto(&r.PromptAsked)
	case keyPrompt:
		return s.countInto(&r.Prompt)
	case keyCompletionAsked:
		return s.countInto(&r.CompletionAsked)
	case keyCompletion:
		return s.countInto(&r.Completion)
	case keyCached:
		return s.countInto(&r.Cached)
	case keyReasoning:
		return s.countInto(&r.Reasoning)
	case keyCost:
		return s.numberInto(&r.Cost, "a number", 0, maxCost)
	case keyGoodput:
		literal := s.literal()
		switch string(literal) {
		case "true":
			r.Goodput = FlagYes
		case "false":
			r.Goodput = FlagNo
		default:
			return fmt.Errorf("found %q, expected true or false", literal)
		}
		return nil
	default:
		return s.skip()
	}
}

func (p *requestParser) textInto(s *scanner, to *string) error {
	text, err := s.text()
	if err != nil {
		return err
	}
	*to = p.intern(text)
	return nil
}

// scanner walks over one JSON object.
type scanner struct {
	data []byte
	pos  int
	buf  []byte // unescaped text
}

// peek returns the next byte that is not white space, or 0 at the end.
func (s *scanner) peek() byte {
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) unexpected(expected string) error {
	if s.pos >= len(s.data) {
		return fmt.Errorf("column %d: the line ends, expected %s", s.pos+1, expected)
	}
	return fmt.Errorf("column %d: found %q, expected %s", s.pos+1, s.data[s.pos], expected)
}

func (s *scanner) expect(c byte) error {
	if s.peek() != c || s.pos >= len(s.data) {
		return s.unexpected(strconv.QuoteRune(rune(c)))
	}
	s.pos++
	return nil
}

// text reads a string. The result is valid until the next call.
func (s *scanner) text() ([]byte, error) {
	if err := s.expect('"'); err != nil {
		return nil, err
	}
	start := s.pos
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return s.data[start : s.pos-1], nil
		case c == '\\':
			return s.escapedText(start)
		case c < 0x20:
			return nil, s.unexpected("a text without control characters")
		}
		s.pos++
	}
	return nil, s.unexpected("the end of a text")
}

// escapedText reads the rest of a string that has escapes in it, by the standard library: it is rare.
func (s *scanner) escapedText(start int) ([]byte, error) {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case '\\':
			s.pos++
		case '"':
			s.pos++
			var text string
			if err := json.Unmarshal(s.data[start-1:s.pos], &text); err != nil {
				return nil, fmt.Errorf("column %d: %w", start, err)
			}
			s.buf = append(s.buf[:0], text...)
			return s.buf, nil
		}
		s.pos++
	}
	s.pos = min(s.pos, len(s.data))
	return nil, s.unexpected("the end of a text")
}

// literal reads a number, true, false or null.
func (s *scanner) literal() []byte {
	s.peek()
	start := s.pos
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ',', '}', ']', ' ', '\t', '\r':
			return s.data[start:s.pos]
		}
		s.pos++
	}
	return s.data[start:s.pos]
}

// digits reads the leading decimal digits of b, at most 15, which a float64 holds exactly.
func digits(b []byte) (value int64, n int) {
	for n < len(b) && n < 15 && b[n] >= '0' && b[n] <= '9' {
		value = value*10 + int64(b[n]-'0')
		n++
	}
	return value, n
}

var powersOfTen = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

func parseNumber(b []byte) (float64, error) {
	whole, n := digits(b)
	switch {
	case n == 0:
	case n == len(b):
		return float64(whole), nil
	case b[n] == '.':
		// Exact by the argument of Clinger: an integer below 2^53 divided by a power of ten below 10^22.
		fraction, m := digits(b[n+1:])
		if m > 0 && n+1+m == len(b) && n+m <= 15 {
			return (float64(whole)*powersOfTen[m] + float64(fraction)) / powersOfTen[m], nil
		}
	}
	if len(b) == 0 || (b[0] != '-' && (b[0] < '0' || b[0] > '9')) {
		return 0, fmt.Errorf("found %q, expected a number", b)
	}
	v, err := strconv.ParseFloat(string(b), 64)
	if err != nil {
		return 0, fmt.Errorf("found %q, expected a number", b)
	}
	return v, nil
}

// numberInto reads a number between two bounds.
func (s *scanner) numberInto(to *Number, what string, low, high float64) error {
	literal := s.literal()
	v, err := parseNumber(literal)
	if err != nil {
		return err
	}
	if v < low || v > high {
		return fmt.Errorf("found %q, expected %s from %v to %v", literal, what, low, high)
	}
	*to = Num(v)
	return nil
}

func (s *scanner) millisInto(to *Number, low float64) error {
	return s.numberInto(to, "milliseconds", low, maxMillis)
}

func parseInt(literal []byte, to *int64) error {
	if value, n := digits(literal); n > 0 && n == len(literal) {
		*to = value
		return nil
	}
	v, err := strconv.ParseInt(string(literal), 10, 64)
	if err != nil {
		return fmt.Errorf("found %q, expected an integer", literal)
	}
	*to = v
	return nil
}

// wholeInto reads a count, or a number of a list.
func (s *scanner) wholeInto(to *int64, high int64) error {
	literal := s.literal()
	if err := parseInt(literal, to); err != nil {
		return err
	}
	if countBetween(*to, high) != nil {
		return fmt.Errorf("found %q, expected a count from 0 to %s", literal, countText(high))
	}
	return nil
}

func (s *scanner) countInto(to *Int) error {
	to.Known = true
	return s.wholeInto(&to.Value, maxCount)
}

// timeInto reads an instant of the run.
func (p *requestParser) timeInto(s *scanner, to *time.Time, slack time.Duration) error {
	if err := s.timeInto(to); err != nil {
		return err
	}
	return p.run.check(*to, slack)
}

func (s *scanner) timeInto(to *time.Time) error {
	text, err := s.text()
	if err != nil {
		return err
	}
	if t, ok := parseFixedTime(text); ok {
		*to = t
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return fmt.Errorf("found %q, expected a time such as 2026-01-31T12:00:00.000000000Z", text)
	}
	*to = t.UTC()
	return nil
}

// parseFixedTime reads the 30 characters that appendTime writes.
func parseFixedTime(b []byte) (time.Time, bool) {
	if len(b) != 30 || b[4] != '-' || b[7] != '-' || b[10] != 'T' || b[13] != ':' || b[16] != ':' || b[19] != '.' || b[29] != 'Z' {
		return time.Time{}, false
	}
	field := func(from, to int) (int, bool) {
		v, n := digits(b[from:to])
		return int(v), n == to-from
	}
	year, ok1 := field(0, 4)
	month, ok2 := field(5, 7)
	day, ok3 := field(8, 10)
	hour, ok4 := field(11, 13)
	minute, ok5 := field(14, 16)
	second, ok6 := field(17, 19)
	nanos, ok7 := field(20, 29)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || !ok6 || !ok7 ||
		month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 59 {
		return time.Time{}, false
	}
	t := time.Date(year, time.Month(month), day, hour, minute, second, nanos, time.UTC)
	return t, t.Day() == day // time.Date turns 31 February into 3 March
}

// skip passes over one value of any kind.
func (s *scanner) skip() error {
	switch s.peek() {
	case '"':
		_, err := s.text()
		return err
	case '{', '[':
		depth := 0
		for s.pos < len(s.data) {
			switch s.data[s.pos] {
			case '"':
				if _, err := s.text(); err != nil {
					return err
				}
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			s.pos++
			if depth == 0 {
				return nil
			}
		}
		return s.unexpected("the end of a value")
	default:
		literal := s.literal()
		if !json.Valid(literal) {
			return fmt.Errorf("found %q, expected a value", literal)
		}
		return nil
	}
}
