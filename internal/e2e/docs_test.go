package e2e

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/llm/llmtest"
)

// These tests hold the documents to the binary: what they show is run, what they name exists, what exists is named.
//
// A fenced block is a complete script if it begins with an import, and is then loaded with `k6 inspect`; a contract if it
// has a capacity_gate, and is then checked. A first line such as `// gate.js` names the file that later blocks of the
// same document use. The comment `<!-- test:run exit=0,99 -->` before a block of js or sh has it run against the
// simulated engine; it must end with one of the exit codes.

// document is one Markdown file.
type document struct {
	path   string // relative to the repository
	prose  string // without fenced blocks
	blocks []block
}

// block is a fenced block.
type block struct {
	line  int
	lang  string
	text  string
	exits []int // of a block that is to be run; nil for others
}

var (
	fence  = regexp.MustCompile("^(`{3,})(\\w*)$")
	marker = regexp.MustCompile(`^<!-- test:run exit=([\d,]+) -->$`)
	named  = regexp.MustCompile(`^(?://|#) (\S+\.(?:js|yaml))$`)
)

func readDocument(t *testing.T, path string) document {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root(t), path))
	require.NoError(t, err)
	d := document{path: path}
	var open *block
	var exits []int
	for i, line := range strings.Split(string(data), "\n") {
		f := fence.FindStringSubmatch(line)
		switch {
		case open != nil && f != nil && f[2] == "":
			d.blocks = append(d.blocks, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		case f != nil:
			open, exits = &block{line: i + 1, lang: f[2], exits: exits}, nil
		default:
			d.prose += line + "\n"
			if m := marker.FindStringSubmatch(line); m != nil {
				for code := range strings.SplitSeq(m[1], ",") {
					n, err := strconv.Atoi(code)
					require.NoError(t, err)
					exits = append(exits, n)
				}
			}
		}
	}
	require.Nil(t, open, "%s: a fenced block does not end", path)
	require.Nil(t, exits, "%s: a marker stands before no block", path)

	return d
}

func documents(t *testing.T) []document {
	t.Helper()
	paths := []string{"README.md", "examples/README.md"}
	found, err := filepath.Glob(filepath.Join(root(t), "docs", "*.md"))
	require.NoError(t, err)
	for _, path := range found {
		paths = append(paths, "docs/"+filepath.Base(path))
	}
	list := make([]document, len(paths))
	for i, path := range paths {
		list[i] = readDocument(t, path)
	}

	return list
}

func readText(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root(t), path))
	require.NoError(t, err)

	return string(data)
}

// mentions asserts without showing the whole text.
func mentions(t *testing.T, text, what, where string) {
	t.Helper()
	require.True(t, strings.Contains(text, what), "%s lacks %s", where, what)
}

func TestDocumentedSnippets(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, func(c *llmtest.ServerConfig) { c.Speed = 4 })
	env := []string{
		"LLM_BASE_URL=" + sim.url, "LLM_SERVER=http://" + sim.host, "LLM_MODEL=sim",
		"WARMUP=1s", "STEADY=2s", "RECOVERY=1s", "K6_ADDRESS=", "K6_NO_USAGE_REPORT=true",
	}
	for _, d := range documents(t) {
		t.Run(d.path, func(t *testing.T) {
			t.Parallel()
			dir := snippetDir(t)
			for i, b := range d.blocks {
				where := fmt.Sprintf("%s:%d", d.path, b.line)
				file := fmt.Sprintf("snippet%d.%s", i, b.lang)
				first, rest, _ := strings.Cut(b.text, "\n")
				body := b.text
				if m := named.FindStringSubmatch(first); m != nil {
					file, body = m[1], rest
				}
				isScript := b.lang == "js" && strings.HasPrefix(body, "import ")
				isContract := b.lang == "yaml" && strings.Contains(b.text, "capacity_gate:")
				if isScript || isContract {
					require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(b.text), 0o600))
				}
				switch {
				case isContract:
					runIn(t, dir, env, where, []int{0}, "./k6 x llm gate check "+file)
				case isScript && b.exits != nil:
					runIn(t, dir, env, where, b.exits, "./k6 run --quiet "+file)
				case isScript:
					runIn(t, dir, env, where, []int{0}, "./k6 inspect "+file)
				case b.lang == "sh" && b.exits != nil:
					runIn(t, dir, env, where, b.exits, b.text)
				default:
					require.Nil(t, b.exits, "%s: a block of %q cannot be run", where, b.lang)
				}
			}
		})
	}
}

