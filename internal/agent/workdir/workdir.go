// Package workdir is where jobs live on the disk: <root>/<owner>/, with a file "owner" that says which process it belongs to,
// and a directory for each job. What a dead owner left there, processes included, is found and ended by the next one.
package workdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kici-go/kici/internal/agent/exec"
	"github.com/kici-go/kici/internal/agent/stepcall"
)

// Dir is one owner's directory. Its methods are safe for concurrent use.
type Dir struct {
	root, path string
	log        *slog.Logger

	mu   sync.Mutex
	left map[string]bool // what could not be removed: it is tried again before the next job
}

const (
	ownerFile    = "owner"
	stateFile    = "exec.json"
	sweepTimeout = 20 * time.Second
)

// Open makes the directory of the owner called id, which is this process, and clears away what dead owners left beside it.
func Open(root, id string, log *slog.Logger) (*Dir, error) {
	w := &Dir{root: root, path: filepath.Join(root, id), log: log}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("make the work directory: %w", err)
	}
	if err := Owned(root); err != nil {
		return nil, err
	}
	w.sweep()
	if err := os.MkdirAll(w.path, 0o700); err != nil {
		return nil, fmt.Errorf("make the work directory: %w", err)
	}
	owner := fmt.Sprintf("%d %d\n", os.Getpid(), exec.StartTime(os.Getpid()))
	if err := os.WriteFile(filepath.Join(w.path, ownerFile), []byte(owner), 0o600); err != nil {
		return nil, fmt.Errorf("make the work directory: %w", err)
	}
	return w, nil
}

// Path is the owner's directory.
func (w *Dir) Path() string { return w.path }

// Job makes a job's private directory, empty but for its spool.
func (w *Dir) Job(jobID string, attempt int) (string, error) {
	dir := filepath.Join(w.path, CleanID(jobID)+"-"+strconv.Itoa(attempt))
	w.again()
	if err := w.Remove(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Join(dir, "spool"), 0o700); err != nil {
		return "", fmt.Errorf("make the job's directory: %w", err)
	}
	return dir, nil
}

// Close removes the owner's directory.
func (w *Dir) Close() {
	if err := w.Remove(w.path); err != nil {
		w.log.Warn("remove the work directory", "err", err)
	}
}

// Remove deletes a tree, also one with read-only directories as module caches have them.
func (w *Dir) Remove(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	if err = os.RemoveAll(dir); err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.left == nil {
			w.left = map[string]bool{}
		}
		w.left[dir] = true
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}

// again removes what could not be removed before: something held it, or has been mended since. An agent that runs for months must not
// fill its disk with what jobs left.
func (w *Dir) again() {
	w.mu.Lock()
	left := w.left
	w.left = nil
	w.mu.Unlock()
	for dir := range left {
		if err := w.Remove(dir); err != nil {
			w.log.Warn("a job's directory still cannot be removed: it fills the disk", "dir", dir, "err", err)
		} else {
			w.log.Info("removed a job's directory that could not be removed before", "dir", dir)
		}
	}
}

// sweep ends and removes what owners of this root left whose process is gone.
func (w *Dir) sweep() {
	entries, err := os.ReadDir(w.root)
	if err != nil {
		return
	}
	for _, e := range entries {
		dir := filepath.Join(w.root, e.Name())
		if !e.IsDir() || !abandoned(dir) {
			continue
		}
		if err := w.clear(dir); err != nil {
			w.log.Warn("clear away what a dead owner left", "dir", dir, "err", err)
			continue
		}
		w.log.Info("cleared away what a dead owner left", "dir", dir)
	}
}

func (w *Dir) clear(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), sweepTimeout)
	defer cancel()
	states, err := filepath.Glob(filepath.Join(dir, "*", stateFile))
	if err != nil {
		return err
	}
	for _, s := range states {
		if err := exec.CleanUp(ctx, s); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	jobs, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, j := range jobs {
		stepcall.ClearShort(j)
	}
	return w.Remove(dir)
}

// Clear ends the processes of the jobs in a directory whose owner is dead, and removes it. It refuses while the owner lives;
// where a process's life cannot be looked up, the caller must know.
func Clear(dir string, log *slog.Logger) error {
	pid, start, ok := owner(dir)
	switch {
	case !ok:
		return fmt.Errorf("clear %s: nobody's name is in it", dir)
	case start != 0 && exec.StartTime(pid) == start:
		return fmt.Errorf("clear %s: its owner is alive (pid %d)", dir, pid)
	}
	return (&Dir{root: filepath.Dir(dir), path: dir, log: log}).clear(dir)
}

// owner reads who a directory belongs to.
func owner(dir string) (pid int, start uint64, ok bool) {
	data, err := os.ReadFile(filepath.Join(dir, ownerFile))
	if err != nil {
		return 0, 0, false
	}
	pidText, startText, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
	pid, err1 := strconv.Atoi(pidText)
	start, err2 := strconv.ParseUint(startText, 10, 64)
	return pid, start, err1 == nil && err2 == nil
}

// abandoned reports whether the directory's owner is dead. Where that cannot be known it is not.
func abandoned(dir string) bool {
	pid, start, ok := owner(dir)
	return ok && start != 0 && exec.StartTime(pid) != start
}

// CleanID keeps what an owner's or a job's name may hold in a path.
func CleanID(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-', r == '_':
			return r
		}
		return -1
	}, s)
	return s[:min(len(s), 100)]
}
