package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/shirou/gopsutil/v4/mem"
	"github.com/sirupsen/logrus"
	"go.k6.io/k6/errext"
	"go.k6.io/k6/errext/exitcodes"
	"go.k6.io/k6/lib"
	"go.k6.io/k6/lib/fsext"
	"go.k6.io/k6/metrics"
	"go.k6.io/k6/output"

	"github.com/safeqps/xk6-safeqps/gate/abort"
	"github.com/safeqps/xk6-safeqps/gate/clock"
	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/llm"
	"github.com/safeqps/xk6-safeqps/trace"
	"github.com/safeqps/xk6-safeqps/trace/format"
)

// Output is `--out llm=DIR`: it writes the results directory while the run goes on.
type Output struct {
	output.SampleBuffer

	dir       string
	scenarios lib.ScenarioConfigs
	options   results.Options
	info      results.Info
	replayed  func() []format.Label // how what the scenarios replay differs from the traces
	idealHits func() *float64       // what a prefix cache could serve of it
	contract  *contract.Contract    // nil where the script has none
	logger    logrus.FieldLogger
	stdout    io.Writer
	stopRun   func(error)

	writer  *results.Writer
	flusher *output.PeriodicFlusher
	started time.Time

	// What follows belongs to the flusher's goroutine.
	watch    *abort.Watch
	ruled    time.Time               // when the rules were looked at
	early    *earlyStop              // nil unless a capacity search asks for it
	open     map[uint64]*llm.Started // requests in flight
	seconds  *seconds
	clock    *clock.Watch
	forced   bool // a request forced the length of its answer, and the label says so
	closed   bool // a closed loop is measured, likewise
	broken   bool // the evidence can not be written any more
	tripped  *abort.Tripped
	finished error
	stopOnce sync.Once
}

// exitOutputLost is the exit code of a run whose evidence could not be written. It is none of k6's own (97 to 110), nor
// one of a verdict (0 to 3).
const exitOutputLost exitcodes.ExitCode = 96

const outputForm = "--out llm=DIR or --out llm=DIR,overwrite=true"

func newOutput(params output.Params) (*Output, error) {
	dir, rest, _ := strings.Cut(params.ConfigArgument, ",")
	o := &Output{
		dir: dir, logger: params.Logger, stdout: params.StdOut, open: map[uint64]*llm.Started{}, seconds: newSeconds(), clock: clock.NewWatch(),
		info: results.Info{Versions: versions(), Host: host(), Digests: map[string]string{}, Seeds: map[string]uint64{}, Rates: map[string]float64{}},
	}
	if dir == "" {
		return nil, fmt.Errorf("output llm: got no directory, expected %s", outputForm)
	}
	for option := range strings.SplitSeq(rest, ",") {
		switch option {
		case "", "overwrite=false":
		case "overwrite", "overwrite=true":
			o.options.Overwrite = true
		default:
			return nil, fmt.Errorf("output llm: got the option %q, expected %s", option, outputForm)
		}
	}
	if err := o.describe(params); err != nil {
		return nil, err
	}

	return o, nil
}

