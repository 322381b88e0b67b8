// Package readtest fills a real store with a small world that reads, the API and the dashboard can be tested against: runs made
// by the run room, agents and scalers as placement and the node write them.
package readtest

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/obs"
	"github.com/kici-go/kici/internal/placement"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/service"
	"github.com/kici-go/kici/internal/store"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// Names in the world.
const (
	Org   = "default"
	Repo  = "acme/shop"
	Key   = "generic:default:shop"
	Other = "generic:default:site" // another source of the same organisation
	Node  = "node-1"
)

// World is a store with an organisation.
type World struct {
	t     testing.TB
	Store *store.Store
	Runs  *run.Service
	Env   service.Env
}

// New returns a world over an empty store.
func New(t testing.TB, st *store.Store) *World {
	t.Helper()
	w := &World{t: t, Store: st}
	w.Env = service.Env{Now: time.Now, NewID: ci.NewID}
	w.Runs = run.NewService(st, run.DefaultSettings(), w.Env, obs.Discard())
	w.Write(func(tx *store.Tx) error { return tx.InsertOrg(context.Background(), Org, 1) })
	return w
}

// Write is one transaction that must succeed.
func (w *World) Write(f func(*store.Tx) error) {
	w.t.Helper()
	if err := w.Store.Write(context.Background(), f); err != nil {
		w.t.Fatal(err)
	}
}

// Job is a job of a plain workflow.
func Job(name string, needs ...string) lock.Job {
	j := lock.Job{
		Name: name, RunsOn: lock.Selector{Labels: []string{"linux"}},
		Steps: []lock.Step{{Name: "compile", Run: "make"}, {Run: "make test\necho done"}},
	}
	for _, n := range needs {
		j.Needs = append(j.Needs, lock.Need{Job: n, RunOn: []ci.JobStatus{ci.JobSuccess}})
	}
	return j
}

// NewRun describes a run to insert.
type NewRun struct {
	Repo, Key, Workflow, Branch, Title string
	Jobs                               []lock.Job
	Checks                             bool // its source shows commit statuses
	Concurrency                        *lock.Concurrency
}

// Run inserts a run and returns its id. Empty fields have defaults.
func (w *World) Run(n NewRun) string {
	w.t.Helper()
	or := func(s *string, d string) {
		if *s == "" {
			*s = d
		}
	}
	or(&n.Repo, Repo)
	or(&n.Key, Key)
	or(&n.Workflow, "ci")
	or(&n.Branch, "main")
	or(&n.Title, "fix the thing")
	if n.Jobs == nil {
		n.Jobs = []lock.Job{Job("build")}
	}
	p := w.Runs.Plan(run.New{
		OrgID: Org, RoutingKey: n.Key, Repo: n.Repo, TriggerEvent: "push", Actor: "ada",
		Workflow: lock.Workflow{Name: n.Workflow, SourceFile: ".kici/workflows/ci.yaml", Jobs: n.Jobs, Concurrency: n.Concurrency},
		Event: ci.Event{
			Type: "push", Repo: n.Repo, Ref: "refs/heads/" + n.Branch, Branch: n.Branch, Title: n.Title,
			SHA: "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d",
		},
		Checks: n.Checks,
	})
	var id string
	w.Write(func(tx *store.Tx) (err error) {
		id, _, err = w.Runs.Insert(tx, p)
		return err
	})
	return id
}

// JobID finds a job of a run by name.
func (w *World) JobID(run, name string) string {
	w.t.Helper()
	id, err := w.Store.Read().ReadJobIDByName(context.Background(), run, name)
	if err != nil {
		w.t.Fatalf("job %s: %v", name, err)
	}
	return id
}

// Agent inserts a live agent of the node's scaler "local", bound to a job or warm.
func (w *World) Agent(id, boundJob string) {
	w.t.Helper()
	w.Write(func(tx *store.Tx) error {
		return tx.DispatchLaunch(context.Background(), db.DispatchLaunchParams{
			ID: id, OrgID: Org, NodeID: Node, Scaler: "local", Type: "bare-metal", Labels: `["linux"]`, MandatoryLabels: `[]`,
			CpuMilli: 1000, BoundJobID: sql.NullString{String: boundJob, Valid: boundJob != ""}, Now: tx.Now(),
			RegisterBy: sql.NullInt64{Int64: tx.Now() + 60_000, Valid: true},
		})
	})
}

