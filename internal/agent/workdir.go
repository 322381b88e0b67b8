package agent

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
	"time"

	"github.com/kici-go/kici/internal/agent/exec"
)

// workDir is <root>/<agent id>/, with a file "owner" that says which process it belongs to, and a directory for each job.
type workDir struct {
	root, path string
	log        *slog.Logger
}

const (
	ownerFile    = "owner"
	stateFile    = "exec.json"
	sweepTimeout = 20 * time.Second
)

// openWorkDir makes the agent's directory and clears away what dead agents left beside it, processes included.
func openWorkDir(root, agentID string, log *slog.Logger) (*workDir, error) {
	w := &workDir{root: root, path: filepath.Join(root, agentID), log: log}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("make the work directory: %w", err)
	}
	if err := ownedByUs(root); err != nil {
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

// job makes a job's private directory, empty.
func (w *workDir) job(jobID string, attempt int) (string, error) {
	dir := filepath.Join(w.path, cleanID(jobID)+"-"+strconv.Itoa(attempt))
	if err := w.remove(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Join(dir, "spool"), 0o700); err != nil {
		return "", fmt.Errorf("make the job's directory: %w", err)
	}
	return dir, nil
}

// close removes the agent's directory.
func (w *workDir) close() {
	if err := w.remove(w.path); err != nil {
		w.log.Warn("remove the work directory", "err", err)
	}
}

// remove deletes a tree, also one with read-only directories as module caches have them.
func (w *workDir) remove(dir string) error {
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
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}

// sweep ends and removes what agents of this directory left whose process is gone.
func (w *workDir) sweep() {
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
			w.log.Warn("clear away what a dead agent left", "dir", dir, "err", err)
			continue
		}
		w.log.Info("cleared away what a dead agent left", "dir", dir)
	}
}

func (w *workDir) clear(dir string) error {
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
	return w.remove(dir)
}

// abandoned reports whether the directory's agent is dead. Where that cannot be known it is not.
func abandoned(dir string) bool {
	data, err := os.ReadFile(filepath.Join(dir, ownerFile))
	if err != nil {
		return false
	}
	pidText, startText, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
	pid, err1 := strconv.Atoi(pidText)
	start, err2 := strconv.ParseUint(startText, 10, 64)
	if err1 != nil || err2 != nil || start == 0 {
		return false
	}
	return exec.StartTime(pid) != start
}