// describe gathers what is known before the run.
func (o *Output) describe(params output.Params) error {
	options, err := json.Marshal(params.ScriptOptions)
	if err != nil {
		return fmt.Errorf("output llm: the script's options: %w", err)
	}
	o.info.Options = options
	o.scenarios = params.ScriptOptions.Scenarios
	if segment := params.ScriptOptions.ExecutionSegment; segment != nil {
		o.info.Segment = segment.String()
	}
	if params.ScriptPath != nil {
		o.info.Workload = filepath.Base(params.ScriptPath.Path)
	}
	for _, config := range params.ScriptOptions.Scenarios {
		if m, ok := config.(*MonitorConfig); ok {
			if o.contract, err = m.contract(); err != nil {
				return err
			}
			o.info.Contract, o.info.Decision = m.Contract, o.contract.Decision
		}
	}
	if o.early, err = newEarlyStop(o.contract, params.Environment); err != nil {
		return err
	}
	labelUnwatched(&o.info, o.contract)
	if segment := params.ScriptOptions.ExecutionSegment; segment.FloatLength() < 1 {
		addLabel(&o.info, fmt.Sprintf("%s %s: its verdict is on a part of the requests, `k6 x llm merge` gives the whole",
			results.LabelSegment, segment))
	}
	for _, t := range trace.Infos() {
		o.info.Seeds[t.ID] = t.Seed
		if t.Rate > 0 {
			o.info.Rates[t.ID] = t.Rate
		}
		if t.Digest != "" {
			o.info.Digests[t.ID] = digestForm + t.Digest
		}
	}
	if err := digestScript(&o.info, params); err != nil {
		return err
	}
	o.replayed = func() []format.Label { return trace.Replayed(params.ScriptOptions.Scenarios) }
	o.idealHits = func() *float64 { return trace.IdealPrefixHitRatio(params.ScriptOptions.Scenarios) }
	o.describeTraces(&o.info)

	return nil
}

// digestForm names the function of the digests in run.json.
const digestForm = "sha256:"

// digestScript adds the digest of what k6 was given to run: the script, or the archive. What came from standard input or from
// another host cannot be read again, and has none.
func digestScript(info *results.Info, params output.Params) error {
	script := params.ScriptPath
	if script == nil || script.Scheme != "file" || script.Path == "/-" {
		return nil
	}
	content, err := fsext.ReadFile(params.FS, filepath.FromSlash(script.Path))
	if err != nil {
		return fmt.Errorf("output llm: the script's digest: %w", err)
	}
	sum := sha256.Sum256(content)
	info.Digests[results.DigestOfScript] = digestForm + hex.EncodeToString(sum[:])

	return nil
}

// labelClosedLoop says so where the service sets the rate of a request that is measured: of the steady phase, or of any if no
// scenario has one. A closed loop beside them does not do that, nor does one that sends nothing.
func (o *Output) labelClosedLoop(r *results.Request) {
	if o.closed || !closedLoop(o.scenarios, r) {
		return
	}
	o.closed = true
	o.keep(o.writer.UpdateInfo(func(info *results.Info) { addLabel(info, results.LabelClosedLoop) }))
}

func closedLoop(scenarios lib.ScenarioConfigs, r *results.Request) bool {
	const steady = string(contract.PhaseSteady)
	phased := false
	for _, config := range scenarios {
		phased = phased || config.GetTags()["phase"] == steady
	}
	if phased && r.Phase != steady {
		return false
	}
	for name, config := range scenarios {
		// Where k6 was told to leave the tag out, each scenario of the phase may have sent it.
		if r.Scenario != name && (r.Scenario != "" || phased && config.GetTags()["phase"] != steady) {
			continue
		}
		switch config.GetType() {
		case "constant-vus", "ramping-vus", "shared-iterations", "per-vu-iterations", "externally-controlled":
			return true
		}
	}

	return false
}

// describeTraces adds what limits the use of a result, as far as the traces and what is replayed of them show it. Some of it
// is known after the run only: a calibration comes from the script's setup().
func (o *Output) describeTraces(info *results.Info) {
	traces := trace.Infos()
	for _, t := range traces {
		for _, l := range t.Labels {
			addLabel(info, traceLabel(l))
		}
		for _, l := range []struct {
			holds bool
			label string
		}{
			{t.IgnoreEOS, results.LabelIgnoreEOS},
			{t.Synthetic, results.LabelSyntheticPrompts},
			{t.Calibrated, results.LabelCalibratedLengths},
		} {
			if l.holds {
				addLabel(info, l.label)
			}
		}
	}
	for _, l := range o.replayed() {
		addLabel(info, traceLabel(l))
	}
	info.IdealPrefixHitRatio = o.idealHits()
}

