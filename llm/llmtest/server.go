package llmtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

var errClosed = errors.New("the server is shutting down")

// StreamOptionsMode is what the server does with stream_options.
type StreamOptionsMode string

// Servers differ: most honour stream_options, some ignore it, and some older ones refuse the request with 400.
const (
	HonourStreamOptions StreamOptionsMode = ""
	IgnoreStreamOptions StreamOptionsMode = "ignore"
	RejectStreamOptions StreamOptionsMode = "reject"
)

// ServerConfig describes the simulated server.
type ServerConfig struct {
	Engine Config
	// Model is the one model that the server has. Names of the form Model:NAME are its adapters: each costs what the model
	// does, and has a prefix cache of its own.
	Model string
	// Speed is engine seconds per wall-clock second; 1 is real time.
	Speed float64
	// FixedGap, where set, passes the engine by: every stream gets its first token FixedTTFT after its arrival and then
	// one exactly every FixedGap of wall-clock time, whatever the load. It is for measuring clients.
	FixedGap  time.Duration
	FixedTTFT time.Duration

	// OutputMedian and OutputSigma describe the lognormal length of an answer to a request without max_tokens, a function of
	// the seed and the prompt. With EarlyStop, an answer also ends at that length where max_tokens is larger, unless the
	// request says ignore_eos.
	OutputMedian float64
	OutputSigma  float64
	EarlyStop    bool

	// QueueFullStatus, 429 or 503, answers a request that finds the waiting queue full, with RetryAfter in whole seconds in
	// the header where it is more than 0.
	QueueFullStatus int
	RetryAfter      time.Duration
	// ErrorsInStream answers a streaming request that is over the context or finds the queue full with status 200 and an
	// error event, as llm-d-inference-sim does.
	ErrorsInStream bool
	StreamOptions  StreamOptionsMode
	// APIKey, where set, must be sent as "Authorization: Bearer …" or "X-Api-Key: …".
	APIKey string

	// Faults strike at random; a request's own fault comes first.
	Faults []RandomFault
	// KeepTruth is for how many of the last streamed requests the truth is kept (Server.Truth, GET /sim/requests/{id}).
	KeepTruth int
}

// DefaultServerConfig is a healthy server around DefaultConfig. The answer lengths are chosen: a median of 128 tokens with a
// long tail.
func DefaultServerConfig() ServerConfig {
	return ServerConfig{
		Engine:          DefaultConfig(),
		Model:           "sim-model",
		Speed:           1,
		OutputMedian:    128,
		OutputSigma:     0.8,
		QueueFullStatus: http.StatusServiceUnavailable,
		RetryAfter:      time.Second,
	}
}

// Validate reports every wrong field at once.
func (c ServerConfig) Validate() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	if err := c.Engine.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("in Engine: %w", err))
	}
	wrong(c.Model == "", "Model is empty, expected a name")
	wrong(!within(c.Speed, math.SmallestNonzeroFloat64, 1e6), "Speed is %v, expected more than 0 and at most 1e6", c.Speed)
	wrong(c.FixedGap < 0, "FixedGap is %v, expected 0 (off) or more", c.FixedGap)
	wrong(c.FixedTTFT < 0, "FixedTTFT is %v, expected 0 or more", c.FixedTTFT)
	wrong(c.FixedTTFT > 0 && c.FixedGap == 0, "FixedTTFT is %v, expected 0 without FixedGap", c.FixedTTFT)
	wrong(!within(c.OutputMedian, 1, 1e9), "OutputMedian is %v, expected 1 to 1e9", c.OutputMedian)
	wrong(!within(c.OutputSigma, 0, 5), "OutputSigma is %v, expected 0 to 5", c.OutputSigma)
	wrong(c.QueueFullStatus != http.StatusTooManyRequests && c.QueueFullStatus != http.StatusServiceUnavailable,
		"QueueFullStatus is %d, expected 429 or 503", c.QueueFullStatus)
	wrong(c.RetryAfter < 0, "RetryAfter is %v, expected 0 or more", c.RetryAfter)
	wrong(c.KeepTruth < 0, "KeepTruth is %d, expected 0 or more", c.KeepTruth)
	switch c.StreamOptions {
	case HonourStreamOptions, IgnoreStreamOptions, RejectStreamOptions:
	default:
		wrong(true, "StreamOptions is %q, expected \"\", \"ignore\" or \"reject\"", c.StreamOptions)
	}
	total := 0.0
	for i, f := range c.Faults {
		wrong(!within(f.Probability, 0, 1), "Faults[%d].Probability is %v, expected 0 to 1", i, f.Probability)
		total += f.Probability
		if err := f.Fault.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("in Faults[%d]: %w", i, err))
		}
	}
	wrong(total > 1+1e-9, "the probabilities of Faults add up to %v, expected at most 1", total)
	return errors.Join(errs...)
}

