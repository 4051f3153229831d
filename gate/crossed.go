package gate

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"go.k6.io/k6/metrics"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// thresholdsOutput is the output as k6 sees it: it also keeps which of the run's thresholds were crossed. k6 itself ends
// with the same exit code whosever they were, and names no more than their metrics.
type thresholdsOutput struct {
	*Output
	thresholds map[string]metrics.Thresholds
}

// SetThresholds implements output.WithThresholds. k6 evaluates the very thresholds that it hands over here, for the last
// time before it stops its outputs.
func (o *thresholdsOutput) SetThresholds(thresholds map[string]metrics.Thresholds) {
	o.thresholds = thresholds
}

// Stop implements output.Output.
func (o *thresholdsOutput) Stop() error { return o.StopWithTestError(nil) }

// StopWithTestError implements output.WithStopWithTestError.
func (o *thresholdsOutput) StopWithTestError(testErr error) error {
	if err := o.recordCrossed(time.Now()); err != nil {
		o.logger.WithError(err).Error("output llm: a crossed threshold could not be recorded")
	}

	return o.Output.StopWithTestError(testErr)
}

func (o *thresholdsOutput) recordCrossed(now time.Time) error {
	for _, name := range slices.Sorted(maps.Keys(o.thresholds)) {
		for _, t := range o.thresholds[name].Thresholds {
			if !t.LastFailed {
				continue
			}
			rule := contract.Threshold{Metric: name, Expression: t.Source}.String()
			if err := o.writer.Event(results.Event{
				Time: now, Kind: verdict.EventThreshold, Rule: rule, Message: fmt.Sprintf("k6's threshold %s was crossed", rule),
			}); err != nil {
				return err //nolint:wrapcheck // names the file
			}
		}
	}

	return nil
}
