package baremetal

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/wire"
)

// checkPatience bounds the trial of a sandbox.
const checkPatience = 60 * time.Second

// prepareSandbox finds out what a sandbox can enforce here, by making one as the user that agents run as. Where there can be none at all
// the scaler is not ready.
func (b *Backend) prepareSandbox(ctx context.Context) error {
	if !confines(b.entry) {
		return nil
	}
	network := ci.NetworkIsolated // the most there can be, unless nobody wants it
	if b.entry.Options.String(keyNetwork) == ci.NetworkHost {
		network = ci.NetworkHost
	}
	dir := filepath.Join(b.root, "sandbox-check")
	if b.work != "" {
		dir = filepath.Join(b.work, ".sandbox-check-"+short(b.host.NodeID))
	}
	if err := removeTree(dir); err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	if err := b.makeWork(dir); err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	defer func() { _ = removeTree(dir) }()
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	b.mu.Lock()
	program := b.program
	b.mu.Unlock()
	cmd := exec.CommandContext(ctx, program, wire.SandboxCheck, dir, network)
	cmd.Env, cmd.Dir = []string{"PATH=/usr/bin:/bin"}, "/"
	if b.user != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: b.user.uid, Gid: b.user.gid, Groups: b.user.groups}}
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var r wire.SandboxReport
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err != nil {
		return fmt.Errorf("sandbox: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.boxed == nil {
		b.log.Info("jobs run in a sandbox", "enforced", r.Enforced, "not", r.Missing)
	}
	b.boxed = &r
	return nil
}
