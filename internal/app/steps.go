package app

import (
	"context"
	"errors"
	"strings"

	"github.com/kici-go/kici/internal/event"
	"github.com/kici-go/kici/internal/fleet"
	"github.com/kici-go/kici/internal/run"
	"github.com/kici-go/kici/internal/wire"
	"github.com/kici-go/kici/internal/workflow"
)

// stepEvents is the fleet's view of what emits events.
type stepEvents struct{ events *event.Service }

// EmitFromJob emits an event for a running job.
func (s stepEvents) EmitFromJob(ctx context.Context, e fleet.StepEvent) (string, error) {
	id, err := s.events.EmitFromJob(ctx, event.FromJob(e))
	if no, ok := errors.AsType[*event.Refused](err); ok {
		return "", &fleet.Refused{Code: no.Code, Message: no.Message, RetryAfterMs: no.RetryAfterMs}
	}
	return id, err
}

// stepJobs is the fleet's view of what adds jobs.
type stepJobs struct{ runs *run.Service }

// AddJobs compiles the text and adds its jobs to the run of a running job.
func (s stepJobs) AddJobs(ctx context.Context, j fleet.StepJobs) ([]string, error) {
	jobs, problems := workflow.CompileJobs("jobs", []byte(j.Text))
	if workflow.HasErrors(problems) {
		return nil, &fleet.Refused{Code: wire.StepInvalid, Message: problemText(problems)}
	}
	names, err := s.runs.AddJobs(ctx, run.AddJobs{AgentID: j.AgentID, JobID: j.JobID, Attempt: j.Attempt, RequestID: j.RequestID, Jobs: jobs})
	if errors.Is(err, run.ErrAdd) || errors.Is(err, run.ErrNoJob) {
		return nil, &fleet.Refused{Code: wire.StepInvalid, Message: err.Error()}
	}
	return names, err
}

// maxProblemsShown bounds a refusal; whoever mends those sees the others.
const maxProblemsShown = 20

func problemText(problems []workflow.Problem) string {
	var lines []string
	for _, p := range problems {
		if !p.Warning && len(lines) < maxProblemsShown {
			lines = append(lines, p.Error())
		}
	}
	return strings.Join(lines, "\n")
}
