package llm

import (
	"fmt"
	"time"

	"github.com/grafana/sobek"
	"go.k6.io/k6/js/common"
	"go.k6.io/k6/metrics"

	"github.com/safeqps/xk6-safeqps/llm/describe"
	"github.com/safeqps/xk6-safeqps/llm/wire"
)

// response is what a script gets of an exchange. It must run on the VU's own goroutine.
func (m *moduleInstance) response(ex *Exchange) sobek.Value {
	msg := ex.Message
	calls := make([]any, len(msg.ToolCalls))
	for i, call := range msg.ToolCalls {
		calls[i] = m.toolCall(call)
	}
	var failed any
	if ex.Outcome == OutcomeFailed {
		failed = m.object(field{"type", string(ex.ErrorType)}, field{"message", ex.ErrorText})
	}
	var requestID any
	if msg.ID != "" {
		requestID = msg.ID
	}

	return m.object(
		field{"ok", ex.Outcome == OutcomeOK},
		field{"outcome", string(ex.Outcome)},
		field{"attempts", ex.Attempt},
		field{"status", ex.Status},
		field{"error", failed},
		field{"cancelPhase", orNull(string(ex.CancelPhase))},
		field{"text", msg.Text},
		field{"reasoning", msg.Reasoning},
		field{"refusal", msg.Refusal},
		field{"toolCalls", calls},
		field{"finishReason", orNull(msg.FinishReason)},
		field{"embeddings", m.embeddings(msg)},
		field{"startTime", float64(ex.Timeline.Sent.UnixNano()) / 1e6},
		field{"usage", m.usage(ex)},
		field{"chunks", ex.Timeline.Chunks()},
		field{"timings", m.timings(ex)},
		field{"goodput", pointee(ex.Goodput)},
		field{"cost", pointee(ex.Cost)},
		field{"requestId", requestID},
		field{"model", orNull(msg.Model)},
	)
}

// failure is what a failed request throws where `throw` is set: an Error with the type and the status of the response that
// would have been returned. It must run on the VU's own goroutine.
func (m *moduleInstance) failure(ex *Exchange) *sobek.Object {
	rt := m.vu.Runtime()
	text := rt.ToValue(fmt.Sprintf("llm request failed (%s): %s", ex.ErrorType, ex.ErrorText))
	failure, err := rt.New(rt.GlobalObject().Get("Error"), text)
	if err != nil {
		common.Throw(rt, err)
	}
	// Setting a data property of a fresh, extensible object can not fail.
	_ = failure.Set("type", string(ex.ErrorType))
	_ = failure.Set("status", ex.Status)

	return failure
}

func (m *moduleInstance) toolCall(call wire.ToolCall) sobek.Value {
	return m.object(field{"id", call.ID}, field{"name", call.Name}, field{"arguments", call.Arguments})
}

func (m *moduleInstance) embeddings(msg *wire.Message) any {
	if msg.Vectors == 0 {
		return nil
	}

	return m.object(field{"count", msg.Vectors}, field{"dimensions", msg.Dimensions})
}

func (m *moduleInstance) usage(ex *Exchange) sobek.Value {
	return m.object(
		field{"promptTokens", pointee(ex.PromptTokens)},
		field{"completionTokens", pointee(ex.CompletionTokens)},
		field{"cachedTokens", pointee(ex.Message.Usage.CachedTokens)},
		field{"reasoningTokens", pointee(ex.Message.Usage.ReasoningTokens)},
		field{"source", orNull(string(ex.TokenSource))},
	)
}

func (m *moduleInstance) timings(ex *Exchange) sobek.Value {
	tl := &ex.Timeline
	gaps := make([]float64, 0, max(tl.Chunks()-1, 0))
	for _, gap := range tl.Gaps {
		gaps = append(gaps, metrics.D(gap))
	}

	return m.object(
		field{"ttft", millis(tl.TTFT())},
		field{"ttftText", millis(tl.TTFTText())},
		field{"tpot", millis(ex.TPOT())},
		field{"e2e", millis(ex.E2E())},
		field{"scheduleDelay", millis(ex.ScheduleDelay())},
		field{"itl", gaps},
	)
}

type field struct {
	name  string
	value any
}

// object builds a plain JavaScript object, whose fields are in the order given.
func (m *moduleInstance) object(fields ...field) sobek.Value {
	rt := m.vu.Runtime()
	o := rt.NewObject()
	for _, f := range fields {
		// Setting a data property of a fresh, extensible object can not fail.
		_ = o.Set(f.name, f.value)
	}

	return o
}

func millis(d time.Duration, ok bool) any {
	if !ok {
		return nil
	}

	return metrics.D(d)
}

func pointee[T any](p *T) any {
	if p == nil {
		return nil
	}

	return *p
}

func orNull(s string) any {
	if s == "" {
		return nil
	}

	return s
}

// exportObject takes a JavaScript object apart; false for anything else.
func exportObject(v sobek.Value) (map[string]any, bool) {
	if v == nil || sobek.IsUndefined(v) || sobek.IsNull(v) {
		return nil, false
	}
	m, ok := v.Export().(map[string]any)

	return m, ok
}

func describeValue(v sobek.Value) string {
	return describe.Given(v)
}
