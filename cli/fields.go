package cli

import (
	"encoding/csv"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// fieldMap is the flag --fields: this project's field names and the file's. Of a name with a comma pflag's own kind of flag
// would say no more than that what follows the comma is no pair.
type fieldMap struct{ to *map[string]string }

const fieldMapUsage = "this project's field names and the file's, e.g. timestamp=ts,input_length=prompt; a name with a comma in a --fields of its own"

func fieldMapVar(flags *pflag.FlagSet, to *map[string]string, usage string) {
	flags.Var(&fieldMap{to}, "fields", usage)
}

// String implements pflag.Value.
func (f *fieldMap) String() string {
	if f.to == nil {
		return ""
	}
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(*f.to)) {
		pairs = append(pairs, name+"="+(*f.to)[name])
	}

	return strings.Join(pairs, ",")
}

// Type implements pflag.Value.
func (f *fieldMap) Type() string { return "NAME=THEIRS,…" }

// Set implements pflag.Value. Where there is one pair, commas are part of it; of several, one with a comma may be quoted as in
// a CSV file.
func (f *fieldMap) Set(text string) error {
	const expected = "expected NAME=THEIRS, several of them with commas between"
	pairs := []string{strings.Trim(text, `"`)}
	if strings.Count(text, "=") > 1 {
		var err error
		if pairs, err = csv.NewReader(strings.NewReader(text)).Read(); err != nil {
			return fmt.Errorf("got %q, %s: %w", text, expected, err)
		}
	}
	found := map[string]string{}
	for _, pair := range pairs {
		name, theirs, ok := strings.Cut(pair, "=")
		if !ok && len(pairs) > 1 {
			return fmt.Errorf("got %q, %s; a name with a comma goes into a --fields of its own", pair, expected)
		}
		if !ok {
			return fmt.Errorf("got %q, %s", pair, expected)
		}
		found[name] = theirs
	}
	if *f.to == nil {
		*f.to = map[string]string{}
	}
	maps.Copy(*f.to, found)

	return nil
}
