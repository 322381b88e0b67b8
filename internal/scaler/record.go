package scaler

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/scaler/backend"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// job is an action on its way: decided, then recorded, then done.
type job struct {
	Action
	scaler *managed
	row    *db.NodeAgentsRow // nil for an orphan

	spec    backend.Spec // of ActStart, like the next three
	planErr error
	hash    string
	prefix  string
}

// record writes the actions down in one transaction and returns those that are to be done: their conditional write held, so
// nobody was first.
func (n *Node) record(ctx context.Context, actions []Action, rows []db.NodeAgentsRow) ([]job, error) {
	var now, write []job
	for _, a := range actions {
		j := job{Action: a, scaler: n.scalers[a.Scaler], row: findRow(rows, a.AgentID)}
		switch a.Kind {
		case ActCancel, ActDelete:
			now = append(now, j)
			continue
		case ActStart:
			n.mint(ctx, &j)
		}
		write = append(write, j)
	}
	if len(write) == 0 {
		return now, nil
	}
	var done []job
	err := n.d.Store.Write(ctx, func(tx *store.Tx) error {
		done = done[:0] // fn may run twice
		for _, j := range write {
			ok, err := n.recordOne(ctx, tx, j)
			if err != nil {
				return fmt.Errorf("agent %s: %w", j.AgentID, err)
			}
			if ok {
				done = append(done, j)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("record actions: %w", err)
	}
	return append(done, now...), nil
}

// recordOne makes the conditional write of one action.
func (n *Node) recordOne(ctx context.Context, tx *store.Tx, j job) (bool, error) {
	var changed int64
	var err error
	switch j.Kind {
	case ActStart:
		if j.planErr != nil {
			return n.recordFailure(ctx, tx, failureOf(j, j.planErr))
		}
		return n.recordStart(ctx, tx, j)
	case ActFail:
		return n.recordFailure(ctx, tx, failure{
			job: j, reason: j.Reason, text: j.Error, tail: j.Tail, counted: j.Counted, was: j.Was,
		})
	case ActBooted:
		changed, err = tx.NodeAgentCreated(ctx, string(j.Launch), tx.Now(), j.AgentID)
	case ActEnd:
		changed, err = tx.NodeEndAgent(ctx, db.NodeEndAgentParams{
			Now: tx.Now(), GoneReason: j.Reason, Error: j.Error, ID: j.AgentID, State: string(j.Was),
		})
	case ActClose:
		changed, err = tx.NodeCloseAgent(ctx, db.NodeCloseAgentParams{
			Now: tx.Now(), GoneReason: j.Reason, Error: j.Error, ID: j.AgentID, State: string(j.Was),
		})
	default:
		return false, fmt.Errorf("action %d cannot be recorded", j.Kind)
	}
	if err != nil || changed == 0 {
		return false, err
	}
	n.notifyChange(tx)
	return true, nil
}

// notifyChange tells who waits for capacity, who looks at agents, and who holds sessions of agents that have ended.
func (n *Node) notifyChange(tx *store.Tx) {
	tx.Notify(store.TopicAgents, n.id)
	tx.Notify(store.TopicQueue, "")
	tx.Notify(store.TopicScalers, n.id)
}

// mint prepares what ActStart records: the token, and what undoing Create will need.
func (n *Node) mint(ctx context.Context, j *job) {
	r := j.row
	j.spec = backend.Spec{
		AgentID: r.ID, LabelSet: r.LabelSet, URL: n.d.URL(),
		Limits: ci.Resources{CPUMilli: r.CpuLimitMilli, MemBytes: r.MemLimitBytes},
		JobID:  r.BoundJobID.String, Warm: !r.BoundJobID.Valid, MinFreeDisk: n.minFreeDisk(j.scaler),
	}
	j.spec.URL, j.spec.Socket = wayHome(j.spec.URL, j.scaler.entry.URL, n.d.Host.AgentSocket)
	if err := json.Unmarshal([]byte(r.Labels), &j.spec.Labels); err != nil {
		j.planErr = fmt.Errorf("%w: labels of the row: %w", backend.ErrRefused, err)
		return
	}
	if !j.scaler.has(r.LabelSet) { // a reload has taken it away; the job is placed anew
		j.planErr = fmt.Errorf("%w: label set [%s] is no longer configured", backend.ErrNotReady, r.LabelSet)
		return
	}
	if r.Image != "" {
		if j.spec.Image, j.planErr = n.image(ctx, r); j.planErr != nil {
			return
		}
	}
	if j.planErr = n.reserve(ctx, j); j.planErr != nil {
		return
	}
	j.spec.Token, j.hash, j.prefix = n.d.MintToken()
	if j.spec.Launch, j.planErr = j.scaler.backend.Plan(j.spec); j.spec.Launch == nil {
		j.spec.Launch = json.RawMessage(noLaunch)
	}
}

// image is the job's own image, with what its registry asks for. That is read at each start and never recorded.
func (n *Node) image(ctx context.Context, r *db.NodeAgentsRow) (*backend.JobImage, error) {
	login, err := n.d.RegistryLogin(ctx, r.BoundJobID.String)
	if err != nil {
		return nil, fmt.Errorf("%w: credentials for the image %s: %w", backend.ErrNotReady, r.Image, err)
	}
	return &backend.JobImage{Ref: r.Image, Username: login.Username, Password: login.Password}, nil
}

// wayHome is how an agent of a scaler reaches the server (AG-2): the scaler's own URL if it has one, else the node's. The socket is an
// equal way only where the node's URL means this very machine; another URL was chosen by somebody, and stands.
func wayHome(node, own, socket string) (address, path string) {
	if own != "" {
		return own, ""
	}
	u, err := url.Parse(node)
	if err != nil {
		return node, ""
	}
	if ip, err := netip.ParseAddr(u.Hostname()); u.Hostname() != "localhost" && (err != nil || !ip.IsLoopback()) {
		return node, ""
	}
	return node, socket
}

// recordStart writes the token and the undo information before anything is made.
func (n *Node) recordStart(ctx context.Context, tx *store.Tx, j job) (bool, error) {
	now := tx.Now()
	// This node alone judges the deadline, so it counts by its own clock.
	registerBy := n.d.Env.NowMs() + n.d.Settings.RegisterTimeout.Milliseconds()
	changed, err := tx.NodeStartAgent(ctx, db.NodeStartAgentParams{
		TokenHash:  sql.NullString{String: j.hash, Valid: true},
		Launch:     string(j.spec.Launch),
		Now:        now,
		RegisterBy: sql.NullInt64{Int64: registerBy, Valid: true},
		ID:         j.AgentID,
	})
	if err != nil || changed == 0 {
		return false, err
	}
	if err := tx.NodeDeleteAgentTokens(ctx, j.AgentID); err != nil { // of an interrupted start
		return false, err
	}
	err = tx.NodeInsertAgentToken(ctx, db.NodeInsertAgentTokenParams{
		ID: "tok-" + j.AgentID + "-" + j.hash[:min(8, len(j.hash))], OrgID: j.row.OrgID, TokenHash: j.hash, Prefix: j.prefix, AgentID: j.AgentID,
		Labels: j.row.Labels, MandatoryLabels: j.row.MandatoryLabels, CreatedBy: "scaler:" + j.row.Scaler, Now: now,
		ExpiresAt: sql.NullInt64{Int64: now + n.limits(j.row.OrgID).TokenTTL.Milliseconds(), Valid: true},
	})
	return err == nil, err
}

// recordEndAll condemns every agent of this node.
func (n *Node) recordEndAll(ctx context.Context) error {
	return n.d.Store.Write(ctx, func(tx *store.Tx) error {
		if _, err := tx.NodeEndAllAgents(ctx, tx.Now(), ci.GoneShutdown, n.id); err != nil {
			return err
		}
		n.notifyChange(tx)
		return nil
	})
}
