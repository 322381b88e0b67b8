package ci

import (
	"crypto/rand"
	"encoding/hex"
	"io"

	"github.com/google/uuid"
)

// NewID returns a UUIDv7 (D3): unique, and sortable by time.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

// NewIDFrom is NewID with randomness from r, for simulation.
func NewIDFrom(r io.Reader) string { return uuid.Must(uuid.NewV7FromReader(r)).String() }

// NewAgentID returns scaler-<type>-<8 hex> (SC-24).
func NewAgentID(backendType string) string { return "scaler-" + backendType + "-" + RandomHex(4) }

// RandomHex returns n random bytes in hex.
func RandomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}
