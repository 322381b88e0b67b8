package web

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/periodic"
	"github.com/kici-go/kici/internal/source"
	"github.com/kici-go/kici/internal/store/db"
	"github.com/kici-go/kici/internal/workflow/lock"
)

// fakeIntake is a fake of the ingress room.
type fakeIntake struct {
	err      error
	started  []ingress.StartRequest
	triggers []ingress.TriggerRequest
	calls    []string
}

func (f *fakeIntake) Workflows(_ context.Context, _, name, ref string) (ingress.RefWorkflows, error) {
	if f.err != nil {
		return ingress.RefWorkflows{}, f.err
	}
	if ref == "" {
		ref = "refs/heads/main"
	}
	least, most := 1.0, 9.0
	return ingress.RefWorkflows{
		Source: name, Ref: ref, SHA: "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d", Title: "fix <b>the</b> thing", DefaultBranch: "main",
		File: &lock.File{Workflows: []lock.Workflow{
			{
				Name: "deploy", SourceFile: ".kici/workflows/deploy.yaml",
				Jobs: []lock.Job{{Name: "build", RunsOn: lock.Selector{Labels: []string{"linux"}}}, {Name: "ship", Needs: []lock.Need{{Job: "build"}}, Matrix: &lock.Matrix{}}},
				On: []lock.Trigger{{Type: "dispatch", Manual: true, Inputs: map[string]lock.Input{
					"env":   {Type: "enum", Values: []string{"dev", "prod"}, Required: true, Description: "where <i>to</i>"},
					"count": {Type: "integer", Default: 2.0, Min: &least, Max: &most},
					"share": {Type: "number"},
					"dry":   {Type: "boolean", Default: true},
					"note":  {Type: "string", Pattern: "^[a-z ]*$"},
				}}},
			},
			{Name: "ci", SourceFile: ".kici/workflows/ci.yaml", On: []lock.Trigger{{Type: "push"}}, Jobs: []lock.Job{{Name: "test"}}},
		}},
	}, nil
}

func (f *fakeIntake) Start(_ context.Context, r ingress.StartRequest) (string, error) {
	f.started = append(f.started, r)
	return "started", f.err
}

func (f *fakeIntake) Trigger(_ context.Context, r ingress.TriggerRequest) (string, error) {
	f.triggers = append(f.triggers, r)
	return "d-1", f.err
}

func (f *fakeIntake) Check(_ context.Context, _, name string) (ingress.Checked, error) {
	f.calls = append(f.calls, "check "+name)
	return ingress.Checked{DefaultBranch: "main", Commit: source.Commit{SHA: "1a2b3c4d5e", Title: "fix"}}, f.err
}

func (f *fakeIntake) Enable(_ context.Context, _, name string, on bool) error {
	f.calls = append(f.calls, fmt.Sprint("enable ", name, " ", on))
	return f.err
}

func (f *fakeIntake) Replay(_ context.Context, _, id string) error {
	f.calls = append(f.calls, "replay "+id)
	return f.err
}

func (f *fakeIntake) RunSchedule(_ context.Context, r ingress.RunScheduleRequest) (string, error) {
	f.calls = append(f.calls, fmt.Sprint("run ", r.RegistrationID, " by ", r.By, " ", r.RequestID))
	return "fired", f.err
}

// fakeRegistry is a fake of the registration room.
type fakeRegistry struct{ calls []string }

func (f *fakeRegistry) SetDisabled(_ context.Context, _, id string, off bool) error {
	f.calls = append(f.calls, fmt.Sprint("disable ", id, " ", off))
	return nil
}

// fakeDesk is a fake of the room of events.
type fakeDesk struct {
	calls []string
	err   error
}

func (f *fakeDesk) RetryDead(_ context.Context, org, id string) error {
	f.calls = append(f.calls, "retry "+org+" "+id)
	return f.err
}

func (f *fakeDesk) DiscardDead(_ context.Context, org, id string) error {
	f.calls = append(f.calls, "discard "+org+" "+id)
	return f.err
}

// fakeJobs is a fake of the server's periodic jobs: two, of which one fails.
type fakeJobs struct{ ran []string }

func (*fakeJobs) List(context.Context) ([]periodic.Status, error) {
	return []periodic.Status{
		{Job: periodic.Job{Name: "cleanup", About: "deletes <old> runs", Every: time.Hour}},
		{
			Job:          periodic.Job{Name: "orphans", About: "looks for what nobody owns", Every: 24 * time.Hour},
			ScheduledJob: db.ScheduledJob{LastRunAt: time.Now().UnixMilli() - 60_000, DurationMs: 1200, Failures: 3, LastError: "disk is <full>"},
		},
	}, nil
}

func (f *fakeJobs) Trigger(_ context.Context, name string) (periodic.Outcome, error) {
	f.ran = append(f.ran, name)
	switch name {
	case "cleanup":
		return periodic.Outcome{Report: []string{"deleted 3 runs"}}, nil
	case "orphans":
		return periodic.Outcome{Err: errors.New("disk is full")}, nil
	}
	return periodic.Outcome{}, periodic.ErrUnknown
}
