package llm

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"go.k6.io/k6/lib/types"
	"golang.org/x/net/http/httpguts"

	"github.com/safeqps/xk6-safeqps/llm/describe"
	"github.com/safeqps/xk6-safeqps/llm/tokens"
	"github.com/safeqps/xk6-safeqps/llm/wire"
)

// DefaultTimeout bounds a whole request where no timeout is given. Long answers under load take minutes; k6/http's 60 s
// would cut them off and call them failures.
const DefaultTimeout = 10 * time.Minute

// clientOptions are the checked options of `new llm.Client({…})`.
type clientOptions struct {
	baseURL      *url.URL
	apiKey       string
	model        string
	models       *modelMix // nil: all requests ask for model
	headers      map[string]string
	secrets      wire.Secrets // of apiKey and headers: what nothing may repeat
	timeout      time.Duration
	idleTimeout  time.Duration // 0: silence is bounded by timeout alone
	api          wire.API
	tokenizer    *tokens.Tokenizer // nil: nobody counts but the server
	slo          slo
	cost         *price
	tags         map[string]string
	itlSampling  float64
	includeUsage bool
	retry        *retryPolicy // nil: a failed request is not sent again
	throw        bool
}

// slo are the limits of one request for llm_goodput; nil means that there is no limit.
type slo struct {
	ttft, tpot, e2e, itl *time.Duration
}

func (s slo) empty() bool { return s == slo{} }

// price is in currency units for a million tokens.
type price struct {
	prompt, cached, completion float64
}

// abortAfter models a user who leaves.
type abortAfter struct {
	tokens int
	after  time.Duration
}

// request is one call of a client: what goes to the server, and what is ours.
type request struct {
	body         map[string]any
	slo          slo
	tags         map[string]string
	abortAfter   *abortAfter
	due          time.Time // zero: this request has no due time
	row          int64     // -1: this request is not a row of a trace
	class        string
	promptTokens int // asked for; 0: not stated
	throw        bool
}

// optionsOf is one object of options that is being read.
type optionsOf struct {
	what   string
	values map[string]any
}

// OptionError is a wrong option: it names the option, what was found and what was expected.
type OptionError struct {
	What, Option, Found, Expected string
}

func (e *OptionError) Error() string {
	if e.Option == "" {
		return fmt.Sprintf("%s: got %s, expected %s", e.What, e.Found, e.Expected)
	}

	return fmt.Sprintf("%s: option %q: got %s, expected %s", e.What, e.Option, e.Found, e.Expected)
}

func (o *optionsOf) wrong(option string, found any, expected string) error {
	return &OptionError{What: o.what, Option: option, Found: describe.Value(found), Expected: expected}
}

func (o *optionsOf) get(option string) (any, bool) {
	v, ok := o.values[option]

	return v, ok && v != nil
}

func (o *optionsOf) str(option string) (string, error) {
	v, ok := o.get(option)
	if !ok {
		return "", nil
	}
	s, ok := v.(string)
	if !ok {
		return "", o.wrong(option, v, "a string")
	}

	return s, nil
}

func (o *optionsOf) boolean(option string, otherwise bool) (bool, error) {
	v, ok := o.get(option)
	if !ok {
		return otherwise, nil
	}
	b, ok := v.(bool)
	if !ok {
		return false, o.wrong(option, v, "true or false")
	}

	return b, nil
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case int:
		return float64(v), true
	case float64:
		return v, !math.IsNaN(v) && !math.IsInf(v, 0)
	default:
		return 0, false
	}
}

// number reads a number of at least low and at most high.
func (o *optionsOf) number(option string, low, high float64, expected string) (float64, bool, error) {
	v, ok := o.get(option)
	if !ok {
		return 0, false, nil
	}
	f, ok := number(v)
	if !ok || f < low || f > high {
		return 0, false, o.wrong(option, v, expected)
	}

	return f, true, nil
}

func (o *optionsOf) whole(option string, low int, expected string) (int, bool, error) {
	f, ok, err := o.number(option, float64(low), math.MaxInt32, expected)
	if err == nil && ok && f != math.Trunc(f) {
		return 0, false, o.wrong(option, f, expected)
	}

	return int(f), ok, err
}

const durationForm = `a time above zero: milliseconds as a number, or a string such as "30s"`

