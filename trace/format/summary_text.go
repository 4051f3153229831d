package format

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Text writes the summary for people: a few lines of numbers, histograms of tokens and arrivals, and then
// everything odd.
func (s Summary) Text(w io.Writer) error {
	var b strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-14s %s\n", label, fmt.Sprintf(format, args...))
	}
	if s.Name != "" {
		line("trace", "%s", s.Name)
	}
	if s.Format != "" {
		line("format", "%s (%s)", s.Format, s.FormatWhy)
	}
	if s.Unit != "" {
		line("time unit", "%s (%s)", s.Unit, s.UnitWhy)
	}
	if s.BlockSize > 0 {
		line("block size", "%d tokens (%s)", s.BlockSize, s.BlockWhy)
	}
	if s.StartClock != "" {
		line("starts", "%s", s.StartClock)
	}
	span := time.Duration(s.SpanS * 1e9).Round(time.Millisecond).String()
	basis := "from the first arrival to the last"
	if s.LengthS > 0 {
		span = fmt.Sprintf("%s (arrivals over %s)", time.Duration(s.LengthS*1e9).Round(time.Millisecond), span)
		basis = "over the whole length"
	}
	line("rows", "%d over %s", s.Rows, span)
	if s.Sessions > 0 {
		line("sessions", "%d", s.Sessions)
	}
	if r := s.Rate; r != nil {
		line("rate", "mean %.3g/s %s%s%s", r.Mean, basis, optional(", peak 1 s %.3g/s", r.Peak1s), optional(", peak 10 s %.3g/s", r.Peak10s))
	}
	if g := s.Gaps; g != nil {
		line("gaps", "mean %.4g ms, coefficient of variation %.3g", g.MeanMs, g.CV)
		if g.BurstinessMoment != nil || g.BurstinessMLE != nil {
			line("burstiness", "k%s%s (1 Poisson, below bursty, above smooth)",
				optional(" %.3g by moments", g.BurstinessMoment), optional(" %.3g by likelihood", g.BurstinessMLE))
		}
	}
	for _, d := range s.Dispersion {
		line("dispersion", "%.3g over %d windows of %g s (1 Poisson)", d.Index, d.Windows, d.WindowS)
	}
	if c := s.Correlation; c != nil {
		line("in/out", "correlation Pearson %.3f, Spearman %.3f", c.Pearson, c.Spearman)
	}
	if p := s.Prefix; p != nil {
		line("prefix hits", "%.1f %% of %d blocks, %.1f %% of all input tokens (ideal cache)", 100*p.HitRatio, p.Blocks, 100*p.TokenHitRatio)
	}
	for _, c := range s.Classes {
		name := c.Class
		if name == "" {
			name = "(none)"
		}
		line("class", "%s: %d rows, %.1f %%", name, c.Rows, 100*c.Share)
	}
	if s.Input != nil || s.Output != nil {
		fmt.Fprintf(&b, "\n%-8s %8s %7s %7s %7s %7s %7s %7s %7s %7s %7s\n",
			"tokens", "mean", "p1", "p5", "p25", "p50", "p75", "p90", "p95", "p99", "max")
	}
	for _, col := range []struct {
		name string
		t    *TokenStats
	}{{"input", s.Input}, {"output", s.Output}} {
		if t := col.t; t != nil {
			fmt.Fprintf(&b, "%-8s %8.1f %7d %7d %7d %7d %7d %7d %7d %7d %7d\n",
				col.name, t.Mean, t.P1, t.P5, t.P25, t.P50, t.P75, t.P90, t.P95, t.P99, t.Max)
		}
	}
	writeHistogram(&b, "input tokens", s.Input)
	writeHistogram(&b, "output tokens", s.Output)
	if s.Timeline != nil {
		fmt.Fprintf(&b, "\narrivals, bins of %.3g s, highest %d\n%s\n", s.Timeline.BinS, highest(s.Timeline.Counts), sparkline(s.Timeline.Counts))
	}
	writeNotes(&b, s)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}

func writeNotes(b *strings.Builder, s Summary) {
	if len(s.Labels) > 0 {
		b.WriteString("\nchanged\n")
		for _, l := range s.Labels {
			fmt.Fprintf(b, "  %s: %s\n", l.Kind, l.Detail)
		}
	}
	if len(s.Oddities) > 0 {
		b.WriteString("\noddities\n")
		for _, o := range s.Oddities {
			if o.Count > 0 {
				fmt.Fprintf(b, "  %s: %d %s\n", o.Kind, o.Count, o.Detail)
			} else {
				fmt.Fprintf(b, "  %s: %s\n", o.Kind, o.Detail)
			}
		}
	}
}

func optional(format string, v *float64) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf(format, *v)
}

const barWidth = 40

func writeHistogram(b *strings.Builder, title string, t *TokenStats) {
	if t == nil {
		return
	}
	most := 0
	for _, bin := range t.Histogram {
		most = max(most, bin.Rows)
	}
	fmt.Fprintf(b, "\n%s\n", title)
	for _, bin := range t.Histogram {
		bar := (bin.Rows*barWidth + most - 1) / most // a row that is there is seen
		fmt.Fprintf(b, "%8d-%-8d %7d %s\n", bin.From, bin.To, bin.Rows, strings.Repeat("█", bar))
	}
}

func highest(counts []int) int {
	most := 0
	for _, c := range counts {
		most = max(most, c)
	}
	return most
}

// sparkline draws counts as one line of eighth blocks; an empty bin is a space.
func sparkline(counts []int) string {
	levels := []rune("▁▂▃▄▅▆▇█")
	most := highest(counts)
	var b strings.Builder
	for _, c := range counts {
		if c == 0 || most == 0 {
			b.WriteByte(' ')
			continue
		}
		b.WriteRune(levels[(c*len(levels)-1)/most])
	}
	return b.String()
}
