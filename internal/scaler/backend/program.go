package backend

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// partPrefix begins the name of a copy that is not complete.
const partPrefix = "kici-"

// IsPartOfProgram reports whether a file beside a copied program is a copy that is being made, or that somebody who was killed began.
func IsPartOfProgram(name string) bool { return strings.HasPrefix(name, partPrefix) }

// CopyProgram keeps a copy of an executable that everybody may execute, renewed when the original has changed. Its folder is made with
// the mode when there is none.
func CopyProgram(from, to string, folder fs.FileMode) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if have, err := os.Stat(to); err == nil && have.Size() == info.Size() && have.ModTime().Equal(info.ModTime()) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), folder); err != nil {
		return err
	}
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.CreateTemp(filepath.Dir(to), partPrefix+"*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(dst.Name()) }() // of a copy that came to nothing
	_, err = io.Copy(dst, src)
	if err = errors.Join(err, dst.Chmod(0o755), dst.Close()); err != nil {
		return err
	}
	return errors.Join(os.Chtimes(dst.Name(), info.ModTime(), info.ModTime()), os.Rename(dst.Name(), to))
}
