//go:build linux

package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// mountTmpfs gives the test a file system of its own, where it is root and may mount.
func mountTmpfs(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("SKIPPED: cannot mount a tmpfs here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

func TestXC151DiskFull(t *testing.T) {
	dir := mountTmpfs(t, "3m")
	s := openDir(t, dir)
	if err := addOrg(s, "before"); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	fill(t, ballast)
	var full error
	accepted := 1
	for i := 0; i < 20_000 && full == nil; i++ {
		if full = addOrg(s, fmt.Sprintf("org-%05d-%s", i, strings.Repeat("x", 500))); full == nil {
			accepted++
		}
	}
	if !errors.Is(full, ErrFull) {
		t.Fatalf("a full disk gave %v", full)
	}
	if got := countOrgs(t, s); got != accepted {
		t.Errorf("%d rows, %d were accepted", got, accepted)
	}
	for range 20 { // stays refused, stays readable
		if err := addOrg(s, strings.Repeat("y", 100_000)); !errors.Is(err, ErrFull) {
			t.Errorf("got %v", err)
		}
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := addOrg(s, "after"); err != nil {
		t.Errorf("space is back, writing is not: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if got := countOrgs(t, openDir(t, dir)); got != accepted+1 {
		t.Errorf("%d rows after reopening, want %d", got, accepted+1)
	}
}

// fill leaves no space on the file system.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{64 << 10, 4 << 10} {
		block := make([]byte, size)
		for err == nil {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		err = nil
	}
}

func TestDiskFullAtStart(t *testing.T) {
	dir := mountTmpfs(t, "64k")
	fill(t, filepath.Join(dir, "ballast"))
	_, err := Open(t.Context(), Config{Dir: dir})
	if !errors.Is(err, ErrFull) {
		t.Errorf("got %v", err)
	}
}

func TestReadOnlyDirectory(t *testing.T) {
	dir := mountTmpfs(t, "4m")
	s := openDir(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(filepath.Join(dir, FileName))
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{dir, filepath.Join(dir, "below")} {
		_, err := Open(t.Context(), Config{Dir: target})
		if !errors.Is(err, ErrReadOnly) || !strings.Contains(err.Error(), "--data-dir") || !strings.Contains(err.Error(), target) {
			t.Errorf("%s: %v", target, err)
		}
	}
	if after, _ := os.ReadFile(filepath.Join(dir, FileName)); string(after) != string(before) {
		t.Error("the database was changed")
	}
}
