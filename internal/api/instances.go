package api

import (
	"context"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/cluster"
)

// instances answers for the cluster as a whole (cluster.Directory).
type instances interface {
	Self() string
	Overview(ctx context.Context) (cluster.Overview, error)
	Drain(ctx context.Context, r cluster.DrainRequest) (cluster.Draining, error)
	DrainState(ctx context.Context, target string) (cluster.Draining, error)
	Name(ctx context.Context) (string, error)
	Rename(ctx context.Context, name string) (old string, err error)
}

func (a *API) instanceRoutes() {
	handle(a, get("", "Say whether the cluster is well: healthy, degraded or unhealthy").at("/cluster/health").seldom(), right{"run.read", "cluster.health.read"},
		func(ctx context.Context, _ *caller, _ *struct{}) (client.ClusterHealth, error) {
			o, err := a.d.Cluster.Overview(ctx)
			out := client.ClusterHealth{Status: o.Health, Reason: o.Reason, LeaderID: o.Leader, Term: o.Term}
			for _, m := range o.Members {
				if m.Live {
					out.Live++
				}
			}
			return out, err
		})
	handle(a, get("", "List the instances of the cluster").at("/cluster/peers").seldom(), right{"run.read", "instance.list.read"}, a.listInstances)
	handle(a, get("/cluster-name", "Show the name of the cluster").cluster(), right{"secret.read", "cluster_name.read"},
		func(ctx context.Context, _ *caller, _ *struct{}) (client.ClusterName, error) {
			name, err := a.d.Cluster.Name(ctx)
			return client.ClusterName{Name: name}, err
		})
	handle(a, put("/cluster-name", "Rename the cluster; running instances have the old name until they start again").cluster(),
		right{"secret.write", "cluster_name.update"}, a.renameCluster)
	handle(a, get("/orchestrator/drain", "Say whether an instance takes no new work, and what still runs").all().cluster(), right{"orchestrator.drain", "orchestrator.drain.read"},
		func(ctx context.Context, _ *caller, in *struct {
			Target string `query:"target" maxLength:"255" doc:"Id or name of an instance; empty is the one that answers"`
		},
		) (client.DrainState, error) {
			d, err := a.d.Cluster.DrainState(ctx, in.Target)
			return drainOf(d), err
		})
	handle(a, post("/orchestrator/drain", "Make an instance take no new work, or take it again").cluster(), right{"orchestrator.drain", "orchestrator.drain"}, a.drain)
}

func drainOf(d cluster.Draining) client.DrainState {
	return client.DrainState{InstanceID: d.InstanceID, Name: d.Name, Draining: d.Draining, JobsRunning: d.Jobs}
}

func (a *API) drain(ctx context.Context, c *caller, in *struct {
	Body struct {
		Action string `json:"action" enum:"drain,resume"`
		Target string `json:"target,omitempty" maxLength:"255" doc:"Id or name of an instance; empty is the one that answers"`
	}
},
) (client.DrainState, error) {
	c.meta = map[string]any{"action": in.Body.Action, "target": in.Body.Target}
	d, err := a.d.Cluster.Drain(ctx, cluster.DrainRequest{Target: in.Body.Target, Drain: in.Body.Action == "drain"})
	return drainOf(d), err
}

func (a *API) renameCluster(ctx context.Context, c *caller, in *struct {
	Body struct {
		Name string `json:"name" minLength:"1" maxLength:"63"`
	}
},
) (client.ClusterName, error) {
	old, err := a.d.Cluster.Rename(ctx, in.Body.Name)
	if err != nil {
		return client.ClusterName{}, err
	}
	c.meta = map[string]any{"old": old, "new": in.Body.Name}
	return client.ClusterName{Name: in.Body.Name, ReconnectRequired: old != in.Body.Name}, nil
}

func (a *API) listInstances(ctx context.Context, c *caller, _ *struct{}) (client.InstanceList, error) {
	o, err := a.d.Cluster.Overview(ctx)
	out := client.InstanceList{Instances: make([]client.Instance, len(o.Members))}
	for i, m := range o.Members {
		out.Instances[i] = client.Instance{
			InstanceID: m.InstanceID, Name: m.Name, Version: m.Version, URL: m.Url, State: stateOf(m), Leader: m.Leader, Draining: m.Draining,
			JobsRunning: m.Jobs, Agents: m.Agents, SettingsVersion: m.SettingsVersion, RegistryVersion: m.RegistryVersion,
			StartedAt: client.TimeOf(m.StartedAt), LastSeenAt: instant(m.HeartbeatAt),
		}
		if !c.Operates() { // how much others have running concerns nobody else
			out.Instances[i].JobsRunning, out.Instances[i].Agents = 0, 0
		}
		if m.InstanceID == a.d.Cluster.Self() {
			out.Instances[i].SettingsVersion = a.d.Settings.Version()
		}
	}
	return out, err
}

// stateOf is an instance's state in a word.
func stateOf(m cluster.Member) string {
	switch {
	case m.Stopped:
		return "stopped"
	case !m.Live:
		return "lost"
	case m.Draining:
		return "draining"
	case m.ReadyAt == 0:
		return "starting"
	}
	return "ready"
}
