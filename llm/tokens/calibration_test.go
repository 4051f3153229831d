package tokens

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestFitExact(t *testing.T) {
	c, err := Fit([]Observation{{Words: 32, Tokens: 32 + 11}, {Words: 256, Tokens: 256 + 11}, {Words: 1024, Tokens: 1024 + 11}})
	require.NoError(t, err)
	require.InDelta(t, 1, c.PerWord, 1e-9)
	require.InDelta(t, 11, c.Overhead, 1e-6)
	require.Equal(t, 3, c.Observations)
	require.InDelta(t, 0, c.WorstError, 1e-9)
	require.Equal(t, 989, c.Words(1000))
	require.Equal(t, 1000, c.Tokens(989))
	require.Equal(t, 12, c.Min())
	require.Equal(t, 1, c.Words(5), "a target below the overhead still gives a word")
	require.Equal(t, 512, c.Boundary(512))

	c, err = Fit([]Observation{{Words: 100, Tokens: 170}, {Words: 1000, Tokens: 1520}})
	require.NoError(t, err)
	require.InDelta(t, 1.5, c.PerWord, 1e-9)
	require.InDelta(t, 20, c.Overhead, 1e-6)
	require.Equal(t, 320, c.Words(500))
	require.Equal(t, 341, c.Boundary(512))
}

func TestIdentity(t *testing.T) {
	var c Calibration
	for _, n := range []int{1, 7, 512, 100_000} {
		require.Equal(t, n, c.Words(n))
		require.Equal(t, n, c.Tokens(n))
		require.Equal(t, n, c.Boundary(n))
	}
}

func TestFitErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []Observation
		want string
	}{
		{"none", nil, "at least two different lengths, got 0 of one"},
		{"one length", []Observation{{10, 20}, {10, 20}}, "at least two different lengths, got 2 of one"},
		{"no tokens", []Observation{{10, 0}, {20, 30}}, "at least one word and one token, got 10 and 0"},
		{"bent", []Observation{{100, 110}, {200, 260}, {1000, 1010}}, "not linear"},
		{"constant", []Observation{{100, 50}, {1000, 50}}, "0 tokens per word: expected at least 0.2"},
		{"falling", []Observation{{100, 50}, {1000, 40}}, "tokens per word: expected at least 0.2"},
	} {
		_, err := Fit(c.in)
		require.ErrorContains(t, err, c.want, c.name)
	}
	_, err := Fit([]Observation{{100, 110}, {200, 260}, {1000, 1010}})
	require.ErrorIs(t, err, ErrNotLinear)
	require.ErrorContains(t, err, "200 words: 260 tokens")
}

// served is a stand-in for a served tokenizer: an overhead, and some words that are more than one token.
type served struct {
	overhead int
	long     func(word string) bool
	calls    int
}

func (s *served) count(_ context.Context, text string) (int, error) {
	s.calls++
	n := s.overhead
	for _, word := range strings.Fields(text) {
		n++
		if s.long != nil && s.long(word) {
			n++
		}
	}
	return n, nil
}

func TestCalibrateReachesOnePercent(t *testing.T) {
	b := NewBuilder()
	ctx := t.Context()
	for _, c := range []struct {
		name  string
		model served
	}{
		{"even", served{overhead: 36}},
		{"no template", served{}},
		{"a long system prompt", served{overhead: 900}},
		{"a tenth of the words in two", served{overhead: 25, long: func(w string) bool { return w[0] == 's' }}},
	} {
		t.Run(c.name, func(t *testing.T) {
			model := c.model
			calibration, err := Calibrate(ctx, WordCounter(b, 1, model.count), 512, 2048, 8192)
			require.NoError(t, err)
			require.Equal(t, 4, calibration.Observations)
			require.Equal(t, 4, model.calls)
			require.LessOrEqual(t, calibration.WorstError, 0.01)
			for i, target := range []int{2000, 5000, 20_000} {
				text := string(b.Append(nil, 77, uint64(i), calibration.Words(target)))
				got, err := model.count(ctx, text)
				require.NoError(t, err)
				require.InEpsilon(t, target, got, 0.01)
				if model.long == nil {
					require.Equal(t, target, got)
				}
			}
		})
	}
}

func TestCalibrateErrors(t *testing.T) {
	ctx := t.Context()
	refused := errors.New("context length exceeded")
	_, err := Calibrate(ctx, func(context.Context, int) (int, error) { return 0, refused })
	require.ErrorIs(t, err, refused)
	require.ErrorContains(t, err, "count a prompt of 32 words")

	_, err = Calibrate(ctx, func(_ context.Context, words int) (int, error) { return words, nil }, 100, 100)
	require.ErrorContains(t, err, "at least two different numbers of words")

	// A server that reports only the tokens that missed its prefix cache, from some length on: linear in what was
	// probed, wrong at the held-out length.
	_, err = Calibrate(ctx, func(_ context.Context, words int) (int, error) {
		if words == 600 {
			return 580, nil
		}
		return words + 10, nil
	}, 200, 1000)
	require.ErrorIs(t, err, ErrNotLinear)
	require.ErrorContains(t, err, "a prompt of 600 words, asked to be 610 tokens, is 580")
}

func TestCalibrationProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		perWord := rapid.Float64Range(0.5, 4).Draw(t, "per word")
		overhead := rapid.IntRange(0, 2000).Draw(t, "overhead")
		count := func(_ context.Context, words int) (int, error) {
			return int(math.Round(perWord*float64(words))) + overhead, nil
		}
		c, err := Calibrate(context.Background(), count)
		if err != nil {
			t.Fatal(err)
		}
		target := rapid.IntRange(c.Min()+100, 200_000).Draw(t, "target")
		got, _ := count(context.Background(), c.Words(target))
		if math.Abs(float64(got-target)) > max(3, 0.01*float64(target)) {
			t.Fatalf("asked for %d, got %d with %+v", target, got, c)
		}
	})
}

func TestSingleTokenWords(t *testing.T) {
	b := NewBuilder()
	model := &served{overhead: 17, long: func(w string) bool { return strings.HasPrefix(w, "th") }}
	filtered, err := b.SingleTokenWords(t.Context(), model.count)
	require.NoError(t, err)
	var want []string
	for _, w := range b.Words() {
		if !model.long(w) {
			want = append(want, w)
		}
	}
	require.Equal(t, want, filtered.Words())
	require.Less(t, len(want), 1024)
	c, err := Calibrate(t.Context(), WordCounter(filtered, 1, model.count))
	require.NoError(t, err)
	for _, target := range []int{20, 100, 333} {
		got, err := model.count(t.Context(), filtered.Build(9, c.Words(target)))
		require.NoError(t, err)
		require.Equal(t, target, got, "short prompts are exact too")
	}

	model = &served{overhead: 17}
	filtered, err = b.SingleTokenWords(t.Context(), model.count)
	require.NoError(t, err)
	require.Equal(t, b.Words(), filtered.Words())
	require.Equal(t, 9, model.calls)

	model = &served{long: func(string) bool { return true }}
	_, err = b.SingleTokenWords(t.Context(), model.count)
	require.ErrorContains(t, err, "0 of 1024 words are one token in the served model: expected at least 256")
	refused := errors.New("refused")
	_, err = b.SingleTokenWords(t.Context(), func(context.Context, string) (int, error) { return 0, refused })
	require.ErrorIs(t, err, refused)
}
