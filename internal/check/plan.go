package check

import (
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/source"
)

// What a source shows (forge.Options.Statuses).
const (
	ShowJobs      = "jobs" // also ""
	ShowWorkflows = "workflows"
	ShowOff       = "off"
)

// maxJobContexts bounds the lines of one run's jobs. A run with more jobs shows those that fail.
const maxJobContexts = 50

// Run is what statuses are made from. Times are UTC milliseconds, 0 for none.
type Run struct {
	ID, Workflow, SHA     string
	Status                ci.RunStatus
	InitFailure, Reason   string // category of PIPE-16; why it failed, a sentence
	CreatedAt, FinishedAt int64
}

// Job is one job of the run, in the run's order.
type Job struct {
	ID, Name              string
	Status                ci.JobStatus
	Allowed               bool // an allowed failure (D6)
	Lost                  bool // its agent did not come back
	InitFailure, Error    string
	StartedAt, FinishedAt int64
	Step                  *Step // the first that failed
}

// Step is a failed step. Index 0 is kici's own.
type Step struct {
	Index int64
	Name  string
	Exit  *int64
}

// Posted is what one context said last, and what was wanted of it.
type Posted struct {
	State       source.StatusState // "" for nothing yet
	Description string
	Wanted      source.StatusState
	GaveUp      bool // on Wanted
}

// Options say what is shown, and where.
type Options struct {
	Show    string // ShowJobs, ShowWorkflows, ShowOff
	BaseURL string // of the dashboard, without a trailing slash
}

// Post is a status that a commit lacks. JobID is "" for the workflow's own.
type Post struct {
	JobID string
	source.CommitStatus
}

// Plan returns the statuses that differ from what was posted, the workflow's own first. It is deterministic.
func Plan(run Run, jobs []Job, posted map[string]Posted, o Options) []Post {
	if o.Show == ShowOff {
		return nil
	}
	page := o.BaseURL + "/runs/" + run.ID
	shown, left := shownJobs(run, jobs, posted, o)
	state, text := runWords(run, jobs)
	if left {
		text += manyWords(len(jobs))
	}
	all := make([]Post, 0, len(shown)+1)
	all = append(all, Post{CommitStatus: source.CommitStatus{
		SHA: run.SHA, Context: workflowContext(run.Workflow), State: state, Description: clip(text, maxDescription), URL: page,
	}})
	for _, j := range shown {
		state, text := jobWords(j)
		all = append(all, Post{JobID: j.ID, CommitStatus: source.CommitStatus{
			SHA: run.SHA, Context: jobContext(run.Workflow, j.Name), State: state, Description: clip(text, maxDescription),
			URL: page + "/jobs/" + j.ID,
		}})
	}
	wanted := all[:0]
	for _, p := range all {
		had := posted[p.Context]
		same := had.State == p.State && had.Description == p.Description
		if !same && (!had.GaveUp || had.Wanted != p.State) {
			wanted = append(wanted, p)
		}
	}
	return wanted
}

// shownJobs are the jobs with a line of their own, and whether some have none. A job that has one keeps it.
func shownJobs(run Run, jobs []Job, posted map[string]Posted, o Options) (shown []Job, left bool) {
	if o.Show == ShowWorkflows {
		return nil, false
	}
	if len(jobs) <= maxJobContexts {
		return jobs, false
	}
	room := maxJobContexts
	has := make([]bool, len(jobs))
	for i, j := range jobs {
		if p, ok := posted[jobContext(run.Workflow, j.Name)]; ok && p.State != "" {
			has[i] = true
			room--
		}
	}
	for i, j := range jobs {
		if !has[i] && room > 0 && j.Status.Failure() && !j.Allowed {
			has[i] = true
			room--
		}
		if has[i] {
			shown = append(shown, j)
		}
	}
	return shown, true
}
