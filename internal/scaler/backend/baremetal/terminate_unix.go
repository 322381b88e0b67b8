//go:build linux || darwin

package baremetal

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// terminate asks a process group to go, then makes it go (BM-15).
func (b *Backend) terminate(ctx context.Context, p *process, r record, grace time.Duration) error {
	if grace > 0 {
		if err := p.signal(unix.SIGTERM); err != nil {
			return fmt.Errorf("terminate process %d: %w", p.pid, err)
		}
		if p.wait(grace, ctx.Done()) {
			return nil
		}
	}
	b.loosen(ctx, r)
	if err := p.signal(unix.SIGKILL); err != nil {
		return fmt.Errorf("kill process %d: %w", p.pid, err)
	}
	if !p.wait(killPatience, nil) {
		return fmt.Errorf("process %d does not die", p.pid)
	}
	return nil
}
