package format

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func readFixture(t *testing.T, name string, o Options) *Trace {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	trace, err := Read(name, f, o)
	require.NoError(t, err)
	return trace
}

func readString(t *testing.T, text string, o Options) *Trace {
	t.Helper()
	trace, err := Read("trace", strings.NewReader(text), o)
	require.NoError(t, err)
	return trace
}

const ms = time.Millisecond

func TestReadMooncake(t *testing.T) {
	trace := readFixture(t, "mooncake.jsonl", Options{})
	require.Equal(t, Mooncake, trace.Format)
	require.Equal(t, Milliseconds, trace.Unit)
	require.Equal(t, 512, trace.BlockSize)
	require.Equal(t, []Row{
		{Due: 0, InputTokens: 1300, OutputTokens: 52, HashIDs: []uint64{46, 47, 2353}},
		{Due: 3053 * ms, InputTokens: 1024, OutputTokens: 26, HashIDs: []uint64{46, 47}},
		{Due: 3053 * ms, InputTokens: 1025, OutputTokens: 1, HashIDs: []uint64{46, 48, 49}},
		{Due: 6048 * ms, InputTokens: 12, OutputTokens: 300, HashIDs: []uint64{50}},
	}, trace.Rows)
	require.Equal(t, Notes{Lines: 4, FirstTimestamp: 27482 * ms, SharedTimestamps: 1, MaxPerTimestamp: 2}, trace.Notes)
	require.Equal(t, "mooncake.jsonl", trace.Name)
	require.True(t, trace.Origin.IsZero())
	require.Equal(t, "439f4bb9c2658e8a16db196ebea717537a316398f426c446d4816bab792754ed", trace.Digest) // as sha256sum says
	require.Empty(t, trace.Labels)
}

func TestReadTimedTraceInSeconds(t *testing.T) {
	trace := readFixture(t, "timed_trace_seconds.jsonl", Options{})
	require.Equal(t, Mooncake, trace.Format) // the keys are the same
	require.Equal(t, Seconds, trace.Unit)
	require.Contains(t, trace.UnitReason, "26667 requests/s")
	require.Equal(t, 16, trace.BlockSize)
	require.Equal(t, 50*ms, trace.Rows[1].Due)
	require.Equal(t, 75*ms, trace.Rows[2].Due)

	stated := readFixture(t, "timed_trace_seconds.jsonl", Options{Format: TimedTrace, Unit: Milliseconds})
	require.Equal(t, TimedTrace, stated.Format)
	require.Equal(t, "stated", stated.UnitReason)
	require.Equal(t, 50*time.Microsecond, stated.Rows[1].Due)
}

func TestReadAIPerf(t *testing.T) {
	trace := readFixture(t, "aiperf.jsonl", Options{})
	require.Equal(t, AIPerf, trace.Format)
	require.Len(t, trace.Rows, 5)
	// The second turn of s1 has a delay only: 250 ms after its first, before the row that stood above it.
	require.Equal(t, Row{
		Due: 250 * ms, InputTokens: 700, OutputTokens: 41, HashIDs: []uint64{0, 2},
		Extra: &Extra{Session: "s1", Delay: 250 * ms},
	}, trace.Rows[1])
	require.Equal(t, Row{Due: 500500 * time.Microsecond, InputTokens: Unknown, OutputTokens: 4, Extra: &Extra{Text: "Hello world"}}, trace.Rows[2])
	require.Equal(t, Row{
		Due: 1000 * ms, InputTokens: Unknown, OutputTokens: Unknown,
		Extra: &Extra{Messages: json.RawMessage(`[{"role": "user", "content": "Hi"}]`)},
	}, trace.Rows[3])
	require.JSONEq(t, `{"prompt":"Hello","max_tokens":50}`, string(trace.Rows[4].Extra.Payload))
	require.Equal(t, 1, trace.Notes.FromDelay)
	require.Equal(t, 1, trace.Notes.Unsorted)
	require.Equal(t, 3, trace.Notes.UnknownInput)
	require.Equal(t, 1, trace.Notes.UnknownOutput)
	require.Equal(t, map[string]int{"tools": 1}, trace.Notes.IgnoredKeys)
	require.Equal(t, 512, trace.BlockSize)
}

