package capacity

import (
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
		{Workload: "chat", Arrivals: "poisson", Burstiness: ptr(1.0), Result: found},
		{Workload: "chat", Arrivals: "bursty", Burstiness: &k, Result: above},
		{Workload: "none", Arrivals: "constant", Result: search(t, wide(), ideal{limit: 0.1, capacity: 1}.probe)},
	}
	content, err := e.JSON()
	require.NoError(t, err)
	back, err := ReadEnvelope(content)
	require.NoError(t, err)
	require.Equal(t, e, back)
	_, err = ReadEnvelope([]byte(`{"schema":"x"}`))
	require.ErrorContains(t, err, `schema is "x"`)
}
