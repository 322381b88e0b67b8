//go:build linux || windows || darwin

package baremetal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/kici-go/kici/internal/scaler/backend"
)

// defaultGrace is how long an agent has between SIGTERM and SIGKILL (BM-15).
const defaultGrace = 5 * time.Second

// killPatience is how long the kernel gets to carry out SIGKILL.
const killPatience = 5 * time.Second

// Delete implements backend.Backend.
func (b *Backend) Delete(ctx context.Context, ref backend.Ref) error {
	if !agentID().MatchString(ref.AgentID) {
		return fmt.Errorf("agent id %q: %w", ref.AgentID, backend.ErrNotFound)
	}
	defer b.lock(ref.AgentID)()
	r, onDisk, err := readRecord(b.dir(ref.AgentID))
	if err != nil {
		b.log.Warn("agent record", "agent_id", ref.AgentID, "err", err) // the ledger's copy must do
		onDisk = true
	}
	if !onDisk || err != nil {
		r = b.fromLedger(ref)
	}
	grace := ref.Grace
	if grace == 0 {
		grace = defaultGrace
	}
	found, err := b.end(ctx, ref.AgentID, r, grace)
	if err != nil {
		return fmt.Errorf("end agent %s: %w", ref.AgentID, err)
	}
	if !found && !onDisk {
		return fmt.Errorf("agent %s: %w", ref.AgentID, backend.ErrNotFound)
	}
	return nil
}

// fromLedger takes from agents.launch what proves an identity; paths are computed again, so that no row can name others.
func (b *Backend) fromLedger(ref backend.Ref) record {
	r := b.plan(ref.AgentID)
	var known record
	if len(ref.Launch) > 0 && json.Unmarshal(ref.Launch, &known) == nil {
		r.Pid, r.Start, r.Boot = known.Pid, known.Start, known.Boot
		b.knownSystem(ref.AgentID, known, &r)
	}
	return r
}

// end ends an agent and removes everything of it. found says that there was something.
func (b *Backend) end(ctx context.Context, id string, r record, grace time.Duration) (found bool, err error) {
	if p := b.find(id, r); p != nil && !p.gone() {
		found = true
		if err := b.terminate(ctx, p, r, grace); err != nil {
			return true, err
		}
	}
	left, err := b.endLeft(ctx, id, r)
	found = found || left
	if err != nil {
		return found, err
	}
	for _, path := range []string{r.Work, halfMade(b.dir(id)), b.dir(id)} { // the record last: it is the evidence
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		found = true
		if err := removeTree(path); err != nil {
			return true, fmt.Errorf("remove directory: %w", err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.watched[id]; p != nil {
		p.close()
		delete(b.watched, id)
	}
	return found, nil
}