func TestReadBailian(t *testing.T) {
	trace := readFixture(t, "bailian.jsonl", Options{})
	require.Equal(t, Bailian, trace.Format)
	require.Equal(t, Seconds, trace.Unit)
	require.Equal(t, 16, trace.BlockSize)
	require.Equal(t, Row{
		Due: 2386 * ms, InputTokens: 33, OutputTokens: 12, Class: "search", HashIDs: []uint64{1089, 1090, 1091},
		Extra: &Extra{Session: "55", Turn: 2},
	}, trace.Rows[1])
	require.Equal(t, "55", trace.Rows[2].Extra.Session, "a grandchild is of the first chat's conversation")
	require.Equal(t, 2886400*time.Microsecond, trace.Rows[2].Due)
	require.Equal(t, "161", trace.Rows[3].Extra.Session, "the parent is not in the file")
	require.Equal(t, 61114*ms, trace.Notes.FirstTimestamp)
}

func TestReadAzure(t *testing.T) {
	trace := readFixture(t, "azure.csv", Options{})
	require.Equal(t, Azure, trace.Format)
	require.Equal(t, WallClock, trace.Unit)
	require.Equal(t, []Row{
		{Due: 0, InputTokens: 374, OutputTokens: 44},
		{Due: 1314579100, InputTokens: 396, OutputTokens: 109},
		{Due: 1541877000, InputTokens: 879, OutputTokens: 55},
	}, trace.Rows)
	require.Equal(t, time.Date(2023, 11, 16, 23, 59, 59, 680590000, time.UTC), trace.Origin)
	require.Equal(t, Notes{Lines: 3, CRLF: true, NoFinalNewline: true, FractionDigits: 7, MaxPerTimestamp: 1}, trace.Notes)
	require.Zero(t, trace.BlockSize)
}

func TestReadBurstGPT(t *testing.T) {
	v1 := readFixture(t, "burstgpt_v1.csv", Options{})
	require.Equal(t, BurstGPT, v1.Format)
	require.Equal(t, []Row{
		{Due: 0, InputTokens: 472, OutputTokens: 18, Class: "Conversation log"},
		{Due: 40 * time.Second, InputTokens: 1087, OutputTokens: 230, Class: "API log"},
	}, v1.Rows)
	require.Equal(t, 1, v1.Notes.ZeroOutputDropped)
	require.Equal(t, 5*time.Second, v1.Notes.FirstTimestamp)

	kept := readFixture(t, "burstgpt_v1.csv", Options{ZeroOutput: KeepZeroOutput, Fields: map[string]string{"class": "Model"}})
	require.Len(t, kept.Rows, 2, "a row of no tokens at all asks for nothing")
	require.Equal(t, "GPT-4", kept.Rows[1].Class)
	require.Zero(t, kept.Notes.ZeroOutputKept)
	require.Equal(t, 1, kept.Notes.ZeroInputDropped)
	require.Contains(t, kept.Notes.Oddities(), Oddity{Kind: "zero_input_dropped", Count: 1, Detail: "rows without input tokens, dropped"})

	v3 := readFixture(t, "burstgpt_v3.csv", Options{})
	require.Equal(t, BurstGPTv3, v3.Format)
	require.Equal(t, []Row{
		{Due: 0, InputTokens: 472, OutputTokens: 18, Class: "Conversation log", Extra: &Extra{Session: "c-1", Elapsed: 3250 * ms}},
		{Due: 1500 * ms, InputTokens: 10, OutputTokens: 20, Class: "API log", Extra: &Extra{Elapsed: 500 * ms}},
	}, v3.Rows)
}

