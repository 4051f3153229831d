package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	arrival  string            // process that --arrival asks for; "" for the script's own
	idleWait time.Duration     // how long the service may take to come back to idle
	log      io.Writer         // for people
	began    bool              // the service was seen idle before the first probe
}

const (
	// k6's exit codes of a run whose evidence stands: its own end, and the end by a threshold or abort rule.
	exitThresholds = 99
	// stopPatience is how long k6 may take to end after it was asked to.
	stopPatience = 30 * time.Second
)

// run runs one probe and judges it.
func (p *prober) run(ctx context.Context, req capacity.ProbeRequest) (capacity.ProbeResult, error) {
	if err := p.ready(ctx); err != nil {
		return capacity.ProbeResult{}, err
	}
	dir := filepath.Join(p.dir, req.Dir)
	if err := os.RemoveAll(dir); err != nil { // of a probe that was interrupted
		return capacity.ProbeResult{}, err //nolint:wrapcheck // names the directory
	}
	began := time.Now()
	if err := p.k6(ctx, req, dir, p.steady(req)); err != nil {
		return capacity.ProbeResult{}, err
	}
	run, judged, err := p.judge(dir)
	if err != nil {
		return capacity.ProbeResult{}, err
	}
	result := capacity.FromVerdict(judged)
	came, err := arrivalsOf(run)
	if err == nil {
		err = p.askedFor(run, req, came)
	}
	if err == nil {
		err = capacity.Unmeasured(judged, p.contract, capacity.Watched{
			Monitor: monitored(run.Info.Options), Length: req.Length, Longest: capacity.DefaultMaxLength,
		})
	}
	if err != nil {
		return capacity.ProbeResult{}, err
	}
	result.OwnArrivals = came.own
	if came.enough {
		result.OfferedRate = &came.Rate
	}
	if m, several := came.perArrival(); several {
		result.RequestsPerArrival = &m
		if result.CompletedRate != nil {
			arrivals := *result.CompletedRate / m
			result.CompletedRate = &arrivals
		}
	}
	if run.Info.Aborted != nil && run.Info.Aborted.Rule != results.RuleInterrupted {
		result.StoppedEarly = run.Info.Aborted.Saw
	}
	inFlight, exact, err := run.MeanInFlight(string(contract.PhaseSteady))
	if err != nil {
		return capacity.ProbeResult{}, err
	}
	result.MeanInFlight, result.InFlightSampled = inFlight, inFlight != nil && !exact
	if result.Recovered, err = p.waitForIdle(ctx); err != nil {
		return capacity.ProbeResult{}, err
	}
	result.Seconds = time.Since(began).Seconds()

	return result, nil
}

// countCut takes the time of a probe that was cut from the evidence that it left, into the state. Its load was made. The
// evidence is thrown away then: the probe is run again.
func (p *prober) countCut(env environment, state *capacity.State) error {
	name, ok := state.Unfinished()
	if !ok {
		return nil
	}
	dir := filepath.Join(p.dir, name)
	seconds, err := secondsOfLoad(dir)
	if err != nil {
		return err
	}
	if seconds > 0 {
		fmt.Fprintf(env.stderr, "  %s was cut after %.0f s, which count\n", name, seconds)
	}
	state.AddCut(seconds)
	if err := state.Save(p.dir); err != nil {
		return err //nolint:wrapcheck // names the file
	}

	return os.RemoveAll(dir) //nolint:wrapcheck // names the directory
}

// secondsOfLoad is how long a run went on, by what it left: to its end, or to the last second of its series, and the last
// request. One that left
// nothing was cut before it began.
func secondsOfLoad(dir string) (float64, error) {
	if _, err := os.Stat(filepath.Join(dir, results.RunFile)); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	run, err := results.Open(dir)
	if err != nil {
		return 0, err //nolint:wrapcheck // names the file
	}
	last := run.Info.Ended
	if last.IsZero() {
		see := func(at time.Time) {
			if at.After(last) {
				last = at
			}
		}
		_, ofSeries := run.Series(func(s *results.Sample) error {
			see(s.Time.Add(time.Second))

			return nil
		})
		_, ofRequests := run.Requests(func(r *results.Request) error {
			see(r.Arrival())

			return nil
		})
		if err := errors.Join(ofSeries, ofRequests); err != nil {
			return 0, err
		}
	}

	return max(last.Sub(run.Info.Started).Seconds(), 0), nil
}

// steady is the length of a probe's steady phase.
func (p *prober) steady(req capacity.ProbeRequest) time.Duration {
	seconds := math.Ceil(time.Duration(p.contract.Phases.Steady).Seconds()*req.Length - 1e-6) // no fewer requests than asked for

	return time.Duration(seconds) * time.Second
}

// judge judges the evidence in a directory by the contract of the search, and leaves the verdict there.
func (p *prober) judge(dir string) (*results.Run, *verdict.Result, error) {
	run, err := results.Open(dir)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // names the file
	}
	judged, err := verdict.Judge(run, p.contract)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // names the file
	}

	return run, judged, report.Write(dir, judged) //nolint:wrapcheck // names the file
}

// variables are the -e flags of a probe.
func (p *prober) variables(rate float64, steady string, seed uint64) []string {
	env := map[string]string{
		"LLM_RATE": strconv.FormatFloat(rate, 'g', -1, 64), "LLM_STEADY": steady,
		"LLM_SEED": strconv.FormatUint(seed, 10),
	}
	maps.Copy(env, p.env)
	flags := make([]string, 0, 2*len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		flags = append(flags, "-e", name+"="+env[name])
	}

	return flags
}

