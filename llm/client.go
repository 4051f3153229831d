package llm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/grafana/sobek"
	"go.k6.io/k6/lib"
	"go.k6.io/k6/lib/netext/httpext"
	"go.k6.io/k6/metrics"
	"golang.org/x/time/rate"

	"github.com/safeqps/xk6-safeqps/llm/stream"
	"github.com/safeqps/xk6-safeqps/llm/wire"
)

// client is what `new llm.Client({…})` gives. It belongs to one VU.
type client struct {
	module  *moduleInstance
	options clientOptions
	warned  bool
}

// prepared is a request that is ready to be sent: everything that needs the JavaScript runtime is done.
type prepared struct {
	api       wire.API
	request   request
	body      []byte
	streamed  bool
	state     *lib.State
	rpsLimit  *rate.Limiter
	tags      metrics.TagsAndMeta // the VU's, with the client's and the request's
	runTags   *metrics.TagSet     // the run's alone, for what is the process's and not the request's
	model     string
	maxTokens int
	inputs    int  // of a request for embeddings; 0: not known
	forced    bool // the body forces the answer to its asked length
	prompt    func(count func(string) int) (tokens int, ok bool)
}

// prepare checks a request and builds its body. Its errors are wrong use, and are thrown.
func (c *client) prepare(api wire.API, value sobek.Value) (*prepared, error) {
	state := c.module.vu.State()
	if state == nil {
		return nil, errors.New("llm: requests can be sent in VU code only, not in the init context")
	}
	values, ok := exportObject(value)
	if !ok {
		return nil, &OptionError{What: "llm request", Found: describeValue(value), Expected: "an object: the provider's request body"}
	}
	req, err := parseRequest(values, &c.options)
	if err != nil {
		return nil, err
	}
	if err := fitEmbeddings(api, &req, values); err != nil {
		return nil, err
	}
	model := c.modelOf(req.row)
	body, streamed, err := wire.BuildRequest(api, req.body, wire.RequestOptions{
		Model: model, IncludeUsage: c.options.includeUsage,
	})
	if err != nil {
		return nil, fmt.Errorf("llm request: %w", err)
	}
	if !streamed && req.abortAfter != nil && req.abortAfter.tokens > 0 {
		return nil, &OptionError{
			What: "llm request", Option: "abortAfter", Found: "tokens in a request that is not streamed",
			Expected: `an object such as {"ms": 1500}: its tokens all come at once`,
		}
	}
	p := &prepared{
		api: api, request: req, body: body, streamed: streamed, rpsLimit: state.RPSLimit,
		tags: state.Tags.GetCurrentValues(), model: model, maxTokens: maxTokens(req.body), forced: forcedLength(req.body),
		prompt:  func(count func(string) int) (int, bool) { return promptTokens(req.body, count) },
		runTags: c.module.rootTags.WithTagsFromMap(state.Options.RunTags),
	}
	if api == wire.Embeddings {
		p.inputs = wire.Inputs(req.body)
	}
	if model, ok := req.body["model"].(string); ok && model != "" {
		p.model = model
	}
	for _, tags := range []map[string]string{c.options.tags, req.tags} {
		for name, value := range tags {
			p.tags.SetTag(name, value)
		}
	}
	p.state = c.quietState(state)

	return p, nil
}

// quietState is the VU's state for one request through k6's HTTP machinery: the limit on requests per second is waited
// for here, where an interrupted iteration ends the wait, and the bodies are left out of --http-debug=full, since
// dumping an answer would hold every token back until its end.
func (c *client) quietState(state *lib.State) *lib.State {
	own := *state
	own.RPSLimit = nil
	if own.Options.HTTPDebug.String == "full" {
		own.Options.HTTPDebug.String = "headers"
		if !c.warned {
			c.warned = true
			state.Logger.Warn("llm: --http-debug=full shows headers only for llm requests: " +
				"dumping a stream would hold its tokens back until it ends")
		}
	}

	return &own
}

