package ci

import (
	"crypto/rand"
	"encoding/hex"

	"github.com/google/uuid"
)

// NewID returns a UUIDv7 (D3): unique, and sortable by time.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

// RandomHex returns n random bytes in hex.
func RandomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}
