package e2e

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/llm/llmtest"
)

// These tests hold the documents to the binary: what they show is run, what they name exists, what exists is named.
//
// Every fenced block is run, unless it is output (no language, or text) or says why it is not:
//
//   - js that begins with an import is a script, and runs by `k6 run` against the simulated engine. Where a later block of sh
//     in the same document runs it by its name, that is its run. A first line such as `// gate.js` names the file. It must not
//     throw, and not every request may fail.
//   - yaml with a capacity_gate is a contract, and is checked. `# slo.yaml` names the file.
//   - sh runs as it stands, in a directory of its own for each document (snippetDir). Lines with `k6 x llm sim` serve until
//     the document ends, or starts another engine at the same address. Addresses of 127.0.0.1 are replaced, so that documents
//     can run side by side; nothing else is.
//   - Blocks that only build (make, go build, xk6 build) are not run; the targets must exist.
//
// A block must end with 0. `<!-- test:run exit=0,99 -->` before it names other exit codes, and `<!-- test:skip REASON -->`
// leaves it out.

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
	exits []int  // that a run may end with; nil where none are named
	skip  string // why it is not run
}

var (
	fence  = regexp.MustCompile("^(`{3,})(\\w*)$")
	marker = regexp.MustCompile(`^<!-- test:(?:run exit=([\d,]+)|skip (\S.*)) -->$`)
	named  = regexp.MustCompile(`^(?://|#) (\S+\.(?:js|yaml))$`)
)

