package compare

import (
	"errors"
	"fmt"
)

// Options of a comparison; the zero value of each field has a default.
type Options struct {
	// Phase that is compared; "" means steady.
	Phase string
	// Margin within which two values count as the same: 0.05 is ±5 % of A's. 0 means 0.05; below 1.
	Margin float64
	// ErrorMargin is the same for the share of failed requests, as a difference of shares; 0 means 0.005.
	ErrorMargin float64
	// Confidence of the intervals and of the comparison as a whole; 0 means 0.95.
	Confidence float64
	// BlockSeconds is the mean length of the bootstrap's blocks; 0 means a fifteenth of the phase. It has to be longer than
	// an overload lasts, and short enough to leave at least eight of them.
	BlockSeconds float64
	// Resamples of the bootstrap; 0 means 1000.
	Resamples int
	// Seed of the bootstrap. Equal inputs give equal reports.
	Seed uint64
	// Force compares runs of different workloads, too.
	Force bool
}

func (o Options) withDefaults() Options {
	if o.Phase == "" {
		o.Phase = "steady"
	}
	if o.Margin == 0 {
		o.Margin = 0.05
	}
	if o.ErrorMargin == 0 {
		o.ErrorMargin = 0.005
	}
	if o.Confidence == 0 {
		o.Confidence = 0.95
	}
	if o.Resamples == 0 {
		o.Resamples = 1000
	}
	return o
}

// Validate reports every wrong field at once.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("compare: "+format, args...))
		}
	}
	need(o.Margin > 0 && o.Margin < 1, "margin is %v, expected above 0, below 1", o.Margin)
	need(o.ErrorMargin > 0 && o.ErrorMargin < 1, "error margin is %v, expected above 0, below 1", o.ErrorMargin)
	need(o.Confidence > 0.5 && o.Confidence < 1, "confidence is %v, expected above 0.5, below 1", o.Confidence)
	need(o.BlockSeconds >= 0, "block length is %v seconds, expected 0 or more", o.BlockSeconds)
	need(o.Resamples >= 100 && o.Resamples <= 1_000_000, "resamples are %d, expected 100 to 1,000,000", o.Resamples)
	return errors.Join(errs...)
}
