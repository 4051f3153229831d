package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"go.k6.io/k6/lib"
	"go.k6.io/k6/lib/executor"
	"go.k6.io/k6/lib/types"
	"go.k6.io/k6/metrics"

	"github.com/safeqps/xk6-safeqps/gate/abort"
	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/headroom"
	"github.com/safeqps/xk6-safeqps/gate/scrape"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// MonitorType is the name of the monitor's executor, and MonitorScenario that of its scenario.
const (
	MonitorType     = "llm-monitor"
	MonitorScenario = "llm_monitor"
)

const (
	serverPrefix = "llm_server_"
	clientPrefix = "llm_client_"
	gapsName     = "llm_server_scrape_gaps"
	growthName   = "llm_queue_growth"
	inFlightName = "llm_in_flight"
)

// MonitorConfig is the scenario that `gate.monitor(contract)` gives. It has no VUs: its executor reads the service's own
// metrics and the load generator's state about once a second, until the other scenarios are over.
type MonitorConfig struct {
	executor.BaseConfig

	// Contract is the checked contract as JSON: it travels with the script's options, so that outputs, archives and
	// other instances have it too.
	Contract json.RawMessage `json:"contract"`
	// Interval is the time between two readings.
	Interval types.NullDuration `json:"interval"`

	gate *Gate
}

const defaultInterval = time.Second

func registerMonitor(g *Gate) {
	lib.RegisterExecutorConfigType(MonitorType, func(name string, rawJSON []byte) (lib.ExecutorConfig, error) {
		config := &MonitorConfig{BaseConfig: executor.NewBaseConfig(name, MonitorType), gate: g}
		err := lib.StrictJSONUnmarshal(rawJSON, config)

		return config, err //nolint:wrapcheck // k6 names the scenario
	})
}

var _ lib.ExecutorConfig = &MonitorConfig{}

func (c *MonitorConfig) contract() (*contract.Contract, error) {
	var out contract.Contract
	if err := json.Unmarshal(c.Contract, &out); err != nil {
		return nil, fmt.Errorf("scenario %s: contract: %w; give options.scenarios what gate.monitor() returns", c.Name, err)
	}

	return &out, nil
}

// Validate implements lib.ExecutorConfig.
func (c *MonitorConfig) Validate() []error {
	errs := c.BaseConfig.Validate()
	if _, err := c.contract(); err != nil {
		errs = append(errs, err)
	}
	if c.Interval.Valid && c.Interval.Duration <= 0 {
		errs = append(errs, fmt.Errorf("interval: got %s, expected a time above zero", c.Interval.Duration))
	}

	return errs
}

// GetExecutionRequirements implements lib.ExecutorConfig: the monitor needs no VU, and asks for no time of its own.
func (c *MonitorConfig) GetExecutionRequirements(*lib.ExecutionTuple) []lib.ExecutionStep {
	return []lib.ExecutionStep{{}}
}

// GetDescription implements lib.ExecutorConfig.
func (c *MonitorConfig) GetDescription(*lib.ExecutionTuple) string {
	return fmt.Sprintf("watches the service and the load generator every %s", c.interval())
}

func (c *MonitorConfig) interval() time.Duration {
	if c.Interval.Valid {
		return c.Interval.TimeDuration()
	}

	return defaultInterval
}

// HasWork implements lib.ExecutorConfig. Every instance watches itself; only the first one asks the server.
func (c *MonitorConfig) HasWork(*lib.ExecutionTuple) bool { return true }

// NewExecutor implements lib.ExecutorConfig.
func (c *MonitorConfig) NewExecutor(state *lib.ExecutionState, logger *logrus.Entry) (lib.Executor, error) {
	agreed, err := c.contract()
	if err != nil {
		return nil, err
	}

	return &monitor{
		BaseExecutor: executor.NewBaseExecutor(c, state, logger), config: c, state: state, logger: logger, agreed: agreed,
		load: c.gate.load,
	}, nil
}

