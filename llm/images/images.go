// Package images makes pictures of a given size for requests to models that see. A picture has no meaning. Two seeds give
// two pictures, so that no cache has seen the next one before; the same seed gives the same bytes on every machine with the
// same version of Go.
package images

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
)

const (
	// MaxSide bounds width and height, in pixels.
	MaxSide = 8192
	// Tile is the side of the squares of one colour, in pixels: small enough that a picture does not compress to nothing,
	// large enough that it can be made while a load test runs.
	Tile = 8
)

// PNG is a mosaic of tiles in 256 colours, encoded.
func PNG(width, height int, seed uint64) ([]byte, error) {
	if width < 1 || height < 1 || width > MaxSide || height > MaxSide {
		return nil, fmt.Errorf("an image of %d×%d pixels: expected 1 to %d a side", width, height, MaxSide)
	}
	random := rand.New(rand.NewPCG(seed, uint64(width)<<32|uint64(height))) // #nosec G404 -- must repeat; sizes are positive
	palette := make(color.Palette, 256)
	for i := range palette {
		v := random.Uint32()
		palette[i] = color.RGBA{R: uint8(v), G: uint8(v >> 8), B: uint8(v >> 16), A: 255} // #nosec G115 -- bytes of a number
	}
	img := image.NewPaletted(image.Rect(0, 0, width, height), palette)
	for top := 0; top < height; top += Tile {
		row := img.Pix[top*img.Stride : top*img.Stride+width]
		for left := 0; left < width; left += Tile {
			index := uint8(random.Uint32()) // #nosec G115 -- a byte of a number
			for x := left; x < min(left+Tile, width); x++ {
				row[x] = index
			}
		}
		for y := top + 1; y < min(top+Tile, height); y++ {
			copy(img.Pix[y*img.Stride:y*img.Stride+width], row)
		}
	}
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestSpeed}
	if err := encoder.Encode(&out, img); err != nil {
		return nil, fmt.Errorf("encoding an image: %w", err)
	}

	return out.Bytes(), nil
}

// DataURL is the form in which requests carry an image.
func DataURL(data []byte) string {
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(data)
}
