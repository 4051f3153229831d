package format

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

var (
	errMissing   = errors.New("missing")
	errNotNumber = errors.New("not a number")
	errNotFinite = errors.New("not a finite number")
	errNegative  = errors.New("negative")
	errTooLarge  = errors.New("too large")
	errNotWhole  = errors.New("not a whole number")
)

// parseDecimal reads a non-negative JSON-style number times 10^exponent as an integer, rounded half up.
// It works on the digits: a Unix time in nanoseconds has more digits than a float64 keeps. exact says
// that nothing was rounded away, fraction how many digits stood behind the point.
func parseDecimal(text string, exponent int) (value int64, exact bool, fraction int, err error) {
	s := text
	negative := strings.HasPrefix(s, "-")
	if negative {
		s = s[1:]
	}
	var mantissa uint64
	digits, scale, i := 0, exponent, 0
	seenPoint, lostDigits, roundUp := false, false, false
	for ; i < len(s); i++ {
		c := s[i]
		if c == '.' && !seenPoint {
			seenPoint = true
			continue
		}
		if c < '0' || c > '9' {
			break
		}
		digits++
		if seenPoint {
			fraction++
		}
		if mantissa > (math.MaxUint64-9)/10 {
			// Digits past the 19th are below a nanosecond of any time that fits; only their weight counts.
			if !lostDigits {
				roundUp = c >= '5'
			}
			lostDigits = true
			if !seenPoint {
				scale++
			}
			continue
		}
		mantissa = mantissa*10 + uint64(c-'0')
		if seenPoint {
			scale--
		}
	}
	if digits == 0 {
		switch strings.ToLower(strings.TrimPrefix(s, "+")) {
		case "nan", "inf", "infinity":
			return 0, false, 0, errNotFinite
		case "":
			if !negative {
				return 0, false, 0, errMissing
			}
		}
		return 0, false, 0, errNotNumber
	}
	if i < len(s) {
		if s[i] != 'e' && s[i] != 'E' {
			return 0, false, 0, errNotNumber
		}
		e, convErr := strconv.Atoi(s[i+1:])
		if convErr != nil {
			if errors.Is(convErr, strconv.ErrRange) {
				return 0, false, 0, errTooLarge
			}
			return 0, false, 0, errNotNumber
		}
		if e > 400 || e < -400 {
			return 0, false, 0, errTooLarge
		}
		scale += e
	}
	if mantissa == 0 {
		return 0, true, fraction, nil
	}
	if negative {
		return 0, false, 0, errNegative
	}
	exact = !lostDigits
	for ; scale > 0; scale-- {
		if mantissa > math.MaxInt64/10 {
			return 0, false, 0, errTooLarge
		}
		mantissa *= 10
		roundUp = false
	}
	for ; scale < 0; scale++ {
		last := mantissa % 10
		exact = exact && last == 0
		roundUp = last >= 5
		mantissa /= 10
		if mantissa == 0 && scale < -1 {
			roundUp = false
			break
		}
	}
	if roundUp {
		mantissa++
	}
	if mantissa > math.MaxInt64 {
		return 0, false, 0, errTooLarge
	}
	return int64(mantissa), exact, fraction, nil
}

// parseCount reads a token count. A whole number written as a float (472.0, as pandas does) is accepted.
func parseCount(text string) (int32, error) {
	n, exact, _, err := parseDecimal(text, 0)
	if err != nil {
		return 0, err
	}
	if !exact {
		return 0, errNotWhole
	}
	if n > math.MaxInt32 {
		return 0, errTooLarge
	}
	return int32(n), nil // #nosec G115 -- checked above
}

// parseWallClock reads "2023-11-16 18:15:46.6805900", with a T for the space, and with Z, +hh:mm, +hhmm,
// +hh or " UTC" behind it; no zone means UTC. It returns Unix nanoseconds: digits past the ninth are
// cut. fraction is the number of fractional digits.
func parseWallClock(text string) (ns int64, fraction int, err error) {
	bad := fmt.Errorf("not a date and time such as 2023-11-16 18:15:46.68")
	s := text
	if len(s) < 19 || s[4] != '-' || s[7] != '-' || (s[10] != ' ' && s[10] != 'T' && s[10] != 't') || s[13] != ':' || s[16] != ':' {
		return 0, 0, bad
	}
	var n [6]int
	for i, field := range []string{s[0:4], s[5:7], s[8:10], s[11:13], s[14:16], s[17:19]} {
		for _, c := range []byte(field) {
			if c < '0' || c > '9' {
				return 0, 0, bad
			}
			n[i] = n[i]*10 + int(c-'0')
		}
	}
	s = s[19:]
	nanos := 0
	if strings.HasPrefix(s, ".") {
		s = s[1:]
		weight := 100_000_000
		for len(s) > 0 && s[0] >= '0' && s[0] <= '9' {
			nanos += int(s[0]-'0') * weight
			weight /= 10
			fraction++
			s = s[1:]
		}
		if fraction == 0 {
			return 0, 0, bad
		}
	}
	offset, ok := parseZone(s)
	if !ok {
		return 0, 0, bad
	}
	t := time.Date(n[0], time.Month(n[1]), n[2], n[3], n[4], n[5], nanos, time.UTC)
	// time.Date carries the 31st of June over to July; a trace that says so is wrong.
	if t.Month() != time.Month(n[1]) || t.Day() != n[2] || t.Hour() != n[3] || t.Minute() != n[4] || t.Second() != n[5] {
		return 0, 0, fmt.Errorf("no such date or time of day")
	}
	if n[0] < 1970 || n[0] > 2261 {
		return 0, 0, fmt.Errorf("year %d: expected 1970 to 2261", n[0])
	}
	ns = t.Add(-offset).UnixNano()
	if ns < 0 {
		return 0, 0, fmt.Errorf("before 1970-01-01 UTC")
	}
	return ns, fraction, nil
}

