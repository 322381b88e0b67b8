//go:build unix

package client

import (
	"errors"
	"syscall"
)

// refused reports whether nobody listens at the address.
func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
