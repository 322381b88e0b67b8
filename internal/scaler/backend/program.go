package backend

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// partPrefix begins the name of a copy that is not complete.
const partPrefix = "kici-"

// partAge is how old such a copy is when nobody makes it any more.
const partAge = time.Hour

// CollectParts removes from a folder of CopyProgram what somebody who was killed has left of a copy.
func CollectParts(folder string, now time.Time) (out []Collected, err error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		info, ierr := e.Info()
		if ierr != nil || !info.Mode().IsRegular() || !strings.HasPrefix(e.Name(), partPrefix) || now.Sub(info.ModTime()) < partAge {
			continue
		}
		path := filepath.Join(folder, e.Name())
		if rerr := os.Remove(path); rerr != nil {
			err = errors.Join(err, rerr)
			continue
		}
		out = append(out, Collected{Kind: CollectedProgram, Name: path, Bytes: info.Size(), Why: "an interrupted copy of the agent's program"})
	}
	return out, err
}

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
	dst, err := writeProgram(src, filepath.Dir(to))
	if dst == "" {
		return err
	}
	defer func() { _ = os.Remove(dst) }() // of a copy that came to nothing
	if err != nil {
		return err
	}
	return errors.Join(os.Chtimes(dst, info.ModTime(), info.ModTime()), os.Rename(dst, to))
}

// writeProgram copies a program into a new file of a folder. No process is started from here meanwhile: it would have the file open for
// writing until it has become what it is to be, and a file that anybody can write cannot be executed.
func writeProgram(src io.Reader, folder string) (path string, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	dst, err := os.CreateTemp(folder, partPrefix+"*")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(dst, src)
	return dst.Name(), errors.Join(err, dst.Chmod(0o755), dst.Close())
}
