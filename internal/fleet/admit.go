package fleet

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/wire"
)

const (
	labelRoot       = "kici:privileged:root"
	labelHost       = "kici:host:"
	scalerPrefix    = "scaler-" // marks an id that a scaler minted (SC-24)
	typeStatic      = "static"
	typeEphemeral   = "ephemeral"
	maxAgentLabels  = 100
	maxAgentIDBytes = 128
)

// admission is what a registration found and decided.
type admission struct {
	row     db.FleetAgentRow
	token   db.FleetTokenRow
	labels  []string
	gate    string
	first   bool // first registration of this agent's life
	abandon []string
	pending bool       // a job is bound or assigned to it
	current *delivered // a job that it works on already
}

// register writes the agent's registration and makes the session findable (AG-8…11).
func (s *session) register(reg wire.Register) error {
	if s.agentID != "" && s.agentID != reg.AgentID {
		return refuse(wire.CloseInvalid, "identity", "one connection is one agent")
	}
	if !validAgentID(reg.AgentID) {
		return refuse(wire.CloseInvalid, "identity", "the agent id must be letters, digits, '.', '_' and '-', at most 128")
	}
	release := s.f.turns.take(reg.AgentID)
	defer release()
	var a admission
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	err := s.f.Store.Write(ctx, func(tx *store.Tx) (err error) {
		a, err = s.f.admit(ctx, tx, s, reg)
		return err
	})
	if err != nil {
		if _, ok := errors.AsType[*refusal](err); ok {
			return err
		}
		s.f.Metrics.AdoptionFailures.Inc()
		s.f.Log.Error("register agent", "agent_id", reg.AgentID, "err", err)
		return errLookup
	}
	s.agentID, s.nodeID, s.managed = a.row.ID, a.row.NodeID, a.row.Type != typeStatic
	s.mu.Lock()
	s.current = a.current
	s.mu.Unlock()
	s.send(wire.TypeRegisterAck, wire.RegisterAck{
		AgentID: s.agentID, Labels: a.labels, ScalerManaged: s.managed, Capabilities: []string{wire.TypeEventEmit, wire.TypeJobAdd},
		PendingDispatch: a.pending, WarmPool: s.managed && !a.row.BoundJobID.Valid, Abandon: a.abandon,
	})
	old, ok := s.f.enter(s)
	if !ok {
		s.close(ending{wire.CloseGoingAway, "the server stops", "shutdown"})
	}
	if old != nil {
		old.close(ending{wire.CloseSuperseded, "the agent has connected again", "superseded"})
	}
	s.f.Log.Info("agent registered", "agent_id", s.agentID, "type", a.row.Type, "first", a.first, "version", reg.Version, "labels", strings.Join(a.labels, ","))
	s.f.wake.Signal()
	return nil
}

// reregister is a second agent.register on one connection (AG-11).
func (s *session) reregister(body json.RawMessage) error {
	var reg wire.Register
	if err := json.Unmarshal(body, &reg); err != nil {
		return errInvalid
	}
	s.settle()
	return s.refused(s.register(reg))
}

// admit checks the registration against the token and the ledger and records it.
func (f *Fleet) admit(ctx context.Context, tx *store.Tx, s *session, reg wire.Register) (a admission, err error) {
	a.token, err = tx.FleetToken(ctx, s.tokenHash)
	if errors.Is(err, sql.ErrNoRows) || (err == nil && a.token.RevokedAt.Valid) {
		return a, errToken
	} else if err != nil {
		return a, fmt.Errorf("read token: %w", err)
	}
	if a.token.Type == typeEphemeral {
		err = f.admitManaged(ctx, tx, s, reg, &a)
	} else {
		err = f.admitStatic(ctx, tx, s, reg, &a)
	}
	if err != nil {
		return a, err
	}
	if err := a.scope(reg); err != nil {
		return a, err
	}
	if err := f.record(ctx, tx, s, reg, &a); err != nil {
		return a, err
	}
	return a, f.reconcile(ctx, tx, reg, &a)
}