// snippetDir is a directory with what the documents' snippets refer to.
func snippetDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Symlink(binary, filepath.Join(dir, "k6")))
	for name, from := range map[string]string{
		"slo.yaml": "examples/slo.yaml", "trace.jsonl": "examples/sample-trace.jsonl",
		"azure.csv": "trace/format/testdata/azure.csv", "gate.js": "examples/gate.js", "capacity.js": "examples/capacity.js",
		"capacity.yaml": "examples/capacity.yaml",
		"envelope.json": "internal/e2e/testdata/envelope.json",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(readText(t, from)), 0o600))
	}

	return dir
}

func runIn(t *testing.T, dir string, env []string, where string, exits []int, script string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script) //nolint:gosec // from this repository's own documents
	cmd.Dir, cmd.Env = dir, append(append(os.Environ(), "HOME="+dir), env...)
	r := finish(t, cmd)
	require.Contains(t, exits, r.exit, "%s: %s\n%s%s", where, script, r.stdout, r.stderr)
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
)

func TestDocumentedLinks(t *testing.T) {
	t.Parallel()
	anchors := map[string][]string{}
	all := documents(t)
	for _, d := range all {
		for _, h := range heading.FindAllStringSubmatch(d.prose, -1) {
			anchors[d.path] = append(anchors[d.path], anchorOf(h[1]))
		}
	}
	for _, d := range all {
		for _, m := range link.FindAllStringSubmatch(d.prose, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, hasAnchor := strings.Cut(m[1], "#")
			target := d.path
			if file != "" {
				target = filepath.Join(filepath.Dir(d.path), file)
			}
			require.FileExists(t, filepath.Join(root(t), target), "%s links to %s", d.path, m[1])
			if hasAnchor {
				require.Contains(t, anchors[target], anchor, "%s links to %s", d.path, m[1])
			}
		}
	}
}

// anchorOf is the anchor that GitHub gives a heading.
func anchorOf(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		default:
			return -1
		}
	}, heading)
}

// node is a command as its own --help describes it.
type node struct {
	path     string // "gate verdict"
	children map[string]*node
	flags    []string // its own, "--json"
	globals  []string
}

var (
	subcommand = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*) {2,}\S`)
	flag       = regexp.MustCompile(`(?m)^ +(?:-\w, )?(--[a-z][a-z0-9-]*)`)
	mention    = regexp.MustCompile(`\bk6 x llm((?: [a-z][a-z-]*)*)([^\n` + "`" + `]*)`)
	usedFlag   = regexp.MustCompile(`(?:^| )(--[a-z][a-z0-9-]*)`)
)

// commandTree asks the binary for its commands.
func commandTree(t *testing.T, path string) *node {
	t.Helper()
	r := runK6(t, append(append([]string{"x", "llm"}, strings.Fields(path)...), "--help")...)
	require.Equal(t, 0, r.exit, r.stderr)
	own, global, _ := strings.Cut(r.stdout, "Global Flags:")
	n := &node{path: path, children: map[string]*node{}}
	if _, list, ok := strings.Cut(own, "Available Commands:"); ok {
		list, _, _ = strings.Cut(list, "\n\n")
		for _, m := range subcommand.FindAllStringSubmatch(list, -1) {
			n.children[m[1]] = commandTree(t, strings.TrimSpace(path+" "+m[1]))
		}
	}
	if _, flags, ok := strings.Cut(own, "\nFlags:"); ok {
		for _, m := range flag.FindAllStringSubmatch(flags, -1) {
			n.flags = append(n.flags, m[1])
		}
	}
	for _, m := range flag.FindAllStringSubmatch(global, -1) {
		n.globals = append(n.globals, m[1])
	}

	return n
}

func (n *node) leaves() []*node {
	if len(n.children) == 0 {
		return []*node{n}
	}
	var list []*node
	for _, name := range slices.Sorted(maps.Keys(n.children)) {
		list = append(list, n.children[name].leaves()...)
	}

	return list
}

func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	tree := commandTree(t, "")
	require.Contains(t, tree.children, "sim")
	for _, d := range documents(t) {
		text := d.prose
		for _, b := range d.blocks {
			text += b.text
		}
		for _, m := range mention.FindAllStringSubmatch(text, -1) {
			n := tree
			for word := range strings.FieldsSeq(m[1]) {
				if len(n.children) == 0 {
					break // an argument
				}
				require.Contains(t, n.children, word, "%s: `k6 x llm%s`", d.path, m[1])
				n = n.children[word]
			}
			for _, f := range usedFlag.FindAllStringSubmatch(m[2], -1) {
				require.Contains(t, append(slices.Clone(n.flags), n.globals...), f[1], "%s: `k6 x llm%s%s`", d.path, m[1], m[2])
			}
		}
	}

	reference := readText(t, "docs/cli.md")
	for _, leaf := range tree.leaves() {
		mentions(t, reference, "k6 x llm "+leaf.path, "docs/cli.md")
		for _, name := range leaf.flags {
			if name != "--help" {
				mentions(t, reference, "`"+name+"`", "docs/cli.md, of "+leaf.path+",")
			}
		}
	}
	engine := readText(t, "docs/simulated-engine.md")
	for _, name := range tree.children["sim"].flags {
		if name != "--help" {
			mentions(t, engine, "`"+name+"`", "docs/simulated-engine.md")
		}
	}
}

