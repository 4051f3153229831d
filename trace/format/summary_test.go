package format

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/stat/distuv"
)

func TestSummarizeByHand(t *testing.T) {
	trace := &Trace{
		BlockSize: 4,
		Rows: []Row{
			{Due: 0, InputTokens: 6, OutputTokens: 10, HashIDs: []uint64{1, 2}, Class: "a"},
			{Due: 1 * time.Second, InputTokens: 9, OutputTokens: 30, HashIDs: []uint64{1, 3, 2}, Class: "b"},
			{Due: 3 * time.Second, InputTokens: 8, OutputTokens: 20, HashIDs: []uint64{1, 3}, Class: "a"},
			{Due: 6 * time.Second, InputTokens: 1, OutputTokens: 20, Class: "a", Extra: &Extra{Session: "x"}},
		},
	}
	s := Summarize(trace)
	require.Equal(t, 4, s.Rows)
	require.InDelta(t, 6, s.SpanS, 0)
	require.InDelta(t, 0.5, s.Rate.Mean, 1e-12)
	require.InDelta(t, 1, *s.Rate.Peak1s, 0)
	require.Nil(t, s.Rate.Peak10s, "the span is shorter")
	require.InDelta(t, 2000, s.Gaps.MeanMs, 1e-9)
	require.InDelta(t, 0.5, s.Gaps.CV, 1e-12) // gaps 1, 2, 3: deviation 1, mean 2
	require.InDelta(t, 4, *s.Gaps.BurstinessMoment, 1e-9)
	require.Nil(t, s.Batches)
	require.Empty(t, s.Dispersion, "six windows are too few")
	require.Equal(t, &TokenStats{
		N: 4, Mean: 6, Total: 24, P1: 1, P5: 1, P25: 1, P50: 6, P75: 8, P90: 9, P95: 9, P99: 9, Max: 9,
		Histogram: []Bin{{1, 1, 1}, {2, 3, 0}, {4, 7, 1}, {8, 15, 2}},
	}, s.Input)
	require.Equal(t, int32(20), s.Output.P50)
	// in 6,9,8,1 (mean 6), out 10,30,20,20 (mean 20): cov sum 30, squares 38 and 200.
	require.InDelta(t, 30/math.Sqrt(38*200), s.Correlation.Pearson, 1e-12)
	// ranks in 1,3,2,0 and out 0,3,1.5,1.5 about 1.5: products 0.75+2.25+0+0, squares 5 and 4.5.
	require.InDelta(t, 3/math.Sqrt(5*4.5), s.Correlation.Spearman, 1e-12)
	require.Equal(t, &Prefix{
		RowsWithIDs: 3, Blocks: 7, BlocksHit: 3, BlocksSeen: 4, UniqueBlocks: 3, Tokens: 24, TokensHit: 4 + 4 + 4,
		HitRatio: 3.0 / 7, TokenHitRatio: 12.0 / 24,
	}, s.Prefix, "all rows' tokens, and block 2 came back after another prefix")
	require.Equal(t, "coarse_timestamps", s.Oddities[0].Kind, "whole seconds")
	require.Equal(t, "unchained_hash_ids", s.Oddities[1].Kind, "block 2 came back after another prefix")
	require.Equal(t, []ClassShare{{"a", 3, 0.75}, {"b", 1, 0.25}}, s.Classes)
	require.Equal(t, 1, s.Sessions)
	require.Len(t, s.Timeline.Counts, 60)
	require.Equal(t, 1, s.Timeline.Counts[10])
	require.Equal(t, 1, s.Timeline.Counts[59])
}