// admitManaged lets in the one agent that an ephemeral token was minted for, while its row lives (D13, XS-45).
func (f *Fleet) admitManaged(ctx context.Context, tx *store.Tx, s *session, reg wire.Register, a *admission) (err error) {
	if a.token.AgentID != reg.AgentID {
		return refuse(wire.CloseAuthFailed, "identity", "the token belongs to another agent")
	}
	a.row, err = tx.FleetAgent(ctx, reg.AgentID)
	if errors.Is(err, sql.ErrNoRows) {
		return refuse(wire.CloseAuthFailed, "identity", "this server does not know the agent")
	} else if err != nil {
		return fmt.Errorf("read agent: %w", err)
	}
	a.first = !a.row.RegisteredAt.Valid
	switch state := ci.AgentState(a.row.State); {
	case state == ci.AgentEnding || state == ci.AgentGone:
		return refuse(wire.CloseAgentGone, "identity", "the agent has ended: "+a.row.GoneReason)
	case a.row.TokenHash.String != s.tokenHash:
		return refuse(wire.CloseAuthFailed, "token", "the agent has another token")
	case a.first && a.token.ExpiresAt.Valid && a.token.ExpiresAt.Int64 <= tx.Now():
		return refuse(wire.CloseAuthFailed, "token", "the token has expired before the agent registered")
	}
	return nil
}

// admitStatic lets in an agent that somebody started, making its row at the first registration and reviving it later.
func (f *Fleet) admitStatic(ctx context.Context, tx *store.Tx, s *session, reg wire.Register, a *admission) (err error) {
	now := tx.Now()
	switch {
	case strings.HasPrefix(reg.AgentID, scalerPrefix):
		return refuse(wire.CloseAuthFailed, "identity", "ids that begin with scaler- belong to agents that a scaler started")
	case a.token.ExpiresAt.Valid && a.token.ExpiresAt.Int64 <= now:
		return refuse(wire.CloseAuthFailed, "token", "the token has expired")
	}
	if _, err := tx.FleetInsertStatic(ctx, reg.AgentID, a.token.OrgID, now); err != nil {
		return fmt.Errorf("insert agent: %w", err)
	}
	if a.row, err = tx.FleetAgent(ctx, reg.AgentID); err != nil {
		return fmt.Errorf("read agent: %w", err)
	}
	a.first = !a.row.RegisteredAt.Valid
	switch {
	case a.row.Type != typeStatic || a.row.OrgID != a.token.OrgID:
		return refuse(wire.CloseAuthFailed, "identity", "the agent id is taken")
	case a.row.InstanceID != "" && a.row.TokenHash.String != s.tokenHash:
		return refuse(wire.CloseInvalid, "identity", "an agent with this id is connected with another token")
	}
	return nil
}

// scope works out the labels and refuses what the token does not give (AG-9). A static agent may claim fewer than its token
// allows; one that claims none has all; a static token without labels allows every label that is not kici's own (AG-3).
func (a *admission) scope(reg wire.Register) error {
	allowed := ci.NormalizeLabels(jsonList(a.token.Labels))
	claimed := ci.NormalizeLabels(reg.Labels)
	if len(claimed) > maxAgentLabels {
		return refuse(wire.CloseInvalid, "labels", "too many labels")
	}
	own := make([]string, 0, len(claimed))
	for _, l := range claimed {
		if isPlatform(l) {
			continue // taken from platform and host below
		}
		unlimited := a.row.Type == typeStatic && len(allowed) == 0 && !strings.HasPrefix(l, "kici:")
		if !unlimited && !slices.Contains(allowed, l) {
			return refuse(wire.CloseAuthFailed, "labels", fmt.Sprintf("label %q is not among those of the token (%s)", clip(l, 40), clip(strings.Join(allowed, ", "), 40)))
		}
		own = append(own, l)
	}
	if len(own) == 0 || a.row.Type != typeStatic {
		own = allowed
	}
	gate := ci.NormalizeLabels(jsonList(a.token.MandatoryLabels))
	if reg.RunningAsUID != 0 && (slices.Contains(own, labelRoot) || slices.Contains(gate, labelRoot)) {
		return refuse(wire.CloseAuthFailed, "labels", labelRoot+" needs an agent that runs as root")
	}
	own = append(slices.Clone(own), ci.PlatformLabels(word(reg.Platform), word(reg.Arch))...)
	if host := word(reg.Hostname); host != "" {
		own = append(own, labelHost+host)
	}
	a.labels = ci.NormalizeLabels(own)
	a.gate = jsonText(gate)
	return nil
}

func isPlatform(label string) bool {
	return strings.HasPrefix(label, "kici:os:") || strings.HasPrefix(label, "kici:arch:") || strings.HasPrefix(label, labelHost)
}

