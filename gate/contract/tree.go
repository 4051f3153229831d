package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

const (
	// maxFileBytes and maxLineBytes bound what a parser that recurses, and aliases that repeat, can be made
	// to do: block collections nest by one column at least. A contract is a page of text.
	maxFileBytes = 64 << 10
	maxLineBytes = 2000
	// maxDepth bounds nesting; a contract needs four levels, a free-form decision a few more.
	maxDepth = 64
)

type nodeKind int

const (
	kindScalar nodeKind = iota
	kindNull
	kindMap
	kindList
)

// node is the YAML tree with only what a contract needs: values with their positions, variables expanded,
// aliases followed.
type node struct {
	kind nodeKind
	pos  Pos
	// raw is a scalar's value as written, text the same after expansion of variables.
	raw, text string
	// literal is the JSON text of a plain scalar that is a number or a boolean; "" for a string.
	literal string
	entries []entry
	items   []*node
	// faulty marks a node whose problem was reported already; its value must not be judged again.
	faulty bool
}

type entry struct {
	key   string
	pos   Pos
	value *node
}

func (n *node) describe() string {
	switch n.kind {
	case kindNull:
		return "nothing"
	case kindMap:
		return "a mapping"
	case kindList:
		return "a list"
	default:
		if n.raw != n.text {
			return fmt.Sprintf("%s (from %s)", quote(n.text), quote(n.raw))
		}
		return quote(n.text)
	}
}

// quote shows a value in an error: quoted, on one line, shortened.
func quote(text string) string {
	const most = 80
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return strconv.Quote(text)
}

// parseTree reads one YAML document. A nil tree with no problem is an empty document.
func (l *loader) parseTree(data []byte) *node {
	if len(data) > maxFileBytes {
		l.report(Pos{1, 1}, "", fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("a contract of at most %d bytes", maxFileBytes))
		return nil
	}
	for i, line := range bytes.Split(data, []byte("\n")) {
		if len(line) > maxLineBytes {
			l.report(Pos{i + 1, 1}, "", fmt.Sprintf("a line of %d bytes", len(line)), fmt.Sprintf("lines of at most %d bytes", maxLineBytes))
			return nil
		}
	}
	file, err := parseYAML(data)
	if err != nil {
		l.reportSyntax(err, data)
		return nil
	}
	var root *node
	var seen bool
	for _, document := range file.Docs {
		if document == nil || document.Body == nil {
			continue
		}
		if directive, is := document.Body.(*ast.DirectiveNode); is {
			l.report(positionOf(directive), "", "a YAML directive", "a contract without directives")
			continue
		}
		if seen {
			l.report(positionOf(document.Body), "", "a second YAML document", "one document")
			break
		}
		seen = true
		root = l.convert(document.Body, "", 0)
	}
	return root
}

// parseYAML turns a panic of the YAML parser, which malformed input has been known to cause, into an error.
func parseYAML(data []byte) (file *ast.File, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			file, err = nil, fmt.Errorf("malformed YAML (%v)", cause)
		}
	}()
	if depth := bracketDepth(data); depth > maxDepth {
		return nil, fmt.Errorf("brackets nested more than %d deep", maxDepth)
	}
	// Duplicate keys are found by convert, which goes on to find the other problems.
	return parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
}

// bracketDepth is an upper bound of the depth of flow collections: it counts brackets in strings as well.
func bracketDepth(data []byte) int {
	depth, deepest := 0, 0
	for _, b := range data {
		switch b {
		case '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ']', '}':
			depth = max(0, depth-1)
		}
	}
	return deepest
}

var (
	bareGreater    = regexp.MustCompile(`:\s+>=?\s*[0-9b$]`)
	bareVariable   = regexp.MustCompile(`[{,].*:\s*[^'"]*\$\{`)
	syntaxExpected = "valid YAML"
)

