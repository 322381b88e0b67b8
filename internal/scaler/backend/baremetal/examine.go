//go:build linux || windows || darwin

package baremetal

import (
	"context"
	"fmt"
	"os"

	"github.com/kici-go/kici/internal/scaler/backend"
)

// Examine implements backend.Examiner: the agents' program is there, and what holds and bounds them.
func (b *Backend) Examine(context.Context) ([]string, error) {
	if b.entry.Retiring {
		return nil, nil
	}
	b.mu.Lock()
	program := b.program
	b.mu.Unlock()
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("the agents' program: %w", err)
	}
	who := "the server's user"
	switch {
	case b.user != nil:
		who = b.user.name
	case os.Geteuid() == 0:
		who = "root"
	}
	facts, err := b.examineSystem()
	return append([]string{"agents run as " + who}, facts...), err
}

var _ backend.Examiner = (*Backend)(nil)
