package tokens_test

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/llm/llmtest"
	"github.com/safeqps/xk6-safeqps/llm/tokens"
)

// Against the simulated engine, whose tokenizer and chat template are not ours: found, calibrated, and exact at every
// length.
func TestCalibrateAgainstTheSimulatedEngine(t *testing.T) {
	engine, err := llmtest.NewServer(llmtest.DefaultServerConfig())
	require.NoError(t, err)
	defer engine.Close()
	listener := httptest.NewServer(engine)
	defer listener.Close()

	server := tokens.ServerTokenizer{BaseURL: listener.URL + "/v1", Do: listener.Client().Do}
	server.Family, err = server.Detect(t.Context())
	require.NoError(t, err)
	require.Equal(t, tokens.VLLM, server.Family)

	builder := tokens.NewBuilder()
	filtered, err := builder.SingleTokenWords(t.Context(), server.CountChat)
	require.NoError(t, err)
	require.Equal(t, builder.Words(), filtered.Words())

	calibration, err := tokens.Calibrate(t.Context(), tokens.WordCounter(builder, 1, server.CountChat))
	require.NoError(t, err)
	require.InDelta(t, 1, calibration.PerWord, 1e-6)
	require.Greater(t, calibration.Overhead, 3.0)
	for _, target := range []int{calibration.Min(), 50, 777, 3000} {
		got, err := server.CountChat(t.Context(), builder.Build(9, calibration.Words(target)))
		require.NoError(t, err)
		require.Equal(t, target, got)
	}
}
