package deploy

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

// The reference of keys in docs/results.md is the schema's own text: `go test ./internal/deploy -run TestResults -update`
// writes it anew.
const (
	resultsPage   = "../../docs/results.md"
	resultsSchema = "../../docs/results.schema.json"
	keysHeading   = "## Key by key\n\n"
)

// described are the definitions of the schema that have keys, under their headings.
var described = []struct{ definition, heading string }{
	{"run", "`run.json`"},
	{"request", "A line of `requests.jsonl`"},
	{"sample", "A line of `series.jsonl`"},
	{"event", "A line of `events.jsonl`"},
	{"histograms", "`histograms/METRIC.json`"},
	{"verdict", "`verdict.json`"},
	{"criterion", "`criteria[]`: a line of the contract, in `verdict.json`"},
	{"step", "`steps[]`: a rate of a staircase, in `verdict.json`"},
	{"counts", "`counts`: the ledger of a run, a phase, a step or an instance"},
	{"span", "`phases[]` and `steps[]` of `run.json`"},
	{"aborted", "`aborted`"},
	{"host", "`host`"},
	{"clock_reading", "`clock[]` of a second"},
	{"merged", "`merged` of a joined directory"},
	{"instance", "`instances[]` of a joined directory"},
	{"instance_headroom", "`steps.*` of an instance"},
}

// keysOf lists the keys below a node of the schema, those of its parts among them, as rows of a table.
func keysOf(t *testing.T, node gjson.Result, prefix string) (rows []string) {
	t.Helper()
	node.Get("properties").ForEach(func(key, property gjson.Result) bool {
		name := prefix + key.String()
		text := property.Get("description").String()
		require.NotEmpty(t, text, "the schema does not describe %s", name)
		rows = append(rows, fmt.Sprintf("| `%s` | %s |", name, text))
		for property.Exists() && !property.Get("properties").Exists() {
			switch items, values := property.Get("items"), property.Get("additionalProperties"); {
			case items.IsObject():
				property, name = items, name+"[]"
			case values.IsObject():
				property, name = values, name+".*"
			default:
				property = gjson.Result{}
			}
		}
		rows = append(rows, keysOf(t, property, name+".")...)

		return true
	})

	return rows
}

func TestResultsSchemaIsDescribedAndOnThePage(t *testing.T) {
	schema, err := os.ReadFile(resultsSchema)
	require.NoError(t, err)
	definitions := gjson.GetBytes(schema, "$defs")
	listed := map[string]bool{}
	reference := ""
	for _, d := range described {
		listed[d.definition] = true
		rows := keysOf(t, definitions.Get(d.definition), "")
		require.NotEmpty(t, rows, d.definition)
		reference += "### " + d.heading + "\n\n| key | meaning |\n| --- | --- |\n" + strings.Join(rows, "\n") + "\n\n"
	}
	definitions.ForEach(func(name, definition gjson.Result) bool {
		require.Equal(t, definition.Get("properties").Exists(), listed[name.String()], "%s has keys, and none of them is on the page", name)

		return true
	})

	page, err := os.ReadFile(resultsPage)
	require.NoError(t, err)
	before, after, found := strings.Cut(string(page), keysHeading)
	require.True(t, found, "%s has no %q", resultsPage, keysHeading)
	introduction, now, _ := strings.Cut(after, "### ")
	now = "### " + now
	if *update {
		require.NoError(t, os.WriteFile(resultsPage, []byte(before+keysHeading+introduction+strings.TrimRight(reference, "\n")+"\n"), 0o600))

		return
	}
	require.Equal(t, strings.TrimRight(reference, "\n")+"\n", now)
}
