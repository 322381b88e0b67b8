package read_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/api/read/readtest"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/store/storetest"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// model makes random moves with one run, as dispatch, agents and people do.
type model struct {
	w     *readtest.World
	runID string
}

func (m *model) jobs() []db.ExecutionJob {
	rows, err := m.w.Store.Read().WholeJobs(context.Background(), m.runID)
	if err != nil {
		panic(err)
	}
	return rows
}

func (m *model) assign(j db.ExecutionJob) {
	agent := "agent-" + ci.RandomHex(6)
	m.w.Agent(agent, "")
	m.w.Online(agent)
	m.w.Write(func(tx *store.Tx) error {
		attempt, err := tx.DispatchAssign(context.Background(), sql.NullString{String: agent, Valid: true}, j.ID)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		} else if err != nil {
			return err
		}
		return tx.DispatchInsertAssignment(context.Background(), db.DispatchInsertAssignmentParams{
			JobID: j.ID, Attempt: attempt, RunID: m.runID, AgentID: agent, CreatedAt: tx.Now(), AckBy: tx.Now() + 10_000,
		})
	})
}

func (m *model) move(rt *rapid.T, j db.ExecutionJob) {
	runs, agent, attempt := m.w.Runs, j.AgentID.String, int(j.Attempt)
	moves := map[string]func(*store.Tx) error{
		"start": func(tx *store.Tx) error {
			_, err := runs.Started(tx, wire.JobStatus{Seq: 1, RunID: m.runID, JobID: j.ID, Attempt: attempt, Status: "running"}, agent)
			return err
		},
		"requeue": func(tx *store.Tx) error { _, err := runs.Requeue(tx, j.ID, attempt, "not_acked", true); return err },
		"recover": func(tx *store.Tx) error { _, err := runs.Recover(tx, j.ID, attempt, tx.Now()+60_000); return err },
		"back":    func(tx *store.Tx) error { _, err := runs.Recovered(tx, j.ID, attempt, agent); return err },
		"lost":    func(tx *store.Tx) error { _, err := runs.Lost(tx, j.ID, attempt, "agent is lost"); return err },
		"succeed": func(tx *store.Tx) error {
			_, err := runs.Finish(tx, run.End{JobID: j.ID, Attempt: attempt, AgentID: agent, Status: ci.JobSuccess, Seq: 2})
			return err
		},
		"fail": func(tx *store.Tx) error {
			_, err := runs.Finish(tx, run.End{JobID: j.ID, Attempt: attempt, AgentID: agent, Status: ci.JobFailed, Seq: 2})
			return err
		},
		"cancel": func(tx *store.Tx) error {
			_, err := runs.CancelTx(tx, run.CancelRequest{OrgID: readtest.Org, RunID: m.runID, By: "ada"})
			if errors.Is(err, run.ErrTerminal) {
				return nil
			}
			return err
		},
	}
	names := []string{"start", "start", "requeue", "recover", "recover", "back", "lost", "succeed", "succeed", "fail", "cancel"}
	if !j.AgentID.Valid {
		names = []string{"assign", "assign", "assign", "cancel"}
	}
	switch name := rapid.SampledFrom(names).Draw(rt, "move"); name {
	case "assign":
		if j.Status == string(ci.JobQueued) {
			m.assign(j)
		}
	default:
		m.w.Write(moves[name])
	}
}

// proof is the kind of entry that tells of a change, and whether it stands on the run instead of the job.
func proof(before, after db.ExecutionJob) (kind string, ofRun bool) {
	switch to := ci.JobStatus(after.Status); {
	case before.AgentID != after.AgentID && after.AgentID.Valid:
		return "assigned", false
	case before.AgentID.Valid && !after.AgentID.Valid:
		return "requeued", false
	case before.Status == after.Status:
		return "", false
	case to.Terminal():
		return "finished", false
	case to == ci.JobQueued:
		return "queued", false
	case to == ci.JobRunning && before.Status == string(ci.JobRecovering):
		return "link_back", false
	case to == ci.JobRunning:
		return "started", false
	case to == ci.JobRecovering:
		return "link_lost", false
	case to == ci.JobHeld:
		return "held", false
	case to == ci.JobCancelling:
		return "cancel_asked", true
	}
	return "unknown change to " + after.Status, false
}