func parseZone(s string) (time.Duration, bool) {
	switch s {
	case "", "Z", "z", " UTC":
		return 0, true
	}
	digits := strings.Replace(s[1:], ":", "", 1)
	if (s[0] != '+' && s[0] != '-') || (len(digits) != 4 && len(digits) != 2) {
		return 0, false
	}
	hhmm, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return 0, false
	}
	if len(digits) == 2 {
		hhmm *= 100
	}
	if hhmm/100 > 23 || hhmm%100 > 59 {
		return 0, false
	}
	offset := time.Duration(hhmm/100)*time.Hour + time.Duration(hhmm%100)*time.Minute //nolint:gosec // at most 23:59
	if s[0] == '-' {
		offset = -offset
	}
	return offset, true
}

// parseTimestamp reads a timestamp of a known unit as nanoseconds since the file's zero or since 1970.
func parseTimestamp(text string, unit Unit) (ns int64, fraction int, err error) {
	if unit == WallClock {
		return parseWallClock(text)
	}
	ns, _, fraction, err = parseDecimal(text, unit.exponent())
	return ns, fraction, err
}

// implausibleRate is the arrival rate, in requests per second, from which on a reading of relative
// timestamps as milliseconds is taken to be wrong and seconds are meant.
const implausibleRate = 10_000

// errNoTimestamp is wrapped where no timestamp of a sample can be read.
var errNoTimestamp = errors.New("no timestamp could be read to tell their unit by")

// detectUnit decides the unit of a sample of timestamps, of which some may be bad. documented is the unit that the form's
// documentation gives, "" when it gives none; header is the timestamp column's or key's name.
func detectUnit(sample []string, documented Unit, header string) (Unit, string, error) {
	first, firstDate, dates := "", "", 0
	low, high, n, fractional := math.Inf(1), math.Inf(-1), 0, false
	for _, text := range sample {
		if _, _, err := parseWallClock(text); err == nil {
			if dates++; dates == 1 {
				firstDate = text
			}
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		if n++; n == 1 {
			first = text
		}
		low, high = math.Min(low, v), math.Max(high, v)
		fractional = fractional || v != math.Trunc(v)
	}
	switch {
	case n+dates == 0 && documented != "":
		return documented, "documented for this format", nil
	case n+dates == 0:
		return "", "", errNoTimestamp
	case dates >= n:
		return WallClock, fmt.Sprintf("timestamps such as %q are dates", firstDate), nil
	}
	if unit, ok := unitFromHeader(header); ok {
		return unit, fmt.Sprintf("the name %q says so", header), nil
	}
	if unit, ok := unitOfUnixTime(low); ok {
		return unit, fmt.Sprintf("timestamps such as %s are Unix times in %s", first, unit), nil
	}
	if documented == Milliseconds && fractional {
		// vLLM's timed_trace has Mooncake's keys but leaves the unit to the user, often seconds.
		if rate := float64(n-1) * 1000 / (high - low); high > low && rate > implausibleRate {
			return Seconds, fmt.Sprintf("timestamps have fractions, and as ms they would mean %.0f requests/s", rate), nil
		}
		return Milliseconds, "documented for this format, and plausible; if the fractions mean seconds, state the unit", nil
	}
	if documented != "" {
		return documented, "documented for this format", nil
	}
	if fractional {
		return Seconds, "small numbers with fractions; if they are not seconds, state the unit", nil
	}
	return "", "", fmt.Errorf("cannot tell the unit of timestamps such as %s: state it (ns, us, ms or s)", first)
}

// unitOfUnixTime recognises an absolute time by its size: the years 2001 to 2100 do not overlap between
// units, and a relative time is not that long.
func unitOfUnixTime(v float64) (Unit, bool) {
	const year2001, year2100 = 1e9, 4.1e9
	for _, u := range []Unit{Seconds, Milliseconds, Microseconds, Nanoseconds} {
		perSecond := math.Pow10(9 - u.exponent())
		if v >= year2001*perSecond && v <= year2100*perSecond {
			return u, true
		}
	}
	return "", false
}

func unitFromHeader(header string) (Unit, bool) {
	h := strings.ToLower(header)
	for _, s := range []struct {
		suffix string
		unit   Unit
	}{
		{"_ns", Nanoseconds},
		{"_us", Microseconds},
		{"_ms", Milliseconds},
		{"_s", Seconds},
		{"_sec", Seconds},
		{"_seconds", Seconds},
		{"(s)", Seconds},
		{"(ms)", Milliseconds},
	} {
		if strings.HasSuffix(h, s.suffix) {
			return s.unit, true
		}
	}
	return "", false
}
