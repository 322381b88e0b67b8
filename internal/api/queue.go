package api

import (
	"context"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/run"
)

func (a *API) queueRoutes() {
	handle(a, post("/queue/clear", "Cancel the jobs that wait and the runs of which nothing has begun; without confirm only count them").global(),
		right{"maintenance", "queue.clear"}, a.clearQueue)
	handle(a, post("/execution/purge-stale", "End runs of which nothing has moved for a long time; without confirm only list them").global(),
		right{"maintenance", "execution.purge_stale"}, a.purgeStale)
}

type clearInput struct {
	Body *struct {
		Confirm bool `json:"confirm,omitempty" doc:"Really do it"`
	}
}

func (a *API) clearQueue(ctx context.Context, c *caller, in *clearInput) (client.ClearedQueue, error) {
	dry := in.Body == nil || !in.Body.Confirm
	c.note("dryRun", dry)
	res, err := a.d.Runs.ClearQueue(ctx, run.ClearRequest{OrgID: c.Scope.OrgID, By: actor(c), DryRun: dry})
	if err != nil {
		return client.ClearedQueue{}, err
	}
	c.note("runs", res.Runs)
	c.note("jobs", res.Jobs)
	return client.ClearedQueue{DryRun: dry, Runs: res.Runs, Jobs: res.Jobs}, nil
}

// Bounds of how long nothing of a run must have moved. Below the least, duties of the orchestrator look after it.
const (
	defaultIdle = 24 * time.Hour
	leastIdle   = 10 * time.Minute
)

type purgeInput struct {
	Body *struct {
		Confirm bool  `json:"confirm,omitempty" doc:"Really do it"`
		IdleMs  int64 `json:"idleMs,omitempty" minimum:"0" maximum:"31536000000" doc:"For how long nothing has moved; 0 is a day, 10 minutes is the least"`
	}
}

func (a *API) purgeStale(ctx context.Context, c *caller, in *purgeInput) (client.PurgedRuns, error) {
	req := run.PurgeRequest{OrgID: c.Scope.OrgID, By: actor(c), Idle: defaultIdle, DryRun: true}
	if in.Body != nil {
		req.DryRun = !in.Body.Confirm
		if in.Body.IdleMs > 0 {
			req.Idle = time.Duration(in.Body.IdleMs) * time.Millisecond
		}
	}
	if req.Idle < leastIdle {
		return client.PurgedRuns{}, badRequest("idleMs: a run must have stood still for at least %d ms", leastIdle.Milliseconds())
	}
	c.note("dryRun", req.DryRun)
	runs, err := a.d.Runs.PurgeStale(ctx, req)
	if err != nil {
		return client.PurgedRuns{}, err
	}
	c.note("runs", len(runs))
	out := client.PurgedRuns{DryRun: req.DryRun, Runs: make([]client.StandingRun, len(runs))}
	for i, r := range runs {
		out.Runs[i] = client.StandingRun{
			RunID: r.RunID, Number: r.Number, Repo: r.Repo, Workflow: r.Workflow, Status: string(r.Status), CreatedAt: client.TimeOf(r.CreatedAt),
		}
	}
	return out, nil
}