func readDocument(t *testing.T, path string) document {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root(t), path))
	require.NoError(t, err)
	d := document{path: path}
	var open *block
	var next block
	for i, line := range strings.Split(string(data), "\n") {
		f := fence.FindStringSubmatch(line)
		switch {
		case open != nil && f != nil && f[2] == "":
			d.blocks = append(d.blocks, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		case f != nil:
			next.line, next.lang = i+1, f[2]
			b := next
			open, next = &b, block{}
		default:
			require.NotContains(t, line, "```", "%s:%d: a fence that is indented or has attributes would not be run", path, i+1)
			d.prose += line + "\n"
			if !strings.HasPrefix(line, "<!-- test:") {
				continue
			}
			m := marker.FindStringSubmatch(line)
			require.NotNil(t, m, "%s:%d: %s", path, i+1, line)
			next.skip = m[2]
			for code := range strings.SplitSeq(m[1], ",") {
				if code == "" {
					continue
				}
				n, err := strconv.Atoi(code)
				require.NoError(t, err)
				next.exits = append(next.exits, n)
			}
		}
	}
	require.Nil(t, open, "%s: a fenced block does not end", path)
	require.Empty(t, next.exits, "%s: a marker stands before no block", path)
	require.Empty(t, next.skip, "%s: a marker stands before no block", path)

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

// evidence are the results directories that a document reads and does not make itself: of run a, run b, or an instance of a
// distributed run.
var evidence = map[string]map[string]string{
	"docs/cli.md": {
		"results": "a", "results-before": "b", "results/before": "a", "results/after": "b", "results/a": "a", "results/b": "b",
		"results/1": "0:1/3", "results/2": "1/3:2/3", "results/3": "2/3:1", "search/probe-01": "a",
	},
}

// longer are the steady phases of documents that search: a probe has to bring the requests that a PASS takes.
var longer = map[string][]string{"docs/cli.md": {"STEADY=4s"}, "docs/tutorial.md": {"STEADY=5s"}}

func TestDocumentedSnippets(t *testing.T) {
	t.Parallel()
	sim := startEngine(t, func(c *llmtest.ServerConfig) { c.Speed = 4 })
	env := []string{
		"LLM_BASE_URL=" + sim.url, "LLM_SERVER=http://" + sim.host, "LLM_MODEL=sim",
		"WARMUP=1s", "STEADY=2s", "RECOVERY=1s", "SUCCESS_SLO=0.9", "K6_ADDRESS=", "K6_NO_USAGE_REPORT=true", "K6_NO_COLOR=true",
	}
	for _, d := range documents(t) {
		t.Run(d.path, func(t *testing.T) {
			t.Parallel()
			r := &reader{t: t, dir: snippetDir(t), env: append(slices.Clone(env), longer[d.path]...), engines: map[string]*served{}}
			if d.path == "docs/tutorial.md" { // it makes its own, which would not replace another one's answer
				require.NoError(t, os.RemoveAll(filepath.Join(r.dir, "search")))
			}
			r.gather(evidence[d.path])
			for i, b := range d.blocks {
				r.where = fmt.Sprintf("%s:%d", d.path, b.line)
				if b.skip == "" {
					r.follow(b, fmt.Sprintf("snippet%d.%s", i, b.lang), d.blocks[i+1:])
				}
			}
		})
	}
}

// reader follows one document.
type reader struct {
	t       *testing.T
	dir     string
	env     []string
	where   string
	engines map[string]*served // by the address that the document gives them
}

// served is an engine that a document has started.
type served struct {
	address string
	stop    func()
}

var (
	shows   = regexp.MustCompile(`(?m)^\s*(?:\$ )?(?:\./)?k6 (?:run|x|inspect|archive) `)
	builds  = regexp.MustCompile(`^(?:make(?: ([a-z0-9]+))?|go build \./cmd/k6|xk6 build --with \S+)(?: +#.*)?$`)
	serves  = regexp.MustCompile(`^(?:\./)?(k6 x llm sim(?: [^&#]*[^&# ])?) *&?(?: +#.*)?$`)
	local   = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	listens = regexp.MustCompile(` --listen (\S+)`)
)

func (r *reader) follow(b block, file string, later []block) {
	r.t.Helper()
	first, rest, _ := strings.Cut(b.text, "\n")
	body := b.text
	m := named.FindStringSubmatch(first)
	if m != nil {
		file, body = m[1], rest
	}
	exits := b.exits
	if exits == nil {
		exits = []int{0}
	}
	switch {
	case b.lang == "" || b.lang == "text":
		require.NotRegexp(r.t, shows, b.text, "%s: a command in a block that is not sh", r.where)
		require.Nil(r.t, b.exits, "%s: output is not run", r.where)
	case b.lang == "js" && strings.HasPrefix(body, "import "):
		r.write(file, b.text)
		if b.exits == nil && m != nil && slices.ContainsFunc(later, func(l block) bool {
			return l.lang == "sh" && l.skip == "" && regexp.MustCompile(`\bk6 (?:run|x llm capacity) .*`+regexp.QuoteMeta(file)).MatchString(l.text)
		}) {
			return
		}
		r.run(exits, "./k6 run --quiet "+file)
	case b.lang == "yaml" && strings.Contains(b.text, "capacity_gate:"):
		r.write(file, b.text)
		r.run(exits, "./k6 x llm gate check "+file)
	case b.lang == "sh":
		r.run(exits, r.serve(r.leaveBuilds(b.text)))
	default:
		require.Fail(r.t, "a block that cannot be run, and does not say why: `<!-- test:skip REASON -->`", "%s (%s)", r.where, b.lang)
	}
}

// write leaves a snippet where the document's commands find it.
func (r *reader) write(file, text string) {
	r.t.Helper()
	require.NoError(r.t, os.WriteFile(filepath.Join(r.dir, file), []byte(r.localise(text)), 0o600))
}

// localise replaces the addresses of the document's engines by those that they really have.
func (r *reader) localise(text string) string {
	return local.ReplaceAllStringFunc(text, func(address string) string {
		if engine := r.engines[address]; engine != nil {
			return engine.address
		}

		return address
	})
}

// leaveBuilds takes out the commands that build what the tests have built.
func (r *reader) leaveBuilds(text string) string {
	r.t.Helper()
	makefile := readText(r.t, "Makefile")
	var left strings.Builder
	for line := range strings.Lines(text) {
		m := builds.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			left.WriteString(line)
		} else if m[1] != "" {
			mentions(r.t, makefile, "\n"+m[1]+":", "Makefile, of "+r.where+",")
		}
	}

	return left.String()
}

