package results

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 123456789, time.UTC)

func fullRequest() Request {
	return Request{
		Row: 7, Attempt: 2, Scenario: "steady", Phase: "steady", Step: "5", Class: "long", Model: "m", API: "chat",
		Turn: 3, Round: 2,
		Due: noon, Start: noon.Add(250 * time.Microsecond), Outcome: OK, Status: 200,
		TTFT: Num(81.25), TTFTText: Num(90), TPOT: Num(10.001), E2E: Num(1300.5), ScheduleDelay: Num(0.25), OutputTPS: Num(99.9),
		ITLP50: Num(10), ITLP99: Num(31.7), ITLMax: Num(44), ITLCount: 119, Chunks: 120,
		PromptAsked: IntOf(500), Prompt: IntOf(502), CompletionAsked: IntOf(120), Completion: IntOf(120),
		Cached: IntOf(0), Reasoning: IntOf(3), TokenSource: "server", Goodput: FlagYes, Cost: Num(0.0125), RequestID: "chatcmpl-1",
	}
}

func TestAppendRequestWritesEveryField(t *testing.T) {
	r := fullRequest()
	require.Equal(t, `{"row":7,"attempt":2,"scenario":"steady","phase":"steady","step":"5","class":"long","model":"m","api":"chat","turn":3,"round":2,`+
		`"due":"2026-01-31T12:00:00.123456789Z","start":"2026-01-31T12:00:00.123706789Z","outcome":"ok","status":200,`+
		`"ttft":81.25,"ttft_text":90,"tpot":10.001,"e2e":1300.5,"schedule_delay":0.25,"output_tps":99.9,`+
		`"itl_p50":10,"itl_p99":31.7,"itl_max":44,"itl_n":119,"chunks":120,"prompt_asked":500,"prompt":502,`+
		`"completion_asked":120,"completion":120,"cached":0,"reasoning":3,"token_source":"server","goodput":true,`+
		`"cost":0.0125,"request_id":"chatcmpl-1"}`+"\n", string(AppendRequest(nil, &r)))
}

func TestAbsentIsNotWritten(t *testing.T) {
	dropped := Request{Row: 0, Outcome: Dropped, Due: noon}
	require.Equal(t, `{"row":0,"due":"2026-01-31T12:00:00.123456789Z","outcome":"dropped"}`+"\n",
		string(AppendRequest(nil, &dropped)))

	noRow := Request{Row: -1, Outcome: Failed, ErrorType: "http_5xx", TTFT: Number{Value: 3}, E2E: Num(math.NaN()), Elapsed: Num(math.Inf(1))}
	require.Equal(t, `{"outcome":"failed","error_type":"http_5xx"}`+"\n", string(AppendRequest(nil, &noRow)))
}

func TestAppendDecimal(t *testing.T) {
	for _, c := range []struct {
		in   float64
		want string
	}{
		{0, "0"},
		{1, "1"},
		{1.5, "1.5"},
		{1.25, "1.25"},
		{1.125, "1.125"},
		{12.05, "12.05"},
		{12.005, "12.005"},
		{999.9996, "1000"},
		{-2.5, "-2.5"},
		{0.00025, "0.00025"},
		{0.5, "0.5"},
		{123456789.125, "123456789.125"},
		{1e15, "1e+15"},
	} {
		require.Equal(t, c.want, string(appendDecimal(nil, c.in)), "%v", c.in)
	}
}

func genNumber(scale float64) *rapid.Generator[Number] {
	return rapid.Custom(func(t *rapid.T) Number {
		if rapid.Bool().Draw(t, "absent") {
			return Number{}
		}
		// Whole microseconds: the file's resolution.
		return Num(math.Round(rapid.Float64Range(0, scale).Draw(t, "ms")*1000) / 1000)
	})
}

