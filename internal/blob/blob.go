// Package blob keeps files under keys: whole objects that appear at once or not at all, and files that only grow. What
// it acknowledges is on the disk. Keys are relative slash paths; os.Root keeps every one of them, and every symlink that
// somebody may have planted, inside the store's directory.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/kici-go/kici/internal/ci"
)

// The errors that callers tell apart.
var (
	ErrNotFound = fmt.Errorf("no such object: %w", fs.ErrNotExist)
	ErrKey      = errors.New("invalid object key")
)

const maxKeyBytes = 512

// Store is a directory of objects. It is safe for concurrent use.
type Store struct{ root *os.Root }

// Open opens the store in dir, which is made when missing.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open blob store: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open blob store: %w", err)
	}
	return &Store{root: root}, nil
}

// Close releases the directory. Open files stay usable.
func (s *Store) Close() error { return s.root.Close() }

// Put stores all of r under key and returns its size. Readers see the old object or the new one, never a part; when Put
// returns nil the object survives a power cut.
func (s *Store) Put(ctx context.Context, key string, r io.Reader) (n int64, err error) {
	if err := checkKey(key); err != nil {
		return 0, err
	}
	made, err := s.mkdirs(path.Dir(key))
	if err != nil {
		return 0, fmt.Errorf("put %s: %w", key, err)
	}
	tmp := path.Join(path.Dir(key), ".tmp-"+ci.RandomHex(8))
	f, err := s.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, fmt.Errorf("put %s: %w", key, err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = s.root.Remove(tmp)
		}
	}()
	if n, err = io.Copy(f, ctxReader{ctx, r}); err != nil {
		return n, fmt.Errorf("put %s: %w", key, err)
	}
	if err = errors.Join(f.Sync(), f.Close()); err != nil {
		return n, fmt.Errorf("put %s: %w", key, err)
	}
	if err = s.root.Rename(tmp, key); err != nil {
		return n, fmt.Errorf("put %s: %w", key, err)
	}
	return n, s.syncFolders(append(made, path.Dir(key)))
}

// Get opens the object under key, or returns ErrNotFound.
func (s *Store) Get(key string) (*os.File, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	f, err := s.root.Open(key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", key, ErrNotFound)
	}
	return f, err
}

// Size returns the size of the object under key, or ErrNotFound.
func (s *Store) Size(key string) (int64, error) {
	if err := checkKey(key); err != nil {
		return 0, err
	}
	info, err := s.root.Stat(key)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("%s: %w", key, ErrNotFound)
	} else if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// List returns the names and sizes of the objects directly under the folder key; a missing folder is empty.
func (s *Store) List(key string) (map[string]int64, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	return list(s.root, key)
}

// Delete removes the object or the whole folder under key. Nothing there is not an error.
func (s *Store) Delete(key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return s.root.RemoveAll(key)
}

// mkdirs makes dir and returns the folders whose entries changed, so that they can be synced. It begins at the end, because most of
// the folders are there.
func (s *Store) mkdirs(dir string) (changed []string, err error) {
	if dir == "." {
		return nil, nil
	}
	err = s.root.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if changed, err = s.mkdirs(path.Dir(dir)); err != nil {
			return nil, err
		}
		err = s.root.Mkdir(dir, 0o700)
	}
	switch {
	case errors.Is(err, fs.ErrExist): // or somebody was faster
		return changed, nil
	case err != nil:
		return nil, err
	}
	return append(changed, path.Dir(dir)), nil
}

func (s *Store) syncFolders(dirs []string) error {
	for _, dir := range dirs {
		if err := syncFolder(s.root, dir); err != nil {
			return err
		}
	}
	return nil
}

func checkKey(key string) error {
	if !fs.ValidPath(key) || key == "." || len(key) > maxKeyBytes || strings.ContainsAny(key, "\\\x00") {
		return fmt.Errorf("%.80q: %w", key, ErrKey)
	}
	return nil
}

// ctxReader ends a long copy when its request has ended.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