// Server is the simulated engine behind an HTTP API that is compatible with OpenAI's, and with Anthropic's messages. It is an http.Handler; Close must be called at the
// end. Paths:
//
//	POST /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, /v1/embeddings
//	GET /v1/models, POST /tokenize, GET /health, GET /metrics
//	POST /sim/stall?for=10s      the whole engine stands still
//	POST /sim/health?status=503  what /health answers from now on
//	GET  /sim/requests/{id}      the truth about a streamed answer, where KeepTruth is set
type Server struct {
	cfg     ServerConfig
	mux     *http.ServeMux
	loop    *loop
	metrics *serverMetrics
	truths  *truthStore
	health  atomic.Int64
	number  atomic.Uint64 // of the next request
	started time.Time

	closing chan struct{}
	mu      sync.Mutex
	closed  bool
	active  sync.WaitGroup
}

// NewServer starts the engine, or says what is wrong with the configuration.
func NewServer(cfg ServerConfig) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("server configuration: %w", err)
	}
	engine, err := NewEngine(cfg.Engine)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, metrics: newServerMetrics(), truths: newTruthStore(cfg.KeepTruth),
		mux: http.NewServeMux(), started: time.Now(), closing: make(chan struct{}),
	}
	s.health.Store(http.StatusOK)
	s.loop = startLoop(engine, cfg.Speed, s.metrics)
	s.mux.HandleFunc("POST /v1/chat/completions", s.authorised(s.generation(chatAPI)))
	s.mux.HandleFunc("POST /v1/completions", s.authorised(s.generation(completionsAPI)))
	s.mux.HandleFunc("POST /v1/responses", s.authorised(s.generation(responsesAPI)))
	s.mux.HandleFunc("POST /v1/messages", s.authorised(s.generation(messagesAPI)))
	s.mux.HandleFunc("POST /v1/embeddings", s.authorised(s.serveEmbeddings))
	s.mux.HandleFunc("GET /v1/models", s.authorised(s.serveModels))
	s.mux.HandleFunc("POST /tokenize", s.serveTokenize)
	s.mux.HandleFunc("GET /health", s.serveHealth)
	s.mux.HandleFunc("GET /metrics", s.serveMetrics)
	s.mux.HandleFunc("POST /sim/stall", s.serveStall)
	s.mux.HandleFunc("POST /sim/health", s.serveSetHealth)
	s.mux.HandleFunc("GET /sim/requests/{id}", s.serveTruth)
	return s, nil
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		writeError(w, http.StatusServiceUnavailable, errClosed.Error())
		return
	}
	defer s.active.Done()
	s.mux.ServeHTTP(w, r)
}

// enter counts a handler in, unless the server is closing.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.active.Add(1)
	return true
}

// Close cuts the answers under way short and stops the engine; it returns when the engine's goroutine has ended. Closing
// again does nothing.
func (s *Server) Close() {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if first {
		close(s.closing)
		s.loop.stop()
	}
	<-s.loop.done
}

// Stall makes the whole engine stand still for d of engine time from now on.
func (s *Server) Stall(d time.Duration) {
	s.loop.call(func(now time.Duration) { s.loop.engine.Stall(now, d) })
}

// Stats are the engine's counters and gauges; it is false where the server was closed.
func (s *Server) Stats() (st Stats, ok bool) {
	ok = s.loop.call(func(time.Duration) { st = s.loop.engine.Stats() })
	return st, ok
}

// Truth is what the server knows of a streamed answer by its id; it is false where that is not, or no longer, kept.
func (s *Server) Truth(id string) (Truth, bool) { return s.truths.get(id) }