// monitor is the running monitor.
type monitor struct {
	*executor.BaseExecutor
	config *MonitorConfig
	state  *lib.ExecutionState
	logger *logrus.Entry
	agreed *contract.Contract
	load   Load

	started time.Time
	out     chan<- metrics.SampleContainer
	client  *http.Client
	meter   *headroom.Meter
	timers  *headroom.TimerWatch
	growth  *verdict.GrowthDetector
	watch   *abort.Watch

	before        scrape.Reading // of the server; empty before the first one
	haveBefore    bool
	gapLogged     bool
	queueFrom     string // where the queue's depth comes from
	arrivedBefore uint64
}

// Run implements lib.Executor. It returns when the other scenarios are over, or with the abort rule that is met.
func (m *monitor) Run(ctx context.Context, out chan<- metrics.SampleContainer) error {
	m.out, m.started = out, time.Now()
	meter, err := headroom.NewMeter()
	if err != nil {
		return fmt.Errorf("monitor: %w", err)
	}
	m.meter = meter
	timersCtx, stopTimers := context.WithCancel(ctx)
	m.timers = headroom.WatchTimers(timersCtx)
	defer m.timers.Wait()
	defer stopTimers()
	m.client = &http.Client{Timeout: m.config.interval()}
	defer m.client.CloseIdleConnections()
	m.watch = abort.NewWatch(m.agreed.Abort, m.started)
	m.arrivedBefore = m.load.Started()

	end := m.endOfOthers()
	ticker := time.NewTicker(m.config.interval())
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			if err := m.tick(ctx, now); err != nil {
				return err
			}
			if m.othersAreOver(now, end) {
				return nil
			}
		}
	}
}

// endOfOthers is how long the other scenarios can last at most.
func (m *monitor) endOfOthers() time.Duration {
	var end time.Duration
	for _, config := range m.state.Test.Options.Scenarios {
		if config.GetType() == MonitorType {
			continue
		}
		offset, _ := lib.GetEndOffset(config.GetExecutionRequirements(m.state.ExecutionTuple))
		end = max(end, config.GetStartTime()+offset)
	}

	return end
}

// othersAreOver reports whether nothing is left to watch: no VU is at work, and no scenario is still to come.
func (m *monitor) othersAreOver(now time.Time, end time.Duration) bool {
	elapsed := now.Sub(m.started)
	if elapsed > end {
		return true
	}
	if m.state.GetCurrentlyActiveVUsCount() > 0 || elapsed < 2*m.config.interval() {
		return false
	}
	for _, config := range m.state.Test.Options.Scenarios {
		if config.GetType() != MonitorType && elapsed < config.GetStartTime()+max(m.scheduled(config), m.config.interval()) {
			return false
		}
	}

	return true
}

// scheduled is how long a scenario lasts by its schedule, without gracefulStop. Until then, that no VU is at work means no
// more than that no request is under way. Scenarios that end with their iterations keep their VUs at work until then: their
// maxDuration is not waited for.
func (m *monitor) scheduled(config lib.ExecutorConfig) time.Duration {
	switch config.GetType() {
	case "shared-iterations", "per-vu-iterations":
		return 0
	default:
		offset, _ := lib.GetEndOffset(config.GetExecutionRequirements(m.state.ExecutionTuple))

		return offset - config.GetGracefulStop()
	}
}

// tick takes one reading of everything.
func (m *monitor) tick(ctx context.Context, now time.Time) error {
	tags := m.tags(now)
	levels := map[string]float64{"in_flight": float64(m.load.InFlight())}
	// The client sends it when requests start and end, and two that end at once can overtake each other on the way.
	m.push(inFlightName, now, m.state.Test.RunTags, levels["in_flight"])
	m.readClient(now, tags, levels)
	if m.asksServer() {
		m.readServer(ctx, now, tags, levels)
		m.readHealth(ctx, levels)
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the run ends: what could not be read says nothing
	}
	m.judgeGrowth(now, tags, levels)
	if tripped := m.watch.Tick(now, levels); tripped != nil {
		m.logger.Error(tripped.Error())

		return abortError(tripped)
	}

	return nil
}