func genInt() *rapid.Generator[Int] {
	return rapid.Custom(func(t *rapid.T) Int {
		if rapid.Bool().Draw(t, "absent") {
			return Int{}
		}
		return IntOf(rapid.Int64Range(0, maxCount).Draw(t, "n"))
	})
}

func genTime() *rapid.Generator[time.Time] {
	return rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "absent") {
			return time.Time{}
		}
		return time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC()
	})
}

func genRequest() *rapid.Generator[Request] {
	return rapid.Custom(func(t *rapid.T) Request {
		text := rapid.String()
		return Request{
			Row: rapid.Int64Range(-1, 1<<50).Draw(t, "row"), Attempt: rapid.SampledFrom([]int{0, 2, 3}).Draw(t, "attempt"),
			Scenario: text.Draw(t, "scenario"), Phase: text.Draw(t, "phase"), Step: text.Draw(t, "step"),
			Class: text.Draw(t, "class"), Model: text.Draw(t, "model"), API: text.Draw(t, "api"),
			Turn: rapid.Int64Range(0, 1000).Draw(t, "turn"), Round: rapid.Int64Range(0, 1000).Draw(t, "round"),
			Due: genTime().Draw(t, "due"), Start: genTime().Draw(t, "start"),
			Outcome:   rapid.SampledFrom([]Outcome{OK, Failed, Cancelled, Dropped, InFlight}).Draw(t, "outcome"),
			ErrorType: text.Draw(t, "error"), CancelPhase: text.Draw(t, "cancel"), Status: rapid.IntRange(0, 599).Draw(t, "status"),
			TTFT: genNumber(1e6).Draw(t, "ttft"), TTFTText: genNumber(1e6).Draw(t, "ttftText"), TPOT: genNumber(10).Draw(t, "tpot"),
			E2E: genNumber(1e7).Draw(t, "e2e"), Elapsed: genNumber(1e7).Draw(t, "elapsed"),
			ScheduleDelay: genNumber(2).Draw(t, "delay"), OutputTPS: genNumber(1e4).Draw(t, "tps"),
			ITLP50: genNumber(100).Draw(t, "p50"), ITLP99: genNumber(100).Draw(t, "p99"), ITLMax: genNumber(100).Draw(t, "max"),
			ITLCount: rapid.Int64Range(0, 1e6).Draw(t, "itln"), Chunks: rapid.Int64Range(0, 1e6).Draw(t, "chunks"),
			PromptAsked: genInt().Draw(t, "pa"), Prompt: genInt().Draw(t, "p"), CompletionAsked: genInt().Draw(t, "ca"),
			Completion: genInt().Draw(t, "c"), Cached: genInt().Draw(t, "cached"), Reasoning: genInt().Draw(t, "r"),
			TokenSource: text.Draw(t, "source"), Goodput: rapid.SampledFrom([]Flag{FlagAbsent, FlagNo, FlagYes}).Draw(t, "goodput"),
			Cost: genNumber(10).Draw(t, "cost"), RequestID: text.Draw(t, "id"),
		}
	})
}

func TestRequestSurvivesTheRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := genRequest().Draw(t, "request")
		line := AppendRequest(nil, &want)
		if !json.Valid(line) || bytes.IndexByte(line, '\n') != len(line)-1 {
			t.Fatalf("not one line of JSON: %q", line)
		}
		var (
			parser requestParser
			got    Request
		)
		if err := parser.parse(bytes.TrimSuffix(line, []byte{'\n'}), &got); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		require.Equal(t, want, got)

		// The standard library reads the same texts and numbers.
		var plain map[string]any
		require.NoError(t, json.Unmarshal(line, &plain))
		if want.TTFT.Known {
			require.InDelta(t, want.TTFT.Value, plain["ttft"], 0)
		}
		if want.Class != "" {
			require.Equal(t, want.Class, plain["class"])
		}
	})
}

