package report

import (
	"math"
	"slices"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/results"
)

// axis is the time axis of a run: bins of whole seconds.
type axis struct {
	origin int64 // unix nanoseconds
	width  int64 // nanoseconds
	bins   int
}

func (a axis) bin(at int64) int {
	return min(max(int((at-a.origin)/a.width), 0), a.bins-1)
}

// axis spans everything that was seen, and cuts it into at most the given number of bins.
func (c *collector) axis(most int) (axis, bool) {
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	see := func(at int64) { first, last = min(first, at), max(last, at) }
	for i := range c.rows {
		see(c.rows[i].arrival)
	}
	for i := range c.samples {
		see(c.samples[i].Time.UnixNano())
	}
	if first > last {
		return axis{}, false
	}
	const second = int64(time.Second)
	first -= ((first % second) + second) % second // samples are about whole seconds
	seconds := (last-first)/second + 1
	width := (seconds + int64(most) - 1) / int64(most)
	return axis{origin: first, width: width * second, bins: int((seconds + width - 1) / width)}, true
}

// series fills the run's time series.
func (c *collector) series(most int) {
	out := &c.run.Series
	out.Columns = make(map[string]Column)
	a, ok := c.axis(most)
	if !ok {
		return
	}
	started := c.run.Info.Started
	offset := time.Duration(a.origin - started.UnixNano()).Seconds()
	out.BinSeconds = time.Duration(a.width).Seconds()
	for i := range a.bins {
		out.Seconds = append(out.Seconds, math.Round(1000*(offset+float64(i)*out.BinSeconds))/1000)
	}
	end := offset + float64(a.bins)*out.BinSeconds
	out.Phases = stretches(c.run.Info.Phases, started, end)
	if len(out.Phases) == 0 {
		out.Phases = c.taggedStretches(a, offset, func(s *results.Sample) string { return s.Phase })
	}
	out.Steps = stretches(c.run.Info.Steps, started, end)
	if len(out.Steps) == 0 {
		out.Steps = c.taggedStretches(a, offset, func(s *results.Sample) string { return s.Step })
	}
	c.flows(a)
	c.gauges(a)
	c.latenciesOverTime(a)
}

// stretches turns spans of wall-clock time into seconds of the run. One that has no end lasts to the end.
func stretches(spans []results.Span, started time.Time, end float64) []Stretch {
	out := make([]Stretch, 0, len(spans))
	for _, s := range spans {
		to := end
		if !s.End.IsZero() {
			to = s.End.Sub(started).Seconds()
		}
		out = append(out, Stretch{s.Name, s.Start.Sub(started).Seconds(), to})
	}
	return out
}

// taggedStretches finds the stretches by the tags of the samples.
func (c *collector) taggedStretches(a axis, offset float64, tag func(*results.Sample) string) []Stretch {
	var out []Stretch
	for i := range c.samples {
		s := &c.samples[i]
		from := offset + time.Duration(s.Time.UnixNano()-a.origin).Seconds()
		name := tag(s)
		if n := len(out); n > 0 && out[n-1].Name == name {
			out[n-1].To = from + 1
			continue
		}
		out = append(out, Stretch{name, from, from + 1})
	}
	return slices.DeleteFunc(out, func(s Stretch) bool { return s.Name == "" })
}

// flows are per second: what was counted in a bin over the seconds of it that were counted.
func (c *collector) flows(a axis) {
	for name, of := range map[string]func(*results.Sample) *int64{
		"offered":           func(s *results.Sample) *int64 { return s.Offered },
		"started":           func(s *results.Sample) *int64 { return s.Started },
		"dropped":           func(s *results.Sample) *int64 { return s.Dropped },
		"completed":         func(s *results.Sample) *int64 { return s.Completed },
		"failed":            func(s *results.Sample) *int64 { return s.Failed },
		"cancelled":         func(s *results.Sample) *int64 { return s.Cancelled },
		"prompt_tokens":     func(s *results.Sample) *int64 { return s.PromptTokens },
		"completion_tokens": func(s *results.Sample) *int64 { return s.CompletionTokens },
	} {
		total, seconds := make([]float64, a.bins), make([]float64, a.bins)
		for i := range c.samples {
			if v := of(&c.samples[i]); v != nil {
				bin := a.bin(c.samples[i].Time.UnixNano())
				total[bin] += float64(*v)
				seconds[bin]++
			}
		}
		column := make(Column, a.bins)
		for bin := range column {
			if seconds[bin] > 0 {
				column[bin] = results.Num(total[bin] / seconds[bin])
			}
		}
		c.put(name, column)
	}
}

// put keeps a column that has a value.
func (c *collector) put(name string, column Column) {
	if slices.ContainsFunc(column, func(n results.Number) bool { return n.Known }) {
		c.run.Series.Columns[name] = column
	}
}

// gauges keep the highest value of each bin, since peaks are what they are read for, and the lowest where bins are
// longer than a sample.
func (c *collector) gauges(a axis) {
	high, low := make(map[string]Column), make(map[string]Column)
	see := func(name string, bin int, v float64) {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return // no measurement
		}
		if high[name] == nil {
			high[name], low[name] = make(Column, a.bins), make(Column, a.bins)
		}
		if h := &high[name][bin]; !h.Known || v > h.Value {
			*h = results.Num(v)
		}
		if l := &low[name][bin]; !l.Known || v < l.Value {
			*l = results.Num(v)
		}
	}
	for i := range c.samples {
		s := &c.samples[i]
		bin := a.bin(s.Time.UnixNano())
		if s.InFlight != nil {
			see("in_flight", bin, float64(*s.InFlight))
		}
		for name, v := range s.Server {
			see("server_"+name, bin, v)
		}
		for name, v := range s.Client {
			see("client_"+name, bin, v)
		}
	}
	for name, column := range high {
		c.put(name, column)
		if a.width > int64(time.Second) {
			c.put(name+"_min", low[name])
		}
	}
}

// latenciesOverTime are the quantiles and shares of the requests by the bin of their arrival.
func (c *collector) latenciesOverTime(a axis) {
	type bin struct {
		ttft, e2e, delay []float64
		shares           shares
	}
	bins := make([]bin, a.bins)
	for i := range bins {
		bins[i].shares.hasGoodput = c.hasGoodput
	}
	for i := range c.rows {
		r := &c.rows[i]
		b := &bins[a.bin(r.arrival)]
		b.ttft = appendKnown(b.ttft, r.ttft)
		b.e2e = appendKnown(b.e2e, r.e2e)
		b.delay = appendKnown(b.delay, r.delay)
		b.shares.add(r)
	}
	columns := make(map[string]Column)
	set := func(name string, i int, v *float64) {
		if columns[name] == nil {
			columns[name] = make(Column, a.bins)
		}
		if v != nil {
			columns[name][i] = results.Num(*v)
		}
	}
	for i := range bins {
		b := &bins[i]
		if q := quantilesOf(b.ttft); q != nil {
			set("ttft_p50", i, &q.P50)
			set("ttft_p95", i, &q.P95)
			set("ttft_p99", i, &q.P99)
		}
		if q := quantilesOf(b.e2e); q != nil {
			set("e2e_p99", i, &q.P99)
		}
		if q := quantilesOf(b.delay); q != nil {
			set("schedule_delay_p99", i, &q.P99)
		}
		set("goodput", i, b.shares.goodput())
		set("error_share", i, b.shares.errorShare())
	}
	for name, column := range columns {
		c.put(name, column)
	}
}