// ListenAndServe serves on a TCP address such as "127.0.0.1:8000" until the context ends, and then closes the server. It
// returns nil after an orderly end.
func (s *Server) ListenAndServe(ctx context.Context, addr string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", addr, err)
	}
	return s.Serve(ctx, l)
}

// shutdownGrace is how long answers under way may take to notice that the server closes.
const shutdownGrace = 2 * time.Second

// Serve is ListenAndServe on a listener of the caller's, which it closes.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	var err error
	select {
	case err = <-failed:
		err = fmt.Errorf("serve on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	s.Close()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if srv.Shutdown(grace) != nil {
		// Somebody does not read: cut the connection, which ends the handler's write.
		err = errors.Join(err, srv.Close())
	}
	s.active.Wait()
	return err
}

func (s *Server) authorised(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.cfg.APIKey != "" && r.Header.Get("Authorization") != "Bearer "+s.cfg.APIKey && r.Header.Get("X-Api-Key") != s.cfg.APIKey {
			writeError(w, http.StatusUnauthorized, "Unauthorized")
			return
		}
		next(w, r)
	}
}

func (s *Server) serveModels(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]any{
		"object": "list",
		"data": []any{map[string]any{
			"id": s.cfg.Model, "object": "model", "created": s.started.Unix(), "owned_by": "llmtest",
			"root": s.cfg.Model, "parent": nil, "max_model_len": s.cfg.Engine.MaxModelLen,
		}},
	})
}

func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(int(s.health.Load()))
}

func (s *Server) serveSetHealth(w http.ResponseWriter, r *http.Request) {
	var status int
	if _, err := fmt.Sscanf(r.URL.Query().Get("status"), "%d", &status); err != nil || status < 200 || status > 599 {
		writeError(w, http.StatusBadRequest,
			fmt.Sprintf("status is %q, expected 200 to 599", r.URL.Query().Get("status")))
		return
	}
	s.health.Store(int64(status))
}

func (s *Server) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	st, ok := s.Stats()
	if !ok {
		writeError(w, http.StatusServiceUnavailable, errClosed.Error())
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	writeBody(w, s.metrics.render(s.cfg.Model, s.cfg.Engine, st))
}

func (s *Server) serveStall(w http.ResponseWriter, r *http.Request) {
	d, err := time.ParseDuration(r.URL.Query().Get("for"))
	if err != nil || d <= 0 {
		writeError(w, http.StatusBadRequest,
			fmt.Sprintf("for is %q, expected a time such as 10s", r.URL.Query().Get("for")))
		return
	}
	s.Stall(d)
}

func (s *Server) serveTruth(w http.ResponseWriter, r *http.Request) {
	truth, ok := s.Truth(r.PathValue("id"))
	if !ok {
		writeError(w, http.StatusNotFound, "no truth is kept for this id")
		return
	}
	writeJSON(w, truth)
}

// errorTypes are the names that vLLM gives to its errors.
var errorTypes = map[int]string{
	http.StatusBadRequest:            "BadRequestError",
	http.StatusUnauthorized:          "AuthenticationError",
	http.StatusNotFound:              "NotFoundError",
	http.StatusRequestEntityTooLarge: "BadRequestError",
	http.StatusTooManyRequests:       "RateLimitError",
	http.StatusServiceUnavailable:    "ServiceUnavailableError",
}

func errorType(status int) string {
	kind, ok := errorTypes[status]
	switch {
	case ok:
		return kind
	case status < 500:
		return "BadRequestError"
	}
	return "InternalServerError"
}

// errorBody is an error object as vLLM writes it.
func errorBody(status int, message string, param any) []byte {
	body, err := json.Marshal(map[string]any{
		"error": map[string]any{"message": message, "type": errorType(status), "param": param, "code": status},
	})
	if err != nil {
		return []byte(`{"error":{"message":"error","type":"InternalServerError","param":null,"code":500}}`)
	}
	return body
}

func writeError(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	writeBody(w, errorBody(status, message, nil))
}

func writeJSON(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		writeError(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	writeBody(w, body)
}

// writeBody writes to a client; where it has left there is nobody to tell.
func writeBody(w http.ResponseWriter, body []byte) {
	_, _ = w.Write(body)
}
