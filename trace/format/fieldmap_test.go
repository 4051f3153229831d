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

func TestAnonymizeTellsOfAMappedFieldThatNoRowHas(t *testing.T) {
	t.Parallel()
	const log = `{"time":1700000000,"request":{"prompt":"a","who":"u"},"hunter2":1,"usage":{"prompt_tokens":5,"completion_tokens":1}}` + "\n"
	_, _, err := Anonymize("log", strings.NewReader(log), AnonymizeOptions{Tokenizer: words{}, Fields: map[string]string{"class": "meta.tier"}})
	require.EqualError(t, err, `log: no row has "meta.tier", which is to be the field class (a dot within a name is written as \.)`,
		"the log's own keys may say anything, and are not shown")
	trace, _ := anonymize(t, log, AnonymizeOptions{Fields: map[string]string{"session_id": "who"}})
	require.Equal(t, "1", trace.Rows[0].Extra.Session, "of the request's body")
}
