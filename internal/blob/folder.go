package blob

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Folder is an open folder, for whoever works on several of its files: the way to it is walked once. It is not safe for concurrent
// use.
type Folder struct {
	dirs  []*os.Root // from the store's directory, which is not the folder's to close, to the folder itself
	dirty []bool     // by dirs: entries were made that are not durable yet
}

// Folder opens the folder under key, or returns ErrNotFound.
func (s *Store) Folder(key string) (*Folder, error) { return s.walk(key, false) }

// MakeFolder is Folder that makes what is missing of the folder and those above it. They are durable when Sync has been called.
func (s *Store) MakeFolder(key string) (*Folder, error) { return s.walk(key, true) }

func (s *Store) walk(key string, create bool) (*Folder, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	f := &Folder{dirs: []*os.Root{s.root}, dirty: []bool{false}}
	for name := range strings.SplitSeq(key, "/") {
		if err := f.enter(name, create); err != nil {
			f.Close()
			if errors.Is(err, fs.ErrNotExist) {
				err = ErrNotFound
			}
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	return f, nil
}

// enter goes one folder down.
func (f *Folder) enter(name string, create bool) error {
	at := len(f.dirs) - 1
	dir, err := f.dirs[at].OpenRoot(name)
	if create && errors.Is(err, fs.ErrNotExist) {
		if err = f.dirs[at].Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) { // or somebody was faster
			return err
		}
		f.dirty[at] = true
		dir, err = f.dirs[at].OpenRoot(name)
	}
	if err != nil {
		return err
	}
	f.dirs, f.dirty = append(f.dirs, dir), append(f.dirty, false)
	return nil
}

func (f *Folder) dir() *os.Root { return f.dirs[len(f.dirs)-1] }

// Grow opens a file for reading and writing at its end, making it when missing. Its entry is durable when Sync has been called,
// which costs next to nothing behind a sync of the file.
func (f *Folder) Grow(name string) (*os.File, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	file, err := f.dir().OpenFile(name, os.O_RDWR, 0o600)
	if !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	file, err = f.dir().OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		f.dirty[len(f.dirty)-1] = true
	}
	return file, err
}

// Has reports whether there is such a file. It is false also when that cannot be found out.
func (f *Folder) Has(name string) bool {
	if checkName(name) != nil {
		return false
	}
	_, err := f.dir().Stat(name)
	return err == nil
}

// List returns the names and sizes of the objects directly in the folder.
func (f *Folder) List() (map[string]int64, error) { return list(f.dir(), ".") }

// Sync makes the entries durable that were made through f. What failed is tried again by the next call.
func (f *Folder) Sync() error {
	for i, dirty := range f.dirty {
		if !dirty {
			continue
		}
		if err := syncFolder(f.dirs[i], "."); err != nil {
			return err
		}
		f.dirty[i] = false
	}
	return nil
}

// Close lets go of the folder. Open files stay usable.
func (f *Folder) Close() {
	for _, d := range f.dirs[1:] {
		_ = d.Close()
	}
	f.dirs = f.dirs[:1]
}

func checkName(name string) error {
	if strings.Contains(name, "/") {
		return fmt.Errorf("%.80q: %w", name, ErrKey)
	}
	return checkKey(name)
}

func list(root *os.Root, dir string) (map[string]int64, error) {
	entries, err := fs.ReadDir(root.FS(), dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			out[e.Name()] = info.Size()
		}
	}
	return out, nil
}

func syncFolder(root *os.Root, dir string) error {
	d, err := root.Open(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	return nil
}
