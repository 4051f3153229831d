package format

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// fieldMap is where a user says that fields are in JSON objects (gjson's paths). It keeps which of them no line has had: a
// wrong path would otherwise give a trace that only lacks something.
type fieldMap struct {
	paths  map[string]string // by this package's names
	unseen map[string]bool   // of the paths' fields
	first  []string          // the paths of all that the first line has
}

func newFieldMap(paths map[string]string) *fieldMap {
	m := &fieldMap{paths: paths, unseen: make(map[string]bool, len(paths))}
	for field := range paths {
		m.unseen[field] = true
	}
	return m
}

// look takes note of what a line has, in any of the places where it is looked for.
func (m *fieldMap) look(places ...gjson.Result) {
	if m == nil || len(m.unseen) == 0 {
		return
	}
	if m.first == nil {
		m.first = pathsOf(nil, "", places[0])
	}
	for field := range m.unseen {
		for _, place := range places {
			if place.Get(m.paths[field]).Exists() {
				delete(m.unseen, field)
			}
		}
	}
}

// maxPaths bounds what of a row is shown.
const maxPaths = 40

// pathsOf appends the paths of an object's values, as a field map takes them.
func pathsOf(found []string, under string, object gjson.Result) []string {
	object.ForEach(func(key, value gjson.Result) bool {
		if len(found) > maxPaths {
			return false
		}
		path := under + gjson.Escape(key.Str)
		if value.IsObject() && len(value.Raw) > len("{}") {
			found = pathsOf(found, path+".", value)
		} else {
			found = append(found, path)
		}
		return true
	})
	return found
}

// check is an error where no line had a field that is mapped. quoting says that the file's own names may be shown.
func (m *fieldMap) check(quoting bool) error {
	if m == nil || len(m.unseen) == 0 {
		return nil
	}
	var b strings.Builder
	b.WriteString("no row has ")
	dots := false
	for i, field := range slices.Sorted(maps.Keys(m.unseen)) {
		dots = dots || strings.Contains(m.paths[field], ".")
		if i == 0 {
			fmt.Fprintf(&b, "%q, which is to be the field %s", m.paths[field], field)
		} else {
			fmt.Fprintf(&b, ", or %q (%s)", m.paths[field], field)
		}
	}
	if quoting {
		b.WriteString(": ")
		dots = m.writeFirst(&b) || dots
	}
	if dots {
		b.WriteString(dotRule)
	}
	return errors.New(b.String())
}

const dotRule = ` (a dot within a name is written as \.)`

// writeFirst says what the first row has, and whether there are dots within names.
func (m *fieldMap) writeFirst(b *strings.Builder) (dots bool) {
	shown := m.first
	if len(shown) > maxPaths {
		shown = append(shown[:maxPaths:maxPaths], "…")
	}
	list := strings.Join(shown, ", ")
	b.WriteString("the first row has " + list)
	return strings.Contains(list, `\.`)
}

// missing is the error for a line without a field that it needs. Where no line so far had what the field is mapped to, the map
// is wrong, and it says what there is.
func (m *fieldMap) missing(field int) error {
	if m == nil || !m.unseen[fieldNames[field]] {
		return errMissing
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: it is to be the field %s, and ", errMissing.Error(), fieldNames[field])
	if m.writeFirst(&b) || strings.Contains(m.paths[fieldNames[field]], ".") {
		b.WriteString(dotRule)
	}
	return errors.New(b.String())
}
