package format

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// Tokenizer turns text into token ids. The ids serve to cut a prompt into blocks and to count it; they are
// hashed and never written.
type Tokenizer interface {
	Encode(text string) []int
}

// AnonymizeOptions say how to turn a log of production requests into a trace.
//
// What the result holds: arrival times from zero, token counts, classes, sessions, and block ids that are
// equal where prompts share a prefix. What it never holds: text, user names, session ids, token ids, the
// clock time, the key. What can still be learnt from it: how busy the service was and when, how long
// prompts and answers were, and which requests belong together or start alike. Whoever can send requests
// to the service and sees the trace may recognise their own by its lengths.
type AnonymizeOptions struct {
	// Key keys the hashes; at least 16 bytes. nil draws 32 random bytes, which are forgotten afterwards.
	Key []byte
	// KeepHashes writes the keyed 64-bit hashes, so that traces made with one key can be joined: equal
	// prompts and sessions have equal ids in both. Without it, ids are numbered from 0 and sessions from 1
	// in order of arrival, and the result does not depend on the key at all.
	KeepHashes bool
	// BlockSize is the number of tokens in a block; 0 means 512, as in Mooncake's traces.
	BlockSize int
	// Tokenizer counts and cuts prompts. Without one a trace has no block ids, and every row must say how
	// many tokens it has.
	Tokenizer Tokenizer
	// Fields maps timestamp, input_length, output_length, session_id, class, request and response to dotted
	// paths (gjson's syntax) in a log line, where they are not in their usual places. Names of users are no usual place
	// of a session, since they link all that someone ever asked.
	Fields map[string]string
	// KeepClasses are classes that keep their names, besides short, typical, long and extreme. Every other class is
	// replaced: by class-1, class-2 … in order of arrival, or by its keyed hash under KeepHashes.
	KeepClasses []string
	// Unit is the unit of the timestamps; "" to detect it.
	Unit Unit
	// ZeroOutput, SkipBadRows, Window and Limit are those of Options.
	ZeroOutput  ZeroOutput
	SkipBadRows bool
	Window      *Window
	Limit       int
}

// AnonymizeReport says where an anonymized trace's numbers come from.
type AnonymizeReport struct {
	// InputFromUsage and OutputFromUsage count rows whose length the log gives, as the server counted it;
	// InputCounted and OutputCounted those whose text the tokenizer counted.
	InputFromUsage  int `json:"input_from_usage"`
	InputCounted    int `json:"input_counted"`
	OutputFromUsage int `json:"output_from_usage"`
	OutputCounted   int `json:"output_counted"`
	// RowsWithBlocks have block ids. NonTextParts are images, audio and files in prompts: each counts as
	// one token unless the log gives the length, and equal ones are told apart by hash.
	RowsWithBlocks int `json:"rows_with_blocks"`
	NonTextParts   int `json:"non_text_parts"`
	// ClassesReplaced is how many different classes were replaced by numbers or hashes.
	ClassesReplaced int `json:"classes_replaced"`
	// BadRows were skipped under SkipBadRows, the others dropped: see Notes.
	BadRows           int      `json:"bad_rows"`
	BadRowExamples    []string `json:"bad_row_examples,omitempty"`
	ZeroInputDropped  int      `json:"zero_input_dropped"`
	ZeroOutputDropped int      `json:"zero_output_dropped"`
}

