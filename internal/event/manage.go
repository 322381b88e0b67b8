package event

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow"
)

// ErrNotFound is returned for what does not exist or belongs to another organisation.
var ErrNotFound = errors.New("not found")

// RetryDead gives a dead letter all its attempts again and wakes the routers. What it has started already is not started again: its
// claims stay (EVT-34, XC-39). An event that would expire soon lives for another term.
func (s *Service) RetryDead(ctx context.Context, orgID, id string) error {
	return s.d.Store.Write(ctx, func(tx *store.Tx) error {
		n, err := tx.RetryDeadLetter(ctx, db.RetryDeadLetterParams{
			Now: nullInt(tx.Now()), ExpiresAt: tx.Now() + s.d.Limits().TTL.Milliseconds(), OrgID: orgID, ID: id,
		})
		if err == nil && n == 0 {
			return fmt.Errorf("dead letter %q %w", id, ErrNotFound)
		}
		tx.Notify(store.TopicEvents, "")
		return err
	})
}

// DiscardDead deletes a dead letter. The runs that it had started stay.
func (s *Service) DiscardDead(ctx context.Context, orgID, id string) error {
	return s.d.Store.Write(ctx, func(tx *store.Tx) error {
		n, err := tx.DiscardDeadLetter(ctx, orgID, id)
		if err == nil && n == 0 {
			return fmt.Errorf("dead letter %q %w", id, ErrNotFound)
		}
		return err
	})
}

// Trust lets events of one repository start workflows of another one, whose source is another (EVT-21).
type Trust struct {
	OrgID                        string
	SourceRoutingKey, SourceRepo string    // whose events
	TargetRoutingKey, TargetRepo string    // whose workflows
	Events                       *[]string // globs of names; nil is every name, an empty list none
	By                           string
}

// Bounds of a trust row.
const (
	maxTrustGlobs = 50
	maxTrustName  = 300
)

// Invalid says what is wrong with what somebody asked for.
type Invalid struct{ Field, Message string }

func (i *Invalid) Error() string { return i.Field + ": " + i.Message }

// AddTrust makes a trust row. The same pair of repositories has one: adding it again sets its names and is not an error. created tells
// whether it is new.
func (s *Service) AddTrust(ctx context.Context, t Trust) (row db.CrossRepoTrust, created bool, err error) {
	names, err := t.check()
	if err != nil {
		return row, false, err
	}
	id := s.d.Env.NewID()
	err = s.d.Store.Write(ctx, func(tx *store.Tx) error {
		n, err := tx.InsertTrust(ctx, db.InsertTrustParams{
			ID: id, OrgID: t.OrgID, SourceRoutingKey: t.SourceRoutingKey, SourceRepo: t.SourceRepo, TargetRoutingKey: t.TargetRoutingKey,
			TargetRepo: t.TargetRepo, EventNames: names, CreatedAt: tx.Now(), CreatedBy: clip(t.By, maxActorBytes),
		})
		if err != nil {
			return err
		}
		created = n > 0
		row, err = tx.TrustByPair(ctx, db.TrustByPairParams{
			OrgID: t.OrgID, SourceRoutingKey: t.SourceRoutingKey, SourceRepo: t.SourceRepo, TargetRoutingKey: t.TargetRoutingKey, TargetRepo: t.TargetRepo,
		})
		if err != nil || created || row.Enabled && row.EventNames == names {
			return err
		}
		row.EventNames, row.Enabled = names, true
		_, err = tx.SetTrust(ctx, names, row.ID)
		return err
	})
	return row, created, err
}

func (t Trust) check() (names sql.NullString, err error) {
	for field, v := range map[string]string{
		"sourceRoutingKey": t.SourceRoutingKey, "sourceRepo": t.SourceRepo, "targetRoutingKey": t.TargetRoutingKey, "targetRepo": t.TargetRepo,
	} {
		if v == "" || len(v) > maxTrustName {
			return names, &Invalid{field, fmt.Sprintf("give 1 to %d bytes", maxTrustName)}
		}
	}
	if t.Events == nil {
		return names, nil
	}
	if len(*t.Events) > maxTrustGlobs {
		return names, &Invalid{"eventNames", fmt.Sprintf("%d patterns are the most", maxTrustGlobs)}
	}
	for _, g := range *t.Events {
		if len(g) > MaxNameBytes {
			return names, &Invalid{"eventNames", fmt.Sprintf("a pattern has at most %d bytes", MaxNameBytes)}
		}
		if err := workflow.CheckName(g); err != nil {
			return names, &Invalid{"eventNames", fmt.Sprintf("pattern %q: %v", g, err)}
		}
	}
	text, err := json.Marshal(append([]string{}, *t.Events...))
	return sql.NullString{String: string(text), Valid: true}, err
}

// TrustRow reads one trust row.
func (s *Service) TrustRow(ctx context.Context, orgID, id string) (db.CrossRepoTrust, error) {
	row, err := s.d.Store.Read().TrustByID(ctx, orgID, id)
	if errors.Is(err, sql.ErrNoRows) {
		return row, fmt.Errorf("trust %q %w", id, ErrNotFound)
	}
	return row, err
}

// RemoveTrust deletes a trust row.
func (s *Service) RemoveTrust(ctx context.Context, orgID, id string) error {
	return s.d.Store.Write(ctx, func(tx *store.Tx) error {
		n, err := tx.DeleteTrust(ctx, orgID, id)
		if err == nil && n == 0 {
			return fmt.Errorf("trust %q %w", id, ErrNotFound)
		}
		return err
	})
}