// Sparse 64-bit ids give the same ratios as numbered ones.
func TestPrefixIsWhatACacheServes(t *testing.T) {
	for _, c := range []struct {
		name      string
		rows      []Row
		blocksHit int
		seen      int
		tokensHit int64
		tokens    int64
	}{
		{"the same beginning", []Row{{InputTokens: 8, HashIDs: []uint64{1, 2}}, {InputTokens: 8, HashIDs: []uint64{1, 3}}}, 1, 1, 4, 16},
		{"known blocks in another order", []Row{{InputTokens: 8, HashIDs: []uint64{1, 2}}, {InputTokens: 8, HashIDs: []uint64{2, 1}}}, 0, 2, 0, 16},
		{"each known at a beginning, not one after the other", []Row{
			{InputTokens: 8, HashIDs: []uint64{1, 3}}, {InputTokens: 8, HashIDs: []uint64{2, 4}}, {InputTokens: 8, HashIDs: []uint64{2, 1}},
		}, 1, 2, 4, 24},
		{"another order, again", []Row{
			{InputTokens: 8, HashIDs: []uint64{1, 2}}, {InputTokens: 8, HashIDs: []uint64{2, 1}}, {InputTokens: 8, HashIDs: []uint64{2, 1}},
		}, 2, 4, 8, 24},
		{"rows without ids are input too", []Row{{InputTokens: 4, HashIDs: []uint64{1}}, {InputTokens: 4, HashIDs: []uint64{1}}, {InputTokens: 92}}, 1, 1, 4, 100},
		{"unknown lengths are none", []Row{{InputTokens: 4, HashIDs: []uint64{1}}, {InputTokens: 4, HashIDs: []uint64{1}}, {InputTokens: Unknown}}, 1, 1, 4, 8},
		{"a block of which a part is cached", []Row{{InputTokens: 3, HashIDs: []uint64{1}}, {InputTokens: 8, HashIDs: []uint64{1, 2}}, {InputTokens: 6, HashIDs: []uint64{1, 2}}}, 2, 3, 3 + 6, 17},
	} {
		for _, scale := range []uint64{1, 1 << 60} {
			rows := make([]Row, len(c.rows))
			for i, r := range c.rows {
				rows[i] = r
				rows[i].HashIDs = nil
				for _, id := range r.HashIDs {
					rows[i].HashIDs = append(rows[i].HashIDs, id*scale)
				}
			}
			p := Summarize(&Trace{BlockSize: 4, Rows: rows}).Prefix
			require.Equal(t, []int64{int64(c.blocksHit), int64(c.seen), c.tokensHit, c.tokens},
				[]int64{int64(p.BlocksHit), int64(p.BlocksSeen), p.TokensHit, p.Tokens}, c.name)
			require.InDelta(t, float64(c.tokensHit)/float64(c.tokens), p.TokenHitRatio, 1e-12, c.name)
			require.InDelta(t, float64(c.blocksHit)/float64(p.Blocks), p.HitRatio, 1e-12, c.name)
			require.Equal(t, p.Blocks, p.BlocksSeen+p.UniqueBlocks, c.name)
		}
	}
}

// Gaps drawn from a Gamma distribution give its shape back. The tolerance is four standard errors of the
// MLE: sd(k) = sqrt(k / (n (k ψ'(k) - 1))), about 2 % of k here.
func TestBurstinessOfKnownProcesses(t *testing.T) {
	for _, k := range []float64{0.7, 1, 4} {
		src := rand.NewPCG(7, uint64(k*100))
		gamma := distuv.Gamma{Alpha: k, Beta: k * 10, Src: src}
		trace, at := &Trace{}, 0.0
		for range 20_000 {
			trace.Rows = append(trace.Rows, Row{Due: time.Duration(at * 1e9), InputTokens: 1, OutputTokens: 1})
			at += gamma.Rand()
		}
		s := Summarize(trace)
		require.InEpsilon(t, k, *s.Gaps.BurstinessMLE, 0.05)
		require.InEpsilon(t, k, *s.Gaps.BurstinessMoment, 0.12)
		require.InEpsilon(t, 1/math.Sqrt(k), s.Gaps.CV, 0.06)
		require.InEpsilon(t, 10, s.Rate.Mean, 0.06)
		// Over windows of many arrivals the dispersion of a renewal process tends to CV² = 1/k.
		ten := s.Dispersion[1]
		require.InDelta(t, 10, ten.WindowS, 0)
		require.InEpsilon(t, 1/k, ten.Index, 0.4)
		require.Nil(t, s.Correlation, "all lengths are equal")
	}
}

// A gap that rounds to 0 ns has no likelihood under a Gamma distribution; the moments still stand.
func TestZeroGapsHaveNoLikelihood(t *testing.T) {
	trace := &Trace{Rows: []Row{{}, {Due: time.Second}, {Due: time.Second}, {Due: 4 * time.Second}}}
	s := Summarize(trace)
	require.Nil(t, s.Gaps.BurstinessMLE)
	// gaps 1, 0, 3: mean 4/3, variance 7/3.
	require.InDelta(t, 16.0/21, *s.Gaps.BurstinessMoment, 1e-9)
}