// Anonymize reads a log of requests and gives a trace without text. A log is JSONL, one request a line: an
// OpenAI- or Anthropic-style request body, at the top or under request, body or request.body, with a
// timestamp beside it, and usage or a response from which the lengths are known; or no body at all, but
// lengths. Errors name file, line and field but never quote the log.
func Anonymize(name string, r io.Reader, o AnonymizeOptions) (*Trace, AnonymizeReport, error) {
	a, err := newAnonymizer(o)
	if err != nil {
		return nil, AnonymizeReport{}, err
	}
	src, err := newSource(name, r)
	if err != nil {
		return nil, AnonymizeReport{}, err
	}
	p := &plan{
		format: Native, formatReason: "made by the anonymizer", unitReason: "made by the anonymizer",
		block: a.block, blockReason: "stated", parser: &keyedJSON{format: Native},
	}
	if p.unit, err = a.findTimestamps(src.sample); err != nil {
		return nil, AnonymizeReport{}, fmt.Errorf("%s: %w", name, err)
	}
	b := newBuilder(name, p, Options{ZeroOutput: o.ZeroOutput, Window: o.Window, Limit: o.Limit})
	for {
		line, number, err := src.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, AnonymizeReport{}, err
		}
		if isBlank(line) {
			continue
		}
		b.notes.Lines++
		if err := a.add(b, line); err != nil {
			bad := &LineError{File: name, Line: number, Reason: err.Error()}
			if !o.SkipBadRows {
				return nil, AnonymizeReport{}, bad
			}
			b.notes.BadRows++
			if len(b.notes.BadRowExamples) < maxBadExamples {
				b.notes.BadRowExamples = append(b.notes.BadRowExamples, bad.Error())
			}
		}
	}
	t, err := b.finish("")
	if err != nil {
		return nil, AnonymizeReport{}, err
	}
	if err := a.mapped.check(false); err != nil { // a log's keys may say anything
		return nil, AnonymizeReport{}, fmt.Errorf("%s: %w", name, err)
	}
	a.finish(t)
	return t, a.report, nil
}

// AnonymizeTrace does the same to a trace that was read: sessions are hashed, literal prompts become block
// ids, hash ids are replaced by keyed ones, and clock time, digest and prompts are left out.
func AnonymizeTrace(t *Trace, o AnonymizeOptions) (*Trace, AnonymizeReport, error) {
	a, err := newAnonymizer(o)
	if err != nil {
		return nil, AnonymizeReport{}, err
	}
	out := *t
	out.Rows = make([]Row, len(t.Rows))
	if t.BlockSize > 0 {
		a.block = t.BlockSize
	}
	out.BlockSize, out.BlockSizeReason = a.block, "stated"
	// Skipped lines are remembered with what they said, and keys can be named after anything.
	out.Notes.BadRowExamples, out.Notes.IgnoredKeys = nil, nil
	for i, r := range t.Rows {
		if r.HashIDs != nil {
			r.HashIDs = a.rehash(r.HashIDs)
			a.report.RowsWithBlocks++
		}
		if r.Extra != nil {
			if err := a.stripExtra(&r); err != nil {
				return nil, AnonymizeReport{}, fmt.Errorf("row %d: %w", i, err)
			}
		}
		if r.InputTokens == Unknown {
			return nil, AnonymizeReport{}, fmt.Errorf("row %d: its input length is not known: a tokenizer is needed", i)
		}
		out.Rows[i] = r
	}
	if !out.HasHashIDs() {
		out.BlockSize, out.BlockSizeReason = 0, ""
	}
	a.finish(&out)
	return &out, a.report, nil
}

type anonymizer struct {
	o      AnonymizeOptions
	mac    hash.Hash
	block  int
	report AnonymizeReport
	mapped *fieldMap
	// timestampPath is where every line has its timestamp.
	timestampPath string
}

func newAnonymizer(o AnonymizeOptions) (*anonymizer, error) {
	read := Options{Unit: o.Unit, BlockSize: o.BlockSize, ZeroOutput: o.ZeroOutput, Limit: o.Limit}
	if err := read.check(); err != nil {
		return nil, err
	}
	for field := range o.Fields {
		switch field {
		case "timestamp", "input_length", "output_length", "session_id", "class", "request", "response":
		default:
			return nil, fmt.Errorf("unknown field %q: expected timestamp, input_length, output_length, session_id, class, request or response", field)
		}
	}
	key := o.Key
	if key == nil {
		key = make([]byte, 32)
		if _, err := rand.Read(key); err != nil {
			return nil, fmt.Errorf("draw a key: %w", err)
		}
	} else if len(key) < 16 {
		return nil, fmt.Errorf("the key has %d bytes: expected at least 16", len(key))
	}
	a := &anonymizer{o: o, mac: hmac.New(sha256.New, key), block: o.BlockSize, mapped: newFieldMap(o.Fields)}
	if a.block == 0 {
		a.block = 512
	}
	return a, nil
}

