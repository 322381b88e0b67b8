package check

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
)

// One pass ends well before its lease does, so that nobody else posts for the run meanwhile.
const (
	lease    = 90 * time.Second
	passTime = 60 * time.Second // no post begins later
	postTime = 15 * time.Second // one request
	busyWait = time.Second      // while another run posts under the same names
)

// view is what a pass has read of its run.
type view struct {
	run        Run
	orgID      string
	seen, done int64 // checks_changed, checks_done
	jobs       []Job
	posted     map[string]Posted
	rows       map[string]db.CommitStatusesRow
}

// result is what became of a status. One that was not tried waits for its source.
type result struct {
	post  Post
	err   error
	tried bool
}

// pass brings the statuses of one run up to date: claim, observe, decide, post, record. Dying between a post and its record
// posts the same once more, which changes nothing.
func (s *Service) pass(ctx context.Context, r db.ChecksDueRow) error {
	until, err := s.claim(ctx, r.ID)
	if err != nil || until == 0 {
		return err
	}
	v, err := s.observe(ctx, r.ID)
	if err != nil {
		return errors.Join(err, s.release(ctx, r.ID, until))
	}
	reporter, show, err := s.d.Sources.Reporter(ctx, r.OrgID, r.RoutingKey)
	if err != nil && !errors.Is(err, source.ErrMisconfigured) {
		return errors.Join(fmt.Errorf("find source: %w", err), s.release(ctx, r.ID, until))
	}
	if err == nil && reporter == nil {
		err = errGone
	}
	posts := Plan(v.run, v.jobs, v.posted, Options{Show: show, BaseURL: s.d.BaseURL()})
	results := s.post(ctx, target{reporter, err, r.RoutingKey}, posts)
	return s.record(ctx, v, until, outcome{results: results, rest: len(results) < len(posts), key: r.RoutingKey})
}

