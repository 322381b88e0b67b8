package registration

import (
	"context"
	"iter"

	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// View is the index as it was at one version: what one decision looks at does not change under it.
type View struct{ ix *index }

// View returns an index that is not older than the call.
func (s *Service) View(ctx context.Context) (View, error) {
	ix, err := s.current(ctx)
	return View{ix}, err
}

// Loaded returns the index as this process has it, which may be old; ok is false when it has none yet. It never waits.
func (s *Service) Loaded() (v View, ok bool) {
	ix := s.index.Load()
	return View{ix}, ix != nil
}

// Version is the registry's version that the view shows.
func (v View) Version() int64 { return v.ix.version }

// Triggered is as Service.Triggered, of this view, and yields what this binary cannot read as well, with a nil workflow: whoever routes an
// event to such a registration must not lose it.
func (v View) Triggered(orgID, triggerType string) iter.Seq2[db.WorkflowRegistration, *lock.Workflow] {
	return func(yield func(db.WorkflowRegistration, *lock.Workflow) bool) {
		for _, e := range v.ix.byTrigger[trigger{orgID, triggerType}] {
			if !yield(e.row, e.workflow) {
				return
			}
		}
	}
}
