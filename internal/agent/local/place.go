package local

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/kici-go/kici/internal/agent/exec"
	"github.com/kici-go/kici/internal/agent/workdir"
	"github.com/kici-go/kici/internal/ci"
)

// Place is where a run is on the disk, and the guard that clears it away should this process be killed.
type Place struct {
	Work  *workdir.Dir
	guard *exec.Guard
}

// OpenPlace makes the place below the system's temporary directory, and clears away what earlier runs left whose process is
// gone. guard is the command that runs Guard in a process of its own, to which the directory is appended; nil for none.
func OpenPlace(guard []string, log *slog.Logger) (*Place, error) {
	root := filepath.Join(os.TempDir(), fmt.Sprintf("kici-local-%d", os.Getuid()))
	work, err := workdir.Open(root, "run-"+ci.RandomHex(6), log)
	if err != nil {
		return nil, err
	}
	p := &Place{Work: work}
	if len(guard) == 0 {
		return p, nil
	}
	p.guard, err = exec.StartGuard(append(guard[:len(guard):len(guard)], work.Path()))
	if err != nil { // the next run clears away what a killed one leaves
		log.Warn("nobody will clear away if this process is killed", "err", err)
	}
	return p, nil
}

// Close removes the place and lets the guard go.
func (p *Place) Close() {
	p.Work.Close()
	if p.guard != nil {
		p.guard.Release()
	}
}

// Guard waits until the process that holds in is gone, then ends what it left running in dir and removes it.
func Guard(dir string, in io.Reader, log *slog.Logger) error {
	_, _ = io.Copy(io.Discard, in)
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return workdir.Clear(dir, log)
}
