package run

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// ClearRequest asks for the end of everything that waits (QUE-20).
type ClearRequest struct {
	OrgID  string
	By     string // who, for people
	DryRun bool   // only count
}

// Cleared is what was ended, or would be.
type Cleared struct {
	Runs int // cancelled as a whole: none of their jobs had begun
	Jobs int // cancelled, those of these runs among them
}

// ClearQueue cancels the jobs that wait for an agent, and whole runs of which nothing has begun, those that wait for a concurrency
// group among them. What an agent has is left alone, and so is the rest of its run. Rows stay, with who did it.
func (s *Service) ClearQueue(ctx context.Context, req ClearRequest) (Cleared, error) {
	var out Cleared
	for after := ""; ; {
		rows, err := s.st.Read().ClearableRuns(ctx, req.OrgID, after)
		if err != nil {
			return out, fmt.Errorf("list waiting runs: %w", err)
		}
		if len(rows) == 0 {
			return out, nil
		}
		for _, r := range rows {
			after = r.ID
			did := Cleared{Jobs: int(r.Waiting)}
			if r.Begun == 0 {
				did = Cleared{Runs: 1, Jobs: int(r.OpenJobs)}
			}
			if !req.DryRun {
				err := s.st.Write(ctx, func(tx *store.Tx) (err error) {
					did, err = s.clearRun(tx, r.ID, req.By)
					return err
				})
				if err != nil {
					return out, fmt.Errorf("clear run %s: %w", r.ID, err)
				}
			}
			out.Runs, out.Jobs = out.Runs+did.Runs, out.Jobs+did.Jobs
		}
	}
}

func (s *Service) clearRun(tx *store.Tx, runID, by string) (Cleared, error) {
	l, found, err := s.open(context.Background(), tx, runID)
	if err != nil || !found || ci.RunStatus(l.run.Status).Terminal() || l.run.Status == string(ci.RunCancelling) {
		return Cleared{}, err
	}
	jobs, err := tx.LockOpenJobs(l.ctx, runID)
	if err != nil {
		return Cleared{}, fmt.Errorf("lock open jobs: %w", err)
	}
	req := CancelRequest{By: by, Reason: "the queue was cleared by " + by}
	var waiting []db.LockOpenJobsRow
	begun := false
	for _, j := range jobs {
		begun = begun || j.StartedAt.Valid || j.AgentID.Valid
		if j.Status == string(ci.JobQueued) && !j.AgentID.Valid {
			waiting = append(waiting, j)
		}
	}
	if !begun {
		res, err := l.cancel(req)
		return Cleared{Runs: 1, Jobs: res.Cancelled}, err
	}
	for _, j := range waiting {
		if _, err := l.cancelOne(j, req); err != nil {
			return Cleared{}, err
		}
	}
	if len(waiting) > 0 {
		if err := l.note(ci.NoteCancelAsked, "", by, fmt.Sprintf("the queue was cleared: %d of its jobs waited", len(waiting))); err != nil {
			return Cleared{}, err
		}
	}
	return Cleared{Jobs: len(waiting)}, l.settle()
}

// PurgeRequest asks for the end of runs that stand still.
type PurgeRequest struct {
	OrgID  string
	By     string
	Idle   time.Duration // nothing of it has moved for so long
	DryRun bool
}

// Standing is a run that stands still.
type Standing struct {
	RunID, Repo, Workflow string
	Number                int64
	Status                ci.RunStatus
	CreatedAt             int64
}

const maxPurged = 2000

// PurgeStale ends runs of which nothing has moved for a long time, without waiting for agents; it is for what no duty of the
// orchestrator ends. It returns them, at most 2,000 at once.
func (s *Service) PurgeStale(ctx context.Context, req PurgeRequest) ([]Standing, error) {
	out := []Standing{}
	before := s.env.NowMs() - req.Idle.Milliseconds()
	for after := ""; len(out) < maxPurged; {
		rows, err := s.st.Read().StandingRuns(ctx, req.OrgID, after, before)
		if err != nil {
			return out, fmt.Errorf("list standing runs: %w", err)
		}
		if len(rows) == 0 {
			break
		}
		for _, r := range rows {
			after = r.ID
			if !req.DryRun {
				if err := s.st.Write(ctx, func(tx *store.Tx) error { return s.purge(tx, r.ID, req) }); err != nil {
					return out, fmt.Errorf("end run %s: %w", r.ID, err)
				}
			}
			out = append(out, Standing{r.ID, r.Repo, r.Workflow, r.Number, ci.RunStatus(r.Status), r.CreatedAt})
		}
	}
	return out, nil
}

func (s *Service) purge(tx *store.Tx, runID string, req PurgeRequest) error {
	_, err := s.CancelTx(tx, CancelRequest{RunID: runID, By: req.By, Force: true, Reason: fmt.Sprintf("ended by %s: nothing of it had moved for %s", req.By, req.Idle)})
	if errors.Is(err, ErrTerminal) || errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	agents, err := s.DriveCancel(tx, runID, true)
	if err != nil {
		return err
	}
	for _, id := range agents {
		node, err := tx.DispatchEndAgent(context.Background(), tx.Now(), ci.GoneUnresponsive, id)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return fmt.Errorf("end agent: %w", err)
		}
		tx.Notify(store.TopicAgents, node)
		tx.Notify(store.TopicAssignments, id)
	}
	return nil
}
