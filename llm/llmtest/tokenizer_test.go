package llmtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTokenizerRules(t *testing.T) {
	tests := []struct {
		text string
		want []string
	}{
		{"", nil},
		{"hello", []string{"hello"}},
		{"hello world", []string{"hello", " world"}},
		{"Tell me, please.", []string{"Tell", " me", ",", " please", "."}},
		{"abcdefghij klmnopqrst", []string{"abcdefgh", "ij", " klmnopqr", "st"}},
		{"a  b", []string{"a", " ", " b"}},
		{"a\n\nb", []string{"a", "\n\n", "b"}},
		{"a\n b ", []string{"a", "\n", " b", " "}},
		{"          x", []string{"        ", " ", " x"}},
		{"x == 42", []string{"x", " =", "=", " 42"}},
		{"größe 日本語", []string{"größe", " 日本語"}},
		{"\xff\xfeok", []string{"\xff", "\xfe", "ok"}},
	}
	for _, tt := range tests {
		require.Equal(t, tt.want, SplitTokens(tt.text), "%q", tt.text)
		require.Equal(t, len(tt.want), CountTokens(tt.text), "%q", tt.text)
		require.Len(t, Tokenize(nil, tt.text), len(tt.want))
	}
	require.NotEqual(t, Tokenize(nil, "word"), Tokenize(nil, " word"))
	require.Equal(t, Tokenize(nil, "a word")[1:], Tokenize(nil, "one word")[1:])
}

func TestTokensCoverTheTextAndAppendingKeepsAllButTheLast(t *testing.T) {
	text := rapid.OneOf(
		rapid.String(),
		rapid.StringOfN(rapid.SampledFrom([]rune("ab1 \n\t.,é日")), 0, 60, -1),
	)
	rapid.Check(t, func(t *rapid.T) {
		a, b := text.Draw(t, "text"), text.Draw(t, "appended")
		tokens := SplitTokens(a)
		if strings.Join(tokens, "") != a {
			t.Fatalf("%q is not the tokens %q", a, tokens)
		}
		longer := SplitTokens(a + b)
		if n := max(len(tokens)-1, 0); len(longer) < n || !slices.Equal(longer[:n], tokens[:n]) {
			t.Fatalf("%q then %q: %q", tokens, b, longer)
		}
	})
}

func TestVocabularyWordsAreOneTokenEach(t *testing.T) {
	for _, w := range vocabulary {
		require.Equal(t, 1, CountTokens(w), w)
		require.Equal(t, 1, CountTokens(" "+w), w)
		require.Equal(t, `"`+w+`"`, quote(w))
	}
}

func TestBlockContentsCoverFullBlocksOnly(t *testing.T) {
	tokens := Tokenize(nil, "one two three four five six seven eight nine")
	require.Len(t, blockContents(tokens, 4), 2)
	require.Equal(t, blockContents(tokens, 4), blockContents(tokens[:8], 4))
	require.Equal(t, blockContents(tokens, 4)[1:], blockContents(tokens[4:], 4), "content only: the engine chains it")
}

func BenchmarkCountTokens(b *testing.B) {
	text := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 200)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		CountTokens(text)
	}
}