func addLabel(info *results.Info, label string) {
	if !slices.Contains(info.Labels, label) {
		info.Labels = append(info.Labels, label)
	}
}

// traceLabel says how a trace differs from its file.
func traceLabel(l format.Label) string {
	switch l.Kind {
	case "speed", "rate", "steps":
		return results.LabelRescaledTrace + ": " + l.Detail
	case "window", "limit", "part":
		return results.LabelTruncatedTrace + ": " + l.Detail
	case "loop":
		return results.LabelRepeatedTrace + ": " + l.Detail
	case "arrivals":
		return results.LabelOtherArrivals + ": " + l.Detail
	default:
		return "trace " + l.Kind + ": " + l.Detail
	}
}

func versions() map[string]string {
	v := map[string]string{"go": runtime.Version()}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range build.Deps {
			switch dep.Path {
			case "go.k6.io/k6", "go.k6.io/k6/v2":
				v["k6"] = dep.Version
			case "github.com/safeqps/xk6-safeqps":
				v["xk6-safeqps"] = dep.Version
			}
		}
		if build.Main.Path == "github.com/safeqps/xk6-safeqps" {
			v["xk6-safeqps"] = build.Main.Version
		}
	}

	return v
}

func host() results.Host {
	h := results.Host{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU()}
	if name, err := os.Hostname(); err == nil {
		h.Name = name
	}
	if m, err := mem.VirtualMemory(); err == nil {
		h.MemoryMB = int64(m.Total >> 20) //nolint:gosec // a machine's memory fits
	}

	return h
}

// Description implements output.Output.
func (o *Output) Description() string { return "llm (" + o.dir + ")" }

// SetTestRunStopCallback implements output.WithTestRunStop.
func (o *Output) SetTestRunStopCallback(stop func(error)) { o.stopRun = stop }

// Start implements output.Output.
func (o *Output) Start() error {
	o.started = time.Now()
	o.info.Started = o.started
	o.options.Warn = func(err error) {
		o.logger.WithError(err).Warn("output llm: nothing keeps another run out of the directory")
	}
	writer, err := results.Create(o.dir, o.info, o.options)
	if err != nil {
		return fmt.Errorf("output llm: %w", err)
	}
	if err := o.reserve(); err != nil {
		return errors.Join(err, writer.Discard())
	}
	o.writer = writer
	if o.contract != nil {
		o.watch = abort.NewWatch(o.contract, o.started)
	}
	flusher, err := output.NewPeriodicFlusher(flushPeriod, func() { o.flush(time.Now()) })
	if err != nil {
		return errors.Join(fmt.Errorf("output llm: %w", err), writer.Discard())
	}
	o.flusher = flusher

	return nil
}

const (
	// flushPeriod and lateness bound what a killed run loses: a second of the series is written once it is complete by lateness,
	// which is what k6 takes to hand samples over.
	flushPeriod = 250 * time.Millisecond
	lateness    = 200 * time.Millisecond
	// rulePeriod is how often the rules that end a run are looked at, a little less than a second for the flusher's own jitter.
	rulePeriod = 950 * time.Millisecond
)

// reservedBytes are kept free for the end of a run: its last second, histograms, verdict and reports. k6 asks nobody for
// an exit code any more by then, so that a disk that fills up has to do it before.
const reservedBytes = 2 << 20

func (o *Output) reservePath() string { return filepath.Join(o.dir, "reserved.tmp") }

func (o *Output) reserve() error {
	if err := os.WriteFile(o.reservePath(), make([]byte, reservedBytes), 0o600); err != nil {
		return errext.WithExitCodeIfNone(fmt.Errorf("output llm: no room for the evidence, expected %d MiB at least: %w",
			reservedBytes>>20, errors.Join(err, os.Remove(o.reservePath()))), exitOutputLost)
	}

	return nil
}