func TestParseAcceptsWhatOthersWrite(t *testing.T) {
	var (
		parser requestParser
		got    Request
	)
	line := ` { "outcome" : "ok" , "later_key":{"a":["}",1,{"b":null}]}, "due":"2026-01-31T13:00:00.5+01:00", "ttft":1.5e2, "row":3, "schedule_delay":-0.5 } `
	require.NoError(t, parser.parse([]byte(line), &got))
	require.Equal(t, Request{
		Row: 3, Outcome: OK, Due: time.Date(2026, 1, 31, 12, 0, 0, 5e8, time.UTC), TTFT: Num(150), ScheduleDelay: Num(-0.5),
	}, got)
}

func TestParseNamesWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{``, `column 1: the line ends, expected '{'`},
		{`{}`, `outcome is missing`},
		{`{"outcome":"gone"}`, `outcome: unknown outcome "gone" (expected ok, failed, cancelled, dropped or in_flight)`},
		{`{"outcome":"ok","ttft":"fast"}`, `ttft: found "\"fast\"", expected a number`},
		{`{"outcome":"ok","ttft":NaN}`, `ttft: found "NaN", expected a number`},
		{`{"outcome":"ok","ttft":}`, `ttft: found "", expected a number`},
		{`{"outcome":"ok","row":1.5}`, `row: found "1.5", expected an integer`},
		{`{"outcome":"ok","goodput":1}`, `goodput: found "1", expected true or false`},
		{`{"outcome":"ok","due":"2026-02-31T12:00:00.000000000Z"}`, `due: found "2026-02-31T12:00:00.000000000Z", expected a time such as 2026-01-31T12:00:00.000000000Z`},
		{`{"outcome":"ok"`, `column 16: the line ends, expected ',' or '}'`},
		{`{"outcome":"ok"}{`, `column 17: found '{', expected the end of the line`},
		{`{"outcome":"o`, `outcome: column 14: the line ends, expected the end of a text`},
		{`{"outcome" "ok"}`, `column 12: found '"', expected ':'`},
		{`{"outcome":"ok","x":nul}`, `x: found "nul", expected a value`},
		{`{"outcome":"ok","x":{"a":1`, `x: column 27: the line ends, expected the end of a value`},
	} {
		var r Request
		err := new(requestParser).parse([]byte(c.line), &r)
		require.EqualError(t, err, c.want, "%s", c.line)
	}
}

