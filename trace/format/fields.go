package format

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"
)

// The fields that a line may give. The order is that of fieldNames.
const (
	fTimestamp = iota
	fInput
	fOutput
	fHashIDs
	fClass
	fSession
	fTurn
	fDelay
	fElapsed
	fText
	fMessages
	fPayload
	lastMappable // the fields from here on are not for a user's field map
	fChatID      = iota - 1
	fParentID
	fBlockSize
	fTimeUnit
	numFields
)

var fieldNames = [numFields]string{
	"timestamp", "input_length", "output_length", "hash_ids", "class", "session_id", "turn", "delay", "elapsed",
	"text_input", "messages", "payload", "chat_id", "parent_chat_id", "block_size", "time_unit",
}

func fieldIndex(name string) int {
	for i, n := range fieldNames[:lastMappable] {
		if n == name {
			return i
		}
	}
	return -1
}

// cell is one field of a line as text: a JSON string unquoted, any other JSON value raw, a CSV cell.
type cell struct {
	text string
	set  bool
}

// fields are the cells of one line. The texts may share memory with the line.
type fields [numFields]cell

// lineParser splits one line into fields. Its error is the reason alone, without file and line.
type lineParser interface {
	parse(line []byte, f *fields) error
	// column is the file's own name of a field, for messages; "" when the form does not have it.
	column(field int) string
}

// maxNesting bounds the depth of JSON on very long lines, so that the recursive check of its syntax
// cannot exhaust the stack.
const maxNesting = 10_000

func checkJSON(line []byte) error {
	if len(line) > 1<<20 && nesting(line) > maxNesting {
		return fmt.Errorf("JSON nested deeper than %d", maxNesting)
	}
	if !gjson.ValidBytes(line) {
		var value any
		if err := json.Unmarshal(line, &value); err != nil {
			return fmt.Errorf("not valid JSON: %w", err)
		}
		return errors.New("not valid JSON")
	}
	if trimmed := bytes.TrimLeft(line, " \t"); len(trimmed) == 0 || trimmed[0] != '{' {
		return errors.New("not a JSON object")
	}
	return nil
}

func nesting(line []byte) int {
	depth, deepest, inString := 0, 0, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

func jsonCell(v gjson.Result) cell {
	switch v.Type {
	case gjson.Null:
		return cell{}
	case gjson.String:
		return cell{text: v.Str, set: true}
	default:
		return cell{text: v.Raw, set: true}
	}
}

// keyedJSON reads objects whose keys are those of the documented JSONL forms.
type keyedJSON struct {
	format  Name
	paths   [numFields]string // from the user's field map; these override the keys
	mapped  *fieldMap         // nil where the user gave none
	ignored map[string]int
}

func (p *keyedJSON) parse(line []byte, f *fields) error {
	if err := checkJSON(line); err != nil {
		return err
	}
	root := gjson.ParseBytes(line)
	root.ForEach(func(key, value gjson.Result) bool {
		if i := p.fieldOfKey(key.Str); i >= 0 {
			f[i] = jsonCell(value)
		} else {
			p.ignored[key.Str]++
		}
		return true
	})
	if p.mapped != nil {
		p.mapped.look(root)
		for i, path := range p.paths {
			if path != "" {
				f[i] = jsonCell(root.Get(path))
			}
		}
	}
	return nil
}

func (p *keyedJSON) fieldOfKey(key string) int {
	switch key {
	case "timestamp":
		return fTimestamp
	case "input_length":
		return fInput
	case "output_length":
		return fOutput
	case "hash_ids":
		return fHashIDs
	case "session_id":
		return fSession
	case "turn":
		return fTurn
	case "delay":
		return fDelay
	case "elapsed":
		return fElapsed
	case "text_input":
		return fText
	case "messages":
		return fMessages
	case "payload":
		return fPayload
	case "class":
		return fClass
	case "type":
		if p.format == Bailian {
			return fClass
		}
	case "chat_id":
		if p.format == Bailian {
			return fChatID
		}
	case "parent_chat_id":
		if p.format == Bailian {
			return fParentID
		}
	case "block_size":
		return fBlockSize
	case "time_unit":
		return fTimeUnit
	}
	return -1
}

func (p *keyedJSON) column(field int) string {
	if p.paths[field] != "" {
		return p.paths[field]
	}
	if p.format == Bailian && field == fClass {
		return "type"
	}
	return fieldNames[field]
}

// pathJSON reads objects through a field map. Keys that are not mapped are none of its business.
type pathJSON struct {
	paths  [numFields]string
	mapped *fieldMap
}

func (p *pathJSON) parse(line []byte, f *fields) error {
	if err := checkJSON(line); err != nil {
		return err
	}
	root := gjson.ParseBytes(line)
	p.mapped.look(root)
	for i, path := range p.paths {
		if path != "" {
			f[i] = jsonCell(root.Get(path))
		}
	}
	return nil
}

func (p *pathJSON) column(field int) string { return p.paths[field] }

// csvColumns reads delimited lines. A record is one line: none of the known traces has a line break in a
// cell, and a stray quote must not swallow the rest of the file.
type csvColumns struct {
	delimiter byte
	header    []string
	fieldOf   []int // for each column its field, or -1
	columns   [numFields]string
	cells     []string
}

func (p *csvColumns) parse(line []byte, f *fields) error {
	cells, err := splitCSV(string(line), p.delimiter, p.cells[:0])
	p.cells = cells
	if err != nil {
		return err
	}
	if len(cells) != len(p.header) {
		return fmt.Errorf("%d columns: expected %d as in the header", len(cells), len(p.header))
	}
	for i, text := range cells {
		if field := p.fieldOf[i]; field >= 0 {
			text = strings.TrimSpace(text)
			f[field] = cell{text: text, set: text != ""}
		}
	}
	return nil
}

func (p *csvColumns) column(field int) string { return p.columns[field] }

// splitCSV appends the cells of one line to cells (RFC 4180, without line breaks in cells).
func splitCSV(line string, delimiter byte, cells []string) ([]string, error) {
	for {
		if !strings.HasPrefix(line, `"`) {
			end := strings.IndexByte(line, delimiter)
			if end < 0 {
				return append(cells, line), nil
			}
			cells = append(cells, line[:end])
			line = line[end+1:]
			continue
		}
		var b strings.Builder
		rest := line[1:]
		for {
			end := strings.IndexByte(rest, '"')
			if end < 0 {
				return cells, errors.New("a quoted cell does not end on its line")
			}
			b.WriteString(rest[:end])
			rest = rest[end+1:]
			if !strings.HasPrefix(rest, `"`) {
				break
			}
			b.WriteByte('"')
			rest = rest[1:]
		}
		cells = append(cells, b.String())
		if rest == "" {
			return cells, nil
		}
		if rest[0] != delimiter {
			return cells, errors.New("text after a quoted cell")
		}
		line = rest[1:]
	}
}