// serve starts the engines of a block, and gives the rest of it.
func (r *reader) serve(text string) string {
	r.t.Helper()
	var left strings.Builder
	for line := range strings.Lines(text) {
		m := serves.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			require.NotContains(r.t, line, "k6 x llm sim", "%s: an engine that would not end", r.where)
			left.WriteString(line)

			continue
		}
		address := "127.0.0.1:8000"
		if l := listens.FindStringSubmatch(m[1]); l != nil {
			address = l[1]
		}
		if before := r.engines[address]; before != nil {
			before.stop()
		}
		engine := r.startSim(strings.Fields(m[1])[1:])
		r.engines[address] = engine
		if address == "127.0.0.1:8000" { // what the snippets talk to unless they are told otherwise
			r.env = append(r.env, "LLM_BASE_URL=http://"+engine.address+"/v1", "LLM_SERVER=http://"+engine.address)
		}
	}

	return r.localise(left.String())
}

// startSim runs `k6 x llm sim` at a free port until it is stopped, by an interrupt, or the test ends.
func (r *reader) startSim(args []string) *served {
	r.t.Helper()
	cmd, where := command(r.t, append(args, "--listen", "127.0.0.1:0")...), r.where
	out, err := cmd.StdoutPipe()
	require.NoError(r.t, err)
	require.NoError(r.t, cmd.Start())
	stop := sync.OnceFunc(func() {
		require.NoError(r.t, cmd.Process.Signal(os.Interrupt), where)
		_, err := io.Copy(io.Discard, out) // to its end, before Wait closes it
		require.NoError(r.t, err, where)
		require.NoError(r.t, cmd.Wait(), "%s: Ctrl-C ends the engine well", where)
	})
	r.t.Cleanup(stop)
	said, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(r.t, err, where)
	address := local.FindString(said)
	require.NotEmpty(r.t, address, "%s: %s", where, said)

	return &served{address, stop}
}

// allFailed is what k6's summary says where no request went well.
var allFailed = regexp.MustCompile(`llm_success\.+: 0\.00%`)

// commands are what a document's block of sh may call without saying that it is not to be run.
var commands = regexp.MustCompile(`^(?:[A-Z0-9_]+=\S+ +)*(?:(?:\./)?k6|sh|export|grep|cat|head)\b`)

// run has a shell do what the document says. Every command must end with one of the exit codes.
func (r *reader) run(exits []int, script string) {
	r.t.Helper()
	var checked strings.Builder
	accepted := strings.ReplaceAll(strings.Trim(fmt.Sprint(exits), "[]"), " ", "|")
	for line := range strings.Lines(strings.ReplaceAll(script, "\\\n", " ")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		require.Regexp(r.t, commands, line, "%s: this test does not run that; `<!-- test:skip REASON -->`", r.where)
		fmt.Fprintf(&checked, "%s\ncode=$?; case $code in %s) ;; *) exit $code ;; esac\n", line, accepted)
	}
	if checked.Len() == 0 {
		return
	}
	checked.WriteString("exit $code\n")
	cmd := exec.CommandContext(r.t.Context(), "sh", "-c", checked.String()) //nolint:gosec // from this repository's own documents
	cmd.Dir, cmd.Env = r.dir, append(append(os.Environ(), "HOME="+r.dir, "PATH="+r.dir+":"+os.Getenv("PATH")), r.env...)
	started := time.Now()
	got := finish(r.t, cmd)
	r.t.Logf("%s: %.1f s, exit %d", r.where, time.Since(started).Seconds(), got.exit)
	require.Contains(r.t, exits, got.exit, "%s: %s\n%s%s", r.where, script, got.stdout, got.stderr)
	// k6 ends with 0 whatever happens in an iteration.
	require.NotContains(r.t, got.stderr, "source=stacktrace", "%s: the script throws", r.where)
	require.NotRegexp(r.t, allFailed, got.stdout, "%s: every request failed:\n%s", r.where, got.stderr)
}