// duration reads a time as k6 does: a number is in milliseconds, a string carries its unit.
func (o *optionsOf) duration(option string) (time.Duration, bool, error) {
	v, ok := o.get(option)
	if !ok {
		return 0, false, nil
	}
	if _, isString := v.(string); !isString {
		if _, isNumber := number(v); !isNumber {
			return 0, false, o.wrong(option, v, durationForm)
		}
	}
	d, err := types.GetDurationValue(v)
	if err != nil || d <= 0 || overflows(v) {
		return 0, false, o.wrong(option, v, durationForm)
	}

	return d, true, nil
}

// overflows says whether a time is longer than a time.Duration holds (292 years): k6's own reading of it goes round silently.
func overflows(v any) bool {
	const mostMillis, mostDays = math.MaxInt64 / 1e6, math.MaxInt64 / (24 * 3600 * 1e9)
	text, ok := v.(string)
	if !ok {
		f, _ := number(v)

		return f >= mostMillis
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		return !(f < mostMillis)
	}
	days, _, _ := strings.Cut(text, "d")
	f, err := strconv.ParseFloat(days, 64)

	return err == nil && f >= mostDays
}

func (o *optionsOf) strings(option, expected string) (map[string]string, error) {
	v, ok := o.get(option)
	if !ok {
		return nil, nil //nolint:nilnil // an absent option is an absent map
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, o.wrong(option, v, expected)
	}
	out := make(map[string]string, len(m))
	for key, value := range m {
		switch value := value.(type) {
		case string:
			out[key] = value
		case bool, int64, float64:
			out[key] = fmt.Sprint(value)
		default:
			return nil, o.wrong(option+"."+key, value, "a string")
		}
	}

	return out, nil
}

func (o *optionsOf) object(option, expected string) (*optionsOf, error) {
	v, ok := o.get(option)
	if !ok {
		return nil, nil //nolint:nilnil // an absent option is an absent object
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, o.wrong(option, v, expected)
	}

	return &optionsOf{what: o.what + ": " + option, values: m}, nil
}

// only is an error if the object holds an option of another name.
func (o *optionsOf) only(known ...string) error {
	names := make([]string, 0, len(o.values))
	for name := range o.values {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("%s: unknown option %q, expected one of: %s", o.what, name, strings.Join(known, ", "))
		}
	}

	return nil
}

//nolint:cyclop,funlen // one option after the other; splitting would only spread the list
func parseClientOptions(values map[string]any) (clientOptions, error) {
	o := &optionsOf{what: "llm.Client", values: values}
	c := clientOptions{timeout: DefaultTimeout, api: "chat", itlSampling: 1}

	// First of all, since a misspelt name looks like a missing option.
	if err := o.only("baseURL", "apiKey", "model", "headers", "timeout", "idleTimeout", "api", "tokenizer", "slo", "cost",
		"tags", "itlSampling", "includeUsage", "retry", "seed", "throw"); err != nil {
		return c, err
	}
	raw, err := o.str("baseURL")
	if err != nil {
		return c, err
	}
	if c.baseURL, err = parseBaseURL(o, raw); err != nil {
		return c, err
	}
	if c.apiKey, err = o.str("apiKey"); err != nil {
		return c, err
	}
	if c.model, c.models, err = parseModel(o); err != nil {
		return c, err
	}
	if c.headers, err = o.strings("headers", `an object of strings, e.g. {"X-Tenant": "a"}`); err != nil {
		return c, err
	}
	if err := checkHeaders(o, c.apiKey, c.headers); err != nil {
		return c, err
	}
	c.secrets = secretsOf(c.apiKey, c.headers)
	if d, ok, err := o.duration("timeout"); err != nil {
		return c, err
	} else if ok {
		c.timeout = d
	}
	if c.idleTimeout, _, err = o.duration("idleTimeout"); err != nil {
		return c, err
	}
	if name, err := o.str("api"); err != nil {
		return c, err
	} else if _, given := o.get("api"); given {
		if c.api, err = wire.ParseAPI(name); err != nil {
			return c, fmt.Errorf("llm.Client: option \"api\": %w", err)
		}
	}
	if name, err := o.str("tokenizer"); err != nil {
		return c, err
	} else if _, given := o.get("tokenizer"); given {
		if c.tokenizer, err = tokens.New(name); err != nil {
			return c, fmt.Errorf("llm.Client: option \"tokenizer\": %w", err)
		}
	}
	if c.slo, err = parseSLO(o); err != nil {
		return c, err
	}
	if c.cost, err = parseCost(o); err != nil {
		return c, err
	}
	if c.tags, err = o.tags(`an object of strings, e.g. {"tier": "gold"}`); err != nil {
		return c, err
	}
	if f, ok, err := o.number("itlSampling", 0, 1, "a share from 0 (no ITL samples) to 1 (all)"); err != nil {
		return c, err
	} else if ok {
		c.itlSampling = f
	}
	if c.includeUsage, err = o.boolean("includeUsage", true); err != nil {
		return c, err
	}
	if c.retry, err = parseRetry(o); err != nil {
		return c, err
	}
	if c.throw, err = o.boolean("throw", false); err != nil {
		return c, err
	}

	return c, nil
}