// The usual places of what a log line says, the most specific first.
var (
	timestampPaths = []string{
		"timestamp", `\@timestamp`, "time", "ts", "start_time", "startTime", "request_time", "arrival_time", "created_at",
		"request.timestamp", "request.created_at", "created", "response.created", "response.body.created",
	}
	requestPaths  = []string{"request.body", "request", "body", "request_body"}
	responsePaths = []string{"response.body", "response", "response_body"}
	usagePaths    = []string{"usage", "response.usage", "response.body.usage", "response_body.usage"}
	inputKeys     = []string{"prompt_tokens", "input_tokens", "input_length"}
	outputKeys    = []string{"completion_tokens", "output_tokens", "output_length"}
	sessionPaths  = []string{"session_id", "conversation_id", "metadata.session_id", "metadata.conversation_id"}
)

func (a *anonymizer) findTimestamps(sample []string) (Unit, error) {
	paths := timestampPaths
	if path := a.o.Fields["timestamp"]; path != "" {
		paths = []string{path}
	}
	best, bestTexts := "", []string(nil)
	for _, path := range paths {
		var texts []string
		for _, line := range sample {
			if checkJSON([]byte(line)) != nil {
				continue
			}
			if c := jsonCell(gjson.Get(line, path)); c.set {
				texts = append(texts, c.text)
			}
		}
		if len(texts) > len(bestTexts) {
			best, bestTexts = path, texts
		}
	}
	if best == "" {
		return "", fmt.Errorf("no line has a timestamp: expected JSONL with one of %s, or a field map", strings.Join(paths, ", "))
	}
	a.timestampPath = best
	if a.o.Unit != "" {
		return a.o.Unit, nil
	}
	unit, _, err := detectUnit(bestTexts, "", best)
	if err != nil {
		// detectUnit's error quotes a timestamp, which could be anything that stands under that name.
		return "", fmt.Errorf("cannot tell the unit of the timestamps under %q: state it", best)
	}
	return unit, nil
}

func (a *anonymizer) add(b *builder, line []byte) error {
	if err := checkJSON(line); err != nil {
		return errors.New("not a JSON object")
	}
	root := gjson.ParseBytes(line)
	ns, _, err := parseTimestamp(jsonCell(root.Get(a.timestampPath)).text, b.plan.unit)
	if err != nil {
		return fmt.Errorf("%s: %w", a.timestampPath, errTimestamp)
	}
	body := a.object(root, "request", requestPaths)
	if !body.Exists() {
		body = root
	}
	a.mapped.look(root, body)
	tokens, parts, err := a.prompt(body)
	if err != nil {
		return err
	}
	row := Row{Due: time.Duration(ns)}
	report := a.report // kept only if the row is
	report.NonTextParts += parts
	input, given, err := a.usage(root, "input_length", inputKeys)
	switch {
	case err != nil:
		return err
	case given:
		row.InputTokens = input
		report.InputFromUsage++
	case tokens != nil:
		row.InputTokens = int32(min(len(tokens), 1<<31-1)) //nolint:gosec // bounded
		report.InputCounted++
	default:
		return errors.New("neither a prompt nor its length is known (a prompt needs a tokenizer)")
	}
	output, given, err := a.usage(root, "output_length", outputKeys)
	switch {
	case err != nil:
		return err
	case given:
		row.OutputTokens = output
		report.OutputFromUsage++
	default:
		text, found := answerText(a.object(root, "response", responsePaths))
		if !found || a.o.Tokenizer == nil {
			return errors.New("neither usage nor an answer to count is known")
		}
		row.OutputTokens = int32(min(len(a.o.Tokenizer.Encode(text)), 1<<31-1)) //nolint:gosec // bounded
		report.OutputCounted++
	}
	if row.OutputTokens == 0 && a.o.ZeroOutput != KeepZeroOutput {
		b.notes.ZeroOutputDropped++
		return nil
	}
	if row.InputTokens == 0 {
		b.notes.ZeroInputDropped++
		return nil
	}
	row.Class = b.intern(a.class(root))
	if session := a.session(root, body); session != "" {
		row.Extra = &Extra{Session: session}
	}
	if tokens != nil {
		row.HashIDs = b.ids.keep(a.chain(tokens, row.InputTokens))
		report.RowsWithBlocks++
	}
	if row.OutputTokens == 0 {
		b.notes.ZeroOutputKept++
	}
	a.report = report
	b.rows = append(b.rows, row)
	return nil
}

