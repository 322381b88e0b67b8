package api

import (
	"context"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/periodic"
)

// scheduledJobs are the server's own periodic jobs (periodic.Service).
type scheduledJobs interface {
	List(ctx context.Context) ([]periodic.Status, error)
	Trigger(ctx context.Context, name string) (periodic.Outcome, error)
}

func (a *API) scheduledJobRoutes() {
	handle(a, get("/scheduled-jobs", "List the server's own periodic jobs").cluster().seldom(), right{"run.read", "scheduled_job.list.read"},
		func(ctx context.Context, _ *caller, _ *struct{}) (client.ScheduledJobList, error) {
			rows, err := a.d.Jobs.List(ctx)
			out := client.ScheduledJobList{Jobs: make([]client.ScheduledJob, len(rows))}
			for i, j := range rows {
				out.Jobs[i] = client.ScheduledJob{
					Name: j.Job.Name, About: j.About, EveryMs: j.Every.Milliseconds(), LastRunAt: instant(j.LastRunAt), LastOKAt: instant(j.LastOkAt),
					DurationMs: j.DurationMs, Failures: j.Failures, LastError: j.LastError, InstanceID: j.InstanceID,
				}
			}
			return out, err
		})
	handle(a, post("/scheduled-jobs/{name}/trigger", "Run one of the server's periodic jobs now, and wait for it").cluster(),
		right{"scheduled_job.trigger", "scheduled_job.trigger"},
		func(ctx context.Context, c *caller, in *struct {
			Name string `path:"name" maxLength:"100"`
		},
		) (client.JobTriggered, error) {
			o, err := a.d.Jobs.Trigger(ctx, in.Name)
			if err != nil {
				return client.JobTriggered{}, err
			}
			c.meta = map[string]any{"ok": o.Err == nil}
			out := client.JobTriggered{Triggered: true, OK: o.Err == nil, DurationMs: o.Took.Milliseconds(), Report: o.Report}
			if o.Err != nil {
				out.Error = o.Err.Error()
			}
			return out, nil
		})
}
