package stream_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/safeqps/xk6-safeqps/llm/stream"
	"github.com/safeqps/xk6-safeqps/llm/wire"
)

// script is a body whose reads return given pieces at given times: the truth that a timeline is held against.
type script struct {
	pieces []piece
	now    time.Time
	tail   error // after the last piece; nil means io.EOF
}

type piece struct {
	after time.Duration // since the previous read
	bytes string
}

func (s *script) Read(p []byte) (int, error) {
	if len(s.pieces) == 0 {
		if s.tail != nil {
			return 0, s.tail
		}

		return 0, io.EOF
	}
	next := &s.pieces[0]
	s.now = s.now.Add(next.after)
	next.after = 0
	n := copy(p, next.bytes)
	if next.bytes = next.bytes[n:]; next.bytes == "" {
		s.pieces = s.pieces[1:]
	}

	return n, nil
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func read(t *testing.T, s *script, o stream.Options) (*stream.Timeline, *wire.Message, error) {
	t.Helper()
	s.now = epoch
	o.Now = func() time.Time { return s.now }
	tl := &stream.Timeline{Sent: epoch}
	dec := wire.NewDecoder(wire.Chat)
	err := stream.Read(s, dec, tl, o)

	return tl, dec.Message(), err
}

func delta(content string) string { return event("content", content) }

func reasoning(content string) string { return event("reasoning_content", content) }

func event(field, content string) string {
	text, err := json.Marshal(content)
	if err != nil {
		panic(err) // a string always marshals
	}

	return fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":{%q:%s}}]}\n\n", field, text)
}

const (
	role   = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
	finish = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
	usage  = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":4}}\n\n"
	done   = "data: [DONE]\n\n"
)

func ms(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }

func gapsOf(tl *stream.Timeline) []time.Duration {
	var gaps []time.Duration
	for _, gap := range tl.Gaps {
		gaps = append(gaps, gap)
	}

	return gaps
}

func TestTimelineOfAWholeAnswer(t *testing.T) {
	t.Parallel()
	tl, msg, err := read(t, &script{pieces: []piece{
		{ms(50), role},                    // not a chunk
		{ms(50), ": keepalive\n\n"},       // not a chunk
		{ms(100), reasoning("hm")},        // first chunk: TTFT
		{ms(30), delta("a")},              // first text
		{ms(10), delta("b") + delta("c")}, // one read: one stamp
		{ms(20), finish}, {ms(5), usage},  // neither is a chunk
		{ms(2), done}, {ms(900), "trailing"}, // after the end
	}}, stream.Options{})
	require.NoError(t, err)

	ttft, ok := tl.TTFT()
	require.True(t, ok)
	require.Equal(t, ms(200), ttft)
	text, ok := tl.TTFTText()
	require.True(t, ok)
	require.Equal(t, ms(230), text)
	require.Equal(t, 4, tl.Chunks())
	require.Equal(t, []time.Duration{ms(30), ms(10), 0}, gapsOf(tl))
	e2e, ok := tl.E2E()
	require.True(t, ok)
	require.Equal(t, ms(267), e2e, "the last byte of the answer is that of [DONE], not of the usage, not of what follows")
	tpot, ok := tl.TPOT(*msg.Usage.CompletionTokens)
	require.True(t, ok)
	require.Equal(t, ms(40)/3, tpot, "from first chunk to last, over tokens minus one: no TTFT, no usage chunk in it")
	rate, ok := tl.OutputRate(4)
	require.True(t, ok)
	require.InDelta(t, 75.0, rate, 1e-9)
	longest, ok := tl.MaxGap()
	require.True(t, ok)
	require.Equal(t, ms(30), longest)
}

