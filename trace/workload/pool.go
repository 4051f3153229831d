package workload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/safeqps/xk6-safeqps/llm/tokens"
	"github.com/safeqps/xk6-safeqps/trace/arrival"
)

// Pool is a collection of prompts from a file. It is safe for concurrent use.
type Pool struct {
	name    string
	entries []poolEntry
}

// poolEntry is a prompt: a text, or a chat history.
type poolEntry struct {
	line     int
	text     string
	messages json.RawMessage
}

// maxPool bounds the number of prompts, as a permutation of them needs.
const maxPool = 1 << 31

// NewPool reads prompts. The content is one of:
//
//   - plain text, one prompt a line; blank lines are skipped;
//   - JSONL, one object a line: {"prompt": "…"} (or "text", "text_input"), {"messages": [{"role", "content"}, …]}, or
//     ShareGPT's {"conversations": [{"from": "human", "value": "…"}, …]}, of which the first human turn is taken;
//   - a JSON array of such objects, which is how ShareGPT comes.
//
// It is JSON if the first character is { or [. Lines end in LF or CRLF; a byte order mark is skipped. Errors name the
// file and the line (or the element, of an array).
func NewPool(name string, content []byte) (*Pool, error) {
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	p := &Pool{name: name}
	var err error
	switch first := bytes.TrimSpace(content); {
	case len(first) > 0 && first[0] == '[':
		err = p.readArray(first)
	case len(first) > 0 && first[0] == '{':
		err = p.readLines(content, p.addJSON)
	default:
		err = p.readLines(content, p.addText)
	}
	if err != nil {
		return nil, err
	}
	if len(p.entries) == 0 {
		return nil, fmt.Errorf("%s: expected at least one prompt, got none", name)
	}
	if len(p.entries) > maxPool {
		return nil, fmt.Errorf("%s: expected at most %d prompts, got %d", name, maxPool, len(p.entries))
	}
	return p, nil
}

// Len is the number of prompts.
func (p *Pool) Len() int { return len(p.entries) }

func (p *Pool) readLines(content []byte, add func(line int, text []byte) error) error {
	number := 0
	for line := range bytes.Lines(content) {
		number++
		line = bytes.TrimRight(line, "\r\n")
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if err := add(number, line); err != nil {
			return fmt.Errorf("%s:%d: %w", p.name, number, err)
		}
	}
	return nil
}

func (p *Pool) readArray(content []byte) error {
	var elements []json.RawMessage
	if err := json.Unmarshal(content, &elements); err != nil {
		return fmt.Errorf("%s: expected a JSON array of prompts: %w", p.name, err)
	}
	for i, element := range elements {
		if err := p.addJSON(i+1, element); err != nil {
			return fmt.Errorf("%s: element %d: %w", p.name, i+1, err)
		}
	}
	return nil
}

func (p *Pool) addText(line int, text []byte) error {
	if !utf8.Valid(text) {
		return errors.New("expected UTF-8 text")
	}
	p.entries = append(p.entries, poolEntry{line: line, text: string(text)})
	return nil
}

func (p *Pool) addJSON(line int, text []byte) error {
	var object struct {
		Prompt        *string           `json:"prompt"`
		Text          *string           `json:"text"`
		TextInput     *string           `json:"text_input"`
		Messages      []json.RawMessage `json:"messages"`
		Conversations []struct {
			From  string `json:"from"`
			Role  string `json:"role"`
			Value string `json:"value"`
		} `json:"conversations"`
	}
	if err := json.Unmarshal(text, &object); err != nil {
		return fmt.Errorf("expected a JSON object with a prompt: %w", err)
	}
	for _, prompt := range []*string{object.Prompt, object.Text, object.TextInput} {
		if prompt != nil && *prompt != "" {
			p.entries = append(p.entries, poolEntry{line: line, text: *prompt})
			return nil
		}
	}
	if len(object.Messages) > 0 {
		return p.addMessages(line, object.Messages)
	}
	for _, turn := range object.Conversations {
		if (turn.From == "human" || turn.From == "user" || turn.Role == "user") && turn.Value != "" {
			p.entries = append(p.entries, poolEntry{line: line, text: turn.Value})
			return nil
		}
	}
	return errors.New("expected prompt, text, text_input, messages, or conversations with a human turn, and not empty")
}

// addMessages keeps a chat history; one of a single user's text is that text.
func (p *Pool) addMessages(line int, messages []json.RawMessage) error {
	var only struct {
		Role    string `json:"role"`
		Content any    `json:"content"`
	}
	for i, message := range messages {
		only.Role, only.Content = "", nil
		if err := json.Unmarshal(message, &only); err != nil || only.Role == "" {
			return fmt.Errorf("messages[%d]: expected an object with a role", i)
		}
	}
	if text, ok := only.Content.(string); ok && len(messages) == 1 && only.Role == "user" && text != "" {
		p.entries = append(p.entries, poolEntry{line: line, text: text})
		return nil
	}
	raw, err := json.Marshal(messages)
	if err != nil {
		return fmt.Errorf("messages: %w", err)
	}
	p.entries = append(p.entries, poolEntry{line: line, messages: raw})
	return nil
}

