package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/api/read"
	"github.com/kici-go/kici/internal/ingress"
)

// abort is the panic that makes net/http cut a connection.
var abort = http.ErrAbortHandler

// JobRef names a job in a path.
type JobRef struct {
	Job string `path:"job" maxLength:"900" doc:"Id, the beginning of one, or run/job such as acme/shop#482/build"`
}

func (a *API) jobRoutes() {
	handle(a, get("/jobs/{job}", "Show a job with its steps").sampled(0.05), right{"run.read", "job.read"},
		func(ctx context.Context, c *caller, in *JobRef) (client.Job, error) {
			return a.d.Reads.Job(ctx, c.Scope, in.Job)
		})
	handle(a, get("/jobs/{job}/why", "Say why a job is where it is").sampled(0.05), right{"run.read", "job.why.read"},
		func(ctx context.Context, c *caller, in *JobRef) (client.Why, error) {
			return a.d.Reads.Why(ctx, c.Scope, in.Job)
		})
	register(a, get("/jobs/{job}/logs/stream", "Follow the log of a job, step by step: server-sent events \"lines\", then \"end\""),
		right{"run.read", "run.logs.read"}, a.jobStream)
	handle(a, get("/queue", "List the jobs that wait for an agent, oldest first").sampled(0.05), right{"run.read", "queue.list.read"},
		func(ctx context.Context, c *caller, in *Paging) (client.Queue, error) {
			return a.d.Reads.Queue(ctx, c.Scope, read.QueueFilter{Cursor: in.Cursor, Limit: number(in.Limit)})
		})
}

func (a *API) clusterRoutes() {
	handle(a, get("/agents", "List agents, newest first").seldom(), right{"scaler.read", "agent.list.read"},
		func(ctx context.Context, c *caller, in *struct {
			Paging
			All    bool   `query:"all" doc:"Also agents that are gone"`
			Scaler string `query:"scaler" maxLength:"300"`
		},
		) (client.AgentList, error) {
			return a.d.Reads.Agents(ctx, c.Scope, read.AgentFilter{All: in.All, Scaler: in.Scaler, Cursor: in.Cursor, Limit: number(in.Limit)})
		})
	handle(a, get("/agents/{agent}", "Show an agent").seldom(), right{"scaler.read", "agent.read"},
		func(ctx context.Context, c *caller, in *struct {
			Agent string `path:"agent" maxLength:"300"`
		},
		) (client.Agent, error) {
			return a.d.Reads.Agent(ctx, c.Scope, in.Agent)
		})
	handle(a, get("/scalers", "List scalers with what they hold and their state").seldom(), right{"scaler.read", "scaler.list.read"},
		func(ctx context.Context, c *caller, _ *struct{}) (client.ScalerList, error) {
			return a.d.Reads.Scalers(ctx, c.Scope)
		})
}

func (a *API) deliveryRoutes() {
	for _, path := range []string{"/deliveries", "/event-log"} {
		handle(a, get(path, "List deliveries, newest first").sampled(0.05), right{"event_log.read", "event_log.list.read"}, a.listDeliveries)
		handle(a, get(path+"/{delivery}", "Show a delivery and what was decided for every workflow").sampled(0.05),
			right{"event_log.read", "event_log.read"}, a.showDelivery)
		handle(a, get(path+"/{delivery}/payload", "Show a delivery with what was sent; its text is untrusted").all(),
			right{"event_log.read_payload", "event_log.payload.read"},
			func(ctx context.Context, c *caller, in *deliveryRef) (client.Delivery, error) {
				return a.d.Reads.Delivery(ctx, c.Scope, in.Delivery, true)
			})
		handle(a, post(path+"/{delivery}/replay", "Process a failed delivery again"), right{"run.trigger", "event_log.replay"}, a.replayDelivery)
	}
}

type deliveryRef struct {
	Delivery string `path:"delivery" maxLength:"300" doc:"Id, or the sender's id"`
}

type deliveriesInput struct {
	Paging
	Source string `query:"source" maxLength:"300"`
	Status string `query:"status" maxLength:"50"`
	Event  string `query:"event" maxLength:"300"`
	Since  string `query:"since" maxLength:"40"`
}

func (a *API) listDeliveries(ctx context.Context, c *caller, in *deliveriesInput) (client.DeliveryList, error) {
	from, err := since(in.Since)
	if err != nil {
		return client.DeliveryList{}, err
	}
	return a.d.Reads.Deliveries(ctx, c.Scope, read.DeliveryFilter{
		Source: in.Source, Status: in.Status, Event: in.Event, Since: from, Cursor: in.Cursor, Limit: number(in.Limit),
	})
}

func (a *API) showDelivery(ctx context.Context, c *caller, in *deliveryRef) (client.Delivery, error) {
	return a.d.Reads.Delivery(ctx, c.Scope, in.Delivery, false)
}

// replayDelivery answers with the delivery as it is now: received, and soon processed.
func (a *API) replayDelivery(ctx context.Context, c *caller, in *deliveryRef) (client.Delivery, error) {
	d, err := a.d.Reads.Delivery(ctx, c.Scope, in.Delivery, false)
	if err != nil {
		return d, err
	}
	err = a.d.Start.Replay(ctx, c.Scope.OrgID, d.ID)
	if errors.Is(err, ingress.ErrNotFound) {
		return d, &failure{Message: "only a failed delivery can be replayed; this one is " + d.Status, status: http.StatusConflict}
	} else if err != nil {
		return d, err
	}
	return a.d.Reads.Delivery(ctx, c.Scope, d.ID, false)
}
