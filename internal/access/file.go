package access

import (
	"errors"
	"os"
	"path/filepath"
)

// writeTokenFile puts the token into a file of mode 0600 that is whole and on disk, or not there.
func writeTokenFile(path, token string) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // made 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // does nothing after the rename
	_, err = f.WriteString(token + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	if dir, err := os.Open(filepath.Dir(path)); err == nil {
		_ = dir.Sync() // not everywhere possible
		_ = dir.Close()
	}
	return nil
}
