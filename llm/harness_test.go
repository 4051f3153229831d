package llm

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/grafana/sobek"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	"go.k6.io/k6/js/modulestest"
	"go.k6.io/k6/lib"
	"go.k6.io/k6/metrics"
	"gopkg.in/guregu/null.v3"
)

// vu is one virtual user whose script is under test.
type vu struct {
	t       *testing.T
	rt      *modulestest.Runtime
	state   *lib.State
	log     *logtest.Hook
	samples chan metrics.SampleContainer
}

func newVU(t *testing.T) *vu {
	t.Helper()
	rt := modulestest.NewRuntime(t)
	logger, hook := logtest.NewNullLogger()
	logger.SetLevel(logrus.DebugLevel)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	samples := make(chan metrics.SampleContainer, 10_000)

	v := &vu{t: t, rt: rt, log: hook, samples: samples}
	v.state = &lib.State{
		Options: lib.Options{
			MaxRedirects: null.IntFrom(10),
			UserAgent:    null.StringFrom("k6-test"),
			SystemTags:   metrics.NewSystemTagSet(metrics.TagMethod, metrics.TagStatus, metrics.TagName, metrics.TagErrorCode),
		},
		Logger:         logger,
		BuiltinMetrics: rt.BuiltinMetrics,
		Transport:      &http.Transport{DialContext: (&net.Dialer{}).DialContext, DisableCompression: true},
		CookieJar:      jar,
		BufferPool:     lib.NewBufferPool(),
		Samples:        samples,
		Tags:           lib.NewVUStateTags(rt.VU.InitEnvField.Registry.RootTagSet().With("scenario", "s")),
	}
	module, ok := New().NewModuleInstance(rt.VU).(*moduleInstance)
	require.True(t, ok)
	require.NoError(t, rt.VU.RuntimeField.Set("llm", module.Exports().Default))
	require.NoError(t, rt.VU.RuntimeField.Set("named", module.Exports().Named))

	return v
}

// run moves to VU code and runs a script in it. What the script leaves in `result` is returned.
func (v *vu) run(script string) (sobek.Value, error) {
	v.t.Helper()
	if v.rt.VU.StateField == nil {
		v.rt.MoveToVUContext(v.state)
	}
	_, err := v.rt.RunOnEventLoop("var result, failure; (async () => {" + script + "})().catch(e => { failure = e; })")
	if err != nil {
		return nil, err //nolint:wrapcheck // a test helper
	}
	if failure := v.rt.VU.RuntimeField.Get("failure"); !sobek.IsUndefined(failure) {
		return nil, fmt.Errorf("%s", failure)
	}

	return v.rt.VU.RuntimeField.Get("result"), nil
}

func (v *vu) must(script string) map[string]any {
	v.t.Helper()
	value, err := v.run(script)
	require.NoError(v.t, err)
	out, ok := value.Export().(map[string]any)
	require.True(v.t, ok, "the script's result is %v", value)

	return out
}

// seen are all samples so far, by metric name.
func (v *vu) seen() map[string][]metrics.Sample {
	byName := map[string][]metrics.Sample{}
	for _, container := range v.drain() {
		for _, s := range container.GetSamples() {
			byName[s.Metric.Name] = append(byName[s.Metric.Name], s)
		}
	}

	return byName
}

func (v *vu) drain() []metrics.SampleContainer {
	var all []metrics.SampleContainer
	for {
		select {
		case c := <-v.samples:
			all = append(all, c)
		default:
			return all
		}
	}
}

func values(samples []metrics.Sample) []float64 {
	out := make([]float64, len(samples))
	for i, s := range samples {
		out[i] = s.Value
	}

	return out
}

// bodyKey finds a request's body in the context that a handler gets: the body itself has been read by then.
type bodyKey struct{}

// server answers with what a test scripts.
type server struct {
	*httptest.Server
	connections atomic.Int64

	mu       sync.Mutex
	requests []recorded
}

type recorded struct {
	header http.Header
	path   string
	body   string
}

func serve(t *testing.T, handle func(http.ResponseWriter, *http.Request)) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.requests = append(s.requests, recorded{r.Header.Clone(), r.URL.Path, string(body)})
		s.mu.Unlock()
		handle(w, r.WithContext(context.WithValue(r.Context(), bodyKey{}, string(body))))
	}))
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			s.connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)

	return s
}

func (s *server) last() recorded {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.requests[len(s.requests)-1]
}

// write sends one piece of a stream in a write of its own.
func write(w http.ResponseWriter, pieces ...string) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	for _, piece := range pieces {
		_, _ = w.Write([]byte(piece))
		w.(http.Flusher).Flush()
	}
}

func delta(content string) string {
	return fmt.Sprintf("data: {\"id\":\"r-1\",\"model\":\"m-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", content)
}

func thought(content string) string {
	return fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":%q}}]}\n\n", content)
}

func usageOf(prompt, completion int) string {
	return fmt.Sprintf("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d}}\n\n", prompt, completion)
}

const (
	finish = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
	done   = "data: [DONE]\n\n"
)

// hangUp breaks the connection without a word, as a crashed server does.
func hangUp(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

const ask = `client.chat({messages: [{role: "user", content: "hi"}], max_tokens: 8})`

func newClient(s *server, more string) string {
	return fmt.Sprintf(`const client = new llm.Client({baseURL: %q, model: "m", %s}); `, s.URL, more)
}
