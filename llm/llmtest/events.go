package llmtest

import (
	"net"
	"net/http"
	"strconv"
	"time"
)

// eventWriter writes server-sent events, one write and one flush each. All that is the same in every chunk is encoded once.
type eventWriter struct {
	w       http.ResponseWriter
	flusher http.Flusher
	j       *job
	head    []byte // up to the stamp
	buf     []byte
	sentNS  int64
	tokens  int                      // written so far, counted where usage is in every chunk
	sleep   func(time.Duration) bool // false where client or server left meanwhile

	malformed bool // the next chunk
}

// noStamp keeps the place of a time in nanoseconds, which has so many digits until the year 2286.
const noStamp = "0000000000000000000"

func newEventWriter(w http.ResponseWriter, j *job) *eventWriter {
	object := "text_completion"
	if j.api == chatAPI {
		object = "chat.completion.chunk"
	}
	head := `data: {"id":"` + j.id + `","object":"` + object + `","created":` + strconv.FormatInt(j.created, 10) +
		`,"model":` + quote(j.model) + `,"sim_sent_ns":`
	flusher, _ := w.(http.Flusher)
	return &eventWriter{w: w, flusher: flusher, j: j, head: []byte(head)}
}

func (e *eventWriter) flush() {
	if e.flusher != nil {
		e.flusher.Flush()
	}
}

// begin writes the headers.
func (e *eventWriter) begin() {
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Request-Id", e.j.id)
	e.w.WriteHeader(http.StatusOK)
	e.flush()
}

// chunk writes an event with one choice. finish and usage are JSON; delta is an object for a chat and bare text that needs no
// escape for a completion.
func (e *eventWriter) chunk(delta, finish, usage string) error {
	b := e.open(usage)
	if e.j.api == chatAPI {
		b = append(b, `,"choices":[{"index":0,"delta":`...)
		b = append(b, delta...)
	} else {
		b = append(b, `,"choices":[{"index":0,"text":"`...)
		b = append(b, delta...)
		b = append(b, '"')
	}
	b = append(b, `,"logprobs":null,"finish_reason":`...)
	b = append(b, finish...)
	b = append(b, "}]}\n\n"...)
	return e.stampAndWrite(b, len(e.head))
}

// usageChunk writes the event that carries usage and no choice.
func (e *eventWriter) usageChunk(usage string) error {
	return e.stampAndWrite(append(e.open(usage), ",\"choices\":[]}\n\n"...), len(e.head))
}

func (e *eventWriter) open(usage string) []byte {
	e.buf = append(e.buf[:0], e.head...)
	e.buf = append(e.buf, noStamp...)
	e.buf = append(e.buf, `,"usage":`...)
	return append(e.buf, usage...)
}

// named writes an event with a name, whose data says the name again as its type. fields are the rest of the data, as JSON
// members that each begin with a comma.
func (e *eventWriter) named(event, fields string) error {
	b := e.buf[:0]
	b = append(b, "event: "...)
	b = append(b, event...)
	b = append(b, "\ndata: {\"type\":\""...)
	b = append(b, event...)
	b = append(b, `","sim_sent_ns":`...)
	at := len(b)
	b = append(b, noStamp...)
	b = append(b, fields...)
	return e.stampAndWrite(append(b, "}\n\n"...), at)
}

// stampAndWrite puts the time into the place that was left for it, and writes the event.
func (e *eventWriter) stampAndWrite(b []byte, at int) error {
	e.buf = b
	if e.malformed {
		b = append(b[:len(b)-4], "\n\n"...) // loses the brackets at the end
	}
	first := b
	if at := e.j.fault.SplitAt; at > 0 && at < len(b) {
		first = b[:at]
	}
	e.sentNS = time.Now().UnixNano()
	strconv.AppendInt(b[at:at], e.sentNS, 10)
	if _, err := e.w.Write(first); err != nil {
		return err
	}
	e.flush()
	if len(first) == len(b) {
		return nil
	}
	if !e.sleep(time.Duration(e.j.fault.SplitDelay)) {
		return errClientLeft
	}
	if _, err := e.w.Write(b[len(first):]); err != nil {
		return err
	}
	e.flush()
	return nil
}

// raw writes an event that carries no stamp.
func (e *eventWriter) raw(event string) error {
	if _, err := e.w.Write([]byte(event)); err != nil {
		return err
	}
	e.flush()
	return nil
}

// disconnect closes the connection under the answer: with RST or with FIN.
func (e *eventWriter) disconnect(reset bool) {
	conn, _, err := http.NewResponseController(e.w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // not HTTP/1: net/http then resets the stream
	}
	if tcp, ok := conn.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// writeErrorStream answers 200 with an error event, and [DONE] where the API has that.
func writeErrorStream(w http.ResponseWriter, api apiKind, e *apiError) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	event := "data: " + string(e.body(api)) + "\n\n"
	if api == responsesAPI || api == messagesAPI {
		event = "event: error\n" + event
	} else {
		event += "data: [DONE]\n\n"
	}
	writeBody(w, []byte(event))
}