// record writes the registration.
func (f *Fleet) record(ctx context.Context, tx *store.Tx, s *session, reg wire.Register, a *admission) error {
	now := tx.Now()
	state := ci.AgentOnline
	if a.row.State == string(ci.AgentDraining) {
		state = ci.AgentDraining
	}
	n, err := tx.FleetAdmitAgent(ctx, db.FleetAdmitAgentParams{
		ID: a.row.ID, Was: a.row.State, State: string(state), Now: sql.NullInt64{Int64: now, Valid: true}, Labels: jsonText(a.labels), MandatoryLabels: a.gate,
		TokenHash: text(s.tokenHash), InstanceID: f.InstanceID, SessionID: s.id,
		Host: clean(reg.Hostname, 255), Platform: word(reg.Platform), Arch: word(reg.Arch), Version: clean(reg.Version, 64),
	})
	if err != nil {
		return fmt.Errorf("update agent: %w", err)
	} else if n == 0 {
		return errLookup // its state has just changed: look again on the next attempt
	}
	if err := tx.FleetTouchToken(ctx, a.token.ID, sql.NullInt64{Int64: now, Valid: true}); err != nil {
		return fmt.Errorf("touch token: %w", err)
	}
	if a.first && a.row.Scaler != "" {
		if _, err := tx.FleetClearBackoff(ctx, a.row.NodeID, a.row.Scaler); err != nil { // MG-33
			return fmt.Errorf("clear back-off: %w", err)
		}
	}
	tx.Notify(store.TopicQueue, "")
	tx.Notify(store.TopicAgents, a.row.NodeID)
	return nil
}

// reconcile compares what the agent says it works on with what it should (AG-10, XC-78).
func (f *Fleet) reconcile(ctx context.Context, tx *store.Tx, reg wire.Register, a *admission) error {
	open, err := tx.FleetOpenAssignment(ctx, a.row.ID)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		a.abandon = jobIDs(reg.InFlightJobs)
		a.pending = a.row.BoundJobID.Valid && a.row.JobsDone == 0
		return nil
	case err != nil:
		return fmt.Errorf("read assignment: %w", err)
	}
	key := jobKey{open.JobID, int(open.Attempt)}
	holds := false
	for _, j := range reg.InFlightJobs {
		if (jobKey{j.JobID, j.Attempt}) == key {
			holds = true
		} else if j.JobID != open.JobID {
			a.abandon = append(a.abandon, j.JobID)
		}
	}
	switch {
	case holds:
		a.current = &delivered{key: key, runID: open.RunID, acked: true}
		return f.resume(ctx, tx, open, a.row.ID)
	case open.State == "assigned":
		a.pending = true
		_, err = tx.FleetUnsend(ctx, open.JobID, open.Attempt)
	default:
		_, err = f.Losses.Lost(tx, open.JobID, int(open.Attempt), "agent "+a.row.ID+" came back without the job")
	}
	return err
}

// resume takes a job up again whose agent has returned with it. That it works on the job says that it has accepted it.
func (f *Fleet) resume(ctx context.Context, tx *store.Tx, open db.FleetOpenAssignmentRow, agentID string) error {
	if open.State == "assigned" {
		ack := db.FleetAckParams{JobID: open.JobID, Attempt: open.Attempt, AgentID: agentID, AckedAt: sql.NullInt64{Int64: tx.Now(), Valid: true}}
		if _, err := tx.FleetAck(ctx, ack); err != nil {
			return fmt.Errorf("acknowledge assignment: %w", err)
		}
	}
	_, err := f.Losses.Recovered(tx, open.JobID, int(open.Attempt), agentID)
	return err
}

func jobIDs(jobs []wire.InFlight) []string {
	out := make([]string, 0, len(jobs))
	for _, j := range jobs {
		out = append(out, j.JobID)
	}
	return out
}

func validAgentID(id string) bool {
	return id != "" && len(id) <= maxAgentIDBytes && id[0] != '.' && strings.Trim(id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.") == ""
}

// word reduces what an agent says about its host to what can be part of a label.
func word(s string) string {
	s = strings.ToLower(clip(s, 64))
	if strings.Trim(s, "0123456789abcdefghijklmnopqrstuvwxyz-_.") != "" {
		return ""
	}
	return s
}

// clean makes text of an agent fit for storage: valid UTF-8, no NUL, bounded.
func clean(s string, n int) string {
	return clip(strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\uFFFD"), n)
}

func text(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }

func jsonList(s string) []string {
	var out []string
	_ = json.Unmarshal([]byte(s), &out) // our own JSON
	return out
}

func jsonText(v []string) string {
	if v == nil {
		v = []string{}
	}
	b, _ := json.Marshal(v)
	return string(b)
}
