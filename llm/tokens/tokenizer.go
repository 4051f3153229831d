package tokens

import (
	"fmt"
	"strings"
	"sync"

	"github.com/pkoukk/tiktoken-go"
	tiktokenloader "github.com/pkoukk/tiktoken-go-loader"
)

// The encodings that New knows, by their names in tiktoken. o200k_base is GPT-4o's and later models', cl100k_base
// GPT-4's and GPT-3.5's, p50k_base and r50k_base those of the GPT-3 generation.
const (
	CL100K = "cl100k_base"
	O200K  = "o200k_base"
	P50K   = "p50k_base"
	R50K   = "r50k_base"
)

// Names lists the encodings that New knows.
func Names() []string { return []string{CL100K, O200K, P50K, R50K} }

// Tokenizer counts the tokens of a text in one encoding. It is safe for concurrent use.
type Tokenizer struct {
	name     string
	encoding *tiktoken.Tiktoken
}

// encodings holds what was loaded, once per process: an encoding takes some hundred milliseconds and tens of
// megabytes. The library's own cache keeps the ranks but compiles the encoding again on each call, and loads twice
// when two goroutines ask at once.
var encodings = map[string]func() (*tiktoken.Tiktoken, error){
	CL100K: loadOnce(CL100K),
	O200K:  loadOnce(O200K),
	P50K:   loadOnce(P50K),
	R50K:   loadOnce(R50K),
}

// useOfflineRanks must run before any encoding is loaded. The loader is a global variable of the library, whose
// default downloads the ranks; writing it again while another goroutine reads it would be a race, hence the Once.
var useOfflineRanks = sync.OnceFunc(func() {
	tiktoken.SetBpeLoader(tiktokenloader.NewOfflineLoader())
})

func loadOnce(name string) func() (*tiktoken.Tiktoken, error) {
	return sync.OnceValues(func() (*tiktoken.Tiktoken, error) {
		useOfflineRanks()
		return tiktoken.GetEncoding(name)
	})
}

// New gives the tokenizer of an encoding; the error for an unknown name lists those in Names. The first call for a
// name loads it, later ones share it.
func New(name string) (*Tokenizer, error) {
	load, ok := encodings[name]
	if !ok {
		return nil, fmt.Errorf("unknown tokenizer %q: expected one of %s", name, strings.Join(Names(), ", "))
	}
	encoding, err := load()
	if err != nil {
		return nil, fmt.Errorf("load tokenizer %s: %w", name, err)
	}
	return &Tokenizer{name: name, encoding: encoding}, nil
}

// Name is the encoding's name.
func (t *Tokenizer) Name() string { return t.name }

// Count is the number of tokens of a text. Text that looks like a special token (<|endoftext|>) is counted as the
// ordinary text that it is in a user's prompt. Bytes that are not UTF-8 count as U+FFFD, which is what a JSON
// body makes of them.
func (t *Tokenizer) Count(text string) int { return len(t.encoding.EncodeOrdinary(text)) }

// Encode gives the token ids of a text, under the same rules as Count.
func (t *Tokenizer) Encode(text string) []int { return t.encoding.EncodeOrdinary(text) }

// Decode gives the text of token ids. Ids cut out of a longer text may begin or end within a character: then the
// result is not valid UTF-8 there.
func (t *Tokenizer) Decode(ids []int) string { return t.encoding.Decode(ids) }
