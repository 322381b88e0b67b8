//go:build linux || windows || darwin

package baremetal

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/kici-go/kici/internal/scaler/backend"
)

// Prepare implements backend.Preparer: folders, an agent executable that the agents' user can reach, what a sandbox
// is worth here, and how limits are enforced.
func (b *Backend) Prepare(ctx context.Context) error {
	if b.entry.Retiring {
		return nil
	}
	if err := b.prepareProgram(); err != nil {
		return err
	}
	if err := b.prepareSandbox(ctx); err != nil {
		return err
	}
	return b.prepareLimits(ctx)
}

func (b *Backend) prepareProgram() error {
	if b.work != "" {
		if err := makeWorkRoot(b.work); err != nil {
			return err
		}
	}
	for _, s := range b.entry.Sets {
		if path := s.Options.String(keyBinary); path != "" {
			if err := realFacts().program(path); err != nil {
				return err
			}
			if b.user != nil && !b.user.reaches(path) {
				return fmt.Errorf("user %s cannot reach %s", b.user.name, path)
			}
		}
	}
	if b.user == nil || b.user.reaches(b.host.Binary) {
		return nil
	}
	path := filepath.Join(b.work, programFolder, "kici")
	if err := backend.CopyProgram(b.host.Binary, path, 0o711); err != nil {
		return fmt.Errorf("copy the agent executable to where %s can reach it: %w", b.user.name, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.program = path
	return nil
}

var (
	_ backend.Backend  = (*Backend)(nil)
	_ backend.Preparer = (*Backend)(nil)
	_ backend.Watcher  = (*Backend)(nil)
	_ backend.Closer   = (*Backend)(nil)
	_ backend.Reloader = (*Backend)(nil)
)
