package deploy

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each flag of the tools that docs/migration.md is about stands in a table of their section, with a counterpart or the
// reason why there is none.
func TestMigrationNamesEveryFlag(t *testing.T) {
	list, err := os.ReadFile("testdata/migration-flags.txt")
	require.NoError(t, err)
	page, err := os.ReadFile("../../docs/migration.md")
	require.NoError(t, err)

	row := regexp.MustCompile(`(?m)^\| (.+) \| (.+) \|$`)
	flag := regexp.MustCompile(`--[a-z0-9-]+`)
	named := map[string]bool{}
	total := 0
	for line := range strings.SplitSeq(string(list), "\n") {
		if heading, found := strings.CutPrefix(line, "# From "); found {
			_, section, found := strings.Cut(string(page), "\n## From "+heading+"\n")
			require.True(t, found, heading)
			section, _, _ = strings.Cut(section, "\n## ")
			named = map[string]bool{}
			for _, cells := range row.FindAllStringSubmatch(strings.ReplaceAll(section, `\|`, "/"), -1) {
				require.NotEqual(t, "none", cells[2], "no reason is given: %s", cells[0])
				for _, name := range flag.FindAllString(cells[1], -1) {
					named[name] = true
				}
			}

			continue
		}
		for _, name := range strings.Fields(line) {
			if strings.HasPrefix(line, "#") {
				break
			}
			total++
			require.True(t, named[name], "%s is in no table of its section", name)
		}
	}
	require.Greater(t, total, 300)
}
