package tokens

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Calibration says how the served model counts a prompt of our words: tokens ≈ PerWord·words + Overhead. The zero
// value is the identity, one token per word and no overhead, which is exact for the tiktoken encodings.
type Calibration struct {
	// PerWord is the mean number of tokens of a word of the vocabulary.
	PerWord float64
	// Overhead is the number of tokens of a prompt without words: the chat template's, and a token for the
	// beginning of the text where the model has one.
	Overhead float64
	// Source says where the numbers are from, such as "vllm /tokenize" or "usage"; "" for the identity.
	Source string
	// Observations is how many prompts were counted, and WorstError the largest relative error of the model over
	// them, the held-out one included. Both are zero for the identity.
	Observations int
	WorstError   float64
}

// perWord reads the zero value as the identity.
func (c Calibration) perWord() float64 {
	if c.PerWord == 0 {
		return 1
	}
	return c.PerWord
}

// Words is the number of words whose prompt comes closest to a target number of tokens, at least one. A target below
// Min cannot be met: the prompt is then longer than asked.
func (c Calibration) Words(target int) int {
	return max(1, int(math.Round((float64(target)-c.Overhead)/c.perWord())))
}

// Tokens is the number of tokens that a prompt of so many words is expected to have.
func (c Calibration) Tokens(words int) int {
	return int(math.Round(c.perWord()*float64(words) + c.Overhead))
}

// Min is the length of the shortest prompt, in tokens: one word and the overhead.
func (c Calibration) Min() int { return c.Tokens(1) }

// Boundary is the number of words after which the given number of tokens of content (overhead not counted) ends.
func (c Calibration) Boundary(content int) int {
	return int(math.Round(float64(content) / c.perWord()))
}

// Observation is a prompt that was counted.
type Observation struct {
	// Words is how many words it had, Tokens how many tokens the server found in it.
	Words, Tokens int
}

// Tolerances of a calibration. An achieved length must be within 1 % of the asked one; an error of one token is
// rounding and no fault at any length.
const (
	relativeTolerance = 0.01
	absoluteTolerance = 1.0
)

// ErrNotLinear is wrapped by the error for observations that no calibration fits: the server does not count words of
// our vocabulary evenly (see SingleTokenWords), adds to some prompts what it does not add to others, or reports
// something else than prompt tokens (such as only those that were not cached).
var ErrNotLinear = errors.New("token counts are not linear in the number of words")

// Fit finds the calibration of some observations, by least squares of the relative errors: a prompt of 100 tokens
// must be as right, in percent, as one of 10,000. It needs two different numbers of words at least. The error wraps
// ErrNotLinear if an observation is further than 1 % (and more than one token) from the fitted line.
func Fit(observations []Observation) (Calibration, error) {
	var sw, sx, sy, sxx, sxy float64
	low, high := math.MaxInt, 0
	for _, o := range observations {
		if o.Words < 1 || o.Tokens < 1 {
			return Calibration{}, fmt.Errorf("calibrate: expected at least one word and one token, got %d and %d", o.Words, o.Tokens)
		}
		low, high = min(low, o.Words), max(high, o.Words)
		x, y := float64(o.Words), float64(o.Tokens)
		weight := 1 / (y * y)
		sw += weight
		sx += weight * x
		sy += weight * y
		sxx += weight * x * x
		sxy += weight * x * y
	}
	if low >= high {
		return Calibration{}, fmt.Errorf("calibrate: expected prompts of at least two different lengths, got %d of one", len(observations))
	}
	slope := (sw*sxy - sx*sy) / (sw*sxx - sx*sx)
	c := Calibration{PerWord: slope, Overhead: (sy - slope*sx) / sw, Observations: len(observations)}
	if !(c.PerWord >= minPerWord) {
		return Calibration{}, fmt.Errorf("calibrate: %g tokens per word: expected at least %g: %w (%s)",
			c.PerWord, minPerWord, ErrNotLinear, describe(observations))
	}
	for _, o := range observations {
		if err := c.check(o); err != nil {
			return Calibration{}, fmt.Errorf("calibrate: %w (%s)", err, describe(observations))
		}
		c.WorstError = max(c.WorstError, c.relativeError(o))
	}
	return c, nil
}

// minPerWord is the least number of tokens per word that can be: no tokenizer in use joins two words separated
// by a space into one token, and below this slope the counts do not depend on the prompt.
const minPerWord = 0.2

func (c Calibration) miss(o Observation) float64 {
	return math.Abs(c.perWord()*float64(o.Words) + c.Overhead - float64(o.Tokens))
}

func (c Calibration) relativeError(o Observation) float64 { return c.miss(o) / float64(o.Tokens) }