// index is the prompt of a row: rows 0 to Len-1 take each prompt once, in an order that the seed decides, the next
// Len rows again each once in another order, and so on.
func (p *Pool) index(seed uint64, row int) int {
	n := len(p.entries)
	epoch := uint64(row / n) // #nosec G115 -- rows are not negative
	return permute(arrival.DeriveIndex(seed, epoch), n, row%n)
}

// permute gives element i of a permutation of 0 to n-1 that a key names, without making the permutation: a Feistel
// network on the smallest even number of bits that holds n, walked until the value is below n (J. Black, P. Rogaway,
// "Ciphers with arbitrary finite domains", CT-RSA 2002). The domain is less than 4n, so four steps do on average.
func permute(key uint64, n, i int) int {
	const rounds = 8
	half := 1
	for 1<<(2*half) < n {
		half++
	}
	mask := uint64(1)<<half - 1
	x := uint64(i) // #nosec G115 -- an index
	for {
		left, right := x>>half, x&mask
		for round := range uint64(rounds) {
			left, right = right, left^(arrival.DeriveIndex(key+round<<32, right)&mask)
		}
		x = left<<half | right
		if x < uint64(n) { // #nosec G115 -- a length
			return int(x) // #nosec G115 -- below n
		}
	}
}

// fitter cuts or extends the prompts of a pool to a length, exactly, by a tiktoken encoding. What it learns about a
// prompt is kept, so that each is tokenized once.
type fitter struct {
	pool      *Pool
	tokenizer *tokens.Tokenizer
	builder   *tokens.Builder
	cuts      []fitCuts
}

// fitCuts are the places of a prompt where it may be cut: bytes before the cut, and tokens in them.
type fitCuts struct {
	once          sync.Once
	bytes, tokens []int
}

func newFitter(p *Pool, tokenizer *tokens.Tokenizer, builder *tokens.Builder) (*fitter, error) {
	for _, e := range p.entries {
		if e.messages != nil {
			return nil, fmt.Errorf("%s: prompt %d is a chat history: expected single texts, which alone can be fitted to a length", p.name, e.line)
		}
	}
	return &fitter{pool: p, tokenizer: tokenizer, builder: builder, cuts: make([]fitCuts, len(p.entries))}, nil
}

// fit gives prompt i with exactly n tokens: its beginning, and after it, as far as tokens are missing, words of the
// unit that seed and row name.
func (f *fitter) fit(i, n int, seed uint64, row int) string {
	text := f.pool.entries[i].text
	c := &f.cuts[i]
	c.once.Do(func() { c.bytes, c.tokens = f.cutPoints(text) })
	last := sort.SearchInts(c.tokens, n+1) - 1
	var kept string
	var have int
	if last >= 0 {
		kept, have = text[:c.bytes[last]], c.tokens[last]
	} else {
		kept, have = f.cutWithin(text[:c.bytes[0]], n)
	}
	if have == n {
		return kept
	}
	out := make([]byte, 0, len(kept)+f.builder.Size(n-have))
	return string(f.builder.Append(append(out, kept...), seed, uint64(row), n-have)) // #nosec G115 -- rows are not negative
}

// cutPoints finds where tokens never span: between a character and one space that another character follows. The
// patterns by which all the encodings split text take a space only in front of what follows it, or in a run of
// white space, so the tokens of the pieces add up to those of the whole.
func (f *fitter) cutPoints(text string) (ends, counts []int) {
	text = strings.TrimRight(text, whiteSpace)
	start, total := 0, 0
	add := func(end int) {
		total += f.tokenizer.Count(text[start:end])
		ends, counts, start = append(ends, end), append(counts, total), end
	}
	for i := 1; i+1 < len(text); i++ {
		if text[i] == ' ' && !isWhite(text[:i], true) && !isWhite(text[i+1:], false) {
			add(i)
		}
	}
	add(len(text))
	return ends, counts
}

// isWhite says whether the last (or the first) character is white space.
func isWhite(text string, last bool) bool {
	r, _ := utf8.DecodeRuneInString(text)
	if last {
		r, _ = utf8.DecodeLastRuneInString(text)
	}
	return strings.ContainsRune(whiteSpace, r)
}

// whiteSpace is what \s matches in the encodings' patterns.
const whiteSpace = " \t\n\v\f\r\u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"

// cutWithin cuts a text that has no space to cut at, such as one in Chinese or Japanese: at a token that ends with a
// character, and where what is left has no more than n tokens.
func (f *fitter) cutWithin(text string, n int) (kept string, have int) {
	ids := f.tokenizer.Encode(text)
	for k := min(n, len(ids)); k > 0; k-- {
		kept = strings.TrimRight(f.tokenizer.Decode(ids[:k]), whiteSpace)
		if !strings.HasPrefix(text, kept) || !utf8.ValidString(kept) {
			continue
		}
		if have = f.tokenizer.Count(kept); have <= n {
			return kept, have
		}
	}
	return "", 0
}
