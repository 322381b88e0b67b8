package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/kici-go/kici/internal/cli/scalercmd"
	"github.com/kici-go/kici/internal/cluster"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/scaler"
	"github.com/kici-go/kici/internal/scaler/backend"
)

// reapTimeout bounds the end of one agent.
const reapTimeout = time.Minute

// reapOrphans lists and ends what the scalers of a data directory have left on this machine, without its server and its database (OP-1).
// Whether the server runs is told by its lock of the directory, which it has from before its first agent until its end.
func reapOrphans(ctx context.Context, r scalercmd.Reap) (out scalercmd.Reaped, err error) {
	dir := cmp.Or(r.DataDir, os.Getenv("KICI_DATA_DIR"), existingDataDir())
	if _, err := os.Stat(dir); err != nil {
		return out, fmt.Errorf("data directory: %w", err)
	}
	data, err := cluster.OpenDataDir(dir)
	if errors.Is(err, cluster.ErrLocked) {
		out.Skipped, out.Reason = true, "orchestrator-healthy"
		return out, nil
	}
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	file := scalerPath(cmp.Or(r.Config, os.Getenv("KICI_SCALER_CONFIG_PATH")), data.Path())
	config, problems := scaler.LoadConfig(file, scaler.LoadOptions{Dir: os.Getenv("KICI_SCALER_CONFIG_DIR"), Kinds: backendKinds()})
	if err := scaler.Errors(problems); err != nil {
		return out, fmt.Errorf("the scaler configuration is not valid:\n%w", err)
	}
	log, err := obs.NewLogger(os.Stderr, obs.LogOptions{Format: "text", Level: "error"})
	if err != nil {
		return out, err
	}
	host := backend.Host{NodeID: data.InstanceID(), Dir: data.Path(), Environ: os.Environ(), Log: log, Now: time.Now}
	var errs []error
	for i := range config.Scalers {
		if err := reapScaler(ctx, &config.Scalers[i], host, r.DryRun, &out); err != nil {
			errs = append(errs, fmt.Errorf("scaler %s: %w", config.Scalers[i].Name, err))
		}
	}
	return out, errors.Join(errs...)
}

func reapScaler(ctx context.Context, e *scaler.Entry, host backend.Host, dryRun bool, out *scalercmd.Reaped) (err error) {
	for _, kind := range backendKinds() {
		if kind.Type != e.Type {
			continue
		}
		b, err := kind.New(e.Backend(), host)
		if err != nil {
			return err
		}
		if c, ok := b.(backend.Closer); ok {
			defer func() { err = errors.Join(err, c.Close()) }()
		}
		things, err := b.List(ctx)
		if err != nil {
			return err
		}
		var errs []error
		for _, t := range things {
			o := scalercmd.Orphan{Scaler: e.Name, Type: e.Type, Agent: t.AgentID, Running: t.Running, Detail: t.Detail}
			for _, kind := range t.Holds {
				o.Holds = append(o.Holds, string(kind))
			}
			if !dryRun {
				if err := reapOne(ctx, b, t); err != nil {
					o.Error = err.Error()
					errs = append(errs, fmt.Errorf("agent %s: %w", t.AgentID, err))
				}
			}
			out.Orphans = append(out.Orphans, o)
		}
		if s, ok := b.(backend.Sweeper); ok && !dryRun && len(errs) == 0 {
			errs = append(errs, s.Sweep(ctx))
		}
		return errors.Join(errs...)
	}
	return nil
}

// reapOne repeats the end of an agent until nothing of it is left.
func reapOne(ctx context.Context, b backend.Backend, t backend.Instance) error {
	ctx, cancel := context.WithTimeout(ctx, reapTimeout)
	defer cancel()
	for {
		err := b.Delete(ctx, backend.Ref{AgentID: t.AgentID, Launch: t.Launch, Reason: "reaped"})
		switch {
		case err == nil, errors.Is(err, backend.ErrNotFound):
			return nil
		case ctx.Err() != nil:
			return err
		}
		pause := time.NewTimer(time.Second)
		select {
		case <-ctx.Done():
			pause.Stop()
			return err
		case <-pause.C:
		}
	}
}