// Stop implements output.Output.
func (o *Output) Stop() error { return o.StopWithTestError(nil) }

// StopWithTestError implements output.WithStopWithTestError. The error is why the run ended early, nil where it did not.
func (o *Output) StopWithTestError(testErr error) error {
	o.stopOnce.Do(func() { o.finished = o.finish(testErr) })

	return o.finished
}

func (o *Output) finish(testErr error) error {
	if err := os.Remove(o.reservePath()); err != nil {
		o.logger.WithError(err).Warn("output llm: the reserved space could not be freed")
	}
	o.flusher.Stop() // flushes what is left
	now := time.Now()
	// k6 hands every exchange to its outputs before it stops them; what is still open here never came to an end.
	for _, s := range o.open {
		r := startedRequest(s)
		r.Outcome, r.Elapsed = results.InFlight, results.Num(metrics.D(now.Sub(s.Sent)))
		o.keep(o.writer.Request(&r))
		o.labelClosedLoop(&r)
	}
	for _, s := range o.seconds.all() {
		o.keep(o.writer.Sample(s))
	}
	if err := o.writer.Counts().Check(); err != nil {
		o.logger.WithError(err).Error("output llm: arrivals do not add up")
	}

	return o.writer.Close(now, func(info *results.Info) { o.conclude(info, testErr, now) })
}

// conclude adds what is known only after the run.
func (o *Output) conclude(info *results.Info, testErr error, now time.Time) {
	info.Phases, info.Steps = o.seconds.spans()
	o.describeTraces(info)
	var tripped *abort.Tripped
	switch {
	case o.tripped != nil:
		tripped = o.tripped
	case errors.As(testErr, &tripped):
	case testErr != nil && !crossedAtTheEnd(testErr):
		rule := results.RuleInterrupted
		if stoppedByThreshold(testErr) {
			rule = "k6.threshold" // abortOnFail: the service's fault, not an interruption
		}
		info.Aborted = &results.Aborted{Rule: rule, Saw: testErr.Error(), At: now}
	}
	if tripped != nil {
		info.Aborted = &results.Aborted{Rule: tripped.Rule, Saw: tripped.Saw, At: tripped.At}
	}
}

// crossedAtTheEnd is true for thresholds that were found crossed once the run was over: they did not end it.
func crossedAtTheEnd(err error) bool {
	var reason errext.HasAbortReason

	return errors.As(err, &reason) && reason.AbortReason() == errext.AbortedByThresholdsAfterTestEnd
}

func stoppedByThreshold(err error) bool {
	var reason errext.HasAbortReason

	return errors.As(err, &reason) && reason.AbortReason() == errext.AbortedByThreshold
}

// keep reports the first error of writing, and ends the run with it: a run without evidence proves nothing.
func (o *Output) keep(err error) {
	if err == nil || o.broken {
		return
	}
	o.broken = true
	err = fmt.Errorf("output llm: %w", err)
	o.logger.Error(err)
	if o.stopRun != nil {
		o.stopRun(errext.WithAbortReasonIfNone(errext.WithExitCodeIfNone(err, exitOutputLost), errext.AbortedByOutput))
	}
}

// flush takes what k6 has handed over since the last time.
func (o *Output) flush(now time.Time) {
	for _, container := range o.GetBufferedSamples() {
		switch c := container.(type) {
		case *llm.Exchange:
			o.exchange(c)
		case *llm.Started:
			o.open[c.Seq] = c
			o.seconds.started(c)
			o.watchStart(c)
		case *trace.Dropped:
			o.dropped(c)
		default:
			for _, s := range container.GetSamples() {
				o.sample(s)
			}
		}
	}
	o.seconds.clock(o.clock)
	for _, s := range o.seconds.before(now.Add(-lateness)) {
		o.keep(o.writer.Sample(s))
	}
	o.keep(o.writer.Flush(now))
	if o.watch == nil || o.tripped != nil || now.Sub(o.ruled) < rulePeriod {
		return
	}
	o.ruled = now
	o.watchOpen(now)
	o.tripped = o.watch.Tick(now, nil)
	if o.tripped == nil && o.early != nil {
		o.tripped = o.early.certain(now)
	}
	if o.tripped != nil && o.stopRun != nil {
		o.keep(o.writer.Event(results.Event{
			Time: now, Kind: results.EventAbort, Rule: o.tripped.Rule, Message: o.tripped.Saw,
		}))
		o.stopRun(abortError(o.tripped))
	}
}

