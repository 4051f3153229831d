package wire

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

const (
	// maxMessageBytes bounds what an error repeats of a server's message.
	maxMessageBytes = 512
	// maxExcerptBytes bounds what a decode error shows of the data at fault.
	maxExcerptBytes = 120
	// maxScanBytes bounds what is looked at to make either.
	maxScanBytes = 4 << 10
)

// Error is why an answer failed.
type Error struct {
	Type ErrorType
	// Status is the HTTP status of an answer that was refused; 0 for an error inside an answer with status 200.
	Status int
	// Code and Kind are the server's own, where it gives them: OpenAI calls them `code` (a word or a number) and `type`.
	Code, Kind string
	// Message is the server's own, or what is wrong with the answer. It is at most some 600 bytes long, on one line, and
	// free of what looks like a credential.
	Message string

	data  string // what Message is about, to be shown behind it; not tidied yet
	shows bool
}

// Error implements error.
func (e *Error) Error() string {
	var details []string
	if e.Status != 0 {
		details = append(details, "HTTP "+strconv.Itoa(e.Status))
	}
	if e.Code != "" && e.Code != strconv.Itoa(e.Status) {
		details = append(details, "code "+e.Code)
	}
	if e.Kind != "" && e.Kind != e.Code {
		details = append(details, e.Kind)
	}
	if len(details) == 0 {
		return fmt.Sprintf("%s: %s", e.Type, e.Message)
	}

	return fmt.Sprintf("%s (%s): %s", e.Type, strings.Join(details, ", "), e.Message)
}

// ErrorFromResponse makes an error of an answer whose HTTP status is not 200. The body may be JSON in any of the forms
// that servers use, HTML, plain text, or empty. A request that does not fit the model's context is ErrContextLength
// whatever status the server chose: llama.cpp answers 500, vLLM 400. A status below 400 is ErrDecode, since no API
// answers with one. The secrets are taken out of whatever the error repeats.
func ErrorFromResponse(status int, body []byte, secrets ...string) *Error {
	e := &Error{Type: typeOfStatus(status), Status: status}
	text := strings.TrimSpace(string(body))
	if report, ok := parseReport(text); ok {
		e.Code, e.Kind, e.Message = report.code, report.kind, report.message
	} else {
		e.Message = plainMessage(text)
	}
	if mayExceedContext(status) && exceedsContext(e.Code, e.Kind, e.Message) {
		e.Type = ErrContextLength
	}
	e.tidy(NewSecrets(secrets...))

	return e
}

func typeOfStatus(status int) ErrorType {
	switch {
	case status == http.StatusTooManyRequests:
		return ErrHTTP429
	case status >= 500:
		return ErrHTTP5xx
	case status >= 400:
		return ErrHTTP4xx
	default:
		return ErrDecode
	}
}

// describeStatus stands in for a message that is missing.
func describeStatus(status int) string {
	if status == 0 {
		return "the server reported an error without a message"
	}
	if text := http.StatusText(status); text != "" {
		return text + ", without a message"
	}

	return "no message"
}

// mayExceedContext leaves out the statuses that have a meaning of their own, whatever the message says.
func mayExceedContext(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests:
		return false
	default:
		return true
	}
}

// streamError makes an error of a report that came inside an answer with status 200. It is not tidied yet.
func streamError(r report) *Error {
	e := &Error{Type: ErrStream, Code: r.code, Kind: r.kind, Message: r.message}
	status, _ := strconv.Atoi(r.code) // many servers put a status there; a word is none
	if mayExceedContext(status) && exceedsContext(r.code, r.kind, r.message) {
		e.Type = ErrContextLength
	}

	return e
}

// decodeError says what is wrong with an answer and shows the beginning of it. It is not tidied yet.
func decodeError(problem, data string) *Error {
	return &Error{Type: ErrDecode, Message: problem, data: data, shows: true}
}

// tidy bounds the texts, without the secrets, and adds the remedy to a refusal that has one.
func (e *Error) tidy(secrets Secrets) {
	refused := refusesStreamOptions(e)
	e.Code, e.Kind = clean(e.Code, maxExcerptBytes, secrets), clean(e.Kind, maxExcerptBytes, secrets)
	e.Message = clean(e.Message, maxMessageBytes, secrets)
	if e.shows {
		e.Message += ": " + strconv.Quote(clean(e.data, maxExcerptBytes, secrets))
		e.data, e.shows = "", false
	}
	if e.Message == "" {
		e.Message = describeStatus(e.Status)
	}
	if refused {
		e.Message = "the server rejects stream_options, by which token usage is asked for; " +
			"set the client option `includeUsage: false`. It said: " + e.Message
	}
}

func refusesStreamOptions(e *Error) bool {
	if e.Status != 0 && (typeOfStatus(e.Status) != ErrHTTP4xx) {
		return false
	}
	text := strings.ToLower(e.Message)

	return slices.ContainsFunc([]string{"stream_options", "stream options", "include_usage"}, func(s string) bool {
		return strings.Contains(text, s)
	})
}

// report is what a server says about an error.
type report struct {
	code, kind, message string
}

// parseReport finds the error in a JSON body; ok is false for a body that is none.
func parseReport(text string) (r report, ok bool) {
	if !validJSON(text) {
		return report{}, false
	}
	root := gjson.Parse(text)
	if root.IsArray() { // Google wraps its error in a list
		root = root.Get("0")
	}
	switch {
	case root.Type == gjson.String:
		return report{message: root.Str}, true
	case !root.IsObject():
		return report{}, false
	}
	if inner := root.Get("error"); isError(inner) {
		return reportOf(inner, root), true
	}

	return reportOf(root, root), true
}