// Answers that are written side by side (`n` of 2) have a rhythm each. Taken as one they would seem twice as fast.
func TestAnswersSideBySide(t *testing.T) {
	t.Parallel()
	of := func(answer int, text string) string {
		return fmt.Sprintf("data: {\"choices\":[{\"index\":%d,\"delta\":{\"content\":%q}}]}\n\n", answer, text)
	}
	tl, msg, err := read(t, &script{pieces: []piece{
		{ms(100), of(0, "a") + of(1, "x")},
		{ms(20), of(0, "b")},
		{ms(5), of(1, "y")},
		{ms(15), of(0, "c")}, // the end of the first: 40 ms after its beginning
		{ms(30), of(1, "z")}, // the end of the second: 70 ms after its beginning
		{ms(1), finish + "data: {\"choices\":[],\"usage\":{\"completion_tokens\":6}}\n\n" + done},
	}}, stream.Options{})
	require.NoError(t, err)
	require.Equal(t, "abc", msg.Text)
	require.Equal(t, 6, tl.Chunks())
	require.Equal(t, []time.Duration{ms(20), ms(25), ms(20), ms(45)}, gapsOf(tl))
	longest, ok := tl.MaxGap()
	require.True(t, ok)
	require.Equal(t, ms(45), longest)
	tpot, ok := tl.TPOT(6)
	require.True(t, ok)
	require.Equal(t, ms(110)/4, tpot)
	rate, ok := tl.OutputRate(6)
	require.True(t, ok)
	require.InDelta(t, 4/0.110, rate, 1e-9)
	_, ok = tl.TPOT(2)
	require.False(t, ok, "one token each")

	tl, _, err = read(t, &script{pieces: []piece{{ms(100), of(1, "x")}, {ms(20), of(0, "a")}, {ms(1), done}}}, stream.Options{})
	require.NoError(t, err)
	require.Empty(t, gapsOf(tl))
	_, ok = tl.MaxGap()
	require.False(t, ok, "one chunk each has no gap")
	_, ok = tl.TPOT(8)
	require.False(t, ok)
}

func TestAbsentIsNotZero(t *testing.T) {
	t.Parallel()

	t.Run("no chunk", func(t *testing.T) {
		t.Parallel()
		tl, _, err := read(t, &script{pieces: []piece{{ms(5), role}, {ms(5), finish + done}}}, stream.Options{})
		require.NoError(t, err)
		for name, absent := range map[string]func() (time.Duration, bool){
			"TTFT": tl.TTFT, "TTFT (text)": tl.TTFTText, "last chunk": tl.LastChunk, "longest gap": tl.MaxGap,
			"TPOT": func() (time.Duration, bool) { return tl.TPOT(10) },
		} {
			_, ok := absent()
			require.False(t, ok, name)
		}
		e2e, ok := tl.E2E()
		require.True(t, ok)
		require.Equal(t, ms(10), e2e)
	})

	t.Run("reasoning alone has no text", func(t *testing.T) {
		t.Parallel()
		tl, _, err := read(t, &script{pieces: []piece{{ms(5), reasoning("x")}, {ms(5), finish + done}}}, stream.Options{})
		require.NoError(t, err)
		_, ok := tl.TTFTText()
		require.False(t, ok)
		ttft, ok := tl.TTFT()
		require.True(t, ok)
		require.Equal(t, ms(5), ttft)
	})

	t.Run("one token has no TPOT", func(t *testing.T) {
		t.Parallel()
		tl, _, err := read(t, &script{pieces: []piece{{ms(5), delta("x")}, {ms(5), finish + done}}}, stream.Options{})
		require.NoError(t, err)
		_, ok := tl.TPOT(1)
		require.False(t, ok)
		_, ok = tl.OutputRate(1)
		require.False(t, ok)
		_, ok = tl.TPOT(5)
		require.False(t, ok, "tokens that came in one chunk show no spacing")
	})

	t.Run("no byte has no E2E", func(t *testing.T) {
		t.Parallel()
		tl, _, err := read(t, &script{tail: errors.New("reset")}, stream.Options{})
		require.EqualError(t, err, "reading the answer: reset")
		_, ok := tl.E2E()
		require.False(t, ok)
	})
}

// framings are ways in which servers write the same three events.
func framings() map[string]string {
	lf := delta("wört") + ": comment\n\n" + delta(" zwei") + finish + done

	return map[string]string{
		"LF":            lf,
		"CRLF":          strings.ReplaceAll(lf, "\n", "\r\n"),
		"CR":            strings.ReplaceAll(lf, "\n", "\r") + "\r", // a lone CR is an end only once the next byte is seen
		"no space":      strings.ReplaceAll(lf, "data: ", "data:"),
		"BOM":           "\xEF\xBB\xBF" + lf,
		"event and id":  strings.ReplaceAll(lf, "data: ", "event: message\nid: 7\nretry: 3\ndata: "),
		"several lines": strings.ReplaceAll(lf, "\"choices\"", "\ndata: \"choices\""),
		"comments":      ": a\n" + strings.ReplaceAll(lf, "data: ", ": hb\n\n:\ndata: "),
		"blank lines":   "\n\n" + strings.ReplaceAll(lf, "\n\n", "\n\n\n\n"),
	}
}

