package stream

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"github.com/tmaxmax/go-sse"
)

// countedReads counts how often it is read from.
type countedReads struct {
	r io.Reader
	n int
}

func (c *countedReads) Read(p []byte) (int, error) {
	c.n++

	return c.r.Read(p)
}

// TestALargeEventIsLookedAtAFewTimes: go-sse looks for the end of an event from its beginning after each read. A body that
// is decompressed comes in pieces of some kilobytes, so that a large event would cost the square of its size.
func TestALargeEventIsLookedAtAFewTimes(t *testing.T) {
	t.Parallel()
	const size = 4 << 20
	for name, event := range map[string]string{
		"one line":   "event: e\ndata: " + strings.Repeat("x", size) + "\n\n",
		"many lines": strings.Repeat("data: x\n", size/8) + "\n",
		"CRLF":       "data: " + strings.Repeat("x", size) + "\r\n\r\n",
	} {
		reads := &countedReads{r: &wholeEvents{r: &shortReads{strings.NewReader(event), 1024}}}
		var got int
		for e, err := range sse.Read(reads, &sse.ReadConfig{MaxEventSize: 2 * size}) {
			require.NoError(t, err, name)
			got += len(e.Data)
		}
		require.Greater(t, got, size/8, name)
		require.LessOrEqual(t, reads.n, 16, "%s: a doubling of the buffer each, from 4 kB to 8 MB", name)
	}
}

// TestBlankLinesDoNotPileUp: go-sse keeps blank lines until an event comes.
func TestBlankLinesDoNotPileUp(t *testing.T) {
	t.Parallel()
	body := "data: a\r\n\r\n" + strings.Repeat("\n", 10_000) + strings.Repeat("\r\n", 10_000) + strings.Repeat("\r", 10_000) + "data: b\n\n"
	got, err := io.ReadAll(&wholeEvents{r: iotest.OneByteReader(strings.NewReader(body))})
	require.NoError(t, err)
	require.Equal(t, "data: a\r\n\rdata: b\n\n", string(got))
	events, err := collect(sseEvents, iotest.OneByteReader(strings.NewReader(body)))
	require.NoError(t, err)
	require.Equal(t, []seen{{"", "a"}, {"", "b"}}, events)
}

// TestAnEventIsNotHeldBack: what has come whole is handed on before the next read.
func TestAnEventIsNotHeldBack(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		"event: e\ndata: a\n\n", "data: a\r\n\r\n", "data: a\r\r", "data: a\n\r\n", "\xEF\xBB\xBFdata: a\n\n", "\n\ndata: a\r\n\n",
	} {
		r := &wholeEvents{r: io.MultiReader(iotest.OneByteReader(strings.NewReader(body)), failed{io.ErrClosedPipe})}
		p := make([]byte, 1<<10)
		n, err := r.Read(p)
		require.NoError(t, err, "%q", body)
		var seen []string
		for e, err := range sse.Read(bytes.NewReader(p[:n]), nil) {
			require.NoError(t, err)
			seen = append(seen, e.Data)
		}
		require.Equal(t, []string{"a"}, seen, "%q", body)
	}
}

func TestWholeEventsPassErrorsOn(t *testing.T) {
	t.Parallel()
	r := &wholeEvents{r: io.MultiReader(strings.NewReader("data: a"), failed{io.ErrClosedPipe})}
	p := make([]byte, 100)
	n, err := r.Read(p)
	require.Equal(t, "data: a", string(p[:n]))
	require.ErrorIs(t, err, io.ErrClosedPipe)

	n, err = (&wholeEvents{r: strings.NewReader("data: a")}).Read(p)
	require.Equal(t, "data: a", string(p[:n]))
	require.ErrorIs(t, err, io.EOF)

	_, err = (&wholeEvents{r: nothing{}}).Read(p)
	require.ErrorIs(t, err, io.ErrNoProgress)
}

type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, nil }

// BenchmarkGzippedEvent: the time for a byte must not grow with the size of the event.
func BenchmarkGzippedEvent(b *testing.B) {
	for _, framing := range []string{"data: ", "event: e\ndata: "} {
		for _, megabytes := range []int{1, 4, 16} {
			random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a reproducible text
			text := make([]byte, megabytes<<20)
			for i := range text {
				text[i] = byte('a' + random.IntN(26))
			}
			var body bytes.Buffer
			w := gzip.NewWriter(&body)
			_, err := fmt.Fprintf(w, "%s%s\n\n", framing, text)
			require.NoError(b, err)
			require.NoError(b, w.Close())
			b.Run(fmt.Sprintf("%q of %d MB", framing, megabytes), func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				b.ReportAllocs()
				for b.Loop() {
					r, err := gzip.NewReader(bytes.NewReader(body.Bytes()))
					require.NoError(b, err)
					n := 0
					require.NoError(b, events(r, DefaultMaxEventBytes, func(_, data string) error {
						n += len(data)

						return nil
					}))
					require.Equal(b, len(text), n)
				}
			})
		}
	}
}
