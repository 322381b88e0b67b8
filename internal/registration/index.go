package registration

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"iter"
	"strings"

	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// index is all registrations at one version. It never changes.
type index struct {
	version   int64
	entries   map[string]*entry    // by id
	byTrigger map[trigger][]*entry // enabled ones, in order of id, those that cannot be read among them
	globals   map[trigger][]*entry // of those, the global ones
}

type trigger struct{ org, kind string }

type entry struct {
	row      db.WorkflowRegistration
	workflow *lock.Workflow // nil when this binary cannot read it
}

// Triggered yields the organisation's enabled registrations that have a trigger of this type, oldest first. The version is
// compared with the store's before, so that a lost notification costs nothing (XC-27). What it yields must not be changed.
func (s *Service) Triggered(ctx context.Context, orgID, triggerType string) (iter.Seq2[db.WorkflowRegistration, *lock.Workflow], error) {
	ix, err := s.current(ctx)
	if err != nil {
		return nil, err
	}
	return yields(ix.byTrigger[trigger{orgID, triggerType}]), nil
}

// ByID returns a registration, disabled or not, and its workflow, which is nil when this binary cannot read it. ok is false when there is
// none.
func (s *Service) ByID(ctx context.Context, id string) (row db.WorkflowRegistration, w *lock.Workflow, ok bool, err error) {
	ix, err := s.current(ctx)
	if err != nil {
		return row, nil, false, err
	}
	e := ix.entry(id)
	if e == nil {
		return row, nil, false, nil
	}
	return e.row, e.workflow, true, nil
}

// Globals yields the organisation's enabled global registrations that have a trigger of this type (REG-4, GLB-1), as Triggered does.
func (s *Service) Globals(ctx context.Context, orgID, triggerType string) (iter.Seq2[db.WorkflowRegistration, *lock.Workflow], error) {
	ix, err := s.current(ctx)
	if err != nil {
		return nil, err
	}
	return yields(ix.globals[trigger{orgID, triggerType}]), nil
}

func yields(found []*entry) iter.Seq2[db.WorkflowRegistration, *lock.Workflow] {
	return func(yield func(db.WorkflowRegistration, *lock.Workflow) bool) {
		for _, e := range found {
			if e.workflow != nil && !yield(e.row, e.workflow) {
				return
			}
		}
	}
}

// current returns an index that is not older than the call.
func (s *Service) current(ctx context.Context) (*index, error) {
	version, err := version(ctx, s.st.Read())
	if err != nil {
		return nil, err
	}
	if ix := s.index.Load(); ix != nil && ix.version >= version {
		return ix, nil
	}
	select { // not a mutex: it is held across a read of the store, and in a simulation no time would pass for who waits for one
	case s.loading <- struct{}{}:
		defer func() { <-s.loading }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	old := s.index.Load()
	if old != nil && old.version >= version {
		return old, nil
	}
	ix, err := s.load(ctx, old)
	if err != nil {
		return nil, err
	}
	s.index.Store(ix)
	return ix, nil
}

func version(ctx context.Context, q *db.Queries) (int64, error) {
	v, err := q.RegistryVersion(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return v, err
}

// load reads version and rows in one snapshot. What did not change since old is not decoded again.
func (s *Service) load(ctx context.Context, old *index) (*index, error) {
	ix := &index{entries: map[string]*entry{}, byTrigger: map[trigger][]*entry{}, globals: map[trigger][]*entry{}}
	var rows []db.WorkflowRegistration
	err := s.st.Snapshot(ctx, func(tx *store.Tx) error {
		var err error
		if ix.version, err = version(ctx, tx.Queries); err != nil {
			return err
		}
		rows, err = tx.RegistrationsAll(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		e := &entry{row: row}
		if was := old.entry(row.ID); was != nil && was.row.LockEntry == row.LockEntry {
			e.workflow, e.row.LockEntry = was.workflow, was.row.LockEntry
		} else if e.workflow, err = decode(row.LockEntry); err != nil {
			s.log.Error("registration cannot be read", "registration_id", row.ID, "repo", row.Repo, "workflow", row.Workflow, "err", err)
		}
		ix.entries[row.ID] = e
		if row.Disabled {
			continue
		}
		for kind := range strings.SplitSeq(strings.Trim(row.TriggerTypes, ","), ",") {
			key := trigger{row.OrgID, kind}
			ix.byTrigger[key] = append(ix.byTrigger[key], e)
			if row.IsGlobal {
				ix.globals[key] = append(ix.globals[key], e)
			}
		}
	}
	return ix, nil
}

func (ix *index) entry(id string) *entry {
	if ix == nil {
		return nil
	}
	return ix.entries[id]
}

func decode(text string) (*lock.Workflow, error) {
	var w lock.Workflow
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return nil, err
	}
	return &w, nil
}