func TestDocumentedClient(t *testing.T) {
	t.Parallel()
	types, reference := readText(t, "index.d.ts"), readText(t, "docs/client.md")
	property := regexp.MustCompile(`(?m)^    (\w+)\??:`)
	for _, name := range []string{"ClientOptions", "Request", "Response", "Usage", "Timings", "SLO", "Cost", "Retry", "SessionOptions", "TurnRequest", "TurnResponse", "EmbeddingsRequest", "ImageOptions"} {
		_, body, ok := strings.Cut(types, "export interface "+name+" {\n")
		require.True(t, ok, name)
		body, _, _ = strings.Cut(body, "\n  }")
		found := property.FindAllStringSubmatch(body, -1)
		require.NotEmpty(t, found, name)
		for _, m := range found {
			require.True(t, regexp.MustCompile(`\b`+m[1]+`\b`).MatchString(reference), "docs/client.md lacks %s of %s", m[1], name)
		}
	}
	_, errorTypes, ok := strings.Cut(types, "export type ErrorType =")
	require.True(t, ok)
	errorTypes, _, _ = strings.Cut(errorTypes, ";")
	for _, m := range regexp.MustCompile(`'(\w+)'`).FindAllStringSubmatch(errorTypes, -1) {
		mentions(t, reference, "| `"+m[1]+"` |", "docs/client.md")
	}
}

func TestDocumentedMetrics(t *testing.T) {
	t.Parallel()
	registered := map[string]bool{}
	for _, m := range regexp.MustCompile(`"(llm_\w+)", metrics\.`).FindAllStringSubmatch(readText(t, "llm/metrics.go"), -1) {
		registered[m[1]] = true
	}
	monitor := readText(t, "gate/monitor.go")
	prefixes := map[string]string{"serverPrefix": "llm_server_", "clientPrefix": "llm_client_"}
	for _, m := range regexp.MustCompile(`\{(\w+) \+ "(\w+)", metrics\.`).FindAllStringSubmatch(monitor, -1) {
		require.Contains(t, prefixes, m[1])
		registered[prefixes[m[1]]+m[2]] = true
	}
	for _, name := range []string{"gapsName", "growthName"} {
		m := regexp.MustCompile(name + `\s+= "(llm_\w+)"`).FindStringSubmatch(monitor)
		require.NotNil(t, m, name)
		registered[m[1]] = true
	}
	require.Greater(t, len(registered), 30)

	reference := readDocument(t, "docs/metrics.md")
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(llm_\\w+)` \\|").FindAllStringSubmatch(reference.prose, -1) {
		documented[m[1]] = true
	}
	require.Equal(t, slices.Sorted(maps.Keys(registered)), slices.Sorted(maps.Keys(documented)))
}

func TestDocumentedExamples(t *testing.T) {
	t.Parallel()
	found, err := os.ReadDir(filepath.Join(root(t), "examples"))
	require.NoError(t, err)
	index := readText(t, "examples/README.md")
	for _, file := range found {
		switch {
		case file.Name() == "README.md":
		case file.IsDir():
			mentions(t, index, "]("+file.Name()+"/", "examples/README.md")
		default:
			mentions(t, index, "]("+file.Name()+")", "examples/README.md")
		}
	}
}