// A row without input tokens is dropped, whatever the rule for outputs, unless it brings its own prompt.
func TestZeroInputIsDropped(t *testing.T) {
	const file = `{"timestamp": 0, "input_length": 0, "output_length": 5}
{"timestamp": 10, "input_length": 7, "output_length": 5}
{"timestamp": 20, "input_length": 0, "output_length": 5, "text_input": "hello"}
{"timestamp": 30, "input_length": 0, "output_length": 0}
`
	for rule, kept := range map[ZeroOutput][]int{KeepZeroOutput: {2, 0}, DropZeroOutput: {1, 1}} {
		trace := readString(t, file, Options{ZeroOutput: rule})
		require.Len(t, trace.Rows, 2)
		require.EqualValues(t, 7, trace.Rows[0].InputTokens)
		require.Equal(t, "hello", trace.Rows[1].Extra.Text)
		require.Equal(t, kept, []int{trace.Notes.ZeroInputDropped, trace.Notes.ZeroOutputDropped}, rule)
	}
}

func TestReadGeneric(t *testing.T) {
	trace := readFixture(t, "generic.jsonl", Options{Fields: map[string]string{
		"timestamp": "meta.at", "input_length": "usage.in", "output_length": "usage.out", "class": "tier",
	}})
	require.Equal(t, JSONL, trace.Format)
	require.Equal(t, WallClock, trace.Unit)
	require.Equal(t, []Row{
		{Due: 0, InputTokens: 10, OutputTokens: 20, Class: "gold"},
		{Due: 500 * ms, InputTokens: 11, OutputTokens: 21, Class: "free"},
	}, trace.Rows)
	require.Equal(t, time.Date(2024, 5, 9, 22, 0, 0, 500000000, time.UTC), trace.Origin)

	trace = readFixture(t, "generic.csv", Options{})
	require.Equal(t, CSV, trace.Format)
	require.Equal(t, Microseconds, trace.Unit)
	require.Equal(t, `the name "arrival_time_us" says so`, trace.UnitReason)
	require.Equal(t, []Row{
		{Due: 0, InputTokens: 9, OutputTokens: 10},
		{Due: 500 * ms, InputTokens: 7, OutputTokens: 8, Class: `a;"b"`},
	}, trace.Rows)
	require.Equal(t, 1, trace.Notes.Unsorted)
	require.Equal(t, time.Second, trace.Notes.FirstTimestamp)
}

func TestFieldsOverrideAKnownForm(t *testing.T) {
	trace := readString(t, `{"timestamp":0,"input_length":5,"output_length":6,"real":{"out":9}}`+"\n",
		Options{Fields: map[string]string{"output_length": "real.out"}})
	require.Equal(t, Mooncake, trace.Format)
	require.Equal(t, int32(9), trace.Rows[0].OutputTokens)
}

func TestGzipBOMAndDigest(t *testing.T) {
	plain, err := os.ReadFile("testdata/mooncake.jsonl")
	require.NoError(t, err)
	var zipped bytes.Buffer
	zw := gzip.NewWriter(&zipped)
	_, err = zw.Write(plain)
	require.NoError(t, err)
	require.NoError(t, zw.Close())

	want := readFixture(t, "mooncake.jsonl", Options{})
	got, err := Read("mooncake.jsonl", bytes.NewReader(zipped.Bytes()), Options{})
	require.NoError(t, err)
	require.True(t, got.Notes.Gzip)
	require.Equal(t, want.Digest, got.Digest)
	require.Equal(t, want.Rows, got.Rows)

	got, err = Read("x", strings.NewReader("\xef\xbb\xbf"+string(plain)), Options{})
	require.NoError(t, err)
	require.True(t, got.Notes.BOM)
	require.Equal(t, want.Rows, got.Rows)

	_, err = Read("x.gz", bytes.NewReader(zipped.Bytes()[:zipped.Len()-12]), Options{})
	require.ErrorContains(t, err, "x.gz:")
	require.ErrorContains(t, err, "unexpected EOF")
	_, err = Read("x", strings.NewReader("\xff\xfe{\x00"), Options{})
	require.EqualError(t, err, "x: the file is in UTF-16: expected UTF-8")
}