// Nothing that happened to a job is missing from the timeline: each change of its status, and of its agent, has an entry.
func TestTimelineMissesNothing(t *testing.T) {
	st := storetest.SQLite(t)
	w := readtest.New(t, st)
	r := reads(st)
	rapid.Check(t, func(rt *rapid.T) {
		jobs := []lock.Job{readtest.Job("a"), readtest.Job("b", "a"), readtest.Job("c")}
		m := &model{w: w, runID: w.Run(readtest.NewRun{Jobs: jobs})}
		need := map[string]int{}
		before := make([]db.ExecutionJob, 3)
		for step := 0; step < 25; step++ {
			after := m.jobs()
			for i, j := range after {
				if before[i].ID == "" {
					before[i].Status = string(ci.JobPending)
				}
				kind, ofRun := proof(before[i], j)
				if kind != "" && !ofRun {
					need[kind+" "+j.ID]++
				} else if ofRun {
					need[kind+" "] = 1
				}
			}
			before = after
			m.move(rt, after[rapid.IntRange(0, 2).Draw(rt, "job")])
		}
		out, err := r.Timeline(context.Background(), scope, m.runID, read.TimelineFilter{Limit: 1000})
		if err != nil {
			rt.Fatal(err)
		}
		have := map[string]int{}
		for _, e := range out.Entries {
			have[e.Kind+" "+e.JobID]++
		}
		for what, n := range need {
			if have[what] < n {
				rt.Fatalf("%s happened %d times, the timeline has it %d times: %+v", what, n, have[what], out.Entries)
			}
		}
	})
}

// A timeline comes in pages, can be of one job, and is only for those who may see the run.
func TestTimelinePages(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		w := readtest.New(t, st)
		r := reads(st)
		id := w.Run(readtest.NewRun{Jobs: []lock.Job{readtest.Job("a"), readtest.Job("b", "a")}})
		job := w.JobID(id, "a")
		w.Scaler(2)
		w.Agent("scaler-bare-metal-1", job)
		w.Online("scaler-bare-metal-1")
		w.Assign(id, job, "scaler-bare-metal-1")
		w.Start(id, job, "scaler-bare-metal-1")
		w.Finish(job, "scaler-bare-metal-1", ci.JobSuccess)
		ctx := context.Background()
		all, err := r.Timeline(ctx, scope, id, read.TimelineFilter{})
		if err != nil || len(all.Entries) < 10 || all.NextCursor != "" {
			t.Fatalf("%+v, %v", all, err)
		}
		var paged []client.TimelineEntry
		f := read.TimelineFilter{Limit: 3}
		for range 100 {
			page, err := r.Timeline(ctx, scope, id, f)
			if err != nil || len(page.Entries) > 3 {
				t.Fatalf("%+v, %v", page, err)
			}
			paged = append(paged, page.Entries...)
			if f.Cursor = page.NextCursor; f.Cursor == "" {
				break
			}
		}
		if d := cmp.Diff(all.Entries, paged); d != "" {
			t.Errorf("pages are not the whole: %s", d)
		}
		one, err := r.Timeline(ctx, scope, id, read.TimelineFilter{Job: "b"})
		if err != nil || len(one.Entries) == 0 {
			t.Fatalf("%+v, %v", one, err)
		}
		for _, e := range one.Entries {
			if e.Job != "b" {
				t.Errorf("an entry of %q", e.Job)
			}
		}
		if _, err := r.Timeline(ctx, scope, id, read.TimelineFilter{Job: "nobody"}); !errors.Is(err, read.ErrNotFound) {
			t.Errorf("an unknown job: %v", err)
		}
		if _, err := r.Timeline(ctx, read.Scope{OrgID: readtest.Org, RoutingKey: readtest.Other}, id, f); !errors.Is(err, read.ErrForbidden) {
			t.Errorf("another source's: %v", err)
		}
		if _, err := r.Timeline(ctx, read.Scope{OrgID: "other"}, id, f); !errors.Is(err, read.ErrNotFound) {
			t.Errorf("another organisation's: %v", err)
		}
		if _, err := r.Timeline(ctx, scope, id, read.TimelineFilter{Cursor: "junk!"}); !errors.Is(err, read.ErrInvalid) {
			t.Errorf("a made-up cursor: %v", err)
		}
	})
}
