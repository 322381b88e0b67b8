package api

import (
	"context"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/diagnose"
)

// diagnoseRoutes let the server examine itself (OBS-5). The answer is 200 whatever is found: it could be asked.
func (a *API) diagnoseRoutes() {
	handle(a, get("/diagnose", "Examine the server: database, disk, agents, scalers, leader, connections, configuration").seldom().cluster(),
		right{"run.read", "diagnose.read"},
		func(ctx context.Context, _ *caller, _ *struct{}) (client.Diagnosis, error) {
			r := diagnose.Run(ctx, a.d.Checks, diagnose.Timeout)
			out := client.Diagnosis{Status: string(r.Status), Checks: make([]client.DiagnosisCheck, len(r.Checks))}
			for i, c := range r.Checks {
				out.Checks[i] = client.DiagnosisCheck{
					Name: c.Name, Status: string(c.Status), Message: c.Message, Cure: c.Cure, Details: c.Details, DurationMs: c.DurationMs,
				}
			}
			return out, nil
		})
}
