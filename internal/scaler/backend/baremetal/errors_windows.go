package baremetal

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

// Errors of a start that are not the launch's fault: no room now, and a host that fails.
var (
	noCapacity = []error{windows.ERROR_NOT_ENOUGH_MEMORY, windows.ERROR_NO_SYSTEM_RESOURCES, windows.ERROR_COMMITMENT_LIMIT, windows.ERROR_TOO_MANY_OPEN_FILES}
	passing    = []error{windows.ERROR_DISK_FULL, windows.ERROR_IO_DEVICE, windows.ERROR_SHARING_VIOLATION}
)

// brokenPipe reports whether nobody reads a pipe any more.
func brokenPipe(err error) bool {
	return errors.Is(err, windows.ERROR_BROKEN_PIPE) || errors.Is(err, windows.ERROR_NO_DATA)
}

// sharePatience is how long a file may be in use by somebody else.
const sharePatience = 2 * time.Second

// shared does something with a file that others read and replace. Windows refuses both while the other is at it, which takes a moment.
func shared(fn func() error) error {
	for end := time.Now().Add(sharePatience); ; time.Sleep(5 * time.Millisecond) {
		err := fn()
		inUse := errors.Is(err, windows.ERROR_ACCESS_DENIED) || errors.Is(err, windows.ERROR_SHARING_VIOLATION)
		if !inUse || time.Now().After(end) {
			return err
		}
	}
}

// makeWorkRoot makes the folder that holds workspaces; who may use it is what its parent says.
func makeWorkRoot(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("make work folder: %w", err)
	}
	return nil
}

// reaches is never asked: there is no runAs on Windows.
func (a *account) reaches(string) bool { return true }
