package run

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
	"github.com/kici-go/kici/internal/workflow"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// RerunRequest asks for a finished run to be run again (PIPE-24).
type RerunRequest struct {
	OrgID      string
	RoutingKey string // the token's; "" = any
	RunID      string
	By         string
	RequestID  string // Idempotency-Key: a repeat gets the first request's run (PIPE-27); "" never repeats
	FailedOnly bool   // only the jobs that did not succeed, and those that need them; the others keep their results
}

// RerunResult is the run that the request made, now or the first time it was sent.
type RerunResult struct {
	RunID   string
	Created bool
}

const (
	triggerRerun     = "rerun"
	idempotencyTTLMs = 60 * 60 * 1000
)

// Rerun makes a new run of the same workflow, commit, event, inputs and trust tier. The workflow is the original's stored
// lock entry: a commit does not change, so fetching it again would only add a way to fail.
func (s *Service) Rerun(ctx context.Context, req RerunRequest) (RerunResult, error) {
	var res RerunResult
	err := s.st.Write(ctx, func(tx *store.Tx) error {
		var err error
		res, err = s.RerunTx(tx, req)
		return err
	})
	return res, err
}

// RerunTx is Rerun in the caller's transaction.
func (s *Service) RerunTx(tx *store.Tx, req RerunRequest) (RerunResult, error) {
	ctx := context.Background()
	key := "rerun:" + req.RunID + ":" + req.RequestID
	if req.RequestID != "" {
		first, err := s.claimed(ctx, tx, req.OrgID, key)
		if err != nil || first != "" {
			return RerunResult{RunID: first}, err
		}
	}
	old, err := s.forRerun(ctx, tx, req)
	if err != nil {
		return RerunResult{}, err
	}
	p, err := s.planRerun(ctx, tx, req, old)
	if err != nil {
		return RerunResult{}, err
	}
	if req.RequestID != "" {
		rows, err := tx.InsertIdempotencyKey(ctx, db.InsertIdempotencyKeyParams{
			OrgID: req.OrgID, Key: key, Result: p.RunID, ExpiresAt: tx.Now() + idempotencyTTLMs,
		})
		if err != nil {
			return RerunResult{}, fmt.Errorf("claim request: %w", err)
		}
		if rows == 0 { // the same request on another coordinator was faster
			first, err := s.claimed(ctx, tx, req.OrgID, key)
			return RerunResult{RunID: first}, err
		}
	}
	id, created, err := s.Insert(tx, p)
	if err != nil {
		return RerunResult{}, err
	}
	return RerunResult{RunID: id, Created: created}, nil
}

// claimed returns the run that an earlier request of this key made.
func (s *Service) claimed(ctx context.Context, tx *store.Tx, org, key string) (string, error) {
	id, err := tx.IdempotencyResult(ctx, org, key)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look for an earlier request: %w", err)
	}
	return id, nil
}

func (s *Service) forRerun(ctx context.Context, tx *store.Tx, req RerunRequest) (db.RunForRerunRow, error) {
	old, err := tx.RunForRerun(ctx, req.RunID, req.OrgID)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return old, ErrNotFound
	case err != nil:
		return old, fmt.Errorf("read run: %w", err)
	case req.RoutingKey != "" && old.RoutingKey != req.RoutingKey:
		return old, ErrScope
	case !ci.RunStatus(old.Status).Terminal():
		return old, ErrNotTerminal
	case old.LockEntry == "":
		return old, fmt.Errorf("%w: its workflow could not be read at that commit, and a commit does not change", ErrNotRerunnable)
	}
	return old, nil
}

