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
		Short: "Write report.html (one file, opens offline), report.md and report.json",
		Long: "Reads one or several results directories, or directories that hold some, as a capacity search leaves them, and\n" +
			"writes report.html, report.json and report.md. Several runs give curves of latency against rate.\n\n" +
			"report.md of one run is its verdict, as `gate verdict` writes it into the run's own directory; one that is there is left\n" +
			"as it is.",
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
			page, others, err := writeReport(out, in)
			if err != nil {
				return err
			}
			fmt.Fprintln(env.stdout, page)
			fmt.Fprintf(env.stderr, "beside it: %s\n", strings.Join(others, ", "))

			return nil
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "directory to write to; default: the first DIR")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print report.json instead")

	return cmd
}

// writeReport writes the forms of a report and returns the page's path, and the names of the other files.
func writeReport(dir string, in report.Input) (page string, others []string, err error) {
	var html bytes.Buffer
	if err := report.HTML(&html, in); err != nil {
		return "", nil, wrongUse(err) // of what the directories hold
	}
	data, err := report.JSON(in)
	if err != nil {
		return "", nil, wrongUse(err) // of what the directories hold
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { // #nosec G301 -- a report is for others to read
		return "", nil, wrongUse(fmt.Errorf("--out: %w", err))
	}
	files := map[string][]byte{results.HTMLFile: html.Bytes(), report.ReportFile: data}
	markdown, verdictsOwn := markdownOf(in)
	files[results.MarkdownFile] = markdown
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if name == results.MarkdownFile && verdictsOwn && sameDir(dir, in.Runs[0].Dir) && exists(filepath.Join(dir, name)) {
			others = append(others, name)

			continue
		}
		if err := results.WriteFile(filepath.Join(dir, name), files[name]); err != nil {
			return "", nil, wrongUse(err)
		}
		if name != results.HTMLFile {
			others = append(others, name)
		}
	}

	return filepath.Join(dir, results.HTMLFile), others, nil
}

// markdownOf is report.md: for one run that was judged its verdict, which is what `gate verdict` writes, too.
func markdownOf(in report.Input) (content []byte, verdictsOwn bool) {
	if len(in.Runs) == 1 && len(in.Capacity) == 0 && in.Runs[0].Verdict != nil {
		return report.Markdown(in.Runs[0].Verdict), true
	}

	return report.EnvelopeMarkdown(in), false
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