// asksServer is true in one instance of a test: the service is not to be asked by all of them.
func (m *monitor) asksServer() bool {
	segment := m.state.ExecutionTuple.Segment

	return segment == nil || segment.FloatLength() >= 1 || m.state.ExecutionTuple.SegmentIndex == 0
}

// tags are the run's, and the phase and step that the test is in by its schedule.
func (m *monitor) tags(now time.Time) *metrics.TagSet {
	tags := m.state.Test.RunTags.With("scenario", m.config.Name)
	var latest time.Duration = -1
	for _, config := range m.state.Test.Options.Scenarios {
		start := config.GetStartTime()
		if config.GetType() == MonitorType || start > now.Sub(m.started) || start < latest {
			continue
		}
		for _, name := range []string{"phase", "step"} {
			if value, ok := config.GetTags()[name]; ok {
				latest = start
				tags = tags.With(name, value)
			}
		}
	}

	return tags
}

func (m *monitor) push(name string, now time.Time, tags *metrics.TagSet, value float64) {
	metric := m.state.Test.Registry.Get(name)
	if metric == nil {
		return // the module was not imported by the script that was run from an archive
	}
	m.out <- metrics.Sample{TimeSeries: metrics.TimeSeries{Metric: metric, Tags: tags}, Time: now, Value: value}
}

// readClient reads the load generator's own state. The worst of its limits gives the state client_headroom.
func (m *monitor) readClient(now time.Time, tags *metrics.TagSet, levels map[string]float64) {
	r := m.meter.Read()
	seen := map[string]*float64{"cpu": r.CPU, "memory": r.Memory, "open_files": r.OpenFiles}
	for name, value := range seen {
		if value != nil {
			m.push(clientPrefix+name, now, tags, *value)
		}
	}
	for _, late := range m.timers.Take() {
		m.push(clientPrefix+"timer_delay", now, tags, metrics.D(late))
	}
	breached := 0.0
	for _, c := range m.agreed.ClientHeadroom {
		if value := seen[c.Metric]; value != nil {
			if met, known := c.Met(*value); known && !met {
				breached = 1
			}
		}
	}
	levels["client_headroom"] = breached
}

// readServer scrapes the replicas. One that does not answer is a gap, and counted: the others alone would look like less
// load.
func (m *monitor) readServer(ctx context.Context, now time.Time, tags *metrics.TagSet, levels map[string]float64) {
	if m.agreed.Server == nil {
		return
	}
	reading, err := m.scrapeAll(ctx, m.agreed.Server.MetricsURLs)
	if err != nil {
		m.haveBefore = false
		m.push(gapsName, now, tags.With("reason", err.Error()), 1)
		if !m.gapLogged {
			m.gapLogged = true
			m.logger.WithError(err).Warn("monitor: the server's metrics could not be read; gaps are counted in " + gapsName)
		}

		return
	}
	gpu, err := m.scrapeAll(ctx, m.agreed.Server.GPUURLs)
	if err == nil {
		reading = scrape.Join(reading, gpu)
	}
	for _, q := range []struct {
		name  string
		value *float64
	}{
		{"queue_depth", reading.QueueDepth},
		{"running", reading.Running},
		{"kv_cache_usage", reading.KVCacheUsage},
		{"gpu_utilisation", reading.GPUUtilisation},
		{"gpu_memory", reading.GPUMemoryUsed},
	} {
		if q.value != nil {
			m.push(serverPrefix+q.name, now, tags, *q.value)
			levels[q.name] = *q.value
		}
	}
	if m.haveBefore {
		m.pushSince(now, tags, scrape.Between(m.before, reading), reading)
	}
	m.before, m.haveBefore = reading, true
}

func (m *monitor) pushSince(now time.Time, tags *metrics.TagSet, since scrape.Since, reading scrape.Reading) {
	if since.PrefixHitRatio == nil {
		since.PrefixHitRatio = reading.PrefixHitRatio
	}
	if since.PrefixHitRatio != nil {
		m.push(serverPrefix+"prefix_hit_ratio", now, tags, *since.PrefixHitRatio)
	}
	if since.Preemptions != nil {
		m.push(serverPrefix+"preemptions", now, tags, *since.Preemptions)
	}
	if since.QueueTime != nil {
		m.push(serverPrefix+"queue_time", now, tags, *since.QueueTime*1000)
	}
}

