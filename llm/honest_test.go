package llm

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// failedWith sends one request and returns the error that it shows.
func failedWith(t *testing.T, s *server, options string) (kind, message string, status int64) {
	t.Helper()
	v := newVU(t)
	r := v.must(newClient(s, options) + `result = ` + ask)
	require.Equal(t, false, r["ok"], r)
	failed, _ := r["error"].(map[string]any)
	seen := v.seen()
	require.Len(t, seen["llm_errors"], 1)
	tag, _ := seen["llm_errors"][0].Tags.Get("error_type")
	require.Equal(t, failed["type"], tag)
	require.Equal(t, []float64{indicator(r["status"].(int64) >= 500)}, values(seen["llm_http_5xx"]))

	return fmt.Sprint(failed["type"]), fmt.Sprint(failed["message"]), r["status"].(int64)
}

// TestTheStatusDecidesWhateverBecomesOfTheBody: a server that has said 500 has failed, however slowly it explains that.
func TestTheStatusDecidesWhateverBecomesOfTheBody(t *testing.T) {
	t.Parallel()
	const explained = `{"error":{"message":"out of memory"}}`
	refuse := func(code int, more func(http.ResponseWriter, *http.Request)) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(code)
			w.(http.Flusher).Flush()
			more(w, r)
		}
	}
	silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	endless := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, explained)
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, strings.Repeat(" ", 1<<10))
			w.(http.Flusher).Flush()
		}
	}
	compressed := func(encoding string, body []byte) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", encoding)
			w.WriteHeader(http.StatusBadGateway)
			_, _ = w.Write(body)
		}
	}
	var gzipped bytes.Buffer
	zip := gzip.NewWriter(&gzipped)
	_, err := io.WriteString(zip, explained)
	require.NoError(t, err)
	require.NoError(t, zip.Close())

	for name, tt := range map[string]struct {
		handle  func(http.ResponseWriter, *http.Request)
		options string
		status  int64
		kind    string
		message string
	}{
		"no body, and idleTimeout passes":  {refuse(500, silent), `idleTimeout: 40,`, 500, "http_5xx", "HTTP 500"},
		"no body, and timeout passes":      {refuse(503, silent), `timeout: 60,`, 503, "http_5xx", "HTTP 503"},
		"no body, and nothing bounds that": {refuse(500, silent), ``, 500, "http_5xx", "HTTP 500"},
		"endless body":                     {refuse(500, endless), `idleTimeout: "10s",`, 500, "http_5xx", "out of memory"},
		"endless body of 429":              {refuse(429, endless), ``, 429, "http_429", "out of memory"},
		"endless body of 400":              {refuse(400, endless), ``, 400, "http_4xx", "out of memory"},
		"body breaks off": {refuse(500, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "half a mess")
			w.(http.Flusher).Flush()
			hangUp(w)
		}), ``, 500, "http_5xx", "half a mess"},
		"unknown encoding": {compressed("br", []byte("\x00\x01")), ``, 502, "http_5xx", "Bad Gateway"},
		"gzip":             {compressed("gzip", gzipped.Bytes()), ``, 502, "http_5xx", "out of memory"},
		"not gzip at all":  {compressed("gzip", []byte("plain")), ``, 502, "http_5xx", "Bad Gateway"},
		"cut gzip":         {compressed("gzip", gzipped.Bytes()[:gzipped.Len()-9]), ``, 502, "http_5xx", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind, message, status := failedWith(t, serve(t, tt.handle), tt.options)
			require.Equal(t, tt.kind, kind, message)
			require.Equal(t, tt.status, status)
			require.Contains(t, message, tt.message)
		})
	}

	t.Run("the user left meanwhile", func(t *testing.T) {
		t.Parallel()
		v := newVU(t)
		r := v.must(newClient(serve(t, refuse(500, silent)), "") + `result = client.chat({messages: [], abortAfter: {ms: 50}})`)
		require.Equal(t, "failed", r["outcome"])
		require.Equal(t, "http_5xx", r["error"].(map[string]any)["type"])
	})
}

