package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// HeartbeatInterval is how often an instance says that it lives (CLU-7); ci.InstanceTimeout is when others stop believing it.
const (
	HeartbeatInterval = 10 * time.Second
	stopTimeout       = 5 * time.Second
)

// Info is what an instance tells about itself.
type Info struct {
	InstanceID string // of the data directory
	Name       string // host name, for people
	Version    string
	URL        string // where it listens
}

// Instance keeps this process's row of cluster_instances.
type Instance struct {
	st   *store.Store
	info Info
	log  *slog.Logger

	versions func() (settings, registry int64)
}

// NewInstance returns the keeper of one row. Its instants are the store's.
func NewInstance(st *store.Store, info Info, log *slog.Logger) *Instance {
	return &Instance{st: st, info: info, log: log.With("component", "cluster", "instance_id", info.InstanceID)}
}

// Report makes the row say which versions of the settings and of the registry hold here (CLU-27). Call it before Run.
func (i *Instance) Report(versions func() (settings, registry int64)) { i.versions = versions }

// ID is the instance id.
func (i *Instance) ID() string { return i.info.InstanceID }

// Start writes the row, not ready yet. Call it before anything refers to the instance.
func (i *Instance) Start(ctx context.Context) error {
	err := i.st.Write(ctx, func(tx *store.Tx) error { return i.insert(ctx, tx) })
	if err != nil {
		return fmt.Errorf("register instance: %w", err)
	}
	return nil
}

func (i *Instance) insert(ctx context.Context, tx *store.Tx) error {
	return tx.StartInstance(ctx, db.StartInstanceParams{
		InstanceID: i.info.InstanceID, Name: i.info.Name, Version: i.info.Version, Url: i.info.URL, Now: tx.Now(),
	})
}

// Ready records that start-up work is done. Agents' recovery deadlines count from here (D17).
func (i *Instance) Ready(ctx context.Context) error {
	err := i.st.Write(ctx, func(tx *store.Tx) error {
		n, err := tx.SetInstanceReady(ctx, tx.Now(), i.info.InstanceID)
		if err == nil && n == 0 {
			return fmt.Errorf("instance %s is not registered", i.info.InstanceID)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("set instance ready: %w", err)
	}
	return nil
}

// Run beats until ctx ends and then marks the instance as stopped. The row stays: agents and deliveries refer to it.
func (i *Instance) Run(ctx context.Context) error {
	loop := service.Loop{Name: "instance heartbeat", Interval: HeartbeatInterval, Log: i.log, Tick: i.beat}
	err := loop.Run(ctx)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if stopErr := i.st.Write(last, func(tx *store.Tx) error {
		_, err := tx.StopInstance(last, tx.Now(), i.info.InstanceID)
		return err
	}); stopErr != nil {
		i.log.Warn("mark instance stopped", "err", stopErr) // others see it when the heartbeat is old
	}
	return err
}

func (i *Instance) beat(ctx context.Context) error {
	return i.st.Write(ctx, func(tx *store.Tx) error {
		n, err := i.beatTx(ctx, tx)
		if err != nil || n > 0 {
			return err
		}
		if err := i.insert(ctx, tx); err != nil { // somebody removed the row
			return err
		}
		_, err = tx.SetInstanceReady(ctx, tx.Now(), i.info.InstanceID)
		return err
	})
}

func (i *Instance) beatTx(ctx context.Context, tx *store.Tx) (int64, error) {
	if i.versions == nil {
		return tx.BeatInstance(ctx, tx.Now(), i.info.InstanceID)
	}
	settings, registry := i.versions()
	return tx.BeatInstanceWith(ctx, db.BeatInstanceWithParams{
		Now: tx.Now(), SettingsVersion: settings, RegistryVersion: registry, InstanceID: i.info.InstanceID,
	})
}

// Live tells whether the instance of this row is alive at the store's instant now.
func Live(row db.ClusterInstance, now int64) bool {
	return ci.InstanceLive(row.HeartbeatAt, now)
}
