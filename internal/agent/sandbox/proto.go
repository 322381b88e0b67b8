package sandbox

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Frames between a box and its agent: four bytes of length, then JSON. Descriptors travel with the first byte of a frame.

// maxFrame bounds a frame: an environment and arguments have at most 2 MiB on Linux, some more as JSON.
const maxFrame = 16 << 20

// greeting is what a box says first: its report, or why there is none.
type greeting struct {
	Report Report `json:"report"`
	Error  string `json:"error,omitempty"`
}

// answer is what a box says of a process: that it runs, or why it does not; then how it ended.
type answer struct {
	Started bool   `json:"started,omitempty"`
	Error   string `json:"error,omitempty"`
	Missing bool   `json:"missing,omitempty"` // Error says that the program is not there
	Exit    *Exit  `json:"exit,omitempty"`
}

var errFrame = errors.New("a frame is too large")

func encode(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(body) > maxFrame {
		return nil, errFrame
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...), nil
}

func writeFrame(w io.Writer, v any) error {
	data, err := encode(v)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// readFrame reads a frame of at most limit bytes.
func readFrame(r io.Reader, limit uint32, into any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > limit {
		return fmt.Errorf("%w: %d bytes", errFrame, n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}