// abortError ends a run as a crossed threshold would.
func abortError(t *abort.Tripped) error {
	return errext.WithAbortReasonIfNone(
		errext.WithExitCodeIfNone(t, exitcodes.ThresholdsHaveFailed), errext.AbortedByThreshold)
}

func (o *Output) exchange(e *llm.Exchange) {
	delete(o.open, e.Seq)
	r, gaps := exchangeRequest(e)
	o.keep(o.writer.Request(&r))
	o.labelClosedLoop(&r)
	o.keep(o.writer.RecordITL(r.Phase, r.Step, r.Class, gaps))
	o.seconds.ended(e, &r)
	if e.ForcedLength && !o.forced {
		o.forced = true
		o.keep(o.writer.UpdateInfo(func(info *results.Info) { addLabel(info, results.LabelIgnoreEOS) }))
	}
	if e.Status >= 200 && e.Status <= 299 { // what stands in for the service has a clock of its own
		o.clock.Answered(e.Date, e.Timeline.Sent, e.HeaderAt)
	}
	if o.early != nil {
		o.early.request(&r)
	}
	if o.watch != nil && e.Attempt == 1 {
		o.watch.Request(watchedEnd(e, &r, gaps))
	}
}

func (o *Output) dropped(d *trace.Dropped) {
	tags := d.Tags
	r := results.Request{
		Row: int64(d.Row), Scenario: d.Scenario, Class: d.Class, Due: d.Due, Outcome: results.Dropped,
		Phase: tag(tags, "phase"), Step: tag(tags, "step"), ErrorType: string(d.Reason),
	}
	o.keep(o.writer.Request(&r))
	o.seconds.dropped(d.Due, r.Phase, r.Step, 1)
	o.watchDrop(r.Phase, d.Due)
}

// sample takes what other executors and the monitor report.
func (o *Output) sample(s metrics.Sample) {
	name := s.Metric.Name
	switch {
	case name == metrics.DroppedIterationsName:
		// Arrivals that a stock executor could not start: k6 does not say which, and leaves the scenario's own tags out.
		scenario := tag(s.Tags, "scenario")
		phase, step := o.tagged(s.Tags, scenario, "phase"), o.tagged(s.Tags, scenario, "step")
		for range int(s.Value) {
			o.keep(o.writer.Request(&results.Request{
				Row: -1, Scenario: scenario, Due: s.Time, Outcome: results.Dropped, Phase: phase, Step: step,
			}))
			o.watchDrop(phase, s.Time)
		}
		o.seconds.dropped(s.Time, phase, step, int64(s.Value))
	case name == gapsName:
		o.keep(o.writer.Event(results.Event{Time: s.Time, Kind: gapKind(s.Tags), Message: tag(s.Tags, "reason")}))
	case !isMeasurement(name, s.Value): // the monitor gives none; a script can have a metric of this name
		o.keep(o.writer.Event(results.Event{
			Time: s.Time, Kind: results.EventScrapeGap, Message: results.NoMeasurement(name, s.Value),
		}))
	case strings.HasPrefix(name, serverPrefix):
		o.seconds.gauge(s, strings.TrimPrefix(name, serverPrefix), true)
	case name == clientPrefix+"timer_delay":
		o.keep(o.writer.RecordTimerDelay(tag(s.Tags, "phase"), tag(s.Tags, "step"), s.Value))
		o.seconds.gauge(s, "timer_delay", false)
	case strings.HasPrefix(name, clientPrefix):
		o.seconds.gauge(s, strings.TrimPrefix(name, clientPrefix), false)
	}
}

