package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Make makes a cgroup, if there is none yet, and reports whether it can be killed as a whole: without cgroup.kill (before Linux
// 5.14), or where that may not be written, a cgroup is of no use here.
func Make(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, "cgroup.kill"), os.O_WRONLY, 0)
	if err != nil {
		return errors.Join(err, syscall.Rmdir(dir))
	}
	return f.Close()
}

// Kill ends every process of a cgroup and of those below it, and waits until it is so. It returns fs.ErrNotExist when there is no such
// cgroup. What starts in it later is killed too: the kernel remembers.
func Kill(ctx context.Context, dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0); err != nil {
		return fmt.Errorf("kill cgroup: %w", err)
	}
	for pause := 500 * time.Microsecond; ; pause = min(2*pause, 50*time.Millisecond) {
		events, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
		if err != nil || bytes.Contains(events, []byte("populated 0")) {
			return nil //nolint:nilerr // gone is dead
		}
		if err := sleep(ctx, pause); err != nil {
			return fmt.Errorf("cgroup %s still has processes %v: %w", dir, Pids(dir), err)
		}
	}
}

// Pids are the processes of a cgroup and of those below it, at this moment.
func Pids(dir string) []int {
	var out []int
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // a cgroup that went away holds nothing
		}
		data, _ := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for f := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(f); err == nil {
				out = append(out, pid)
			}
		}
		return nil
	})
	return out
}

// Remove deletes a cgroup that holds no process, and what was made below it, deepest first. One that does not exist is no error.
// The kernel may count the dead for a moment; that is waited for.
func Remove(ctx context.Context, dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("remove cgroup: %w", err)
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := rmdir(ctx, dirs[i]); err != nil {
			return fmt.Errorf("remove cgroup %s: %w", dirs[i], err)
		}
	}
	return nil
}

func rmdir(ctx context.Context, dir string) error {
	for try := 0; ; try++ {
		err := syscall.Rmdir(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, syscall.EBUSY) || try == 100 || sleep(ctx, 2*time.Millisecond) != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
