package deploy

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	prompb "buf.build/gen/go/prometheus/prometheus/protocolbuffers/go"
	"github.com/klauspost/compress/snappy"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

// A run in which everything happens that a panel shows: requests of two classes in three phases, goodput, errors, drops,
// a gap in the server's metrics.
const eventful = `
import llm from 'k6/x/llm';
import trace from 'k6/x/llm/trace';
import gate from 'k6/x/llm/gate';
const contract = gate.open('./slo.yaml');
const workload = trace.generate({ rate: 40, duration: '5s', burstiness: 'constant', mix: 'short=0.8@40/8,long=0.2@80/30', seed: 1 });
export const options = {
  scenarios: { ...workload.phases(contract.phases, { preAllocatedVUs: 4, maxVUs: 4 }), ...gate.monitor(contract) },
};
const client = new llm.Client({ baseURL: __ENV.LLM_SERVER + '/v1', model: 'sim', slo: { ttft: '10s' } });
export default function () {
  const request = workload.next();
  if (request.row % 9 === 4) {
    request.sim_fault = { status: 503 };
  } else if (request.row % 9 === 7) {
    request.abortAfter = { tokens: 2 };
  }
  client.chat(request);
}`

// Half of the users leave; of the 20 others, 5 get no answer, all of them of one class.
const leaving = `
import llm from 'k6/x/llm';
export const options = { vus: 1, iterations: 40, tags: { phase: 'steady' } };
const client = new llm.Client({ baseURL: __ENV.LLM_SERVER + '/v1', model: 'sim', slo: { ttft: '10s' } });
const without = new llm.Client({ baseURL: __ENV.LLM_SERVER + '/v1', model: 'sim' });
export default function () {
  const i = __ITER;
  const request = { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 30, class: i % 4 < 2 ? 'a' : 'b' };
  if (i % 2 === 1) {
    request.abortAfter = { tokens: 2 };
  } else if (i % 8 === 0) {
    request.sim_fault = { status: 503 };
  }
  client.chat(request);
  if (i < 10) {
    without.chat({ ...request, class: 'without', abortAfter: undefined });
  }
}`

const eventfulContract = `
capacity_gate: {success_rate: ">= 0.5"}
phases: {warmup: 1s, steady: 3s, recovery: 1s}
server: {metrics_url: "${LLM_SERVER}/metrics"}
`

// series is what was exported under one name.
type series struct {
	histogram, sample bool
	labels            map[string]bool
	last              map[string]point // of each combination of labels, but for histograms
}

// receiver takes what k6 writes to a Prometheus.
type receiver struct {
	mu   sync.Mutex
	seen map[string]*series
	errs []error
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err == nil {
		body, err = snappy.Decode(nil, body)
	}
	var written prompb.WriteRequest
	if err == nil {
		err = proto.Unmarshal(body, &written)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.errs = append(r.errs, err)
		w.WriteHeader(http.StatusBadRequest)

		return
	}
	for _, one := range written.GetTimeseries() {
		labels := map[string]string{}
		name := ""
		for _, label := range one.GetLabels() {
			if label.GetName() == "__name__" {
				name = label.GetValue()
			} else {
				labels[label.GetName()] = label.GetValue()
			}
		}
		if r.seen[name] == nil {
			r.seen[name] = &series{labels: map[string]bool{}, last: map[string]point{}}
		}
		for label := range labels {
			r.seen[name].labels[label] = true
		}
		if samples := one.GetSamples(); len(samples) > 0 {
			r.seen[name].last[fmt.Sprint(labels)] = point{labels, samples[len(samples)-1].GetValue()}
		}
		r.seen[name].histogram = r.seen[name].histogram || len(one.GetHistograms()) > 0
		r.seen[name].sample = r.seen[name].sample || len(one.GetSamples()) > 0
	}
	w.WriteHeader(http.StatusNoContent)
}