func TestBadLines(t *testing.T) {
	const good = `{"timestamp":1,"input_length":5,"output_length":6}` + "\n"
	for _, c := range []struct{ name, line, want string }{
		{"cut JSON", `{"timestamp":1,`, "f:2: not valid JSON: unexpected end of JSON input"},
		{"array", `[1]`, "f:2: not a JSON object"},
		{"no timestamp", `{"input_length":5,"output_length":6}`, "f:2: timestamp: missing"},
		{"no output", `{"timestamp":1,"input_length":5}`, "f:2: output_length: missing"},
		{"null input", `{"timestamp":1,"input_length":null,"output_length":6}`, "f:2: input_length: missing"},
		{"negative time", `{"timestamp":-1,"input_length":5,"output_length":6}`, `f:2: timestamp: negative: got "-1"`},
		{"negative input", `{"timestamp":1,"input_length":-5,"output_length":6}`, `f:2: input_length: negative: got "-5"`},
		{"fraction", `{"timestamp":1,"input_length":5.5,"output_length":6}`, `f:2: input_length: not a whole number: got "5.5"`},
		{"overflow", `{"timestamp":1,"input_length":2147483648,"output_length":6}`, `f:2: input_length: too large: got "2147483648"`},
		{"late", `{"timestamp":1e30,"input_length":1,"output_length":6}`, `f:2: timestamp: too large: got "1e30"`},
		{"NaN", `{"timestamp":"NaN","input_length":1,"output_length":6}`, `f:2: timestamp: not a finite number: got "NaN"`},
		{"word", `{"timestamp":1,"input_length":"many","output_length":6}`, `f:2: input_length: not a number: got "many"`},
		{"ids too few", `{"timestamp":1,"input_length":513,"output_length":6,"hash_ids":[1]}`, "f:2: hash_ids: expected 2 ids for 513 input tokens in blocks of 512, got 1"},
		{"ids too many", `{"timestamp":1,"input_length":512,"output_length":6,"hash_ids":[1,2]}`, "f:2: hash_ids: expected 1 ids for 512 input tokens in blocks of 512, got 2"},
		{"ids negative", `{"timestamp":1,"input_length":5,"output_length":6,"hash_ids":[-1]}`, "f:2: hash_ids: expected an array of whole numbers from 0 to 2^64-1"},
		{"ids too large", `{"timestamp":1,"input_length":5,"output_length":6,"hash_ids":[18446744073709551616]}`, "f:2: hash_ids: expected an array of whole numbers from 0 to 2^64-1"},
		{"ids no array", `{"timestamp":1,"input_length":5,"output_length":6,"hash_ids":7}`, "f:2: hash_ids: expected an array of whole numbers from 0 to 2^64-1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := good + c.line + "\n" + good
			_, err := Read("f", strings.NewReader(file), Options{BlockSize: 512, Format: Mooncake})
			require.EqualError(t, err, c.want)
			var lineErr *LineError
			require.ErrorAs(t, err, &lineErr)
			require.Equal(t, 2, lineErr.Line)

			trace, err := Read("f", strings.NewReader(file), Options{BlockSize: 512, Format: Mooncake, SkipBadRows: true})
			require.NoError(t, err)
			require.Len(t, trace.Rows, 2)
			require.Equal(t, 1, trace.Notes.BadRows)
			require.Equal(t, []string{c.want}, trace.Notes.BadRowExamples)
			require.Equal(t, 3, trace.Notes.Lines)
		})
	}
}

func TestBadCSVLines(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"1,2", "f:3: 2 columns: expected 6 as in the header"},
		{"1,m,,3,3,x", "f:3: Request tokens: missing"},
		{"x,m,2,3,3,x", `f:3: Timestamp: not a number: got "x"`},
		{`1,"m,2,3,3,x`, "f:3: a quoted cell does not end on its line"},
		{`1,"m"m,2,3,3,x`, "f:3: text after a quoted cell"},
	} {
		file := "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n1,m,2,3,5,x\n" + c.line + "\n\n7,m,2,3,5,x\n"
		_, err := Read("f", strings.NewReader(file), Options{})
		require.EqualError(t, err, c.want)
		trace := readString(t, file, Options{SkipBadRows: true})
		require.Len(t, trace.Rows, 2)
		require.Equal(t, 6*time.Second, trace.Rows[1].Due)
	}
}

