package format

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// plan is everything that is decided about a file before its rows are read.
type plan struct {
	name         string // of the file
	format       Name
	formatReason string
	unit         Unit
	unitReason   string
	block        int
	blockReason  string
	parser       lineParser
	headerLines  int       // lines to skip: up to and with the CSV header
	mapped       *fieldMap // of JSON; nil where the user gave none
	ignored      map[string]int
}

func newPlan(s *source, o Options) (*plan, error) {
	p := &plan{name: s.name, ignored: map[string]int{}}
	err := p.detectForm(s.sample, o)
	if err == nil {
		err = p.detectUnits(s.sample, o)
	}
	var lineErr *LineError
	switch {
	case err == nil:
	case errors.As(err, &lineErr):
		return nil, err // it names the file
	default:
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	// The sample is parsed again as rows: what it counted is not to be counted twice.
	clear(p.ignored)
	return p, nil
}

// noLine is the error for a sample of which no line can be read: that of its first line.
func (p *plan) noLine(sample []string, first int, o Options, reason func(line string) *LineError) error {
	lines := 0
	var found *LineError
	for i, line := range sample[first:] {
		if strings.TrimSpace(line) == "" {
			continue
		}
		if lines++; found == nil {
			if found = reason(line); found != nil {
				found.File, found.Line = p.name, first+i+1
			}
		}
	}
	switch {
	case found == nil:
		return nil
	case o.SkipBadRows:
		return fmt.Errorf("%s: none of the first %d lines can be read, such as: %w", p.name, lines, found)
	default:
		return found
	}
}

func (p *plan) detectForm(sample []string, o Options) error {
	first := -1
	for i, line := range sample {
		if strings.TrimSpace(line) != "" {
			first = i
			break
		}
	}
	if first < 0 {
		return errors.New("the file is empty")
	}
	csv := o.Format.isCSV()
	if o.Format == "" {
		if strings.HasPrefix(strings.TrimSpace(sample[first]), "[") {
			return errors.New("the file is a JSON array: expected JSONL (one object per line) or CSV")
		}
		csv = !isJSONL(sample[first:])
	}
	if csv {
		p.headerLines = first + 1
		return p.detectCSV(sample[first], o)
	}
	return p.detectJSONL(sample, o)
}

// isJSONL tells JSONL from CSV, whose lines do not begin as objects do: by the first line, or by half of all lines, since the
// first one may be bad.
func isJSONL(sample []string) bool {
	objects, lines := 0, 0
	for i, line := range sample {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		lines++
		if strings.HasPrefix(line, "{") {
			objects++
			if i == 0 {
				return true
			}
		}
	}
	return objects*2 >= lines
}

// aliases are the names under which the generic forms find a field that the user did not map, compared
// without case, spaces and underscores, and for timestamps without a suffix that gives their unit.
var aliases = map[int][]string{
	fTimestamp: {"timestamp", "time", "ts", "arrivaltime", "arrivedat", "starttime", "requesttime", "createdat"},
	fInput:     {"inputlength", "inputtokens", "prompttokens", "contexttokens", "requesttokens", "promptlength", "promptlen", "inputlen", "numprefilltokens"},
	fOutput: {
		"outputlength", "outputtokens", "completiontokens", "generatedtokens", "responsetokens", "outputlen", "numdecodetokens",
	},
	fHashIDs: {"hashids", "blockhashes"},
	fClass:   {"class"},
	fSession: {"sessionid", "session", "conversationid"},
	fTurn:    {"turn"},
}

func normalise(name string) string {
	return strings.NewReplacer(" ", "", "_", "", "-", "").Replace(strings.ToLower(strings.TrimSpace(name)))
}

// fieldOfAlias finds the field that a generic file's key or column names.
func fieldOfAlias(name string) int {
	n := normalise(name)
	for field, list := range aliases {
		if slices.Contains(list, n) {
			return field
		}
	}
	if _, ok := unitFromHeader(name); ok {
		trimmed := name[:max(strings.LastIndexAny(name, "_("), 0)]
		if slices.Contains(aliases[fTimestamp], normalise(trimmed)) {
			return fTimestamp
		}
	}
	return -1
}

func (p *plan) detectJSONL(sample []string, o Options) error {
	seen, order, readable := map[string]bool{}, []string{}, false
	for _, line := range sample {
		if checkJSON([]byte(line)) != nil {
			continue
		}
		readable = true
		gjson.Parse(line).ForEach(func(key, _ gjson.Result) bool {
			if !seen[key.Str] {
				seen[key.Str] = true
				order = append(order, key.Str)
			}
			return true
		})
	}
	all := func(keys ...string) bool {
		for _, k := range keys {
			if !seen[k] {
				return false
			}
		}
		return true
	}
	some := func(keys ...string) bool {
		for _, k := range keys {
			if seen[k] {
				return true
			}
		}
		return false
	}
	p.format, p.formatReason = o.Format, "stated"
	if p.format == "" {
		switch {
		case all("timestamp", "time_unit"):
			p.format, p.formatReason = Native, "key time_unit"
		case all("timestamp", "chat_id", "parent_chat_id"):
			p.format, p.formatReason = Bailian, "keys chat_id and parent_chat_id"
		case all("timestamp", "text_input"), all("timestamp", "payload"),
			all("timestamp", "input_length") && some("session_id", "delay", "messages"),
			all("timestamp", "output_length", "messages"):
			p.format, p.formatReason = AIPerf, "Mooncake's keys with session_id, delay, text_input, messages or payload"
		case all("timestamp", "input_length", "output_length"):
			p.format, p.formatReason = Mooncake, "keys timestamp, input_length and output_length"
		default:
			p.format, p.formatReason = JSONL, "JSON objects with no known format's keys"
		}
	}
	if len(o.Fields) > 0 {
		p.mapped = newFieldMap(o.Fields)
	}
	if p.format != JSONL {
		parser := &keyedJSON{format: p.format, ignored: p.ignored, mapped: p.mapped}
		for field, path := range o.Fields {
			parser.paths[fieldIndex(field)] = path
		}
		p.parser = parser
		return nil
	}
	if !readable {
		return p.noLine(sample, 0, o, func(line string) *LineError { return &LineError{Reason: checkJSON([]byte(line)).Error()} })
	}
	parser := &pathJSON{mapped: p.mapped}
	for field, path := range o.Fields {
		parser.paths[fieldIndex(field)] = path
	}
	for _, key := range order {
		// A key with a dot or another sign of gjson's path syntax would be read as a path.
		if field := fieldOfAlias(key); field >= 0 && parser.paths[field] == "" && !strings.ContainsAny(key, `.*?#@|\`) {
			parser.paths[field] = key
		}
	}
	p.parser = parser
	return p.needGenericFields(order)
}

// ErrUnclearField is the beginning of an error about a file of no known form, of which the fields have to be mapped.
var ErrUnclearField = errors.New("cannot tell which field holds")

func (p *plan) needGenericFields(have []string) error {
	for _, field := range []int{fTimestamp, fInput, fOutput} {
		if p.parser.column(field) == "" {
			return fmt.Errorf("%w the %s: state the format or map the field; the file has %s", ErrUnclearField,
				fieldNames[field], strings.Join(have, ", "))
		}
	}
	return nil
}

func (p *plan) detectCSV(headerLine string, o Options) error {
	delimiter := byte(',')
	for _, d := range []byte{';', '\t'} {
		if strings.Count(headerLine, string(d)) > strings.Count(headerLine, string(delimiter)) {
			delimiter = d
		}
	}
	header, err := splitCSV(headerLine, delimiter, nil)
	if err != nil {
		return fmt.Errorf("CSV header: %w", err)
	}
	names := make([]string, len(header))
	for i := range header {
		header[i] = strings.TrimSpace(header[i])
		names[i] = normalise(header[i])
	}
	has := func(columns ...string) bool {
		for _, c := range columns {
			if !slices.Contains(names, c) {
				return false
			}
		}
		return true
	}
	p.format, p.formatReason = o.Format, "stated"
	if p.format == "" {
		switch {
		case has("timestamp", "contexttokens", "generatedtokens"):
			p.format, p.formatReason = Azure, "header TIMESTAMP,ContextTokens,GeneratedTokens"
		case has("timestamp", "requesttokens", "responsetokens", "sessionid", "elapsedtime"):
			p.format, p.formatReason = BurstGPTv3, "header with Session ID and Elapsed time"
		case has("timestamp", "requesttokens", "responsetokens"):
			p.format, p.formatReason = BurstGPT, "header Timestamp, Request tokens, Response tokens"
		default:
			p.format, p.formatReason = CSV, "a header of no known format"
		}
	}
	parser := &csvColumns{delimiter: delimiter, header: header, fieldOf: make([]int, len(header))}
	for i, name := range names {
		parser.fieldOf[i] = columnField(p.format, name, header[i])
		if f := parser.fieldOf[i]; f >= 0 && parser.columns[f] != "" {
			parser.fieldOf[i] = -1 // the first of two columns for one field counts
		} else if f >= 0 {
			parser.columns[f] = header[i]
		}
	}
	for field, column := range o.Fields {
		i := slices.Index(names, normalise(column))
		if i < 0 {
			return fmt.Errorf("no column %q for the field %s: the header has %s", column, field, strings.Join(header, ", "))
		}
		f := fieldIndex(field)
		for j := range parser.fieldOf {
			if parser.fieldOf[j] == f {
				parser.fieldOf[j] = -1
			}
		}
		if old := parser.fieldOf[i]; old >= 0 {
			parser.columns[old] = ""
		}
		parser.fieldOf[i] = f
		parser.columns[f] = header[i]
	}
	p.parser = parser
	return p.needGenericFields(header)
}

// columnField is the field of a CSV column in a form; normalised is the column's name as normalise has it.
func columnField(format Name, normalised, name string) int {
	if format == BurstGPT || format == BurstGPTv3 {
		switch normalised {
		case "logtype":
			return fClass
		case "elapsedtime":
			return fElapsed
		}
	}
	return fieldOfAlias(name)
}

// documentedUnit is the unit that a form's documentation gives its timestamps.
func documentedUnit(format Name) Unit {
	switch format {
	case Native, Mooncake, AIPerf, TimedTrace:
		return Milliseconds
	case Bailian, BurstGPT, BurstGPTv3:
		return Seconds
	case Azure:
		return WallClock
	case JSONL, CSV:
	}
	return ""
}

// sizes are the block sizes that traces use: Mooncake's first, which is documented, then Qwen-Bailian's
// and vLLM's default, then the other powers of two that engines offer.
var sizes = []int{512, 16, 32, 64, 128, 256, 1024, 2048, 4096}

func (p *plan) detectUnits(sample []string, o Options) error {
	var timestamps []string
	fits := make([]int, len(sizes))
	withIDs, blockMarker, unitMarker := 0, 0, Unit("")
	for i, line := range sample[p.headerLines:] {
		var f fields
		if strings.TrimSpace(line) == "" || p.parser.parse([]byte(line), &f) != nil {
			continue
		}
		if f[fTimestamp].set {
			timestamps = append(timestamps, f[fTimestamp].text)
		}
		// The first that is there holds for the file, and builder.agrees compares the rows with it. What it says cannot be
		// skipped as a bad row is: every other row rests on it.
		wrong := func(field int, expected string) error {
			return &LineError{
				File: p.name, Line: p.headerLines + i + 1, Key: p.parser.column(field),
				Reason: fmt.Sprintf("got %s, expected %s, %s", quoted(f[field].text), expected, stateYourself(field)),
			}
		}
		if o.Unit == "" && unitMarker == "" && f[fTimeUnit].set {
			if unitMarker = Unit(f[fTimeUnit].text); !unitMarker.known() {
				return wrong(fTimeUnit, "one of "+unitNames())
			}
		}
		if o.BlockSize == 0 && blockMarker == 0 && f[fBlockSize].set {
			n, err := parseCount(f[fBlockSize].text)
			if err != nil || n <= 0 {
				return wrong(fBlockSize, "a whole number from 1 up")
			}
			blockMarker = int(n)
		}
		ids, errIDs := parseHashIDs(f[fHashIDs].text, nil)
		input, errInput := parseCount(f[fInput].text)
		if errIDs == nil && errInput == nil && len(ids) > 0 {
			withIDs++
			for i, size := range sizes {
				if blocks(input, size) == len(ids) {
					fits[i]++
				}
			}
		}
	}
	switch {
	case o.Unit != "":
		p.unit, p.unitReason = o.Unit, "stated"
	case unitMarker != "":
		p.unit, p.unitReason = unitMarker, "the file's time_unit"
	default:
		var err error
		p.unit, p.unitReason, err = detectUnit(timestamps, documentedUnit(p.format), p.parser.column(fTimestamp))
		if errors.Is(err, errNoTimestamp) {
			if lineErr := p.noLine(sample, p.headerLines, o, p.badTimestamp); lineErr != nil {
				return lineErr
			}
		}
		if err != nil {
			return err
		}
	}
	return p.detectBlockSize(o, blockMarker, withIDs, fits)
}

// badTimestamp is what is wrong with a line of a file in which no timestamp can be read.
func (p *plan) badTimestamp(line string) *LineError {
	var f fields
	if err := p.parser.parse([]byte(line), &f); err != nil {
		var lineErr *LineError
		if errors.As(err, &lineErr) {
			return lineErr
		}
		return &LineError{Reason: err.Error()}
	}
	c := f[fTimestamp]
	if !c.set {
		return &LineError{Key: p.parser.column(fTimestamp), Reason: p.mapped.missing(fTimestamp).Error()}
	}
	return &LineError{Key: p.parser.column(fTimestamp), Reason: "neither a number nor a date and time: got " + quoted(c.text)}
}

func (p *plan) detectBlockSize(o Options, marker, withIDs int, fits []int) error {
	switch {
	case o.BlockSize > 0:
		p.block, p.blockReason = o.BlockSize, "stated"
	case marker > 0:
		p.block, p.blockReason = marker, "the file's block_size"
	case p.format == Bailian:
		p.block, p.blockReason = 16, "documented for this format"
	case withIDs > 0:
		for i, size := range sizes {
			if fits[i]*2 > withIDs {
				p.block, p.blockReason = size, fmt.Sprintf("input_length and the number of hash_ids agree on %d of the first %d rows", fits[i], withIDs)
				return nil
			}
		}
		return fmt.Errorf("hash_ids fit none of the block sizes %v: state the block size", sizes)
	default:
		p.block, p.blockReason = 512, "Mooncake's; the first rows have no hash_ids to tell by"
	}
	return nil
}

// blocks is the number of blocks that a prompt fills: ceil(input/size).
func blocks(input int32, size int) int {
	return (int(input) + size - 1) / size
}