func FuzzParse(f *testing.F) {
	r := fullRequest()
	f.Add(AppendRequest(nil, &r))
	f.Add([]byte(`{"outcome":"failed","error_type":"h\u0074tp\n","z":[[{"a":"\\"}]],"due":"2026-02-28T12:00:00Z"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		var first, second Request
		if new(requestParser).parse(line, &first) != nil {
			return
		}
		// Whatever was accepted can be written, is JSON, and reads the same again.
		written := AppendRequest(nil, &first)
		if !json.Valid(written) {
			t.Fatalf("wrote %q", written)
		}
		if err := new(requestParser).parse(bytes.TrimSuffix(written, []byte{'\n'}), &second); err != nil {
			t.Fatalf("%v in %s", err, written)
		}
		if first.Outcome != second.Outcome || first.TTFT.Known != second.TTFT.Known || !first.Due.Equal(second.Due) {
			t.Fatalf("%+v became %+v", first, second)
		}
	})
}

func TestAppendRequestDoesNotAllocate(t *testing.T) {
	r := fullRequest()
	b := make([]byte, 0, 4096)
	require.Zero(t, testing.AllocsPerRun(100, func() { b = AppendRequest(b[:0], &r) }))
}

func BenchmarkAppendRequest(b *testing.B) {
	r := fullRequest()
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendRequest(buf[:0], &r)
	}
	b.SetBytes(int64(len(buf)))
}

func BenchmarkParseRequest(b *testing.B) {
	r := fullRequest()
	line := bytes.TrimSuffix(AppendRequest(nil, &r), []byte{'\n'})
	var (
		parser requestParser
		got    Request
	)
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if err := parser.parse(line, &got); err != nil {
			b.Fatal(err)
		}
	}
}

// keysOf is the set of keys of a JSON object.
func keysOf(t *testing.T, object []byte) []string {
	t.Helper()
	var plain map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(object, &plain))
	return slices.Sorted(maps.Keys(plain))
}

func TestSchemaHasTheKeysThatAreWritten(t *testing.T) {
	content, err := os.ReadFile("../../docs/results.schema.json")
	require.NoError(t, err)
	var schema struct {
		Defs map[string]struct {
			Properties map[string]json.RawMessage `json:"properties"`
		} `json:"$defs"`
	}
	require.NoError(t, json.Unmarshal(content, &schema))
	defined := func(name string) []string { return slices.Sorted(maps.Keys(schema.Defs[name].Properties)) }

	request := fullRequest()
	request.ErrorType, request.CancelPhase, request.Elapsed = "http_429", "decode", Num(1)
	require.Equal(t, defined("request"), keysOf(t, AppendRequest(nil, &request)))

	one, value := int64(1), 0.5
	written := func(v any) []byte {
		line, err := json.Marshal(v)
		require.NoError(t, err)
		return line
	}
	require.Equal(t, defined("sample"), keysOf(t, written(Sample{
		Time: noon, Phase: "steady", Step: "5", Offered: &one, Started: &one, Dropped: &one, Completed: &one, Failed: &one,
		Cancelled: &one, InFlight: &one, PromptTokens: &one, CompletionTokens: &one,
		Server: map[string]float64{"a": 1}, Client: map[string]float64{"a": 1}, Clock: []ClockReading{{}},
	})))
	require.Equal(t, defined("clock_reading"), keysOf(t, written(ClockReading{})))
	merged := Merged{Covered: &value, StartSkewMS: &value}
	require.Equal(t, defined("merged"), keysOf(t, written(merged)))
	require.Equal(t, defined("host"), keysOf(t, written(Host{Name: "h", OS: "o", Arch: "a", CPUs: 1, MemoryMB: 1})))
	own := InstanceHeadroom{Headroom: map[string]float64{"a": 1}, Undecided: map[string]string{"a": "why"}}
	require.Equal(t, defined("instance_headroom"), keysOf(t, written(own)))
	require.Equal(t, defined("instance"), keysOf(t, written(Instance{
		Segment: "0:1", Host: Host{Name: "h"}, Ended: noon, ClockOffset: &ClockOffset{}, ClockUnknown: "u", CorrectedMS: 1,
		InstanceHeadroom: own, Steps: map[string]InstanceHeadroom{"10": own},
	})))
	require.Equal(t, defined("event"), keysOf(t, written(Event{Time: noon, Kind: "k", Message: "m", Rule: "r", Saw: &value, Count: 2})))
	require.Equal(t, defined("counts"), keysOf(t, written(Counts{Retries: 1})))
	spans := []Span{{Name: "steady", Start: noon, End: noon}}
	require.Equal(t, defined("run"), keysOf(t, written(Info{
		Schema: Schema, Started: noon, Ended: noon, Aborted: &Aborted{}, Contract: []byte("{}"), Decision: []byte("{}"),
		Options: []byte("{}"), Versions: map[string]string{"k6": "v1"}, Seeds: map[string]uint64{"a": 1},
		Rates:   map[string]float64{"generated-1": 12.5},
		Digests: map[string]string{"trace": "sha256:0"}, Segment: "0:1", Host: Host{Name: "h"}, Phases: spans, Steps: spans,
		Labels: []string{"l"}, IdealPrefixHitRatio: &value, Workload: "w", Merged: &merged, Files: map[string]FileRecord{RequestsFile: {}},
	})))
	require.Equal(t, defined("span"), keysOf(t, written(spans[0])))
	require.Equal(t, defined("histograms"), keysOf(t, written(histogramFile{})))
}