// attempt sends a prepared request once. It is nil for one that was never sent, since the iteration ended while it waited for
// its turn: nobody has seen such a request, and nothing counts it.
func (c *client) attempt(ctx context.Context, p *prepared, number int) *Exchange {
	if !waitForTurn(ctx, p.rpsLimit) {
		c.warnOfUnsent(p.state)

		return nil
	}
	CountSend(ctx)
	own := p.tags.Tags.With("api", string(p.api))
	if p.model != "" {
		own = own.With("model", p.model)
	}
	if p.request.class != "" {
		own = own.With("class", p.request.class)
	}
	ex := &Exchange{
		Seq: c.module.root.sequence.Add(1), API: p.api, Model: p.model, Row: p.request.row, Class: p.request.class, Tags: own,
		Due: p.request.due, Streamed: p.streamed, Attempt: number,
		PromptTokensAsked: p.request.promptTokens, CompletionTokensAsked: p.maxTokens, ForcedLength: p.forced, runTags: p.runTags,
	}
	dec := wire.NewDecoder(p.api)
	dec.Hide(c.options.secrets)
	dec.ExpectVectors(p.inputs)
	if number > 1 {
		ex.Due = time.Time{} // the schedule is kept or missed by the first attempt
	}
	c.announce(p, ex)
	err := c.exchange(ctx, p, ex, dec)
	if ex.Timeline.Sent.IsZero() {
		ex.Timeline.Sent = time.Now() // k6 refused it before it could leave
	}
	ex.End = time.Now()
	ex.InFlight = c.module.root.inFlight.Add(-1)
	ex.Message = dec.Message()
	c.settle(p, ex, err)
	p.state.Samples <- ex // not PushIfNotDone: what an interrupted request had is kept

	return ex
}

// exchange sends the request and reads the answer; the error says how it ended.
func (c *client) exchange(ctx context.Context, p *prepared, ex *Exchange, dec *wire.Decoder) error {
	state := *p.state
	out := &call{
		next: state.Transport, vuCtx: ctx, host: c.options.baseURL.Host, secret: c.secretHeader(p.api), secrets: c.options.secrets,
		ex: ex, dec: dec, idle: c.options.idleTimeout, abort: p.request.abortAfter,
	}
	state.Transport = out
	defer out.close()

	parsed, err := c.httpRequest(p, &state)
	if err != nil {
		return err
	}
	parsed.ResponseCallback = func(status int) bool {
		// A user who leaves is no failure of the service, whatever had come by then.
		return errors.Is(out.err, errAbandoned) || (status >= 200 && status < 400)
	}

	// The iteration's own context ends the request through the call. It is kept from k6's machinery, which would throw
	// the http_req_* samples of an interrupted request away.
	_, err = httpext.MakeRequest(context.WithoutCancel(ctx), &state, parsed)
	ex.retryAfter = retryAfter(out.header, time.Now())
	if out.err != nil || out.consumed {
		return out.err
	}
	if err != nil && ex.Status >= 300 && ex.Status <= 399 {
		return noRedirect(ex.Status, "the redirect can not be followed: "+shortened(c.options.secrets.Hide(withoutURL(err))))
	}

	return err
}

// withoutURL is what went wrong, without the address that an HTTP client puts before it.
func withoutURL(err error) string {
	var urlErr *url.Error
	if errors.As(err, &urlErr) {
		err = urlErr.Err
	}
	text, _, _ := strings.Cut(err.Error(), "?") // a query may hold a key

	return text
}

// waitForTurn keeps k6's own limit on requests per second. It is false where the iteration ended first. The limiter's own
// Wait returns at once if the turn comes after the context's deadline; a VU would then go through its iterations as fast as
// it can, and send nothing.
func waitForTurn(ctx context.Context, limit *rate.Limiter) bool {
	if limit == nil {
		return true
	}
	turn := limit.Reserve()
	if turn.OK() && wait(ctx, turn.Delay()) {
		return true
	}
	turn.Cancel()
	<-ctx.Done()

	return false
}

func (c *client) warnOfUnsent(state *lib.State) {
	if c.module.root.warnedOfUnsent.CompareAndSwap(false, true) {
		state.Logger.Warn("llm: requests still waited for their turn under k6's option rps when their iterations ended: they were never " +
			"sent, and no metric counts them. Raise rps, or offer fewer requests")
	}
}

// announce tells k6 and the outputs that a request starts.
func (c *client) announce(p *prepared, ex *Exchange) {
	now := time.Now()
	ex.Timeline.Live = &stream.Live{}
	p.state.Samples <- &Started{
		Seq: ex.Seq, Attempt: ex.Attempt, Sent: now, Due: ex.Due, Row: ex.Row, Class: ex.Class, Tags: ex.Tags,
		Live: ex.Timeline.Live,
		sample: metrics.Sample{
			TimeSeries: metrics.TimeSeries{Metric: c.module.instruments.inFlight, Tags: ex.runTags},
			Time:       now, Value: float64(c.module.root.inFlight.Add(1)), Metadata: p.tags.Metadata,
		},
	}
}

