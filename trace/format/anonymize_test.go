package format

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// words is a tokenizer for tests: one token a word.
type words struct{}

func (words) Encode(text string) []int {
	var ids []int
	for _, w := range strings.Fields(text) {
		h := fnv.New32a()
		_, _ = h.Write([]byte(w))
		ids = append(ids, int(h.Sum32()))
	}
	return ids
}

func anonymize(t *testing.T, log string, o AnonymizeOptions) (*Trace, AnonymizeReport) {
	t.Helper()
	if o.Tokenizer == nil {
		o.Tokenizer = words{}
	}
	trace, report, err := Anonymize("log", strings.NewReader(log), o)
	require.NoError(t, err)
	return trace, report
}

const chatLog = `{"timestamp":"2025-03-04T05:06:07.5Z","session_id":"alice-secret-1","request":{"model":"m","messages":[{"role":"system","content":"a b c"},{"role":"user","content":"d e"}]},"response":{"usage":{"prompt_tokens":9,"completion_tokens":7}}}
{"timestamp":"2025-03-04T05:06:06.5Z","session_id":"bob-secret-22","class":"gold","request":{"messages":[{"role":"system","content":"a b c"},{"role":"user","content":"x y z"}]},"response":{"choices":[{"message":{"role":"assistant","content":"one two three"}}]}}
{"timestamp":"2025-03-04T05:06:08.5Z","session_id":"alice-secret-1","request":{"messages":[{"role":"system","content":"a b c"},{"role":"user","content":"d e"},{"role":"assistant","content":"f"}]},"response":{"usage":{"prompt_tokens":11,"completion_tokens":1}}}
`

func TestAnonymizeChatLog(t *testing.T) {
	trace, report := anonymize(t, chatLog, AnonymizeOptions{BlockSize: 4})
	// "system a b c" is one block that all three share; Alice's second turn starts with her first.
	require.Equal(t, []Row{
		{Due: 0, InputTokens: 8, OutputTokens: 3, Class: "class-1", HashIDs: []uint64{0, 1}, Extra: &Extra{Session: "1"}},
		{Due: time.Second, InputTokens: 9, OutputTokens: 7, HashIDs: []uint64{0, 2, 3}, Extra: &Extra{Session: "2"}},
		{Due: 2 * time.Second, InputTokens: 11, OutputTokens: 1, HashIDs: []uint64{0, 4, 5}, Extra: &Extra{Session: "2"}},
	}, trace.Rows)
	require.Equal(t, AnonymizeReport{InputFromUsage: 2, InputCounted: 1, OutputFromUsage: 2, OutputCounted: 1, RowsWithBlocks: 3, ClassesReplaced: 1}, report)
	require.Equal(t, 4, trace.BlockSize)
	require.Equal(t, Native, trace.Format)
	require.True(t, trace.Origin.IsZero(), "the clock time is private")
	require.Empty(t, trace.Digest)
	require.Equal(t, 1, trace.Notes.Unsorted)

	out := readString(t, write(t, trace), Options{})
	requireSameRows(t, trace.Rows, out.Rows)
}

func TestPrefixSimilarityIsKept(t *testing.T) {
	// 12 words in common, then different ones; blocks of 4 hold "user"+3 words, then 4 words each.
	common := "q0 q1 q2 q3 q4 q5 q6 q7 q8 q9 q10 q11"
	log := ""
	for i, tail := range []string{"r s", "t u", "r s", "r s v w x y"} {
		log += fmt.Sprintf(`{"ts":%d.5,"messages":[{"role":"user","content":"%s %s"}],"usage":{"completion_tokens":1}}`+"\n", i, common, tail)
	}
	trace, _ := anonymize(t, log, AnonymizeOptions{BlockSize: 4})
	require.Equal(t, [][]uint64{{0, 1, 2, 3}, {0, 1, 2, 4}, {0, 1, 2, 3}, {0, 1, 2, 5, 6}},
		[][]uint64{trace.Rows[0].HashIDs, trace.Rows[1].HashIDs, trace.Rows[2].HashIDs, trace.Rows[3].HashIDs})
	// The same block after another prefix is another block.
	log = `{"ts":0.5,"prompt":"a b c d e f g h","usage":{"completion_tokens":1}}
{"ts":1.5,"prompt":"z b c d e f g h","usage":{"completion_tokens":1}}
`
	trace, _ = anonymize(t, log, AnonymizeOptions{BlockSize: 4})
	require.Equal(t, []uint64{2, 3}, trace.Rows[1].HashIDs)
}