// export starts k6 with Prometheus remote write; wait gives what it wrote.
func export(t *testing.T, script string, env ...string) (wait func() map[string]*series) {
	t.Helper()
	var scrapes atomic.Int32
	engine := startEngine(t, func(engine http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/metrics" && scrapes.Add(1) == 1 {
				w.WriteHeader(http.StatusInternalServerError) // a gap

				return
			}
			engine.ServeHTTP(w, r)
		})
	})
	written := &receiver{seen: map[string]*series{}}
	prometheus := httptest.NewServer(written)
	t.Cleanup(prometheus.Close)

	dir := t.TempDir()
	write(t, dir, "script.js", script)
	write(t, dir, "slo.yaml", eventfulContract)
	finish := start(t, dir, append(env, "LLM_SERVER="+engine, "K6_PROMETHEUS_RW_SERVER_URL="+prometheus.URL, "K6_PROMETHEUS_RW_PUSH_INTERVAL=500ms"),
		k6(t), "run", "--quiet", "--address", "", "--tag", "testrun_name=safeqps", "--tag", "instance_id=1",
		"-o", "experimental-prometheus-rw", "script.js")

	return func() map[string]*series {
		r := finish()
		require.Equal(t, 0, r.exit, r.out)
		written.mu.Lock()
		defer written.mu.Unlock()
		require.Empty(t, written.errs)
		require.NotEmpty(t, written.seen)

		return written.seen
	}
}

type dashboard struct {
	UID        string `json:"uid"`
	Title      string `json:"title"`
	Templating struct {
		List []struct {
			Name       string `json:"name"`
			Type       string `json:"type"`
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
	Panels []struct {
		ID      int    `json:"id"`
		Type    string `json:"type"`
		Title   string `json:"title"`
		GridPos struct {
			H, W, X, Y int
		} `json:"gridPos"`
		Targets []struct {
			Expr         string `json:"expr"`
			LegendFormat string `json:"legendFormat"`
			RefID        string `json:"refId"`
		} `json:"targets"`
	} `json:"panels"`
}

func readDashboard(t *testing.T, name string) dashboard {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../deploy/grafana", name))
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))

	return d
}

var (
	metricWithFilter = regexp.MustCompile(`(k6_[a-z0-9_]+)\{([^}]*)\}`)
	metricAlone      = regexp.MustCompile(`k6_[a-z0-9_]+`)
	filterLabel      = regexp.MustCompile(`([a-z_]+)=~"\$([a-z]+)"`)
	fixedLabel       = regexp.MustCompile(`([a-z_]+)(!?)="([a-z]*)"`)
	grouping         = regexp.MustCompile(`(?:by|without) \(([^)]*)\)`)
	legendLabel      = regexp.MustCompile(`\{\{([a-z_]+)\}\}`)
	variable         = regexp.MustCompile(`label_values\((k6_[a-z0-9_]+), ([a-z_]+)\)`)
)

// checkDashboard holds each query to what was exported: names, the kind of series, and labels.
func checkDashboard(t *testing.T, d dashboard, exported map[string]*series) {
	t.Helper()
	names := slices.Sorted(maps.Keys(exported))
	variables := map[string]bool{}
	for _, v := range d.Templating.List {
		variables[v.Name] = true
		if v.Type != "query" {
			continue
		}
		m := variable.FindStringSubmatch(v.Definition)
		require.NotNil(t, m, "variable %s: %s", v.Name, v.Definition)
		require.Contains(t, names, m[1], "variable %s", v.Name)
		require.True(t, exported[m[1]].labels[m[2]], "variable %s: %s has no label %s", v.Name, m[1], m[2])
	}
	ids := map[int]bool{}
	for _, panel := range d.Panels {
		require.False(t, ids[panel.ID], "%s: id %d twice", panel.Title, panel.ID)
		ids[panel.ID] = true
		require.LessOrEqual(t, panel.GridPos.X+panel.GridPos.W, 24, panel.Title)
		if panel.Type == "row" {
			continue
		}
		require.NotEmpty(t, panel.Targets, panel.Title)
		for _, target := range panel.Targets {
			where := panel.Title + " " + target.RefID + ": " + target.Expr
			used := metricWithFilter.FindAllStringSubmatch(target.Expr, -1)
			require.NotEmpty(t, used, where)
			require.Len(t, metricAlone.FindAllString(target.Expr, -1), len(used), "a metric without a filter in %s", where)
			histogram := strings.HasPrefix(target.Expr, "histogram_quantile(")
			for _, u := range used {
				metric, filter := u[1], u[2]
				require.Contains(t, names, metric, where)
				s := exported[metric]
				require.Equal(t, histogram, s.histogram, "%s: is %s a native histogram?", where, metric)
				require.Equal(t, !histogram, s.sample, where)
				for _, label := range filterLabel.FindAllStringSubmatch(filter, -1) {
					require.True(t, variables[label[2]], "%s: no variable %s", where, label[2])
					require.True(t, s.labels[label[1]], "%s: %s has no label %s, and a choice of it would empty the panel", where, metric, label[1])
				}
				if s.labels["phase"] {
					// A series of an earlier phase does not end with it: Prometheus takes its last value for five minutes more. And
					// after these, totals would lack it.
					require.Contains(t, target.Expr, u[0]+"[", "%s: the moment's value of %s has those of phases that are over in it", where, metric)
				}
				fixed := fixedLabel.FindAllStringSubmatch(filter, -1)
				for _, label := range fixed {
					require.True(t, s.labels[label[1]], "%s: %s has no label %s", where, metric, label[1])
				}
				require.Equal(t, strings.Count(filter, "="), len(filterLabel.FindAllString(filter, -1))+len(fixed), where)
			}
			for _, by := range grouping.FindAllStringSubmatch(target.Expr, -1) {
				for label := range strings.SplitSeq(by[1], ", ") {
					some := slices.ContainsFunc(used, func(u []string) bool { return exported[u[1]].labels[label] })
					all := !slices.ContainsFunc(used, func(u []string) bool { return !exported[u[1]].labels[label] })
					require.True(t, all || some && strings.HasPrefix(by[0], "without"), "%s: a metric has no label %s", where, label)
				}
			}
			for _, label := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
				require.Regexp(t, `by \([^)]*\b`+label[1]+`\b`, target.Expr, "the legend names a label that the query drops: "+where)
			}
		}
	}
}