// isMeasurement is true of all that is no gauge of the service or the load generator.
func isMeasurement(name string, v float64) bool {
	for _, prefix := range []string{serverPrefix, clientPrefix} {
		if gauge, found := strings.CutPrefix(name, prefix); found {
			_, ok := results.Gauge(gauge, v)

			return ok
		}
	}

	return true
}

// tagged is a tag of a sample, or of the scenario that it belongs to.
func (o *Output) tagged(tags *metrics.TagSet, scenario, name string) string {
	if value := tag(tags, name); value != "" {
		return value
	}
	if config, ok := o.scenarios[scenario]; ok {
		return config.GetTags()[name]
	}

	return ""
}

func tag(tags *metrics.TagSet, name string) string {
	value, _ := tags.Get(name)

	return value
}

func startedRequest(s *llm.Started) results.Request {
	return results.Request{
		Row: s.Row, Attempt: s.Attempt, Scenario: tag(s.Tags, "scenario"), Phase: tag(s.Tags, "phase"), Step: tag(s.Tags, "step"),
		Class: s.Class, Model: tag(s.Tags, "model"), API: tag(s.Tags, "api"),
		Turn: number64(tag(s.Tags, "turn")), Round: number64(tag(s.Tags, "round")), Due: s.Due, Start: s.Sent,
	}
}

// number64 reads the number in a tag; 0 where there is none.
func number64(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0
	}

	return n
}

// exchangeRequest is the evidence of one exchange: its line, and the gaps between its chunks in milliseconds.
func exchangeRequest(e *llm.Exchange) (results.Request, []float64) {
	r := startedRequest(&llm.Started{Row: e.Row, Attempt: e.Attempt, Class: e.Class, Tags: e.Tags, Due: e.Due, Sent: e.Timeline.Sent})
	r.Outcome, r.ErrorType, r.CancelPhase, r.Status = outcome(e), string(e.ErrorType), string(e.CancelPhase), e.Status
	tl := &e.Timeline
	r.TTFT, r.TTFTText = duration(tl.TTFT()), duration(tl.TTFTText())
	r.ScheduleDelay = duration(e.ScheduleDelay())
	if e.Outcome == llm.OutcomeOK {
		r.TPOT, r.E2E = duration(e.TPOT()), duration(tl.E2E())
		if e.CompletionTokens != nil {
			if v, ok := tl.OutputRate(*e.CompletionTokens); ok {
				r.OutputTPS = results.Num(v)
			}
		}
	} else {
		r.Elapsed = results.Num(metrics.D(e.End.Sub(tl.Sent)))
	}
	gaps := make([]float64, 0, max(tl.Chunks()-1, 0))
	for _, gap := range tl.Gaps {
		gaps = append(gaps, metrics.D(gap))
	}
	r.ITLCount = int64(len(gaps))
	r.ITLP50, r.ITLP99, r.ITLMax = gapQuantiles(gaps)
	r.Chunks = int64(tl.Chunks())
	r.PromptAsked, r.CompletionAsked = asked(e.PromptTokensAsked), asked(e.CompletionTokensAsked)
	r.Prompt, r.Completion = count(e.PromptTokens), count(e.CompletionTokens)
	r.Cached, r.Reasoning = count(e.Message.Usage.CachedTokens), count(e.Message.Usage.ReasoningTokens)
	r.TokenSource, r.RequestID = string(e.TokenSource), e.Message.ID
	if e.Goodput != nil {
		r.Goodput = results.FlagOf(*e.Goodput)
	}
	if e.Cost != nil {
		r.Cost = results.Num(*e.Cost)
	}

	return r, gaps
}