// Prompts that differ beyond what the server counted have different ids all the same; what they share, they still share.
func TestIDsCoverTheWholePrompt(t *testing.T) {
	log := ""
	for i, tail := range []string{"r s", "t u", "r s", "v"} {
		log += fmt.Sprintf(`{"ts":%d.5,"prompt":"q0 q1 q2 q3 q4 q5 q6 q7 q8 %s","usage":{"prompt_tokens":8,"completion_tokens":1}}`+"\n", i, tail)
	}
	trace, _ := anonymize(t, log, AnonymizeOptions{BlockSize: 4})
	var ids [][]uint64
	for _, r := range trace.Rows {
		ids = append(ids, r.HashIDs)
	}
	require.Equal(t, [][]uint64{{0, 1}, {0, 2}, {0, 1}, {0, 3}}, ids)
}

// Classes and sessions are whatever a log has under their names: a name of someone is written nowhere.
func TestClassesAndUsersAreNotCopied(t *testing.T) {
	log := ""
	for i, class := range []string{"alice.wonder", "long", "bob", "alice.wonder", "chat", "class-1"} {
		log += fmt.Sprintf(`{"ts":%d.5,"class":%q,"user":"carol","metadata":{"user_id":"carol"},"prompt_cache_key":"carol","prompt":"a","usage":{"completion_tokens":1}}`+"\n", i, class)
	}
	classes := func(trace *Trace) (list []string) {
		for _, r := range trace.Rows {
			require.Nil(t, r.Extra, "a user is no session, unless the field map says so")
			list = append(list, r.Class)
		}
		return list
	}
	trace, report := anonymize(t, log, AnonymizeOptions{})
	require.Equal(t, []string{"class-1", "long", "class-2", "class-1", "class-3", "class-4"}, classes(trace))
	require.Equal(t, 4, report.ClassesReplaced)
	trace, _ = anonymize(t, log, AnonymizeOptions{KeepClasses: []string{"chat", "class-1"}})
	require.Equal(t, []string{"class-2", "long", "class-3", "class-2", "chat", "class-1"}, classes(trace))
	key := bytes.Repeat([]byte{1}, 16)
	trace, _ = anonymize(t, log, AnonymizeOptions{KeepHashes: true, Key: key})
	other, _ := anonymize(t, strings.Join(strings.SplitAfter(log, "\n")[2:], ""), AnonymizeOptions{KeepHashes: true, Key: key})
	require.Equal(t, classes(trace)[2:], classes(other), "traces of one key can be joined")
	require.Regexp(t, "^class-[0-9a-f]{16}$", trace.Rows[0].Class)
	linked, _ := anonymize(t, log, AnonymizeOptions{Fields: map[string]string{"session_id": "user"}})
	require.Equal(t, "1", linked.Rows[5].Extra.Session)
}

func TestWhatIsLeftOutIsReported(t *testing.T) {
	const log = `{"ts":1.5,"prompt":"a","usage":{"completion_tokens":1}}
nonsense
{"ts":2.5,"prompt":"a","usage":{"completion_tokens":0}}
{"ts":3.5,"prompt":"","usage":{"prompt_tokens":0,"completion_tokens":1}}
`
	trace, report := anonymize(t, log, AnonymizeOptions{SkipBadRows: true})
	require.Equal(t, AnonymizeReport{
		InputCounted: 1, OutputFromUsage: 1, RowsWithBlocks: 1, BadRows: 1, BadRowExamples: []string{"log:2: not a JSON object"},
		ZeroInputDropped: 1, ZeroOutputDropped: 1,
	}, report)
	require.Equal(t, "3 of 4 lines left out: 1 that could not be read, 1 without output tokens, 1 without input tokens, "+
		"such as log:2: not a JSON object", trace.Notes.LeftOut())
	require.Empty(t, Notes{Lines: 4}.LeftOut())
}

