package cli

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/safeqps/xk6-safeqps/gate/report"
	"github.com/safeqps/xk6-safeqps/gate/results"
)

// newReport is `k6 x llm report`: the page for people, and the same for programs.
func newReport(env environment) *cobra.Command {
	var out string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "report DIR...",
		Short: "Write report.html (one file, opens offline), report.json and report.md",
		Long: "Reads one or several results directories, or directories that hold some, as a capacity search leaves them, and\n" +
			"writes report.html and report.json. Several runs give curves of latency against rate.\n\n" +
			"Beside them report.md: of one run its verdict, as `gate verdict` writes it into the run's own directory, where one that is\n" +
			"there is left as it is; of several runs, of a search, and of a run without a contract a table of the rates. In the\n" +
			"directory of one of several runs the table is rates.md, since report.md is that run's verdict.",
		Example: "  k6 x llm report results\n  k6 x llm report search --out search",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return wrongUse(fmt.Errorf("got no directory, expected results directories"))
			}

			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			in, err := report.Collect(args)
			if err != nil {
				return wrongUse(err)
			}
			if in.Capacity, err = report.Capacities(args); err != nil {
				return wrongUse(err)
			}
			if err := report.NameSearches(&in); err != nil {
				return wrongUse(err)
			}
			if asJSON {
				content, err := report.JSON(in)
				if err != nil {
					return wrongUse(err) // of what the directories hold
				}
				_, err = env.stdout.Write(content)

				return err //nolint:wrapcheck // nothing to add
			}
			if out == "" {
				out = args[0]
			}
			w, err := writeReport(out, in)
			if err != nil {
				return err
			}
			fmt.Fprintln(env.stdout, w.page())
			fmt.Fprintf(env.stderr, "written to %s: %s\n", w.dir, strings.Join(w.files, ", "))
			if w.kept != "" {
				fmt.Fprintf(env.stderr, "left as it is: %s, the verdict of that run\n", w.kept)
			}

			return nil
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "directory to write to; default: the first DIR")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print report.json instead")

	return cmd
}

// written is what a report left in a directory.
type written struct {
	dir   string
	files []string // what was replaced says so
	kept  string   // a file that was there, and is better than the report's own
}

func (w written) page() string { return filepath.Join(w.dir, results.HTMLFile) }

// writeReport writes the forms of a report.
func writeReport(dir string, in report.Input) (written, error) {
	var html bytes.Buffer
	if err := report.HTML(&html, in); err != nil {
		return written{}, wrongUse(err) // of what the directories hold
	}
	data, err := report.JSON(in)
	if err != nil {
		return written{}, wrongUse(err) // of what the directories hold
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { // #nosec G301 -- a report is for others to read
		return written{}, wrongUse(fmt.Errorf("--out: %w", err))
	}
	files := map[string][]byte{results.HTMLFile: html.Bytes(), report.ReportFile: data}
	markdown, content := markdownOf(in, exists(filepath.Join(dir, results.RunFile)))
	w := written{dir: dir}
	switch { // in the directory of a run it is the verdict on that run
	case markdown != results.MarkdownFile || !exists(filepath.Join(dir, markdown)) || !exists(filepath.Join(dir, results.RunFile)):
		files[markdown] = content
	case sameDir(dir, in.Runs[0].Dir):
		w.kept = markdown
	default:
		return written{}, wrongUse(fmt.Errorf("--out: %s in %s is the verdict of another run: name another directory", markdown, dir))
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, name)
		there := exists(path)
		if err := results.WriteFile(path, files[name]); err != nil {
			return written{}, wrongUse(err)
		}
		if there {
			name += " (replaced)"
		}
		w.files = append(w.files, name)
	}

	return w, nil
}

// markdownOf is the report for a pull request and the name of its file: for one run that was judged its verdict, which is
// what `gate verdict` writes, too; else a table, which leaves the name to the verdict in the directory of one of several runs.
func markdownOf(in report.Input, ofRun bool) (name string, content []byte) {
	one := len(in.Runs) == 1 && len(in.Capacity) == 0
	switch {
	case one && in.Runs[0].Verdict != nil:
		return results.MarkdownFile, report.Markdown(in.Runs[0].Verdict)
	case ofRun && !one:
		return results.RatesFile, report.EnvelopeMarkdown(in)
	default:
		return results.MarkdownFile, report.EnvelopeMarkdown(in)
	}
}

func sameDir(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)

	return err == nil && os.SameFile(x, y)
}

func exists(path string) bool {
	_, err := os.Stat(path)

	return err == nil
}
