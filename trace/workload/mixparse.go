package workload

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/safeqps/xk6-safeqps/trace/format"
)

// PresetClass gives the lengths of a class by its well-known name, where a mix says only the share: lognormal with a
// sigma of 0.5, cut to ranges that do not overlap, so the class's name tells the length.
//
//	name     input: median, range      output: median, range
//	short      128     16 –    511       64    8 –   255
//	typical   1024    512 –   4095      256   32 –  1023
//	long      8192   4096 –  16383      512   64 –  2047
//	extreme  32768  16384 – 131071     1024  128 –  4095
func PresetClass(name string) (Class, bool) {
	lognormal := func(median float64, low, high int) Distribution {
		return Distribution{Kind: Lognormal, Median: median, Sigma: 0.5, Min: low, Max: high}
	}
	switch name {
	case "short":
		return Class{Name: name, Input: lognormal(128, 16, 511), Output: lognormal(64, 8, 255)}, true
	case "typical":
		return Class{Name: name, Input: lognormal(1024, 512, 4095), Output: lognormal(256, 32, 1023)}, true
	case "long":
		return Class{Name: name, Input: lognormal(8192, 4096, 16383), Output: lognormal(512, 64, 2047)}, true
	case "extreme":
		return Class{Name: name, Input: lognormal(32768, 16384, 131071), Output: lognormal(1024, 128, 4095)}, true
	}
	return Class{}, false
}

// presetClasses is for error messages.
const presetClasses = "short, typical, long, extreme"

// presetMixes are mixes by name. They are round numbers for a first look, not measurements of anyone's traffic:
// for that, take lengths from a trace.
var presetMixes = map[string]string{
	"chat":      "short=0.6,typical=0.3,long=0.1",
	"rag":       "typical=0.3,long=0.6,extreme=0.1",
	"summarize": "long=0.8,extreme=0.2",
	"agent":     "short=0.2,typical=0.3,long=0.4,extreme=0.1",
}

// ParseMix reads a mix as a user writes it:
//
//   - an object of classes, {short: 0.6, long: {share: 0.4, input: 8000, output: {dist: 'lognormal', median: 300,
//     sigma: 0.7, min: 10, max: 2000}}}. A bare number is a share. A class of a well-known name has lengths of
//     its own (PresetClass); others state input and output, or `from`, the path of a trace whose rows are drawn, or
//     `pairs`, a list of [input, output]. `correlation` joins input and output. The share of a single class is 1
//     unless stated.
//   - a string of such an object, in JSON or YAML;
//   - a short string, "short=0.6,long=0.4@8000/300": name, share, and fixed lengths after the @;
//   - the name of a ready mix: chat, rag, summarize, agent.
//
// Load reads the trace that `from` names; it may be nil where no files can be read. Classes are in the order of
// their names, whatever the order in the text, so that the same mix draws the same lengths.
func ParseMix(value any, load func(path string) (*format.Trace, error)) (Mix, error) {
	if text, ok := value.(string); ok {
		var err error
		if value, err = mixFromText(text); err != nil {
			return Mix{}, err
		}
	}
	classes, ok := value.(map[string]any)
	if !ok {
		return Mix{}, expected("mix", "an object of classes or a string", value)
	}
	var m Mix
	for _, name := range sortedKeys(classes) {
		c, err := parseClass(name, classes[name], len(classes) == 1, load)
		if err != nil {
			return Mix{}, err
		}
		m.Classes = append(m.Classes, c)
	}
	if _, err := NewSampler(m, 0); err != nil {
		return Mix{}, err
	}
	return m, nil
}

func parseClass(name string, value any, single bool, load func(path string) (*format.Trace, error)) (Class, error) {
	path := "mix." + name
	if share, ok := toNumber(value); ok {
		value = map[string]any{"share": share}
	}
	f, err := newFields(path, value)
	if err != nil {
		return Class{}, expected(path, "a share or an object {share, input, output}", value)
	}
	c, preset := PresetClass(name)
	c.Name = name
	if c.Share, err = f.number("share", 0); err != nil {
		return Class{}, err
	}
	if f.value["share"] == nil {
		if !single {
			return Class{}, fmt.Errorf("%s.share: expected the class's share of the requests, got nothing", path)
		}
		c.Share = 1
	}
	if c.Correlation, err = f.number("correlation", 0); err != nil {
		return Class{}, err
	}
	input, output, pairs := f.take("input"), f.take("output"), f.take("pairs")
	from, err := f.text("from")
	if err != nil {
		return Class{}, err
	}
	if err := f.done(); err != nil {
		return Class{}, err
	}
	if from != "" || pairs != nil {
		if input != nil || output != nil || c.Correlation != 0 || (from != "" && pairs != nil) {
			return Class{}, fmt.Errorf("%s: expected one of from, pairs, or input and output with correlation, got more than one", path)
		}
		c.Input, c.Output = Distribution{}, Distribution{}
		c.Pairs, err = observedPairs(path, from, pairs, load)
		return c, err
	}
	return c, c.parseLengths(path, input, output, preset)
}

