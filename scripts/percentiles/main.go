// Command percentiles prints what the users of a capacity search's Safe QPS would see: the percentiles, the tokens per second and
// the error share of the probe that stands for it. `make demo` ends with it.
//
//	go run ./scripts/percentiles SEARCH
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/safeqps/xk6-safeqps/gate/capacity"
	"github.com/safeqps/xk6-safeqps/gate/report"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "percentiles: expected the directory of a capacity search")
		os.Exit(2)
	}
	if err := show(os.Stdout, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "percentiles:", err)
		os.Exit(1)
	}
}

// page is what is read of report.json.
type page struct {
	Runs []struct {
		Name   string         `json:"name"`
		Points []report.Point `json:"points"`
	} `json:"runs"`
}

var errNoProbe = errors.New("the search has no probe that kept the contract")

// show prints the steady phase of the probe at the Safe QPS.
func show(w io.Writer, dir string) error {
	var s capacity.Result
	if err := read(filepath.Join(dir, "capacity.json"), &s); err != nil {
		return err
	}
	var r page
	if err := read(filepath.Join(dir, "report.json"), &r); err != nil {
		return err
	}
	if s.Bracket.Low == nil {
		return errNoProbe
	}
	for _, probe := range s.Probes {
		if probe.N != s.Bracket.Low.Probe {
			continue
		}
		for _, run := range r.Runs {
			if run.Name != filepath.Base(probe.Dir) || len(run.Points) == 0 {
				continue
			}
			fmt.Fprintf(w, "What users see at %.3g requests/s (%s, %s):\n", s.Bracket.Low.Rate, run.Name, s.Bracket.Low.Verdict)

			return table(w, &run.Points[0])
		}
	}

	return errNoProbe
}

func table(w io.Writer, p *report.Point) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tn\tp50\tp95\tp99\t")
	for _, row := range []struct {
		name string
		q    *verdict.Quantiles
	}{{"TTFT", p.TTFT}, {"TPOT", p.TPOT}, {"ITL", p.ITL}, {"E2E", p.E2E}} {
		if row.q == nil {
			fmt.Fprintf(t, "%s\t0\tnot measured\t\t\t\n", row.name)

			continue
		}
		fmt.Fprintf(t, "%s\t%d\t%.1f ms\t%.1f ms\t%.1f ms\t\n", row.name, row.q.N, row.q.P50, row.q.P95, row.q.P99)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	for _, rate := range []struct {
		value  *float64
		factor float64
		format string
	}{
		{p.OutputTokensPerSecond, 1, "%.0f output tokens/s\n"},
		{p.AchievedPerSecond, 1, "%.3g requests/s completed\n"},
		{p.ErrorShare, 100, "error share %.2g %%\n"},
	} {
		if rate.value == nil {
			continue // it was not measured
		}
		if _, err := fmt.Fprintf(w, rate.format, rate.factor**rate.value); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
	}

	return nil
}

func read(file string, into any) error {
	data, err := os.ReadFile(file) //nolint:gosec // the user names the directory
	if err != nil {
		return err //nolint:wrapcheck // it names the file
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}

	return nil
}
