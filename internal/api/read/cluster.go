package read

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kici-go/kici/client"
	"github.com/kici-go/kici/internal/ci"
	"github.com/kici-go/kici/internal/placement"
	"github.com/kici-go/kici/internal/store/db"
)

// AgentFilter narrows a list of agents.
type AgentFilter struct {
	All    bool // also those that are gone
	Scaler string
	Cursor string
	Limit  int
}

// Agents is a page of the ledger, newest first. Jobs of other routing keys are not named.
func (r *Reads) Agents(ctx context.Context, s Scope, f AgentFilter) (client.AgentList, error) {
	from, err := parseCursor(f.Cursor, newest)
	if err != nil {
		return client.AgentList{}, err
	}
	limit := clamp(f.Limit, DefaultLimit, MaxLimit)
	var rows []db.ReadAgentsRow
	err = r.view(ctx, func(q *db.Queries) error {
		p := db.ReadAgentsParams{OrgID: s.OrgID, BeforeAt: from.at, BeforeID: from.id, Scaler: f.Scaler, MaxRows: int32(limit + 1)}
		if f.All {
			rows, err = q.ReadAgents(ctx, p)
			return err
		}
		live, err := q.ReadLiveAgents(ctx, db.ReadLiveAgentsParams(p))
		rows = rows[:0]
		for _, x := range live {
			rows = append(rows, db.ReadAgentsRow(x))
		}
		return err
	})
	if err != nil {
		return client.AgentList{}, fmt.Errorf("read agents: %w", err)
	}
	rows, next := cut(rows, limit, func(x db.ReadAgentsRow) position { return position{x.RequestedAt, x.ID} })
	out := client.AgentList{Agents: make([]client.Agent, len(rows)), NextCursor: next}
	for i, x := range rows {
		out.Agents[i] = agentOf(x, s)
	}
	return out, nil
}

// Agent is one agent, gone or not.
func (r *Reads) Agent(ctx context.Context, s Scope, id string) (client.Agent, error) {
	var row db.ReadAgentRow
	err := r.view(ctx, func(q *db.Queries) (err error) {
		row, err = q.ReadAgent(ctx, id, s.OrgID)
		return err
	})
	if err != nil {
		return client.Agent{}, notFound(err, fmt.Sprintf("agent %q", id))
	}
	return agentOf(db.ReadAgentsRow(row), s), nil
}

func agentOf(x db.ReadAgentsRow, s Scope) client.Agent {
	a := client.Agent{
		ID: x.ID, Type: x.Type, Scaler: x.Scaler, Node: x.NodeID, NodeName: x.NodeName.String, State: x.State,
		Connected: x.InstanceID != "" && !x.LinkLostAt.Valid && x.State != string(ci.AgentGone), Labels: stringList(x.Labels),
		Host: x.Host, Version: x.Version, Platform: x.Platform, Arch: x.Arch, Draining: x.Draining,
		RequestedAt: client.TimeOf(x.RequestedAt), StateAt: client.TimeOf(x.StateAt), RegisteredAt: timePtr(x.RegisteredAt),
		LastSeenAt: timePtr(x.LastSeenAt), EndedAt: timePtr(x.EndedAt), GoneReason: x.GoneReason, Error: x.Error,
		JobsDone: x.JobsDone, CPUMilli: x.CpuMilli, MemBytes: x.MemBytes,
	}
	if s.RoutingKey == "" || s.RoutingKey == x.RunKey.String {
		a.JobID, a.JobName, a.RunID = x.JobID.String, x.JobName.String, x.JobRunID.String
		a.RunNumber, a.Repo = x.RunNumber.Int64, x.RunRepo.String
	}
	return a
}

const (
	failureWindow = 24 * time.Hour
	maxFailures   = 5               // shown per scaler
	recentFailure = 5 * time.Minute // what diagnose counts (OP-13)
)

// Scalers is every scaler of every node with what it holds, its state in words and its recent failures.
func (r *Reads) Scalers(ctx context.Context, s Scope) (client.ScalerList, error) {
	now := r.now()
	var rows []db.ReadScalersRow
	var usage []db.ReadScalerUsageRow
	var failures []db.ScalerFailure
	var holders []db.ReadScalerHoldersRow
	var launching []db.ReadScalerLaunchesRow
	err := r.view(ctx, func(q *db.Queries) (err error) {
		if rows, err = q.ReadScalers(ctx); err != nil {
			return err
		}
		if usage, err = q.ReadScalerUsage(ctx); err != nil {
			return err
		}
		if holders, err = q.ReadScalerHolders(ctx, s.OrgID, s.RoutingKey); err != nil {
			return err
		}
		if launching, err = q.ReadScalerLaunches(ctx, s.OrgID); err != nil {
			return err
		}
		failures, err = q.ReadScalerFailures(ctx, now-failureWindow.Milliseconds(), s.OrgID)
		return err
	})
	if err != nil {
		return client.ScalerList{}, fmt.Errorf("read scalers: %w", err)
	}
	used := map[[2]string]db.ReadScalerUsageRow{}
	for _, u := range usage {
		used[[2]string{u.NodeID, u.Scaler}] = u
	}
	out := client.ScalerList{Scalers: make([]client.Scaler, len(rows))}
	for i, x := range rows {
		sc := scalerOf(x, used[[2]string{x.NodeID, x.Name}], now)
		for _, f := range failures {
			if f.NodeID == x.NodeID && f.Scaler == x.Name {
				addFailure(&sc, f, now)
			}
		}
		for _, h := range holders {
			if h.NodeID == x.NodeID && h.Scaler == x.Name {
				sc.Holders = append(sc.Holders, client.ScalerHolder{RunID: h.RunID, Repo: h.Repo, Number: h.Number, Agents: h.Agents})
			}
		}
		for _, l := range launching {
			if l.NodeID == x.NodeID && l.Scaler == x.Name {
				sc.StateText = joined(sc.StateText, launchText(l))
			}
		}
		out.Scalers[i] = sc
	}
	return out, nil
}

