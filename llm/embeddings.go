package llm

import "github.com/safeqps/xk6-safeqps/llm/wire"

// An embedding has no tokens to stream: of its timings only E2E exists. TTFT, ITL and TPOT are absent, not zero.

// fitEmbeddings takes out of a request for embeddings what has no meaning there. The client's limits on TTFT, ITL and TPOT
// are for its other requests; a limit of the request's own that can never be met is wrong use.
func fitEmbeddings(api wire.API, r *request, given map[string]any) error {
	if api != wire.Embeddings {
		return nil
	}
	o := &optionsOf{what: "embeddings request", values: given}
	if own, ok := given["slo"]; ok && own != nil && (r.slo.ttft != nil || r.slo.tpot != nil || r.slo.itl != nil) {
		return o.wrong("slo", own, "a limit on e2e alone: an embedding has no TTFT, ITL and TPOT")
	}
	r.slo = slo{e2e: r.slo.e2e}
	if r.abortAfter != nil && r.abortAfter.tokens > 0 {
		return o.wrong("abortAfter", given["abortAfter"], `an object such as {"ms": 1500}: an embedding has no tokens to wait for`)
	}

	return nil
}

// countEmbedded settles how many tokens were embedded, and who says so; nobody does where TokenSource stays empty.
func (e *Exchange) countEmbedded() {
	switch {
	case e.Message.Usage.PromptTokens != nil:
		e.TokenSource = SourceServer
	case e.PromptTokens != nil:
		e.TokenSource = SourceTokenizer
	}
}
