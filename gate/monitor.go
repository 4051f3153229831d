package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
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
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/scrape"
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
	// Interval is the time between two readings, of everything. Without it the load generator is read each second at
	// least, and the service in the contract's server.interval.
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
	out, err := contract.Decode(c.Contract)
	if err != nil {
		return nil, fmt.Errorf("scenario %s: contract: %w; give options.scenarios what gate.monitor() returns", c.Name, err)
	}

	return out, nil
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
	agreed, err := c.contract()
	if err != nil {
		return "watches the service and the load generator" // Validate tells
	}
	read, scrape := c.intervals(agreed)
	if read == scrape {
		return fmt.Sprintf("watches the service and the load generator every %s", read)
	}

	return fmt.Sprintf("watches the service every %s and the load generator every %s", scrape, read)
}

// intervals are the times between two readings of the load generator, and of the service.
func (c *MonitorConfig) intervals(agreed *contract.Contract) (read, scrape time.Duration) {
	if c.Interval.Valid {
		return c.Interval.TimeDuration(), c.Interval.TimeDuration()
	}
	scrape = defaultInterval
	if agreed.Server != nil && agreed.Server.Interval > 0 {
		scrape = time.Duration(agreed.Server.Interval)
	}

	return min(defaultInterval, scrape), scrape
}

// HasWork implements lib.ExecutorConfig. Every instance watches itself; only the first one asks the server.
func (c *MonitorConfig) HasWork(*lib.ExecutionTuple) bool { return true }

// NewExecutor implements lib.ExecutorConfig.
func (c *MonitorConfig) NewExecutor(state *lib.ExecutionState, logger *logrus.Entry) (lib.Executor, error) {
	agreed, err := c.contract()
	if err != nil {
		return nil, err
	}

	for _, u := range agreed.Unwatched() {
		logger.Warn("the contract's rule " + u.String())
	}
	m := &monitor{
		BaseExecutor: executor.NewBaseExecutor(c, state, logger), config: c, state: state, logger: logger, agreed: agreed,
		load: c.gate.load, endpoints: map[string]bool{},
	}
	m.interval, m.scrapeEvery = c.intervals(agreed)

	return m, nil
}