var errTimestamp = errors.New("missing, or not a timestamp of the file's unit")

// object finds a JSON object, which some logs keep as a string of JSON.
func (a *anonymizer) object(root gjson.Result, field string, paths []string) gjson.Result {
	if path := a.o.Fields[field]; path != "" {
		paths = []string{path}
	}
	for _, path := range paths {
		v := root.Get(path)
		if v.Type == gjson.String && checkJSON([]byte(v.Str)) == nil {
			v = gjson.Parse(v.Str)
		}
		if v.IsObject() {
			return v
		}
	}
	return gjson.Result{}
}

// usage finds a length that the log gives.
func (a *anonymizer) usage(root gjson.Result, field string, keys []string) (int32, bool, error) {
	var found gjson.Result
	if path := a.o.Fields[field]; path != "" {
		found = root.Get(path)
	} else {
		places := make([]gjson.Result, 0, len(usagePaths)+2)
		for _, path := range usagePaths {
			places = append(places, root.Get(path))
		}
		// A response that the log keeps as a string of JSON has its usage inside.
		places = append(places, a.object(root, "response", responsePaths).Get("usage"), root)
	search:
		for _, place := range places {
			for _, key := range keys {
				if found = place.Get(key); found.Exists() && found.Type != gjson.Null {
					break search
				}
			}
		}
	}
	c := jsonCell(found)
	if !c.set {
		return 0, false, nil
	}
	n, err := parseCount(c.text)
	if err != nil {
		return 0, false, fmt.Errorf("%s: %w", field, err)
	}
	return n, true, nil
}

// class is the class in the log's own words: finish replaces it.
func (a *anonymizer) class(root gjson.Result) string {
	path := a.o.Fields["class"]
	if path == "" {
		path = "class"
	}
	return jsonCell(root.Get(path)).text
}

func (a *anonymizer) session(root, body gjson.Result) string {
	paths := sessionPaths
	if path := a.o.Fields["session_id"]; path != "" {
		paths = []string{path}
	}
	for _, path := range paths {
		for _, place := range []gjson.Result{root, body} {
			if c := jsonCell(place.Get(path)); c.text != "" {
				return a.hashSession(c.text)
			}
		}
	}
	return ""
}

func (a *anonymizer) hashSession(session string) string {
	sum := a.sum("session", nil, []byte(session))
	return hex.EncodeToString(sum[:8])
}

// sum is the keyed hash of what, an optional previous hash, and data. what keeps hashes of different things
// apart: a session is never equal to a block.
func (a *anonymizer) sum(what string, previous, data []byte) []byte {
	a.mac.Reset()
	// A hash.Hash never returns an error (documented).
	_, _ = a.mac.Write([]byte(what))
	_, _ = a.mac.Write([]byte{0})
	_, _ = a.mac.Write(previous)
	_, _ = a.mac.Write(data)
	return a.mac.Sum(nil)
}

// chain gives a prompt of input tokens its ids. Each hash takes in the one before, so an id stands for a
// block and all that comes before it. tokens may differ in number from input, which is the server's count
// and includes its chat template: blocks that only the server counts are chained to the rest, and the last block stands for
// all tokens that are left, so that only equal prompts have equal ids.
func (a *anonymizer) chain(tokens []int, input int32) []uint64 {
	ids := make([]uint64, blocks(input, a.block))
	var previous []byte
	data := make([]byte, 0, 8*a.block)
	for i := range ids {
		data = data[:0]
		end := min(a.block, len(tokens))
		if i == len(ids)-1 {
			end = len(tokens)
		}
		for _, token := range tokens[:end] {
			data = binary.LittleEndian.AppendUint64(data, uint64(token)) // #nosec G115 -- any one-to-one mapping does
		}
		tokens = tokens[end:]
		previous = a.sum("block", previous, data)
		ids[i] = binary.LittleEndian.Uint64(previous)
	}
	return ids
}

