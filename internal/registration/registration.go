// Package registration keeps the cluster's copy of the workflows on every repository's default branch, so that deliveries
// without a repository, events and schedules can find the workflows that wait for them (REG-*). Rows are the truth; the index
// in memory is a copy that knows its version and is replaced whole.
package registration

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// Service is the room. It is safe for concurrent use.
type Service struct {
	st      *store.Store
	env     service.Env
	log     *slog.Logger
	loading sync.Mutex // one load at a time
	index   atomic.Pointer[index]
}

// New returns the room over a store.
func New(st *store.Store, env service.Env, log *slog.Logger) *Service {
	return &Service{st: st, env: env, log: log.With("component", "registration")}
}

// Synced returns the commit whose workflows are registered for the repository, "" for none yet.
func (s *Service) Synced(ctx context.Context, routingKey, repo string) (string, error) {
	row, err := s.st.Read().RegistrationSync(ctx, routingKey, repo)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return row.CommitSha, err
}

// Sync makes workflows the repository's registrations in the caller's transaction: named ones are replaced (keeping id and
// disabled), the others deleted, the registry's version raised. scope says for which organisation, source, repository,
// commit and default branch, and in SyncedAt when the delivery was received. applied is false, and nothing is written,
// when a newer delivery was here first (REG-2).
func (s *Service) Sync(ctx context.Context, tx *store.Tx, scope db.WorkflowRegistration, delivery string, workflows []lock.Workflow) (applied bool, err error) {
	n, err := tx.ClaimRegistrationSync(ctx, db.ClaimRegistrationSyncParams{
		RoutingKey: scope.RoutingKey, Repo: scope.Repo, CommitSha: scope.CommitSha, ReceivedAt: scope.SyncedAt, DeliveryID: delivery,
	})
	if err != nil || n == 0 {
		return false, err
	}
	old, err := tx.RegistrationsOfRepo(ctx, scope.RoutingKey, scope.Repo)
	if err != nil {
		return false, err
	}
	kept, err := s.put(ctx, tx, scope, workflows)
	if err != nil {
		return false, err
	}
	for _, row := range old {
		if !kept[row.Workflow] {
			if _, err := tx.DeleteRegistration(ctx, row.ID); err != nil {
				return false, err
			}
		}
	}
	return true, bump(ctx, tx, scope.OrgID)
}

// Register adds or replaces the named workflows and leaves the repository's others alone (REG-5).
func (s *Service) Register(ctx context.Context, scope db.WorkflowRegistration, workflows []lock.Workflow) error {
	return s.st.Write(ctx, func(tx *store.Tx) error {
		if _, err := s.put(ctx, tx, scope, workflows); err != nil {
			return err
		}
		return bump(ctx, tx, scope.OrgID)
	})
}

// Forget removes everything that a source has registered.
func (s *Service) Forget(ctx context.Context, tx *store.Tx, orgID, routingKey string) error {
	if err := tx.ForgetRegistrationSync(ctx, routingKey); err != nil {
		return err
	}
	n, err := tx.DeleteRegistrationsOfSource(ctx, routingKey)
	if err != nil || n == 0 {
		return err
	}
	return bump(ctx, tx, orgID)
}

// ErrNotFound is returned for a registration that does not exist or belongs to another organisation.
var ErrNotFound = errors.New("no such registration")

// SetDisabled turns one registration off or on, from the next match on (REG-7).
func (s *Service) SetDisabled(ctx context.Context, orgID, id string, disabled bool) error {
	return s.st.Write(ctx, func(tx *store.Tx) error {
		rows, err := tx.RegistrationsOfOrg(ctx, orgID)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(rows, func(r db.WorkflowRegistration) bool { return r.ID == id }) {
			return ErrNotFound
		}
		n, err := tx.SetRegistrationDisabled(ctx, disabled, orgID, id)
		if err != nil || n == 0 {
			return err
		}
		return bump(ctx, tx, orgID)
	})
}

// put upserts workflows that have a trigger and returns their names.
func (s *Service) put(ctx context.Context, tx *store.Tx, scope db.WorkflowRegistration, workflows []lock.Workflow) (map[string]bool, error) {
	kept := map[string]bool{}
	for i := range workflows {
		w := &workflows[i]
		if len(w.On) == 0 {
			continue
		}
		entry, err := json.Marshal(w)
		if err != nil {
			return nil, fmt.Errorf("encode workflow %s: %w", w.Name, err)
		}
		kept[w.Name] = true
		if err := tx.UpsertRegistration(ctx, db.UpsertRegistrationParams{
			ID: s.env.NewID(), OrgID: scope.OrgID, RoutingKey: scope.RoutingKey, Repo: scope.Repo, Workflow: w.Name,
			LockEntry: string(entry), TriggerTypes: triggerTypes(w), CommitSha: scope.CommitSha,
			DefaultBranch: scope.DefaultBranch, SourceFile: w.SourceFile, SyncedAt: scope.SyncedAt,
		}); err != nil {
			return nil, err
		}
	}
	return kept, nil
}

// bump raises the version in the transaction that changed the rows, so that no node keeps an old index (REG-3).
func bump(ctx context.Context, tx *store.Tx, orgID string) error {
	tx.Notify(store.TopicRegistry, orgID)
	return tx.BumpRegistryVersion(ctx)
}

// triggerTypes is ",push,generic_webhook,": searchable by ",type,".
func triggerTypes(w *lock.Workflow) string {
	var names []string
	for _, t := range w.On {
		if !slices.Contains(names, t.Type) {
			names = append(names, t.Type)
		}
	}
	slices.Sort(names)
	return "," + strings.Join(names, ",") + ","
}