func TestKeysAndHashes(t *testing.T) {
	key, other := bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 16)
	kept := func(k []byte) *Trace {
		trace, _ := anonymize(t, chatLog, AnonymizeOptions{BlockSize: 4, Key: k, KeepHashes: true})
		return trace
	}
	require.Equal(t, kept(key).Rows, kept(key).Rows)
	require.NotEqual(t, kept(key).Rows[0].HashIDs, kept(other).Rows[0].HashIDs)
	require.NotEqual(t, kept(key).Rows[0].Extra.Session, kept(other).Rows[0].Extra.Session)
	require.NotEqual(t, kept(nil).Rows[0].HashIDs, kept(nil).Rows[0].HashIDs, "a drawn key is new each time")
	require.Regexp(t, "^[0-9a-f]{16}$", kept(key).Rows[0].Extra.Session)

	// Numbered ids do not depend on the key at all.
	a, _ := anonymize(t, chatLog, AnonymizeOptions{BlockSize: 4, Key: key})
	b, _ := anonymize(t, chatLog, AnonymizeOptions{BlockSize: 4, Key: other})
	require.Equal(t, a.Rows, b.Rows)

	_, _, err := Anonymize("log", strings.NewReader(chatLog), AnonymizeOptions{Key: []byte("short")})
	require.EqualError(t, err, "the key has 5 bytes: expected at least 16")
}

func TestAnonymizeShapes(t *testing.T) {
	for _, c := range []struct {
		name, line    string
		input, output int32
		blocks        int
	}{
		{"completions at the top", `{"@timestamp":"2025-01-01T00:00:00Z","prompt":"a b c","usage":{"prompt_tokens":3,"completion_tokens":2}}`, 3, 2, 1},
		{"one prompt in a list", `{"time":1700000000,"prompt":["a b c d e"],"usage":{"completion_tokens":2}}`, 5, 2, 2},
		{"token ids", `{"time":1700000000,"prompt":[5,6,7,8,9],"usage":{"completion_tokens":2}}`, 5, 2, 2},
		{"responses API", `{"time":1700000000,"body":{"instructions":"be kind","input":[{"role":"user","content":[{"type":"input_text","text":"a b"}]}]},"response":{"body":{"usage":{"input_tokens":10,"output_tokens":4}}}}`, 10, 4, 3},
		{"responses answer", `{"time":1700000000,"body":{"input":"a b"},"response":{"output":[{"type":"message","content":[{"type":"output_text","text":"c d e"}]}]}}`, 2, 3, 1},
		{"messages API", `{"time":1700000000,"request":{"system":"s","messages":[{"role":"user","content":"a"}]},"response":{"content":[{"type":"text","text":"b c"}]}}`, 4, 2, 1},
		{"body as a string", `{"time":1700000000,"request":"{\"prompt\":\"a b\"}","response":"{\"usage\":{\"completion_tokens\":3}}"}`, 2, 3, 1},
		{"lengths only", `{"time":1700000000,"prompt_tokens":12,"completion_tokens":3}`, 12, 3, 0},
		{"template overhead", `{"time":1700000000,"prompt":"a b","usage":{"prompt_tokens":13,"completion_tokens":3}}`, 13, 3, 4},
		{"an image", `{"time":1700000000,"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:x"}}]}],"usage":{"completion_tokens":3}}`, 3, 3, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			trace, _ := anonymize(t, c.line, AnonymizeOptions{BlockSize: 4})
			require.Equal(t, c.input, trace.Rows[0].InputTokens)
			require.Equal(t, c.output, trace.Rows[0].OutputTokens)
			require.Len(t, trace.Rows[0].HashIDs, c.blocks)
		})
	}
	mapped, _ := anonymize(t, `{"m":{"when":1700000000,"who":"u","in":7,"out":8,"tier":"gold"},"user":"v"}`, AnonymizeOptions{Fields: map[string]string{
		"timestamp": "m.when", "session_id": "m.who", "input_length": "m.in", "output_length": "m.out", "class": "m.tier",
	}})
	require.Equal(t, Row{InputTokens: 7, OutputTokens: 8, Class: "class-1", Extra: &Extra{Session: "1"}}, mapped.Rows[0])
}

