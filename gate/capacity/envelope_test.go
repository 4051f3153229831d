package capacity

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEnvelope(t *testing.T) {
	e := NewEnvelope(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), map[string]string{"model": "8b", "gpu": "H100 | SXM"})
	e.Labels = []string{"synthetic prompts"}
	found := search(t, wide(), ideal{limit: 20, capacity: 22, slope: 10}.probe)
	found.OutputTokensPerSecond = ptr(812.0)
	found.Knee, found.Margin = &Knee{Rate: 25}, ptr(0.22)
	above := search(t, wide(), ideal{limit: 5000, capacity: 6000, slope: 10}.probe)
	k := 0.25
	e.Entries = []EnvelopeEntry{
		{Workload: "chat", Arrivals: Arrivals(1), Burstiness: ptr(1.0), Result: found},
		{Workload: "chat", Arrivals: Arrivals(k), Burstiness: &k, Result: above},
		{Workload: "none", Arrivals: Arrivals(math.Inf(1)), Result: search(t, wide(), ideal{limit: 0.1, capacity: 1}.probe)},
	}
	text := strings.Split(e.Text(), "\n")
	require.Regexp(t, `^workload +arrivals +Safe QPS +output tok/s`, text[0])
	require.Regexp(t, `^chat +Poisson +19\.\d+ +812 +ttft_p95 +25 +22 % +\d +found$`, text[1])
	require.Regexp(t, `^chat +bursty \(k = 0.25\) +≥ 1000 +- +- +- +- +\d +above range$`, text[2])
	require.Regexp(t, `^none +constant +- +- +ttft_p95 +`, text[3])
	require.Equal(t, []string{"measured 2026-03-01T12:00:00Z", "gpu: H100 | SXM", "model: 8b", "synthetic prompts", ""}, text[4:])
	markdown := e.Markdown()
	require.Contains(t, markdown, "| --- | --- |")
	require.Contains(t, markdown, "| chat | Poisson | 19")
	require.Contains(t, markdown, "\n- model: 8b\n")

	content, err := e.JSON()
	require.NoError(t, err)
	back, err := ReadEnvelope(content)
	require.NoError(t, err)
	require.Equal(t, e, back)
	_, err = ReadEnvelope([]byte(`{"schema":"x"}`))
	require.ErrorContains(t, err, `schema is "x"`)
	require.Equal(t, "smooth (k = 4)", Arrivals(4))
}
