package api

import (
	"context"

	"github.com/kici-go/kici/client"
)

// node is this server's own (app, over scaler.Node).
type node interface {
	ReloadScalers(ctx context.Context, dryRun bool) client.ScalerReload
}

func (a *API) scalerRoutes() {
	handle(a, post("/scaler/reload", "Read scalers.yaml of the server that answers again; all of it applies or nothing").cluster(), right{"scaler.manage", "scaler.reload"},
		func(ctx context.Context, c *caller, in *struct {
			Body struct {
				DryRun bool `json:"dryRun,omitempty" doc:"only say what would change"`
			}
		},
		) (client.ScalerReload, error) {
			out := a.d.Node.ReloadScalers(ctx, in.Body.DryRun)
			c.meta = map[string]any{"dryRun": in.Body.DryRun, "applied": out.Applied}
			return out, nil
		})
}