func TestImagesAreToldApart(t *testing.T) {
	line := func(i int, url string) string {
		return fmt.Sprintf(`{"ts":%d.5,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"%s"}}]}],"usage":{"completion_tokens":3}}`+"\n", i, url)
	}
	trace, report := anonymize(t, line(0, "u1")+line(1, "u2")+line(2, "u1"), AnonymizeOptions{BlockSize: 4})
	require.Equal(t, []uint64{0}, trace.Rows[0].HashIDs)
	require.Equal(t, []uint64{1}, trace.Rows[1].HashIDs)
	require.Equal(t, []uint64{0}, trace.Rows[2].HashIDs)
	require.Equal(t, 3, report.NonTextParts)
}

func TestAnonymizeErrorsDoNotQuoteTheLog(t *testing.T) {
	const good = `{"time":1700000000,"prompt":"a","usage":{"completion_tokens":1}}` + "\n"
	for _, c := range []struct{ line, want string }{
		{`{"time":"hunter2secret"}`, "log:2: time: missing, or not a timestamp of the file's unit"},
		{`hunter2secret`, "log:2: not a JSON object"},
		{`{"time":1700000000,"prompt":"hunter2secret"}`, "log:2: neither usage nor an answer to count is known"},
		{`{"time":1700000000,"usage":{"prompt_tokens":"hunter2secret"}}`, "log:2: input_length: not a number"},
		{`{"time":1700000000,"max_tokens":50,"usage":{"completion_tokens":1}}`, "log:2: neither a prompt nor its length is known (a prompt needs a tokenizer)"},
		{`{"time":1700000000,"prompt":["hunter2secret","b"],"usage":{"completion_tokens":1}}`, "log:2: prompt: expected one prompt, not a list of several"},
	} {
		_, _, err := Anonymize("log", strings.NewReader(good+c.line+"\n"+good), AnonymizeOptions{Tokenizer: words{}})
		require.EqualError(t, err, c.want)
		trace, _ := anonymize(t, good+c.line+"\n"+good, AnonymizeOptions{SkipBadRows: true})
		require.Len(t, trace.Rows, 2)
		require.Equal(t, []string{c.want}, trace.Notes.BadRowExamples)
		require.Equal(t, "1 of 3 lines left out: 1 that could not be read, such as "+c.want, trace.Notes.LeftOut())
	}
	_, _, err := Anonymize("log", strings.NewReader(`{"time":"hunter2secret"}`), AnonymizeOptions{})
	require.EqualError(t, err, `log: cannot tell the unit of the timestamps under "time": state it`)
	_, _, err = Anonymize("log", strings.NewReader(`{"x":1}`), AnonymizeOptions{})
	require.ErrorContains(t, err, "no line has a timestamp")
	_, _, err = Anonymize("log", strings.NewReader(good), AnonymizeOptions{Fields: map[string]string{"turn": "x"}})
	require.ErrorContains(t, err, `unknown field "turn"`)
	// Without a tokenizer a prompt's length must be in the log.
	_, _, err = Anonymize("log", strings.NewReader(good), AnonymizeOptions{})
	require.ErrorContains(t, err, "neither a prompt nor its length is known")
}

