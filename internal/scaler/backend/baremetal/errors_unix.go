//go:build unix

package baremetal

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Errors of a start that are not the launch's fault: no room now, and a host that fails.
var (
	noCapacity = []error{unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE}
	passing    = []error{unix.ENOSPC, unix.EIO, unix.ETXTBSY, unix.EROFS}
)

// brokenPipe reports whether nobody reads a pipe any more.
func brokenPipe(err error) bool { return errors.Is(err, unix.EPIPE) }

// shared does something with a file that others read and replace.
func shared(fn func() error) error { return fn() }