// Counts 2,1,0,1,1,1,1,1,1,1 in ten windows: mean 1, sample variance 2/9. The row at 10 s starts a window
// that is cut short, which does not count.
func TestDispersionByHand(t *testing.T) {
	trace := &Trace{}
	for _, at := range []float64{0, 0.5, 1, 3, 4, 5, 6, 7, 8, 9, 10} {
		trace.Rows = append(trace.Rows, Row{Due: time.Duration(at * 1e9)})
	}
	s := Summarize(trace)
	require.Len(t, s.Dispersion, 1)
	require.InDelta(t, 2.0/9, s.Dispersion[0].Index, 1e-12)
	require.Equal(t, 10, s.Dispersion[0].Windows)
}

func TestConstantArrivals(t *testing.T) {
	trace := &Trace{}
	for i := range 30 {
		trace.Rows = append(trace.Rows, Row{Due: time.Duration(i) * 500 * ms, InputTokens: 1, OutputTokens: 1})
	}
	s := Summarize(trace)
	require.InDelta(t, 0, s.Gaps.CV, 1e-12)
	require.Nil(t, s.Gaps.BurstinessMLE)
	require.Equal(t, Dispersion{WindowS: 1, Windows: 14, Index: 0}, s.Dispersion[0])
	require.Equal(t, "coarse_timestamps", s.Oddities[0].Kind)
}

func TestBatchedTimestampsAreSaid(t *testing.T) {
	trace := &Trace{}
	for i := range 120 {
		trace.Rows = append(trace.Rows, Row{Due: time.Duration(i/4) * 3 * time.Second, InputTokens: int32(i + 1), OutputTokens: 1})
	}
	s := Summarize(trace)
	require.Equal(t, &Batches{Timestamps: 30, MeanRows: 4, MaxRows: 4, MedianIntervalMs: 3000}, s.Batches)
	require.Nil(t, s.Gaps)
	require.Nil(t, s.Rate.Peak1s)
	require.InDelta(t, 1.6, *s.Rate.Peak10s, 1e-12) // 4 batches of 4 in 10 s
	require.NotContains(t, windowsOf(s), 1.0)
	require.Equal(t, Oddity{Kind: "shared_timestamps", Count: 90, Detail: "rows share an earlier row's timestamp; the most on one is 4"}, s.Oddities[0])
	require.Equal(t, "batched_timestamps", s.Oddities[1].Kind)
	require.Contains(t, s.Oddities[1].Detail, "30 timestamps, about 3000 ms apart and up to 4 rows on one")
}

func windowsOf(s Summary) []float64 {
	var list []float64
	for _, d := range s.Dispersion {
		list = append(list, d.WindowS)
	}
	return list
}

func TestUndefinedIsAbsent(t *testing.T) {
	for _, trace := range []*Trace{
		{},
		{Rows: []Row{{InputTokens: Unknown, OutputTokens: Unknown}}},
	} {
		raw, err := json.Marshal(Summarize(trace))
		require.NoError(t, err)
		var keys map[string]any
		require.NoError(t, json.Unmarshal(raw, &keys))
		require.NotContains(t, keys, "rate")
		require.NotContains(t, keys, "gaps")
		require.NotContains(t, keys, "input_tokens")
		require.NotContains(t, keys, "prefix")
		require.Contains(t, keys, "rows")
	}
	// Rows of one instant have no rate, and JSON has no NaN.
	_, err := json.Marshal(Summarize(&Trace{Rows: make([]Row, 5), BlockSize: 16}))
	require.NoError(t, err)
}