// addFailure counts a failed launch, and shows it if it is one of the newest.
func addFailure(sc *client.Scaler, f db.ScalerFailure, now int64) {
	switch recent := f.At >= now-recentFailure.Milliseconds(); {
	case recent && f.JobID.Valid:
		sc.FailedBound++
	case recent:
		sc.FailedWarm++
	}
	if len(sc.Failures) < maxFailures {
		sc.Failures = append(sc.Failures, client.ScalerFailure{At: client.TimeOf(f.At), Agent: f.AgentID, JobID: f.JobID.String, Error: f.Error, Tail: f.Tail})
	}
}

func scalerOf(x db.ReadScalersRow, u db.ReadScalerUsageRow, now int64) client.Scaler {
	sc := client.Scaler{
		Name: x.Name, Node: x.NodeID, NodeName: x.NodeName.String, Type: x.Type, ActiveCount: int(u.Agents),
		WarmCount: int(u.Warm), StartingCount: int(u.Starting), EndingCount: int(u.Ending), MaxAgents: x.MaxAgents,
		UsedCPUMilli: u.CpuMilli, CapCPUMilli: x.CapCpuMilli, UsedMemBytes: u.MemBytes, CapMemBytes: x.CapMemBytes,
		LabelSets: [][]string{},
	}
	var spec placement.ScalerSpec
	_ = json.Unmarshal([]byte(x.Spec), &spec)
	for _, ls := range spec.LabelSets {
		sc.LabelSets = append(sc.LabelSets, ls.Declared)
	}
	sc.NotProtected = spec.Protections
	sc.State, sc.StateText = scalerState(x, u, now)
	if sc.State == "backing off" {
		t := client.TimeOf(x.UntilAt.Int64)
		sc.BackoffUntil = &t
	}
	return sc
}

// scalerState is the state in words, and the sentence that explains it when it is not ready.
func scalerState(x db.ReadScalersRow, u db.ReadScalerUsageRow, now int64) (state, text string) {
	node := first(x.NodeName.String, x.NodeID)
	switch {
	case !ci.InstanceLive(x.NodeHeartbeat.Int64, now):
		return "node lost", "nothing was heard from " + node
	case x.Retiring:
		return "retiring", "no longer in scalers.yaml; ends with its last agent"
	case !x.Ready:
		return "not ready", x.NotReady
	case x.NodeDraining.Bool:
		return "draining", node + " takes no new work"
	case x.UntilAt.Int64 > now:
		if x.Failures.Int64 == 0 { // a moment's pause
			return "backing off", fmt.Sprintf("a pause until %s: %s", clock(x.UntilAt.Int64), x.LastError.String)
		}
		return "backing off", fmt.Sprintf("until %s after %d failed %s: %s", clock(x.UntilAt.Int64), x.Failures.Int64, launches(x.Failures.Int64), x.LastError.String)
	case x.MaxAgents > 0 && u.Agents >= x.MaxAgents:
		return "full", fmt.Sprintf("%d of %d agents", u.Agents, x.MaxAgents)
	case x.CapCpuMilli > 0 && u.CpuMilli >= x.CapCpuMilli:
		return "full", fmt.Sprintf("%s of %s CPUs", cpus(u.CpuMilli), cpus(x.CapCpuMilli))
	case x.CapMemBytes > 0 && u.MemBytes >= x.CapMemBytes:
		return "full", fmt.Sprintf("%d of %d MiB of memory", u.MemBytes>>20, x.CapMemBytes>>20)
	}
	return "ready", ""
}

// launchText is what launches of a scaler are doing that takes long.
func launchText(l db.ReadScalerLaunchesRow) string {
	if l.Agents == 1 {
		return l.Detail
	}
	return fmt.Sprintf("%d agents: %s", l.Agents, l.Detail)
}

func joined(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

func launches(n int64) string {
	if n == 1 {
		return "launch"
	}
	return "launches"
}

func cpus(milli int64) string {
	return fmt.Sprintf("%g", float64(milli)/1000)
}