func (c Calibration) check(o Observation) error {
	if c.miss(o) > max(absoluteTolerance, relativeTolerance*float64(o.Tokens)) {
		return fmt.Errorf("%w: %d words are %d tokens, but %.4g per word and %.4g overhead give %d",
			ErrNotLinear, o.Words, o.Tokens, c.perWord(), c.Overhead, c.Tokens(o.Words))
	}
	return nil
}

func describe(observations []Observation) string {
	parts := make([]string, len(observations))
	for i, o := range observations {
		parts[i] = fmt.Sprintf("%d words: %d tokens", o.Words, o.Tokens)
	}
	return strings.Join(parts, ", ")
}

// DefaultProbes are the lengths, in words, that Calibrate counts when told no others.
func DefaultProbes() []int { return []int{32, 256, 1024} }

// Calibrate counts prompts of some lengths in words (DefaultProbes if none are given; all within the model's
// context), fits a calibration, and then asks for a prompt of a length that it has not counted, midway between
// the two longest: unless that comes out within 1 % of the asked length, or one token, the error wraps
// ErrNotLinear. Each count should be of a different text.
func Calibrate(ctx context.Context, count func(ctx context.Context, words int) (int, error), probes ...int) (Calibration, error) {
	if len(probes) == 0 {
		probes = DefaultProbes()
	}
	probes = slices.Compact(slices.Sorted(slices.Values(probes)))
	if len(probes) < 2 || probes[0] < 1 {
		return Calibration{}, fmt.Errorf("calibrate: expected at least two different numbers of words to probe, from 1 up, got %v", probes)
	}
	observations := make([]Observation, 0, len(probes))
	for _, words := range probes {
		o, err := observe(ctx, count, words)
		if err != nil {
			return Calibration{}, err
		}
		observations = append(observations, o)
	}
	c, err := Fit(observations)
	if err != nil {
		return Calibration{}, err
	}
	last := len(probes) - 1
	asked := c.Tokens((probes[last-1] + probes[last]) / 2)
	held, err := observe(ctx, count, c.Words(asked))
	if err != nil {
		return Calibration{}, err
	}
	miss := math.Abs(float64(held.Tokens - asked))
	if miss > max(absoluteTolerance, relativeTolerance*float64(asked)) {
		return Calibration{}, fmt.Errorf("calibrate: %w: a prompt of %d words, asked to be %d tokens, is %d (%s)",
			ErrNotLinear, held.Words, asked, held.Tokens, describe(observations))
	}
	c.Observations++
	c.WorstError = max(c.WorstError, miss/float64(asked))
	return c, nil
}

func observe(ctx context.Context, count func(ctx context.Context, words int) (int, error), words int) (Observation, error) {
	tokens, err := count(ctx, words)
	if err != nil {
		return Observation{}, fmt.Errorf("calibrate: count a prompt of %d words: %w", words, err)
	}
	return Observation{Words: words, Tokens: tokens}, nil
}

// WordCounter makes the function that Calibrate wants from one that counts a text: each count is of another text.
func WordCounter(b *Builder, seed uint64, count func(ctx context.Context, text string) (int, error)) func(ctx context.Context, words int) (int, error) {
	return func(ctx context.Context, words int) (int, error) {
		return count(ctx, string(b.Append(nil, seed, uint64(max(words, 0)), words))) //nolint:gosec // not negative
	}
}

// groupSize is how many words SingleTokenWords tests at once.
const groupSize = 128

// SingleTokenWords gives a builder of only those words that the served tokenizer makes one token of, so that prompts of
// every length come out exact, short ones too. Count must be that of the whole prompt of a text, template included.
// It is called about ten times where all words are single tokens, and 14 times more for each word that is not, at
// worst. The error says how many words were left if they are too few: then the fitted mean must do.
func (b *Builder) SingleTokenWords(ctx context.Context, count func(ctx context.Context, text string) (int, error)) (*Builder, error) {
	counted := func(text string) (int, error) {
		n, err := count(ctx, text)
		if err != nil {
			return 0, fmt.Errorf("test the vocabulary: %w", err)
		}
		return n, nil
	}
	all := b.Words()
	// Each group stands behind the same word, so that all of its words have a space before them.
	base, err := counted(all[0])
	if err != nil {
		return nil, err
	}
	var keep []string
	var test func(group []string) error
	test = func(group []string) error {
		n, err := counted(all[0] + " " + strings.Join(group, " "))
		switch {
		case err != nil:
			return err
		case n == base+len(group):
			keep = append(keep, group...)
			return nil
		case len(group) == 1:
			return nil
		}
		if err := test(group[:len(group)/2]); err != nil {
			return err
		}
		return test(group[len(group)/2:])
	}
	for group := range slices.Chunk(all, groupSize) {
		if err := test(group); err != nil {
			return nil, err
		}
	}
	if len(keep) < MinVocabulary {
		return nil, fmt.Errorf("test the vocabulary: %d of %d words are one token in the served model: expected at least %d",
			len(keep), len(all), MinVocabulary)
	}
	return newBuilder(keep), nil
}