// claim takes the lease of a run and returns until when, 0 when there is nothing to do: somebody else has it, or a newer run of the same
// workflow at the same commit shows itself under the same names. The rows of both are locked, so one of two passes sees the other.
func (s *Service) claim(ctx context.Context, id string) (until int64, err error) {
	err = s.d.Store.Write(ctx, func(tx *store.Tx) error {
		until = 0
		run, err := tx.ChecksKey(ctx, id)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		} else if err != nil {
			return err
		}
		rivals, err := tx.LockCheckRivals(ctx, db.LockCheckRivalsParams{
			RoutingKey: run.RoutingKey, Repo: run.Repo, Sha: run.Sha, Workflow: run.Workflow,
		})
		if err != nil || len(rivals) == 0 {
			return err
		}
		now := tx.Now()
		switch decideClaim(rivals, id, now) {
		case claimSuperseded:
			return supersede(ctx, tx, id, rivals[0].Number)
		case claimBusy:
			_, err = tx.DeferChecks(ctx, id, now+busyWait.Milliseconds())
		case claimTake:
			until = now + lease.Milliseconds()
			_, err = tx.ClaimChecks(ctx, id, until)
		case claimNothing:
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("claim: %w", err)
	}
	return until, nil
}

type claimKind int

const (
	claimNothing claimKind = iota + 1
	claimBusy
	claimSuperseded
	claimTake
)

// decideClaim judges the newest runs of one name; id may be older than all of them.
func decideClaim(rivals []db.LockCheckRivalsRow, id string, now int64) claimKind {
	kind := claimSuperseded
	for i, r := range rivals {
		switch {
		case r.ID == id && (r.ChecksLease > now || r.ChecksDueAt > now || r.ChecksChanged <= r.ChecksDone):
			return claimNothing
		case r.ID == id && i == 0:
			kind = claimTake
		}
	}
	if kind == claimTake {
		for _, r := range rivals {
			if r.ID != id && r.ChecksLease > now {
				return claimBusy
			}
		}
	}
	return kind
}

func supersede(ctx context.Context, tx *store.Tx, id string, newer int64) error {
	if _, err := tx.SupersedeChecks(ctx, id); err != nil {
		return err
	}
	_, err := tx.SupersedeStatuses(ctx, id, fmt.Sprintf("superseded: run #%d of the same commit is shown here", newer))
	return err
}

// observe reads the run, its jobs and what was posted, as they are at one moment.
func (s *Service) observe(ctx context.Context, id string) (v view, err error) {
	err = s.d.Store.Snapshot(ctx, func(tx *store.Tx) error {
		v = view{posted: map[string]Posted{}, rows: map[string]db.CommitStatusesRow{}}
		r, err := tx.CheckRun(ctx, id)
		if err != nil {
			return err
		}
		v.orgID, v.seen, v.done = r.OrgID, r.ChecksChanged, r.ChecksDone
		v.run = Run{
			ID: r.ID, Workflow: r.Workflow, SHA: r.Sha, Status: ci.RunStatus(r.Status), InitFailure: r.InitFailure, Reason: r.FailureReason,
			CreatedAt: r.CreatedAt, FinishedAt: r.FinishedAt.Int64,
		}
		if v.jobs, err = readJobs(ctx, tx, id); err != nil {
			return err
		}
		rows, err := tx.CommitStatuses(ctx, id)
		for _, x := range rows {
			v.rows[x.Context] = x
			v.posted[x.Context] = Posted{
				State: source.StatusState(x.State), Description: x.Description, Wanted: source.StatusState(x.Wanted), GaveUp: x.GaveUpAt.Valid,
			}
		}
		return err
	})
	if err != nil {
		return v, fmt.Errorf("read run: %w", err)
	}
	return v, nil
}

func readJobs(ctx context.Context, tx *store.Tx, runID string) ([]Job, error) {
	rows, err := tx.CheckJobs(ctx, runID)
	if err != nil {
		return nil, err
	}
	jobs := make([]Job, len(rows))
	place, failed := map[string]int{}, false
	for i, x := range rows {
		jobs[i] = Job{
			ID: x.ID, Name: x.Name, Status: ci.JobStatus(x.Status), Allowed: x.AllowedFailure, Lost: x.Lost, InitFailure: x.InitFailure, Error: x.Error,
			StartedAt: x.StartedAt.Int64, FinishedAt: x.FinishedAt.Int64,
		}
		place[x.ID] = i
		failed = failed || jobs[i].Status == ci.JobFailed
	}
	if !failed {
		return jobs, nil
	}
	steps, err := tx.CheckFailedSteps(ctx, runID)
	for _, x := range steps {
		j := &jobs[place[x.JobID]]
		if j.Step != nil {
			continue
		}
		j.Step = &Step{Index: x.Idx, Name: x.Name}
		if x.ExitCode.Valid {
			j.Step.Exit = &x.ExitCode.Int64
		}
	}
	return jobs, err
}

// target is where statuses go; err is why they cannot.
type target struct {
	reporter source.Reporter
	err      error
	key      string // routing key
}

// post reports the statuses one after the other. It stops where going on makes no sense, and what follows has the same result;
// it returns fewer results than posts when its time is over or ctx has ended.
func (s *Service) post(ctx context.Context, to target, posts []Post) []result {
	results := make([]result, 0, len(posts))
	began := s.d.Env.Now()
	for i, p := range posts {
		now := s.d.Env.Now()
		if now.Sub(began) > passTime || ctx.Err() != nil {
			return results
		}
		_, err := s.gates.check(to.key, now)
		r := result{post: p, err: err}
		if err == nil {
			r.tried = true
			r.err = s.postOne(ctx, to, p)
		}
		if r.err != nil && ctx.Err() != nil {
			return results
		}
		results = append(results, r)
		if r.err != nil && reasonOf(r.err).ofRun() {
			for _, p := range posts[i+1:] {
				results = append(results, result{post: p, err: r.err, tried: r.tried})
			}
			return results
		}
	}
	return results
}

func (s *Service) postOne(ctx context.Context, to target, p Post) error {
	err := to.err
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, postTime)
		err = to.reporter.ReportStatus(ctx, p.CommitStatus)
		cancel()
	}
	now := s.d.Env.Now()
	switch {
	case err == nil:
		s.gates.open(to.key, now)
	case ctx.Err() == nil:
		why := reasonOf(err)
		s.d.Metrics.CheckFailures.WithLabelValues(string(why)).Inc()
		if why.ofSource() {
			s.gates.shut(to.key, now, err)
		}
	}
	return err
}
