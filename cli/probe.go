package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/safeqps/xk6-safeqps/gate/capacity"
	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/report"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/scrape"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// prober runs the probes of a search: each is a `k6 run` of the user's own script, by this binary.
type prober struct {
	binary   string
	script   string
	dir      string // of the search
	contract *contract.Contract
	env      map[string]string // handed to the script
	idleWait time.Duration     // how long the service may take to come back to idle
}

const (
	// k6's exit codes of a run whose evidence stands: its own end, and the end by a threshold or abort rule.
	exitThresholds = 99
	// stopPatience is how long k6 may take to end after it was asked to.
	stopPatience = 30 * time.Second
)

// run runs one probe and judges it.
func (p *prober) run(ctx context.Context, req capacity.ProbeRequest) (capacity.ProbeResult, error) {
	dir := filepath.Join(p.dir, req.Dir)
	if err := os.RemoveAll(dir); err != nil { // of a probe that was interrupted
		return capacity.ProbeResult{}, fmt.Errorf("probe %d: %w", req.N, err)
	}
	steady := time.Duration(float64(p.contract.Phases.Steady) * req.Length).Round(time.Second)
	began := time.Now()
	if err := p.k6(ctx, req, dir, steady); err != nil {
		return capacity.ProbeResult{}, err
	}
	run, err := results.Open(dir)
	if err != nil {
		return capacity.ProbeResult{}, fmt.Errorf("probe %d: %w", req.N, err)
	}
	judged, err := verdict.Judge(run, p.contract)
	if err != nil {
		return capacity.ProbeResult{}, fmt.Errorf("probe %d: %w", req.N, err)
	}
	if err := report.Write(dir, judged); err != nil {
		return capacity.ProbeResult{}, fmt.Errorf("probe %d: %w", req.N, err)
	}
	if err := sentTheRate(judged, req.Rate); err != nil {
		return capacity.ProbeResult{}, fmt.Errorf("probe %d: %w", req.N, err)
	}
	result := capacity.FromVerdict(judged)
	if run.Info.Aborted != nil && run.Info.Aborted.Rule != results.RuleInterrupted {
		result.StoppedEarly = run.Info.Aborted.Saw
	}
	if result.MeanInFlight, err = meanInFlight(run); err != nil {
		return capacity.ProbeResult{}, fmt.Errorf("probe %d: %w", req.N, err)
	}
	if result.Recovered, err = p.waitForIdle(ctx); err != nil {
		return capacity.ProbeResult{}, err
	}
	result.Seconds = time.Since(began).Seconds()

	return result, nil
}

// sentTheRate is an error where the script did not offer the rate that it was asked for: then the probe says nothing about
// that rate. A probe that ended early is too short to tell.
func sentTheRate(judged *verdict.Result, rate float64) error {
	if judged.Aborted != nil {
		return nil
	}
	const tolerance, fewest = 0.2, 20
	for _, phase := range judged.Phases {
		if phase.Name != string(contract.PhaseSteady) || phase.Seconds <= 0 || phase.Counts.Offered < fewest {
			continue
		}
		offered := float64(phase.Counts.Offered-1) / phase.Seconds
		if offered < rate*(1-tolerance) || offered > rate*(1+tolerance) {
			return fmt.Errorf("the script offered %.4g requests/s in its steady phase, %.4g were asked for: "+
				"it has to take its rate from __ENV.LLM_RATE, as examples/capacity.js does", offered, rate)
		}

		return nil
	}

	return nil
}

// k6 runs the script. Its output is kept beside the evidence.
func (p *prober) k6(ctx context.Context, req capacity.ProbeRequest, dir string, steady time.Duration) error {
	env := map[string]string{
		"LLM_RATE": strconv.FormatFloat(req.Rate, 'g', 8, 64), "LLM_STEADY": steady.String(),
		"LLM_SEED": strconv.FormatUint(req.Seed>>11, 10), // a JavaScript number holds 53 bits
	}
	for name, value := range p.env {
		env[name] = value
	}
	names := make([]string, 0, len(env))
	for name := range env {
		names = append(names, name)
	}
	sort.Strings(names)
	args := make([]string, 0, 8+2*len(names))
	args = append(args, "run", "--quiet", "--address", "", "--no-usage-report", "--out", "llm="+dir)
	for _, name := range names {
		args = append(args, "-e", name+"="+env[name])
	}
	cmd := exec.CommandContext(ctx, p.binary, append(args, p.script)...) //nolint:gosec // this binary, the user's script
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopPatience
	cmd.Env = os.Environ()
	if req.StopEarly {
		planned := max(int64(req.Rate*steady.Seconds()), 1)
		cmd.Env = append(cmd.Env, "LLM_STOP_EARLY_PLANNED="+strconv.FormatInt(planned, 10))
	}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	if _, statErr := os.Stat(dir); statErr == nil {
		if writeErr := results.WriteFile(filepath.Join(dir, "k6.log"), output.Bytes()); writeErr != nil {
			return fmt.Errorf("probe %d: %w", req.N, writeErr)
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("probe %d: %w", req.N, ctx.Err())
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit) && exit.ExitCode() == exitThresholds:
		return nil // an answer too: the verdict says which
	default:
		return fmt.Errorf("probe %d: k6 run: %w; it said:\n%s", req.N, err, lastLines(output.String(), 12))
	}
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")

	return strings.Join(lines[max(len(lines)-n, 0):], "\n")
}

// meanInFlight is how many requests were in flight over the steady phase, on average.
func meanInFlight(run *results.Run) (*float64, error) {
	total, n := 0.0, 0.0
	_, err := run.Series(func(s *results.Sample) error {
		if s.Phase == string(contract.PhaseSteady) && s.InFlight != nil {
			total += float64(*s.InFlight)
			n++
		}

		return nil
	})
	if err != nil || n == 0 {
		return nil, err //nolint:wrapcheck // names the file
	}
	mean := total / n

	return &mean, nil
}

// waitForIdle waits until the service has nothing left to do. Without its metrics that can not be seen.
func (p *prober) waitForIdle(ctx context.Context) (*bool, error) {
	if p.contract.Server == nil || len(p.contract.Server.MetricsURLs) == 0 {
		return nil, nil //nolint:nilnil // it can not be seen
	}
	client := &http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	idle := false
	for deadline := time.Now().Add(p.idleWait); !idle && time.Now().Before(deadline); {
		readings := make([]scrape.Reading, 0, len(p.contract.Server.MetricsURLs))
		for _, url := range p.contract.Server.MetricsURLs {
			if r, err := scrape.Fetch(ctx, client, url); err == nil {
				readings = append(readings, r)
			}
		}
		r := scrape.Join(readings...)
		if len(readings) == len(p.contract.Server.MetricsURLs) && (r.QueueDepth != nil || r.Running != nil) {
			idle = value(r.QueueDepth)+value(r.Running) == 0
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err() //nolint:wrapcheck // the search was interrupted
		case <-time.After(250 * time.Millisecond):
		}
	}

	return &idle, nil
}

func value(v *float64) float64 {
	if v == nil {
		return 0
	}

	return *v
}