func (l *loader) reportSyntax(err error, data []byte) {
	pos, message, expected := Pos{1, 1}, err.Error(), syntaxExpected
	var syntax yaml.Error
	if errors.As(err, &syntax) {
		message = syntax.GetMessage()
		if tk := syntax.GetToken(); tk != nil {
			pos = tokenPos(tk)
		}
	}
	if lines := strings.Split(string(data), "\n"); pos.Line <= len(lines) {
		line := lines[pos.Line-1]
		switch {
		case bareGreater.MatchString(line):
			expected += `: a value that begins with ">" must be quoted, as in success_rate: ">= 0.995"`
		case bareVariable.MatchString(line):
			expected += `: inside {…} a value with a variable must be quoted, as in {cpu: "<= ${CPU}"}`
		}
	}
	l.report(pos, "", "malformed YAML ("+message+")", expected)
}

func positionOf(n ast.Node) Pos {
	if mapping, is := n.(*ast.MappingNode); is && !mapping.IsFlowStyle && len(mapping.Values) > 0 {
		return positionOf(mapping.Values[0].Key) // the token of a block mapping is the colon of its first key
	}
	return tokenPos(n.GetToken())
}

func tokenPos(tk *token.Token) Pos {
	if tk == nil || tk.Position == nil {
		return Pos{1, 1}
	}
	return Pos{Line: max(1, tk.Position.Line), Column: max(1, tk.Position.Column)}
}

// convert builds the tree below one YAML node and reports what no contract may contain.
func (l *loader) convert(from ast.Node, path string, depth int) *node {
	if from == nil {
		return &node{kind: kindNull, pos: Pos{1, 1}}
	}
	out := &node{pos: positionOf(from)}
	if depth > maxDepth {
		l.report(out.pos, path, "nesting deeper than "+strconv.Itoa(maxDepth)+" levels", "a flatter file")
		out.kind, out.faulty = kindNull, true
		return out
	}
	switch n := from.(type) {
	case *ast.MappingNode:
		out.kind = kindMap
		for _, value := range n.Values {
			l.convertEntry(out, value, path, depth)
		}
	case *ast.MappingValueNode:
		out.kind = kindMap
		l.convertEntry(out, n, path, depth)
	case *ast.SequenceNode:
		out.kind = kindList
		for i, value := range n.Values {
			out.items = append(out.items, l.convert(value, fmt.Sprintf("%s[%d]", path, i), depth+1))
		}
	case *ast.AnchorNode:
		converted := l.convert(n.Value, path, depth+1)
		if n.Name != nil {
			l.anchors[n.Name.String()] = converted
		}
		return converted
	case *ast.AliasNode:
		name := ""
		if n.Value != nil {
			name = n.Value.String()
		}
		if target, known := l.anchors[name]; known {
			return target
		}
		l.report(out.pos, path, fmt.Sprintf("the alias *%s", name), fmt.Sprintf("an anchor &%s before it", name))
		out.kind, out.faulty = kindNull, true
	case *ast.TagNode:
		l.report(out.pos, path, "the tag "+quote(n.GetToken().Value), "a value without a YAML tag")
		out.kind, out.faulty = kindNull, true
	case *ast.NullNode:
		out.kind = kindNull
	default:
		l.convertScalar(out, from, path)
	}
	return out
}

func (l *loader) convertEntry(parent *node, from *ast.MappingValueNode, path string, depth int) {
	key, ok := keyText(from.Key)
	pos := tokenPos(from.GetToken())
	if from.Key != nil {
		pos = tokenPos(from.Key.GetToken())
	}
	if !ok {
		found := "a merge key <<"
		if from.Key != nil && !from.Key.IsMergeKey() {
			found = "a key that is not a plain word"
		}
		l.report(pos, path, found, "a plain key")
		return
	}
	childPath := join(path, key)
	if tightColon(from) {
		l.report(pos, path, fmt.Sprintf("%s with no space after its colon", quote(key+":…")),
			"quotes around a text with a colon, or a space to make it a mapping")
		return
	}
	for _, earlier := range parent.entries {
		if earlier.key == key {
			l.report(pos, childPath, fmt.Sprintf("the key %s again", quote(key)),
				fmt.Sprintf("each key once (it stands on line %d already)", earlier.pos.Line))
			return
		}
	}
	value := l.convert(from.Value, childPath, depth+1)
	if value.kind == kindNull && !value.faulty {
		value.pos = pos // a value that is not there has no place of its own
	}
	parent.entries = append(parent.entries, entry{key: key, pos: pos, value: value})
}

