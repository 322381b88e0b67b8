package baremetal

import (
	"errors"
	"fmt"
	"os"

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

// makeWorkRoot makes the folder that holds workspaces; who may use it is what its parent says.
func makeWorkRoot(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("make work folder: %w", err)
	}
	return nil
}

// reaches is never asked: there is no runAs on Windows.
func (a *account) reaches(string) bool { return true }
