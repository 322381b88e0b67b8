package run

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/plan"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// States of a place in a concurrency group, as they are stored.
const (
	slotQueued = "queued"
	slotActive = "active"
)

// initGroupTimeout is the init failure of a job or run that waited too long for its concurrency group.
const initGroupTimeout = "concurrency_timeout"

// groupScope names a concurrency group (CON-1).
type groupScope struct{ org, routingKey, key string }

func scopeOf(s db.ConcurrencySlot) groupScope { return groupScope{s.OrgID, s.RoutingKey, s.GroupKey} }

// group is a concurrency group whose row this transaction has locked. The owner's run is locked before it, and no other run: who is to
// go on or to be ended because of what is decided here is written down, and GroupDuties follows (CON-5).
type group struct {
	tx    *store.Tx
	ctx   context.Context
	scope groupScope
	slots []db.GroupSlotsRow
}

// lockGroup locks a group and reads who is in it. Places whose owner has ended are given up when met (CON-3).
func lockGroup(ctx context.Context, tx *store.Tx, scope groupScope) (*group, error) {
	if err := tx.LockGroup(ctx, scope.org, scope.routingKey, scope.key); err != nil {
		return nil, fmt.Errorf("lock group: %w", err)
	}
	rows, err := tx.GroupSlots(ctx, scope.org, scope.routingKey, scope.key)
	if err != nil {
		return nil, fmt.Errorf("read group: %w", err)
	}
	g := &group{tx: tx, ctx: ctx, scope: scope}
	for _, r := range rows {
		if !r.RunFinishedAt.Valid && !r.JobFinishedAt.Valid {
			g.slots = append(g.slots, r)
			continue
		}
		if _, err := tx.ReleaseSlot(ctx, r.ID); err != nil {
			return nil, fmt.Errorf("give up place: %w", err)
		}
	}
	return g, nil
}

func (g *group) places() []plan.Place {
	out := make([]plan.Place, len(g.slots))
	for i, s := range g.slots {
		out[i] = plan.Place{
			ID: s.ID, Max: int(s.Max), Active: s.State == slotActive,
			Leaving: s.SupersededBy != "" || s.RunStatus == string(ci.RunCancelling) || s.JobStatus.String == string(ci.JobCancelling),
		}
	}
	return out
}

// promote gives free places to those who wait. Their runs are not locked here, so they go on in a transaction of their own.
func (g *group) promote() error {
	for _, id := range plan.Promote(g.places()) {
		if _, err := g.tx.PromoteSlot(g.ctx, id, nullInt(g.tx.Now())); err != nil {
			return fmt.Errorf("give place: %w", err)
		}
		g.tx.Notify(store.TopicGroups, "")
	}
	return nil
}

// supersede writes down who is to be ended for a newcomer.
func (g *group) supersede(ids []string, by string) error {
	if len(ids) == 0 {
		return nil
	}
	state := make(map[string]string, len(g.slots))
	for _, s := range g.slots {
		state[s.ID] = s.State
	}
	waiting := false
	for _, id := range ids {
		if state[id] == slotQueued {
			waiting = true
			continue
		}
		if _, err := g.tx.SupersedeSlot(g.ctx, id, by); err != nil {
			return fmt.Errorf("supersede: %w", err)
		}
	}
	if waiting { // all of them
		_, err := g.tx.SupersedeWaiting(g.ctx, db.SupersedeWaitingParams{
			SupersededBy: by, OrgID: g.scope.org, RoutingKey: g.scope.routingKey, GroupKey: g.scope.key,
		})
		if err != nil {
			return fmt.Errorf("supersede: %w", err)
		}
	}
	g.tx.Notify(store.TopicGroups, "")
	return nil
}

// who says who holds the group and how many wait, for people.
func (g *group) who() string {
	var holder string
	held, waiting := 0, 0
	for _, s := range g.slots {
		if s.State != slotActive {
			waiting++
			continue
		}
		if held++; holder == "" {
			holder = slotOwner(s.Number, s.JobName.String)
		}
	}
	text := "nobody holds it"
	switch {
	case held == 1:
		text = holder + " holds it"
	case held > 1:
		text = fmt.Sprintf("%s and %d more hold it", holder, held-1)
	}
	if waiting > 0 {
		text += fmt.Sprintf(", %d wait before it", waiting)
	}
	return text
}