// environ is the environment of a probe: this process's, without what is the search's own to set.
func (p *prober) environ() []string {
	return slices.DeleteFunc(os.Environ(), func(text string) bool {
		name, _, _ := strings.Cut(text, "=")

		return slices.Contains(searchOwn, name)
	})
}

// logFile is what k6 printed, in the directory of a probe.
const logFile = "k6.log"

// k6 runs the script, as a whole or as one execution segment of it. Its output is kept beside the evidence.
func (p *prober) k6(ctx context.Context, req capacity.ProbeRequest, dir string, steady time.Duration, segment ...string) error {
	args := []string{"run", "--quiet", "--address", "", "--no-usage-report", "--out", "llm=" + dir}
	args = append(args, p.variables(req.Rate, steady.String(), req.LLMSeed)...)
	args = append(append(args, segment...), p.script)
	cmd := exec.CommandContext(ctx, p.binary, args...) // #nosec G204 -- this binary, the user's script
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopPatience
	cmd.Env = p.environ()
	if req.StopEarly {
		planned := max(int64(req.Rate*steady.Seconds()), 1)
		cmd.Env = append(cmd.Env, "LLM_STOP_EARLY_PLANNED="+strconv.FormatInt(planned, 10))
	}
	path := dir + ".log"           // beside the directory, which k6 makes; scripts can say a lot, so it is not held in memory
	output, err := os.Create(path) // #nosec G304 -- in the user's own directory
	if err != nil {
		return err //nolint:wrapcheck // names the file
	}
	cmd.Stdout, cmd.Stderr = output, output
	err = runWithParent(cmd)
	said := tail(output)
	kept := output.Close()
	if _, statErr := os.Stat(dir); statErr == nil {
		kept = errors.Join(kept, os.Rename(path, filepath.Join(dir, logFile)))
	}
	if ctx.Err() != nil {
		return ctx.Err() //nolint:wrapcheck // the search was interrupted
	}
	var exit *exec.ExitError
	if err == nil || (errors.As(err, &exit) && exit.ExitCode() == exitThresholds) {
		return kept // a crossed threshold is an answer, too: the verdict says which
	}

	return fmt.Errorf("k6 run: %w; it said:\n%s", err, lastLines(said, 12))
}

// tail is the end of what was written to a file.
func tail(file *os.File) string {
	const most = 64 << 10
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err.Error()
	}
	content := make([]byte, min(size, most))
	if _, err := file.ReadAt(content, size-int64(len(content))); err != nil && !errors.Is(err, io.EOF) {
		return err.Error()
	}

	return string(content)
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")

	return strings.Join(lines[max(len(lines)-n, 0):], "\n")
}

// waitForIdle waits until the service has nothing left to do. Without its metrics that can not be seen: nil.
func (p *prober) waitForIdle(ctx context.Context) (*bool, error) {
	if p.contract.Server == nil || len(p.contract.Server.MetricsURLs) == 0 {
		return nil, nil //nolint:nilnil // it can not be seen
	}
	err := p.idle(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err() //nolint:wrapcheck // the search was interrupted
	}
	idle := err == nil

	return &idle, nil
}

// idle returns once the service is idle; the error says what it was doing at last.
func (p *prober) idle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.idleWait)
	defer cancel()
	client := &http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	var last error
	for {
		busy := p.busy(ctx, client)
		if busy == nil {
			return nil
		}
		if last == nil {
			fmt.Fprintf(p.log, "    waiting for the service to be idle, %s at most: %v\n", p.idleWait, busy)
		}
		if ctx.Err() == nil || last == nil {
			last = busy // and not that the wait is over
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(250 * time.Millisecond):
		}
	}
}

var errBusy = errors.New("it is busy")

// busy says what the service has to do; nil where it has nothing. Each replica tells by what it has, since some show a metric from
// their first request on.
func (p *prober) busy(ctx context.Context, client *http.Client) error {
	var running, waiting float64
	for _, url := range p.contract.Server.MetricsURLs {
		r, err := scrape.Fetch(ctx, client, url)
		if err != nil {
			return err //nolint:wrapcheck // names the address
		}
		for _, quantity := range []string{"running", "queue_depth"} {
			if why, bad := r.NotMeasured[quantity]; bad {
				return errors.New(why)
			}
		}
		if r.QueueDepth == nil && r.Running == nil {
			return fmt.Errorf("%s has neither a number of running requests nor one of waiting ones", url)
		}
		running += value(r.Running)
		waiting += value(r.QueueDepth)
	}
	if running+waiting > 0 {
		return fmt.Errorf("%w: %.0f requests are running and %.0f are waiting", errBusy, running, waiting)
	}

	return nil
}

// ready is an error where the service is not idle before the first probe: somebody else's load would be measured, too.
func (p *prober) ready(ctx context.Context) error {
	if p.began || p.contract.Server == nil || len(p.contract.Server.MetricsURLs) == 0 {
		return nil
	}
	err := p.idle(ctx)
	if ctx.Err() != nil {
		return ctx.Err() //nolint:wrapcheck // the search was interrupted
	}
	if errors.Is(err, errBusy) {
		return fmt.Errorf("the service is not idle after %s (--idle-wait), so that the search would measure other load, too: %w", p.idleWait, err)
	}
	if err != nil {
		return fmt.Errorf("whether the service is idle could not be read for %s (server.metrics_url of the contract): %w", p.idleWait, err)
	}
	p.began = true

	return nil
}

func value(v *float64) float64 {
	if v == nil {
		return 0
	}

	return *v
}