func TestBadFiles(t *testing.T) {
	window := &Window{From: time.Hour, To: -1}
	for _, c := range []struct {
		name, file string
		o          Options
		want       string
	}{
		{"empty", "", Options{}, "f: the file is empty"},
		{"blank", "\n \n", Options{}, "f: the file is empty"},
		{"array", "[{}]", Options{}, "f: the file is a JSON array: expected JSONL (one object per line) or CSV"},
		{"header only", "TIMESTAMP,ContextTokens,GeneratedTokens\n", Options{}, "f: the file has no rows"},
		{"unknown CSV", "a,b\n1,2\n", Options{}, "f: cannot tell which field holds the timestamp: state the format or map the field; the file has a, b"},
		{"unknown JSON", `{"a":1}`, Options{}, "f: cannot tell which field holds the timestamp: state the format or map the field; the file has a"},
		{"no such column", "time,input_tokens,output_tokens\n", Options{Fields: map[string]string{"class": "tier"}}, `f: no column "tier" for the field class: the header has time, input_tokens, output_tokens`},
		{"no unit", "time,input_tokens,output_tokens\n5,1,1\n9,1,1\n", Options{}, "f: cannot tell the unit of timestamps such as 5: state it (ns, us, ms or s)"},
		{"all bad", "{}\n{", Options{SkipBadRows: true, Format: Mooncake}, "f: none of 2 lines can be read, such as: f:1: timestamp: missing"},
		{"all zero", `{"timestamp":1,"input_length":5,"output_length":0}`, Options{}, "f: no row has output tokens (1 dropped)"},
		{"no input", `{"timestamp":1,"input_length":0,"output_length":5}`, Options{}, "f: no row has input and output tokens (1 dropped)"},
		{"window", `{"timestamp":1,"input_length":5,"output_length":1}`, Options{Window: window}, "f: window 1h0m0s to the end of a trace that ends at 0s: no row in the window"},
		{"block size", `{"timestamp":1,"input_length":5000,"output_length":1,"hash_ids":[1,2,3,4,5,6,7]}`, Options{}, "f: hash_ids fit none of the block sizes [512 16 32 64 128 256 1024 2048 4096]: state the block size"},
		{"format", "", Options{Format: "nope"}, `unknown trace format "nope": expected one of safeqps, mooncake, timed_trace, aiperf, bailian, azure, burstgpt, burstgpt_v3, jsonl, csv`},
		{"unit", "", Options{Unit: "h"}, `unknown unit "h": expected ns, us, ms, s or wall_clock`},
		{"field", "", Options{Fields: map[string]string{"chat_id": "x"}}, `unknown field "chat_id" in the field map: expected one of timestamp, input_length, output_length, hash_ids, class, session_id, turn, delay, elapsed, text_input, messages, payload`},
		{"zero rule", "", Options{ZeroOutput: "x"}, `unknown rule for rows without output "x": expected drop or keep`},
		{"time zero", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,1\n", Options{TimeZero: FileZero}, "f: timestamps are absolute (the first is 2023-11-16T18:15:46Z): time zero must be the first row"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Read("f", strings.NewReader(c.file), c.o)
			require.EqualError(t, err, c.want)
		})
	}
	_, err := Read("f", strings.NewReader(`{"timestamp":1,"input_length":5,"output_length":1}`), Options{Window: window})
	require.ErrorIs(t, err, ErrEmptyWindow)
}

