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

// search is what is read of capacity.json, and report of report.json.
type search struct {
	Bracket struct {
		Low *struct {
			Rate    float64 `json:"rate"`
			Verdict string  `json:"verdict"`
			Probe   int     `json:"probe"`
		} `json:"low"`
	} `json:"bracket"`
	Probes []struct {
		N   int    `json:"n"`
		Dir string `json:"dir"`
	} `json:"probes"`
}

type report struct {
	Runs []struct {
		Name   string  `json:"name"`
		Points []point `json:"points"`
	} `json:"runs"`
}

type point struct {
	RequestsPerSecond float64   `json:"achieved_per_second"`
	TokensPerSecond   float64   `json:"output_tokens_per_second"`
	ErrorShare        float64   `json:"error_share"`
	TTFT              *quantity `json:"ttft"`
	TPOT              *quantity `json:"tpot"`
	ITL               *quantity `json:"itl"`
	E2E               *quantity `json:"e2e"`
}

type quantity struct {
	N             int64
	P50, P95, P99 float64
}

var errNoProbe = errors.New("the search has no probe that kept the contract")

// show prints the steady phase of the probe at the Safe QPS.
func show(w io.Writer, dir string) error {
	var s search
	if err := read(filepath.Join(dir, "capacity.json"), &s); err != nil {
		return err
	}
	var r report
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

			return table(w, run.Points[0])
		}
	}

	return errNoProbe
}

func table(w io.Writer, p point) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tn\tp50\tp95\tp99\t")
	for _, row := range []struct {
		name string
		q    *quantity
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
	_, err := fmt.Fprintf(w, "%.0f output tokens/s, %.3g requests/s completed, error share %.2g %%\n",
		p.TokensPerSecond, p.RequestsPerSecond, 100*p.ErrorShare)

	return err //nolint:wrapcheck // the terminal's own words say enough
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