// isError says whether the value of an `error` field reports one: many servers send null in good answers.
func isError(v gjson.Result) bool {
	switch v.Type { //nolint:exhaustive // the rest reports an error
	case gjson.Null, gjson.False:
		return false
	case gjson.String:
		return v.Str != ""
	default:
		return true
	}
}

// reportOf reads an error object, or an error string that has its details beside it in the root, as TGI's has.
func reportOf(v, root gjson.Result) report {
	if !v.IsObject() {
		message := v.Str
		if message == "" {
			message = v.Raw
		}

		return report{code: labelOf(root.Get("code")), kind: labelOf(root.Get("error_type")), message: message}
	}
	r := report{
		code: firstLabel(v, "code", "http_status_code", "status_code"),
		kind: firstLabel(v, "type", "error_type", "status"),
	}
	for _, name := range []string{"message", "detail", "error", "msg", "reason"} {
		if r.message = messageOf(v.Get(name)); r.message != "" {
			break
		}
	}

	return r
}

// messageOf makes a sentence of a message: a string, FastAPI's list of {loc, msg}, or an object that holds either.
func messageOf(v gjson.Result) string {
	switch {
	case v.Type == gjson.String:
		return v.Str
	case v.IsArray():
		var parts []string
		for _, item := range v.Array() {
			if item.Type == gjson.String {
				parts = append(parts, item.Str)

				continue
			}
			var where []string
			for _, step := range member(item, "loc").Array() {
				where = append(where, labelOf(step))
			}
			parts = append(parts, strings.TrimPrefix(strings.Join(where, ".")+": "+labelOf(member(item, "msg")), ": "))
		}

		return strings.Join(parts, "; ")
	case v.IsObject():
		for _, name := range []string{"message", "detail"} {
			if inner := v.Get(name); inner.Exists() {
				return messageOf(inner)
			}
		}

		return v.Raw
	default:
		return ""
	}
}

func firstLabel(v gjson.Result, names ...string) string {
	for _, name := range names {
		if label := labelOf(v.Get(name)); label != "" {
			return label
		}
	}

	return ""
}

var htmlTitle = regexp.MustCompile(`(?is)<title[^>]*>(.*?)</title>`)

// plainMessage makes a message of a body that is not JSON. Of an HTML page, which a proxy wrote, only the title says
// anything.
func plainMessage(text string) string {
	if !strings.HasPrefix(text, "<") {
		return text
	}
	if title := htmlTitle.FindStringSubmatch(firstBytes(text, maxScanBytes)); title != nil {
		return "an HTML page: " + strings.TrimSpace(title[1])
	}

	return "an HTML page"
}

// contextCodes are the codes and types under which servers report a request that does not fit the context: OpenAI and
// Groq; llama.cpp.
var contextCodes = []string{"context_length_exceeded", "exceed_context_size_error"}

// contextPhrases are parts of the messages of servers that give no such code. Those that hold only numbers apart from
// common words are matched by their fixed parts.
var contextPhrases = []string{
	"context_length_exceeded",                    // llama.cpp (ik_llama.cpp), in the message
	"maximum context length",                     // OpenAI, vLLM, SGLang, DeepSeek, Mistral
	"maximum model length",                       // vLLM: "longer than the maximum model length of"
	"too long to fit into the model",             // vLLM before 0.8
	"model's context length",                     // SGLang: "is longer than the model's context length"
	"tokens) exceeds the maximum allowed length", // SGLang
	"available context size",                     // llama.cpp: "exceeds the available context size"
	"context size has been exceeded",             // llama.cpp
	"exceeds the context length",                 // Ollama
	"context length of only",                     // LM Studio
	"exceed context limit",                       // Anthropic: "input length and `max_tokens` exceed context limit"
	"prompt is too long",                         // Anthropic
	"input is too long for requested model",      // Bedrock
	"exceeds the context window",                 // OpenAI, responses
	"maximum prompt length",                      // xAI
	"exceeds the maximum number of tokens",       // Google
	"`max_new_tokens` must be <=",                // TGI: "`inputs` tokens + `max_new_tokens` must be <= 4096"
	"`inputs` must have less than",               // TGI
}

func exceedsContext(code, kind, message string) bool {
	if slices.Contains(contextCodes, code) || slices.Contains(contextCodes, kind) {
		return true
	}
	message = strings.ToLower(firstBytes(message, maxScanBytes))

	return slices.ContainsFunc(contextPhrases, func(phrase string) bool { return strings.Contains(message, phrase) })
}

// credential matches what a server may quote of a request's key: a bearer token, or a key with a well-known prefix.
var credential = regexp.MustCompile(`(?i)bearer\s+[^\s"',}]{8,}|\b(?:sk|gsk|hf|xai|nvapi)[-_][\w*.-]{16,}`)

// clean makes one short, safe line of what a server sent. What is secret goes before anything is cut: the beginning of a key is
// most of a key.
func clean(text string, limit int, secrets Secrets) string {
	if len(text) > maxScanBytes {
		text = secrets.hideCut(firstBytes(text, maxScanBytes))
	} else {
		text = secrets.Hide(text)
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	text = credential.ReplaceAllString(text, redacted)
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}), " ")
	if len(text) <= limit {
		return text
	}

	return firstBytes(text, limit) + "…"
}

// firstBytes cuts a text after at most limit bytes, between two characters.
func firstBytes(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	cut := limit
	for cut > limit-utf8.UTFMax && !utf8.RuneStart(text[cut]) {
		cut--
	}

	return text[:cut]
}