func (a *anonymizer) rehash(ids []uint64) []uint64 {
	out := make([]uint64, len(ids))
	for i, id := range ids {
		out[i] = binary.LittleEndian.Uint64(a.sum("id", nil, binary.LittleEndian.AppendUint64(nil, id)))
	}
	return out
}

// stripExtra replaces what a row says in words by hashes.
func (a *anonymizer) stripExtra(r *Row) error {
	e := *r.Extra
	body := gjson.Result{}
	switch {
	case e.Payload != nil:
		body = gjson.ParseBytes(e.Payload)
	case e.Messages != nil:
		body = gjson.Parse(`{"messages":` + string(e.Messages) + `}`)
	case e.Text != "":
		quoted, err := appendString(nil, "prompt", e.Text)
		if err != nil {
			return errors.New("text_input: not a JSON string")
		}
		body = gjson.Parse("{" + string(quoted[1:]) + "}")
	}
	tokens, parts, err := a.prompt(body)
	if err != nil {
		return err
	}
	a.report.NonTextParts += parts
	if tokens != nil {
		if r.InputTokens == Unknown {
			r.InputTokens = int32(min(len(tokens), 1<<31-1)) //nolint:gosec // bounded
			a.report.InputCounted++
		}
		if r.HashIDs == nil && r.InputTokens > 0 {
			r.HashIDs = a.chain(tokens, r.InputTokens)
			a.report.RowsWithBlocks++
		}
	}
	if e.Session != "" {
		e.Session = a.hashSession(e.Session)
	}
	e.Text, e.Messages, e.Payload = "", nil, nil
	r.Extra = &e
	if e.empty() {
		r.Extra = nil
	}
	return nil
}

// replaceClasses keeps the names of classes that say nothing of anyone.
func (a *anonymizer) replaceClasses(rows []Row) {
	keep := map[string]bool{"": true, "short": true, "typical": true, "long": true, "extreme": true}
	for _, class := range a.o.KeepClasses {
		keep[class] = true
	}
	names := map[string]string{}
	number := 0
	for i := range rows {
		class := rows[i].Class
		if keep[class] {
			continue
		}
		name, known := names[class]
		if !known && a.o.KeepHashes {
			name = "class-" + hex.EncodeToString(a.sum("class", nil, []byte(class))[:8])
		}
		for ; !known && (name == "" || keep[name]); name = "class-" + strconv.Itoa(number) {
			number++
		}
		names[class], rows[i].Class = name, name
	}
	a.report.ClassesReplaced = len(names)
}

// finish removes what would tell when and from which file a trace was made, and numbers ids and sessions.
func (a *anonymizer) finish(t *Trace) {
	t.Origin = time.Time{}
	t.Digest = ""
	t.Notes.FirstTimestamp = 0
	t.Format, t.FormatReason = Native, "made by the anonymizer"
	t.Unit, t.UnitReason = Milliseconds, "made by the anonymizer"
	a.report.BadRows, a.report.BadRowExamples = t.Notes.BadRows, t.Notes.BadRowExamples
	a.report.ZeroInputDropped, a.report.ZeroOutputDropped = t.Notes.ZeroInputDropped, t.Notes.ZeroOutputDropped
	a.replaceClasses(t.Rows)
	if a.o.KeepHashes {
		return
	}
	numbers, sessions := map[uint64]uint64{}, map[string]string{}
	for i := range t.Rows {
		r := &t.Rows[i]
		for j, id := range r.HashIDs {
			number, known := numbers[id]
			if !known {
				number = uint64(len(numbers))
				numbers[id] = number
			}
			r.HashIDs[j] = number
		}
		if r.Extra != nil && r.Extra.Session != "" {
			number, known := sessions[r.Extra.Session]
			if !known {
				number = strconv.Itoa(len(sessions) + 1)
				sessions[r.Extra.Session] = number
			}
			r.Extra.Session = number
		}
	}
}
