package app

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"syscall"
)

// listenError says what to do about an address that cannot be had.
func listenError(addr string, err error) error {
	var dns *net.DNSError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s is in use by another program: stop it, or choose another port with --port (0 picks a free one)", addr)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s may not be listened on by this user: choose a port above 1023 with --port", addr)
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.As(err, &dns):
		return fmt.Errorf("%s is no address of this machine: choose one with --host", addr)
	}
	return fmt.Errorf("listen on %s: %w", addr, err)
}
