package tokens

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/stat/distuv"
	"pgregory.net/rapid"
)

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func tokenizers(t testing.TB) []*Tokenizer {
	t.Helper()
	all := make([]*Tokenizer, 0, len(Names()))
	for _, name := range Names() {
		tokenizer, err := New(name)
		require.NoError(t, err)
		all = append(all, tokenizer)
	}
	return all
}

func TestVocabulary(t *testing.T) {
	words := NewBuilder().Words()
	require.Len(t, words, 1024)
	require.True(t, sort.StringsAreSorted(words))
	for _, tokenizer := range tokenizers(t) {
		for _, word := range words {
			require.Regexp(t, "^[a-z]{3,8}$", word)
			require.Equal(t, 1, tokenizer.Count(word), "%s: %q", tokenizer.Name(), word)
			require.Equal(t, 1, tokenizer.Count(" "+word), "%s: %q after a space", tokenizer.Name(), word)
		}
	}
	seen := map[string]bool{}
	for _, word := range words {
		require.False(t, seen[word], word)
		seen[word] = true
	}
}

func TestBuildIsExact(t *testing.T) {
	all := tokenizers(t)
	b := NewBuilder()
	for _, tokenizer := range all {
		require.Equal(t, "", b.Build(1, 0))
		require.Equal(t, "", b.Build(1, -5))
		for _, n := range []int{1, 2, 3, 7, 8, 9, 16, 511, 512, 513, 100_000} {
			require.Equal(t, n, tokenizer.Count(b.Build(42, n)), "%s, %d", tokenizer.Name(), n)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		n := rapid.IntRange(0, 3000).Draw(t, "n")
		text := b.Build(seed, n)
		tokenizer := rapid.SampledFrom(all).Draw(t, "tokenizer")
		if got := tokenizer.Count(text); got != n {
			t.Fatalf("%s: %d tokens, asked for %d", tokenizer.Name(), got, n)
		}
		if text != strings.TrimSpace(text) || text != b.Build(seed, n) {
			t.Fatal("text is not stable")
		}
		if !strings.HasPrefix(b.Build(seed, n+1), text) {
			t.Fatal("a shorter text is not a prefix of a longer one")
		}
	})
}

// The bytes are promised: a run of last year must send the same prompts today. If this test fails, the change breaks
// that promise, and the values must not simply be replaced.
func TestBuildGolden(t *testing.T) {
	b := NewBuilder()
	require.Equal(t, goldenStart, b.Build(1, 12))
	for _, c := range []struct {
		seed uint64
		n    int
		want string
	}{
		{0, 1000, goldenSeed0},
		{1, 1000, goldenSeed1},
		{math.MaxUint64, 1000, goldenSeedMax},
	} {
		require.Equal(t, c.want, digest(b.Build(c.seed, c.n)), "seed %d", c.seed)
	}
	require.Equal(t, goldenUnits, digest(string(b.Append(b.Append(nil, 7, 1<<40, 512), 7, 3, 100))))
	ids, err := IDs(5, 1000, IDRange{Low: 1000, High: 127_000})
	require.NoError(t, err)
	require.Equal(t, goldenIDs, digest(fmt.Sprint(ids)))
	require.Equal(t, goldenFirstIDs, ids[:4])
}

func TestAppendAddsUp(t *testing.T) {
	b := NewBuilder()
	all := tokenizers(t)
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		block := rapid.IntRange(1, 64).Draw(t, "block")
		ids := rapid.SliceOfN(rapid.Uint64(), 1, 12).Draw(t, "ids")
		var text []byte
		for _, id := range ids {
			text = b.Append(text, seed, id, block)
		}
		tokenizer := rapid.SampledFrom(all).Draw(t, "tokenizer")
		if got, want := tokenizer.Count(string(text)), block*len(ids); got != want {
			t.Fatalf("%s: %d tokens, want %d", tokenizer.Name(), got, want)
		}
		// The same id gives the same words wherever it stands.
		words := strings.Fields(string(text))
		for i, id := range ids {
			alone := string(b.Append(nil, seed, id, block))
			if strings.Join(words[i*block:(i+1)*block], " ") != alone {
				t.Fatalf("block %d differs from its text alone", i)
			}
		}
	})
}

func TestUnitsDifferEarly(t *testing.T) {
	b := NewBuilder()
	for _, seed := range []uint64{0, 1, 99} {
		first := map[string]bool{}
		for key := uint64(5000); key < 5000+1024; key++ {
			first[string(b.Append(nil, seed, key, 1))] = true
		}
		require.Len(t, first, 1024, "keys within the vocabulary's size differ in the first word")
		two := map[string]bool{}
		for key := uint64(0); key < 1<<17; key++ {
			two[string(b.Append(nil, seed, key, 2))] = true
		}
		require.Len(t, two, 1<<17, "keys among a million differ in two words")
	}
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		one, other := rapid.Uint64().Draw(t, "one"), rapid.Uint64().Draw(t, "other")
		if rapid.Bool().Draw(t, "high digits only") {
			other = one ^ other<<60
		}
		if one != other && string(b.Append(nil, seed, one, 7)) == string(b.Append(nil, seed, other, 7)) {
			t.Fatalf("keys %d and %d share seven words", one, other)
		}
	})
	// Another seed orders the first words otherwise.
	require.NotEqual(t, b.Append(nil, 1, 77, 3), b.Append(nil, 2, 77, 3))
}

