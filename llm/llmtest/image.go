package llmtest

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/fnv"
	"image"
	_ "image/gif"  // registers the format
	_ "image/jpeg" // registers the format
	_ "image/png"  // registers the format
	"strings"
)

// PatchSize is the side of the square of pixels that is one token of an image. It is Qwen2-VL's: patches of 14 pixels, of
// which 2 × 2 are merged (https://arxiv.org/abs/2409.12191, section 2.1).
const PatchSize = 28

// maxImageSide bounds an image, as services do.
const maxImageSide = 16384

// ImageTokens is the number of tokens of an image of so many pixels: one for each started square of PatchSize.
func ImageTokens(width, height int) int {
	return ceilDiv(width, PatchSize) * ceilDiv(height, PatchSize)
}

// imageFromURL reads an image from a data URL. Others are refused: this server fetches nothing.
func imageFromURL(url string) ([]piece, error) {
	head, data, ok := strings.Cut(url, ",")
	if !ok || !strings.HasPrefix(head, "data:image/") || !strings.HasSuffix(head, ";base64") {
		return nil, errors.New("image: expected a URL that begins with data:image/…;base64, since this server fetches nothing")
	}
	return imageFromBase64(data)
}

// imageFromBase64 turns an image into tokens: their number is that of its patches, and what they are is a function of the
// image's bytes, so that an image that comes again is found in the prefix cache.
func imageFromBase64(data string) ([]piece, error) {
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	size, _, err := image.DecodeConfig(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("image: expected PNG, JPEG or GIF: %w", err)
	}
	if size.Width < 1 || size.Height < 1 || size.Width > maxImageSide || size.Height > maxImageSide {
		return nil, fmt.Errorf("image: got %d×%d pixels, expected 1 to %d a side", size.Width, size.Height, maxImageSide)
	}
	h := fnv.New64a()
	_, _ = h.Write(raw) // a hash never fails
	content := h.Sum64()
	tokens := make([]uint32, ImageTokens(size.Width, size.Height))
	for i := range tokens {
		part := mix64(content + uint64(i))                                        //nolint:gosec // an index
		tokens[i] = firstTextToken + uint32(part%uint64(tokenIDs-firstTextToken)) //nolint:gosec // below tokenIDs
	}
	return []piece{{image: tokens}}, nil
}