// TestARedirectThatLeadsNowhere is no answer of the API, and is called what it is.
func TestARedirectThatLeadsNowhere(t *testing.T) {
	t.Parallel()
	refused := closedPort(t)
	to := func(code int, location string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			if location != "" {
				w.Header().Set("Location", location)
			}
			w.WriteHeader(code)
		}
	}
	dead := serve(t, func(w http.ResponseWriter, _ *http.Request) { hangUp(w) })
	for name, tt := range map[string]struct {
		handle  func(http.ResponseWriter, *http.Request)
		status  int64
		kind    string
		message string
	}{
		"no Location":                 {to(307, ""), 307, "decode", "the redirect names no Location"},
		"no Location, 302":            {to(302, ""), 302, "decode", "the redirect names no Location"},
		"300":                         {to(300, ""), 300, "decode", "the redirect names no Location"},
		"304":                         {to(304, ""), 304, "decode", "Not Modified"},
		"a Location that is none":     {to(307, "http://[::1"), 307, "decode", "the redirect can not be followed"},
		"another scheme":              {to(307, "ftp://127.0.0.1/x"), 307, "decode", `the redirect leads to the scheme "ftp"`},
		"a loop":                      {to(307, "/v1/chat/completions?key=secret"), 307, "decode", "the redirect to /v1/chat/completions was not followed: more came than maxRedirects allows"},
		"nobody listens there":        {to(307, "http://"+refused+"/x"), 0, "connect", ""},
		"the connection breaks there": {to(307, dead.URL), 0, "connect", "the connection broke before an answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind, message, status := failedWith(t, serve(t, tt.handle), "")
			require.Equal(t, tt.kind, kind, message)
			require.Equal(t, tt.status, status)
			require.Contains(t, message, tt.message)
			require.NotContains(t, message, "secret")
		})
	}
}

// TestAnEmptyAnswerIsToldFromNone: a model may say nothing, and then says that it was done.
func TestAnEmptyAnswerIsToldFromNone(t *testing.T) {
	t.Parallel()
	const role = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
	for name, tt := range map[string]struct {
		body []string
		kind string // "" for a good answer
	}{
		"the end marker alone":        {[]string{done}, "decode"},
		"a role and the end marker":   {[]string{role, done}, "decode"},
		"comments and the end marker": {[]string{": hi\n\n", done}, "decode"},
		"a finish reason":             {[]string{finish, done}, ""},
		"a role and a finish reason":  {[]string{role, finish}, ""},
		"usage of no tokens":          {[]string{usageOf(9, 0), done}, ""},
		"nothing at all":              {[]string{": hi\n\n"}, "stream_truncated"},
		"output without a reason":     {[]string{delta("a"), done}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVU(t)
			r := v.must(newClient(serve(t, func(w http.ResponseWriter, _ *http.Request) { write(w, tt.body...) }), "") + `result = ` + ask)
			require.Equal(t, tt.kind == "", r["ok"], r)
			if tt.kind == "" {
				return
			}
			failed := r["error"].(map[string]any)
			require.Equal(t, tt.kind, failed["type"])
			if tt.kind == "decode" {
				require.Equal(t, "decode: the stream held nothing but its end marker: no output, no finish reason, no usage", failed["message"])
			}
			require.Equal(t, []float64{0}, values(v.seen()["llm_success"]))
		})
	}
}