func TestIDs(t *testing.T) {
	r, err := SafeIDs(128_256)
	require.NoError(t, err)
	require.Equal(t, IDRange{Low: 1000, High: 124_247}, r)
	ids, err := IDs(3, 50_000, r)
	require.NoError(t, err)
	require.Len(t, ids, 50_000)
	low, high := math.MaxInt, 0
	for _, id := range ids {
		low, high = min(low, id), max(high, id)
	}
	require.GreaterOrEqual(t, low, r.Low)
	require.LessOrEqual(t, high, r.High)
	require.Less(t, low, r.Low+100, "the low end is used")
	require.Greater(t, high, r.High-100, "the high end is used")

	first := map[int]bool{}
	for key := range uint64(10_000) {
		first[r.Append(nil, 1, key, 1)[0]] = true
	}
	require.Len(t, first, 10_000)

	for _, bad := range []IDRange{{Low: -1, High: 1000}, {Low: 0, High: 100}, {Low: 0, High: 1 << 31}, {Low: 500, High: 400}} {
		_, err := IDs(1, 10, bad)
		require.Error(t, err, "%+v", bad)
	}
	_, err = IDs(1, -1, r)
	require.ErrorContains(t, err, "not negative")
	_, err = SafeIDs(1200)
	require.ErrorContains(t, err, "state a range")
}

// Words are uniform: a χ² test over the vocabulary at α = 1e-6, beyond the words that carry the key.
func TestWordsAreUniform(t *testing.T) {
	b := NewBuilder()
	words := strings.Fields(b.Build(12345, 1_000_000))
	counts := map[string]int{}
	for _, w := range words {
		counts[w]++
	}
	expected := float64(len(words)) / 1024
	statistic := 0.0
	for _, w := range b.Words() {
		d := float64(counts[w]) - expected
		statistic += d * d / expected
	}
	require.Less(t, distuv.ChiSquared{K: 1023}.Survival(statistic), 1-1e-6)
	require.Greater(t, distuv.ChiSquared{K: 1023}.Survival(statistic), 1e-6)
	pairs := map[string]int{}
	for i := 0; i+1 < len(words); i++ {
		pairs[words[i]+" "+words[i+1]]++
	}
	// 999,999 draws from 2²⁰ pairs leave 2²⁰·e^(-0.954) of them out; the standard deviation is below 512.
	missing := 1<<20 - len(pairs)
	require.InDelta(t, float64(1<<20)*math.Exp(-999_999.0/(1<<20)), missing, 6*512)
}

func TestWithWords(t *testing.T) {
	words := make([]string, 300)
	for i := range words {
		words[i] = fmt.Sprintf("w%d", i)
	}
	b, err := WithWords(words)
	require.NoError(t, err)
	require.Equal(t, words, b.Words())
	text := strings.Fields(b.Build(1, 20_000))
	require.Len(t, text, 20_000)
	used := map[string]bool{}
	for _, w := range text {
		used[w] = true
	}
	require.Len(t, used, 300)

	_, err = WithWords(words[:255])
	require.ErrorContains(t, err, "expected 256 to 4096 words, got 255")
	_, err = WithWords(append([]string{"w1"}, words...))
	require.ErrorContains(t, err, `"w1" stands there twice`)
	_, err = WithWords(append([]string{"a b"}, words...))
	require.ErrorContains(t, err, `got "a b"`)
}

func TestNewUnknown(t *testing.T) {
	_, err := New("gpt2000")
	require.EqualError(t, err, `unknown tokenizer "gpt2000": expected one of cl100k_base, o200k_base, p50k_base, r50k_base`)
}

// Known values, from OpenAI's tiktoken: its README and cookbook give the ids of these texts.
func TestCountKnownTexts(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []int
	}{
		{CL100K, "tiktoken is great!", []int{83, 1609, 5963, 374, 2294, 0}},
		{R50K, "hello world", []int{31373, 995}},
		{O200K, "hello world", []int{24912, 2375}},
		{CL100K, "", []int{}},
	} {
		tokenizer, err := New(c.name)
		require.NoError(t, err)
		require.Equal(t, c.want, tokenizer.Encode(c.text), "%s %q", c.name, c.text)
		require.Equal(t, len(c.want), tokenizer.Count(c.text))
		require.Equal(t, c.text, tokenizer.Decode(c.want))
	}
	tokenizer, err := New(CL100K)
	require.NoError(t, err)
	require.Greater(t, tokenizer.Count("<|endoftext|>"), 1, "special tokens in a user's text are text")
}

func TestTokenizersConcurrently(t *testing.T) {
	text := NewBuilder().Build(9, 500)
	for _, name := range Names() {
		for range 4 {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				tokenizer, err := New(name)
				require.NoError(t, err)
				require.Equal(t, 500, tokenizer.Count(text))
			})
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	builder := NewBuilder()
	for _, n := range []int{100, 2000, 128_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			buffer := make([]byte, 0, builder.Size(n)*2)
			for b.Loop() {
				buffer = builder.Append(buffer[:0], 1, uint64(b.N), n)
			}
			b.SetBytes(int64(len(buffer)))
		})
	}
}

func BenchmarkCount(b *testing.B) {
	tokenizer := tokenizers(b)[0]
	text := NewBuilder().Build(1, 2000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		tokenizer.Count(text)
	}
}