func TestFramingsSplitAtEveryByte(t *testing.T) {
	t.Parallel()
	for name, bytes := range framings() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for cut := 0; cut <= len(bytes); cut++ {
				tl, msg, err := read(t, &script{pieces: []piece{{ms(1), bytes[:cut]}, {ms(1), bytes[cut:]}}}, stream.Options{})
				require.NoError(t, err, "cut at %d", cut)
				require.Equal(t, "wört zwei", msg.Text, "cut at %d", cut)
				require.Equal(t, "stop", msg.FinishReason, "cut at %d", cut)
				require.Equal(t, 2, tl.Chunks(), "cut at %d", cut)
			}
			dec := wire.NewDecoder(wire.Chat)
			tl := &stream.Timeline{Sent: epoch}
			require.NoError(t, stream.Read(iotest.OneByteReader(strings.NewReader(bytes)), dec, tl, stream.Options{}))
			require.Equal(t, "wört zwei", dec.Message().Text)
			require.Equal(t, 2, tl.Chunks())
		})
	}
}

func TestAnEventIsStampedByTheReadThatCompletesIt(t *testing.T) {
	t.Parallel()
	a, b := delta("a"), delta("b")
	for cut := 1; cut < len(b)-1; cut++ {
		tl, _, err := read(t, &script{pieces: []piece{
			{ms(10), a + b[:cut]}, {ms(7), b[cut:]}, {ms(1), finish + done},
		}}, stream.Options{})
		require.NoError(t, err)
		require.Equal(t, []time.Duration{ms(10), ms(17)}, tl.Offsets(), "cut at %d", cut)
	}
}

// TestStampsDoNotDependOnTheLineEnding: whatever ends its lines, an event has the time of the read that completed it.
func TestStampsDoNotDependOnTheLineEnding(t *testing.T) {
	t.Parallel()
	ends := func(end string) func(string) string {
		return func(lf string) string { return strings.ReplaceAll(lf, "\n", end) }
	}
	lf, cr, crlf := ends("\n"), ends("\r"), ends("\r\n")
	line := func(first, blank string) func(string) string { // the data line's end, and the blank line's
		return func(text string) string {
			return strings.ReplaceAll(strings.ReplaceAll(text, "\n\n", "\x00"), "\x00", first+blank)
		}
	}
	for name, framing := range map[string][4]func(string) string{
		"LF": {lf, lf, lf, lf}, "CR": {cr, cr, cr, cr}, "CRLF": {crlf, crlf, crlf, crlf},
		"LF, then CR": {lf, cr, cr, cr}, "LF, then CRLF": {lf, crlf, crlf, crlf}, "CR, then LF": {cr, lf, lf, lf},
		"CRLF, CR, LF": {crlf, cr, lf, cr}, "LF, CR, LF": {lf, cr, lf, lf},
		"LF with a blank line of CR": {line("\n", "\r"), line("\n", "\r"), line("\n", "\r"), line("\n", "\r")},
		"CR with a blank line of LF": {line("\r", "\r\n"), line("\r", "\r\n"), line("\r", "\r\n"), lf},
	} {
		for _, before := range []string{"", ": hi\n\n", ": hi\n"} {
			pieces := []piece{
				{ms(100), framing[0](before + delta("a"))},
				{ms(100), framing[1](delta("b"))},
				{ms(100), framing[2](delta("c"))},
				{ms(50), framing[3](finish + done)},
			}
			tl, msg, err := read(t, &script{pieces: pieces}, stream.Options{})
			require.NoError(t, err, "%s after %q", name, before)
			require.Equal(t, "abc", msg.Text, "%s after %q", name, before)
			require.Equal(t, []time.Duration{ms(100), ms(200), ms(300)}, tl.Offsets(), "%s after %q", name, before)
		}
	}

	t.Run("cut anywhere", func(t *testing.T) {
		t.Parallel()
		for _, end := range []string{"\n", "\r", "\r\n"} {
			first, second := ends(end)(": hi\n\n"+delta("a")), ends(end)(delta("b"))
			for cut := 1; cut < len(second)-len(end); cut++ {
				tl, _, err := read(t, &script{pieces: []piece{
					{ms(10), first}, {ms(5), second[:cut]}, {ms(2), second[cut:]}, {ms(1), ends(end)(finish + done)},
				}}, stream.Options{})
				require.NoError(t, err)
				require.Equal(t, []time.Duration{ms(10), ms(17)}, tl.Offsets(), "%q cut at %d", end, cut)
			}
		}
	})

	t.Run("CR LF in two reads", func(t *testing.T) {
		t.Parallel()
		// The carriage return ends the blank line by itself; the line feed that comes late belongs to it.
		for _, text := range []string{crlf(delta("a")), crlf(": hi\n\n" + delta("a"))} {
			tl, _, err := read(t, &script{pieces: []piece{
				{ms(10), text[:len(text)-1]}, {ms(90), "\n"}, {ms(1), crlf(delta("b") + finish + done)},
			}}, stream.Options{})
			require.NoError(t, err)
			require.Equal(t, []time.Duration{ms(10), ms(101)}, tl.Offsets())
		}
	})
}