// TestAnAnswerThatIsNoneOfTheAPIs: what a proxy or a wrong address answers with status 200 did not break off. It is shown.
func TestAnAnswerThatIsNoneOfTheAPIs(t *testing.T) {
	t.Parallel()
	const (
		sse  = "text/event-stream"
		good = `{"id":"r-1","choices":[{"message":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`
		bad  = `{"error":{"message":"out of memory","code":500}}`
		page = "<!DOCTYPE html>\n<html><head><title>Please log in</title></head><body>data</body></html>"
	)
	var gzipped bytes.Buffer
	zip := gzip.NewWriter(&gzipped)
	_, err := io.WriteString(zip, delta("a")+finish+done)
	require.NoError(t, err)
	require.NoError(t, zip.Close())
	corrupt := bytes.Clone(gzipped.Bytes())
	corrupt[len(corrupt)-6] ^= 0xff // in the checksum
	for name, tt := range map[string]struct {
		status                    int
		contentType, encoding     string
		body, kind, message, text string
	}{
		"a page":                                   {200, "text/html", "", page, "decode", `neither a stream of events nor JSON: "an HTML page: Please log in"`, ""},
		"a page that calls itself a stream":        {200, sse, "", page, "decode", `"an HTML page: Please log in"`, ""},
		"a text":                                   {200, "text/plain", "", "OK", "decode", `neither a stream of events nor JSON: "OK"`, ""},
		"a text that calls itself a stream":        {200, sse, "", "upstream: gone\n\n", "decode", `"upstream: gone"`, ""},
		"a text of many lines":                     {200, sse, "", strings.Repeat("no field: x\n\n", 2000), "decode", `"no field: x no field: x`, ""},
		"204":                                      {204, "", "", "", "decode", "HTTP 204 without an answer", ""},
		"204 that calls itself a stream":           {204, sse, "", "", "decode", "HTTP 204 without an answer", ""},
		"200 and nothing":                          {200, "text/plain", "", "", "decode", "HTTP 200 without an answer", ""},
		"200 and nothing, as JSON":                 {200, "application/json", "", "", "decode", "HTTP 200 without an answer", ""},
		"a stream of nothing":                      {200, sse, "", "", "stream_truncated", "before any output", ""},
		"a stream of blank lines":                  {200, sse, "", "\n\r\n\r", "stream_truncated", "before any output", ""},
		"a stream that broke off in a field":       {200, sse, "", "dat", "stream_truncated", "before any output", ""},
		"a stream that broke off after its event":  {200, sse, "", "event: e\r\n", "stream_truncated", "before any output", ""},
		"gzip in name, a text":                     {200, sse, "gzip", "OK", "decode", `has the content encoding gzip and is not gzipped: "OK"`, ""},
		"gzip in name, a stream":                   {200, sse, "gzip", delta("a"), "decode", `is not gzipped: "data: {`, ""},
		"gzip in name, JSON":                       {200, "application/json", "gzip", bad, "decode", "out of memory", ""},
		"corrupt gzip":                             {200, sse, "gzip", string(corrupt), "", "", "a"},
		"corrupt gzip of a page":                   {200, sse, "gzip", "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xff\xff\xff", "decode", "flate", ""},
		"gzip that breaks off":                     {200, sse, "gzip", gzipped.String()[:12], "stream_truncated", "the server closed the connection", ""},
		"an error in JSON as a stream":             {200, sse, "", bad, "stream_error", "out of memory", ""},
		"an error in JSON after blanks":            {200, "", "", " \r\n\t" + bad, "stream_error", "out of memory", ""},
		"an answer in JSON as a stream":            {200, sse, "", good, "", "", "a"},
		"an answer in JSON as text, after a blank": {200, "text/plain", "", "\n " + good, "", "", "a"},
		"an answer in JSON without a type":         {200, "", "", "\n\n" + good, "", "", "a"},
		"an answer in JSON with a mark":            {200, sse, "", "\xEF\xBB\xBF" + good, "", "", "a"},
		"half an answer in JSON":                   {200, sse, "", good[:40], "decode", "invalid JSON", ""},
		"a stream that calls itself a page":        {200, "text/html", "", delta("a") + finish + done, "", "", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = []string{tt.contentType}
				if tt.contentType == "" {
					w.Header()["Content-Type"] = nil
				}
				if tt.encoding != "" {
					w.Header().Set("Content-Encoding", tt.encoding)
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			if tt.kind != "" {
				kind, message, _ := failedWith(t, s, "")
				require.Equal(t, tt.kind, kind, message)
				require.Contains(t, message, tt.message)

				return
			}
			r := newVU(t).must(newClient(s, "") + `result = ` + ask)
			require.Equal(t, true, r["ok"], r["error"])
			require.Equal(t, tt.text, r["text"])
		})
	}

	t.Run("in pieces", func(t *testing.T) {
		t.Parallel()
		for body, want := range map[string]string{" \n" + bad: "stream_error", page: "decode", ": hi\n\n": "stream_truncated", ": hi\n\nOK": "stream_truncated"} {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) { write(w, strings.Split(body, "")...) })
			kind, message, _ := failedWith(t, s, "")
			require.Equal(t, want, kind, message)
		}
	})
}

