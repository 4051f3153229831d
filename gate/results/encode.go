package results

import (
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// The keys of requests.jsonl, in the order in which they are written.
const (
	keyRow             = "row"
	keyAttempt         = "attempt"
	keyScenario        = "scenario"
	keyPhase           = "phase"
	keyStep            = "step"
	keyClass           = "class"
	keyModel           = "model"
	keyAPI             = "api"
	keyTurn            = "turn"
	keyRound           = "round"
	keyDue             = "due"
	keyStart           = "start"
	keyOutcome         = "outcome"
	keyErrorType       = "error_type"
	keyCancelPhase     = "cancel_phase"
	keyStatus          = "status"
	keyTTFT            = "ttft"
	keyTTFTText        = "ttft_text"
	keyTPOT            = "tpot"
	keyE2E             = "e2e"
	keyElapsed         = "elapsed"
	keyScheduleDelay   = "schedule_delay"
	keyOutputTPS       = "output_tps"
	keyITLP50          = "itl_p50"
	keyITLP99          = "itl_p99"
	keyITLMax          = "itl_max"
	keyITLCount        = "itl_n"
	keyChunks          = "chunks"
	keyPromptAsked     = "prompt_asked"
	keyPrompt          = "prompt"
	keyCompletionAsked = "completion_asked"
	keyCompletion      = "completion"
	keyCached          = "cached"
	keyReasoning       = "reasoning"
	keyTokenSource     = "token_source"
	keyGoodput         = "goodput"
	keyCost            = "cost"
	keyRequestID       = "request_id"
)

// AppendRequest appends r to b as one line of requests.jsonl, with its newline. It does not allocate beyond b.
func AppendRequest(b []byte, r *Request) []byte {
	b = append(b, '{')
	if r.Row >= 0 {
		b = appendInt(b, keyRow, r.Row)
	}
	if r.Attempt > 1 {
		b = appendInt(b, keyAttempt, int64(r.Attempt))
	}
	b = appendText(b, keyScenario, r.Scenario)
	b = appendText(b, keyPhase, r.Phase)
	b = appendText(b, keyStep, r.Step)
	b = appendText(b, keyClass, r.Class)
	b = appendText(b, keyModel, r.Model)
	b = appendText(b, keyAPI, r.API)
	b = appendPositive(b, keyTurn, r.Turn)
	b = appendPositive(b, keyRound, r.Round)
	b = appendTime(b, keyDue, r.Due)
	b = appendTime(b, keyStart, r.Start)
	b = appendText(b, keyOutcome, r.Outcome.String())
	b = appendText(b, keyErrorType, r.ErrorType)
	b = appendText(b, keyCancelPhase, r.CancelPhase)
	b = appendPositive(b, keyStatus, int64(r.Status))
	b = appendNumber(b, keyTTFT, r.TTFT)
	b = appendNumber(b, keyTTFTText, r.TTFTText)
	b = appendNumber(b, keyTPOT, r.TPOT)
	b = appendNumber(b, keyE2E, r.E2E)
	b = appendNumber(b, keyElapsed, r.Elapsed)
	b = appendNumber(b, keyScheduleDelay, r.ScheduleDelay)
	b = appendNumber(b, keyOutputTPS, r.OutputTPS)
	b = appendNumber(b, keyITLP50, r.ITLP50)
	b = appendNumber(b, keyITLP99, r.ITLP99)
	b = appendNumber(b, keyITLMax, r.ITLMax)
	b = appendPositive(b, keyITLCount, r.ITLCount)
	b = appendPositive(b, keyChunks, r.Chunks)
	b = appendCount(b, keyPromptAsked, r.PromptAsked)
	b = appendCount(b, keyPrompt, r.Prompt)
	b = appendCount(b, keyCompletionAsked, r.CompletionAsked)
	b = appendCount(b, keyCompletion, r.Completion)
	b = appendCount(b, keyCached, r.Cached)
	b = appendCount(b, keyReasoning, r.Reasoning)
	b = appendText(b, keyTokenSource, r.TokenSource)
	if r.Goodput != FlagAbsent {
		b = appendKey(b, keyGoodput)
		b = strconv.AppendBool(b, r.Goodput == FlagYes)
	}
	b = appendNumber(b, keyCost, r.Cost)
	b = appendText(b, keyRequestID, r.RequestID)
	return append(b, '}', '\n')
}

func appendKey(b []byte, key string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, key...)
	return append(b, '"', ':')
}

func appendInt(b []byte, key string, v int64) []byte {
	return strconv.AppendInt(appendKey(b, key), v, 10)
}

func appendPositive(b []byte, key string, v int64) []byte {
	if v <= 0 {
		return b
	}
	return appendInt(b, key, v)
}

func appendCount(b []byte, key string, v Int) []byte {
	if !v.Known {
		return b
	}
	return appendInt(b, key, v.Value)
}

// thousandths is the resolution of durations in the file: a microsecond. Times are not known better than that,
// and a short decimal is quicker to write and to read than a shortest-representation float.
const thousandths = 1000

func appendNumber(b []byte, key string, v Number) []byte {
	if !v.Known || math.IsNaN(v.Value) || math.IsInf(v.Value, 0) {
		return b
	}
	return appendDecimal(appendKey(b, key), v.Value)
}

// appendDecimal writes v with at most three decimals; what is small or huge is written in full.
func appendDecimal(b []byte, v float64) []byte {
	abs := math.Abs(v)
	if abs != 0 && (abs < 1 || abs > 1e12) {
		return strconv.AppendFloat(b, v, 'g', 6, 64)
	}
	if v < 0 {
		b = append(b, '-')
	}
	scaled := uint64(math.Round(abs * thousandths))
	b = strconv.AppendUint(b, scaled/thousandths, 10)
	fraction := scaled % thousandths
	if fraction == 0 {
		return b
	}
	b = append(b, '.', byte('0'+fraction/100))
	if fraction%100 != 0 {
		b = append(b, byte('0'+fraction/10%10))
	}
	if fraction%10 != 0 {
		b = append(b, byte('0'+fraction%10))
	}
	return b
}

// appendTime writes t in UTC as RFC 3339 with nine decimals, always 30 characters for the years 0 to 9999.
func appendTime(b []byte, key string, t time.Time) []byte {
	if t.IsZero() {
		return b
	}
	b = append(appendKey(b, key), '"')
	b = t.UTC().AppendFormat(b, "2006-01-02T15:04:05.000000000Z")
	return append(b, '"')
}

func appendText(b []byte, key, text string) []byte {
	if text == "" {
		return b
	}
	return appendQuoted(appendKey(b, key), text)
}

const hexDigits = "0123456789abcdef"

// appendQuoted writes text as a JSON string. Invalid UTF-8 becomes U+FFFD, as in encoding/json.
func appendQuoted(b []byte, text string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(text[i:])
			if r == utf8.RuneError && size == 1 {
				b = append(b, text[start:i]...)
				b = append(b, "\ufffd"...)
				start = i + 1
			}
			i += size
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		b = append(b, text[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
		}
		i++
		start = i
	}
	b = append(b, text[start:]...)
	return append(b, '"')
}