// gapQuantiles are the middle, the 99th percentile (nearest rank) and the largest of a request's gaps.
func gapQuantiles(gaps []float64) (p50, p99, longest results.Number) {
	n := len(gaps)
	if n == 0 {
		return p50, p99, longest
	}
	ordered := slices.Sorted(slices.Values(gaps))
	rank := func(q float64) results.Number {
		return results.Num(ordered[max(int(math.Ceil(q*float64(n)))-1, 0)])
	}

	return rank(0.5), rank(0.99), results.Num(ordered[n-1])
}

func outcome(e *llm.Exchange) results.Outcome {
	switch {
	case e.Outcome == llm.OutcomeOK:
		return results.OK
	case e.Outcome == llm.OutcomeCancelled:
		return results.Cancelled
	case e.ErrorType == "interrupted":
		return results.InFlight // the run ended before its answer did
	default:
		return results.Failed
	}
}

func duration(d time.Duration, ok bool) results.Number {
	if !ok {
		return results.Number{}
	}

	return results.Num(metrics.D(d))
}

func count(n *int) results.Int {
	if n == nil {
		return results.Int{}
	}

	return results.IntOf(int64(*n))
}

func asked(n int) results.Int {
	if n == 0 {
		return results.Int{}
	}

	return results.IntOf(int64(n))
}

// seconds collects the run second by second, until a second is complete.
type seconds struct {
	pending map[int64]*second
	written int64 // all up to this one have been handed out
	phases  map[string]*results.Span
	steps   map[string]*results.Span

	// What follows is of the seconds that have been handed out.
	previous *results.Sample // the last of them
	begun    bool            // something was started in them
	inFlight int64           // at the end of the last one
}

// second is one that is not complete.
type second struct {
	results.Sample
	change int64 // of the requests in flight
}

func newSeconds() *seconds {
	return &seconds{
		pending: map[int64]*second{}, phases: map[string]*results.Span{}, steps: map[string]*results.Span{},
	}
}

// quietSecond is one in which nothing happened.
func quietSecond(at time.Time) results.Sample {
	return results.Sample{
		Time: at.UTC(), Offered: new(int64), Started: new(int64), Dropped: new(int64),
		Completed: new(int64), Failed: new(int64), Cancelled: new(int64),
	}
}

// at is the second that a moment belongs to. What comes late, after its second was handed out, counts in the next one.
func (s *seconds) at(t time.Time) *second {
	key := max(t.Unix(), s.written+1)
	sample := s.pending[key]
	if sample == nil {
		sample = &second{Sample: quietSecond(time.Unix(key, 0))}
		s.pending[key] = sample
	}

	return sample
}

func (s *seconds) arrival(sample *second, t time.Time, phase, step string) {
	*sample.Offered++
	if phase != "" {
		sample.Phase = phase
	}
	if step != "" {
		sample.Step = step
	}
	extend(s.phases, phase, t)
	extend(s.steps, step, t)
}

func extend(spans map[string]*results.Span, name string, t time.Time) {
	if name == "" {
		return
	}
	span := spans[name]
	if span == nil {
		span = &results.Span{Name: name, Start: t, End: t}
		spans[name] = span
	}
	if t.Before(span.Start) {
		span.Start = t
	}
	if t.After(span.End) {
		span.End = t
	}
}

func (s *seconds) started(c *llm.Started) {
	sample := s.at(c.Sent)
	if c.Attempt > 1 {
		return
	}
	s.arrival(sample, c.Sent, tag(c.Tags, "phase"), tag(c.Tags, "step"))
	*sample.Started++
	sample.change++
}

func (s *seconds) dropped(t time.Time, phase, step string, n int64) {
	sample := s.at(t)
	for range n {
		s.arrival(sample, t, phase, step)
		*sample.Dropped++
	}
}

