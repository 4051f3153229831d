package contract

import (
	"fmt"
	"net/url"
)

// Unwatched is an abort rule that nothing can watch: it never stops the run.
type Unwatched struct {
	Rule AbortRule
	// Why says what is missing, and what to do about it.
	Why string
}

func (u Unwatched) String() string { return u.Rule.Name + " is not watched: " + u.Why }

// Unwatched lists the abort rules that nothing can watch as the contract stands. They are no errors: the contract may be
// written before it is known where the service will be.
func (c *Contract) Unwatched() []Unwatched {
	var out []Unwatched
	health, _ := c.Health()
	for _, rule := range c.Abort {
		why := ""
		spec, _ := specOf(rule.Metric)
		_, known := rule.Limit.Value()
		switch {
		case !known:
			why = "its limit needs a baseline"
		case rule.Metric == "unhealthy" && len(health) == 0:
			why = "the contract has neither server.health_url nor server.metrics_url; give one of them, " +
				"or gate.monitor(contract, {healthURL: …})"
		case spec.shape == shapeLevel && rule.Metric != "in_flight" && (c.Server == nil || len(c.Server.MetricsURLs) == 0):
			why = "the contract has no server.metrics_url"
		}
		if why != "" {
			out = append(out, Unwatched{rule, why})
		}
	}
	return out
}

// NeedsRequests reports whether nobody but the output --out llm=DIR, which sees every request, watches an abort rule.
func (r AbortRule) NeedsRequests() bool {
	spec, _ := specOf(r.Metric)
	_, reason := ruleThreshold(r)
	return reason != "" && spec.shape != shapeLevel && spec.shape != shapeState
}

// Health returns the health endpoints to ask: server.health_url, or else /health on the hosts of server.metrics_url, where
// vLLM, SGLang, TGI, llama.cpp, trtllm-serve and Dynamo have it. Derived endpoints may not be there: one that never answered
// well says nothing of the service.
func (c *Contract) Health() (urls []string, derived bool) {
	if c.Server == nil {
		return nil, false
	}
	if len(c.Server.HealthURLs) > 0 {
		return c.Server.HealthURLs, false
	}
	seen := map[string]bool{}
	for _, address := range c.Server.MetricsURLs {
		parsed, err := url.Parse(address)
		if err != nil {
			continue // Load refuses it
		}
		own := (&url.URL{Scheme: parsed.Scheme, Host: parsed.Host, Path: "/health"}).String()
		if !seen[own] {
			seen[own] = true
			urls = append(urls, own)
		}
	}
	return urls, len(urls) > 0
}

// WithHealth returns the contract with health endpoints that its file does not name.
func (c *Contract) WithHealth(urls []string) (*Contract, error) {
	out := *c
	server := Server{Interval: Duration(DefaultScrapeInterval), Engine: "auto"}
	if c.Server != nil {
		server = *c.Server
	}
	for _, address := range urls {
		if problem := checkAddress(address); problem != nil {
			return nil, fmt.Errorf("found %s, expected %s", problem.found, problem.expected)
		}
	}
	server.HealthURLs = urls
	out.Server = &server
	return &out, nil
}

// checkAddress says what is wrong with an endpoint's address; nil for nothing.
func checkAddress(text string) *fault {
	parsed, err := url.Parse(text)
	switch {
	case err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https":
		return &fault{quote(text), "an address such as http://127.0.0.1:8000/metrics"}
	case parsed.User != nil:
		return &fault{"an address with credentials", "one without: a contract is kept with the results"}
	}
	return nil
}