// tightColon reports a plain key whose colon touches the value, as in [http://127.0.0.1:8000]. YAML reads
// a text there, this parser a mapping; neither is what the writer can be sure of.
func tightColon(from *ast.MappingValueNode) bool {
	colon := from.GetToken()
	if colon == nil || colon.Position == nil || from.Key == nil || from.Value == nil ||
		from.Value.Type() == ast.NullType || from.Key.GetToken().Type != token.StringType {
		return false
	}
	value := positionOf(from.Value)
	return value.Line == colon.Position.Line && value.Column == colon.Position.Column+1
}

func keyText(key ast.MapKeyNode) (string, bool) {
	switch k := key.(type) {
	case nil:
		return "", false
	case *ast.MappingKeyNode:
		inner, is := k.Value.(ast.MapKeyNode)
		if !is {
			return "", false
		}
		return keyText(inner)
	case *ast.StringNode:
		return k.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		return k.GetToken().Value, true
	default:
		return "", false
	}
}

func (l *loader) convertScalar(out *node, from ast.Node, path string) {
	out.kind = kindScalar
	switch n := from.(type) {
	case *ast.StringNode:
		out.raw = n.Value
	case *ast.LiteralNode:
		if n.Value != nil {
			out.raw = strings.TrimSuffix(n.Value.Value, "\n")
		}
	case *ast.IntegerNode:
		out.raw = n.GetToken().Value
		out.literal = jsonNumber(out.raw, n.Value)
	case *ast.FloatNode:
		out.raw = n.GetToken().Value
		out.literal = jsonNumber(out.raw, n.Value)
	case *ast.BoolNode:
		out.raw = n.GetToken().Value
		out.literal = strconv.FormatBool(n.Value)
	case *ast.InfinityNode, *ast.NanNode:
		out.raw = n.GetToken().Value
	default:
		l.report(out.pos, path, "a YAML "+from.Type().YAMLName(), "a plain value, a list or a mapping")
		out.kind, out.faulty = kindNull, true
		return
	}
	text, faults := expandVariables(out.raw, l.lookup)
	for _, f := range faults {
		l.report(out.pos, path, f.found, f.expected)
		out.faulty = true
	}
	out.text = text
}

// jsonNumber keeps the file's own spelling of a number where JSON has the same one (1.10 stays 1.10), and
// else writes the value (0x10 becomes 16).
func jsonNumber(spelling string, value any) string {
	if json.Valid([]byte(spelling)) {
		return spelling
	}
	if x, is := value.(float64); is && (math.IsInf(x, 0) || math.IsNaN(x)) {
		return ""
	}
	text, err := json.Marshal(value)
	if err != nil || bytes.Equal(text, []byte("null")) {
		return ""
	}
	return string(text)
}

// appendJSON writes the node as JSON with the file's order of keys. It stops growing past maxFileBytes,
// which only aliases that repeat each other can reach; the caller checks the length.
func (n *node) appendJSON(out []byte) []byte {
	if len(out) > maxFileBytes {
		return out
	}
	switch n.kind {
	case kindNull:
		return append(out, "null"...)
	case kindMap:
		out = append(out, '{')
		for i, e := range n.entries {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(appendJSONString(out, e.key), ':')
			out = e.value.appendJSON(out)
		}
		return append(out, '}')
	case kindList:
		out = append(out, '[')
		for i, item := range n.items {
			if i > 0 {
				out = append(out, ',')
			}
			out = item.appendJSON(out)
		}
		return append(out, ']')
	default:
		if n.literal != "" {
			return append(out, n.literal...)
		}
		return appendJSONString(out, n.text)
	}
}

func appendJSONString(out []byte, text string) []byte {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false) // "<" stays readable
	if err := encoder.Encode(text); err != nil {
		return append(out, `""`...) // unreachable: a string always encodes
	}
	return append(out, bytes.TrimSuffix(buffer.Bytes(), []byte("\n"))...)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
