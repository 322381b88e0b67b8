package blob

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func open(t *testing.T) (*Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "blobs")
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, dir
}

func TestPutGetDelete(t *testing.T) {
	s, _ := open(t)
	for _, body := range []string{"one", "another, longer"} {
		if n, err := s.Put(t.Context(), "a/b/c", strings.NewReader(body)); err != nil || n != int64(len(body)) {
			t.Fatalf("put: %d, %v", n, err)
		}
		f, err := s.Get("a/b/c")
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(f)
		_ = f.Close()
		if string(got) != body {
			t.Errorf("got %q, want %q", got, body)
		}
	}
	if m, err := s.List("a/b"); err != nil || len(m) != 1 || m["c"] != 15 {
		t.Errorf("list: %v, %v", m, err)
	}
	if err := s.Delete("a"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get("a/b/c"); !errors.Is(err, ErrNotFound) {
		t.Errorf("get after delete: %v", err)
	}
	if err := s.Delete("a"); err != nil {
		t.Errorf("second delete: %v", err)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A put that fails leaves the old object and no rubbish.
func TestFailedPutChangesNothing(t *testing.T) {
	s, dir := open(t)
	if _, err := s.Put(t.Context(), "x/k", strings.NewReader("old")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "x/k", io.MultiReader(strings.NewReader("new"), failing{})); err == nil {
		t.Fatal("expected an error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Put(ctx, "x/k", strings.NewReader("new")); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled put: %v", err)
	}
	entries, _ := os.ReadDir(filepath.Join(dir, "x"))
	data, _ := os.ReadFile(filepath.Join(dir, "x", "k"))
	if len(entries) != 1 || string(data) != "old" {
		t.Errorf("%d entries, content %q", len(entries), data)
	}
}

func TestKeysStayInside(t *testing.T) {
	s, dir := open(t)
	outside := filepath.Join(filepath.Dir(dir), "outside")
	if err := os.Mkdir(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"", ".", "..", "../x", "/x", "a//b", "a/../../x", "a\\b", "a\x00b", "link/x", strings.Repeat("k", 600)} {
		if _, err := s.Put(t.Context(), key, strings.NewReader("x")); err == nil {
			t.Errorf("put %q was accepted", key)
		}
		if f, err := s.MakeFolder(key); err == nil {
			f.Close()
			t.Errorf("folder %q was accepted", key)
		}
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 0 {
		t.Errorf("something was written outside: %v", entries)
	}
}

func TestGrowKeepsContent(t *testing.T) {
	s, _ := open(t)
	for i := range 3 {
		folder, err := s.MakeFolder("g/h")
		if err != nil {
			t.Fatal(err)
		}
		f, err := folder.Grow("f")
		if err != nil {
			t.Fatal(err)
		}
		if err := folder.Sync(); err != nil || !folder.Has("f") || folder.Has("e") {
			t.Errorf("sync: %v", err)
		}
		folder.Close()
		if _, err := f.Seek(0, io.SeekEnd); err != nil {
			t.Fatal(err)
		}
		_, _ = f.WriteString("x")
		_ = f.Close()
		if n, _ := s.Size("g/h/f"); n != int64(i+1) {
			t.Errorf("size %d after %d writes", n, i+1)
		}
	}
}

// A folder keeps every name inside itself, and one that is not there is told apart from one that is empty.
func TestFolder(t *testing.T) {
	s, dir := open(t)
	if _, err := s.Folder("a/b"); !errors.Is(err, ErrNotFound) {
		t.Errorf("open a missing folder: %v", err)
	}
	f, err := s.MakeFolder("a/b")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Symlink(filepath.Dir(dir), filepath.Join(dir, "a", "b", "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", ".", "..", "../x", "x/y", "link", "link/x"} {
		if file, err := f.Grow(name); err == nil {
			_ = file.Close()
			t.Errorf("grow %q was accepted", name)
		}
	}
	if names, err := f.List(); err != nil || len(names) != 0 {
		t.Errorf("list: %v, %v", names, err)
	}
	if again, err := s.Folder("a/b"); err != nil {
		t.Error(err)
	} else {
		again.Close()
	}
}