// checkHeaders refuses what HTTP can not carry: sent, it would look like a connection that breaks. Values are not shown,
// since they may be keys.
func checkHeaders(o *optionsOf, apiKey string, headers map[string]string) error {
	wrong := func(option, found, expected string) error {
		return &OptionError{What: o.what, Option: option, Found: found, Expected: expected}
	}
	if !httpguts.ValidHeaderFieldValue(apiKey) {
		return wrong("apiKey", "characters that no header can carry", "a key without line breaks and control characters")
	}
	for name, value := range headers {
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			return wrong("headers", fmt.Sprintf("the name %q", name), "a header name of letters, digits and dashes")
		case !httpguts.ValidHeaderFieldValue(value):
			return wrong("headers."+name, "characters that no header can carry", "a value without line breaks and control characters")
		}
		switch http.CanonicalHeaderKey(name) {
		case "Host", "Content-Length", "Transfer-Encoding", "Connection":
			return wrong("headers", fmt.Sprintf("the name %q", name), "a header that is not the transport's own")
		}
	}

	return nil
}

func secretsOf(apiKey string, headers map[string]string) wire.Secrets {
	header := http.Header{"Authorization": {apiKey}}
	for name, value := range headers {
		header[name] = append(header[name], value)
	}

	return wire.SecretsIn(header)
}

const baseURLForm = `an http or https URL such as "http://127.0.0.1:8000/v1"`

// parseBaseURL checks the base URL. One without a path gets /v1, where the OpenAI form has its endpoints.
func parseBaseURL(o *optionsOf, raw string) (*url.URL, error) {
	if raw == "" {
		return nil, o.wrong("baseURL", o.values["baseURL"], baseURLForm)
	}
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return nil, o.wrong("baseURL", raw, baseURLForm)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, o.wrong("baseURL", raw, "a port from 1 to 65535")
		}
	}
	if u.User != nil {
		// Not shown: it holds a password.
		return nil, &OptionError{
			What: o.what, Option: "baseURL", Found: "a URL with a user or password in it",
			Expected: "credentials in the option apiKey or headers, where they stay out of tags and logs",
		}
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, &OptionError{
			What: o.what, Option: "baseURL", Found: "a URL with a query or fragment", Expected: baseURLForm,
		}
	}
	u.Path = strings.TrimRight(u.Path, "/")
	for _, api := range []wire.API{wire.Chat, wire.Completions, wire.Responses, wire.Messages, wire.Embeddings} {
		if base, ok := strings.CutSuffix(u.Path, api.Path()); ok {
			u.Path = base

			return nil, o.wrong("baseURL", raw, fmt.Sprintf("the base of the API, %q: the client adds %s", u, api.Path()))
		}
	}
	if u.Path == "" {
		u.Path = "/v1"
	}

	return u, nil
}

func parseSLO(o *optionsOf) (slo, error) {
	var s slo
	limits, err := o.object("slo", `an object such as {"ttft": 800, "tpot": 50, "e2e": "30s", "itl": 200}`)
	if limits == nil || err != nil {
		return s, err
	}
	if err := limits.only("ttft", "tpot", "e2e", "itl"); err != nil {
		return s, err
	}
	for _, want := range []struct {
		into   **time.Duration
		option string
	}{{&s.ttft, "ttft"}, {&s.tpot, "tpot"}, {&s.e2e, "e2e"}, {&s.itl, "itl"}} {
		d, ok, err := limits.duration(want.option)
		if err != nil {
			return s, err
		}
		if ok {
			*want.into = &d
		}
	}

	return s, nil
}

