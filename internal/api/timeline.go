package api

import (
	"context"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read"
)

type timelineInput struct {
	RunRef
	Job    string `query:"job" maxLength:"300" doc:"Only this job, by name or id"`
	Steps  bool   `query:"steps" doc:"Also steps that went well"`
	Cursor string `query:"cursor" maxLength:"300" doc:"nextCursor of the page before"`
	Limit  string `query:"limit" maxLength:"20" doc:"At most this many; 200 when empty, 1000 is the most"`
}

func (a *API) runTimeline(ctx context.Context, c *caller, in *timelineInput) (client.Timeline, error) {
	return a.d.Reads.Timeline(ctx, c.Scope, in.Run, read.TimelineFilter{Job: in.Job, Steps: in.Steps, Cursor: in.Cursor, Limit: number(in.Limit)})
}