// TestTagsThatVerdictsRestOnAreNotTheUsers: a request that calls itself warmup, or ok, would change what is judged.
func TestTagsThatVerdictsRestOnAreNotTheUsers(t *testing.T) {
	t.Parallel()
	for _, tag := range []string{
		"scenario", "phase", "step", "class", "model", "api", "outcome", "error_type", "cancel_phase", "source", "attempt",
		"turn", "round",
	} {
		want := fmt.Sprintf(`option "tags.%s": got "x", expected another name: this tag is set by the client or the scenario, `+
			`and verdicts rest on it`, tag)
		if tag == "class" {
			want += `; give the request's own field class`
		}
		_, err := newVU(t).run(fmt.Sprintf(`new llm.Client({baseURL: "http://x", tags: {%s: "x"}})`, tag))
		require.ErrorContains(t, err, "llm.Client: "+want)
		_, err = newVU(t).run(fmt.Sprintf(`new llm.Client({baseURL: "http://127.0.0.1:1"}).chat({messages: [], tags: {a: "b", %s: "x"}})`, tag))
		require.ErrorContains(t, err, "llm request: "+want)
		_, err = newVU(t).run(fmt.Sprintf(`new llm.Session(new llm.Client({baseURL: "http://127.0.0.1:1"}), {tags: {%s: "x"}})`, tag))
		require.ErrorContains(t, err, "llm.Session: "+want)
	}
}

// TestValuesThatNoJSONCanCarryAreRefused: sent, they would arrive as {} or as text that nobody wrote.
func TestValuesThatNoJSONCanCarryAreRefused(t *testing.T) {
	t.Parallel()
	const bytesForm = ", expected text: JSON carries no bytes (encoding.b64encode of k6/encoding makes text of them)"
	for request, want := range map[string]string{
		`{messages: [{role: "user", content: new ArrayBuffer(4)}]}`: `llm request: field "messages[0].content": got an ArrayBuffer` + bytesForm,
		`{messages: [{role: "user", content: new Uint8Array(4)}]}`:  `llm request: field "messages[0].content": got a Uint8Array` + bytesForm,
		`{messages: [], extra: {image: new ArrayBuffer(4)}}`:        `llm request: field "extra.image": got an ArrayBuffer` + bytesForm,
		`{messages: [Promise.resolve(1)]}`:                          `llm request: field "messages[0]": got a Promise, expected a value: await it first`,
		`{messages: [new Proxy({}, {})]}`:                           `llm request: field "messages[0]": got a Proxy, expected a plain value`,
		`{messages: [], f: () => 1}`:                                `llm request: field "f": got a function, expected a value that JSON can carry`,
		`{messages: [], temperature: NaN}`:                          `llm request: field "temperature": got NaN, expected a finite number`,
		`{messages: [], class: new ArrayBuffer(4)}`:                 `llm request: option "class": got an ArrayBuffer, expected a string`,
		`{messages: [], tags: {a: new Uint8Array(4)}}`:              `llm request: option "tags.a": got a Uint8Array, expected a string`,
		`{messages: [], dueTime: Promise.resolve(1)}`:               `llm request: option "dueTime": got a Promise, expected a point in time`,
	} {
		_, err := newVU(t).run(`new llm.Client({baseURL: "http://127.0.0.1:1"}).chat(` + request + `)`)
		require.ErrorContains(t, err, want)
	}
	for options, want := range map[string]string{
		`{baseURL: new ArrayBuffer(4)}`:                    `llm.Client: option "baseURL": got an ArrayBuffer, expected a string`,
		`{baseURL: "http://x", model: (() => 1)}`:          `llm.Client: option "model": got a function, expected the name of a model`,
		`{baseURL: "http://x", apiKey: new Uint8Array(4)}`: `llm.Client: option "apiKey": got a Uint8Array, expected a string`,
		`new ArrayBuffer(4)`:                               `llm.Client: got an ArrayBuffer, expected an object of options`,
	} {
		_, err := newVU(t).run("new llm.Client(" + options + ")")
		require.ErrorContains(t, err, want)
	}

	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { write(w, delta("a"), finish, done) })
	v := newVU(t)
	v.must(newClient(s, "") + `result = client.chat({messages: [{role: "user", content: ["a", null, undefined, 1.5, true]}],
		when: new Date(0), ids: new Float32Array([1, 2]), big: 12n})`)
	require.JSONEq(t, `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":["a",null,null,1.5,true]}],
		"when":"1970-01-01T00:00:00Z","ids":[1,2],"big":12}`, s.last().body)
}