// scrapeAll reads several endpoints at once and joins what they say.
func (m *monitor) scrapeAll(ctx context.Context, urls []string) (scrape.Reading, error) {
	readings := make([]scrape.Reading, len(urls))
	errs := make([]error, len(urls))
	var wg sync.WaitGroup
	for i, url := range urls {
		wg.Go(func() { readings[i], errs[i] = scrape.Fetch(ctx, m.client, url) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return scrape.Reading{}, err
	}

	return scrape.Join(readings...), nil
}

// readHealth asks the health endpoints; the state is bad while any of them does not answer well.
func (m *monitor) readHealth(ctx context.Context, levels map[string]float64) {
	if m.agreed.Server == nil || len(m.agreed.Server.HealthURLs) == 0 {
		return
	}
	levels["unhealthy"] = 0
	for _, url := range m.agreed.Server.HealthURLs {
		if err := scrape.Healthy(ctx, m.client, url); err != nil {
			levels["unhealthy"] = 1
		}
	}
}

// judgeGrowth runs the sequential test on the server's queue, and where that is not known, on what is in flight. Only
// the steady phase is judged; a test without phases is steady throughout.
func (m *monitor) judgeGrowth(now time.Time, tags *metrics.TagSet, levels map[string]float64) {
	if phase, ok := tags.Get("phase"); ok && phase != string(contract.PhaseSteady) {
		return
	}
	depth, from, signal := levels["in_flight"], "in flight", verdict.SignalInFlight
	if waiting, ok := levels["queue_depth"]; ok {
		depth, from, signal = waiting, "queue depth", verdict.SignalWaiting
	}
	if m.growth == nil || m.queueFrom != from {
		if m.queueFrom == "queue depth" {
			return // a gap in the server's metrics is a gap, not another signal
		}
		m.growth = verdict.NewGrowthDetector(verdict.GrowthBin(time.Duration(m.agreed.Phases.Steady)), signal)
		m.queueFrom = from
	}
	arrived := m.load.Started()
	state := m.growth.Update(now.Sub(m.started), depth, float64(arrived-m.arrivedBefore))
	m.arrivedBefore = arrived
	sustained := 0.0
	if state.Sustained {
		sustained = 1
	}
	levels["queue_growth"] = sustained
	m.push(growthName, now, tags, sustained)
}

// registerMonitorMetrics makes the monitor's metrics known in the first init context.
func registerMonitorMetrics(registry *metrics.Registry) error {
	for _, want := range []struct {
		name  string
		kind  metrics.MetricType
		value metrics.ValueType
	}{
		{serverPrefix + "queue_depth", metrics.Gauge, metrics.Default},
		{serverPrefix + "running", metrics.Gauge, metrics.Default},
		{serverPrefix + "kv_cache_usage", metrics.Gauge, metrics.Default},
		{serverPrefix + "prefix_hit_ratio", metrics.Gauge, metrics.Default},
		{serverPrefix + "preemptions", metrics.Gauge, metrics.Default},
		{serverPrefix + "gpu_utilisation", metrics.Gauge, metrics.Default},
		{serverPrefix + "gpu_memory", metrics.Gauge, metrics.Data},
		{serverPrefix + "queue_time", metrics.Trend, metrics.Time},
		{gapsName, metrics.Counter, metrics.Default},
		{clientPrefix + "cpu", metrics.Gauge, metrics.Default},
		{clientPrefix + "memory", metrics.Gauge, metrics.Default},
		{clientPrefix + "open_files", metrics.Gauge, metrics.Default},
		{clientPrefix + "timer_delay", metrics.Trend, metrics.Time},
		{growthName, metrics.Gauge, metrics.Default},
	} {
		if _, err := registry.NewMetric(want.name, want.kind, want.value); err != nil {
			return fmt.Errorf("registering the metric %s: %w", want.name, err)
		}
	}

	return nil
}