func parseCost(o *optionsOf) (*price, error) {
	prices, err := o.object("cost", `prices for a million tokens, e.g. {"prompt": 0.5, "completion": 1.5, "cached": 0.1}`)
	if prices == nil || err != nil {
		return nil, err
	}
	if err := prices.only("prompt", "completion", "cached"); err != nil {
		return nil, err
	}
	const (
		expected = "currency units for a million tokens, 0 to 1e9"
		highest  = 1e9
	)
	p := &price{}
	var cachedGiven bool
	if p.prompt, _, err = prices.number("prompt", 0, highest, expected); err != nil {
		return nil, err
	}
	if p.completion, _, err = prices.number("completion", 0, highest, expected); err != nil {
		return nil, err
	}
	if p.cached, cachedGiven, err = prices.number("cached", 0, highest, expected); err != nil {
		return nil, err
	}
	if !cachedGiven {
		p.cached = p.prompt
	}

	return p, nil
}

// ourFields are the fields of a request that are not the provider's.
//
//nolint:gochecknoglobals // a constant list
var ourFields = []string{"slo", "tags", "abortAfter", "dueTime", "row", "class", "promptTokens", "throw"}

// turnFields are those of a session's turn alone.
//
//nolint:gochecknoglobals // a constant list
var turnFields = []string{"onToolCall", "maxRounds"}

// parseRequest takes our own fields out of a request object; what is left is the provider's body.
func parseRequest(values map[string]any, c *clientOptions) (request, error) {
	r := request{row: -1, slo: c.slo, throw: c.throw}
	o := &optionsOf{what: "llm request", values: values}
	for _, name := range turnFields {
		if v, given := o.get(name); given {
			return r, o.wrong(name, v, "it in the request of session.chat (llm.Session): onToolCall and maxRounds are options of Session.chat")
		}
	}

	var err error
	if _, given := values["slo"]; given {
		if r.slo, err = parseSLO(o); err != nil {
			return r, err
		}
	}
	if r.tags, err = o.tags(`an object of strings, e.g. {"tier": "gold"}`); err != nil {
		return r, err
	}
	if r.abortAfter, err = parseAbortAfter(o); err != nil {
		return r, err
	}
	const dueForm = "a point in time: milliseconds since 1970, as Date.now() gives them"
	if ms, ok, err := o.number("dueTime", 1e11, 1e14, dueForm); err != nil {
		return r, err
	} else if ok {
		r.due = time.UnixMicro(0).Add(time.Duration(ms * float64(time.Millisecond)))
	}
	if row, ok, err := o.whole("row", 0, "the number of a row of a trace"); err != nil {
		return r, err
	} else if ok {
		r.row = int64(row)
	}
	if r.class, err = o.str("class"); err != nil {
		return r, err
	}
	if r.promptTokens, _, err = o.whole("promptTokens", 0, "a whole number of tokens"); err != nil {
		return r, err
	}
	if r.throw, err = o.boolean("throw", c.throw); err != nil {
		return r, err
	}

	r.body = make(map[string]any, len(values))
	for name, value := range values {
		if !slices.Contains(ourFields, name) && !slices.Contains(turnFields, name) {
			r.body[name] = value
		}
	}

	return r, checkSendable(r.body)
}

func parseAbortAfter(o *optionsOf) (*abortAfter, error) {
	limit, err := o.object("abortAfter", `an object such as {"tokens": 20} or {"ms": 1500}`)
	if limit == nil || err != nil {
		return nil, err
	}
	if err := limit.only("tokens", "ms"); err != nil {
		return nil, err
	}
	a := &abortAfter{}
	var byTokens bool
	if a.tokens, byTokens, err = limit.whole("tokens", 1, "a whole number of tokens, 1 or more"); err != nil {
		return nil, err
	}
	ms, byTime, err := limit.number("ms", 0, math.MaxInt32, "milliseconds, 0 or more")
	if err != nil {
		return nil, err
	}
	a.after = time.Duration(ms * float64(time.Millisecond))
	if byTokens == byTime {
		return nil, o.wrong("abortAfter", o.values["abortAfter"], `exactly one of "tokens" and "ms"`)
	}
	if !byTime {
		a.after = -1
	}

	return a, nil
}