func slotOwner(number int64, job string) string {
	if job == "" {
		return fmt.Sprintf("run #%d", number)
	}
	return fmt.Sprintf("job %q of run #%d", job, number)
}

// join asks for a place in a concurrency group, for one of the run's jobs or, where job is nil, for the run. It reports whether the
// owner may go on now. Asking again is harmless (CON-3). A run that holds the group covers its jobs, which would wait for it for
// ever otherwise.
func (l *life) join(job *db.LockJobRow, want plan.Group) (bool, error) {
	var jobID, name string
	if job != nil {
		jobID, name = job.ID, job.Name
		if job.Slots > 0 {
			slot, found, err := l.slot(jobID)
			return found && slot.State == slotActive, err
		}
	}
	g, err := lockGroup(l.ctx, l.tx, groupScope{l.run.OrgID, l.run.RoutingKey, want.Key})
	if err != nil {
		return false, err
	}
	for _, s := range g.slots {
		if job != nil && s.RunID == l.run.ID && s.JobID == "" {
			return true, nil
		}
	}
	active, superseded := plan.Join(g.places(), want)
	if err := g.supersede(superseded, slotOwner(l.run.Number, name)); err != nil {
		return false, err
	}
	row := db.InsertSlotParams{
		ID: l.s.env.NewID(), OrgID: l.run.OrgID, RoutingKey: l.run.RoutingKey, GroupKey: want.Key, RunID: l.run.ID, JobID: jobID,
		Max: int64(want.Max), State: slotActive, CreatedAt: l.now, ActivatedAt: nullInt(l.now), Begun: true,
	}
	if !active {
		row.State, row.ActivatedAt, row.Begun = slotQueued, sql.NullInt64{}, false
		if wait := l.s.limits(l.run.OrgID).ConcurrencyWait; wait > 0 {
			row.WaitUntil = nullInt(l.now + wait.Milliseconds())
		}
	}
	if err := l.tx.InsertSlot(l.ctx, row); err != nil {
		return false, fmt.Errorf("take place: %w", err)
	}
	if active {
		return true, nil
	}
	return false, l.note(ci.NoteHeld, jobID, byKici, fmt.Sprintf("waits for concurrency group %q: %s", want.Key, g.who()))
}

// slot is the place of the run, or of one of its jobs.
func (l *life) slot(jobID string) (s db.ConcurrencySlot, found bool, err error) {
	s, err = l.tx.SlotOf(l.ctx, l.run.ID, jobID)
	if errors.Is(err, sql.ErrNoRows) {
		return s, false, nil
	}
	if err != nil {
		return s, false, fmt.Errorf("read place: %w", err)
	}
	return s, true, nil
}

// release gives a place up and lets the next go on, in the transaction that ends its owner.
func (l *life) release(s db.ConcurrencySlot) error {
	g, err := lockGroup(l.ctx, l.tx, scopeOf(s))
	if err != nil {
		return err
	}
	if _, err := l.tx.ReleaseSlot(l.ctx, s.ID); err != nil {
		return fmt.Errorf("give up place: %w", err)
	}
	for i := range g.slots {
		if g.slots[i].ID == s.ID {
			g.slots = append(g.slots[:i], g.slots[i+1:]...)
			break
		}
	}
	return g.promote()
}

// releaseJob gives up the place of a job that has ended.
func (l *life) releaseJob(jobID string) error {
	s, found, err := l.slot(jobID)
	if err != nil || !found {
		return err
	}
	return l.release(s)
}

// releaseRun gives up every place that the run and its jobs still have.
func (l *life) releaseRun() error {
	slots, err := l.tx.OpenSlotsOfRun(l.ctx, l.run.ID)
	if err != nil {
		return fmt.Errorf("read places: %w", err)
	}
	for _, s := range slots {
		if err := l.release(s); err != nil {
			return err
		}
	}
	return nil
}

// waited says how long a place was waited for.
func (l *life) waited(s db.ConcurrencySlot) time.Duration {
	return (time.Duration(l.now-s.CreatedAt) * time.Millisecond).Round(time.Second)
}
