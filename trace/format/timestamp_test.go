package format

import (
	"fmt"
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestParseDecimal(t *testing.T) {
	for _, c := range []struct {
		text     string
		exponent int
		want     int64
		exact    bool
		err      error
	}{
		{"0", 9, 0, true, nil},
		{"0.000", 9, 0, true, nil},
		{"-0", 9, 0, true, nil},
		{"61.114", 9, 61_114_000_000, true, nil},
		{"1753780607550317897", 0, 1753780607550317897, true, nil}, // a float64 would end in 952
		{"1753780607.550317897", 9, 1753780607550317897, true, nil},
		{"0.0000000005", 9, 1, false, nil},
		{"0.00000000049", 9, 0, false, nil},
		{"0.00000000004", 9, 0, false, nil},
		{"0.00000000009", 9, 0, false, nil},
		{"1.5e3", 6, 1_500_000_000, true, nil},
		{"15E-1", 0, 2, false, nil},
		{"14E-1", 0, 1, false, nil},
		{"472.0", 0, 472, true, nil},
		{"0.12345678901234567890123456789", 9, 123456789, false, nil},
		{"9223372036854775807", 0, math.MaxInt64, true, nil},
		{"9223372036854775808", 0, 0, false, errTooLarge},
		{"99999999999999999999999", 0, 0, false, errTooLarge},
		{"1e99999999999999999999", 0, 0, false, errTooLarge},
		{"-1", 0, 0, false, errNegative},
		{"nan", 0, 0, false, errNotFinite},
		{"-Infinity", 0, 0, false, errNotFinite},
		{"", 0, 0, false, errMissing},
		{"-", 0, 0, false, errNotNumber},
		{"1x", 0, 0, false, errNotNumber},
		{"1.2.3", 0, 0, false, errNotNumber},
		{"1e", 0, 0, false, errNotNumber},
		{"true", 0, 0, false, errNotNumber},
	} {
		got, exact, _, err := parseDecimal(c.text, c.exponent)
		require.Equal(t, c.err, err, c.text)
		require.Equal(t, c.want, got, c.text)
		if err == nil {
			require.Equal(t, c.exact, exact, c.text)
		}
	}
}

// The digit arithmetic agrees with exact rational arithmetic.
func TestParseDecimalAgainstRationals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := fmt.Sprintf("%d.%s", rapid.Int64Range(0, 9_000_000_000).Draw(t, "whole"), rapid.StringMatching(`[0-9]{1,25}`).Draw(t, "fraction"))
		exponent := rapid.SampledFrom([]int{0, 3, 6, 9}).Draw(t, "exponent")
		got, exact, _, err := parseDecimal(text, exponent)
		require.NoError(t, err)
		r, ok := new(big.Rat).SetString(text)
		require.True(t, ok)
		r.Mul(r, new(big.Rat).SetInt64(int64(math.Pow10(exponent))))
		require.Equal(t, r.IsInt(), exact, text)
		r.Add(r, big.NewRat(1, 2))
		want := new(big.Int).Quo(r.Num(), r.Denom())
		require.Equal(t, want.Int64(), got, text)
	})
}

func TestParseWallClock(t *testing.T) {
	at := func(hour, minute, sec, ns int) int64 {
		return time.Date(2023, 11, 16, hour, minute, sec, ns, time.UTC).UnixNano()
	}
	for _, c := range []struct {
		text string
		want int64
	}{
		{"2023-11-16 18:15:46.6805900", at(18, 15, 46, 680590000)},
		{"2023-11-16T18:15:46Z", at(18, 15, 46, 0)},
		{"2023-11-16 18:15:46 UTC", at(18, 15, 46, 0)},
		{"2023-11-16T18:15:46.1234567899+02:30", at(15, 45, 46, 123456789)},
		{"2023-11-16T18:15:46-0100", at(19, 15, 46, 0)},
		{"2023-11-16 18:15:46.009930+00", at(18, 15, 46, 9930000)},
	} {
		got, _, err := parseWallClock(c.text)
		require.NoError(t, err, c.text)
		require.Equal(t, c.want, got, c.text)
	}
	for _, bad := range []string{
		"", "2023-11-16", "2023-11-16 18:15", "2023-02-30 00:00:00", "2023-11-16 24:00:00", "2023-11-16 18:60:46", "2023-13-16 18:15:46",
		"2023-11-16 18:15:46.", "2023-11-16 18:15:46x", "2023-11-16 18:15:46+25:00", "2023-11-16 18:15:46+1", "2o23-11-16 18:15:46",
		"1969-12-31 23:59:59", "2262-01-01 00:00:00", "1970-01-01 00:00:00+01:00", "2023-11-16 18:15:60",
	} {
		_, _, err := parseWallClock(bad)
		require.Error(t, err, bad)
	}
}

func TestDetectUnit(t *testing.T) {
	for _, c := range []struct {
		sample     []string
		documented Unit
		header     string
		want       Unit
	}{
		{[]string{"0", "3000"}, Milliseconds, "timestamp", Milliseconds},
		{[]string{"0.5", "3000.25"}, Milliseconds, "timestamp", Milliseconds},
		{[]string{"0.1", "0.2", "0.25"}, Milliseconds, "timestamp", Seconds},
		{[]string{"1753780607"}, Milliseconds, "timestamp", Seconds},
		{[]string{"1753780607.25"}, "", "ts", Seconds},
		{[]string{"1753780607550"}, "", "ts", Milliseconds},
		{[]string{"1753780607550317"}, "", "ts", Microseconds},
		{[]string{"1753780607550317897"}, "", "ts", Nanoseconds},
		{[]string{"5", "9"}, "", "ts_ns", Nanoseconds},
		{[]string{"5", "9"}, "", "Time (s)", Seconds},
		{[]string{"5.5", "9"}, "", "ts", Seconds},
		{[]string{"2023-11-16 18:15:46"}, Milliseconds, "timestamp_s", WallClock},
		{nil, Seconds, "timestamp", Seconds},
	} {
		got, reason, err := detectUnit(c.sample, c.documented, c.header)
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%v", c)
		require.NotEmpty(t, reason)
	}
	for _, sample := range [][]string{nil, {"5", "9"}, {"soon"}} {
		_, _, err := detectUnit(sample, "", "ts")
		require.Error(t, err)
	}
}

func TestUnixNanosecondsKeepTheirDigits(t *testing.T) {
	trace := readString(t, `{"timestamp":"1753780607550317897","input_length":5,"output_length":6}`+"\n"+
		`{"timestamp":"1753780607550317999","input_length":5,"output_length":6}`+"\n", Options{})
	require.Equal(t, Nanoseconds, trace.Unit)
	require.Equal(t, []time.Duration{0, 102}, dues(trace))
	require.Equal(t, int64(1753780607550317897), trace.Origin.UnixNano())
}
