// Package llm is the k6 module `k6/x/llm`: it sends one request to an LLM service, streams the answer, and times every
// token. The packages below it do the work and know nothing of k6: wire (the shapes of each API), stream (bytes to token
// timeline), tokens (tokenizers) and llmtest (a simulated engine).
package llm

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/grafana/sobek"
	"go.k6.io/k6/js/common"
	"go.k6.io/k6/js/modules"
	"go.k6.io/k6/metrics"

	"github.com/safeqps/xk6-safeqps/llm/wire"
)

// Module is what k6 keeps one of in each process.
type Module struct {
	inFlight atomic.Int64  // requests being served, as this process sees
	sequence atomic.Uint64 // numbers the requests of this process

	warnedOfUnsent atomic.Bool

	firstAttempts, retries atomic.Int64 // of clients that have a retry policy, for its budget
}

// New returns the module for registration with k6.
func New() *Module { return &Module{} }

// InFlight is how many requests of this process are being served.
func (r *Module) InFlight() int64 { return r.inFlight.Load() }

// Started is how many requests this process has started.
func (r *Module) Started() uint64 { return r.sequence.Load() }

// NewModuleInstance implements modules.Module.
func (r *Module) NewModuleInstance(vu modules.VU) modules.Instance {
	instruments, err := registerInstruments(vu.InitEnv().Registry)
	if err != nil {
		common.Throw(vu.Runtime(), err)
	}

	return &moduleInstance{vu: vu, instruments: instruments, root: r, rootTags: vu.InitEnv().Registry.RootTagSet()}
}

// moduleInstance is the module in one VU.
type moduleInstance struct {
	vu          modules.VU
	instruments *instruments
	root        *Module
	rootTags    *metrics.TagSet

	clientClass, sessionClass *sobek.Object
}

// Exports implements modules.Instance.
func (m *moduleInstance) Exports() modules.Exports {
	if m.clientClass == nil {
		// Made once: a Go function becomes another JavaScript one each time that it is looked at, and is then no class.
		m.clientClass, m.sessionClass = m.class("Client", m.newClient), m.class("Session", m.newSession)
	}
	exports := map[string]any{"Client": m.clientClass, "Session": m.sessionClass, "image": m.vu.Runtime().ToValue(m.image)}

	return modules.Exports{Default: exports, Named: exports}
}

func (m *moduleInstance) class(name string, construct func(sobek.ConstructorCall) *sobek.Object) *sobek.Object {
	rt := m.vu.Runtime()
	class := rt.ToValue(construct).ToObject(rt)
	if err := class.DefineDataProperty("name", rt.ToValue(name), sobek.FLAG_FALSE, sobek.FLAG_FALSE, sobek.FLAG_TRUE); err != nil {
		common.Throw(rt, fmt.Errorf("llm.%s: %w", name, err))
	}

	return class
}

// mustBeNew throws where a class is called as a function.
func (m *moduleInstance) mustBeNew(class *sobek.Object, call sobek.ConstructorCall, form string) {
	rt := m.vu.Runtime()
	if !rt.InstanceOf(call.This, class) {
		panic(rt.NewTypeError("llm.%s is a class: use new llm.%s", class.Get("name"), form))
	}
}

// newClient is the constructor `new llm.Client({…})`.
func (m *moduleInstance) newClient(call sobek.ConstructorCall) *sobek.Object {
	rt := m.vu.Runtime()
	m.mustBeNew(m.clientClass, call, "Client({…})")
	values, ok := exportObject(call.Argument(0))
	if !ok {
		common.Throw(rt, &OptionError{
			What: "llm.Client", Found: describeValue(call.Argument(0)),
			Expected: `an object of options such as {baseURL: "http://127.0.0.1:8000/v1", model: "m"}`,
		})
	}
	options, err := parseClientOptions(values)
	if err != nil {
		common.Throw(rt, err)
	}
	c := &client{module: m, options: options}

	for name, api := range map[string]wire.API{
		"chat": options.api, "completions": wire.Completions, "responses": wire.Responses, "messages": wire.Messages,
		"embeddings": wire.Embeddings,
	} {
		blocking := func(body sobek.Value) (sobek.Value, error) { return c.do(api, body) }
		async := func(body sobek.Value) (*sobek.Promise, error) { return c.doAsync(api, body) }
		if err := errors.Join(
			call.This.Set(name, blocking),
			call.This.Set("async"+string(name[0]-'a'+'A')+name[1:], async),
		); err != nil {
			common.Throw(rt, fmt.Errorf("llm.Client: %w", err))
		}
	}

	if err := call.This.DefineDataProperty(
		clientKey, rt.ToValue(c), sobek.FLAG_FALSE, sobek.FLAG_FALSE, sobek.FLAG_FALSE,
	); err != nil {
		common.Throw(rt, fmt.Errorf("llm.Client: %w", err))
	}

	return nil // `this`, so that `instanceof llm.Client` holds
}

// do sends a request and waits for the end of its answer. It blocks the VU, which is what a closed loop means; the wait
// ends with the iteration's context.
func (c *client) do(api wire.API, body sobek.Value) (sobek.Value, error) {
	p, err := c.prepare(api, body)
	if err != nil {
		return nil, err
	}
	ex := c.send(c.module.vu.Context(), p)
	if ex == nil {
		return nil, errNeverSent
	}
	if c.throws(p, ex) {
		panic(c.module.failure(ex)) // which is how a value is thrown
	}

	return c.module.response(ex), nil
}

// doAsync sends a request on a goroutine of its own. k6's event loop waits for the callback, and with it for the
// goroutine.
func (c *client) doAsync(api wire.API, body sobek.Value) (*sobek.Promise, error) {
	p, err := c.prepare(api, body)
	if err != nil {
		return nil, err
	}
	ctx := c.module.vu.Context()
	promise, resolve, reject := c.module.vu.Runtime().NewPromise()
	callback := c.module.vu.RegisterCallback()
	go func() {
		ex := c.send(ctx, p)
		callback(func() error {
			if ex == nil {
				return reject(c.module.vu.Runtime().NewGoError(errNeverSent))
			}
			if c.throws(p, ex) {
				return reject(c.module.failure(ex))
			}

			return resolve(c.module.response(ex))
		})
	}()

	return promise, nil
}

func (c *client) throws(p *prepared, ex *Exchange) bool {
	return ex.Outcome == OutcomeFailed && (p.request.throw || p.state.Options.Throw.Bool)
}
