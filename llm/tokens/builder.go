package tokens

import (
	_ "embed"
	"errors"
	"fmt"
	"strings"
)

// wordList has 1,024 common English words of three to eight letters, sorted. Each is one token, alone and after a
// space, in all tiktoken encodings that New knows (a test holds this) and in the tokenizers of Llama 3, Qwen 3,
// DeepSeek V3 and Gemma 3 (checked against their vocabularies when the list was made), so for most served models
// calibration finds exactly one token per word. A space in front must not matter because chat templates trim
// the content of a message.
//
//go:embed words.txt
var wordList string

// MinVocabulary is the smallest vocabulary of a Builder. Fewer words repeat themselves within a prompt so often that
// servers that look for repeated n-grams (speculative decoding) are flattered.
const MinVocabulary = 256

// maxVocabulary keeps the bias of unit.random below 1/16.
const maxVocabulary = 1 << 12

// Builder makes text of an exact number of words. It is immutable and safe for concurrent use.
type Builder struct {
	words  []string // each with a space before it
	lead   int
	length int // mean bytes of a word, space included, rounded up
}

// NewBuilder gives the builder of the embedded vocabulary, whose words are one token each.
func NewBuilder() *Builder {
	return newBuilder(strings.Fields(wordList))
}

func newBuilder(words []string) *Builder {
	b := &Builder{words: make([]string, len(words)), lead: leadOf(len(words))}
	total := 0
	for i, w := range words {
		b.words[i] = " " + w
		total += len(b.words[i])
	}
	b.length = total/len(words) + 1
	return b
}

// WithWords gives a builder of other words, in that order: MinVocabulary to 4,096 of them, without white space, each
// once. The caller answers for how many tokens each is.
func WithWords(words []string) (*Builder, error) {
	if len(words) < MinVocabulary || len(words) > maxVocabulary {
		return nil, fmt.Errorf("vocabulary: expected %d to %d words, got %d", MinVocabulary, maxVocabulary, len(words))
	}
	seen := make(map[string]bool, len(words))
	for _, w := range words {
		if w == "" || strings.ContainsFunc(w, isSpace) {
			return nil, fmt.Errorf("vocabulary: expected words without white space, got %q", w)
		}
		if seen[w] {
			return nil, fmt.Errorf("vocabulary: the word %q stands there twice", w)
		}
		seen[w] = true
	}
	return newBuilder(words), nil
}

func isSpace(r rune) bool { return strings.ContainsRune(" \t\r\n\v\f", r) }

// Words lists the vocabulary.
func (b *Builder) Words() []string {
	words := make([]string, len(b.words))
	for i, w := range b.words {
		words[i] = w[1:]
	}
	return words
}

// Build makes a text of n words, a pure function of seed and n; for n ≤ 0 it is empty. The text neither begins nor
// ends with a space, and the text for a smaller n is a prefix of it.
func (b *Builder) Build(seed uint64, n int) string {
	return string(b.Append(nil, seed, 0, n))
}

// Append appends n words of the unit that seed and key name, each with a space before it except at the very
// beginning of dst; so the words of several units, appended one after the other, add up exactly. The words are
// the unit's first n: a shorter piece of a unit is a prefix of a longer one.
//
// Units of one seed and different keys differ early: in the first word if the keys are fewer than the vocabulary's
// size apart, in the first two for keys among any million (2²⁰ with the embedded vocabulary), and within
// seven words at the latest.
func (b *Builder) Append(dst []byte, seed, key uint64, n int) []byte {
	if n <= 0 {
		return dst
	}
	u := newUnit(seed, key, len(b.words), b.lead)
	if len(dst) == 0 {
		dst = append(dst, b.words[u.next()][1:]...)
		n--
	}
	for ; n > 0 && u.at < u.lead; n-- {
		dst = append(dst, b.words[u.next()]...)
	}
	for range n {
		dst = append(dst, b.words[u.random()]...)
	}
	return dst
}

// Size is about how many bytes n words take, for making a buffer.
func (b *Builder) Size(n int) int { return max(n, 0)*b.length + 16 }

// IDRange is a range of token ids, both ends included.
type IDRange struct {
	Low, High int
}

// minIDs is the smallest range: for the same reason as MinVocabulary.
const minIDs = MinVocabulary

// maxID is the largest id that servers take: they hold ids in 32 bits, signed.
const maxID = 1<<31 - 1

// SafeIDs is a range that avoids special tokens in the vocabularies in use, for a vocabulary of a size: it leaves out
// the first 1,000 ids (Mistral's Tekken reserves these; Llama 2, Gemma and DeepSeek start with control and byte tokens)
// and the last thirty-second (Llama 3's, Qwen's, DeepSeek's, gpt-oss's and Gemma's special tokens lie there). A model
// of which more is known takes an IDRange of its own.
func SafeIDs(vocabulary int) (IDRange, error) {
	r := IDRange{Low: 1000, High: vocabulary - vocabulary/32 - 1}
	if err := r.Validate(); err != nil {
		return IDRange{}, fmt.Errorf("vocabulary of %d ids: too small to tell its special ids from the others: state a range", vocabulary)
	}
	return r, nil
}

// Validate checks that the range holds enough ids and none below zero or above 2³¹-1.
func (r IDRange) Validate() error {
	switch {
	case r.Low < 0 || r.High > maxID:
		return fmt.Errorf("token ids %d to %d: expected 0 to %d", r.Low, r.High, maxID)
	case r.High-r.Low+1 < minIDs:
		return fmt.Errorf("token ids %d to %d: expected a range of at least %d ids", r.Low, r.High, minIDs)
	}
	return nil
}

// Append appends n token ids of the unit that seed and key name, under the same rules as Builder.Append: they are the
// unit's first n, and units of one seed and different keys differ early. The range must be valid.
func (r IDRange) Append(dst []int, seed, key uint64, n int) []int {
	radix := r.High - r.Low + 1
	u := newUnit(seed, key, radix, leadOf(radix))
	for range n {
		dst = append(dst, r.Low+u.next())
	}
	return dst
}

// IDs makes a prompt of n token ids, a pure function of its arguments: n tokens exactly, whatever the tokenizer.
func IDs(seed uint64, n int, r IDRange) ([]int, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if n < 0 {
		return nil, errors.New("token ids: expected a number of tokens that is not negative")
	}
	return r.Append(make([]int, 0, n), seed, 0, n), nil
}
