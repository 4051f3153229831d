package headroom_test

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/headroom"
)

func TestReading(t *testing.T) {
	t.Parallel()
	m, err := headroom.NewMeter()
	require.NoError(t, err)
	before := m.Read()
	for name, v := range map[string]*float64{"memory": before.Memory, "open files": before.OpenFiles} {
		require.NotNil(t, v, name)
		require.Greater(t, *v, 0.0, name)
		require.Less(t, *v, 1.0, name)
	}
	var held []*os.File
	for range 50 {
		f, err := os.Open(os.DevNull)
		require.NoError(t, err)
		held = append(held, f)
	}
	after := m.Read()
	require.Greater(t, *after.OpenFiles, *before.OpenFiles)
	require.NotNil(t, after.CPU)
	require.GreaterOrEqual(t, *after.CPU, 0.0)
	for _, f := range held {
		require.NoError(t, f.Close())
	}
}

func TestTimersAreNeverEarly(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	w := headroom.WatchTimers(ctx)
	for seen := 0; seen < 3; {
		for _, late := range w.Take() {
			require.GreaterOrEqual(t, int64(late), int64(0))
			seen++
		}
	}
	cancel()
	w.Wait()
}
