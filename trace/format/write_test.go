package format

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func write(t require.TestingT, trace *Trace) string {
	var b bytes.Buffer
	require.NoError(t, Write(&b, trace))
	return b.String()
}

func TestWrite(t *testing.T) {
	trace := sample()
	trace.Rows[1].Due = 10*ms + 1500*time.Nanosecond
	trace.Rows[2].Class = "a\"b"
	trace.Rows[3] = Row{Due: 40 * ms, InputTokens: Unknown, OutputTokens: Unknown, Extra: &Extra{
		Turn: 2, Elapsed: time.Second, Text: "Hi\n", Messages: json.RawMessage("[ {\n} ]"), Payload: json.RawMessage(`{"a": 1}`),
	}}
	require.Equal(t, `{"timestamp":0,"input_length":5,"output_length":1,"hash_ids":[1,2],"time_unit":"ms","block_size":4}
{"timestamp":10.0015,"input_length":5,"output_length":2,"hash_ids":[1,3],"session_id":"a","delay":8}
{"timestamp":30,"input_length":5,"output_length":3,"class":"a\"b"}
{"timestamp":40,"turn":2,"elapsed":1000,"text_input":"Hi\n","messages":[{}],"payload":{"a":1}}
`, write(t, trace))

	trace.BlockSize = 0
	require.EqualError(t, Write(&bytes.Buffer{}, trace), "a trace with hash ids needs a block size to be written")
	require.EqualError(t, Write(&bytes.Buffer{}, &Trace{Rows: []Row{{Due: -1}}}), "row 0: due at -1ns: a row cannot be due before time zero")
	require.ErrorContains(t, Write(brokenWriter{}, sample()), "disk full")
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// What a foreign form becomes when it is converted reads back as the same rows.
func TestConvertRoundTrip(t *testing.T) {
	for _, name := range []string{
		"mooncake.jsonl", "timed_trace_seconds.jsonl", "aiperf.jsonl", "bailian.jsonl", "azure.csv", "burstgpt_v1.csv", "burstgpt_v3.csv", "generic.csv",
	} {
		in := readFixture(t, name, Options{})
		out := readString(t, write(t, in), Options{})
		require.Equal(t, Native, out.Format, name)
		require.Equal(t, "the file's time_unit", out.UnitReason)
		require.Equal(t, in.BlockSize, out.BlockSize, name)
		requireSameRows(t, in.Rows, out.Rows)
	}
}

func requireSameRows(t require.TestingT, want, got []Row) {
	require.Len(t, got, len(want))
	for i := range want {
		w, g := want[i], got[i]
		if w.Extra != nil && g.Extra != nil {
			require.Equal(t, compact(t, w.Extra.Messages), compact(t, g.Extra.Messages))
			require.Equal(t, compact(t, w.Extra.Payload), compact(t, g.Extra.Payload))
			we, ge := *w.Extra, *g.Extra
			we.Messages, we.Payload, ge.Messages, ge.Payload = nil, nil, nil, nil
			w.Extra, g.Extra = &we, &ge
		}
		require.Equal(t, w, g, "row %d", i)
	}
}

func compact(t require.TestingT, raw json.RawMessage) string {
	if raw == nil {
		return ""
	}
	var b bytes.Buffer
	require.NoError(t, json.Compact(&b, raw))
	return b.String()
}

func TestWriteReadProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := &Trace{BlockSize: rapid.IntRange(1, 600).Draw(t, "block")}
		due := time.Duration(0)
		for n := rapid.IntRange(1, 20).Draw(t, "rows"); n > 0; n-- {
			r := Row{
				Due: due, InputTokens: rapid.Int32Range(1, 5000).Draw(t, "input"), OutputTokens: rapid.Int32Range(0, 1<<31-1).Draw(t, "output"),
				Class: rapid.String().Draw(t, "class"),
			}
			if rapid.Bool().Draw(t, "ids") && r.InputTokens > 0 {
				for range blocks(r.InputTokens, in.BlockSize) {
					r.HashIDs = append(r.HashIDs, rapid.Uint64().Draw(t, "id"))
				}
			}
			if e := (Extra{
				Session: rapid.String().Draw(t, "session"), Turn: rapid.IntRange(0, 9).Draw(t, "turn"),
				Delay: time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "delay")), Text: rapid.String().Draw(t, "text"),
			}); !e.empty() {
				r.Extra = &e
			}
			in.Rows = append(in.Rows, r)
			due += time.Duration(rapid.Int64Range(0, 1e13).Draw(t, "gap"))
		}
		if !in.HasHashIDs() {
			in.BlockSize = 0
		}
		out, err := Read("f", strings.NewReader(write(t, in)), Options{ZeroOutput: KeepZeroOutput})
		require.NoError(t, err)
		require.Equal(t, in.BlockSize, out.BlockSize)
		requireSameRows(t, in.Rows, out.Rows)
	})
}

func TestWriteCSV(t *testing.T) {
	trace := LengthsOnly(sample())
	trace.Rows[1].Class = "long, odd"
	var b bytes.Buffer
	require.NoError(t, WriteCSV(&b, trace))
	require.Equal(t, "timestamp_ms,input_length,output_length,class\n0,5,1,\n10,5,2,\"long, odd\"\n30,5,3,\n40,5,4,\n", b.String())
	out := readString(t, b.String(), Options{})
	require.Equal(t, CSV, out.Format)
	require.Equal(t, Milliseconds, out.Unit)
	requireSameRows(t, trace.Rows, out.Rows)

	require.ErrorContains(t, WriteCSV(&b, sample()), "row 0 has hash ids")
	require.ErrorContains(t, WriteCSV(&b, &Trace{Rows: []Row{{InputTokens: Unknown}}}), "row 0 has an unknown length")
	require.ErrorContains(t, WriteCSV(&b, &Trace{Rows: []Row{{Class: "a\nb"}}}), "line break")
	for _, unfit := range []*Trace{sample(), {Rows: []Row{{InputTokens: Unknown}}}, {Rows: []Row{{Class: "a\nb"}}}} {
		require.ErrorIs(t, WriteCSV(&b, unfit), ErrNotCSV)
	}
	require.NotErrorIs(t, WriteCSV(brokenWriter{}, trace), ErrNotCSV)
	require.ErrorContains(t, WriteCSV(brokenWriter{}, trace), "disk full")
}
