package api

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/ingress"
	"github.com/kici-go/kici/internal/run"
)

// Paging is the query of every list (huma reads embedded structs only when they are exported). Bad numbers fall back to the default, large ones are clamped (ADM-8).
type Paging struct {
	Cursor string `query:"cursor" maxLength:"300" doc:"nextCursor of the page before"`
	Limit  string `query:"limit" maxLength:"20" doc:"At most this many; 100 is the most"`
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

// since reads an instant: RFC 3339, or milliseconds since 1970.
func since(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil {
		return ms, nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return 0, badRequest("since: %q is not a time like 2026-01-31T12:00:00Z", s)
	}
	return t.UnixMilli(), nil
}

// RunRef names a run in a path.
type RunRef struct {
	Run string `path:"run" maxLength:"600" doc:"Id, the first 8 characters of one, or repository#number"`
}

func (a *API) runRoutes() {
	handle(a, get("/runs", "List runs, newest first").sampled(0.05), right{"run.read", "run.list.read"}, a.listRuns)
	handle(a, post("/runs", "Start a workflow by hand").created(), right{"run.trigger", "run.trigger"}, a.startRun)
	handle(a, get("/runs/{run}", "Show a run with its jobs, steps and reasons").sampled(0.05), right{"run.read", "run.read"},
		func(ctx context.Context, c *caller, in *RunRef) (client.RunDetail, error) {
			return a.d.Reads.Run(ctx, c.Scope, in.Run)
		})
	handle(a, get("/runs/{run}/jobs", "List the jobs of a run").sampled(0.05), right{"run.read", "run.jobs.read"},
		func(ctx context.Context, c *caller, in *struct {
			RunRef
			IncludeSteps bool `query:"includeSteps"`
		},
		) (client.JobList, error) {
			return a.d.Reads.Jobs(ctx, c.Scope, in.Run, in.IncludeSteps)
		})
	handle(a, get("/runs/{run}/timeline", "Say what happened to a run and its jobs, oldest first").sampled(0.05), right{"run.read", "run.timeline.read"}, a.runTimeline)
	handle(a, post("/runs/{run}/cancel", "Cancel a run"), right{"run.cancel", "run.cancel"}, a.cancelRun)
	handle(a, post("/runs/{run}/rerun", "Run a run again at the same commit").created(), right{"run.trigger", "run.rerun"}, a.rerunRun)
	handle(a, get("/runs/{run}/jobs/{job}/steps/{step}/logs", "Read the log of a step; its text is untrusted"),
		right{"run.read", "run.logs.read"}, a.stepLog)
	handle(a, get("/runs/{run}/jobs/{job}/steps/{step}/logs/search", "Find a text in the log of a step: plain text, whatever its case"),
		right{"run.read", "run.logs.read"}, a.searchLog)
	register(a, get("/runs/{run}/jobs/{job}/steps/{step}/logs/raw", "Read the whole log of a step as text"),
		right{"run.read", "run.logs.read"}, a.rawLog)
	register(a, get("/runs/{run}/events", "Follow a run: server-sent events \"run\" with the whole run whenever it changes, then \"end\"").sampled(0.05),
		right{"run.read", "run.read"}, a.runEvents)
	register(a, get("/runs/{run}/jobs/{job}/steps/{step}/logs/stream", "Follow the log of a step: server-sent events \"lines\", then \"end\""),
		right{"run.read", "run.logs.read"}, a.stepStream)
}

type runsInput struct {
	Paging
	Status     []string `query:"status,explode" doc:"Stored statuses"`
	Workflow   string   `query:"workflowName" maxLength:"300"`
	Repo       string   `query:"repo" maxLength:"500"`
	Branch     string   `query:"branch" maxLength:"500"`
	Source     string   `query:"source" maxLength:"300" doc:"Name or id of a source"`
	Actor      string   `query:"actor" maxLength:"300"`
	Event      string   `query:"event" maxLength:"100" doc:"With or without its action"`
	DeliveryID string   `query:"deliveryId" maxLength:"300"`
	Text       string   `query:"text" maxLength:"200" doc:"Found in title, workflow, repository, branch, actor, commit or number"`
	Since      string   `query:"since" maxLength:"40"`
}

func (a *API) listRuns(ctx context.Context, c *caller, in *runsInput) (client.RunList, error) {
	from, err := since(in.Since)
	if err != nil {
		return client.RunList{}, err
	}
	var statuses []string
	for _, s := range in.Status {
		for part := range strings.SplitSeq(s, ",") {
			if part = strings.TrimSpace(part); part != "" {
				statuses = append(statuses, part)
			}
		}
	}
	key := ""
	if in.Source != "" {
		source, err := a.d.Reads.Source(ctx, c.Scope, in.Source)
		if err != nil {
			return client.RunList{}, err
		}
		key = source.RoutingKey
	}
	return a.d.Reads.Runs(ctx, c.Scope, read.RunFilter{
		RoutingKey: key, Actor: in.Actor, Event: in.Event,
		Statuses: statuses, Workflow: in.Workflow, Repo: in.Repo, Branch: in.Branch, DeliveryID: in.DeliveryID, Text: in.Text,
		Since: from, Cursor: in.Cursor, Limit: number(in.Limit),
	})
}

// Idempotent is the header of requests that may be repeated (D4).
type Idempotent struct {
	Key string `header:"Idempotency-Key" maxLength:"200" doc:"Repeating a request with the same key does nothing twice"`
}

type startInput struct {
	Idempotent
	Body struct {
		Source   string         `json:"source" minLength:"1" maxLength:"300" doc:"Name of the source that has the workflow"`
		Workflow string         `json:"workflow" minLength:"1" maxLength:"300"`
		Ref      string         `json:"ref,omitempty" maxLength:"1000" doc:"Branch, tag or commit; the default branch when empty"`
		Inputs   map[string]any `json:"inputs,omitempty"`
	}
}

func (a *API) startRun(ctx context.Context, c *caller, in *startInput) (client.NewRun, error) {
	c.note("source", in.Body.Source)
	c.note("workflow", in.Body.Workflow)
	s, err := a.d.Reads.Source(ctx, c.Scope, in.Body.Source)
	if err != nil {
		return client.NewRun{}, err
	}
	id, err := a.d.Start.Start(ctx, ingress.StartRequest{
		OrgID: c.Scope.OrgID, Source: s.Name, Workflow: in.Body.Workflow, Ref: in.Body.Ref, Inputs: in.Body.Inputs, By: actor(c),
		RequestID: in.Key,
	})
	if err != nil {
		return client.NewRun{}, err
	}
	return a.newRun(ctx, c, id), nil
}

// newRun describes a run that was just made. A run that cannot be read yet is answered with its id alone.
func (a *API) newRun(ctx context.Context, c *caller, id string) client.NewRun {
	c.note("newRunId", id)
	out := client.NewRun{RunID: id, URL: a.d.Reads.RunURL(id)}
	if d, err := a.d.Reads.Run(ctx, c.Scope, id); err == nil {
		out.Number = d.Number
	}
	return out
}

type cancelInput struct {
	Idempotent
	RunRef
	Body *struct {
		Force  bool   `json:"force,omitempty" doc:"Kill at once, without a grace period"`
		Reason string `json:"reason,omitempty" maxLength:"1000"`
	}
}

func (a *API) cancelRun(ctx context.Context, c *caller, in *cancelInput) (client.CancelResult, error) {
	id, err := a.d.Reads.RunID(ctx, c.Scope, in.Run)
	if err != nil {
		return client.CancelResult{}, err
	}
	req := run.CancelRequest{OrgID: c.Scope.OrgID, RoutingKey: c.Scope.RoutingKey, RunID: id, By: actor(c), RequestID: in.Key}
	if in.Body != nil {
		req.Force, req.Reason = in.Body.Force, in.Body.Reason
	}
	c.note("force", req.Force)
	res, err := a.d.Runs.Cancel(ctx, req)
	if err != nil {
		return client.CancelResult{}, a.explainTerminal(ctx, c, id, err)
	}
	return client.CancelResult{Status: string(res.Status), CancelledJobs: res.Cancelled + res.Notified}, nil
}

// explainTerminal adds how the run has ended.
func (a *API) explainTerminal(ctx context.Context, c *caller, id string, err error) error {
	f := failureOf(err)
	if f.status != 409 {
		return err
	}
	if d, readErr := a.d.Reads.Run(ctx, c.Scope, id); readErr == nil {
		f.Details = append(f.Details, "status: "+d.Status)
	}
	return f
}

type rerunInput struct {
	Idempotent
	RunRef
	Body *struct {
		RequestID  string `json:"requestId,omitempty" maxLength:"200" doc:"The same as Idempotency-Key"`
		FailedOnly bool   `json:"failedOnly,omitempty" doc:"Only the jobs that did not succeed"`
	}
}

func (a *API) rerunRun(ctx context.Context, c *caller, in *rerunInput) (rerunAnswer, error) {
	id, err := a.d.Reads.RunID(ctx, c.Scope, in.Run)
	if err != nil {
		return rerunAnswer{}, err
	}
	req := run.RerunRequest{OrgID: c.Scope.OrgID, RoutingKey: c.Scope.RoutingKey, RunID: id, By: actor(c), RequestID: in.Key}
	if in.Body != nil {
		req.FailedOnly = in.Body.FailedOnly
		if req.RequestID == "" {
			req.RequestID = in.Body.RequestID
		}
	}
	res, err := a.d.Runs.Rerun(ctx, req)
	if err != nil {
		return rerunAnswer{}, err
	}
	return rerunAnswer{a.newRun(ctx, c, res.RunID), res.RunID}, nil
}

// rerunAnswer has the spec's name of the id beside ours.
type rerunAnswer struct {
	client.NewRun
	NewRunID string `json:"newRunId"`
}

// StepRef names a step's log in a path.
type StepRef struct {
	RunRef
	Job  string `path:"job" maxLength:"600" doc:"Id or name"`
	Step int    `path:"step" minimum:"0" maximum:"10000"`
}

func (a *API) stepLog(ctx context.Context, c *caller, in *struct {
	StepRef
	Paging
},
) (client.LogPage, error) {
	l, err := a.d.Reads.JobLog(ctx, c.Scope, in.Run, in.Job)
	if err != nil {
		return client.LogPage{}, err
	}
	return a.d.Reads.Log(ctx, l, in.Step, in.Cursor, number(in.Limit))
}

func (a *API) searchLog(ctx context.Context, c *caller, in *struct {
	StepRef
	Paging
	Text string `query:"q" required:"true" minLength:"1" maxLength:"200" doc:"The text, at most 200 bytes"`
},
) (client.LogMatches, error) {
	l, err := a.d.Reads.JobLog(ctx, c.Scope, in.Run, in.Job)
	if err != nil {
		return client.LogMatches{}, err
	}
	return a.d.Reads.SearchLog(ctx, l, in.Step, read.LogQuery{Text: in.Text, Cursor: in.Cursor, Limit: number(in.Limit)})
}

func (a *API) rawLog(ctx context.Context, in *StepRef) (*huma.StreamResponse, error) {
	c := callerOf(ctx)
	l, err := a.d.Reads.JobLog(ctx, c.Scope, in.Run, in.Job)
	if err != nil {
		return nil, a.fail(ctx, c, err)
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		hc.SetHeader("Content-Type", "text/plain; charset=utf-8")
		hc.SetHeader("Content-Disposition", fmt.Sprintf("attachment; filename=\"step-%d.log\"", in.Step))
		if err := a.copyLog(hc.Context(), hc.BodyWriter(), l, in.Step); err != nil && hc.Context().Err() == nil {
			a.log.Error("send raw log", "job_id", l.Ref.JobID, "err", err)
			panic(abort) // the header is out: cut the connection so that a short log is not taken for a whole one
		}
	}}, nil
}

func (a *API) copyLog(ctx context.Context, w io.Writer, l read.JobLog, step int) error {
	total, err := a.d.Reads.LogLines(ctx, l, step) // what is there now, so that it ends while the step still writes
	if err != nil {
		return err
	}
	for cursor, sent := "", int64(0); sent < total; {
		page, err := a.d.Reads.Log(ctx, l, step, cursor, int(min(total-sent, read.MaxLogLimit)))
		if err != nil || len(page.Lines) == 0 {
			return err
		}
		sent += int64(len(page.Lines))
		var b strings.Builder
		for _, line := range page.Lines {
			b.WriteString(line.Msg)
			b.WriteByte('\n')
		}
		if _, err := io.WriteString(w, b.String()); err != nil {
			return err
		}
		cursor = page.NextCursor
	}
	return nil
}