// What every dashboard has to show.
var shown = []string{
	"k6_llm_ttft", "k6_llm_itl", "k6_llm_tpot", "k6_llm_e2e", "k6_llm_goodput_rate", "k6_iterations_total", "k6_llm_in_flight",
	"k6_dropped_iterations_total", "k6_llm_server_queue_depth", "k6_llm_server_kv_cache_usage", "k6_llm_client_cpu",
	"k6_llm_client_memory", "k6_llm_client_open_files", "k6_llm_client_timer_delay", "k6_llm_schedule_delay", "k6_llm_errors_total",
}

func requireShown(t *testing.T, d dashboard) {
	t.Helper()
	var all strings.Builder
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			all.WriteString(target.Expr + "\n")
		}
	}
	for _, metric := range shown {
		require.Contains(t, all.String(), metric, d.Title)
	}
	for _, quantiles := range []string{"ttft", "itl", "tpot", "e2e"} {
		require.Regexp(t, `by \(phase\) .*k6_llm_`+quantiles, all.String())
		require.Regexp(t, `by \(class\) .*k6_llm_`+quantiles, all.String())
	}
}

func TestDashboardsAskForWhatK6Exports(t *testing.T) {
	t.Parallel()
	dashboards := map[string]func() map[string]*series{
		"llm-native-histograms.json": export(t, eventful, "K6_PROMETHEUS_RW_TREND_AS_NATIVE_HISTOGRAM=true"),
		"llm-trend-stats.json":       export(t, eventful, "K6_PROMETHEUS_RW_TREND_STATS=p(50),p(95),p(99)"),
	}
	for name, exported := range dashboards {
		t.Run(name, func(t *testing.T) {
			d := readDashboard(t, name)
			requireShown(t, d)
			checkDashboard(t, d, exported())
		})
	}
}

// A user who leaves is neither a success nor a failure of the service, in k6 and on a panel.
func TestPanelsOfSharesLeaveOutUsersWhoLeft(t *testing.T) {
	t.Parallel()
	exported := export(t, leaving, "K6_PROMETHEUS_RW_TREND_STATS=p(95)")()
	require.True(t, exported["k6_llm_requests_total"].labels["cancel_phase"], "users leave in this test")
	expected := map[string]map[string]float64{
		"Success":          {"": 23. / 30}, // 15 of the 20 who stay, and 8 of the 10 of the client without an slo
		"Goodput":          {"": 15. / 20}, // these 10 have none
		"Goodput by class": {"a": 5. / 10, "b": 1},
	}
	for _, name := range []string{"llm-native-histograms.json", "llm-trend-stats.json"} {
		found := map[string]map[string]float64{}
		for _, panel := range readDashboard(t, name).Panels {
			if expected[panel.Title] == nil {
				continue
			}
			found[panel.Title] = map[string]float64{}
			for _, one := range evaluate(t, exported, panel.Targets[0].Expr) {
				found[panel.Title][one.labels["class"]] = one.value
			}
		}
		require.Len(t, found, len(expected), name)
		for title, shares := range expected {
			require.Len(t, found[title], len(shares), "%s: %s: %v", name, title, found[title])
			require.InDeltaMapValues(t, shares, found[title], 1e-9, "%s: %s", name, title)
		}
	}
}
