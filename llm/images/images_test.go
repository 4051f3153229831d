package images

import (
	"bytes"
	"image/png"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnImageIsAFunctionOfItsSizeAndSeed(t *testing.T) {
	t.Parallel()
	one, err := PNG(300, 200, 7)
	require.NoError(t, err)
	again, err := PNG(300, 200, 7)
	require.NoError(t, err)
	require.Equal(t, one, again)
	other, err := PNG(300, 200, 8)
	require.NoError(t, err)
	require.NotEqual(t, one, other)

	decoded, err := png.Decode(bytes.NewReader(one))
	require.NoError(t, err)
	require.Equal(t, 300, decoded.Bounds().Dx())
	require.Equal(t, 200, decoded.Bounds().Dy())
	colours := map[any]bool{}
	for x := range 300 {
		for y := range 200 {
			colours[decoded.At(x, y)] = true
			require.Equal(t, decoded.At(x-x%Tile, y-y%Tile), decoded.At(x, y), "a tile has one colour")
		}
	}
	require.Greater(t, len(colours), 200, "it is no plain area")
}

func TestSizesOfImages(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{1, 1}, {MaxSide, 1}, {7, 9}} {
		data, err := PNG(size[0], size[1], 0)
		require.NoError(t, err)
		config, err := png.DecodeConfig(bytes.NewReader(data))
		require.NoError(t, err)
		require.Equal(t, size, [2]int{config.Width, config.Height})
	}
	for _, size := range [][2]int{{0, 1}, {1, -1}, {MaxSide + 1, 1}} {
		_, err := PNG(size[0], size[1], 0)
		require.ErrorContains(t, err, "expected 1 to 8192")
	}
}

func TestDataURL(t *testing.T) {
	t.Parallel()
	require.Equal(t, "data:image/png;base64,AQI=", DataURL([]byte{1, 2}))
}

func BenchmarkPNG1024(b *testing.B) {
	for b.Loop() {
		data, err := PNG(1024, 1024, uint64(b.N)) //nolint:gosec // not negative
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(data)), "bytes")
	}
}
