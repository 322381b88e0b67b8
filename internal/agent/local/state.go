package local

import (
	"encoding/json"
	"slices"

	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/plan"
	"github.com/kici-go/kici/internal/wire"
)

// State is the run as it is at one moment. It is a copy: nothing changes it later. Times are milliseconds since the epoch.
type State struct {
	ID, Title             string
	Status                ci.RunStatus
	Reason                string // of a failure or cancel: the first one's, a sentence
	StartedAt, FinishedAt int64
	Jobs                  []JobState
}

// JobState is one job of it.
type JobState struct {
	plan.Job
	Needs                 []string // ids
	Level                 int      // length of the longest way from a job that needs nothing
	Status                ci.JobStatus
	Allowed               bool   // it failed, and that is allowed
	Why                   string // why it waits, or how it ended
	InitFailure           string
	Labels                []string
	Outputs               map[string]string
	KillMethod            string
	StartedAt, FinishedAt int64
	Steps                 []wire.StepStatus
}

// Line is one line of a step's log, already without secrets.
type Line struct {
	Job      string // name of the job
	Step     int
	StepName string
	wire.LogLine
}

// unit is one job with what only the runner needs.
type unit struct {
	JobState
	ups     []upstream
	facts   plan.Facts // of the job; its Needs are set when it becomes ready
	outputs string     // as JSON
	ready   bool       // evaluated and not started yet
	stopped string     // why it is to be ended while the run goes on, "" for not
	cancel  func(force bool)
}

type upstream struct {
	index int
	runOn plan.RunOn
}

func units(p plan.Plan, base plan.Facts) []unit {
	out := make([]unit, len(p.Jobs))
	for i, j := range p.Jobs {
		f := base
		f.Job, f.Matrix = j.Def, json.RawMessage(j.Matrix)
		out[i] = unit{JobState: JobState{Job: j, Status: ci.JobPending, Needs: []string{}}, facts: f}
	}
	for _, e := range p.Edges {
		set := plan.RunOnSet(e.RunOn)
		for i := e.Job.From; i < e.Job.To; i++ {
			for n := e.Needs.From; n < e.Needs.To; n++ {
				out[i].ups = append(out[i].ups, upstream{n, set})
				out[i].Needs = append(out[i].Needs, p.Jobs[n].ID)
			}
		}
	}
	level(out)
	return out
}

// level gives every job its place in the order. Jobs of a circle have failed already and have no edges.
func level(jobs []unit) {
	for moved := true; moved; {
		moved = false
		for i := range jobs {
			for _, u := range jobs[i].ups {
				if l := jobs[u.index].Level + 1; l > jobs[i].Level && l <= len(jobs) {
					jobs[i].Level, moved = l, true
				}
			}
		}
	}
}

func (u *unit) end(status ci.JobStatus, why string, now int64) {
	u.Status, u.Why, u.FinishedAt, u.ready, u.cancel = status, why, now, false, nil
	u.Allowed = u.ContinueOnError && status.Failure()
}

func (u *unit) step(s wire.StepStatus) {
	at := slices.IndexFunc(u.Steps, func(o wire.StepStatus) bool { return o.StepIndex >= s.StepIndex })
	switch {
	case at < 0:
		u.Steps = append(u.Steps, s)
	case u.Steps[at].StepIndex == s.StepIndex:
		u.Steps[at] = s
	default:
		u.Steps = slices.Insert(u.Steps, at, s)
	}
}
