package scrape

import (
	"cmp"
	"fmt"
	"slices"
)

// together is how a quantity of several replicas, or of several GPU exporters, comes to one.
type together struct {
	quantity string
	join     func(values []float64) float64
	// counter is true for what a server may show from its first event on: it was 0 until then.
	counter bool
}

var togethers = []together{ //nolint:gochecknoglobals // a constant table
	{queueDepth, total, false},
	{running, total, false},
	{kvCacheUsage, slices.Max[[]float64], false},
	{prefixHitRatio, average, false},
	{prefixQueries, total, true},
	{prefixHits, total, true},
	{preemptions, total, true},
	{queueTimeSum, total, true},
	{queueTimeCount, total, true},
	{gpuUtilisation, average, false},
	{gpuMemory, total, false},
}

func total(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}

	return sum
}

func average(values []float64) float64 { return total(values) / float64(len(values)) }

// Join brings the readings of several replicas (and of their GPU exporters) to one: counts add up, the KV cache is that of the
// fullest replica. A quantity that one of them lacks, or has as what is no measurement, is absent and in NotMeasured: the others
// alone would look like less load. It is absent alone where one is of an engine that never has it. A reading without an engine is
// no replica, but a GPU exporter's.
func Join(readings ...Reading) Reading {
	var out Reading
	for i := range readings {
		out.Engine = cmp.Or(out.Engine, readings[i].Engine)
	}
	for _, t := range togethers {
		value, why := t.of(readings)
		if why != "" {
			out.notMeasured(t.quantity, why)
		}
		*out.at(t.quantity) = value
	}

	return out
}

// of is nil where the quantity is not measured, with the reason where there should be one.
func (t together) of(readings []Reading) (value *float64, why string) {
	var values []float64
	var without []*Reading
	for i := range readings {
		r := &readings[i]
		if why, bad := r.NotMeasured[t.quantity]; bad {
			return nil, why
		}
		switch v := *r.at(t.quantity); {
		case v != nil:
			values = append(values, *v)
		case r.isAsked(t.quantity):
			without = append(without, r)
		}
	}
	if len(values) == 0 {
		return nil, "" // nobody has it
	}
	for _, r := range without {
		name := r.nameOf(t.quantity)
		if name == "" {
			return nil, ""
		}
		if t.counter {
			continue
		}
		others := "replicas"
		if OfGPU(t.quantity) {
			others = "exporters"
		}

		return nil, fmt.Sprintf("%s has no %s, which other %s have", cmp.Or(r.URL, "one endpoint"), name, others)
	}

	return new(t.join(values)), ""
}

// isAsked says whether the reading is of a kind that the quantity is looked for in: a replica, or a GPU exporter.
func (r *Reading) isAsked(quantity string) bool {
	if !OfGPU(quantity) {
		return r.Engine != ""
	}
	for _, other := range []string{gpuUtilisation, gpuMemory} {
		if _, bad := r.NotMeasured[other]; bad || *r.at(other) != nil {
			return true
		}
	}

	return false
}

// nameOf is what the reading's own engine or exporter calls a quantity; "" where it never has it.
func (r *Reading) nameOf(quantity string) string {
	switch quantity {
	case gpuUtilisation:
		return dcgmUtilisation[0].String()
	case gpuMemory:
		return dcgmMemory[0].String()
	}
	i := slices.IndexFunc(engines, func(e engine) bool { return e.name == r.Engine })
	if i < 0 {
		return ""
	}
	e := &engines[i]
	if len(e.queueTime) > 0 && (quantity == queueTimeSum || quantity == queueTimeCount) {
		return e.queueTime[0]
	}
	own := map[string][]series{
		queueDepth: e.queue, running: e.running, kvCacheUsage: e.kv, prefixHitRatio: e.hitRatio, prefixQueries: e.queries,
		prefixHits: e.hits, preemptions: e.preemptions,
	}[quantity]
	if len(own) == 0 {
		return ""
	}

	return own[0].String()
}

// String is the series as Prometheus writes it.
func (s series) String() string {
	if s.label == "" {
		return s.name
	}

	return fmt.Sprintf("%s{%s=%q}", s.name, s.label, s.value)
}
