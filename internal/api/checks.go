package api

import (
	"context"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read"
)

func (a *API) checkRoutes() {
	handle(a, get("/check-runs", "List commit statuses, those of the newest runs first").sampled(0.05), right{"run.read", "check_run.list.read"},
		func(ctx context.Context, c *caller, in *struct {
			Run     string `query:"run" maxLength:"600" doc:"Id, the first 8 characters of one, or repository#number"`
			Failing bool   `query:"failing" doc:"Only those that could not be posted"`
			Limit   string `query:"limit" maxLength:"20" doc:"At most this many; 100 is the most"`
		},
		) (client.CheckRunList, error) {
			return a.d.Reads.CheckRuns(ctx, c.Scope, read.CheckRunFilter{Run: in.Run, Failing: in.Failing, Limit: number(in.Limit)})
		})
}
