//go:build windows || darwin

package baremetal

import (
	"context"
	"fmt"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/backend"
)

// These systems have nothing that bounds a tree of processes as cgroups do: limits are not enforced, which is said.

func (b *Backend) unready() error { return nil }

func (b *Backend) prepareLimits(context.Context) error { return nil }

func (b *Backend) prepareSandbox(context.Context) error { return nil }

func (b *Backend) hold(context.Context, string, *record, ci.Resources) error { return nil }

func (b *Backend) blame(context.Context, record) string { return "" }

func (b *Backend) orphanUnits(context.Context, map[string]bool) []backend.Instance { return nil }

func (b *Backend) strayLeaves(map[string]bool) map[string]backend.Instance { return nil }

func (b *Backend) examineSystem() ([]string, error) {
	return []string{"limits are not enforced on " + b.goos()}, nil
}

func (b *Backend) planSystem(string, *record) {}

func (b *Backend) knownSystem(string, record, *record) {}

func (b *Backend) makeRoom(string, *record) {}

func (b *Backend) systemSentences() []string {
	return []string{fmt.Sprintf("cpu and memory limits are not enforced on %s: a job can use all of this machine", b.goos())}
}
