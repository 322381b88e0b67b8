package stepcall

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// linkSelf makes a directory in which "kici" is the given executable: a link, or on Windows, where links need a privilege, a
// command file.
func linkSelf(dir, executable string) (string, error) {
	if executable == "" {
		return "", nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the directory of the kici command: %w", err)
	}
	var err error
	if runtime.GOOS == "windows" {
		err = os.WriteFile(filepath.Join(dir, "kici.cmd"), []byte("@\""+executable+"\" %*\r\n"), 0o600)
	} else {
		err = os.Symlink(executable, filepath.Join(dir, "kici"))
	}
	if err != nil && !os.IsExist(err) {
		return "", fmt.Errorf("link the kici command: %w", err)
	}
	return dir, nil
}