// Online registers an agent.
func (w *World) Online(id string) {
	w.t.Helper()
	w.Write(func(tx *store.Tx) error {
		_, err := tx.FleetAdmitAgent(context.Background(), db.FleetAdmitAgentParams{
			ID: id, Was: "requested", State: "online", Now: sql.NullInt64{Int64: tx.Now(), Valid: true}, Labels: `["linux"]`,
			MandatoryLabels: `[]`, InstanceID: Node, SessionID: "s-" + id, Host: "hydra", Platform: "linux", Arch: "amd64", Version: "1",
		})
		return err
	})
}

// Assign gives a queued job to an agent.
func (w *World) Assign(runID, jobID, agent string) {
	w.t.Helper()
	w.Write(func(tx *store.Tx) error {
		ctx := context.Background()
		if _, err := tx.DispatchAssign(ctx, sql.NullString{String: agent, Valid: true}, jobID); err != nil {
			return err
		}
		return tx.DispatchInsertAssignment(ctx, db.DispatchInsertAssignmentParams{
			JobID: jobID, Attempt: 1, RunID: runID, AgentID: agent, CreatedAt: tx.Now(), AckBy: tx.Now() + 10_000,
		})
	})
}

// Start makes an assigned job run.
func (w *World) Start(runID, jobID, agent string) {
	w.t.Helper()
	w.Write(func(tx *store.Tx) error {
		_, err := w.Runs.Started(tx, wire.JobStatus{Seq: 1, RunID: runID, JobID: jobID, Attempt: 1, Status: "running"}, agent)
		return err
	})
}

// Step reports a step.
func (w *World) Step(runID, jobID, agent string, s wire.StepStatus) {
	w.t.Helper()
	s.RunID, s.JobID, s.Attempt = runID, jobID, 1
	w.Write(func(tx *store.Tx) error {
		_, err := w.Runs.Step(tx, s, agent)
		return err
	})
}

// Finish ends a running job.
func (w *World) Finish(jobID, agent string, status ci.JobStatus) {
	w.t.Helper()
	w.Write(func(tx *store.Tx) error {
		_, err := w.Runs.Finish(tx, run.End{JobID: jobID, Attempt: 1, AgentID: agent, Status: status, AssignmentReason: "finished", Seq: 100})
		return err
	})
}

// Scaler publishes the node and its scaler "local".
func (w *World) Scaler(maxAgents int64) {
	w.t.Helper()
	spec, err := json.Marshal(placement.ScalerSpec{LabelSets: []placement.LabelSet{{Declared: []string{"linux"}}}, Protections: []string{"jobs see this machine"}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.Write(func(tx *store.Tx) error {
		ctx := context.Background()
		if err := tx.StartInstance(ctx, db.StartInstanceParams{InstanceID: Node, Name: "hydra", Version: "1", Url: "http://x", Now: tx.Now()}); err != nil {
			return err
		}
		return tx.NodePutScaler(ctx, db.NodePutScalerParams{
			NodeID: Node, Name: "local", Type: "bare-metal", Spec: string(spec), MaxAgents: maxAgents, Ready: true, Now: tx.Now(),
		})
	})
}

// Reasons writes why the jobs of a queued job's shape wait.
func (w *World) Reasons(jobID string, reasons ...placement.Reason) {
	w.t.Helper()
	text, err := json.Marshal(reasons)
	if err != nil {
		w.t.Fatal(err)
	}
	row, err := w.Store.Read().ReadJobRow(context.Background(), jobID, Org)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Write(func(tx *store.Tx) error {
		return tx.DispatchPutReasons(context.Background(), row.Shape, string(text), tx.Now())
	})
}

// Many inserts n finished runs without jobs, quickly.
func (w *World) Many(n int) {
	w.t.Helper()
	wide := fmt.Sprintf(`{"name":%q}`, string(make([]byte, 1000)))
	w.Write(func(tx *store.Tx) error {
		for i := range n {
			at := w.Env.NowMs() - int64(n-i)*1000
			_, err := tx.InsertRun(context.Background(), db.InsertRunParams{
				ID: ci.NewID(), OrgID: Org, Number: int64(i + 1), RoutingKey: Key, Repo: Repo, Workflow: "ci", Status: "success",
				Title: fmt.Sprintf("commit %d", i), Branch: "main", Warnings: "[]", TrustTier: "trusted", CreatedAt: at,
				FinishedAt: sql.NullInt64{Int64: at + 500, Valid: true}, RunAttempt: 1, Event: wide, Inputs: "{}", LockEntry: wide,
				MatchedTrigger: "{}",
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}
