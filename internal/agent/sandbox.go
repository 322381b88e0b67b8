package agent

import (
	"fmt"
	"path/filepath"

	"github.com/kici-go/kici/internal/agent/sandbox"
)

// trySandbox says at the start what a sandbox is worth here, and ends an agent that has to run jobs in one and cannot. For an agent that a
// scaler started, its node has done so.
func (c *Config) trySandbox(dir string) error {
	if c.Sandbox == nil || c.Managed {
		return nil
	}
	r, err := sandbox.Try(filepath.Join(dir, "sandbox-check"), c.Sandbox.Network, c.Executable)
	if err != nil {
		return fmt.Errorf("KICI_SANDBOX: %w", err)
	}
	c.Log.Info("jobs run in a sandbox", "enforced", r.Enforced, "not", r.Missing)
	return nil
}
