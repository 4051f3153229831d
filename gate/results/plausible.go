package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// The bounds of what a results directory may hold. They are far beyond what any run measures: a number outside of them was
// not measured but broken, and a verdict on it would be too.
const (
	maxMillis  = 1e10 // nearly four months
	maxRate    = 1e12
	maxCount   = 1e12
	maxGauge   = 1e15 // bytes of memory are the largest
	maxCost    = 1e15
	maxRow     = 1<<53 - 1 // what JSON readers keep exactly
	maxAttempt = 1_000_000
	maxStatus  = 999
)

// Times may lie outside of the run by so much: the clock of a load generator may be set while it runs, and the due times of
// a schedule that a script made by itself count from whenever it did so.
const (
	clockSlack    = time.Minute
	scheduleSlack = time.Hour
)

// shares are the gauges of the service that are parts of a whole. Those of the load generator are not among them: what it takes of
// its CPU in a second can be a little more than the clock gave it, and is the more reason to be told.
var shares = map[string]bool{"kv_cache_usage": true, "prefix_hit_ratio": true, "gpu_utilisation": true} //nolint:gochecknoglobals // a constant

// shareSlack is how far a share may be above 1: servers give whole percent, or two digits.
const shareSlack = 0.01

// Gauge is the one rule of what a value of the service's metrics, or of the load generator's own, can be; name is that after
// "llm_server_" or "llm_client_". A number that is negative, not finite or larger than any gauge, or a share that is more than
// the whole, is no measurement: it belongs into no file and no metric, and is a gap (NoMeasurement). What rounding puts above
// the whole is the whole.
func Gauge(name string, v float64) (measured float64, ok bool) {
	if !(v >= 0 && v <= maxGauge) {
		return 0, false
	}
	if shares[name] {
		return min(v, 1), v <= 1+shareSlack
	}
	return v, true
}

// NoMeasurement is the text of the gap that such a number leaves: whose it was, and what.
func NoMeasurement(name string, v float64) string {
	return fmt.Sprintf("%s was %v, which is no measurement", name, v)
}

func checkGauge(name string, v float64) error {
	if _, ok := Gauge(name, v); ok {
		return nil
	}
	if shares[name] {
		return fmt.Errorf("found %v, expected a share from 0 to 1", v)
	}
	return between("a number", v, 0, maxGauge)
}

// between is an error unless low <= v <= high; NaN is not.
func between(what string, v, low, high float64) error {
	if v >= low && v <= high {
		return nil
	}
	return fmt.Errorf("found %v, expected %s from %v to %v", v, what, low, high)
}

func countBetween(v, high int64) error {
	if v >= 0 && v <= high {
		return nil
	}
	return fmt.Errorf("found %d, expected a count from 0 to %s", v, countText(high))
}

func countText(n int64) string {
	if n == maxCount {
		return "1e+12"
	}
	return strconv.FormatInt(n, 10)
}

// lifetime is when a run began and ended; ended is zero for one that did not come to its end.
type lifetime struct{ started, ended time.Time }

func (l lifetime) check(at time.Time, slack time.Duration) error {
	switch {
	case at.Before(l.started.Add(-slack)):
		return fmt.Errorf("found %s, expected a time from the run's start at %s on",
			at.Format(time.RFC3339Nano), l.started.Format(time.RFC3339Nano))
	case !l.ended.IsZero() && at.After(l.ended.Add(slack)):
		return fmt.Errorf("found %s, expected a time until the run's end at %s",
			at.Format(time.RFC3339Nano), l.ended.Format(time.RFC3339Nano))
	}
	return nil
}

// keyed puts the key before what is wrong with its value.
func keyed(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", key, err)
}

func (s *Sample) check(l lifetime) error {
	errs := []error{keyed("t", l.check(s.Time, clockSlack))}
	for _, c := range []struct {
		key   string
		value *int64
	}{
		{"offered", s.Offered},
		{"started", s.Started},
		{"dropped", s.Dropped},
		{"completed", s.Completed},
		{"failed", s.Failed},
		{"cancelled", s.Cancelled},
		{"in_flight", s.InFlight},
		{"prompt_tokens", s.PromptTokens},
		{"completion_tokens", s.CompletionTokens},
	} {
		if c.value != nil {
			errs = append(errs, keyed(c.key, countBetween(*c.value, maxCount)))
		}
	}
	for of, gauges := range map[string]map[string]float64{"server.": s.Server, "client.": s.Client} {
		for name, value := range gauges {
			errs = append(errs, keyed(of+name, checkGauge(name, value)))
		}
	}
	return errors.Join(errs...)
}

func (e *Event) check(l lifetime) error {
	errs := []error{keyed("t", l.check(e.Time, clockSlack)), keyed("count", countBetween(e.Count, maxCount))}
	if e.Saw != nil {
		errs = append(errs, keyed("saw", between("a number", *e.Saw, -maxGauge, maxGauge)))
	}
	return errors.Join(errs...)
}

func (i *Info) lifetime() lifetime { return lifetime{i.Started, i.Ended} }

func (i *Info) check() error {
	l := i.lifetime()
	errs := []error{
		keyed("host.cpus", countBetween(int64(i.Host.CPUs), maxCount)), keyed("host.memory_mb", countBetween(i.Host.MemoryMB, maxCount)),
	}
	if !i.Ended.IsZero() {
		errs = append(errs, keyed("ended", l.check(i.Ended, clockSlack)))
	}
	if i.IdealPrefixHitRatio != nil {
		errs = append(errs, keyed("ideal_prefix_hit_ratio", between("a number", *i.IdealPrefixHitRatio, 0, 1)))
	}
	for key, spans := range map[string][]Span{"phases": i.Phases, "steps": i.Steps} {
		for n, span := range spans {
			errs = append(errs, keyed(fmt.Sprintf("%s[%d].start", key, n), l.check(span.Start, scheduleSlack)))
			if !span.End.IsZero() {
				errs = append(errs, keyed(fmt.Sprintf("%s[%d].end", key, n), l.check(span.End, scheduleSlack)))
			}
		}
	}
	return errors.Join(errs...)
}

// DecodeJSON is json.Unmarshal for files that people may have edited: it says in the words of the file what does not fit.
func DecodeJSON(content []byte, into any) error {
	err := json.Unmarshal(content, into)
	var (
		wrongType *json.UnmarshalTypeError
		wrongTime *time.ParseError
	)
	switch {
	case errors.As(err, &wrongType):
		key := wrongType.Field
		if key == "" {
			return fmt.Errorf("found a %s, expected %s", wrongType.Value, describeType(wrongType.Type))
		}
		article := "a "
		if strings.HasPrefix(wrongType.Value, "number ") {
			article = ""
		}
		return fmt.Errorf("%s: found %s%s, expected %s", key, article, wrongType.Value, describeType(wrongType.Type))
	case errors.As(err, &wrongTime):
		return fmt.Errorf("found %q, expected a time such as 2026-01-31T12:00:00Z", wrongTime.Value)
	}
	return err //nolint:wrapcheck // the caller names the file
}

func describeType(t reflect.Type) string {
	switch t.Kind() { //nolint:exhaustive // the rest is named as Go does
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.String:
		return "a text"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice:
		return "a list"
	default:
		return t.String()
	}
}
