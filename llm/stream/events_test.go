package stream

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"github.com/tmaxmax/go-sse"
)

func events(r io.Reader, maxEvent int, yield func(name, data string) error) error {
	err := (&plainScanner{r: r, limit: maxEvent}).events(yield)
	var none *NoEventsError
	if errors.As(err, &none) {
		return nil // go-sse does not say so
	}

	return err
}

type seen struct{ Name, Data string }

func collect(parse func(io.Reader, int, func(name, data string) error) error, r io.Reader) ([]seen, error) {
	var all []seen
	err := parse(r, 1<<20, func(name, data string) error {
		all = append(all, seen{name, strings.Clone(data)})

		return nil
	})

	return all, err
}

var framings = []string{
	"data: a\n\ndata: b\n\n",
	"data: a\n\n: comment\n\n\n\ndata: b\n\n",
	": c\ndata: a\n\n",
	"data: a\r\n\r\ndata: b\r\n\r\n",
	"data: a\n\ndata: b\r\n\r\ndata: c\n\n",
	"data: a\rdata: b\r\rdata: c\r\r",
	"data: a\n\ndata: b\r\r",
	"data: a\ndata: b\n\ndata: c\n\n",
	"data:a\n\ndata: b\n\n",
	"data: a\n\nevent: e\ndata: b\n\ndata: c\n\n",
	"\xEF\xBB\xBFdata: a\n\n",
	"data: a\n\n\xEF\xBB\xBFdata: b\n\ndata: c\n\n",
	"data: a\n\ndata\n\ndata: \n\ndata: c\n\n",
	"data: a\n\ndata: never ended\n",
	"data: a\n\ndata: never ended",
	": c\r\ndata: a\n\n",
	": c\rdata: a\n\n",
	"id: 1\nretry: 5\n\ndata: a\n\n",
	"data: a\r",
	"data: a\n\r\n",
	"\n\n\ndata: a\n\n",
	"\n\xEF\xBB\xBFdata: a\n\n",
	"data: a\n\n\n\xEF\xBB\xBFdata: b\n\ndata: c\n\n",
}

// goSSE is the parser by itself.
func goSSE(r io.Reader, maxEvent int, yield func(name, data string) error) error {
	for event, err := range sse.Read(r, &sse.ReadConfig{MaxEventSize: maxEvent}) {
		if err != nil {
			return err //nolint:wrapcheck // a test helper
		}
		if err := yield(event.Type, event.Data); err != nil {
			return err
		}
	}

	return nil
}

// TestEventsAreThoseOfGoSSE holds the path of the plain framing to the parser behind it, however the bytes are cut.
func TestEventsAreThoseOfGoSSE(t *testing.T) {
	t.Parallel()
	for _, body := range framings {
		want, err := collect(goSSE, strings.NewReader(body))
		require.NoError(t, err)
		for cut := 0; cut <= len(body); cut++ {
			got, err := collect(events, io.MultiReader(strings.NewReader(body[:cut]), strings.NewReader(body[cut:])))
			require.NoError(t, err)
			require.Equal(t, want, got, "%q cut at %d", body, cut)
		}
		got, err := collect(events, iotest.OneByteReader(strings.NewReader(body)))
		require.NoError(t, err)
		require.Equal(t, want, got, "%q byte by byte", body)
		got, err = collect(events, iotest.DataErrReader(strings.NewReader(body)))
		require.NoError(t, err)
		require.Equal(t, want, got, "%q with the end in the last read", body)
	}
}

func TestAnErrorComesAfterWhatCameWithIt(t *testing.T) {
	t.Parallel()
	broken := errors.New("reset")
	for _, body := range []string{"data: a\n\n", "data: a\n\ndata: b\r\n\r\n"} {
		got, err := collect(events, io.MultiReader(strings.NewReader(body), iotest.ErrReader(broken)))
		require.ErrorIs(t, err, broken)
		require.EqualError(t, err, "reading the answer: reset")
		require.Equal(t, seen{"", "a"}, got[0])
		require.Len(t, got, strings.Count(body, "data"))
	}
}

func TestPlainEventsAreNotCopied(t *testing.T) {
	// Not parallel: it counts allocations.
	body := []byte(strings.Repeat("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n", 100))
	n := 0
	perStream := testing.AllocsPerRun(20, func() {
		if err := events(bytes.NewReader(body), 1<<20, func(string, string) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
	})
	require.Positive(t, n)
	require.LessOrEqual(t, perStream, 4.0, "a buffer and a scanner for a hundred events")
}

func FuzzEventsAreThoseOfGoSSE(f *testing.F) {
	for _, body := range framings {
		f.Add([]byte(body), uint8(3))
	}
	f.Fuzz(func(t *testing.T, body []byte, size uint8) {
		want, wantErr := collect(goSSE, bytes.NewReader(body))
		got, err := collect(events, &shortReads{bytes.NewReader(body), int(size) + 1})
		require.Equal(t, wantErr == nil, err == nil)
		require.Equal(t, want, got)
		got, err = collect(sseEvents, &shortReads{bytes.NewReader(body), int(size) + 1})
		require.Equal(t, wantErr == nil, err == nil)
		require.Equal(t, want, got)
	})
}

type shortReads struct {
	r    io.Reader
	size int
}

func (s *shortReads) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), s.size)]) }