// No eight bytes of any text, user, session, key or tool of the log turn up in what is written.
func TestNothingOfTheLogIsWritten(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // test data
	const letters = "abcdefghijklmnopqrstuvwxyzäß ÄÖ,.-_/@:0123456789"
	alphabet := []rune(letters)
	text := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteRune(alphabet[rng.IntN(len(alphabet))])
		}
		return b.String()
	}
	var log bytes.Buffer
	var secrets []string
	for i := range 200 {
		session, user, prompt, answer, tool := text(20), text(24), text(300), text(100), text(40)
		secrets = append(secrets, session, user, prompt, answer, tool)
		line, err := json.Marshal(map[string]any{
			"timestamp": fmt.Sprintf("2025-03-04T05:06:%02d.%06dZ", i%60, rng.IntN(1e6)), "session_id": session, "id": text(16),
			"request": map[string]any{
				"user": user, "messages": []any{map[string]any{"role": "user", "content": prompt}},
				"tools": []any{map[string]any{"name": tool}},
			},
			"response": map[string]any{
				"choices": []any{map[string]any{"message": map[string]any{"content": answer}}},
			},
		})
		require.NoError(t, err)
		log.Write(line)
		log.WriteByte('\n')
	}
	key := []byte(text(32))
	secrets = append(secrets, string(key), hex.EncodeToString(key))
	for _, keep := range []bool{false, true} {
		trace, report := anonymize(t, log.String(), AnonymizeOptions{BlockSize: 4, Key: key, KeepHashes: keep})
		require.Equal(t, 200, report.RowsWithBlocks)
		var out bytes.Buffer
		require.NoError(t, Write(&out, trace))
		summary, err := json.Marshal(Summarize(trace))
		require.NoError(t, err)
		out.Write(summary)
		written := out.String()
		require.NotContains(t, written, "2025-03-04")
		for _, secret := range secrets {
			for i := 0; i+8 <= len(secret); i++ {
				if strings.Contains(written, secret[i:i+8]) {
					t.Fatalf("%q of the log is in the output", secret[i:i+8])
				}
			}
		}
	}
}

func TestAnonymizeTrace(t *testing.T) {
	in := readFixture(t, "aiperf.jsonl", Options{})
	out, report, err := AnonymizeTrace(in, AnonymizeOptions{Tokenizer: words{}})
	require.NoError(t, err)
	require.Equal(t, Row{Due: 0, InputTokens: 600, OutputTokens: 40, HashIDs: []uint64{0, 1}, Extra: &Extra{Session: "1"}}, out.Rows[0])
	require.Equal(t, Row{Due: 250 * ms, InputTokens: 700, OutputTokens: 41, HashIDs: []uint64{0, 2}, Extra: &Extra{Session: "1", Delay: 250 * ms}}, out.Rows[1])
	require.Equal(t, Row{Due: 500500 * time.Microsecond, InputTokens: 2, OutputTokens: 4, HashIDs: []uint64{3}}, out.Rows[2])
	require.Equal(t, Row{Due: 1000 * ms, InputTokens: 2, OutputTokens: Unknown, HashIDs: []uint64{4}}, out.Rows[3])
	require.Equal(t, Row{Due: 1100 * ms, InputTokens: 1, OutputTokens: 50, HashIDs: []uint64{5}}, out.Rows[4])
	require.Equal(t, AnonymizeReport{InputCounted: 3, RowsWithBlocks: 5}, report)
	require.Equal(t, "s1", in.Rows[0].Extra.Session, "the input is not changed")
	require.Equal(t, []uint64{0, 1}, in.Rows[0].HashIDs)
	require.Empty(t, out.Digest)

	_, _, err = AnonymizeTrace(in, AnonymizeOptions{})
	require.EqualError(t, err, "row 2: its input length is not known: a tokenizer is needed")
	in.Rows[0].Class, in.Rows[2].Class = "free text", "long"
	out, _, err = AnonymizeTrace(in, AnonymizeOptions{Tokenizer: words{}})
	require.NoError(t, err)
	require.Equal(t, []string{"class-1", "", "long"}, []string{out.Rows[0].Class, out.Rows[1].Class, out.Rows[2].Class})
	require.Equal(t, "free text", in.Rows[0].Class, "the input is not changed")
}
