//go:build !linux && !windows && !darwin

package baremetal

import (
	"errors"

	"github.com/kici-go/kici/internal/scaler/backend"
)

func open(backend.Entry, backend.Host, facts) (backend.Backend, error) {
	return nil, errors.New("the bare-metal backend is built for Linux, macOS and Windows")
}
