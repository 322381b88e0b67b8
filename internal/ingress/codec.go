package ingress

import (
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// Bodies above compressAbove are stored compressed (D27).
const (
	compressAbove = 4 << 10
	encodingZstd  = "zstd"
	maxDecoded    = 64 << 20
)

// codec compresses stored bodies. It is safe for concurrent use.
type codec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

func newCodec() *codec {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err) // the options above are constants
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxDecoded), zstd.WithDecoderConcurrency(2), zstd.WithDecoderLowmem(true))
	if err != nil {
		panic(err)
	}
	return &codec{enc: enc, dec: dec}
}

// pack returns the stored form of a body and its encoding.
func (c *codec) pack(body []byte) ([]byte, string) {
	if len(body) <= compressAbove {
		if body == nil {
			body = []byte{}
		}
		return body, ""
	}
	packed := c.enc.EncodeAll(body, nil)
	if len(packed) >= len(body) {
		return body, ""
	}
	return packed, encodingZstd
}

// unpack is the reverse of pack.
func (c *codec) unpack(stored []byte, encoding string) ([]byte, error) {
	switch encoding {
	case "":
		return stored, nil
	case encodingZstd:
		body, err := c.dec.DecodeAll(stored, nil)
		if err != nil {
			return nil, fmt.Errorf("decompress body: %w", err)
		}
		return body, nil
	}
	return nil, fmt.Errorf("body has unknown encoding %q", encoding)
}