// BenchmarkRead is the cost of a stream whose events come one by one, and cut in two.
func BenchmarkRead(b *testing.B) {
	event := []byte(delta("word"))
	const events = 1000
	for name, size := range map[string]int{"whole": len(event), "in halves": len(event)/2 + 1} {
		b.Run(name, func(b *testing.B) {
			body := bytes.Repeat(event, events)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				tl := &stream.Timeline{Sent: epoch}
				if err := stream.Read(&cutReader{bytes.NewReader(body), size}, wire.NewDecoder(wire.Chat), tl, stream.Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestLargeEvents(t *testing.T) {
	t.Parallel()
	for _, size := range []int{64 << 10, 65 << 10, 1<<20 + 1, 3 << 20} {
		text := strings.Repeat("x", size)
		tl, msg, err := read(t, &script{pieces: []piece{{ms(1), delta(text)}, {ms(1), finish + done}}}, stream.Options{})
		require.NoError(t, err)
		require.Len(t, msg.Text, size)
		require.Equal(t, 1, tl.Chunks())
	}

	_, _, err := read(t, &script{pieces: []piece{{ms(1), delta(strings.Repeat("x", 5000))}}},
		stream.Options{MaxEventBytes: 4500})
	require.ErrorIs(t, err, stream.ErrEventTooLong)
	require.EqualError(t, err, "a server-sent event is larger than the limit of 4500 bytes")
}

func TestEndWithoutTerminalMarkerIsLeftToTheDecoder(t *testing.T) {
	t.Parallel()
	dec := wire.NewDecoder(wire.Chat)
	tl := &stream.Timeline{Sent: epoch}
	require.NoError(t, stream.Read(strings.NewReader(delta("a")+delta("b")), dec, tl, stream.Options{}))
	require.Equal(t, 2, tl.Chunks())
	var wireErr *wire.Error
	require.ErrorAs(t, dec.Finish(), &wireErr)
	require.Equal(t, wire.ErrTruncated, wireErr.Type)
}

func TestBrokenBodyKeepsWhatCame(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset by peer")
	tl, msg, err := read(t, &script{pieces: []piece{{ms(3), delta("a")}, {ms(4), delta("b")}}, tail: broken}, stream.Options{})
	require.ErrorIs(t, err, broken)
	require.Equal(t, "ab", msg.Text)
	require.Equal(t, []time.Duration{ms(3), ms(7)}, tl.Offsets())
}

func TestErrorInTheStreamIsReturnedAsItIs(t *testing.T) {
	t.Parallel()
	_, _, err := read(t, &script{pieces: []piece{
		{ms(3), delta("a")}, {ms(1), "data: {\"error\":{\"message\":\"out of memory\",\"code\":500}}\n\n"}, {ms(1), done},
	}}, stream.Options{})
	var wireErr *wire.Error
	require.ErrorAs(t, err, &wireErr)
	require.Equal(t, wire.ErrStream, wireErr.Type)
}

func TestOnEventSeesArrivalsAndCanStop(t *testing.T) {
	t.Parallel()
	var seen []time.Duration
	tl, _, err := read(t, &script{pieces: []piece{
		{ms(3), role}, {ms(4), delta("a")}, {ms(5), delta("b")}, {ms(6), delta("c")},
	}}, stream.Options{OnEvent: func(at time.Time, d wire.Delta) bool {
		if d.Output {
			seen = append(seen, at.Sub(epoch))
		}

		return len(seen) < 2
	}})
	require.ErrorIs(t, err, stream.ErrStopped)
	require.Equal(t, []time.Duration{ms(7), ms(12)}, seen)
	require.Equal(t, 2, tl.Chunks())
}

func TestCompressedAnswerIsUnwrappedAboveTheClock(t *testing.T) {
	t.Parallel()
	var squeezed bytes.Buffer
	w := gzip.NewWriter(&squeezed)
	_, err := w.Write([]byte(delta("a") + delta("b") + finish + done))
	require.NoError(t, err)
	require.NoError(t, w.Close())

	tl, msg, err := read(t, &script{pieces: []piece{{ms(9), squeezed.String()}}}, stream.Options{
		Unwrap: func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	})
	require.NoError(t, err)
	require.Equal(t, "ab", msg.Text)
	require.Equal(t, []time.Duration{ms(9), ms(9)}, tl.Offsets())
	require.Equal(t, int64(squeezed.Len()), tl.Bytes())
}

func TestDrainIsBounded(t *testing.T) {
	t.Parallel()
	require.True(t, stream.Drain(strings.NewReader("0123"), 10))
	require.False(t, stream.Drain(strings.NewReader(strings.Repeat("x", 11)), 10))
	require.False(t, stream.Drain(iotest.ErrReader(errors.New("reset")), 10))
}

// TestCutsDoNotMatter holds any cutting of any stream against the uncut one.
func TestCutsDoNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.StringN(1, 8, -1), 1, 12).Draw(t, "words")
		var whole strings.Builder
		for _, word := range words {
			whole.WriteString(delta(word))
		}
		whole.WriteString(finish + usage + done)
		bytes := whole.String()
		s := &script{now: epoch}
		for rest := bytes; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			s.pieces = append(s.pieces, piece{ms(1), rest[:n]})
			rest = rest[n:]
		}
		tl := &stream.Timeline{Sent: epoch}
		dec := wire.NewDecoder(wire.Chat)
		if err := stream.Read(s, dec, tl, stream.Options{Now: func() time.Time { return s.now }}); err != nil {
			t.Fatal(err)
		}
		if tl.Chunks() != len(words) {
			t.Fatalf("%d chunks of %d", tl.Chunks(), len(words))
		}
		last := time.Duration(0)
		for _, at := range tl.Offsets() {
			if at < last {
				t.Fatalf("time runs backwards: %v", tl.Offsets())
			}
			last = at
		}
	})
}