func (s *seconds) ended(e *llm.Exchange, r *results.Request) {
	sample := s.at(e.End)
	if e.Attempt > 1 {
		return // counted by its line in requests.jsonl; not an arrival
	}
	switch r.Outcome {
	case results.OK:
		*sample.Completed++
	case results.Failed:
		*sample.Failed++
	case results.Cancelled:
		*sample.Cancelled++
	}
	add(&sample.PromptTokens, r.Prompt)
	add(&sample.CompletionTokens, r.Completion)
	sample.change--
}

func add(to **int64, n results.Int) {
	if !n.Known {
		return
	}
	if *to == nil {
		*to = new(int64)
	}
	**to += n.Value
}

func (s *seconds) gauge(g metrics.Sample, name string, server bool) {
	sample := s.at(g.Time)
	if sample.Phase == "" { // a second without arrivals, as in the recovery
		sample.Phase, sample.Step = tag(g.Tags, "phase"), tag(g.Tags, "step")
	}
	into := &sample.Client
	if server {
		into = &sample.Server
	}
	if *into == nil {
		*into = map[string]float64{}
	}
	value := g.Value
	if name == "timer_delay" { // many in a second: the worst counts
		value = max(value, (*into)[name])
	}
	(*into)[name] = value
}

// clock adds what is new of the service's clock to the latest second. It belongs to no second in particular, so that none
// is made for it.
func (s *seconds) clock(w *clock.Watch) {
	latest := s.written
	for key := range s.pending {
		latest = max(latest, key)
	}
	if sample := s.pending[latest]; sample != nil {
		sample.Clock = append(sample.Clock, w.Take()...)
	}
}

// before hands out the seconds that ended before a moment, oldest first.
func (s *seconds) before(t time.Time) []results.Sample { return s.take(t.Unix() - 1) }

func (s *seconds) all() []results.Sample {
	last := s.written
	for key := range s.pending {
		last = max(last, key)
	}

	return s.take(last)
}

func (s *seconds) take(last int64) []results.Sample {
	var out []results.Sample
	first := last + 1
	for key := range s.pending {
		first = min(first, key)
	}
	for key := first; key <= last; key++ {
		sample, ok := s.pending[key]
		if !ok {
			continue
		}
		delete(s.pending, key)
		out = s.fill(out, &sample.Sample)
		s.level(sample)
		out = append(out, sample.Sample)
	}
	s.written = max(s.written, last)

	return out
}

// level adds how many requests are in flight at a second's end, which is known from the first start on. It is summed up here,
// second by second: starts and ends are told a little out of order.
func (s *seconds) level(sample *second) {
	s.begun = s.begun || *sample.Started > 0
	if s.begun {
		s.inFlight += sample.change
		n := s.inFlight
		sample.InFlight = &n
	}
	s.previous = &sample.Sample
}

// fill adds the seconds between the last one and the next that nothing was told of: as many requests are in flight as before.
// Where the two are of different phases or steps, it is not known which one these belong to.
func (s *seconds) fill(out []results.Sample, next *results.Sample) []results.Sample {
	if !s.begun || next.Time.Sub(s.previous.Time) > results.LongestQuiet {
		return out
	}
	for at := s.previous.Time.Add(time.Second); at.Before(next.Time); at = at.Add(time.Second) {
		quiet, n := quietSecond(at), s.inFlight
		quiet.InFlight = &n
		if s.previous.Phase == next.Phase {
			quiet.Phase = next.Phase
		}
		if s.previous.Step == next.Step {
			quiet.Step = next.Step
		}
		out = append(out, quiet)
	}

	return out
}

func (s *seconds) spans() (phases, steps []results.Span) {
	return sorted(s.phases), sorted(s.steps)
}

func sorted(spans map[string]*results.Span) []results.Span {
	out := make([]results.Span, 0, len(spans))
	for span := range maps.Values(spans) {
		out = append(out, *span)
	}
	slices.SortFunc(out, func(a, b results.Span) int { return a.Start.Compare(b.Start) })

	return out
}