// snippetDir is a directory with what the documents' snippets refer to.
func snippetDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Symlink(binary, filepath.Join(dir, "k6")))
	require.NoError(t, os.CopyFS(filepath.Join(dir, "examples"), os.DirFS(filepath.Join(root(t), "examples"))))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "search"), 0o700))
	for name, from := range map[string]string{
		"slo.yaml": "examples/slo.yaml", "gate.js": "examples/gate.js", "replay.js": "examples/replay.js",
		"capacity.js": "examples/capacity.js", "capacity.yaml": "examples/capacity.yaml",
		"trace.jsonl": "examples/sample-trace.jsonl", "mooncake.jsonl": "trace/format/testdata/mooncake.jsonl",
		"azure.csv": "trace/format/testdata/azure.csv", "requests.jsonl": "examples/sample-log.jsonl",
		"envelope.json": "internal/e2e/testdata/envelope.json", "search/envelope.json": "internal/e2e/testdata/envelope.json",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(readText(t, from)), 0o600))
	}

	return dir
}

// gather makes the results directories that a document reads.
func (r *reader) gather(sources map[string]string) {
	r.t.Helper()
	made, wait := map[string]string{}, []func(){}
	for _, name := range slices.Sorted(maps.Keys(sources)) { // a directory comes before those in it
		source := sources[name]
		if made[source] == "" {
			args := []string{"run", "--quiet", "--no-thresholds"}
			if strings.Contains(source, ":") {
				args = append(args, "--execution-segment", source, "--execution-segment-sequence", "0,1/3,2/3,1")
			}
			made[source] = filepath.Join(r.t.TempDir(), "results")
			cmd := command(r.t, append(args, "--out", "llm="+made[source], r.patient("gate.js"))...)
			cmd.Env = append(cmd.Env, r.env...)
			require.NoError(r.t, cmd.Start())
			wait = append(wait, func() { require.NoError(r.t, cmd.Wait(), source) })
		}
		wait = append(wait, func() {
			require.NoError(r.t, os.CopyFS(filepath.Join(r.dir, filepath.FromSlash(name)), os.DirFS(made[source])))
		})
	}
	for _, w := range wait {
		w()
	}
}

// patient is an example whose contract does not judge the load generator: the tests share their machine with the engine, and an
// INVALID run is nobody's baseline.
func (r *reader) patient(name string) string {
	r.t.Helper()
	dir := r.t.TempDir()
	require.NoError(r.t, os.CopyFS(dir, os.DirFS(filepath.Join(r.dir, "examples"))))
	path := filepath.Join(dir, "slo.yaml")
	text, err := os.ReadFile(path)
	require.NoError(r.t, err)
	const judged = "client_headroom:\n  timer_delay_p99: \"<= 100ms\"\n"
	mentions(r.t, string(text), judged, "examples/slo.yaml")
	require.NoError(r.t, os.WriteFile(path, []byte(strings.Replace(string(text), judged,
		"client_headroom: {cpu: off, memory: off, open_files: off, timer_delay_p99: off, schedule_error: off, dropped: off}\n", 1)), 0o600))

	return filepath.Join(dir, name)
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
	for _, name := range []string{"ClientOptions", "RequestFields", "Response", "Usage", "Timings", "SLO", "Cost", "Retry", "SessionOptions", "ToolLoop", "TurnResponse", "EmbeddingsRequest", "ImageOptions"} {
		head := regexp.MustCompile(`(?m)^  export interface ` + name + `(?: extends [\w<>', ]+)? \{$`).FindStringIndex(types)
		require.NotNil(t, head, name)
		body, _, _ := strings.Cut(types[head[1]:], "\n  }")
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