// httpRequest is the request as k6/http would have parsed it.
func (c *client) httpRequest(p *prepared, state *lib.State) (*httpext.ParsedHTTPRequest, error) {
	endpoint := c.options.baseURL.JoinPath(p.api.Path()) // #nosec G125 -- the path is a constant
	target, err := httpext.NewURL(endpoint.String(), endpoint.String())
	if err != nil {
		return nil, fmt.Errorf("llm request: %w", err)
	}
	header := http.Header{}
	header.Set("Content-Type", "application/json")
	header.Set("Accept-Encoding", "identity")
	if p.streamed {
		header.Set("Accept", "text/event-stream")
	}
	if agent := state.Options.UserAgent; agent.String != "" {
		header.Set("User-Agent", agent.String)
	}
	if p.api == wire.Messages {
		header.Set("Anthropic-Version", "2023-06-01")
	}

	req := &http.Request{Method: http.MethodPost, URL: target.GetURL(), Header: header}
	cookies := map[string]*httpext.HTTPRequestCookie{}
	if state.CookieJar != nil {
		httpext.SetRequestCookies(req, state.CookieJar, cookies)
	}

	return &httpext.ParsedHTTPRequest{
		URL:          &target,
		Body:         bytes.NewBuffer(p.body),
		Req:          req,
		Timeout:      c.options.timeout,
		Throw:        true, // k6 then leaves the error to us
		ResponseType: httpext.ResponseTypeNone,
		Redirects:    state.Options.MaxRedirects,
		ActiveJar:    state.CookieJar,
		Cookies:      cookies,
		TagsAndMeta:  p.tags.Clone(),
	}, nil
}

// secretHeader holds what may carry a key: the API key itself and the user's own headers.
func (c *client) secretHeader(api wire.API) http.Header {
	header := http.Header{}
	if c.options.apiKey != "" {
		if api == wire.Messages {
			header.Set("X-Api-Key", c.options.apiKey)
		} else {
			header.Set("Authorization", "Bearer "+c.options.apiKey)
		}
	}
	for name, value := range c.options.headers {
		header.Set(name, value)
	}

	return header
}

// settle judges how the request ended, and turns it into samples.
func (c *client) settle(p *prepared, ex *Exchange, err error) {
	switch {
	case err == nil:
		ex.Outcome = OutcomeOK
	case errors.Is(err, errAbandoned):
		ex.Outcome = OutcomeCancelled
		ex.CancelPhase = phaseOf(ex)
	default:
		why := classify(err, ex.Status != 0)
		ex.Outcome, ex.ErrorType, ex.ErrorText = OutcomeFailed, why.kind, c.options.secrets.Hide(why.text)
		if why.kind == errorInterrupted {
			ex.CancelPhase = phaseOf(ex)
		}
	}
	count := func(text string) int { return c.options.tokenizer.Count(text) }
	if c.options.tokenizer == nil {
		count = nil
	}
	// A server may quote the key anywhere; what it calls itself is kept in results.
	ex.Message.ID, ex.Message.Model = c.options.secrets.Hide(ex.Message.ID), c.options.secrets.Hide(ex.Message.Model)
	ex.countTokens(count, func() (int, bool) { return p.prompt(count) })
	ex.price(c.options.cost)
	ex.judge(p.request.slo)

	keep := c.options.itlSampling >= 1 ||
		rand.Float64() < c.options.itlSampling // #nosec G404 -- which streams are sampled guards nothing
	ex.sample(c.module.instruments, p.tags.Metadata, keep)

	if ex.Outcome == OutcomeFailed && ex.ErrorType != errorInterrupted && !p.request.throw {
		p.state.Logger.WithField("error_type", string(ex.ErrorType)).
			WithField("status", ex.Status).Warn("LLM request failed: " + ex.ErrorText)
	}
}

func phaseOf(ex *Exchange) CancelPhase {
	switch {
	case ex.Timeline.Chunks() > 0:
		return PhaseDecode
	case ex.Status != 0:
		return PhasePrefill
	default:
		return PhaseQueued
	}
}

// maxTokens is the length that a request asks for, 0 where it does not say.
func maxTokens(body map[string]any) int {
	for _, name := range []string{"max_completion_tokens", "max_tokens", "max_output_tokens"} {
		if n, ok := number(body[name]); ok && n > 0 {
			return int(n)
		}
	}

	return 0
}