func (c *Class) parseLengths(path string, input, output any, preset bool) error {
	for _, length := range []struct {
		key   string
		value any
		into  *Distribution
	}{{"input", input, &c.Input}, {"output", output, &c.Output}} {
		if length.value == nil {
			if preset {
				continue
			}
			return fmt.Errorf("%s.%s: expected a number of tokens or a distribution (only %s have lengths of their own), got nothing",
				path, length.key, presetClasses)
		}
		d, err := parseDistribution(path+"."+length.key, length.value)
		if err != nil {
			return err
		}
		*length.into = d
	}
	return nil
}

func observedPairs(path, from string, pairs any, load func(path string) (*format.Trace, error)) ([]Pair, error) {
	if from != "" {
		if load == nil {
			return nil, fmt.Errorf("%s.from: no files can be read here, got %q", path, from)
		}
		t, err := load(from)
		if errors.Is(err, format.ErrUnclearField) { // a mix has no place for either
			err = fmt.Errorf("%w; make it a trace with `k6 x llm trace convert` first, which takes both", err)
		}
		if err != nil {
			return nil, fmt.Errorf("%s.from: %w", path, err)
		}
		list, _, err := PairsOf(t)
		if err != nil {
			return nil, fmt.Errorf("%s.from: %w", path, err)
		}
		return list, nil
	}
	list, ok := pairs.([]any)
	if !ok || len(list) == 0 {
		return nil, expected(path+".pairs", "a list of [input, output]", pairs)
	}
	out := make([]Pair, len(list))
	for i, item := range list {
		at := fmt.Sprintf("%s.pairs[%d]", path, i)
		two, ok := item.([]any)
		if !ok || len(two) != 2 {
			return nil, expected(at, "[input, output]", item)
		}
		for j, into := range []*int{&out[i].Input, &out[i].Output} {
			d, err := parseDistribution(at, two[j])
			if err != nil || d.Kind != Fixed {
				return nil, expected(at, fmt.Sprintf("two whole numbers from 1 to %d", MaxTokens), item)
			}
			*into = int(d.Value)
		}
	}
	return out, nil
}

// mixFromText turns a string into an object of classes.
func mixFromText(text string) (any, error) {
	text = strings.TrimSpace(text)
	if ready, ok := presetMixes[text]; ok {
		text = ready
	}
	if strings.ContainsAny(text, "{:\n") {
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			return nil, fmt.Errorf("mix: expected an object of classes in JSON or YAML: %w", err)
		}
		return value, nil
	}
	classes := map[string]any{}
	for part := range strings.SplitSeq(text, ",") {
		name, class, err := shortClass(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("mix: expected chat, rag, summarize, agent, an object, or classes such as \"short=0.6,long=0.4@8000/300\", got %q: %w", part, err)
		}
		if _, ok := classes[name]; ok {
			return nil, fmt.Errorf("mix: the class %q stands there twice", name)
		}
		classes[name] = class
	}
	return classes, nil
}

// shortClass reads "name=share" or "name=share@input/output".
func shortClass(part string) (name string, class map[string]any, err error) {
	name, rest, ok := strings.Cut(part, "=")
	if !ok || name == "" {
		return "", nil, errors.New("no name and share")
	}
	share, lengths, hasLengths := strings.Cut(rest, "@")
	class = map[string]any{}
	numbers := map[string]string{"share": share}
	if hasLengths {
		input, output, ok := strings.Cut(lengths, "/")
		if !ok {
			return "", nil, errors.New("no output length after the @")
		}
		numbers["input"], numbers["output"] = input, output
	}
	for key, text := range numbers {
		x, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil {
			return "", nil, fmt.Errorf("%s: not a number", key)
		}
		class[key] = x
	}
	return strings.TrimSpace(name), class, nil
}