func FuzzRead(f *testing.F) {
	for _, bytes := range framings() {
		f.Add([]byte(bytes), uint8(3))
	}
	f.Add([]byte("data: {\"error\": \"x\"}\n\n"), uint8(1))
	f.Add([]byte("data: {]\r\n\r\n"), uint8(2))
	f.Fuzz(func(t *testing.T, body []byte, size uint8) {
		dec := wire.NewDecoder(wire.Chat)
		tl := &stream.Timeline{Sent: time.Now()}
		err := stream.Read(&cutReader{r: bytes.NewReader(body), size: int(size) + 1}, dec, tl, stream.Options{MaxEventBytes: 1 << 16})

		whole := wire.NewDecoder(wire.Chat)
		wholeTL := &stream.Timeline{Sent: time.Now()}
		wholeErr := stream.Read(bytes.NewReader(body), whole, wholeTL, stream.Options{MaxEventBytes: 1 << 16})
		if (err == nil) != (wholeErr == nil) || dec.Message().Text != whole.Message().Text || tl.Chunks() != wholeTL.Chunks() {
			t.Fatalf("cutting the bytes changed the answer: %v / %v", err, wholeErr)
		}
	})
}

type cutReader struct {
	r    io.Reader
	size int
}

func (c *cutReader) Read(p []byte) (int, error) { return c.r.Read(p[:min(len(p), c.size)]) }
