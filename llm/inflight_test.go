package llm

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What is in flight is the process's: tagged by request, it would be many series that each show a part of the time.
func TestInFlightCarriesTheRunsTagsAlone(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { write(w, delta("a"), "data: [DONE]\n\n") })
	v := newVU(t)
	v.state.Options.RunTags = map[string]string{"testrun_name": "before"}
	v.must(newClient(s, "") + `result = client.chat({messages: [], class: "short", tags: {n: 1}})`)
	seen := v.seen()["llm_in_flight"]
	require.Equal(t, []float64{1, 0}, values(seen))
	for _, sample := range seen {
		require.Equal(t, map[string]string{"testrun_name": "before"}, sample.Tags.Map())
	}
}

func TestAnExchangeKnowsTheServersDate(t *testing.T) {
	t.Parallel()
	const date = "Fri, 02 Jan 2026 03:04:05 GMT"
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", date)
		write(w, delta("a"), "data: [DONE]\n\n")
	})
	v := newVU(t)
	before := time.Now()
	v.must(newClient(s, "") + `result = client.chat({messages: []})`)
	for _, container := range v.drain() {
		ex, ok := container.(*Exchange)
		if !ok {
			continue
		}
		require.Equal(t, date, ex.Date)
		require.False(t, ex.HeaderAt.Before(ex.Timeline.Sent))
		require.False(t, ex.HeaderAt.After(ex.End))
		require.False(t, ex.Timeline.Sent.Before(before))

		return
	}
	t.Fatal("no exchange")
}
