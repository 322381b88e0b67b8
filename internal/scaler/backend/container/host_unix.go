//go:build unix

package container

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func getenv(name string) string { return os.Getenv(name) }

func usable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("%s is no socket", path)
	}
	if err := unix.Access(path, unix.R_OK|unix.W_OK); err != nil {
		return fmt.Errorf("this user may not use %s: %w", path, err)
	}
	return nil
}