// A bad line is an error with file, line and reason wherever it stands, or is skipped: also where the first line would have told the form.
func TestBadFirstLines(t *testing.T) {
	const row = `{"timestamp":%d,"input_length":5,"output_length":6}` + "\n"
	rows := fmt.Sprintf(row+row, 1000, 2000)
	for _, c := range []struct{ name, file, want string }{
		{"no such date", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-30 18:15:46.68,5,6\n2023-11-16 18:15:46,5,6\n2023-11-16 18:15:47,5,6\n", `f:2: TIMESTAMP: no such date or time of day: got "2023-02-30 18:15:46.68"`},
		{"no number", "time_s,input_tokens,output_tokens\nsoon,5,6\n0.5,5,6\n1.5,5,6\n", `f:2: time_s: not a number: got "soon"`},
		{"a number among dates", `{"ts":12,"input_length":5,"output_length":6}
{"ts":"2023-11-16T18:15:46Z","input_length":5,"output_length":6}
{"ts":"2023-11-16T18:15:47Z","input_length":5,"output_length":6}
`, `f:1: ts: not a date and time such as 2023-11-16 18:15:46.68: got "12"`},
		{"garbage before objects", "garbage, here\n" + rows, "f:1: not valid JSON: invalid character 'g' looking for beginning of value"},
		{"a broken object before objects", `{"timestamp": NaN}` + "\n" + rows, "f:1: not valid JSON: invalid character 'N' looking for beginning of value"},
	} {
		_, err := Read("f", strings.NewReader(c.file), Options{})
		require.EqualError(t, err, c.want, c.name)
		var lineErr *LineError
		require.ErrorAs(t, err, &lineErr)
		trace := readString(t, c.file, Options{SkipBadRows: true})
		require.Len(t, trace.Rows, 2, c.name)
		require.Equal(t, 1, trace.Notes.BadRows, c.name)
		require.Equal(t, time.Second, trace.Rows[1].Due, c.name)
	}
	for _, c := range []struct{ name, file, want, lines string }{
		{"only a broken object", "\n" + `{"timestamp": NaN}`, "f:2: not valid JSON: invalid character 'N' looking for beginning of value", "1"},
		{"only words for times", "ts,input_tokens,output_tokens\nsoon,5,6\nlater,5,6\n", `f:2: ts: neither a number nor a date and time: got "soon"`, "2"},
		{"no time", "ts,input_tokens,output_tokens\n,5,6\n", `f:2: ts: missing`, "1"},
	} {
		_, err := Read("f", strings.NewReader(c.file), Options{})
		require.EqualError(t, err, c.want, c.name)
		_, err = Read("f", strings.NewReader(c.file), Options{SkipBadRows: true})
		require.EqualError(t, err, "f: none of the first "+c.lines+" lines can be read, such as: "+c.want, c.name)
	}
}

type failingReader struct{ data *strings.Reader }

func (r failingReader) Read(p []byte) (int, error) {
	if r.data.Len() == 0 {
		return 0, errors.New("disk on fire")
	}
	return r.data.Read(p)
}

func TestReadErrorIsNotAnEnd(t *testing.T) {
	_, err := Read("f", failingReader{strings.NewReader(`{"timestamp":1,"input_length":5,"output_length":1}` + "\n")}, Options{})
	require.ErrorContains(t, err, "f:2: cannot read on: disk on fire")
}

func TestTimeZero(t *testing.T) {
	const file = `{"timestamp":2000,"input_length":5,"output_length":1}` + "\n" + `{"timestamp":3000,"input_length":6,"output_length":1}` + "\n"
	trace := readString(t, file, Options{TimeZero: FileZero})
	require.Equal(t, []time.Duration{2 * time.Second, 3 * time.Second}, dues(trace))
	require.Zero(t, trace.Notes.FirstTimestamp)
	trace = readString(t, file, Options{TimeZero: FileZero, Window: &Window{From: 3 * time.Second, To: 3 * time.Second}})
	require.Equal(t, []time.Duration{3 * time.Second}, dues(trace))
	trace = readString(t, file, Options{Window: &Window{From: time.Second, To: -1}})
	require.Equal(t, []time.Duration{0}, dues(trace))
	require.Equal(t, int32(6), trace.Rows[0].InputTokens)
}

func dues(t *Trace) []time.Duration {
	list := make([]time.Duration, len(t.Rows))
	for i, r := range t.Rows {
		list[i] = r.Due
	}
	return list
}

func TestSortIsStableAndCounted(t *testing.T) {
	var b strings.Builder
	for i, ts := range []int{5, 3, 3, 9, 1, 3, 3} {
		b.WriteString(`{"timestamp":` + strconv.Itoa(ts) + `,"input_length":` + strconv.Itoa(i+1) + `,"output_length":1}` + "\n")
	}
	trace := readString(t, b.String(), Options{})
	var order []int32
	for _, r := range trace.Rows {
		order = append(order, r.InputTokens)
	}
	require.Equal(t, []int32{5, 2, 3, 6, 7, 1, 4}, order)
	require.Equal(t, 5, trace.Notes.Unsorted, "3,3 stand after 5; 1,3,3 after 9")
	require.Equal(t, 3, trace.Notes.SharedTimestamps)
	require.Equal(t, 4, trace.Notes.MaxPerTimestamp)
	require.Zero(t, trace.Notes.DuplicateRows)
}

func TestDuplicatesAreKept(t *testing.T) {
	const a = `{"timestamp":1,"input_length":5,"output_length":1,"hash_ids":[1]}` + "\n"
	const b = `{"timestamp":1,"input_length":5,"output_length":1,"hash_ids":[2]}` + "\n"
	trace := readString(t, a+b+a+a, Options{})
	require.Len(t, trace.Rows, 4)
	require.Equal(t, 2, trace.Notes.DuplicateRows)
	require.Equal(t, 3, trace.Notes.SharedTimestamps)
}

func TestVeryLongLines(t *testing.T) {
	long := strings.Repeat("word ", 1<<20) // 5 MiB
	line := `{"timestamp":1,"output_length":6,"messages":[{"role":"user","content":"` + long + `"}]}` + "\n"
	trace := readString(t, line+line, Options{})
	require.Len(t, trace.Rows, 2)
	require.Len(t, trace.Rows[1].Extra.Messages, len(long)+len(`[{"role":"user","content":""}]`))

	deep := `{"timestamp":1,"x":` + strings.Repeat("[", 4<<20) + "\n"
	_, err := Read("f", strings.NewReader(deep), Options{Format: Mooncake})
	require.ErrorContains(t, err, "nested deeper than 10000")
}

func TestLastWindowedLimit(t *testing.T) {
	trace := readFixture(t, "mooncake.jsonl", Options{Window: &Window{From: 3053 * ms, To: 6048 * ms}, Limit: 2})
	require.Equal(t, []time.Duration{0, 0}, dues(trace))
	require.Equal(t, []Label{
		{Kind: "window", Detail: "3.053s to 6.048s: 3 of 4 rows"},
		{Kind: "limit", Detail: "truncated to the first 2 of 3 rows"},
	}, trace.Labels)
}

func TestOddities(t *testing.T) {
	n := Notes{Gzip: true, Unsorted: 2, BadRows: 1, BadRowExamples: []string{"f:1: x"}, IgnoredKeys: map[string]int{"b": 1, "a": 3}, FractionDigits: 7}
	require.Equal(t, []Oddity{
		{Kind: "gzip", Detail: "the file is gzipped"},
		{Kind: "fraction_digits", Detail: "timestamps have up to 7 fractional digits"},
		{Kind: "unsorted", Count: 2, Detail: "rows stood after a row of later time and were sorted (stably)"},
		{Kind: "bad_rows", Count: 1, Detail: "lines could not be read and were skipped, such as: f:1: x"},
		{Kind: "ignored_key", Count: 3, Detail: `rows have a key "a", which is not used`},
		{Kind: "ignored_key", Count: 1, Detail: `rows have a key "b", which is not used`},
	}, n.Oddities())
	require.Empty(t, Notes{Lines: 5, MaxPerTimestamp: 1, FractionDigits: 3}.Oddities())
}

// A time unit that nobody knows, or two of them, would give another rate: up to a million times.
func TestATimeUnitThatIsNoneIsRefused(t *testing.T) {
	line := func(at int, extra string) string {
		return fmt.Sprintf(`{"timestamp":%d,"input_length":5,"output_length":5%s}`, at, extra) + "\n"
	}
	ms, s := `,"time_unit":"ms"`, `,"time_unit":"s"`
	for _, unit := range []string{`"seconds"`, `"sec"`, `"S"`, `"min"`, `""`, `5`, `["s"]`, `"wall_clock "`} {
		text := line(0, "") + line(1, `,"time_unit":`+unit) + line(2, "")
		for _, o := range []Options{{}, {SkipBadRows: true}, {Format: Mooncake}} {
			_, err := Read("x.jsonl", strings.NewReader(text), o)
			require.Error(t, err, unit)
			require.Equal(t, "x.jsonl:2: time_unit: got "+quoted(strings.Trim(unit, `"`))+
				", expected one of ns, us, ms, s, wall_clock, or state the unit yourself (unit)", err.Error(), unit)
		}
		got, err := Read("x.jsonl", strings.NewReader(text), Options{Unit: Seconds})
		require.NoError(t, err, "a stated unit is the user's word for it")
		require.Equal(t, Seconds, got.Unit)
	}
	for _, c := range []struct{ text, want string }{
		{line(0, ms) + line(1, s), `x.jsonl:2: time_unit: got "s", expected "ms" as for the whole file, or state the unit yourself (unit)`},
		{line(0, s) + line(1, "") + line(2, ms), `x.jsonl:3: time_unit: got "ms", expected "s" as for the whole file, or state the unit yourself (unit)`},
		{line(0, ms) + line(1, `,"time_unit":"sec"`), `x.jsonl:2: time_unit: got "sec", expected "ms" as for the whole file, or state the unit yourself (unit)`},
		{ // beyond the lines by which the file is told
			line(0, ms) + strings.Repeat(line(1, ""), sampleLines) + line(2, s),
			fmt.Sprintf(`x.jsonl:%d: time_unit: got "s", expected "ms" as for the whole file, or state the unit yourself (unit)`, sampleLines+2),
		},
	} {
		_, err := Read("x.jsonl", strings.NewReader(c.text), Options{})
		require.EqualError(t, err, c.want)
		got, err := Read("x.jsonl", strings.NewReader(c.text), Options{SkipBadRows: true})
		require.NoError(t, err)
		require.Equal(t, 1, got.Notes.BadRows)
		require.Equal(t, c.want, got.Notes.BadRowExamples[0])
	}
	got, err := Read("x.jsonl", strings.NewReader(line(0, `,"time_unit":null`)+line(1, s)+line(2, s)), Options{})
	require.NoError(t, err)
	require.Equal(t, Seconds, got.Unit)
	require.Equal(t, 2*time.Second, got.Rows[2].Due)
}

func TestABlockSizeThatIsNoneIsRefused(t *testing.T) {
	line := func(at int, extra string) string {
		return fmt.Sprintf(`{"timestamp":%d,"input_length":20,"output_length":5,"hash_ids":[%d,1]%s}`, at, at, extra) + "\n"
	}
	for _, size := range []string{`"x"`, `0`, `-16`, `1.5`, `[]`, `true`} {
		for _, o := range []Options{{}, {SkipBadRows: true}} {
			_, err := Read("x.jsonl", strings.NewReader(line(0, `,"block_size":`+size)+line(1, "")), o)
			require.EqualError(t, err, "x.jsonl:1: block_size: got "+quoted(strings.Trim(size, `"`))+", expected a whole number from 1 up, or state the block size yourself")
		}
	}
	_, err := Read("x.jsonl", strings.NewReader(line(0, `,"block_size":16`)+line(1, `,"block_size":12`)), Options{})
	require.EqualError(t, err, `x.jsonl:2: block_size: got "12", expected "16" as for the whole file, or state the block size yourself`)
	got, err := Read("x.jsonl", strings.NewReader(line(0, `,"block_size":16`)+line(1, `,"block_size":16.0`)), Options{})
	require.NoError(t, err)
	require.Equal(t, 16, got.BlockSize)
	got, err = Read("x.jsonl", strings.NewReader(line(0, `,"block_size":99`)), Options{BlockSize: 16})
	require.NoError(t, err)
	require.Equal(t, 16, got.BlockSize)
}