func (s *Service) planRerun(ctx context.Context, tx *store.Tx, req RerunRequest, old db.RunForRerunRow) (Planned, error) {
	n := New{
		OrgID: old.OrgID, RoutingKey: old.RoutingKey, Repo: old.Repo, TriggerEvent: triggerRerun, Actor: req.By, DeliveryRow: old.DeliveryID,
		TrustTier: ci.TrustTier(old.TrustTier), ParentRunID: old.ID, OriginalRunID: old.ID, Checks: old.ChecksChanged > 0,
	}
	if old.OriginalRunID.Valid {
		n.OriginalRunID = old.OriginalRunID.String
	}
	if err := decodeRun(old, &n); err != nil {
		return Planned{}, err
	}
	if _, _, err := s.open(ctx, tx, n.OriginalRunID); err != nil { // two reruns at once count one after the other
		return Planned{}, err
	}
	earlier, err := tx.CountReruns(ctx, nullText(n.OriginalRunID))
	if err != nil {
		return Planned{}, fmt.Errorf("count reruns: %w", err)
	}
	n.Attempt = earlier + 2
	p := s.Plan(n)
	if !req.FailedOnly {
		return p, nil
	}
	jobs, err := tx.RunJobs(ctx, old.ID)
	if err != nil {
		return Planned{}, fmt.Errorf("read jobs: %w", err)
	}
	additions, err := tx.JobAdditionsOfRun(ctx, old.ID)
	if err != nil {
		return Planned{}, fmt.Errorf("read added jobs: %w", err)
	}
	if !p.keepResults(jobs, addersOfBad(jobs, additions)) {
		return Planned{}, fmt.Errorf("%w: every job of it succeeded, so there is nothing to run again; run all of it instead", ErrNotRerunnable)
	}
	return p, nil
}

func decodeRun(old db.RunForRerunRow, n *New) error {
	var w lock.Workflow
	var d workflow.Decision
	for text, into := range map[string]any{old.Event: &n.Event, old.Inputs: &n.Inputs, old.LockEntry: &w, old.MatchedTrigger: &d} {
		if text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(text), into); err != nil {
			return fmt.Errorf("decode run: %w", err)
		}
	}
	n.Workflow, n.Decision = w, d
	return nil
}

// keepResults lets the jobs keep the result they had that ended well, or were skipped, and need no job that runs again. It
// reports whether any job is left to run. redo names jobs that run again whatever they came to.
func (p *Planned) keepResults(old []db.RunJobsRow, redo map[string]bool) bool {
	before := map[string]db.RunJobsRow{}
	for _, j := range old {
		before[j.Name] = j
	}
	again := make([]bool, len(p.Jobs))
	some := false
	for i, j := range p.Jobs {
		o, had := before[j.Name]
		again[i] = !had || redo[j.Name] || bad(o)
		some = some || again[i]
	}
	if !some {
		return false
	}
	p.spread(again)
	p.copied = map[int]copiedResult{}
	var kept []string
	for i := range p.Jobs {
		j := &p.Jobs[i]
		if o := before[j.Name]; !again[i] {
			j.Failure = nil
			p.copied[i] = copiedResult{
				status: ci.JobStatus(o.Status), allowed: o.AllowedFailure, outputs: o.Outputs, message: o.Error,
				startedAt: o.StartedAt.Int64, finished: o.FinishedAt.Int64,
			}
			kept = append(kept, j.Name)
		}
	}
	if len(kept) > 0 {
		p.Warnings = append(p.Warnings, clip("not run again, with the result of the earlier run: "+strings.Join(kept, ", "), 1000))
	}
	return true
}

func bad(j db.RunJobsRow) bool {
	return ci.JobStatus(j.Status) == ci.JobCancelled || ci.JobStatus(j.Status).Failure() && !j.AllowedFailure
}

// addersOfBad names the jobs whose steps added a job that did not end well, directly or through others: the new run has the added
// jobs only when they are added again.
func addersOfBad(jobs []db.RunJobsRow, additions []db.JobAdditionsOfRunRow) map[string]bool {
	redo, name := map[string]bool{}, map[string]string{}
	for _, j := range jobs {
		redo[j.Name], name[j.ID] = bad(j), j.Name
	}
	for grew := true; grew; {
		grew = false
		for _, a := range additions {
			var added []string
			_ = json.Unmarshal([]byte(a.Jobs), &added) // our own JSON
			by := name[a.ByJobID]
			if !redo[by] && slices.ContainsFunc(added, func(n string) bool { return redo[n] }) {
				redo[by], grew = true, true
			}
		}
	}
	return redo
}

// spread adds to again what needs, directly or through others, something that is in it.
func (p *Planned) spread(again []bool) {
	for grew := true; grew; {
		grew = false
		for _, e := range p.Edges {
			if !slices.Contains(again[e.Needs.From:e.Needs.To], true) {
				continue
			}
			for i := e.Job.From; i < e.Job.To; i++ {
				grew = grew || !again[i]
				again[i] = true
			}
		}
	}
}
