package run

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/plan"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// New is what a run is made from: one workflow that matched one event.
type New struct {
	OrgID, RoutingKey, Repo string
	Workflow                lock.Workflow
	Event                   ci.Event
	TriggerEvent            string // WF-20
	Decision                workflow.Decision
	DeliveryRow             string // deliveries.id, '' for none
	DedupKey                string // '<deliveries.id>:<workflow>'; '' never conflicts
	Inputs                  map[string]any
	Actor                   string
	TrustTier               ci.TrustTier
	ParentRunID             string
	OriginalRunID           string
	ChainDepth              int
	Attempt                 int64  // 0 is 1; a rerun counts on
	Checks                  bool   // the source shows commit statuses (PIPE-7)
	Unstarted               string // why it cannot be started now: it fails at once, without jobs, and can be run again; '' starts it
}

// Planned is a run with its jobs and edges before it has rows. It is a value: inserting it twice under one DedupKey makes
// one run.
type Planned struct {
	plan.Plan
	RunID    string
	new      New
	lockJSON string
	copied   map[int]copiedResult // by index of the job: it is not run again
}

// copiedResult is how a job ended in the run that this one repeats, when it is not run again.
type copiedResult struct {
	status              ci.JobStatus
	allowed             bool
	outputs, message    string
	startedAt, finished int64
}

// Categories of plan.Failure that arise after the plan (PIPE-16).
const (
	initNoAgent   = "no_agent"
	initQueueFull = "queue_full"
)

// Plan works out the jobs, the matrix children and the edges of a run. It never fails (plan.Make).
func (s *Service) Plan(n New) Planned {
	p := Planned{RunID: s.env.NewID(), new: n, lockJSON: mustJSON(n.Workflow)}
	p.Plan = plan.Make(plan.Facts{
		Server: s.settings.ServerURL, Run: exprRun(runFacts(p)), Event: n.Event, Inputs: n.Inputs, Workflow: &n.Workflow,
	}, s.env.NewID)
	if n.Unstarted != "" {
		p.Plan = p.Refuse(plan.Failure{Category: plan.InitLock, Message: n.Unstarted})
	}
	return p
}

// runFacts is the part of a planned run's row that is known before it is written.
func runFacts(p Planned) db.LockRunRow {
	n := p.new
	return db.LockRunRow{
		ID: p.RunID, OrgID: n.OrgID, RoutingKey: n.RoutingKey, Repo: n.Repo, Workflow: n.Workflow.Name,
		Status: string(ci.RunPending), Title: p.Title, Ref: n.Event.Ref, Branch: branch(n.Event), Sha: n.Event.SHA,
		Actor: actor(n), TriggerEvent: n.TriggerEvent, TrustTier: string(n.TrustTier), IsFork: n.Event.Fork,
		ChainDepth: int64(n.ChainDepth), RunAttempt: max(n.Attempt, 1),
	}
}

// exprRun is the part of a run's row that expressions see.
func exprRun(r db.LockRunRow) plan.Run {
	return plan.Run{ID: r.ID, Repo: r.Repo, Workflow: r.Workflow, Actor: r.Actor, Number: r.Number, Attempt: r.RunAttempt}
}

func actor(n New) string {
	if n.Actor != "" {
		return n.Actor
	}
	return n.Event.Actor
}

// branch is what lists show: the branch, a tag's name, or a pull request's source.
func branch(e ci.Event) string {
	for _, b := range []string{e.Branch, e.SourceBranch, e.Tag} {
		if b != "" {
			return b
		}
	}
	return ""
}

// clip cuts text at about n bytes, at a rune's border.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err)) // our own structs always encode
	}
	return string(b)
}