func TestSummaryText(t *testing.T) {
	var b bytes.Buffer
	trace := readFixture(t, "mooncake.jsonl", Options{Limit: 3})
	require.NoError(t, Summarize(trace).Text(&b))
	for _, want := range []string{
		"trace          mooncake.jsonl\n",
		"format         mooncake (keys timestamp, input_length and output_length)\n",
		"time unit      ms (documented for this format)\n",
		"rows           3 over 3.053s\n",
		"rate           mean 0.655/s from the first arrival to the last, peak 1 s 2/s\n",
		"prefix hits    37.5 % of 8 blocks, 45.9 % of all input tokens (ideal cache)\n",
		"input      1116.3    1024    1024    1024    1025    1300    1300    1300    1300    1300\n",
		"    1024-2047           3 ████████████████████████████████████████\n",
		"  limit: truncated to the first 3 of 4 rows\n",
		"  first_timestamp: the first row is at 27.482s of the file's time and was made time zero\n",
		"  shared_timestamps: 1 rows share an earlier row's timestamp; the most on one is 2\n",
	} {
		require.Contains(t, b.String(), want)
	}
	require.ErrorContains(t, Summarize(trace).Text(brokenWriter{}), "disk full")
	require.Equal(t, "▁ █", sparkline([]int{1, 0, 8}))
}

func TestSummaryJSONKeys(t *testing.T) {
	raw, err := json.Marshal(Summarize(readFixture(t, "bailian.jsonl", Options{})))
	require.NoError(t, err)
	var s map[string]any
	require.NoError(t, json.Unmarshal(raw, &s))
	for _, key := range []string{
		"name", "digest", "format", "format_reason", "unit", "unit_reason", "block_size", "block_size_reason", "rows", "span_s", "rate", "gaps",
		"timeline", "input_tokens", "output_tokens", "input_output_correlation", "prefix", "classes", "sessions", "oddities",
	} {
		require.Contains(t, s, key)
	}
	require.Contains(t, s["rate"], "mean_per_s")
	require.Contains(t, s["prefix"], "token_hit_ratio")
}

// TestTheRateOfAGeneratedTraceIsByItsLength: 12 arrivals in 4 s are 3/s, wherever in them the first and the last fall.
func TestTheRateOfAGeneratedTraceIsByItsLength(t *testing.T) {
	rows := make([]Row, 12)
	for i := range rows {
		rows[i] = Row{Due: time.Duration(i) * 300 * time.Millisecond, InputTokens: 1, OutputTokens: 1}
	}
	made := &Trace{Name: "generated", Rows: rows, Length: 4 * time.Second}
	recorded := &Trace{Name: "file", Rows: rows}

	s := Summarize(made)
	require.InDelta(t, 3.0, s.Rate.Mean, 1e-12)
	require.InDelta(t, 4.0, s.LengthS, 0)
	require.InDelta(t, 3.3, s.SpanS, 1e-12)
	var text strings.Builder
	require.NoError(t, s.Text(&text))
	require.Contains(t, text.String(), "rows           12 over 4s (arrivals over 3.3s)\n")
	require.Contains(t, text.String(), "rate           mean 3/s over the whole length, peak 1 s 4/s\n")

	s = Summarize(recorded)
	require.InDelta(t, 11/3.3, s.Rate.Mean, 1e-12, "a recording says nothing of what is beyond its ends")
	require.Zero(t, s.LengthS)
	text.Reset()
	require.NoError(t, s.Text(&text))
	require.Contains(t, text.String(), "rows           12 over 3.3s\n")
	require.Contains(t, text.String(), "rate           mean 3.33/s from the first arrival to the last, peak 1 s 4/s\n")

	fast, err := Speed(made, 2)
	require.NoError(t, err)
	rate, ok := fast.OfferedRate()
	require.True(t, ok)
	require.InDelta(t, 6.0, rate, 1e-12)
	require.Equal(t, 2*time.Second, fast.Length)
	require.Equal(t, 4*time.Second, LengthsOnly(made).Length)
	require.Zero(t, Limit(made, 3).Length, "a part has a length of its own, which nobody knows")
	part, err := TimeWindow(made, Window{From: time.Second, To: 2 * time.Second}, false)
	require.NoError(t, err)
	require.Zero(t, part.Length)
	looped, err := Loop(made, LoopOptions{Laps: 2})
	require.NoError(t, err)
	require.Zero(t, looped.Length)

	wrong := &Trace{Rows: rows, Length: time.Second}
	rate, _ = wrong.OfferedRate()
	require.InDelta(t, 11/3.3, rate, 1e-12, "a length that the arrivals exceed is none")
	_, ok = (&Trace{Length: time.Second}).OfferedRate()
	require.False(t, ok)
}
