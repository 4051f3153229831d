package format

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A mapped field that no row has is a mistake in the map: without an error, a trace without classes looks like one that was
// asked for.
func TestAMappedFieldThatNoRowHasIsAnError(t *testing.T) {
	t.Parallel()
	const plain = `{"when":1,"in":5,"out":6,"meta":{"app.name":"a","tier":{"of":"gold"},"none":null}}` + "\n" +
		`{"when":2,"in":5,"out":6,"late":"b"}` + "\n"
	const keyed = `{"timestamp":1,"input_length":5,"output_length":6,"tags":["x"]}` + "\n"
	with := func(file map[string]string, more ...string) map[string]string {
		for i := 0; i < len(more); i += 2 {
			file[more[i]] = more[i+1]
		}

		return file
	}
	generic := func(more ...string) map[string]string {
		return with(map[string]string{"timestamp": "when", "input_length": "in", "output_length": "out"}, more...)
	}
	const rest = `the first row has when, in, out, meta.app\.name, meta.tier.of, meta.none (a dot within a name is written as \.)`
	for _, c := range []struct {
		name, file string
		fields     map[string]string
		class      string
		want       string
	}{
		{"a typing error", plain, generic("class", "tier"), "", `f: no row has "tier", which is to be the field class: ` + rest},
		{"a name with a dot", plain, generic("class", "meta.app.name"), "", `f: no row has "meta.app.name", which is to be the field class: ` + rest},
		{"an escaped dot", plain, generic("class", `meta.app\.name`), "a", ""},
		{"two of them", plain, generic("session_id", "who", "class", "tier"), "", `f: no row has "tier", which is to be the field class, or "who" (session_id): ` + rest},
		{"in a later row alone", plain, generic("class", "late"), "", ""},
		{"null", plain, generic("class", "meta.none"), "", ""},
		{
			"another form", keyed, with(map[string]string{}, "class", "tier"), "",
			`f: no row has "tier", which is to be the field class: the first row has timestamp, input_length, output_length, tags`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			trace, err := Read("f", strings.NewReader(c.file), Options{Fields: c.fields, Unit: Seconds})
			if c.want != "" {
				require.EqualError(t, err, c.want)

				return
			}
			require.NoError(t, err)
			require.Equal(t, c.class, trace.Rows[0].Class)
			require.Equal(t, time.Second, trace.Rows[1].Due)
		})
	}
	wide := `{"timestamp":1,"input_length":5,"output_length":6` + strings.Repeat(`,"k":{"v":1}`, 100) + "}\n"
	_, err := Read("f", strings.NewReader(wide), Options{Fields: map[string]string{"class": "nope"}, Unit: Seconds})
	require.ErrorContains(t, err, "input_length, output_length, k.v, ")
	require.True(t, strings.HasSuffix(err.Error(), ", …"), "a row of many keys is not shown whole")
	require.Less(t, len(err.Error()), 400)
}

// What every row needs and no row has is told as what some rows have: by the field that it was to be, and by what there is.
func TestAMappedFieldThatIsRequired(t *testing.T) {
	t.Parallel()
	const rows = `{"timestamp":1000,"usage":{"in":5,"out":6}}` + "\n" + `{"timestamp":2000,"usage":{"in":7,"out":8}}` + "\n"
	const has = `, and the first row has timestamp, usage.in, usage.out (a dot within a name is written as \.)`
	const when = `f:1: when: missing: it is to be the field timestamp, and the first row has timestamp, usage.in, usage.out`
	fields := func(timestamp, input, output string) map[string]string {
		return map[string]string{"timestamp": timestamp, "input_length": input, "output_length": output}
	}
	for _, c := range []struct {
		name, file, want, skipping string
		o                          Options
	}{
		{
			"input", rows, `f:1: usage.inn: missing: it is to be the field input_length` + has,
			`f: none of 2 lines can be read, such as: `,
			Options{Fields: fields("timestamp", "usage.inn", "usage.out"), Unit: Milliseconds},
		},
		{
			"output", rows, `f:1: usage\.out: missing: it is to be the field output_length` + has,
			`f: none of 2 lines can be read, such as: `,
			Options{Fields: fields("timestamp", "usage.in", `usage\.out`), Unit: Milliseconds},
		},
		{
			"timestamp, by which the unit is told", rows, when,
			`f: none of the first 2 lines can be read, such as: `,
			Options{Fields: fields("when", "usage.in", "usage.out")},
		},
		{
			"timestamp of a stated unit", rows, when,
			`f: none of 2 lines can be read, such as: `,
			Options{Fields: fields("when", "usage.in", "usage.out"), Unit: Milliseconds},
		},
		{
			"of a known form", `{"timestamp":1,"input_length":5,"output_length":6}`,
			`f:1: in: missing: it is to be the field input_length, and the first row has timestamp, input_length, output_length`,
			`f: none of 1 lines can be read, such as: `,
			Options{Fields: map[string]string{"input_length": "in"}},
		},
	} {
		_, err := Read("f", strings.NewReader(c.file), c.o)
		require.EqualError(t, err, c.want, c.name)
		var lineErr *LineError
		require.ErrorAs(t, err, &lineErr, c.name)
		c.o.SkipBadRows = true
		_, err = Read("f", strings.NewReader(c.file), c.o)
		require.EqualError(t, err, c.skipping+c.want, c.name)
	}

	// That one row lacks what others have is no mistake of the map.
	_, err := Read("f", strings.NewReader(rows+`{"timestamp":3000,"usage":{"out":6}}`), Options{Fields: fields("timestamp", "usage.in", "usage.out"), Unit: Milliseconds})
	require.EqualError(t, err, "f:3: usage.in: missing")
}

func TestAnonymizeTellsOfAMappedFieldThatNoRowHas(t *testing.T) {
	t.Parallel()
	const log = `{"time":1700000000,"request":{"prompt":"a","who":"u"},"hunter2":1,"usage":{"prompt_tokens":5,"completion_tokens":1}}` + "\n"
	_, _, err := Anonymize("log", strings.NewReader(log), AnonymizeOptions{Tokenizer: words{}, Fields: map[string]string{"class": "meta.tier"}})
	require.EqualError(t, err, `log: no row has "meta.tier", which is to be the field class (a dot within a name is written as \.)`,
		"the log's own keys may say anything, and are not shown")
	trace, _ := anonymize(t, log, AnonymizeOptions{Fields: map[string]string{"session_id": "who"}})
	require.Equal(t, "1", trace.Rows[0].Extra.Session, "of the request's body")
}
