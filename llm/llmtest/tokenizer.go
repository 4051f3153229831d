package llmtest

import (
	"unicode"
	"unicode/utf8"
)

// The simulated model's tokenizer cuts text by these rules, left to right, and nothing else:
//
//  1. A run of letters and digits is cut into pieces of at most MaxPieceLen characters; one space directly before the
//     run belongs to its first piece and does not count.
//  2. Any other visible character is a token of its own, with one space directly before it.
//  3. White space that is left over is cut into pieces of at most MaxPieceLen characters.
//
// It follows that every byte belongs to exactly one token, that an ordinary English word of up to eight letters is one
// token, and that appending text to a text changes at most its last token.
//
// The chat template adds MessageOverhead tokens to each message (start, role, separator, end) and ReplyOverhead tokens at
// the end (start, role, separator), which begin the reply. There is no token for the beginning of a text, so
// add_special_tokens changes nothing.
const (
	MaxPieceLen     = 8
	MessageOverhead = 4
	ReplyOverhead   = 3
)

// Token ids: those below firstTextToken are special; a text token's id is a hash of its bytes.
const (
	tokenStart uint32 = iota
	tokenEnd
	tokenSeparator
	firstTextToken
)

// tokenIDs is the number of ids: like vLLM's, they are non-negative 32-bit numbers.
const tokenIDs = 1 << 31

// CountTokens is the number of tokens of a text.
func CountTokens(text string) int {
	n := 0
	for len(text) > 0 {
		text = text[tokenLen(text):]
		n++
	}
	return n
}

// Tokenize appends the token ids of a text to dst. Ids depend on the token's bytes alone.
func Tokenize(dst []uint32, text string) []uint32 {
	for len(text) > 0 {
		n := tokenLen(text)
		dst = append(dst, tokenID(text[:n]))
		text = text[n:]
	}
	return dst
}

// SplitTokens gives the text of each token; joined, they are the text.
func SplitTokens(text string) []string {
	var out []string
	for len(text) > 0 {
		n := tokenLen(text)
		out = append(out, text[:n])
		text = text[n:]
	}
	return out
}

// tokenID hashes a token's bytes (FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv/).
func tokenID(token string) uint32 {
	h := uint32(2166136261)
	for i := range len(token) {
		h = (h ^ uint32(token[i])) * 16777619
	}
	return firstTextToken + h%(tokenIDs-firstTextToken)
}

// tokenLen is the length in bytes of the token with which a non-empty text begins.
func tokenLen(text string) int {
	start := 0
	if text[0] == ' ' && len(text) > 1 {
		start = 1
	}
	r, size := decodeRune(text[start:])
	switch {
	case isWord(r):
		return start + pieceLen(text[start:], isWord)
	case !unicode.IsSpace(r):
		return start + size
	}
	return spaceLen(text)
}

// spaceLen is the length of a piece of white space. A space before something visible is left to that.
func spaceLen(text string) int {
	n := pieceLen(text, unicode.IsSpace)
	if n < len(text) && n > 1 && text[n-1] == ' ' {
		if r, _ := decodeRune(text[n:]); !unicode.IsSpace(r) {
			n--
		}
	}
	return n
}

// pieceLen is the length in bytes of up to MaxPieceLen leading characters of a class.
func pieceLen(text string, class func(rune) bool) int {
	n := 0
	for range MaxPieceLen {
		r, size := decodeRune(text[n:])
		if size == 0 || !class(r) {
			break
		}
		n += size
	}
	return n
}

func decodeRune(text string) (rune, int) {
	if len(text) > 0 && text[0] < utf8.RuneSelf {
		return rune(text[0]), 1
	}
	return utf8.DecodeRuneInString(text)
}

func isWord(r rune) bool {
	if r < utf8.RuneSelf {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	}
	return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
}

// blockContents identifies the full blocks of a token sequence by content.
func blockContents(tokens []uint32, blockSize int) []uint64 {
	out := make([]uint64, 0, len(tokens)/blockSize)
	for len(tokens) >= blockSize {
		var h uint64
		for _, t := range tokens[:blockSize] {
			h = mix64(h + 0x9e3779b97f4a7c15 + uint64(t))
		}
		out = append(out, h)
		tokens = tokens[blockSize:]
	}
	return out
}