// monitor is the running monitor.
type monitor struct {
	*executor.BaseExecutor
	config *MonitorConfig
	state  *lib.ExecutionState
	logger *logrus.Entry
	agreed *contract.Contract
	load   Load

	interval, scrapeEvery time.Duration

	started time.Time
	out     chan<- metrics.SampleContainer
	client  *http.Client
	meter   *headroom.Meter
	timers  *headroom.TimerWatch
	growth  *growthWatch
	watch   *abort.Watch

	before        scrape.Reading // of the server; empty before the first one
	haveBefore    bool
	scraped       time.Time
	endpoints     map[string]bool // what had a gap that was logged, or gave a good answer: see readHealth
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
	m.client = &http.Client{Timeout: min(max(m.scrapeEvery, shortestWait), longestWait)}
	defer m.client.CloseIdleConnections()
	m.watch = abort.NewWatch(m.agreed, m.started)
	m.arrivedBefore = m.load.Started()
	m.growth = newGrowthWatch(time.Duration(m.agreed.Phases.Steady), m.scrapeEvery)
	m.warnWithoutOutput()

	end := m.endOfOthers()
	ticker := time.NewTicker(m.interval)
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

// An endpoint has this time for its answer: the time between two readings, but a busy server's metrics may take a second, and a
// server that hangs must not hold an abort rule back.
const (
	shortestWait = time.Second
	longestWait  = 3 * time.Second
)

// warnWithoutOutput tells of rules that nobody watches in a run without --out llm=DIR.
func (m *monitor) warnWithoutOutput() {
	if m.config.gate.output() != nil {
		return
	}
	for _, rule := range m.agreed.Abort {
		if _, known := rule.Limit.Value(); known && rule.NeedsRequests() {
			m.logger.Warnf("the contract's rule %s is not watched: give --out llm=DIR, which sees every request", rule.Name)
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
	if m.state.GetCurrentlyActiveVUsCount() > 0 || elapsed < 2*m.interval {
		return false
	}
	for _, config := range m.state.Test.Options.Scenarios {
		if config.GetType() != MonitorType && elapsed < config.GetStartTime()+max(m.scheduled(config), m.interval) {
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
	m.readClient(now, tags)
	if m.asksServer() && m.agreed.Server != nil && now.Sub(m.scraped) >= m.scrapeEvery-m.interval/2 {
		m.scraped = now
		m.readServer(ctx, now, tags, levels)
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

// readClient reads the load generator's own state.
func (m *monitor) readClient(now time.Time, tags *metrics.TagSet) {
	phase, _ := tags.Get("phase")
	see := func(name string, value float64) {
		value, ok := m.gauge(now, tags, endpointClient, clientPrefix, name, value)
		if ok && judged(phase) {
			m.watch.Client(name, value)
		}
	}
	r := m.meter.Read()
	for name, value := range map[string]*float64{"cpu": r.CPU, "memory": r.Memory, "open_files": r.OpenFiles} {
		if value != nil {
			see(name, *value)
		}
	}
	for _, late := range m.timers.Take() {
		see("timer_delay", metrics.D(late))
	}
}

// gauge hands on a value of the service or the load generator; false for one that is no measurement, which is a gap.
func (m *monitor) gauge(now time.Time, tags *metrics.TagSet, endpoint, prefix, name string, value float64) (float64, bool) {
	measured, ok := results.Gauge(name, value)
	if !ok {
		m.notMeasured(now, tags, endpoint, prefix+name, results.NoMeasurement(prefix+name, value))

		return 0, false
	}
	m.push(prefix+name, now, tags, measured)

	return measured, true
}

// notMeasured counts what was read and is no measurement, and logs the first one of each quantity.
func (m *monitor) notMeasured(now time.Time, tags *metrics.TagSet, endpoint, quantity, why string) {
	m.countGap(now, tags, endpoint, why)
	if key := "gap of " + quantity; !m.endpoints[key] {
		m.endpoints[key] = true
		m.logger.Warnf("monitor: %s; gaps are counted in %s", why, gapsName)
	}
}

// Where a reading comes from, as the tag "endpoint" of a gap names it: the endpoints of the service, and the load generator itself.
const (
	endpointClient = "client"
	endpointServer = "server"
	endpointGPU    = "gpu"
	endpointHealth = "health"
)

// readServer asks the service all at once, so that one endpoint that hangs holds no other back. A replica that does not answer
// is a gap, and counted: the others alone would look like less load.
func (m *monitor) readServer(ctx context.Context, now time.Time, tags *metrics.TagSet, levels map[string]float64) {
	var (
		wg                   sync.WaitGroup
		server, gpu          scrape.Reading
		noServer, noGPU      error
		health, derived      = m.agreed.Health()
		unwell               = make([]error, len(health))
		watchesHealth        = slices.ContainsFunc(m.agreed.Abort, func(r contract.AbortRule) bool { return r.Metric == "unhealthy" })
		serverURLs, gpuPages = m.agreed.Server.MetricsURLs, m.agreed.Server.GPUURLs
	)
	wg.Go(func() {
		server, noServer = scrapeAll(serverURLs, func(url string) (scrape.Reading, error) {
			return scrape.FetchEngine(ctx, m.client, url, m.agreed.Server.Engine)
		})
	})
	wg.Go(func() {
		gpu, noGPU = scrapeAll(gpuPages, func(url string) (scrape.Reading, error) { return scrape.FetchGPU(ctx, m.client, url) })
	})
	if watchesHealth {
		for i, url := range health {
			wg.Go(func() { unwell[i] = scrape.Healthy(ctx, m.client, url) })
		}
	}
	wg.Wait()
	if ctx.Err() != nil {
		return // the run ends
	}
	if noServer != nil {
		m.gap(now, tags, endpointServer, noServer)
	}
	if noGPU != nil {
		m.gap(now, tags, endpointGPU, noGPU)
	}
	if watchesHealth {
		m.readHealth(now, tags, levels, derived, unwell)
	}
	m.pushReading(now, tags, levels, scrape.Join(server, gpu), noServer == nil)
}

// gapKind is the kind of a gap's event: what explains a result is not told as what decides it.
func gapKind(tags *metrics.TagSet) string {
	switch tag(tags, "endpoint") {
	case endpointGPU:
		return results.EventGPUGap
	case endpointHealth:
		return results.EventHealthGap
	default:
		return results.EventScrapeGap
	}
}

func (m *monitor) countGap(now time.Time, tags *metrics.TagSet, endpoint, reason string) {
	if endpoint == endpointGPU || endpoint == endpointHealth {
		reason = endpoint + ": " + reason
	}
	m.push(gapsName, now, tags.With("endpoint", endpoint).With("reason", reason), 1)
}

// gap counts what could not be read, and logs the first one of each kind of endpoint.
func (m *monitor) gap(now time.Time, tags *metrics.TagSet, endpoint string, why error) {
	m.countGap(now, tags, endpoint, why.Error())
	if key := "gap " + endpoint; !m.endpoints[key] {
		m.endpoints[key] = true
		m.logger.WithError(why).Warnf("monitor: the %s endpoint could not be read; gaps are counted in %s", endpoint, gapsName)
	}
}

// readHealth gives the state unhealthy: bad while any of the endpoints does not answer well. One that the contract does not name
// may not be there at all, and says nothing until it has answered well once.
func (m *monitor) readHealth(now time.Time, tags *metrics.TagSet, levels map[string]float64, derived bool, unwell []error) {
	for i, why := range unwell {
		good := fmt.Sprint("good ", i)
		switch {
		case why == nil:
			m.endpoints[good] = true
			levels["unhealthy"] = max(levels["unhealthy"], 0)
		case derived && !m.endpoints[good]:
			m.gap(now, tags, endpointHealth, fmt.Errorf("abort.unhealthy is not watched until it answers: %w; give server.health_url", why))
		default:
			levels["unhealthy"] = 1
		}
	}
}

// pushReading hands on what the service said; of its own metrics only if all of its replicas answered.
func (m *monitor) pushReading(now time.Time, tags *metrics.TagSet, levels map[string]float64, reading scrape.Reading, whole bool) {
	for _, quantity := range slices.Sorted(maps.Keys(reading.NotMeasured)) {
		endpoint := endpointServer
		if scrape.OfGPU(quantity) {
			endpoint = endpointGPU
		}
		m.notMeasured(now, tags, endpoint, quantity, reading.NotMeasured[quantity])
	}
	for _, q := range []struct {
		name, endpoint string
		value          *float64
	}{
		{"queue_depth", endpointServer, reading.QueueDepth},
		{"running", endpointServer, reading.Running},
		{"kv_cache_usage", endpointServer, reading.KVCacheUsage},
		{"gpu_utilisation", endpointGPU, reading.GPUUtilisation},
		{"gpu_memory", endpointGPU, reading.GPUMemoryUsed},
	} {
		if q.value == nil {
			continue
		}
		if value, ok := m.gauge(now, tags, q.endpoint, serverPrefix, q.name, *q.value); ok {
			levels[q.name] = value
		}
	}
	if whole && m.haveBefore {
		m.pushSince(now, tags, scrape.Between(m.before, reading), reading)
	}
	m.before, m.haveBefore = reading, whole
}

func (m *monitor) pushSince(now time.Time, tags *metrics.TagSet, since scrape.Since, reading scrape.Reading) {
	if since.PrefixHitRatio == nil {
		since.PrefixHitRatio = reading.PrefixHitRatio
	}
	for _, q := range []struct {
		name  string
		value *float64
		scale float64
	}{
		{"prefix_hit_ratio", since.PrefixHitRatio, 1},
		{"preemptions", since.Preemptions, 1},
		{"queue_time", since.QueueTime, 1000},
	} {
		if q.value != nil {
			m.gauge(now, tags, endpointServer, serverPrefix, q.name, *q.value*q.scale)
		}
	}
}

// scrapeAll reads several endpoints at once and joins what they say.
func scrapeAll(urls []string, fetch func(string) (scrape.Reading, error)) (scrape.Reading, error) {
	readings := make([]scrape.Reading, len(urls))
	errs := make([]error, len(urls))
	var wg sync.WaitGroup
	for i, url := range urls {
		wg.Go(func() { readings[i], errs[i] = fetch(url) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return scrape.Reading{}, err
	}

	return scrape.Join(readings...), nil
}

// judgeGrowth runs the sequential test. Only the steady phase is judged; a test without phases is steady throughout.
func (m *monitor) judgeGrowth(now time.Time, tags *metrics.TagSet, levels map[string]float64) {
	if phase, ok := tags.Get("phase"); ok && phase != string(contract.PhaseSteady) {
		return
	}
	var waiting *float64
	if depth, ok := levels["queue_depth"]; ok {
		waiting = &depth
	}
	step, _ := tags.Get("step")
	arrived := m.load.Started()
	sustained, known := m.growth.update(now.Sub(m.started), step, waiting, levels["in_flight"], float64(arrived-m.arrivedBefore))
	m.arrivedBefore = arrived
	if !known {
		return
	}
	value := 0.0
	if sustained {
		value = 1
	}
	levels["queue_growth"] = value
	m.push(growthName, now, tags, value)
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
