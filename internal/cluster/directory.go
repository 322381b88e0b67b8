package cluster

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// Errors of the directory.
var (
	ErrInvalid      = errors.New("invalid")
	ErrNoInstance   = errors.New("no such instance")
	ErrUnnamed      = errors.New("the cluster has no name yet: no server has finished its first start")
	ErrInstanceAway = errors.New("the instance does not run; there is nothing to drain")
)

// Directory answers for the cluster as a whole, from the rows that its instances keep, and changes what operators may: the
// cluster's name, and whether an instance takes work.
type Directory struct {
	st   *store.Store
	self string
}

// NewDirectory returns the directory as the instance self sees it.
func NewDirectory(st *store.Store, self string) *Directory { return &Directory{st: st, self: self} }

// Self is the instance that answers.
func (d *Directory) Self() string { return d.self }

// Member is one instance.
type Member struct {
	db.ClusterInstance
	Live    bool
	Stopped bool // it has ended by itself
	Leader  bool
	Jobs    int64 // that it answers for now
	Agents  int64
}

// Health of the cluster (CLU-9).
const (
	Healthy   = "healthy"
	Degraded  = "degraded"  // an instance that has not said good-bye is missing
	Unhealthy = "unhealthy" // nobody leads
)

// Overview is the cluster at one instant.
type Overview struct {
	Health  string
	Reason  string // why it is not healthy
	Term    int64
	Leader  string // instance id, "" for none
	Members []Member
}

// missingFor bounds how long a lost instance makes the cluster degraded: later it is taken to be gone for good.
const missingFor = 24 * time.Hour

// Overview reads the cluster. Every instant is judged by the database's clock (CLU-7).
func (d *Directory) Overview(ctx context.Context) (Overview, error) {
	var o Overview
	err := d.st.Snapshot(ctx, func(tx *store.Tx) error {
		o = Overview{Health: Healthy}
		lease, err := tx.LeaderLease(ctx)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		now := tx.Now()
		if lease.Holder != "" && lease.ExpiresAt > now {
			o.Leader, o.Term = lease.Holder, lease.Term
		}
		return d.members(ctx, tx, &o)
	})
	if err != nil {
		return Overview{}, fmt.Errorf("read instances: %w", err)
	}
	return o, nil
}

func (d *Directory) members(ctx context.Context, tx *store.Tx, o *Overview) error {
	rows, err := tx.ClusterInstances(ctx)
	if err != nil {
		return err
	}
	load, err := tx.InstanceLoad(ctx)
	if err != nil {
		return err
	}
	agents, err := tx.InstanceAgents(ctx)
	if err != nil {
		return err
	}
	jobs, live := map[string]int64{}, map[string]int64{}
	for _, l := range load {
		jobs[l.InstanceID] = l.Jobs
	}
	for _, a := range agents {
		live[a.InstanceID] = a.Agents
	}
	now := tx.Now()
	for _, row := range rows {
		m := Member{
			ClusterInstance: row, Live: Live(row, now), Stopped: row.HeartbeatAt == 0, Leader: row.InstanceID == o.Leader,
			Jobs: jobs[row.InstanceID], Agents: live[row.InstanceID],
		}
		if !m.Live && !m.Stopped && now-row.HeartbeatAt < missingFor.Milliseconds() {
			o.Health, o.Reason = Degraded, "nothing is heard from "+row.Name+" ("+row.InstanceID+")"
		}
		o.Members = append(o.Members, m)
	}
	if o.Leader == "" {
		o.Health, o.Reason = Unhealthy, "no instance leads"
	}
	return nil
}

// DrainRequest asks an instance to take no new work, or to take it again.
type DrainRequest struct {
	Target string // instance id or name, "" for the one that is asked
	Drain  bool
}

// Draining is where an instance is with it.
type Draining struct {
	InstanceID string
	Name       string
	Draining   bool
	Jobs       int64 // still running
}

// Drain makes an instance drain or resume (QUE-18). It says so on the instance's row, which placement and the node's own loop
// read; a start of the instance ends it.
func (d *Directory) Drain(ctx context.Context, r DrainRequest) (Draining, error) {
	m, err := d.find(ctx, r.Target)
	if err != nil {
		return Draining{}, err
	}
	if !m.Live && r.Drain {
		return Draining{}, ErrInstanceAway
	}
	err = d.st.Write(ctx, func(tx *store.Tx) error {
		n, err := tx.SetInstanceDraining(ctx, r.Drain, m.InstanceID)
		if err == nil && n == 0 {
			return ErrNoInstance
		}
		tx.Notify(store.TopicQueue, "")
		tx.Notify(store.TopicLeader, "") // one that drains leaves leading to others
		tx.Notify(store.TopicAgents, m.InstanceID)
		return err
	})
	if err != nil {
		return Draining{}, err
	}
	return d.DrainState(ctx, m.InstanceID)
}

// DrainState says where an instance is with draining.
func (d *Directory) DrainState(ctx context.Context, target string) (Draining, error) {
	m, err := d.find(ctx, target)
	return Draining{InstanceID: m.InstanceID, Name: m.Name, Draining: m.Draining, Jobs: m.Jobs}, err
}

// find looks an instance up by its id, the beginning of one that no other has, or its name.
func (d *Directory) find(ctx context.Context, target string) (Member, error) {
	if target == "" {
		target = d.self
	}
	o, err := d.Overview(ctx)
	if err != nil {
		return Member{}, err
	}
	var found []Member
	for _, m := range o.Members {
		switch {
		case m.InstanceID == target:
			return m, nil
		case m.Name == target, len(target) >= shortID && len(target) < len(m.InstanceID) && m.InstanceID[:len(target)] == target:
			found = append(found, m)
		}
	}
	if len(found) > 1 { // earlier servers of the same host are not meant
		found = slices.DeleteFunc(found, func(m Member) bool { return !m.Live })
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return Member{}, ErrNoInstance
	}
	return Member{}, fmt.Errorf("%w: %d instances are called that; give the id", ErrInvalid, len(found))
}

const shortID = 4

// Name is the cluster's name as it is stored (CLU-3).
func (d *Directory) Name(ctx context.Context) (string, error) {
	name, err := d.st.Read().ClusterMeta(ctx, metaName)
	if errors.Is(err, sql.ErrNoRows) {
		return "", ErrUnnamed
	}
	if err != nil {
		return "", fmt.Errorf("read cluster name: %w", err)
	}
	return name, nil
}

// Rename changes the cluster's name. What runs bears the old one until it is started again, so instances must reconnect:
// backends find what is theirs by the name.
func (d *Directory) Rename(ctx context.Context, name string) (old string, err error) {
	if !clusterName().MatchString(name) {
		return "", fmt.Errorf("%w: cluster name %q: use 1 to 63 lower-case letters, digits and inner hyphens", ErrInvalid, name)
	}
	err = d.st.Write(ctx, func(tx *store.Tx) error {
		if old, err = tx.ClusterMeta(ctx, metaName); err != nil {
			return err
		}
		return tx.SetClusterMeta(ctx, metaName, name)
	})
	if err != nil {
		return "", fmt.Errorf("rename cluster: %w", err)
	}
	return old, nil
}
