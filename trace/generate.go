package trace

import (
	"fmt"
	"math"

	"github.com/safeqps/xk6-safeqps/trace/arrival"
	"github.com/safeqps/xk6-safeqps/trace/format"
	"github.com/safeqps/xk6-safeqps/trace/workload"
)

const stagesForm = `an array of stages such as [{duration: "5m", target: 10}]`

// readArrivals reads the options of trace.generate that say when requests come.
func (o *options) readArrivals(seed uint64) arrival.Config {
	c := arrival.Config{Seed: seed, Burstiness: 1}
	const rateForm = "a number of requests per second"
	if o.has("stages") {
		c.Rate = o.number("startRate", 0, rateForm+", 0 or more", func(f float64) bool { return f >= 0 && f <= arrival.MaxRate })
		for _, stage := range o.list("stages", stagesForm) {
			s := arrival.Stage{Target: stage.number("target", -1, rateForm+", 0 or more",
				func(f float64) bool { return f >= 0 && f <= arrival.MaxRate })}
			d, given := stage.duration("duration", "how long the change takes", notNegative)
			if s.Duration = d; !given && stage.err == nil {
				stage.wrong("duration", nil, "how long the change takes: "+durationForm)
			}
			if s.Target < 0 {
				stage.wrong("target", nil, rateForm+", 0 or more")
			}
			o.done(stage)
			c.Stages = append(c.Stages, s)
		}
		if o.has("rate") {
			o.wrong("rate", o.values["rate"], "rate or stages, not both; the stages' first rate is startRate")
		}
	} else {
		c.Rate = o.positive("rate", 0, rateForm+":")
		if c.Rate == 0 {
			o.wrong("rate", nil, rateForm+" above 0, or stages")
		}
	}
	const burstinessForm = `the Gamma shape k of the gaps, 0.01 or more: 1 is Poisson, less bursty, more smooth; or "constant"`
	if v, _ := o.get("burstiness"); v == "constant" {
		c.Burstiness = math.Inf(1)
	} else {
		c.Burstiness = o.number("burstiness", 1, burstinessForm, func(f float64) bool { return f >= arrival.MinBurstiness })
	}
	c.Count = int(o.whole("count", 0, 1, "a number of requests"))
	c.Duration, _ = o.duration("duration", "the length of the run, above 0", aboveZero)
	c.FreeCount = o.flag("freeCount")
	if c.Count == 0 && c.Duration == 0 && len(c.Stages) == 0 {
		o.wrong("duration", nil, "the length of the run, or count")
	}

	return c
}

// generate makes a synthetic workload.
func generate(o *options, f files) (*recording, error) {
	ask := o.readRequestOptions()
	c := workload.Config{Arrivals: o.readArrivals(ask.Seed)}
	read := readOptions{SamePrefixes: o.flag("samePrefixes")}
	if v, ok := o.get("loop"); ok {
		b, isBool := v.(bool)
		if read.Endless = b; !isBool {
			o.wrong("loop", v, "true or false")
		}
	}
	mix, mixGiven := o.get("mix")
	prefix, prefixGiven := o.get("prefix")
	if !mixGiven {
		o.wrong("mix", nil, `what requests ask for: the name of a mix ("chat", "rag", "summarize", "agent"), `+
			`"short=0.9,long=0.1", or an object of classes`)
	}
	if err := o.finish(); err != nil {
		return nil, err
	}
	var err error
	c.Mix, err = workload.ParseMix(mix, func(name string) (*format.Trace, error) { return f.trace(name, format.Options{}) })
	if err != nil {
		return nil, fmt.Errorf("trace.generate: %w", err)
	}
	if prefixGiven {
		p, err := workload.ParsePrefix(prefix)
		if err != nil {
			return nil, fmt.Errorf("trace.generate: %w", err)
		}
		c.Prefix = &p
	}
	t, err := workload.Generate(c)
	if err != nil {
		return nil, fmt.Errorf("trace.generate: %w", err)
	}
	r, err := newRecording(t, f, read, ask)
	if err != nil {
		return nil, fmt.Errorf("trace.generate: %w", err)
	}

	return r, nil
}
